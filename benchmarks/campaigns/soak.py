"""A bank under load: requests of mixed tasks from several threads while tasks are added, replaced and removed."""

import pathlib
import sys
import tempfile
import threading
import time

from benchmarks.provenance import log, resident_mib
from benchmarks.result_file import finish, make_parser, parse_arguments
from benchmarks.steps.bank_arm import noisy_copies, write_adapters
from benchmarks.table_parts import Table, in_notes, of_settings, origin

TOLERANCE = 1e-5
TEXTS = 100  # of each data set
DATA_SETS = ("glue/sst2", "glue/cola")


def parse(arguments=None):
    parser = make_parser(
        description=__doc__ + " Every row's logits are compared with those of the adapter's own model; a task that changes while a request "
        "runs may be answered as before or as after. It fails on the first wrong answer. Texts are validation sentences of SST-2 and CoLA.",
        smoke="20 tasks and 100 requests",
    )
    parser.add_argument("--adapters", nargs="+", help="adapter directories of one encoder; default: random ones on MiniLM, of two sizes")
    parser.add_argument("--copies", type=int, default=1, help="adapters made of each directory, by noise on every trained weight")
    parser.add_argument("--tasks", type=int, default=1000, help="tasks in the bank, each with one of these adapters")
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--rows", type=int, default=8, help="at most so many rows in a request")
    parser.add_argument("--threads", type=int, default=2, help="that send requests")
    parser.add_argument("--pause-ms", type=float, default=20.0, help="between two changes")
    parser.add_argument("--seed", type=int, default=0)
    options = parse_arguments(parser, arguments, "soak")
    if options.smoke:
        options.tasks, options.requests = 20, 100
    for name in ("copies", "tasks", "requests", "rows", "threads"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1.")
    return options


def table(result):
    """Markdown of one result of soak.py."""
    changes, memory, settings = result["changes"], result["resident_mib"], result["settings"]
    rows = {
        "requests, of rows": f"{result['requests']:,}, {result['rows']:,}",
        "wrong answers": f"{len(result['wrong'])}",
        "tasks added, replaced, removed meanwhile": ", ".join(f"{changes[name]:,}" for name in ("added", "replaced", "removed")),
        "resident memory, MiB: at first, after a quarter, at most, at the end": (
            f"{memory[0]:,.0f}, {memory[len(memory) // 4]:,.0f}, {max(memory):,.0f}, {memory[-1]:,.0f}"
        ),
        "seconds": f"{result['seconds']:,.0f}",
    }
    kind = "random" if result["random_adapters"] else "trained ones and such with noise"
    return "\n".join([
        f"**A bank of {settings['tasks']:,} tasks under load: {result['adapters']} adapters, {kind}**", "", "| | |", "|---|---:|",
        *(f"| {name} | {value} |" for name, value in rows.items()), "", origin(result, f"{settings['threads']} threads"),
    ])  # fmt: skip


TABLE = Table(table, of_settings("tasks", "copies"), in_notes)


def main():
    options = parse()
    with tempfile.TemporaryDirectory() as folder:
        directories = options.adapters or random_adapters(folder)
        measured = {"random_adapters": not options.adapters, **soak(options, directories, pathlib.Path(folder) / "copies")}
    finish("soak", options, ("copies", "tasks", "requests", "rows", "threads", "pause_ms", "seed"), measured, describe)
    if measured["wrong"]:
        sys.exit(1)


def random_adapters(folder):
    """Adapter directories of random weights on MiniLM, of two bottleneck sizes."""
    from tf_adapters.models.loading import find_files

    source = find_files("minilm")
    return [path for size in (64, 16) for path in write_adapters(source, pathlib.Path(folder) / str(size), size, seed=size)]


def soak(options, directories, folder):
    """Run the load; dict of counts, seconds and resident memory in MiB."""
    import numpy as np

    import tf_adapters
    from tf_adapters.saving.settings import read_settings

    tasks = [tf_adapters.load_task(name, data_dir=options.data_dir) for name in DATA_SETS]
    texts = [text for task in tasks for text in task.validation.text.numpy()[:TEXTS].tolist()]
    source = read_settings(directories[0])["backbone"]["source"]
    directories, expected = zip(*noisy_copies(directories, folder, options.copies, texts, options.seed))
    bank = tf_adapters.AdapterBank(source)
    for directory in directories:
        bank.reserve(2 * options.tasks // len(directories) + 2, directory)
    # What a task's requests may be answered by: from the last change that was complete when a request began, on.
    history, complete = {}, {}
    for number in range(options.tasks):
        chosen = number % len(directories)
        history[f"task {number}"], complete[f"task {number}"] = [chosen], 0
        bank.add(f"task {number}", directories[chosen])
    names = list(history)
    counts, wrong, lock, stop = {"requests": 0, "rows": 0}, [], threading.Lock(), threading.Event()

    def ask(seed):
        random = np.random.default_rng(seed)
        while not stop.is_set():
            rows = int(random.integers(1, options.rows + 1))
            tasks = [names[place] for place in random.integers(0, len(names), rows)]
            places = random.integers(0, len(texts), rows)
            before = [complete[name] for name in tasks]
            try:
                answer = bank.answer([texts[place] for place in places], tasks)
                logits, errors = answer["logits"].numpy(), answer["error"].numpy()
            except Exception as error:
                wrong.append(repr(error))
                stop.set()
                return
            for row, (name, place) in enumerate(zip(tasks, places)):
                allowed = history[name][before[row] :]
                if errors[row]:
                    right = None in allowed
                else:
                    right = any(
                        version is not None and np.abs(logits[row, : expected[version].shape[1]] - expected[version][place]).max() < TOLERANCE
                        for version in allowed
                    )
                if not right:
                    wrong.append(f"{name}: {logits[row].tolist()}, {errors[row]!r}; allowed {allowed}")
                    stop.set()
            with lock:
                counts["requests"] += 1
                counts["rows"] += rows
                if counts["requests"] >= options.requests:
                    stop.set()

    threads = [threading.Thread(target=ask, args=(options.seed + number,)) for number in range(options.threads)]
    random, changes, memory = np.random.default_rng([options.seed, 1]), {"added": 0, "replaced": 0, "removed": 0}, []
    bank.answer(texts[:1], names[:1])
    for thread in threads:
        thread.start()
    started = shown = time.perf_counter()
    while not stop.wait(options.pause_ms / 1e3):
        name = names[random.integers(len(names))]
        version = int(random.integers(len(directories)))
        if history[name][-1] is None:
            history[name].append(version)
            bank.add(name, directories[version])
            changes["added"] += 1
        elif random.integers(4) == 0:
            history[name].append(None)
            bank.remove(name)
            changes["removed"] += 1
        else:
            history[name].append(version)
            bank.replace(name, directories[version])
            changes["replaced"] += 1
        complete[name] = len(history[name]) - 1
        if time.perf_counter() - shown > 10 or not memory:
            shown = time.perf_counter()
            memory.append(resident_mib())
            log(f"{counts['requests']:,} requests, {sum(changes.values()):,} changes, {memory[-1]:,.0f} MiB")
    for thread in threads:
        thread.join()
    memory.append(resident_mib())
    return {
        **counts, "changes": changes, "wrong": wrong, "seconds": time.perf_counter() - started, "resident_mib": memory,
        "adapters": len(directories),
    }  # fmt: skip


def describe(result):
    """The result as lines of text."""
    memory, changes = result["resident_mib"], result["changes"]
    settled = memory[len(memory) // 4]
    return (
        f"{result['requests']:,} requests of {result['rows']:,} rows in {result['seconds']:.0f} s, on {result['settings']['tasks']:,} tasks; meanwhile "
        f"{changes['added']:,} added, {changes['replaced']:,} replaced, {changes['removed']:,} removed\n"
        f"wrong answers: {len(result['wrong'])} {result['wrong'][:1] or ''}\n"
        f"resident memory, MiB: {memory[0]:,.0f} at first, {settled:,.0f} after a quarter, {max(memory):,.0f} at most, {memory[-1]:,.0f} at the end"
    )
