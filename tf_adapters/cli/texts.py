"""The texts that `pretrain` reads, as its options say."""

import dataclasses
import pathlib
from typing import Annotated, Optional

import typer

from tf_adapters.cli import options
from tf_adapters.cli.data import DEFAULT_TASK
from tf_adapters.errors import InputError
from tf_adapters.tasks.files import check_streams
from tf_adapters.tasks.lines import dialect_of


@dataclasses.dataclass
class TextOptions:
    """The options of the panel "Data", by the names of the command's parameters."""

    task: Annotated[
        Optional[str],
        typer.Option(
            help="Named task whose training texts are read, without labels. Default: `rotten-tomatoes`.",
            rich_help_panel="Data",
        ),
    ] = None
    data_dir: options.DataDir = None
    train_file: Annotated[
        Optional[pathlib.Path],
        typer.Option(
            "--train",
            help="Your texts, in place of a task: .txt (one in a line), .csv, .tsv or .jsonl.",
            rich_help_panel="Data",
        ),
    ] = None
    validation: Annotated[
        Optional[pathlib.Path],
        typer.Option(
            help="Your texts to measure perplexity on. Default: a twentieth of the others, held out.",
            rich_help_panel="Data",
        ),
    ] = None
    text_column: Annotated[
        Optional[str], typer.Option(help="Column of the text in your files. Default: `text`.", rich_help_panel="Data")
    ] = None
    text_pair_column: Annotated[
        Optional[str],
        typer.Option(help="Column of a second text, read together with the first.", rich_help_panel="Data"),
    ] = None
    format: Annotated[
        Optional[str],
        typer.Option(
            help="`txt`, `csv`, `tsv` or `jsonl`, where the name of your file does not say which.",
            rich_help_panel="Data",
        ),
    ] = None
    encoding: options.Encoding = None
    header: options.Header = None
    delimiter: options.Delimiter = None
    max_train_rows: options.MaxTrainRows = None
    skip_bad_rows: options.SkipBadRows = False

    def check(self):
        """Raise InputError for options that do not fit together; chooses the task where none is named."""
        of_files = {
            "--validation": self.validation, "--text-column": self.text_column,
            "--text-pair-column": self.text_pair_column,
            "--format": self.format, **{f"--{name}": value for name, value in self._dialect().items()},
        }  # fmt: skip
        dialect_of(**self._dialect())
        if self.train_file is None:
            for option, value in of_files.items():
                if value is not None:
                    raise InputError(f"{option} {value} goes with --train FILE: add that, or leave it out.")
            self.task = self.task or DEFAULT_TASK
        elif self.task is not None:
            raise InputError(f"--task {self.task} and --train {self.train_file} exclude each other: give one of them.")
        elif self.data_dir is not None:
            raise InputError(f"--data-dir {self.data_dir} belongs to --task NAME: leave it out with --train FILE.")
        check_streams({"--train": self.train_file, "--validation": self.validation})

    def usual_output(self):
        """Where to write without --output, which only the embedded task may lack."""
        if self.task != DEFAULT_TASK:
            raise InputError("--output DIR is needed: where to write what is pretrained.")
        return pathlib.Path("pretrained", DEFAULT_TASK)

    def peek(self):
        """Find a wrong name or column of the user's files before TensorFlow is loaded."""
        from tf_adapters.tasks.files import peek

        columns = {"text_column": self.text_column or "text", "text_pair_column": self.text_pair_column}
        for path in (self.train_file, self.validation):
            if path is not None:
                peek(path, **columns, format=self.format, dialect=dialect_of(**self._dialect()))

    def read(self, console, seed):
        """The texts, a `Task`; says how many rows were left out."""
        from tf_adapters import load_task, texts_from_files, without_labels
        from tf_adapters.cli.report import show_bad_rows
        from tf_adapters.tasks.files import BadRows
        from tf_adapters.tasks.rows import sample_rows

        bad_rows = BadRows() if self.skip_bad_rows else None
        with console.status("Reading the texts ..."):
            if self.task is not None:
                texts = without_labels(load_task(self.task, data_dir=self.data_dir))
            else:
                texts = texts_from_files(
                    train=self.train_file, validation=self.validation, text_column=self.text_column,
                    text_pair_column=self.text_pair_column, format=self.format, bad_rows=bad_rows, seed=seed,
                    **self._dialect(),
                )  # fmt: skip
        show_bad_rows(console, bad_rows)
        if self.max_train_rows is not None:
            texts = dataclasses.replace(texts, train=sample_rows(texts.train, count=self.max_train_rows, seed=seed))
        return texts

    def _dialect(self):
        return options.dialect_given(encoding=self.encoding, header=self.header, delimiter=self.delimiter)
