"""Small costs: what importing takes, and what the training loop adds to its steps."""

import os
import statistics
import subprocess
import sys
import time

from benchmarks.pairing import paired_ratio
from benchmarks.provenance import log
from benchmarks.result_file import at_least_1, finish, make_parser, parse_arguments
from benchmarks.table_parts import Table, in_notes, median_and_range, of_settings, origin

IMPORTS = {
    "nothing": "pass",
    "tf_adapters": "import tf_adapters",
    "TensorFlow": "import tensorflow",
    "transformers' TFBert": "from transformers import TFBertForSequenceClassification",
    "tf_adapters, all that loads a model": "from tf_adapters import add_adapters, load_backbone",
}
#: Ways to compute the same steps; each is compared with the first.
LOOPS = ("train function", "fit", "fit with a callback a step", "fit, 8 steps an execution")
STEPS_PER_EXECUTION = 8


def parse(arguments=None):
    parser = make_parser(
        description=__doc__
        + " Imports are whole processes, one after the other in turns. The steps are those of adapter tuning "
        "on MiniLM with fast blocks, on batches of sentences of SST-2 sorted by length, by the function that "
        "`model.fit` calls for each batch and by `fit` itself, in turns.",
        smoke="one round of 8 steps",
    )
    parser.add_argument("--rounds", type=at_least_1, default=7)
    parser.add_argument("--steps", type=at_least_1, default=80, help=f"of a turn; a multiple of {STEPS_PER_EXECUTION}")
    parser.add_argument("--batch-size", type=at_least_1, default=32)
    parser.add_argument("--precision", choices=("float32", "mixed_bfloat16"), default="float32")
    options = parse_arguments(parser, arguments, "costs", rounds=1, steps=STEPS_PER_EXECUTION)
    if options.steps % STEPS_PER_EXECUTION:
        parser.error(f"--steps {options.steps} must be a multiple of {STEPS_PER_EXECUTION}.")
    return options


def table(result):
    """Markdown of one result of costs.py."""
    settings = result["settings"]
    lines = ["**Small costs**", "", "| a process that imports | s (min to max) |", "|---|---:|"]
    lines += [f"| {name} | {median_and_range(spread, 2)} |" for name, spread in result["imports_s"].items()]
    lines += [
        "",
        f"| a step of adapter tuning with fast blocks, MiniLM, {settings['batch_size']} sentences of SST-2, "
        f"{settings['precision']} | ms (min to max) | ratio, paired by round |",
        "|---|---:|---:|",
    ]
    first = next(iter(result["loops_ms"]))
    for name, spread in result["loops_ms"].items():
        ratio = result["ratios"].get(f"{name} / {first}")
        lines.append(f"| {name} | {median_and_range(spread, 1)} | {median_and_range(ratio, 3) if ratio else ''} |")
    return "\n".join([*lines, "", origin(result, f"{settings['rounds']} rounds of {settings['steps']} steps")])


TABLE = Table(table, of_settings("precision"), in_notes)


def main():
    options = parse()
    imports = time_imports(options.rounds)
    times = time_loops(options)
    turns = {name: [[step] for step in steps] for name, steps in times.items()}
    first = LOOPS[0]
    measured = {
        "imports_s": {name: _spread(seconds) for name, seconds in imports.items()},
        "loops_ms": {name: _spread(steps) for name, steps in times.items()},
        "ratios": {f"{name} / {first}": paired_ratio(turns[name], turns[first]) for name in LOOPS[1:]},
    }
    finish("costs", options, ("rounds", "steps", "batch_size", "precision"), measured, table)


def time_imports(rounds):
    """Seconds of whole processes that import something; dict from name to one number a round."""
    environment = {**os.environ, "TF_USE_LEGACY_KERAS": "1"}
    seconds = {name: [] for name in IMPORTS}
    for _ in range(rounds):
        for name, statement in IMPORTS.items():
            started = time.perf_counter()
            subprocess.run([sys.executable, "-c", statement], check=True, env=environment, stderr=subprocess.DEVNULL)
            seconds[name].append(time.perf_counter() - started)
        log("imports, s: " + ", ".join(f"{name} {values[-1]:.2f}" for name, values in seconds.items()))
    return seconds


def time_loops(options):
    """Milliseconds of a step; dict from loop to one number a round."""
    import tf_adapters
    from tf_adapters._keras import keras
    from tf_adapters.models.transformers.loading import find_files
    from tf_adapters.text.batching import training_batches

    keras.utils.set_random_seed(0)
    keras.mixed_precision.set_global_policy(options.precision)
    wordpiece = tf_adapters.WordPiece.from_directory(find_files("minilm"), max_length=128)
    task = tf_adapters.load_task("glue/sst2", data_dir=options.data_dir)
    batches = training_batches(task.validation, wordpiece, batch_size=options.batch_size, epochs=1, seed=0)
    batches = batches.take(8).cache().repeat()

    def model(steps_per_execution):
        built = tf_adapters.load_backbone("minilm", num_labels=2)
        tf_adapters.add_adapters(built, tf_adapters.AdapterConfig(64), seed=0, fast=True)
        tf_adapters.cast_frozen(tf_adapters.set_trainable(built, "adapters"))
        built.compile(
            keras.optimizers.Adam(1e-4),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            steps_per_execution=steps_per_execution,
        )
        return built

    class EachStep(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            float(logs["loss"])

    one, several = model(1), model(STEPS_PER_EXECUTION)
    fit = {"steps_per_epoch": options.steps, "epochs": 1, "verbose": 0}
    one.fit(batches, **fit)  # makes the train function
    iterator = iter(batches)

    def bare():
        for _ in range(options.steps):
            float(one.train_function(iterator)["loss"])

    loops = dict(
        zip(
            LOOPS,
            (
                bare,
                lambda: one.fit(batches, **fit),
                lambda: one.fit(batches, **fit, callbacks=[EachStep()]),
                lambda: several.fit(batches, **fit),
            ),
        )
    )
    for loop in loops.values():
        loop()
    times = {name: [] for name in loops}
    for number in range(options.rounds):
        # There and back, so that a drift of the machine favours none.
        for name in list(loops) if number % 2 == 0 else reversed(loops):
            started = time.perf_counter()
            loops[name]()
            times[name].append((time.perf_counter() - started) * 1e3 / options.steps)
        log("ms a step: " + ", ".join(f"{name} {values[-1]:.1f}" for name, values in times.items()))
    return times


def _spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "rounds": values}
