"""Compares adapters with `adapters` on PyTorch, in both directions: its files imported here, ours exported and loaded there."""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from result_file import add_arguments, finish, parse_arguments

HERE = pathlib.Path(__file__).resolve().parent


def parse(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__ + " Models are tiny and random; every weight of an adapter is far from its initial value. What is compared is the "
        "last hidden states and the logits, in float32.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--torch-python", help="Python with the peers; default: torch_environment.py makes one")
    add_arguments(parser, smoke="the same")
    return parse_arguments(parser, arguments, "adapterhub-parity")


def main():
    options = parse()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    torch_python = options.torch_python
    if torch_python is None:
        from torch_environment import torch_python as make_environment

        torch_python = make_environment(log=lambda line: print(line, file=sys.stderr))
    script = str(HERE / "adapterhub_torch.py")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        _run([str(torch_python), script, "make", str(folder)])
        imported = import_all(folder)
        exported = json.loads(_run([str(torch_python), script, "check", str(folder)]).splitlines()[-1])
    finish("adapterhub-parity", options, (), {"imported": imported, "exported": exported}, describe)


def _run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit("\n".join(done.stderr.splitlines()[-8:]))
    return done.stdout


def import_all(folder):
    """Import every adapter below a folder, compare, and export it again to `exported`; dict of greatest differences."""
    import numpy as np
    import tensorflow as tf

    import tf_adapters
    from tf_adapters import adapterhub

    differences = {}
    for directory in sorted(path.parent for path in folder.glob("*/*/expected.npz")):
        family, preset = directory.parent.name, directory.name
        model = tf_adapters.load_backbone(folder / family / "model", num_labels=3)
        try:
            adapterhub.import_adapter(model, directory)
        except tf_adapters.InputError as error:
            differences[f"{family}/{preset}"] = {"refused": str(error)}
            continue
        with np.load(folder / family / "inputs.npz") as arrays:
            inputs = {name: tf.constant(arrays[name]) for name in arrays.files}
        outputs = model(inputs, output_hidden_states=True)
        found = {"hidden_states": outputs.hidden_states[-1].numpy(), "logits": outputs.logits.numpy()}
        # What stands at padding is read by nothing, and DeBERTa's two implementations leave different things there.
        found["hidden_states"] = found["hidden_states"][inputs["attention_mask"].numpy() == 1]
        with np.load(directory / "expected.npz") as expected:
            differences[f"{family}/{preset}"] = {key: float(np.abs(found[key] - expected[key]).max()) for key in found}
        adapterhub.export_adapter(model, folder / "exported" / family / preset)
    return differences


def describe(result):
    """The result as lines of text."""
    lines = [f"{'family/adapter':28}{'imported: states':>18}{'logits':>10}{'exported: states':>18}{'logits':>10}"]
    for name, imported in result["imported"].items():
        if "refused" in imported:
            lines.append(f"{name:28}refused: {imported['refused'][:90]}...")
            continue
        exported = result["exported"].get(name, {"hidden_states": float("nan"), "logits": float("nan")})
        numbers = [each[key] for each in (imported, exported) for key in ("hidden_states", "logits")]
        lines.append(f"{name:28}{numbers[0]:18.1e}{numbers[1]:10.1e}{numbers[2]:18.1e}{numbers[3]:10.1e}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
