"""A search of adapter size and learning rate by `tf-adapters tune`: every pair of a grid, over seeds."""

import json
import pathlib
import shlex
import shutil
import sys
import tempfile

from benchmarks.pairing import mean_and_spread
from benchmarks.provenance import ROOT, git_state, installed_versions, without_folders
from benchmarks.result_file import RESULTS
from benchmarks.studies import study
from benchmarks.table_parts import Table, mean_and_sd, of_settings, origin


def arguments_of(options, folder):
    """The words of `tf-adapters tune` that do it."""
    vary = {
        "adapter-size": ",".join(map(str, options.sizes)),
        "learning-rate": ",".join(f"{rate:g}" for rate in options.learning_rates),
        "epochs": options.epochs,
        "batch-size": options.batch_size,
    }
    return [
        "tune",
        "--model",
        options.model,
        "--task",
        options.task,
        "--data-dir",
        options.data_dir,
        "--low-resource",
        str(options.rows),
        "--space",
        "none",
        *(word for name, value in vary.items() for word in ("--vary", f"{name}={value}")),
        "--tuner",
        "grid",
        "--seeds",
        str(options.seeds),
        "--max-length",
        str(options.max_length),
        "--output",
        str(folder),
    ]


def summarise(search):
    """Each pair's validation results, the best pair, and its test result, of the content of `search.json`; a dict for
    JSON."""
    cells = []
    for trial in search["trials"]:
        values = [run["validation"] for run in trial["seeds"]]
        cells.append(
            {
                "bottleneck_size": trial["values"]["bottleneck_size"],
                "learning_rate": trial["values"]["learning_rate"],
                "values": values,
                "seconds": [run["seconds"] for run in trial["seeds"]],
                "message": trial["message"],
                **(mean_and_spread(values) if values else {}),
            }
        )
    best = next(trial for trial in search["trials"] if trial["trial"] == search["best"])
    return {
        "cells": cells,
        "best": best["values"],
        "test": search["test"],
        "train_command": shlex.join(without_folders(shlex.split(search["command"]))),
    }


def axes(cells):
    """The sizes and the rates of the cells, each ascending."""
    return [sorted({cell[name] for cell in cells}) for name in ("bottleneck_size", "learning_rate")]


def cell_of(cells, size, rate):
    """The cell of a pair, or None."""
    return next((cell for cell in cells if (cell["bottleneck_size"], cell["learning_rate"]) == (size, rate)), None)


def shown(cell):
    """A cell as text; of a trial that failed what its first seeds gave does not count."""
    return "failed" if cell and cell["message"] else mean_and_sd(cell, "-")


def table(result):
    """Markdown of one result."""
    sizes, rates = axes(result["cells"])
    settings = result["settings"]
    lines = [
        f"**Search on {settings['task']}, {settings['model']}: validation {settings['metric']} by adapter size and "
        "learning rate, mean ± standard deviation over seeds, in %**",
        "",
        "| size | " + " | ".join(f"{rate:g}" for rate in rates) + " |",
        "|---:|" + "---:|" * len(rates),
    ]
    for size in sizes:
        cells = [cell_of(result["cells"], size, rate) for rate in rates]
        best = (result["best"]["bottleneck_size"], result["best"]["learning_rate"])
        marked = (f"**{shown(cell)}**" if (size, rate) == best else shown(cell) for rate, cell in zip(rates, cells))
        lines.append(f"| {size} | " + " | ".join(marked) + " |")
    test = ", ".join(f"{name.replace('_', ' ')} {100 * value:.1f}" for name, value in (result["test"] or {}).items())
    what = f"{settings['rows']:,} rows, {settings['epochs']} epochs, {settings['seeds']} seeds"
    # The coefficient of an answer that never changes.
    what += "; a constant answer has 0.0" if settings["metric"] == "matthews" else ""
    return "\n".join([*lines, "", origin(result, f"{what}; test of the best adapter: {test} %")])


TABLE = Table(table, of_settings("task", "model", "rows", "epochs"))


def parse(arguments=None):
    parser = study.parser(
        __doc__
        + " Rows are those of `--low-resource`: validation rows are held out of the training split, and the best "
        "pair's adapter is tested on the task's own validation rows. The same command goes on where a killed one "
        "stopped.",
        "data_dir task model learning_rates rows epochs batch_size max_length output",
        task="glue/cola",
        output=RESULTS / "search-cola-minilm",
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[8, 64, 256])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--work",
        type=pathlib.Path,
        default=ROOT / ".benchmark-search",
        help="folder of the search itself, for resuming",
    )
    parser.add_argument("--smoke", action="store_true", help="two trials on 64 rows, whose result is not kept")
    return parser.parse_args(arguments)


def main():
    options = parse()
    if options.smoke:
        options.sizes, options.learning_rates, options.rows, options.epochs, options.seeds = [4, 8], [1e-3], 64, 1, 1
        with tempfile.TemporaryDirectory() as work:
            options.work, options.output = pathlib.Path(work), pathlib.Path(work) / "result"
            search(options)
    else:
        search(options)


def search(options):
    """Search, or go on with it, and keep what it came to."""
    folder = options.work / options.task.replace("/", "-")
    study.finish("search", options.output, lambda: outcome(options, folder), table, kept=not options.smoke)
    shutil.copyfile(folder / "trials.png", options.output / "trials.png")


def outcome(options, folder):
    """Search; where the result comes from, and the summary."""
    from tf_adapters.cli.main import main as tf_adapters
    from tf_adapters.tasks.registry import load_split

    git = git_state()  # now: a commit during the search does not change the code that runs
    status = tf_adapters([*arguments_of(options, folder), *(["--resume"] if (folder / "search.json").exists() else [])])
    if status:
        sys.exit(status)
    found = json.loads((folder / "search.json").read_text(encoding="utf-8"))
    settings = study.settings_of(options, "task rows epochs batch_size max_length seeds")
    settings["metric"] = load_split(options.task, "validation", data_dir=options.data_dir).metric
    versions = installed_versions("tensorflow", "tf-keras", "transformers", "keras-tuner", "numpy", "tf_adapters")
    return {"versions": versions, "git": git}, {"settings": settings, **summarise(found)}
