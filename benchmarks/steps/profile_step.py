"""Where the time of a training step goes: TensorFlow's profiler, its operations put into groups."""

import collections
import pathlib
import sys
import tempfile
import time

from benchmarks.provenance import usable_cores
from benchmarks.result_file import at_least_1, finish, make_parser, parse_arguments
from benchmarks.table_parts import Table, in_notes, of_settings, origin

#: Group of an operation: the first whose words are all in the operation's kind or path.
GROUPS = (
    ("optimizer", ("Adam/",)),
    ("products of the attention", (":_MklBatchMatMulV2",)),
    ("products of the attention", (":BatchMatMulV2",)),
    ("other products", ("MatMul",)),
    ("transposes", ("Transpose",)),
    ("softmax", ("Softmax",)),
    ("casts", (":Cast",)),
    ("embeddings", ("/embeddings/",)),
    ("sums of gradients", (":AddN",)),
)
# A compiled part, under the name that TensorFlow 2.21 gives it, and inside of that the one 2.19 has.
COMPILED = ("CpuExecutable::ExecuteAsyncOnStream", "ThunkExecutor::Execute")
# Events of the executor itself, which contain the operations, and marks without a duration.
CONTAINERS = ("ExecutorState::", "KernelAndDeviceFunc::", "EagerLocalExecute", "ThreadpoolListener::")


def parse(arguments=None):
    parser = make_parser(
        description=__doc__
        + " Adapter tuning on MiniLM, on rows of random tokens: a step's time does not depend on them. The "
        "groups' times are sums over threads, and may exceed the step's. Run it on an otherwise idle machine.",
        smoke="2 steps of 2 rows",
    )
    parser.add_argument("--batch-size", type=at_least_1, default=32)
    parser.add_argument("--length", type=at_least_1, default=128, help="tokens of a row")
    parser.add_argument("--precision", choices=("float32", "mixed_bfloat16"), default="mixed_bfloat16")
    parser.add_argument("--plain", action="store_true", help="HuggingFace's operations, not fast blocks")
    parser.add_argument("--steps", type=at_least_1, default=20, help="steps that are profiled")
    parser.add_argument("--threads", type=at_least_1, default=usable_cores())
    return parse_arguments(parser, arguments, "profile", batch_size=2, steps=2)


def table(result):
    """Markdown of one result of profile_step.py."""
    settings, total = result["settings"], sum(group["ms"] for group in result["groups"].values())
    blocks = "plain" if settings["plain"] else "fast"
    lines = [
        f"**Where a step goes: adapter tuning on MiniLM with {blocks} blocks, {settings['batch_size']} rows of "
        f"{settings['length']} tokens, {settings['precision']}**",
        "", "| | ms, summed over threads | % | operations |", "|---|---:|---:|---:|",
    ]  # fmt: skip
    for name, group in result["groups"].items():
        lines.append(f"| {name} | {group['ms']:.1f} | {100 * group['ms'] / total:.0f} | {group['operations']:.0f} |")
    lines.append(f"| all, in a step of {result['step_ms']:.1f} ms | {total:.1f} | 100 | |")
    return "\n".join([*lines, "", origin(result, f"{settings['steps']} steps")])


TABLE = Table(table, of_settings("batch_size", "length", "precision", "plain"), in_notes)


def main():
    options = parse()
    settings = ("batch_size", "length", "precision", "plain", "steps", "threads")
    finish("profile", options, settings, measure(options), table)


def measure(options):
    """Dict of milliseconds: `step`, and `groups` from a group's name to milliseconds and operations a step."""
    import numpy as np
    import tensorflow as tf

    import tf_adapters
    from tf_adapters._keras import keras

    tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    tf.config.threading.set_inter_op_parallelism_threads(options.threads)
    keras.utils.set_random_seed(0)
    keras.mixed_precision.set_global_policy(options.precision)
    model = tf_adapters.load_backbone("minilm", num_labels=2)
    tf_adapters.add_adapters(model, tf_adapters.AdapterConfig(64), seed=0, fast=not options.plain)
    tf_adapters.set_trainable(model, "adapters")
    if not options.plain:
        tf_adapters.cast_frozen(model)
    model.compile(keras.optimizers.Adam(1e-5), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    random, shape = np.random.RandomState(0), (options.batch_size, options.length)
    inputs = {
        "input_ids": tf.constant(random.randint(1000, model.config.vocab_size, shape), tf.int32),
        "attention_mask": tf.ones(shape, tf.int32),
        "token_type_ids": tf.zeros(shape, tf.int32),
    }
    labels = tf.constant(random.randint(0, 2, options.batch_size), tf.int32)
    iterator = iter(tf.data.Dataset.from_tensors((inputs, labels)).repeat())
    train = model.make_train_function()
    for _ in range(5):
        float(train(iterator)["loss"])
    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder)
        started = time.perf_counter()
        for _ in range(options.steps):
            float(train(iterator)["loss"])
        seconds = time.perf_counter() - started
        tf.profiler.experimental.stop()
        groups = read_groups(folder, options.steps)
    return {"step_ms": seconds / options.steps * 1e3, "groups": groups}


def read_groups(folder, steps):
    """The operations of a profile by group: dict from group to milliseconds and number a step, the largest first."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    (path,) = pathlib.Path(folder).rglob("*.xplane.pb")
    space = xplane_pb2.XSpace.FromString(path.read_bytes())
    milliseconds, numbers = collections.Counter(), collections.Counter()
    for plane in space.planes:
        if "CPU" not in plane.name:
            continue
        for line in plane.lines:
            for event in line.events:
                group = group_of(plane.event_metadata[event.metadata_id].name)
                if group is not None:
                    milliseconds[group] += event.duration_ps / 1e9 / steps
                    numbers[group] += 1 / steps
    if not milliseconds:
        sys.exit("The profile names no operation: this TensorFlow writes another format.")
    found = next((name for name in COMPILED if name in milliseconds), None)
    groups = [group for group, _ in milliseconds.most_common() if group == found or group not in COMPILED]
    return {
        "compiled parts" if group == found else group: {"ms": milliseconds[group], "operations": numbers[group]}
        for group in groups
    }


def group_of(name):
    """The group of an event of the profiler, or None of one that is no operation or contains others."""
    if name in COMPILED:
        return name
    if ":" not in name or name.startswith(CONTAINERS):
        return None
    return next((group for group, words in GROUPS if all(word in name for word in words)), "other operations")
