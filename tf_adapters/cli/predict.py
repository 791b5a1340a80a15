"""`tf-adapters predict`."""

import csv
import dataclasses
import functools
import itertools
import json
import pathlib
import sys
from typing import Annotated

import typer

from tf_adapters.cli import options
from tf_adapters.cli.output import check_new_file
from tf_adapters.cli.terminal import terminal
from tf_adapters.errors import InputError

CHUNK_ROWS = 1024


def predict(
    directory: Annotated[pathlib.Path, typer.Argument(help="Adapter directory.")],
    input_file: Annotated[
        str,
        typer.Option(
            "--input",
            help="Rows to label: .csv, .tsv, .jsonl, .txt (a text per line), or - for lines of standard input; for words "
            "also .conllu and column files, for questions also SQuAD's JSON.",
            rich_help_panel="Data",
        ),
    ],
    text_column: options.TextColumn = None,
    text_pair_column: options.TextPairColumn = None,
    format: options.Format = None,
    output: Annotated[
        str, typer.Option(help="File to write: .jsonl or .csv; - writes JSON lines to standard output.")
    ] = "-",
    overwrite: options.Overwrite = False,
    model: options.Source = None,
    batch_size: options.BatchSize = 32,
    precision: options.Precision = "float32",
    fast: options.Fast = False,
):
    """Label texts: one object a row, in order, with `label` and `probabilities`.

    Regression gives `value`, multi-label gives `labels`, words give `words` and `labels`, questions give `answer`
    and `n_best`. Files of any length are read and written in constant memory; the output file appears when it is
    complete.

    A file: `tf-adapters predict adapters/rotten-tomatoes --input reviews.csv --text-column text --output labels.jsonl`

    A line: `echo 'a quiet, moving film' | tf-adapters predict adapters/rotten-tomatoes --input -`
    """
    if output != "-":
        if not output.endswith((".csv", ".jsonl")):
            raise InputError(f"--output {output}: the name must end in .jsonl or .csv, or be - for standard output.")
        check_new_file(output, overwrite=overwrite)
    options.check_precision(precision)
    from tf_adapters.cli.trained import check_pairs, task_of
    from tf_adapters.saving.settings import read_settings
    from tf_adapters.tasks.own_files import unlabelled_chunks

    settings = read_settings(directory)
    check_pairs(settings, text_pair_column, directory)
    kind, labels = task_of(settings)
    chunks = unlabelled_chunks(
        input_file,
        kind=kind,
        text_column=text_column,
        text_pair_column=text_pair_column,
        chunk_rows=CHUNK_ROWS,
        format=format,
    )
    # A wrong name or column shows before the model is loaded.
    chunks = itertools.chain([next(chunks)], chunks)

    from tf_adapters.cli.quiet import import_tensorflow

    console = terminal(stderr=True)
    with console.status("Loading TensorFlow and the encoder ..."):
        import_tensorflow()
        from tf_adapters.training.pipeline import load_pipeline

        options.use_precision(precision, console)
        scorer, _ = load_pipeline(directory, backbone=model, batch_size=batch_size, fast=fast)
    from tf_adapters.cli.progress import counting
    from tf_adapters.saving.atomic import replacing

    value_range = (settings["task"] or {}).get("value_range")
    # A bar and the rows would overwrite each other on one terminal.
    with counting(console, "predicting", shown=output != "-" or not sys.stdout.isatty()) as advance:
        rows = (_predict(scorer, chunk, kind, labels, value_range, advance) for chunk in chunks)
        if output == "-":
            # JSON is UTF-8, whatever the terminal's encoding.
            sys.stdout.reconfigure(encoding="utf-8")
            _write_jsonl(sys.stdout, rows)
        else:
            with replacing(output) as temporary, open(temporary, "w", encoding="utf-8", newline="") as file:
                (_write_csv if output.endswith(".csv") else _write_jsonl)(file, rows)


def _write_jsonl(file, chunks):
    for rows in chunks:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        file.flush()


def _write_csv(file, chunks):
    writer = None
    for rows in chunks:
        rows = [_flat(row) for row in rows]
        if writer is None:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]))
            writer.writeheader()
        writer.writerows(rows)


def _predict(scorer, chunk, kind, labels, value_range, progress):
    from tf_adapters.training.kinds import get_kind

    rows, kind = chunk.rows(), get_kind(kind)
    if value_range is not None:
        rows = dataclasses.replace(rows, value_range=tuple(value_range))
    return kind.records(rows, kind.predict(scorer, rows, progress=progress), labels)


def _flat(row):
    """One CSV row: probabilities in a column each."""
    flat = {}
    for name, value in row.items():
        if isinstance(value, dict):
            flat.update({f"probability_{label}": number for label, number in value.items()})
        else:
            # The labels of a text read as in the training file; other lists are JSON, which can be read again.
            of_text = set(row) == {"labels", "probabilities"}
            text = "|".join if of_text else functools.partial(json.dumps, ensure_ascii=False)
            flat[name] = text(value) if isinstance(value, list) else value
    return flat
