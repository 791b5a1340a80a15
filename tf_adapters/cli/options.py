"""Options that several commands share."""

import pathlib
from typing import Annotated, Optional

import typer

from tf_adapters.errors import InputError

BatchSize = Annotated[int, typer.Option(help="Rows per batch.")]
DataDir = Annotated[
    Optional[pathlib.Path],
    typer.Option(
        help="Folder with the task's files, or with prepared TensorFlow Datasets; nothing is downloaded if it holds them.",
        rich_help_panel="Data",
    ),
]
Format = Annotated[
    Optional[str],
    typer.Option(
        help="`csv`, `tsv`, `jsonl` or `txt`, for words `conllu`, `columns` or `txt`, for questions `squad`, where the name of "
        "your file does not say which.",
        rich_help_panel="Data",
    ),
]
LabelColumn = Annotated[
    Optional[str],
    typer.Option(
        help="Column of the label. Default for files: `label`; of words CoNLL-U's UPOS or the last column.",
        rich_help_panel="Data",
    ),
]
LabelSeparator = Annotated[str, typer.Option(help="Between the labels of a multi-label cell.", rich_help_panel="Data")]
PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")
Fast = Annotated[
    bool,
    typer.Option(
        "--fast",
        help="Compute the encoder's blocks by fused operations: the same up to rounding in less time, after some seconds of "
        "compiling; with `--precision mixed_bfloat16` about twice as fast on CPUs that have it.",
        rich_help_panel="Run",
    ),
]
Precision = Annotated[
    str, typer.Option(help="`float32`, `mixed_bfloat16` or `mixed_float16`.", rich_help_panel="Run")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an output file that is there.")]
SkipBadRows = Annotated[
    bool,
    typer.Option(
        "--skip-bad-rows",
        help="Leave out rows of your files that cannot be used (fields, quotes, JSON, labels), and count them.",
        rich_help_panel="Data",
    ),
]
Source = Annotated[Optional[str], typer.Option(help="Pretrained encoder, if it is not where the directory says.")]
TextColumn = Annotated[
    Optional[str],
    typer.Option(
        help="Column of the text. Default for files: `text`; of words CoNLL-U's FORM or the first column, of questions "
        "`question`.",
        rich_help_panel="Data",
    ),
]
TextPairColumn = Annotated[
    Optional[str],
    typer.Option(help="Column of a second text, for pairs of sentences; of questions `context`.", rich_help_panel="Data"),
]


def check_precision(precision):
    """Raise InputError unless `--precision` names one of `PRECISIONS`."""
    if precision not in PRECISIONS:
        raise InputError(f"--precision {precision} is unknown: use one of {', '.join(PRECISIONS)}.")


def use_precision(precision, console):
    """Build the models that follow in this precision, and say so if the processor makes it costly."""
    from tf_adapters._keras import keras
    from tf_adapters.cli.processor import precision_note

    note = precision_note(precision)
    if note:
        console.print(note)
    keras.mixed_precision.set_global_policy(precision)
