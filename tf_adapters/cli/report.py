"""What `train` and `evaluate` print at the end."""

import shlex

import numpy as np
from rich.table import Table

from tf_adapters.saving.settings import directory_size

EXAMPLES = 4


def show_numbers(console, title, numbers):
    """Print a table of named numbers."""
    table = _table()
    for name, value in numbers.items():
        table.add_row(name.replace("_", " "), f"{value:.4f}" if isinstance(value, float) else str(value))
    # Not as the table's title, which is broken into lines of the table's width.
    console.print(title)
    console.print(table, soft_wrap=False)


def _table():
    table = Table(show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    return table


def show_report(console, model, task, wordpiece, output, result, counts, seconds, settings):
    """Print held-out results, what was trained, sizes, times, examples and what to do next."""
    from tf_adapters.cli.progress import counting_rows
    from tf_adapters.models.state import state_of
    from tf_adapters.training.kinds import get_kind
    from tf_adapters.training.scoring import Scorer

    kind = get_kind(task.kind)
    split, rows = (
        ("test", task.test)
        if task.test is not None and task.test.labels is not None
        else (
            "validation",
            task.validation,
        )
    )
    scorer = Scorer(model, wordpiece, batch_size=settings["batch_size"])
    with counting_rows(console, "scoring", total=len(rows)) as advance:
        outputs = kind.predict(scorer, rows, progress=advance)
    numbers = kind.score(task.metric, rows, outputs)
    table = _table()
    for name, value in numbers.items():
        table.add_row(f"{split} {name.replace('_', ' ')}", f"{value:.4f}  ({len(rows):,} rows)")
    table.add_row("best epoch", f"{result.best_epoch} of {settings['epochs']}, by validation")
    table.add_row("trained", f"{counts.trainable:,} of {counts.total:,} parameters ({counts.share:.2%})")
    parts = {kind: getattr(counts, kind) for kind in ("adapter", "layer_norm", "head", "backbone")}
    table.add_row("", ", ".join(f"{kind.replace('_', ' ')} {number:,}" for kind, number in parts.items() if number))
    if state_of(model).newly_initialized:
        table.add_row("", "the head includes the pooler: pretraining left it untrained")
    table.add_row("saved", f"{output} ({directory_size(output) / 1e6:.2f} MB)")
    table.add_row("time", f"{seconds:.0f} s, {result.seconds:.0f} s of it training and validation")
    console.print(f"{task.name}: result")
    console.print(table, soft_wrap=False)
    chosen = np.linspace(0, len(rows) - 1, min(EXAMPLES, len(rows))).astype(int)
    console.print(f"Predictions on {split} rows that were not trained on:")
    for index in chosen:
        prediction, text = kind.describe(rows, int(index), outputs[index], task.labels)
        console.print(f"  {prediction}  {shorten(text)}")
    console.print("Next:")
    for command in (
        kind.example_command(shlex.quote(str(output)), rows),
        f"tf-adapters info {shlex.quote(str(output))}",
        "tf-adapters train --help",
    ):
        console.print(f"  {command}")


def shorten(text, width=60):
    """At most `width` characters of a text, on one line."""
    text = " ".join(text.split())
    return text if len(text) <= width else text[: width - 1] + "…"
