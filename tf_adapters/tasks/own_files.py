"""A task from the user's own files, or from texts alone, for pretraining; and the readers of all kinds of tasks. A new
kind has a file here that reads it, and a line in `READERS`; that of texts with a label, several labels or a number each
is here."""

import dataclasses
import functools
import os
from typing import Any, Callable, Dict, Mapping, Optional, Union

import numpy as np

from tf_adapters._types import PathLike
from tf_adapters.errors import InputError
from tf_adapters.paths import to_path
from tf_adapters.tasks.choices import choices_of_texts, read_choice_chunks, read_choices
from tf_adapters.tasks.files import FORMATS, BadRows, Chunk, read_chunks, read_rows
from tf_adapters.tasks.labels import encode_labels, find_labels, index_of, label_numbers
from tf_adapters.tasks.lines import Dialect
from tf_adapters.tasks.metrics import check_metric, default_word_metric
from tf_adapters.tasks.rows import SHARE, Rows, Task, check_texts, set_aside
from tf_adapters.tasks.spans import questions_of_texts, read_question_chunks, read_questions
from tf_adapters.tasks.words import NO_PAIRS, read_word_chunks, read_words, words_of_texts


@dataclasses.dataclass(frozen=True)
class Reading(Dialect):
    """How a user's file is read; each option as of `task_from_files`."""

    kind: str = ""
    text_column: Union[str, int, None] = None
    text_pair_column: Union[str, int, None] = None
    label_column: Union[str, int, None] = None
    label_separator: str = "|"
    format: Optional[str] = None
    bad_rows: Any = None

    def table(self, text="text", text_pair=None, label=None):
        """How a table is read whose columns are usually called so, as keywords of `files.read_chunks`; without `label`
        labels are not looked at."""
        return {
            "text_column": self.text_column or text,
            "text_pair_column": self.text_pair_column or text_pair,
            "label_column": label and (self.label_column or label),
            "format": self.format,
            "bad_rows": self.bad_rows,
            "dialect": self,
        }


@dataclasses.dataclass(frozen=True)
class Reader:
    """How the rows of a kind of task come from files, and from lists in Python.

    Attributes:
        kind: str, the kind of task.
        files: str, what its files are, for help texts.
        whole: function of a path, a `Reading` and known label names, or None, that returns a whole labelled file's
            rows, and the label names, a tuple of str.
        parts: function of a path, a `Reading`, `chunk_rows` and `keep_all_columns` that yields rows without labels in
            parts, each with a method `rows()`.
        of_texts: function of a list of texts, and one of second texts or None, that returns rows without labels.
        metric: name of the usual metric, or a function of label names, None where they are not known, that returns it.
        scored_as: the kind whose metrics are for this one too, or None for its own.
        named: bool, whether each output of the head has a label name.
        without: dict from an option that has no meaning here to why.
    """

    kind: str
    files: str
    whole: Callable
    parts: Callable
    of_texts: Callable
    metric: Union[str, Callable]
    scored_as: Optional[str] = None
    named: bool = True
    without: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def read(self, path, *, labels=None, **options):
        """A whole labelled file.

        Args:
            path: str or path-like; "-" is standard input.
            labels: label names in index order, or None to find them in this file.
            options: fields of `Reading`.

        Returns: the kind's rows, and the label names, a tuple of str.

        Raises: InputError, naming file, line and fix, for anything unusable.
        """
        return self.whole(path, self._reading(options), labels)

    def chunks(self, path, *, chunk_rows=1024, keep_all_columns=False, **options):
        """Yield a file's rows without labels in parts of at most `chunk_rows`, to predict; what it says of labels is
        not looked at. The file's first mistakes are found at the first `next`, before TensorFlow is needed.

        Args and Raises: as of `read`; and
            keep_all_columns: bool, whether each part has `records`, the whole rows as dicts, where rows have columns.
        """
        return self.parts(path, self._reading(options), chunk_rows, keep_all_columns)

    def _reading(self, options: Dict[str, Any]):
        reading = Reading(**{"kind": self.kind, **options})
        for name, why in self.without.items():
            value = getattr(reading, name)
            if value != getattr(Reading, name):
                raise InputError(f"{{{name}}}: {why}, leave it out.", **{name: value})
        return reading


def read_sentences(path, reading, labels=None):
    """`Reader.whole` of a table, as `Rows`."""
    if not reading.label_separator:
        raise InputError(f"label_separator is {reading.label_separator!r} and must have at least one character.")
    how = {"kind": reading.kind, "path": path, "separator": reading.label_separator}
    check = functools.partial(label_numbers, index=None if labels is None else index_of(labels), **how)
    table = read_rows(path, check_label=None if reading.bad_rows is None else check, **reading.table(label="label"))
    cells, lines = table.labels, table.lines
    if labels is None:
        labels = find_labels(cells, lines=lines, **how)
    numbers = encode_labels(cells, labels=labels, lines=lines, **how)
    return Rows(text=table.text, text_pair=table.text_pair, labels=numbers), labels


def read_sentence_chunks(path, reading, chunk_rows, keep_all_columns):
    """`Reader.parts` of a table, as `files.Chunk`s."""
    return read_chunks(path, chunk_rows=chunk_rows, keep_all_columns=keep_all_columns, **reading.table())


def sentences_of_texts(texts, text_pairs):
    """`Rows` of lists of str."""
    check_texts(texts)
    check_texts(text_pairs)
    return Chunk(texts, text_pairs, None, []).rows()


_TABLES = "tables with a text a row", read_sentences, read_sentence_chunks, sentences_of_texts
READERS = {reader.kind: reader for reader in (
    Reader("classification", *_TABLES, "accuracy"),
    Reader("regression", *_TABLES, "pearson-spearman", named=False),
    Reader("multi-label", *_TABLES, "multi-label"),
    Reader(
        "token-classification", ".conllu and column files", read_words, read_word_chunks, words_of_texts,
        default_word_metric, without={"text_pair_column": NO_PAIRS, "label_separator": "a word has one label"},
    ),
    Reader(
        "question-answering", "SQuAD's JSON", read_questions, read_question_chunks, questions_of_texts, "squad",
        named=False, without={"label_separator": "a question has a list of answers"},
    ),
    Reader(
        "multiple-choice", "JSON lines with `text`, `choices` and `label`, or with the keys of SWAG or HellaSwag",
        read_choices, read_choice_chunks, choices_of_texts, "accuracy", scored_as="classification", named=False,
        without={"label_separator": "a row has one label"},
    ),
)}  # fmt: skip


def get_reader(kind):
    """The `Reader` of a kind of task; raises InputError with the known ones otherwise."""
    if kind not in READERS:
        raise InputError(f"kind is {kind!r} and must be one of {', '.join(READERS)}.")
    return READERS[kind]


def metric_of(kind, metric=None, labels=None):
    """The metric that is asked for, or what is usual of a kind of task with these label names.

    Raises:
        InputError: it is for other kinds or labels.
    """
    reader = get_reader(kind)
    metric = metric or (reader.metric(labels) if callable(reader.metric) else reader.metric)
    check_metric(metric, kind=reader.scored_as or kind, labels=labels if reader.named else None)
    return metric


def task_from_files(
    *,
    train: PathLike,
    validation: Union[PathLike, float, None] = None,
    test: Union[PathLike, float, None] = None,
    seed: int = 0,
    text_column: Union[str, int, None] = None,
    text_pair_column: Union[str, int, None] = None,
    label_column: Union[str, int, None] = None,
    kind: str = "classification",
    metric: Optional[str] = None,
    label_separator: str = "|",
    format: Optional[str] = None,
    encoding: Optional[str] = None,
    header: str = "first",
    delimiter: Optional[str] = None,
    bad_rows: Optional[BadRows] = None,
) -> Task:
    """A task from CSV, TSV or JSON lines files (see `tasks.files`), or from the files of other kinds of tasks.

    The training file defines the labels: numbers sorted by value, anything else
    by code point. For F1 the second of two labels is the positive one.

    Args:
        train: str or path-like.
        validation, test: the same, or a share of the training file's rows, such as 0.1, which is set aside as
            `tasks.rows.set_aside` says. Without either a tenth for each; without a validation file a tenth for
            it; without test, where validation is given, none.
        seed: int, draws what is set aside.
        text_column, text_pair_column, label_column: str, columns or JSON keys,
            the same in all files; None for the kind's usual ones, which are "text",
            no pair, and "label" in tables of sentences. Without a header columns are numbered from 1; one that is
            left out is found where only one column can be it.
        kind: "classification", "regression", "multi-label", "token-classification" (see
            `tasks.words`), "question-answering" (see `tasks.spans`) or "multiple-choice" (see `tasks.choices`).
        metric: name in `tasks.metrics.METRICS`, or None for the kind's usual one.
        label_separator: str between the labels of a multi-label cell.
        format: "csv", "tsv" or "jsonl", or another of the kind's formats, in place of the files' extensions.
        encoding: name of the files' encoding, such as "cp1252"; None for UTF-8, and for UTF-16 that begins with its
            mark.
        header: of CSV and TSV, "first" if the first line has the columns' names, "none" if it is a row.
        delimiter: between the columns of CSV, a character or "comma", "semicolon", "tab" or "pipe"; None for a comma,
            or a semicolon where the first line has the columns only so.
        bad_rows: `files.BadRows` that counts unusable rows, which are then left out, or None.

    Returns: `Task` with name "files".

    Raises: InputError, naming file, line and fix, for anything unusable.
    """
    metric_of(kind, metric)
    train = to_path(train)
    validation, test = (to_path(held) if isinstance(held, (str, os.PathLike)) else held for held in (validation, test))
    reading = {
        "text_column": text_column,
        "text_pair_column": text_pair_column,
        "label_column": label_column,
        "label_separator": label_separator,
        "format": format,
        "bad_rows": bad_rows,
        "encoding": encoding,
        "header": header,
        "delimiter": delimiter,
    }
    rows, labels = get_reader(kind).read(train, labels=None, **reading)
    metric = metric_of(kind, metric, labels)
    if validation is None:
        validation, test = SHARE, SHARE if test is None else test
    others = {"validation": validation, "test": test}
    shares = {split: other for split, other in others.items() if isinstance(other, (int, float))}
    splits = {"train": rows}
    if shares:
        splits = {split: rows.take(chosen) for split, chosen in set_aside(rows, kind, shares, seed=seed).items()}
    for split, other in others.items():
        if other is not None and split not in shares:
            splits[split] = get_reader(kind).read(other, labels=labels, **reading)[0]
    name = os.path.basename(os.fspath(train))
    places = {split: f"a share of {share:g} set aside of {name} by seed {seed}" for split, share in shares.items()}
    source = ", ".join(
        f"{split} {places.get(split) or os.path.basename(os.fspath(others.get(split, train)))} ({len(splits[split])} "
        "rows)"
        for split in ("train", "validation", "test")
        if split in splits
    )
    if bad_rows is not None and bad_rows.count:
        source += f"; {bad_rows.count} unusable rows were left out"
    return Task(
        name="files",
        kind=kind,
        labels=labels,
        metric=metric,
        source=f"The user's files: {source}.",
        reading=_to_keep(train, reading),
        **splits,
    )


#: What a directory keeps of how its training file was read, for files that are like it. The encoding is not among it:
#: in another one that fits every byte, a file would be read wrongly without a word.
KEPT = ("text_column", "text_pair_column", "label_column", "label_separator", "header", "delimiter")
_USUAL = {"label_separator": "|", "header": "first"}
_COLUMNS = ("text_column", "text_pair_column", "label_column")


def _to_keep(path, reading):
    """What was said of how a file is read, by `KEPT`, and under "files" what files it is for; None if nothing was."""
    kept = {name: str(reading[name]) for name in KEPT if reading[name] not in (None, _USUAL.get(name))}
    return {"files": _like(path, reading["format"]), **kept} if kept else None


def kept_reading(reading, path, *, format=None, header=None) -> Dict[str, Any]:
    """What of a training file's reading, `Task.reading`, is for this file too, of whose header `header` is said; a dict
    by names in `KEPT`."""
    like = _like(path, format)
    if not reading or os.fspath(path) == "-" or reading.get("files") != like:
        return {}
    format = format or _extension(path)
    kept = {name: reading[name] for name in KEPT if name in reading}
    if format != "csv":
        kept.pop("delimiter", None)
    were_numbers = kept.pop("header", None) == "none"
    are_numbers = format in ("csv", "tsv") and (header or ("none" if were_numbers else "first")) == "none"
    if were_numbers != are_numbers:
        kept = {name: value for name, value in kept.items() if name not in _COLUMNS}
    kept |= {"header": "none"} if are_numbers and header is None else {}
    return {name: kept[name] for name in KEPT if name in kept}


def _like(path, format):
    """What files have the same columns: tables, and others by their format."""
    format = format or _extension(path)
    return "table" if format in ("csv", "tsv", "jsonl") else format


def _extension(path):
    extension = os.path.splitext(os.fspath(path).lower().removesuffix(".gz"))[1]
    # Of questions .json is SQuAD's.
    return FORMATS.get(extension, extension) if extension != ".json" else extension


def rows_from_file(path, *, kind, labels, **reading):
    """The labelled rows of one file, for `labels` that are known (to evaluate); empty where the kind has none.

    Args and Raises: as of `task_from_files`; and a label that is not in `labels`.
    """
    return get_reader(kind).read(to_path(path), labels=labels, **reading)[0]


# Texts alone

KIND, METRIC = "masked-lm", "perplexity"
# Of texts without a validation file.
HELD_OUT_SHARE, MOST_HELD_OUT = 20, 1000


def check_has_task(kind):
    """Raise InputError for the kind of a directory that `pretrain` wrote, which predicts nothing yet."""
    if kind == KIND:
        raise InputError(
            "This directory was pretrained on texts and knows no task yet: `tf-adapters train "
            "--from-pretrained-adapter` goes on with it."
        )


def without_labels(task):
    """The training and validation texts of a task, a `Task` of the kind "masked-lm"; sentences of words are joined by
    spaces, and of questions each context and each question is a text."""
    train, validation = (rows.plain() for rows in (task.train, task.validation))
    return Task(
        name=task.name, kind=KIND, labels=(), metric=METRIC, train=train, validation=validation, source=task.source
    )


def texts_from_files(
    *,
    train,
    validation=None,
    text_column=None,
    text_pair_column=None,
    format=None,
    encoding=None,
    header="first",
    delimiter=None,
    bad_rows=None,
    seed=0,
):
    """Texts from CSV, TSV, JSON lines, or plain text with one in a line, as a `Task` of the kind "masked-lm".

    Args:
        train, validation: paths; without the second, a twentieth of the first, at most 1,000 texts that the seed draws,
            is held out.
        text_column, text_pair_column, format, encoding, header, delimiter, bad_rows: as in `task_from_files`.
        seed: int.

    Raises: InputError, naming file, line and fix, for anything unusable; fewer than two texts.
    """
    columns = Reading(
        text_column=text_column, text_pair_column=text_pair_column, format=format, bad_rows=bad_rows,
        encoding=encoding, header=header, delimiter=delimiter,
    ).table()  # fmt: skip

    def read(path):
        table = read_rows(to_path(path), **columns)
        return Rows(table.text, table.text_pair)

    rows, shown = read(train), os.path.basename(os.fspath(train))
    if validation is not None:
        held_out, rest = read(validation), rows
        source = f"The user's files: train {shown}, validation {os.path.basename(os.fspath(validation))}."
    else:
        count = min(MOST_HELD_OUT, -(-len(rows) // HELD_OUT_SHARE))
        if count >= len(rows):
            raise InputError(
                f"{{train}} has {len(rows)} text(s), of which none can be held out: give more, or validation.",
                train=str(train),
            )
        order = np.random.RandomState(seed).permutation(len(rows))
        held_out, rest = (rows.take(np.sort(part)) for part in (order[:count], order[count:]))
        source = f"The user's file {shown}, of whose {len(rows)} texts {count} were held out."
    return Task(name="files", kind=KIND, labels=(), metric=METRIC, train=rest, validation=held_out, source=source)
