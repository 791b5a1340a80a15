"""CSV, TSV, JSON lines and plain text, read in constant memory.

| format | extensions | reading |
|---|---|---|
| csv | .csv | first line is the header; double quotes as in RFC 4180, strictly; a semicolon may stand for the comma |
| tsv | .tsv | first line is the header; no quoting: a quote is a character of the text |
| jsonl | .jsonl .ndjson .json | one object a line |
| txt | .txt, and `-` (standard input) | one text a line, no labels |

Each may be compressed (`.csv.gz`). `lines` says what of encodings and ends of lines is read, and a `Dialect` what
else a file may have. Empty lines at the end are ignored; elsewhere they are an
error, since a prediction must not silently change its number of rows.

A row that cannot be used is an error with its line, or, where a `BadRows` is
given, left out and counted.
"""

import dataclasses
import itertools
import json
import os
import stat
from typing import Any, List, Optional

from tf_adapters.errors import NAME, InputError
from tf_adapters.json_input import parse_json
from tf_adapters.tasks.dialect import USUAL
from tf_adapters.tasks.lines import BadRow, bad_row, fail, read_lines, shown_name, without_blank_lines
from tf_adapters.tasks.rows import Rows
from tf_adapters.tasks.tables import likely_table, listed, of_another_name, read_csv, read_tsv

FORMATS = {
    ".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".txt": "txt",
}  # fmt: skip


@dataclasses.dataclass
class Chunk:
    """Consecutive rows of a file.

    Attributes:
        text: list of str.
        text_pair: list of str, or None if no such column was asked for.
        labels: list of label cells as the file has them (str; any JSON value in
            JSON lines), or None if no label column was asked for.
        lines: list of int, the 1-based line on which each row starts.
        records: list of dict, all columns of each row, or None unless kept.
    """

    text: List[str]
    text_pair: Optional[List[str]]
    labels: Optional[list]
    lines: List[int]
    records: Optional[List[dict]]

    def __len__(self):
        return len(self.text)

    def where(self, chosen):
        """The rows at which `chosen`, a sequence of bool, is true."""
        columns = {name: getattr(self, name) for name in ("text", "text_pair", "labels", "lines", "records")}
        return Chunk(**{
            name: None if column is None else list(itertools.compress(column, chosen)) for name,
            column in columns.items()
        })  # fmt: skip

    def rows(self):
        """The texts as `Rows` without labels, to predict."""
        import tensorflow as tf

        with tf.device("CPU:0"):
            return Rows(tf.constant(self.text), None if self.text_pair is None else tf.constant(self.text_pair))


@dataclasses.dataclass
class Carried:
    """Rows of another kind than tables of texts, with all columns of the file.

    Attributes:
        whole: the kind's rows.
        records: list of dict, as of `Chunk`.
    """

    whole: Any
    records: List[dict]

    def __len__(self):
        return len(self.whole)

    def rows(self):
        """The rows."""
        return self.whole


class BadRows:
    """Counts the rows that are left out, and keeps what was wrong with the first of them.

    Attributes:
        count: int.
        examples: list of str, at most `MOST_EXAMPLES` messages with file and line.
    """

    MOST_EXAMPLES = 5

    def __init__(self):
        self.count = 0
        self.examples = []

    def add(self, problem):
        """Count one row; `problem` is its message or BadRow."""
        self.count += 1
        if len(self.examples) < self.MOST_EXAMPLES:
            self.examples.append(str(problem))


@dataclasses.dataclass
class Table:
    """A whole file: texts as in `rows.Rows`; label cells and lines as in `Chunk`."""

    text: "tf.Tensor"  # noqa: F821
    text_pair: Optional["tf.Tensor"]  # noqa: F821
    labels: Optional[list]
    lines: List[int]


def file_format(path, format=None):
    """ "csv", "tsv", "jsonl" or "txt", from `format` or the extension of `path`.

    Raises: InputError, if neither says which.
    """
    known = sorted(set(FORMATS.values()))
    if format is not None:
        if format not in known:
            raise InputError(f"format is {format!r} and must be one of {', '.join(known)}.")
        return format
    if os.fspath(path) == "-":
        return "txt"
    name = os.path.basename(os.fspath(path)).lower()
    extension = os.path.splitext(name[:-3] if name.endswith(".gz") else name)[1]
    if extension not in FORMATS:
        raise InputError(
            f"{path} has the extension {extension!r}, which names no known format: use {', '.join(FORMATS)} (each also "
            f"with .gz), or name it by {{format}} ({', '.join(known)}).",
            format=NAME,
        )
    return FORMATS[extension]


def read_chunks(
    path,
    *,
    text_column="text",
    text_pair_column=None,
    label_column=None,
    chunk_rows=1024,
    format=None,
    keep_all_columns=False,
    bad_rows=None,
    dialect=USUAL,
):
    """Yield a file's rows as `Chunk`s of at most `chunk_rows`, never holding more than one.

    Texts are kept as they are, white space included. A column that is not asked
    for is not looked at. The first chunk is read, and the file's first mistakes
    are found, at the first `next`.

    Args:
        path: str or path-like; "-" is standard input.
        text_column, text_pair_column, label_column: str, names of columns or
            JSON keys; the latter two may be None. Plain text has only texts. Without a header columns have numbers
            from 1; where only one column is left to be the one that has no number, it is that one.
        chunk_rows: int, at least 1.
        format: "csv", "tsv", "jsonl" or "txt" in place of the extension's.
        keep_all_columns: bool, whether to keep each row's whole record.
        bad_rows: `BadRows` that counts malformed rows, which are then left out, or None.
        dialect: `Dialect`.

    Raises: InputError, naming file, line and fix, if the file cannot be read, a
        column is missing, or a row is malformed or has no text.
    """
    if chunk_rows < 1:
        raise InputError(f"chunk_rows must be at least 1, and it is {chunk_rows}.")
    format = file_format(path, format)
    # A number is a natural name of a column without one.
    text_column, text_pair_column, label_column = (
        str(column) if isinstance(column, int) else column for column in (text_column, text_pair_column, label_column)
    )
    columns = {"text_column": text_column, "text_pair_column": text_pair_column, "label_column": label_column}
    columns = {argument: column for argument, column in columns.items() if column is not None}
    names = list(columns.values())
    for column in names:
        if names.count(column) > 1:
            raise InputError(f"column {column!r} is asked for twice: text, text pair and label are different columns.")
    if format == "txt" and len(columns) > 1:
        raise InputError(
            f"{shown_name(path)} is read as plain text, one text a line, and has no column {names[1]!r}: "
            f"if it is a table, give {{format}} {_likely_format(path, dialect)}.",
            format=NAME,
        )
    rows = _usable(_READERS[format](path, columns, dialect), path, text_column, text_pair_column, bad_rows)
    found = False
    while True:
        chunk = Chunk(
            text=[],
            text_pair=None if text_pair_column is None else [],
            labels=None if label_column is None else [],
            lines=[],
            records=[] if keep_all_columns else None,
        )
        for line, record in itertools.islice(rows, chunk_rows):
            chunk.text.append(record[text_column])
            if text_pair_column is not None:
                chunk.text_pair.append(record[text_pair_column])
            if label_column is not None:
                chunk.labels.append(record[label_column])
            chunk.lines.append(line)
            if keep_all_columns:
                chunk.records.append(record)
        if not chunk.lines:
            break
        found = True
        yield chunk
    if not found and bad_rows is not None and bad_rows.count:
        raise no_usable_row(path, bad_rows)
    if not found:
        what = "has a header and no rows" if format in ("csv", "tsv") and dialect.header == "first" else "is empty"
        raise InputError(f"{shown_name(path)} {what}: give a file with at least one row.")


def _likely_format(path, dialect):
    """What a file that is no plain text may be, by its first line."""
    if is_stream(path):
        return "csv"
    _, text, _ = next(read_lines(path, dialect.encoding), (1, "", None))
    return "jsonl" if text.lstrip().startswith("{") else likely_table(text)


def is_stream(path):
    """Whether a path can be read only once: standard input, a pipe, a terminal."""
    if os.fspath(path) == "-":
        return True
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False  # which reading it says better
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def peek(path, **columns):
    """Find the first mistakes of a file, as `read_chunks` does; of a stream none, since its rows would be gone."""
    if not is_stream(path):
        next(read_chunks(path, chunk_rows=1, **columns))


def check_streams(paths):
    """Raise InputError if a stream is given twice; `paths` is a dict by what they are called in messages, with None for
    those that are not."""
    readers = {}
    for name, path in paths.items():
        if path is not None and is_stream(path):
            first = readers.setdefault(os.path.realpath(path), name)
            if first != name:
                raise InputError(
                    f"{name} {path} is the stream that {first} reads, which can be read once: give a file."
                )


def _usable(rows, path, text_column, text_pair_column, bad_rows):
    """The rows whose record and texts are in order; a reader yields a BadRow in place of a record."""
    for line, record in rows:
        try:
            if isinstance(record, BadRow):
                raise record
            for column in (text_column, text_pair_column):
                if column is not None:
                    check_cell(record[column], path, line, column)
        except BadRow as problem:
            if bad_rows is None:
                raise
            bad_rows.add(problem)
            continue
        yield line, record


def read_rows(
    path,
    *,
    text_column="text",
    text_pair_column=None,
    label_column=None,
    format=None,
    bad_rows=None,
    usable=None,
    dialect=USUAL,
):
    """Read a whole file, for training; its texts end up once, in tf string tensors.

    Args and Raises: as in `read_chunks`; and
        usable: function of label cells and lines that returns which rows to keep, a sequence of bool; or None.

    Returns: `Table`.
    """
    chunks = read_chunks(
        path,
        text_column=text_column,
        text_pair_column=text_pair_column,
        label_column=label_column,
        chunk_rows=16384,
        format=format,
        bad_rows=bad_rows,
        dialect=dialect,
    )
    # The first chunk before the slow import: a mistake in the file shows at once.
    first = next(chunks)
    import tensorflow as tf

    columns = [[] for _ in range(1 if text_pair_column is None else 2)]
    labels, lines = None if label_column is None else [], []
    same = {}  # label cells repeat, and each read makes a new str
    with tf.device("CPU:0"):
        for chunk in itertools.chain([first], chunks):
            if usable is not None:
                chunk = chunk.where(usable(chunk.labels, chunk.lines))
            if not len(chunk):
                continue
            for column, texts in zip(columns, (chunk.text, chunk.text_pair)):
                column.append(tf.constant(texts))
            if labels is not None:
                labels.extend(same.setdefault(cell, cell) if type(cell) is str else cell for cell in chunk.labels)
            lines.extend(chunk.lines)
        del first, chunk
        if not lines:
            raise no_usable_row(path, bad_rows)
        columns = [_joined(column) for column in columns]
    text, text_pair = (*columns, None)[:2]
    return Table(text=text, text_pair=text_pair, labels=labels, lines=lines)


def _joined(tensors):
    """One tensor of a list of them, which is emptied."""
    import tensorflow as tf

    joined = tf.concat(tensors, 0)
    tensors.clear()
    return joined


def no_usable_row(path, bad_rows):
    """The InputError of a file whose rows were all left out."""
    return InputError(f"{shown_name(path)} has no usable row; the first problem: {bad_rows.examples[0]}")


def check_cell(value, path, line, column):
    """Raise the BadRow of a line whose text is none."""
    if value is None or (isinstance(value, float) and value != value):
        fail(path, line, f"column {column!r} is empty; fill it in or remove the row.")
    if not isinstance(value, str):
        fail(path, line, f"column {column!r} is {json.dumps(value)[:60]}, which is not a string; write it in quotes.")
    if not value or value.isspace():
        fail(path, line, f"column {column!r} is empty; fill it in or remove the row.")
    if "\0" in value:
        fail(path, line, f"column {column!r} holds a NUL character; remove it.")
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            fail(path, line, f"column {column!r} holds half of a surrogate pair (\\ud800 to \\udfff); remove it.")


# Each reader yields the line of a row, and its record: a dict, or the BadRow that it is.


def _read_txt(path, columns, dialect):
    dialect.refuse_table_options(f"{shown_name(path)} is read as plain text")
    (column,) = columns.values()
    for line, text, problem in without_blank_lines(read_lines(path, dialect.encoding), path):
        yield line, problem or {column: text.rstrip("\r\n")}


def read_records(path, columns=None, dialect=USUAL):
    """The objects of JSON lines: the line of each, and the dict, in which all of `columns` are, or the BadRow that it
    is.

    Args:
        columns: dict from the arguments that name keys to these keys, or None.
        dialect: `Dialect`.
    """
    dialect.refuse_table_options(f"{shown_name(path)} is read as JSON lines")
    for line, text, problem in without_blank_lines(read_lines(path, dialect.encoding), path):
        yield line, problem or _json_record(path, line, text, columns or {})


def _json_record(path, line, text, columns):
    advice = "write one JSON object a line"
    if line == 1 and text.lstrip()[:1] not in ("{", "["):
        advice += f", or give {{format}} {likely_table(text)}"
    try:
        record = parse_json(text)
    except json.JSONDecodeError as error:
        return bad_row(path, line, f"is not JSON ({error.msg} at column {error.colno}); {advice}.", format=NAME)
    except ValueError as error:
        return bad_row(path, line, f"is not usable JSON ({error}); write one JSON object a line.")
    if not isinstance(record, dict):
        return bad_row(path, line, f"is {text.strip()[:40]!r} and not a JSON object; {advice}.", format=NAME)
    for argument, column in columns.items():
        if column not in record:
            hint, values = of_another_name(argument, list(record), columns, list(record.values()))
            return bad_row(path, line, f"has no key {column!r}; its keys are {listed(record)}: {hint}.", **values)
    return record


_READERS = {"csv": read_csv, "tsv": read_tsv, "jsonl": read_records, "txt": _read_txt}
