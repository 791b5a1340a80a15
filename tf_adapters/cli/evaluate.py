"""`tf-adapters evaluate`."""

import json
import pathlib
from typing import Optional

import typer

from tf_adapters.errors import InputError


def evaluate(
    directory: pathlib.Path = typer.Argument(help="Adapter directory."),
    task: Optional[str] = typer.Option(None, help="Named task. Default: the one that the directory was trained on."),
    data_dir: Optional[pathlib.Path] = typer.Option(None, help="Folder with prepared TensorFlow Datasets."),
    split: Optional[str] = typer.Option(
        None, help="Split of the task. Default: test where it has labels, otherwise validation."
    ),
    input_file: Optional[pathlib.Path] = typer.Option(
        None, "--input", "--test", help="Your labelled rows: .csv, .tsv or .jsonl, in place of a task."
    ),
    text_column: str = typer.Option("text", help="Column of the text in --input."),
    text_pair_column: Optional[str] = typer.Option(None, help="Column of a second text in --input."),
    label_column: str = typer.Option("label", help="Column of the label in --input."),
    label_separator: str = typer.Option("|", help="Between the labels of a multi-label cell."),
    metric: Optional[str] = typer.Option(None, help="accuracy, f1, macro-f1, matthews, ... Default: the one trained for."),
    model: Optional[str] = typer.Option(None, help="Pretrained encoder, if it is not where the directory says."),
    batch_size: int = typer.Option(32, help="Rows per batch."),
    output: Optional[pathlib.Path] = typer.Option(None, help="Write the numbers to this JSON file too."),
):
    """Score an adapter directory on labelled rows.

    `tf-adapters evaluate adapters/rotten-tomatoes`

    `tf-adapters evaluate adapters/mine --input test.csv --text-column text --label-column label`
    """
    from rich.console import Console

    from tf_adapters.cli.quiet import import_tensorflow

    import_tensorflow()
    from tf_adapters.cli.progress import bar
    from tf_adapters.cli.report import show_numbers
    from tf_adapters.saving.atomic import write_text
    from tf_adapters.saving.directory import read_settings
    from tf_adapters.tasks.metrics import METRICS, check_metric, default_metric
    from tf_adapters.tasks.own_files import rows_from_file
    from tf_adapters.training.pipeline import load_pipeline

    settings = read_settings(directory)
    trained = settings["task"] or {}
    kind, labels = trained.get("kind", "classification"), tuple(settings["head"]["labels"] or ())
    if input_file is not None:
        if task is not None or split is not None:
            raise InputError("--input and --task or --split exclude each other.")
        rows = rows_from_file(
            input_file,
            kind=kind,
            labels=labels,
            text_column=text_column,
            text_pair_column=text_pair_column,
            label_column=label_column,
            label_separator=label_separator,
        )
        name = input_file.name
    else:
        rows, name = _rows_of_task(task or trained.get("name"), split, data_dir, kind, labels, directory)
    metric = metric or trained.get("metric") or default_metric(kind)
    check_metric(metric, kind=kind, labels=labels)
    console = Console(highlight=False, soft_wrap=True)
    scorer, _ = load_pipeline(directory, backbone=model, batch_size=batch_size)
    with bar(console, "scoring", "rows") as progress:
        item = progress.add_task("", total=len(rows), note="")
        logits = scorer.logits(rows.text, rows.text_pair, progress=lambda count: progress.advance(item, count))
    numbers = METRICS[metric](rows.labels, logits)
    show_numbers(console, f"{directory} on {name}", {**numbers, "rows": len(rows)})
    if output is not None:
        content = {"directory": str(directory), "data": name, "rows": len(rows), "metrics": numbers}
        write_text(output, json.dumps(content, indent=2) + "\n")


def _rows_of_task(task, split, data_dir, kind, labels, directory):
    from tf_adapters.tasks.registry import load_split

    if task in (None, "files"):
        raise InputError(f"{directory} was trained on files: give the rows to score by --input FILE.")
    candidates = [split] if split is not None else ["test", "validation"]
    for candidate in candidates:
        try:
            found = load_split(task, candidate, data_dir=data_dir)
        except InputError:
            if candidate == candidates[-1]:
                raise
            continue
        if found.rows.labels is not None:
            break
    if found.rows.labels is None:
        raise InputError(f"--split {candidate}: the labels of task {task!r} were never published for it; use validation.")
    if found.kind != kind or found.labels != labels:
        raise InputError(
            f"Task {task!r} has labels {', '.join(found.labels) or 'none (regression)'}, and {directory} was trained for "
            f"{', '.join(labels) or 'regression'}."
        )
    return found.rows, f"{task}, {candidate} split"
