"""A bank under load: requests of mixed tasks from several threads while tasks are added, replaced and removed."""

import pathlib
import sys
import tempfile

from benchmarks.campaigns.load import Load, Tasks
from benchmarks.result_file import at_least_1, finish, make_parser, parse_arguments
from benchmarks.steps.bank_arm import noisy_copies, write_adapters
from benchmarks.table_parts import Table, in_notes, of_settings, origin

TEXTS = 100  # of each data set
DATA_SETS = ("glue/sst2", "glue/cola")


def parse(arguments=None):
    parser = make_parser(
        description=__doc__
        + " Every row's logits are compared with those of the adapter's own model; a task that changes while a request "
        "runs may be answered as before or as after. It fails on the first wrong answer. Texts are validation "
        "sentences of SST-2 and CoLA.",
        smoke="20 tasks and 100 requests",
    )
    parser.add_argument(
        "--adapters", nargs="+", help="adapter directories of one encoder; default: random ones on MiniLM, of two sizes"
    )
    parser.add_argument(
        "--copies", type=at_least_1, default=1, help="adapters made of each directory, by noise on every trained weight"
    )
    parser.add_argument(
        "--tasks", type=at_least_1, default=1000, help="tasks in the bank, each with one of these adapters"
    )
    parser.add_argument("--requests", type=at_least_1, default=20_000)
    parser.add_argument("--rows", type=at_least_1, default=8, help="at most so many rows in a request")
    parser.add_argument("--threads", type=at_least_1, default=2, help="that send requests")
    parser.add_argument("--pause-ms", type=float, default=20.0, help="between two changes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--stall-seconds", type=float, default=300.0, help="without an answer, after which it has failed"
    )
    options = parse_arguments(parser, arguments, "soak", tasks=20, requests=100)
    options.clients = options.threads
    return options


def table(result):
    """Markdown of one result of soak.py."""
    changes, memory, settings = result["changes"], result["resident_mib"], result["settings"]
    rows = {
        "requests, of rows": f"{result['requests']:,}, {result['rows']:,}",
        "wrong answers": f"{len(result['wrong'])}",
        "tasks added, replaced, removed meanwhile": ", ".join(
            f"{changes[name]:,}" for name in ("added", "replaced", "removed")
        ),
        "resident memory, MiB: at first, after a quarter, at most, at the end": (
            f"{memory[0]:,.0f}, {memory[len(memory) // 4]:,.0f}, {max(memory):,.0f}, {memory[-1]:,.0f}"
        ),
        "seconds": f"{result['seconds']:,.0f}",
    }
    kind = "random" if result["random_adapters"] else "trained ones and such with noise"
    return "\n".join(
        [
            f"**A bank of {settings['tasks']:,} tasks under load: {result['adapters']} adapters, {kind}**",
            "",
            "| | |",
            "|---|---:|",
            *(f"| {name} | {value} |" for name, value in rows.items()),
            "",
            origin(result, f"{settings['threads']} threads"),
        ]
    )


TABLE = Table(table, of_settings("tasks", "copies"), in_notes)


def main():
    options = parse()
    with tempfile.TemporaryDirectory() as folder:
        directories = options.adapters or random_adapters(folder)
        measured = {
            "random_adapters": not options.adapters,
            **soak(options, directories, pathlib.Path(folder) / "copies"),
        }
    finish("soak", options, ("copies", "tasks", "requests", "rows", "threads", "pause_ms", "seed"), measured, table)
    if measured["wrong"]:
        sys.exit(1)


def random_adapters(folder):
    """Adapter directories of random weights on MiniLM, of two bottleneck sizes."""
    from tf_adapters.models.transformers.loading import find_files

    source = find_files("minilm")
    return [
        path for size in (64, 16) for path in write_adapters(source, pathlib.Path(folder) / str(size), size, seed=size)
    ]


def soak(options, directories, folder):
    """Run the load; dict of counts, seconds and resident memory in MiB."""
    import numpy as np

    import tf_adapters
    from tf_adapters.saving.settings import read_settings

    data_sets = [tf_adapters.load_task(name, data_dir=options.data_dir) for name in DATA_SETS]
    texts = [text for task in data_sets for text in task.validation.text.numpy()[:TEXTS].tolist()]
    source = read_settings(directories[0])["backbone"]["source"]
    directories, expected = zip(*noisy_copies(directories, folder, options.copies, texts, options.seed))
    bank, tasks = tf_adapters.AdapterBank(source), Tasks(options.tasks, directories, len(directories))
    for name, versions in tasks.history.items():
        bank.add(name, directories[versions[0]])

    def change(seed, stop):
        random = np.random.default_rng([seed, 1])
        while not stop.wait(options.pause_ms / 1e3):
            tasks.change(bank, list(tasks.history), random)

    measured = Load(options, tasks, texts, expected, lambda text, task: bank.answer(text, task)).run([change])
    return {**measured, "changes": tasks.changes, "adapters": len(directories)}
