"""Options that several commands share."""

import pathlib
from typing import Annotated, Optional

import typer

BatchSize = Annotated[int, typer.Option(help="Rows per batch.")]
DataDir = Annotated[
    Optional[pathlib.Path],
    typer.Option(
        help="Folder with prepared TensorFlow Datasets; nothing is downloaded if it holds the task.",
        rich_help_panel="Data",
    ),
]
Format = Annotated[
    Optional[str],
    typer.Option(
        help="`csv`, `tsv`, `jsonl` or `txt`, where the name of your file does not say which.", rich_help_panel="Data"
    ),
]
LabelColumn = Annotated[
    Optional[str], typer.Option(help="Column of the label. Default for files: `label`.", rich_help_panel="Data")
]
LabelSeparator = Annotated[str, typer.Option(help="Between the labels of a multi-label cell.", rich_help_panel="Data")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an output file that is there.")]
Source = Annotated[Optional[str], typer.Option(help="Pretrained encoder, if it is not where the directory says.")]
TextColumn = Annotated[
    Optional[str], typer.Option(help="Column of the text. Default for files: `text`.", rich_help_panel="Data")
]
TextPairColumn = Annotated[
    Optional[str], typer.Option(help="Column of a second text, for pairs of sentences.", rich_help_panel="Data")
]
