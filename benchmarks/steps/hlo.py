"""Writes the first door's training step as a program of XLA (HLO), which `gpu --programs FOLDER` times where there is
JAX and no TensorFlow.

A program has no weights: it is given random ones, and takes as long with them.
"""

import argparse
import itertools
import json
import pathlib
import re
import tempfile

import numpy as np

from benchmarks.result import at_least_1, log, provenance
from benchmarks.steps import tf_worker
from benchmarks.steps.batches import write_random_bert
from benchmarks.steps.gpu import MODELS, PRECISIONS, PROGRAM_ARMS, program_file


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument(
        "folder", type=pathlib.Path, help="where the programs go; those that are there are written anew"
    )
    parser.add_argument("--model", choices=MODELS, default="minilm", help="its shape")
    parser.add_argument("--batch-sizes", type=at_least_1, nargs="+", default=[32, 128, 512])
    parser.add_argument("--length", type=at_least_1, default=128, help="tokens of a row, none of them padding")
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=list(PRECISIONS))
    parser.add_argument("--arms", nargs="+", choices=PROGRAM_ARMS, default=list(PROGRAM_ARMS))
    return parser.parse_args(arguments)


def main():
    options = parse()
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        model, batches = pathlib.Path(folder, "model"), pathlib.Path(folder, "batches.npz")
        write_random_bert(model, **MODELS[options.model])
        given = {"directory": str(model), "batches": str(batches), "threads": 1, "seed": 0, "bottleneck": 64}
        given |= {"learning_rate": 1e-5, "xla": False}
        for size, precision, arm in itertools.product(options.batch_sizes, options.precisions, options.arms):
            ids = np.ones((size, options.length), np.int32)
            np.savez(batches, input_ids_0=ids, attention_mask_0=ids, labels_0=ids[:, 0])
            settings = {"model": options.model, "length": options.length, "precision": precision, "batch_size": size}
            path = options.folder / program_file({**settings, "arm": arm})
            write(path, {**given, "arm": arm.removeprefix("program-"), "precision": precision})
            log(f"{path.name}: {path.stat().st_size / 2**20:.1f} MiB")


def write(path, settings):
    """Write the program of an arm of tf_worker, and beside it what it needs to run on."""
    import tensorflow as tf

    arm = tf_worker.make_arm(settings)
    batch = next(arm.iterator)

    @tf.function(jit_compile=True)
    def step(inputs, labels):
        return arm.model.train_step((inputs, labels))["loss"]

    program = step.experimental_get_compiler_ir(*batch)
    path.write_bytes(program(stage="hlo_serialized"))
    about = {"donated": donated(program(stage="hlo")), **provenance()}
    about |= {"trained_parameters": arm.trained_parameters, "versions": arm.details["versions"]}
    path.with_suffix(".json").write_text(json.dumps(about, indent=1) + "\n")


def donated(text):
    """Which output takes the place of which parameter, from a program's text: a dict of ints.

    A variable that the step changes is a parameter and an output; XLA gives both the same memory.
    """
    pairs = re.findall(r"\{(\d+)\}: \((\d+), \{\}, (?:may|must)-alias\)", text[: text.find("\n")])
    return {int(output): int(parameter) for output, parameter in pairs}
