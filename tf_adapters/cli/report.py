"""What `train` and `evaluate` print at the end."""

import shlex

import numpy as np
from rich.table import Table

from tf_adapters.saving.settings import directory_size
from tf_adapters.tasks.metrics import METRICS, probabilities

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
    from tf_adapters.training.scoring import Scorer

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
        logits = scorer.logits(rows.text, rows.text_pair, progress=advance)
    numbers = METRICS[task.metric](rows.labels, logits)
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
        text = rows.text[int(index)].numpy().decode()
        if rows.text_pair is not None:
            text += " | " + rows.text_pair[int(index)].numpy().decode()
        console.print(f"  {describe(logits[index], task.kind, task.labels)}  {shorten(text)}")
    console.print("Next:")
    predict = f"echo 'a quiet, moving film' | tf-adapters predict {shlex.quote(str(output))} --input -"
    if rows.text_pair is not None:
        predict = f"tf-adapters predict {shlex.quote(str(output))} --input FILE --text-column A --text-pair-column B"
    for command in (
        predict,
        f"tf-adapters info {shlex.quote(str(output))}",
        "tf-adapters train --help",
    ):
        console.print(f"  {command}")


def describe(logits, kind, labels):
    """One row's prediction in words."""
    values = probabilities(logits[np.newaxis], kind=kind)[0]
    if kind == "regression":
        return f"{float(np.ravel(values)[0]):.3f}"
    if kind == "multi-label":
        return "|".join(label for label, value in zip(labels, values) if value > 0.5) or "(none)"
    best = int(np.argmax(values))
    return f"{labels[best]} ({values[best]:.2f})"


def shorten(text, width=60):
    """At most `width` characters of a text, on one line."""
    text = " ".join(text.split())
    return text if len(text) <= width else text[: width - 1] + "…"
