"""`tf-adapters predict`."""

import csv
import itertools
import json
import pathlib
import sys
from typing import Optional

import typer

from tf_adapters.errors import InputError

CHUNK_ROWS = 1024


def predict(
    directory: pathlib.Path = typer.Argument(help="Adapter directory."),
    input_file: str = typer.Option(
        ..., "--input", help="Rows to label: .csv, .tsv, .jsonl, .txt (a text per line), or - for lines of standard input."
    ),
    text_column: str = typer.Option("text", help="Column of the text."),
    text_pair_column: Optional[str] = typer.Option(None, help="Column of a second text."),
    output: str = typer.Option("-", help="File to write: .jsonl or .csv; - writes JSON lines to standard output."),
    model: Optional[str] = typer.Option(None, help="Pretrained encoder, if it is not where the directory says."),
    batch_size: int = typer.Option(32, help="Rows per batch."),
    overwrite: bool = typer.Option(False, "--overwrite", help="Replace the output file."),
):
    """Label texts: one object a row, in order, with `label` and `probabilities`.

    Regression gives `value`, multi-label gives `labels`. Files of any length are read and
    written in constant memory; the output appears when it is complete.

    `tf-adapters predict adapters/rotten-tomatoes --input reviews.csv --text-column text --output labels.jsonl`
    """
    as_csv = output.endswith(".csv")
    if output != "-":
        if not output.endswith((".csv", ".jsonl")):
            raise InputError(f"--output {output}: the name must end in .jsonl or .csv, or be - for standard output.")
        if pathlib.Path(output).exists() and not overwrite:
            raise InputError(f"--output {output} is there already: replace it by --overwrite, or give another name.")
    from tf_adapters.tasks.files import read_chunks

    chunks = read_chunks(
        input_file, text_column=text_column, text_pair_column=text_pair_column, chunk_rows=CHUNK_ROWS
    )
    # A wrong name or column shows before the model is loaded.
    chunks = itertools.chain([next(chunks)], chunks)

    from rich.console import Console

    from tf_adapters.cli.quiet import import_tensorflow

    import_tensorflow()
    from tf_adapters.cli.progress import bar
    from tf_adapters.saving.atomic import replacing
    from tf_adapters.training.pipeline import load_pipeline

    scorer, settings = load_pipeline(directory, backbone=model, batch_size=batch_size)
    kind = (settings["task"] or {}).get("kind", "classification")
    labels = settings["head"]["labels"] or [str(index) for index in range(settings["head"]["num_labels"])]
    console = Console(stderr=True, highlight=False)
    with bar(console, "predicting", "rows") as progress:
        item = progress.add_task("", total=None, note="")

        def write(file):
            writer = None
            for chunk in chunks:
                rows = _predict(scorer, chunk, kind, labels, lambda count: progress.advance(item, count))
                if as_csv:
                    rows = [_flat(row) for row in rows]
                    if writer is None:
                        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
                        writer.writeheader()
                    writer.writerows(rows)
                else:
                    file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)

        if output == "-":
            write(sys.stdout)
            sys.stdout.flush()
        else:
            with replacing(output) as temporary, open(temporary, "w", encoding="utf-8", newline="") as file:
                write(file)


def _predict(scorer, chunk, kind, labels, progress):
    import tensorflow as tf

    from tf_adapters.tasks.metrics import probabilities

    pair = None if chunk.text_pair is None else tf.constant(chunk.text_pair)
    logits = scorer.logits(tf.constant(chunk.text), pair, progress=progress)
    values = probabilities(logits, kind=kind)
    if kind == "regression":
        return [{"value": float(value)} for value in values.reshape(-1)]
    rows = []
    for row in values.tolist():
        result = {"probabilities": dict(zip(labels, row))}
        if kind == "multi-label":
            rows.append({"labels": [label for label, value in zip(labels, row) if value > 0.5], **result})
        else:
            rows.append({"label": labels[max(range(len(row)), key=row.__getitem__)], **result})
    return rows


def _flat(row):
    """One CSV row: probabilities in a column each."""
    flat = {}
    for name, value in row.items():
        if name == "probabilities":
            flat.update({f"probability_{label}": number for label, number in value.items()})
        else:
            flat[name] = "|".join(value) if isinstance(value, list) else value
    return flat
