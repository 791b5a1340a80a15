"""`tf-adapters predict`."""

import csv
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
            help="Rows to label: .csv, .tsv, .jsonl, .txt (a text per line), or - for lines of standard input.",
            rich_help_panel="Data",
        ),
    ],
    text_column: Annotated[str, typer.Option(help="Column of the text.", rich_help_panel="Data")] = "text",
    text_pair_column: options.TextPairColumn = None,
    format: options.Format = None,
    output: Annotated[
        str, typer.Option(help="File to write: .jsonl or .csv; - writes JSON lines to standard output.")
    ] = "-",
    overwrite: options.Overwrite = False,
    model: options.Source = None,
    batch_size: options.BatchSize = 32,
):
    """Label texts: one object a row, in order, with `label` and `probabilities`.

    Regression gives `value`, multi-label gives `labels`. Files of any length are read and
    written in constant memory; the output file appears when it is complete.

    A file: `tf-adapters predict adapters/rotten-tomatoes --input reviews.csv --text-column text --output labels.jsonl`

    A line: `echo 'a quiet, moving film' | tf-adapters predict adapters/rotten-tomatoes --input -`
    """
    if output != "-":
        if not output.endswith((".csv", ".jsonl")):
            raise InputError(f"--output {output}: the name must end in .jsonl or .csv, or be - for standard output.")
        check_new_file(output, overwrite=overwrite)
    from tf_adapters.cli.trained import check_pairs, task_of
    from tf_adapters.saving.settings import read_settings
    from tf_adapters.tasks.files import read_chunks

    check_pairs(read_settings(directory), text_pair_column, directory)
    chunks = read_chunks(
        input_file,
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

        scorer, settings = load_pipeline(directory, backbone=model, batch_size=batch_size)
    from tf_adapters.cli.progress import counting_rows
    from tf_adapters.saving.atomic import replacing

    kind, labels = task_of(settings)
    # A bar and the rows would overwrite each other on one terminal.
    with counting_rows(console, "predicting", shown=output != "-" or not sys.stdout.isatty()) as advance:
        rows = (_predict(scorer, chunk, kind, labels, advance) for chunk in chunks)
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


def _predict(scorer, chunk, kind, labels, progress):
    import tensorflow as tf

    from tf_adapters.tasks.rows import Rows
    from tf_adapters.training.kinds import get_kind

    pair = None if chunk.text_pair is None else tf.constant(chunk.text_pair)
    rows, kind = Rows(tf.constant(chunk.text), pair), get_kind(kind)
    return kind.records(rows, kind.predict(scorer, rows, progress=progress), labels)


def _flat(row):
    """One CSV row: probabilities in a column each."""
    flat = {}
    for name, value in row.items():
        if name == "probabilities":
            flat.update({f"probability_{label}": number for label, number in value.items()})
        else:
            flat[name] = "|".join(value) if isinstance(value, list) else value
    return flat
