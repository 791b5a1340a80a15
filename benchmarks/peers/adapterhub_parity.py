"""Compares adapters with `adapters` and PEFT on PyTorch: their files imported here, and ours exported and loaded in
`adapters`."""

import json
import pathlib
import subprocess
import sys
import tempfile

from benchmarks.peers.adapterhub_torch import PEFT, compared, of_choices
from benchmarks.peers.torch_environment import torch_python
from benchmarks.result import finish, make_parser, parse_arguments
from benchmarks.start import command
from benchmarks.table_parts import Table, in_notes, markdown, of_settings, origin


def parse(arguments=None):
    how = "Models are tiny and random; every weight of an adapter and of a head is far from its initial value. What is "
    how += "compared is the last hidden states and the logits, in float32."
    parser = make_parser(f"{__doc__} {how}", smoke="the same")
    parser.add_argument("--torch-python", help="Python with the peers; default: torch_environment.py makes one")
    return parse_arguments(parser, arguments, "adapterhub-parity")


def table(result):
    """Markdown of one result of adapterhub_parity.py: the greatest differences of each adapter and head on each
    family."""
    names = sorted({name.split("/")[1] for name in result["imported"]})
    families = sorted({name.split("/")[0] for name in result["imported"]})

    def cell(name):
        if name not in result["imported"]:
            return ""
        if "refused" in result["imported"][name]:
            return "refused"
        # What came from PEFT is not exported.
        found = [result[direction][name] for direction in ("imported", "exported") if name in result[direction]]
        return ", ".join(f"{max(differences.values()):.0e}" for differences in found)

    return markdown(
        "Greatest difference from `adapters` and PEFT on PyTorch, hidden states and logits: their file imported here, "
        "ours exported there",
        f"| | {' | '.join(families)} |", "l" + "r" * len(families),
        [(name, *(cell(f"{family}/{name}") for family in families)) for name in names],
        origin(result, "tiny random encoders, float32"),
    )  # fmt: skip


TABLE = Table(table, of_settings(), in_notes)


def main():
    options = parse()
    with tempfile.TemporaryDirectory() as folder:
        python = torch_python(options.torch_python)
        _on_torch("make", folder, python)
        imported = import_all(pathlib.Path(folder))
        exported = json.loads(_on_torch("check", folder, python).splitlines()[-1])
    finish("adapterhub-parity", options, (), {"imported": imported, "exported": exported}, table)


def _on_torch(do, folder, python):
    words = command("peers.adapterhub_torch", do, folder, python=python)
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit("\n".join(done.stderr.splitlines()[-8:]))
    return done.stdout


def import_all(folder):
    """Import every adapter below a folder, compare, and export it again to `exported`; dict of greatest differences."""
    import numpy as np
    import tensorflow as tf

    import tf_adapters
    from tf_adapters import adapterhub
    from tf_adapters.adapterhub.bridge import describe_head

    differences = {}
    for directory in sorted(path.parent for path in folder.glob("*/*/expected.npz")):
        family, preset = directory.parent.name, directory.name
        try:
            head = describe_head(directory)
            # Without a head of its own it stands on the encoder's.
            arguments = {"num_labels": 3}
            if head is not None:
                arguments = {"head": head.head, "labels": head.labels, "head_layers": head.head_layers}
            model = tf_adapters.load_backbone(folder / family / "model", **arguments)
            adapterhub.import_adapter(model, directory)
        except tf_adapters.InputError as error:
            differences[f"{family}/{preset}"] = {"refused": str(error).replace(f"{folder}/", "")}
            continue
        with np.load(folder / family / "inputs.npz") as arrays:
            inputs = dict(arrays)
        if head is not None and head.head == "multiple-choice":
            inputs = of_choices(inputs)
        outputs = model({name: tf.constant(value) for name, value in inputs.items()}, output_hidden_states=True)
        found = compared(outputs, inputs["attention_mask"])
        with np.load(directory / "expected.npz") as expected:
            differences[f"{family}/{preset}"] = {key: float(np.abs(found[key] - expected[key]).max()) for key in found}
        if preset not in PEFT:
            adapterhub.export_adapter(model, folder / "exported" / family / preset)
    return differences
