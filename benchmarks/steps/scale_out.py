"""Bytes that cross the network in a training step on two workers: adapters against full fine-tuning."""

import faulthandler
import json
import os
import pathlib
import socket
import tempfile
import time
import traceback

from benchmarks.provenance import log
from benchmarks.result_file import at_least_1, finish, fresh_processes, make_parser, parse_arguments
from benchmarks.table_parts import METHOD_TITLES, Table, of_settings, origin

MODES = ("adapters", "full")
# Steps before the first that counts: traced, compiled, first connections.
WARM_UP = 3


def parse(arguments=None):
    parser = make_parser(
        description=__doc__
        + " Both are processes of this machine under MultiWorkerMirroredStrategy, and what the loopback interface sent "
        "is read before and after a number of steps; what it sends while nothing trains is taken off. Needs Linux "
        "(/proc/net/dev).",
        smoke="one step of two rows",
    )
    parser.add_argument("--steps", type=at_least_1, default=20, help="that are counted")
    parser.add_argument("--batch-size", type=at_least_1, default=32, help="of both workers together")
    parser.add_argument("--bottleneck", type=at_least_1, default=64, help="units of an adapter")
    options = parse_arguments(parser, arguments, "scale-out", steps=1, batch_size=2)
    if options.batch_size < 2:
        parser.error(f"--batch-size {options.batch_size} must have a row for each of two workers.")
    return options


def table(result):
    """Markdown of one result of scale_out.py."""
    settings, modes = result["settings"], result["modes"]
    lines = [
        f"**What a worker sends in a step: MiniLM, two workers, {settings['batch_size']} rows a step**",
        "",
        "| what trains | trained parameters | gradient without embedding tables, MB | sent by a worker in a step, MB |",
        "|---|---:|---:|---:|",
    ]
    for mode, row in modes.items():
        lines.append(
            f"| {METHOD_TITLES[mode]} | {row['trained_parameters']:,} | {row['dense_gradient_bytes'] / 1e6:.2f} "
            f"| {row['bytes_per_step_and_worker'] / 1e6:.2f} |"
        )
    ratio = modes["full"]["bytes_per_step_and_worker"] / modes["adapters"]["bytes_per_step_and_worker"]
    lines += ["", f"Full fine-tuning sends {ratio:.1f} times as much."]
    return "\n".join([*lines, "", origin(result, f"{settings['steps']} steps on the loopback interface")])


TABLE = Table(table, of_settings("batch_size", "bottleneck"))


def main():
    options = parse()
    quiet = quiet_rate()
    modes = {}
    for mode in MODES:
        log(f"{mode} ...")
        modes[mode] = summarise(two_workers(mode, options), quiet)
    measured = {"model": "minilm", "quiet_bytes_per_s": quiet, "modes": modes}
    finish("scale-out", options, ("steps", "batch_size", "bottleneck"), measured, table)


def sent_bytes(interface="lo", text=None):
    """What an interface has sent since the machine started, an int; `text` stands for /proc/net/dev."""
    for line in (pathlib.Path("/proc/net/dev").read_text() if text is None else text).splitlines():
        name, colon, numbers = line.partition(":")
        if colon and name.strip() == interface:
            return int(numbers.split()[8])
    raise RuntimeError(f"/proc/net/dev has no interface {interface}.")


def quiet_rate(seconds=5.0):
    """Bytes per second on the loopback interface while nothing trains."""
    before = sent_bytes()
    time.sleep(seconds)
    return (sent_bytes() - before) / seconds


def two_workers(mode, options):
    """What the first of two workers measured, a dict."""
    with socket.create_server(("localhost", 0)) as one, socket.create_server(("localhost", 0)) as other:
        addresses = [f"localhost:{server.getsockname()[1]}" for server in (one, other)]
    with fresh_processes(2) as pool:
        return [pool.submit(work, mode, options, addresses, index) for index in (0, 1)][0].result()


def work(*arguments):
    """One worker's `train`; if it fails or hangs its process dies, for the other one would wait for ever."""
    faulthandler.dump_traceback_later(1800, exit=True)
    try:
        return train(*arguments)
    except Exception:
        traceback.print_exc()
        os._exit(1)


def train(mode, options, addresses, index):
    """The part of one of the workers: the bytes of the counted steps, their seconds, and what trains."""
    import dataclasses

    cluster = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
    os.environ.update(TF_CONFIG=json.dumps(cluster), CUDA_VISIBLE_DEVICES="-1")
    import numpy as np

    import tf_adapters
    from tf_adapters.models.state import state_of
    from tf_adapters.training.experiment import load_for_task
    from tf_adapters.training.run import Reporter
    from tf_adapters.training.strategies import make_strategy, scope_of

    strategy = make_strategy("multi-worker")
    started = sent_bytes()
    task = tf_adapters.load_task("rotten-tomatoes")
    # One epoch: nothing but steps crosses the network between the two readings.
    rows = np.arange(options.batch_size * (WARM_UP + options.steps + 1))
    task = dataclasses.replace(task, train=task.train.take(rows), validation=task.validation.take(rows[:32]), test=None)
    readings = {}

    class Read(Reporter):
        def step(self, done, numbers):
            if done in (WARM_UP, WARM_UP + options.steps):
                readings[done] = sent_bytes(), time.perf_counter()

    with scope_of(strategy):
        model, wordpiece = load_for_task("minilm", task, max_length=128)
        if mode == "adapters":
            tf_adapters.add_adapters(model, tf_adapters.AdapterConfig(options.bottleneck), seed=0)
        tf_adapters.set_trainable(model, mode)
    loaded = sent_bytes()
    with tempfile.TemporaryDirectory() as folder:
        tf_adapters.fit(
            model,
            task,
            wordpiece,
            output=folder,
            epochs=1,
            batch_size=options.batch_size,
            learning_rate=1e-5,
            dropout=0.0,
            strategy=strategy,
            checkpoint_seconds=1e9,
            reporter=Read(),
        )
    (first, began), (last, ended) = readings.values()
    trained = sum(int(np.prod(variable.shape)) for variable in model.trainable_variables)
    # Of a table of embeddings only the rows that a batch reads have a gradient.
    tables = {
        id(variable)
        for variable in state_of(model).family.main_layer(model).embeddings.weights
        if variable.shape.rank == 2
    }
    sparse = sum(int(np.prod(variable.shape)) for variable in model.trainable_variables if id(variable) in tables)
    return {
        "bytes": last - first, "seconds": ended - began, "steps": options.steps, "trained_parameters": trained,
        "parameters_of_sparse_gradients": sparse, "bytes_to_load": loaded - started,
    }  # fmt: skip


def summarise(measured, quiet):
    """What one worker sends in a step, beside its gradient's size."""
    steps = measured["steps"]
    return {
        **{name: measured[name] for name in ("trained_parameters", "parameters_of_sparse_gradients", "bytes_to_load")},
        # The interface counts both workers.
        "bytes_per_step_and_worker": (measured["bytes"] - quiet * measured["seconds"]) / steps / 2,
        "dense_gradient_bytes": 4 * (measured["trained_parameters"] - measured["parameters_of_sparse_gradients"]),
        "step_s": measured["seconds"] / steps,
    }
