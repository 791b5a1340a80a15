"""Writes the XLA program (HLO) of a whole training step of each arm, to be compiled and timed by hlo_time.py
elsewhere."""

import argparse
import json
import os
import pathlib
import re

from benchmarks.provenance import installed_versions, log, provenance

ARMS = ("fast", "adapters", "full")
PRECISIONS = ("float32", "mixed_bfloat16")


def parse(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__ + " The programs hold no weights: they are given random ones, which costs the same time. "
        "A machine with a GPU needs neither TensorFlow nor this package then, only JAX, whose XLA compiles them.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("folder", type=pathlib.Path, help="where ARM.hlo and ARM.json go")
    parser.add_argument(
        "--model", default="minilm", help="minilm, bert-base (random weights), or a checkpoint directory"
    )
    parser.add_argument(
        "--arms", nargs="+", choices=ARMS, default=list(ARMS), metavar="ARM", help=f"of {', '.join(ARMS)}"
    )
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--length", type=int, default=128, help="tokens of each row")
    parser.add_argument("--bottleneck", type=int, default=64, help="units of an adapter")
    parser.add_argument("--precision", choices=PRECISIONS, default="mixed_bfloat16")
    return parser.parse_args(arguments)


def main():
    options = parse()
    import numpy as np
    import tensorflow as tf

    from tf_adapters._keras import keras

    keras.mixed_precision.set_global_policy(options.precision)
    keras.utils.set_random_seed(0)
    options.folder.mkdir(parents=True, exist_ok=True)
    shape = (options.batch_size, options.length)
    inputs = {name: tf.constant(np.full(shape, value, np.int32)) for name, value in INPUTS.items()}
    labels = tf.zeros([options.batch_size], tf.int32)
    for arm in options.arms:
        model = build(options, arm)
        model.compile(keras.optimizers.Adam(1e-5), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        model.optimizer.build(model.trainable_variables)

        @tf.function(jit_compile=True)
        def step(inputs, labels):
            return model.train_step((inputs, labels))["loss"]  # noqa: B023, traced below

        write = step.experimental_get_compiler_ir(inputs, labels)
        program = write(stage="hlo_serialized")
        (options.folder / f"{arm}.hlo").write_bytes(program)
        about = {
            "arm": arm,
            "model": os.path.basename(options.model),
            "precision": options.precision,
            "batch_size": options.batch_size,
            "length": options.length,
            "bottleneck": options.bottleneck,
            "trained_parameters": int(sum(variable.shape.num_elements() for variable in model.trainable_variables)),
            "donated": donated(write(stage="hlo")),
            "versions": installed_versions("tensorflow", "transformers", "tf_adapters"),
            **provenance(),
        }
        (options.folder / f"{arm}.json").write_text(json.dumps(about, indent=1) + "\n")
        log(f"{arm}: {len(program) / 2**20:.1f} MiB")
    print(f"Next, where the GPU is: pip install 'jax[cuda12]', and python hlo_time.py {options.folder.name}")


INPUTS = {"input_ids": 1, "attention_mask": 1, "token_type_ids": 0}


def build(options, arm):
    """The model of an arm, ready to compile."""
    import tf_adapters

    if options.model == "bert-base":
        import transformers

        model = transformers.TFBertForSequenceClassification(transformers.BertConfig())
        model.build_in_name_scope()
    else:
        model = tf_adapters.load_backbone(options.model, num_labels=2)
    if arm != "full":
        config = tf_adapters.AdapterConfig(bottleneck_size=options.bottleneck, train_layer_norm="encoder")
        tf_adapters.add_adapters(model, config, seed=0, fast=arm == "fast")
    return tf_adapters.set_trainable(model, "full" if arm == "full" else "adapters")


def donated(text):
    """Which output takes the place of which parameter, from the program's text: a dict of ints.

    A variable that the step changes is a parameter and an output; XLA gives both the same memory.
    """
    header = text[: text.find("\n")]
    found = re.findall(r"\{(\d+)\}: \((\d+), \{\}, (?:may|must)-alias\)", header)
    return {int(output): int(parameter) for output, parameter in found}
