"""What `tf-adapters tune` writes and shows of a search."""

import csv
import io
import shlex

from rich import box
from rich.table import Column, Table

from tf_adapters.cli.output import json_text
from tf_adapters.errors import InputError

BEST_FOLDER, SEARCH_FOLDER, SETTINGS_FILE, TABLE_FILE, PLOT_FILE = (
    "best",
    "search",
    "search.json",
    "trials.csv",
    "trials.png",
)


def finish(console, hypermodel, rows, output, settings, chosen):
    """Keep the best adapter, and write and show what was found."""
    from tf_adapters.cli.plots import draw_trials
    from tf_adapters.saving.directory import copy_adapter

    write_table(output / TABLE_FILE, rows, hypermodel.metric)
    done = [row for row in rows if row["objective"] is not None]
    if not done:
        raise InputError(f"All of the {len(rows)} trials failed, the last with: {rows[-1]['message']}")
    # Of equal ones the first.
    best = max(done, key=lambda row: row["objective"])
    copy_adapter(best["folder"], output / BEST_FOLDER)
    words = ["tf-adapters", "train", "--model", settings["model"], *chosen.words(), *best["words"]]
    words += [] if settings["precision"] == "float32" else ["--precision", settings["precision"]]
    command = shlex.join([*words, "--output", f"adapters/{output.name}"])
    for row in rows:
        row["folder"] = str(row["folder"].relative_to(output))
    test = _score_test(console, hypermodel, output / BEST_FOLDER)
    content = {"settings": settings, "trials": rows, "best": best["trial"], "test": test, "command": command}
    write_json(output / SETTINGS_FILE, content)
    draw_trials(rows, hypermodel.varied, f"validation {hypermodel.metric}", output / PLOT_FILE)
    _show(console, rows, best, hypermodel)
    for name, value in (test or {}).items():
        console.print(f"test {name.replace('_', ' ')} of the best: {value:.4f}")
    console.print(f"Best: trial {best['trial']}, its adapter is {output / BEST_FOLDER}. The same by itself:")
    console.print(f"  {command}", soft_wrap=True)
    console.print(f"All trials: {output / TABLE_FILE}, {output / PLOT_FILE}")


def _score_test(console, hypermodel, directory):
    """The best adapter's numbers on the test rows, which chose nothing, or None where there are none with labels."""
    from tf_adapters import load_tokenizer, load_trained
    from tf_adapters.cli.report import predict_held_out

    task = hypermodel.task(hypermodel.seeds[0])
    if task.test is None or task.test.labels is None:
        return None
    model, settings = load_trained(directory, backbone=hypermodel.source)
    tokenizer = load_tokenizer(model, max_length=hypermodel.tokens)
    return predict_held_out(console, model, task, tokenizer, settings["training"]["batch_size"]).numbers


def _show(console, rows, best, hypermodel):
    names = list(dict.fromkeys(name for row in rows for name in row["values"]))
    # The others have one value in all trials.
    names = [name for name in names if len({row["values"].get(name) for row in rows}) > 1]
    header = [
        Column(name.replace("_", " "), justify="right", overflow="fold")
        for name in (*names, f"validation {hypermodel.metric}")
    ]
    table = Table("trial", *header, box=box.SIMPLE)
    for row in sorted(rows, key=lambda row: -1e9 if row["objective"] is None else row["objective"], reverse=True):
        found = "failed" if row["objective"] is None else f"{row['objective']:.4f}"
        mark = "  best" if row is best else ""
        table.add_row(f"{row['trial']}{mark}", *(short(row["values"].get(name, "")) for name in names), found)
    console.print(table)


def short(value):
    """A value of a trial, as shown."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def write_table(path, rows, metric):
    """Write the trials as CSV, a row each."""
    from tf_adapters.saving.atomic import write_text

    names = list(dict.fromkeys(name for row in rows for name in row["values"]))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["trial", "status", *names, f"validation_{metric}", "seeds", "best_epoch", "seconds", "message"])
    for row in rows:
        runs = row["seeds"]
        writer.writerow(
            [
                row["trial"],
                row["status"],
                *(row["values"].get(name, "") for name in names),
                "" if row["objective"] is None else row["objective"],
                *(" ".join(str(run[name]) for run in runs) for name in ("validation", "best_epoch", "seconds")),
                row["message"],
            ]  # fmt: skip
        )
    write_text(path, text.getvalue())


def write_json(path, content):
    """Write the search's settings, and what it found."""
    from tf_adapters.saving.atomic import write_text

    problem = f"{path}: a trial came to numbers that are not finite; search lower learning rates."
    write_text(path, json_text(content, problem=problem, indent=1) + "\n")
