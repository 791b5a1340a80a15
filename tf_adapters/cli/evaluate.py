"""`tf-adapters evaluate`."""

import json
import pathlib
from typing import Annotated, Optional

import typer

from tf_adapters.cli import options
from tf_adapters.cli.output import check_new_file
from tf_adapters.cli.terminal import terminal
from tf_adapters.errors import InputError


def evaluate(
    directory: Annotated[pathlib.Path, typer.Argument(help="Adapter directory.")],
    task: Annotated[
        Optional[str],
        typer.Option(help="Named task. Default: the one that the directory was trained on.", rich_help_panel="Data"),
    ] = None,
    data_dir: options.DataDir = None,
    split: Annotated[
        Optional[str],
        typer.Option(
            help="Split of the task. Default: test where it has labels, otherwise validation.", rich_help_panel="Data"
        ),
    ] = None,
    input_file: Annotated[
        Optional[pathlib.Path],
        typer.Option(
            "--input", help="Your labelled rows, in place of a task: .csv, .tsv or .jsonl.", rich_help_panel="Data"
        ),
    ] = None,
    text_column: options.TextColumn = None,
    text_pair_column: options.TextPairColumn = None,
    label_column: options.LabelColumn = None,
    label_separator: options.LabelSeparator = "|",
    format: options.Format = None,
    metric: Annotated[
        Optional[str],
        typer.Option(help="accuracy, f1, macro-f1, matthews, ... Default: the one that chose the best epoch."),
    ] = None,
    model: options.Source = None,
    batch_size: options.BatchSize = 32,
    output: Annotated[Optional[pathlib.Path], typer.Option(help="Write the numbers to this JSON file too.")] = None,
    overwrite: options.Overwrite = False,
):
    """Score an adapter directory on labelled rows.

    The task that it was trained on: `tf-adapters evaluate adapters/rotten-tomatoes`

    Your own rows: `tf-adapters evaluate adapters/mine --input test.csv --text-column text --label-column label`
    """
    if input_file is not None:
        for name, value in (("task", task), ("split", split), ("data-dir", data_dir)):
            if value is not None:
                raise InputError(f"--{name} {value} and --input {input_file} exclude each other: give one of them.")
    if output is not None:
        check_new_file(output, overwrite=overwrite)
    from tf_adapters.cli.trained import check_pairs, task_of
    from tf_adapters.saving.settings import read_settings

    settings = read_settings(directory)
    if input_file is not None:
        check_pairs(settings, text_pair_column, directory)
    from tf_adapters.cli.quiet import import_tensorflow

    console = terminal()
    with console.status("Loading TensorFlow ..."):
        import_tensorflow()
    from tf_adapters.cli.progress import counting_rows
    from tf_adapters.cli.report import show_numbers
    from tf_adapters.saving.atomic import write_text
    from tf_adapters.tasks.metrics import check_metric, default_metric
    from tf_adapters.tasks.own_files import rows_from_file
    from tf_adapters.training.kinds import get_kind
    from tf_adapters.training.pipeline import load_pipeline

    kind, labels = task_of(settings)
    trained = settings["task"] or {}
    columns = {"text_column": text_column, "text_pair_column": text_pair_column, "label_column": label_column}
    if input_file is not None:
        columns = {**columns, "text_column": text_column or "text", "label_column": label_column or "label"}
        rows = rows_from_file(
            input_file, kind=kind, labels=labels, label_separator=label_separator, format=format, **columns
        )
        name = input_file.name
    else:
        rows, name = _rows_of_task(
            task or trained.get("name"), split, kind, labels, directory, data_dir=data_dir, **columns
        )
    metric = metric or trained.get("metric") or default_metric(kind)
    check_metric(metric, kind=kind, labels=labels)
    with console.status("Loading the encoder ..."):
        scorer, _ = load_pipeline(directory, backbone=model, batch_size=batch_size)
    with counting_rows(console, "scoring", total=len(rows)) as advance:
        outputs = get_kind(kind).predict(scorer, rows, progress=advance)
    numbers = get_kind(kind).score(metric, rows, outputs)
    show_numbers(console, f"{directory} on {name}", {**numbers, "rows": len(rows)})
    if output is not None:
        content = {"directory": str(directory), "data": name, "rows": len(rows), "metrics": numbers}
        write_text(output, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def _rows_of_task(task, split, kind, labels, directory, **options):
    from tf_adapters.tasks.registry import load_split

    if task in (None, "files"):
        raise InputError(f"{directory} was trained on files: give the rows to score by --input FILE.")
    candidates = [split] if split is not None else ["test", "validation"]
    for candidate in candidates:
        try:
            found = load_split(task, candidate, **options)
        except InputError:
            if candidate == candidates[-1]:
                raise
            continue
        if found.rows.labels is not None:
            break
    if found.rows.labels is None:
        raise InputError(
            f"--split {candidate}: the labels of task {task!r} were never published for it; use --split validation."
        )
    if found.kind != kind or found.labels != labels:
        raise InputError(
            f"Task {task!r} has labels {', '.join(found.labels) or 'none (regression)'}, and {directory} was "
            f"trained for {', '.join(labels) or 'regression'}: give the task or the files that it was trained for."
        )
    return found.rows, f"{task}, {candidate} split"
