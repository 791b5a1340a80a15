"""How files are read, the rows that `train` and `tune` train on, and the texts that `pretrain` reads, as their options
say."""

import dataclasses
import functools
import pathlib
import shlex
from typing import Optional

from tf_adapters.cli.options import DATA_DIR, refuse
from tf_adapters.cli.report import show_bad_rows
from tf_adapters.errors import InputError
from tf_adapters.ranges import RANGES, choice
from tf_adapters.tasks.files import BadRows, check_streams, peek
from tf_adapters.tasks.labels import doubts
from tf_adapters.tasks.lines import DELIMITERS, Dialect
from tf_adapters.tasks.own_files import READERS
from tf_adapters.tasks.registry import check_task
from tf_adapters.tasks.rows import low_resource, sample_rows

SKIP_BAD_ROWS = "Leave out rows of your files that cannot be used (fields, quotes, JSON, labels), and count them."
DEFAULT_TASK = "rotten-tomatoes"
# Kinds of tasks whose files are tables.
LABELLED_TEXTS = ("classification", "regression", "multi-label")
_OF_FILES = ("validation", "test", "format", "encoding", "header", "delimiter", "kind")
_COLUMNS = ("text_column", "text_pair_column", "label_column")

# None where nothing is said, and the task, the file or the directory decides.
_data = functools.partial(choice, None, panel="Data")


def _files_of_kinds():
    """What the files of each kind of task are, in words."""
    kinds = {}
    for kind, reader in READERS.items():
        kinds.setdefault(reader.files, []).append(f"`{kind}`")
    return "; ".join(f"{', '.join(names)} ({files})" for files, names in kinds.items())


def _file_or_share(name, text):
    """A path, or a number for the share of the training rows."""
    try:
        share = None if pathlib.Path(text).exists() else float(text)
    except ValueError:
        share = None
    if share is None:
        return pathlib.Path(text)
    if not 0 < share < 1:
        raise InputError(f"{{{name}}} must be a file, or a share of the training rows such as 0.1.", **{name: text})
    return share


@dataclasses.dataclass
class ReadingOptions:
    """How files of rows are read."""

    text_column: Optional[str] = _data(
        "Column of the text. Default for files: `text`; of words CoNLL-U's FORM or the first column, of questions "
        "`question`."
    )
    text_pair_column: Optional[str] = _data("Column of a second text, for pairs of sentences; of questions `context`.")
    format: Optional[str] = _data(
        "`csv`, `tsv`, `jsonl` or `txt`, for words `conllu`, `columns` or `txt`, for questions `squad`, where the name "
        "of your file does not say which."
    )
    encoding: Optional[str] = _data(
        "Encoding of your files, such as `cp1252` or `latin-1`. Default: UTF-8, and UTF-16 that begins with its mark."
    )
    header: Optional[str] = _data(
        "`none` where the first line of CSV or TSV is a row: columns are then named by number from 1. Default: "
        "`first`, it has the columns' names.",
        metavar="first|none",
    )
    delimiter: Optional[str] = _data(
        "Between the columns of CSV, where it is neither the comma nor the semicolon of the first line: a character, "
        f"or {', '.join(f'`{name}`' for name in DELIMITERS)}."
    )

    def dialect(self):
        """What was said of how the files are written, as keywords of Python's functions.

        Raises:
            InputError: an encoding, a header or a delimiter that cannot be.
        """
        given = {name: getattr(self, name) for name in ("encoding", "header", "delimiter")}
        given = {name: value for name, value in given.items() if value is not None}
        Dialect(**given)
        return given


@dataclasses.dataclass
class LabelOptions(ReadingOptions):
    """How files of labelled rows are read."""

    label_column: Optional[str] = _data(
        "Column of the label. Default for files: `label`; of words CoNLL-U's UPOS or the last column."
    )
    label_separator: Optional[str] = _data("Between the labels of a multi-label cell. Default: `|`, or as in training.")
    skip_bad_rows: bool = choice(False, SKIP_BAD_ROWS, panel="Data")


@dataclasses.dataclass
class _SourceOptions:
    """Where rows come from."""

    task: Optional[str] = _data(
        "Named task: `rotten-tomatoes` (the default), `glue/sst2`, any TensorFlow Datasets name."
    )
    data_dir: Optional[pathlib.Path] = _data(DATA_DIR)
    train_file: Optional[pathlib.Path] = _data(
        "Your training rows, in place of a task: .csv, .tsv or .jsonl.", option="train"
    )
    validation: Optional[str] = _data(
        "Your validation rows, by which the best epoch is chosen: a file, or a share of the training rows, such as "
        "`0.1`. Without it a tenth, and without `--test` too another tenth for that: the same rows in every run, with "
        "each label's share.",
        read=functools.partial(_file_or_share, "validation"),
        metavar="FILE|SHARE",
    )


@dataclasses.dataclass
class _RowsOptions(ReadingOptions, _SourceOptions):
    """What the rows of all kinds have in common."""

    max_train_rows: Optional[int] = _data(
        "Train on a sample of this many rows, drawn by the seed.", range=RANGES["count"]
    )
    skip_bad_rows: bool = choice(False, SKIP_BAD_ROWS, panel="Data")

    def check(self):
        """Raise InputError for options that do not fit together; chooses the task where none is named."""
        self.dialect()
        if self.train_file is None:
            advice = (
                f"task {self.task!r} has its own, leave it out" if self.task else "add --train FILE, or --task NAME"
            )
            idle = _OF_FILES if self.task else _OF_FILES + _COLUMNS
            refuse(self._of(*idle), f"goes with --train FILE: {advice}")
            self.task = self.task or DEFAULT_TASK
            return
        refuse(self._of("task"), f"and --train {self.train_file} exclude each other: give one of them")
        refuse(self._of("data_dir", "validation_split"), "belongs to --task NAME: leave it out with --train FILE")
        check_streams({"--train": self.train_file, **self._held_out()})

    def usual_output(self, folder):
        """Where to write without --output, which only the embedded task may lack."""
        if self.task != DEFAULT_TASK:
            raise InputError("--output DIR is needed: where to write the results.")
        return pathlib.Path(folder, DEFAULT_TASK)

    def peek(self):
        """Find a missing package, or a wrong name or column of the user's files, before TensorFlow is loaded."""
        if self.task is not None:
            check_task(self.task, data_dir=self.data_dir)
            return
        columns = {name: getattr(self, name) or usual for name, usual in self._tables().items()}
        for path in (self.train_file, *self._held_out().values()) if columns else ():
            bad_rows = BadRows() if self.skip_bad_rows else None
            peek(path, **columns, format=self.format, dialect=Dialect(**self.dialect()), bad_rows=bad_rows)

    def _tables(self):
        """The columns of the files with what is usual for them, a dict; empty if they are no tables."""
        return {"text_column": "text", "text_pair_column": None}

    def sampled(self, task, seed):
        """The `Task` with the rows that a seed trains on."""
        if self.max_train_rows is None:
            return task
        return dataclasses.replace(task, train=sample_rows(task.train, count=self.max_train_rows, seed=seed))

    def words(self):
        """The options that were given, as words of a command line."""
        words = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                option = field.metadata["choice"].options_of(field.name)[0]
                words += [option] if value is True else [option, str(value)]
        return words

    def _held_out(self):
        """The files of held-out rows by their options."""
        given = self._of("validation", "test").items()
        return {f"--{name}": value for name, value in given if isinstance(value, pathlib.Path)}

    def _of(self, *names):
        """The fields of some names that there are, a dict."""
        return {name: getattr(self, name) for name in names if hasattr(self, name)}

    def _files(self):
        """How the user's files are read, as keywords of Python's functions."""
        return {"train": self.train_file, **self._of("format", "validation", "test", *_COLUMNS), **self.dialect()}

    def _read(self, console, read):
        """What `read` gives for a `BadRows` or None; says how many rows were left out."""
        bad_rows = BadRows() if self.skip_bad_rows else None
        with console.status("Reading the data ..."):
            rows = read(bad_rows)
        show_bad_rows(console, bad_rows)
        return rows


@dataclasses.dataclass
class DataOptions(LabelOptions, _RowsOptions):
    """The rows of a task with labels."""

    test: Optional[str] = _data(
        "Your test rows, scored once at the end: a file, or a share of the training rows, such as `0.1`.",
        read=functools.partial(_file_or_share, "test"),
        metavar="FILE|SHARE",
    )
    kind: Optional[str] = _data(
        f"What your labels are, and what your files hold: {_files_of_kinds()}. Default: `classification`."
    )
    metric: Optional[str] = _data(
        "What chooses the best epoch, in place of the task's own: accuracy, f1 (of the second label), macro-f1, ..."
    )
    validation_split: Optional[str] = _data(
        "Split of `--task` whose rows choose the best epoch, such as `validation_mismatched` of `glue/mnli`."
    )
    low_resource: Optional[int] = _data(
        "The low-resource protocol of He et al. (2021): train on this many rows (1000 or 5000), validate on 1,000 of "
        "the others, test on the original validation rows; drawn by the seed.",
        range=RANGES["count"],
    )

    def check(self):
        """As of all rows."""
        super().check()
        if self.max_train_rows is not None:
            why = f"and --max-train-rows {self.max_train_rows} exclude each other: give one of them"
            refuse(self._of("low_resource"), why)

    def read(self, console):
        """The whole `Task`; says how many rows were left out, and what the labels look like."""
        from tf_adapters import load_task, task_from_files

        if self.task is not None:
            split = self.validation_split or "validation"
            about = {"data_dir": self.data_dir, "metric": self.metric, "validation_split": split}
            return self._read(console, lambda bad_rows: load_task(self.task, **about, **self._of(*_COLUMNS)))
        kind, separator = self.kind or "classification", self.label_separator or "|"
        about = {"kind": kind, "metric": self.metric, "label_separator": separator}
        task = self._read(console, lambda bad_rows: task_from_files(**self._files(), **about, bad_rows=bad_rows))
        # What the labels look like in place of what they were taken for.
        sentence, values = doubts(task.labels, kind=task.kind, separator=separator) or ("", {})
        for name, value in values.items():
            sentence = sentence.replace(f"{{{name}}}", f"--{name.replace('_', '-')} {shlex.quote(value)}")
        if sentence:
            console.print(sentence)
        return task

    def sampled(self, task, seed):
        """The `Task` with the rows that a seed trains on."""
        if self.low_resource is not None:
            return low_resource(task, count=self.low_resource, seed=seed)
        return super().sampled(task, seed)

    def _tables(self):
        if self.kind is None and self.train_file.name.removesuffix(".gz").endswith(".conllu"):
            self.kind = "token-classification"
        if self.kind is not None and self.kind not in LABELLED_TEXTS:
            return {}
        return super()._tables() | {"label_column": "label"}


@dataclasses.dataclass
class TextOptions(_RowsOptions):
    """Texts without labels."""

    train_file: Optional[pathlib.Path] = _data(
        "Your texts, in place of a task: .txt (one in a line), .csv, .tsv or .jsonl.", option="train"
    )
    validation: Optional[pathlib.Path] = _data(
        "Your texts to measure perplexity on. Default: a twentieth of the others, held out."
    )

    def read(self, console, seed):
        """The texts, a `Task`; says how many rows were left out."""
        from tf_adapters import load_task
        from tf_adapters.tasks import texts_from_files, without_labels

        def read(bad_rows):
            if self.task is not None:
                return without_labels(load_task(self.task, data_dir=self.data_dir, **self._of(*_COLUMNS)))
            return texts_from_files(**self._files(), bad_rows=bad_rows, seed=seed)

        return self.sampled(self._read(console, read), seed)
