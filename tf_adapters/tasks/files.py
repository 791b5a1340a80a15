"""CSV, TSV, JSON lines and plain text, read in constant memory.

| format | extensions | reading |
|---|---|---|
| csv | .csv | first line is the header, `sep=;` may stand before it; double quotes as in RFC 4180, strictly |
| tsv | .tsv | first line is the header; no quoting: a quote is a character of the text |
| jsonl | .jsonl .ndjson .json | one object a line |
| txt | .txt, and `-` (standard input) | one text a line, no labels |

Each may be compressed (`.csv.gz`). `lines` says what of encodings and ends of lines is read. Empty lines at the end are
ignored. A row that cannot be used is an error with its line, or, where a `BadRows` is given, left out and counted.
"""

import collections
import dataclasses
import itertools
import json
import os
import stat
from typing import Any, List, Optional

from tf_adapters.errors import NAME, InputError
from tf_adapters.json_input import parse_json
from tf_adapters.tasks.lines import USUAL, BadRow, bad_row, fail, read_lines, read_texts, shown_name, usable
from tf_adapters.tasks.rows import Rows
from tf_adapters.tasks.tables import listed, read_csv, read_tsv

FORMATS = {
    ".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".txt": "txt",
}  # fmt: skip
_CHUNK_ROWS = 16384


@dataclasses.dataclass
class Chunk:
    """Consecutive rows of a file, or all of them.

    Attributes:
        text: list of str; of a whole file a tf string tensor.
        text_pair: the same, or None if no such column was asked for.
        labels: list of label cells as the file has them (str; any JSON value in JSON lines), or None if no label
            column was asked for.
        lines: list of int, the 1-based line on which each row starts.
        records: list of dict, all columns of each row, or None unless kept.
    """

    text: List[str]
    text_pair: Optional[List[str]]
    labels: Optional[list]
    lines: List[int]
    records: Optional[List[dict]] = None

    def __len__(self):
        return len(self.lines)

    def rows(self):
        """The texts as `Rows` without labels, to predict."""
        import tensorflow as tf

        with tf.device("CPU:0"):
            return Rows(tf.constant(self.text), None if self.text_pair is None else tf.constant(self.text_pair))


@dataclasses.dataclass
class Carried:
    """Rows of another kind than tables of texts, `whole`, with all columns of the file, `records` as of `Chunk`."""

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


def file_format(path, format=None):
    """ "csv", "tsv", "jsonl" or "txt", from `format` or the extension of `path`.

    Raises: InputError, if neither says which.
    """
    known = ", ".join(sorted(set(FORMATS.values())))
    if format is not None:
        if format not in _READERS:
            raise InputError(f"format is {format!r} and must be one of {known}.")
        return format
    if os.fspath(path) == "-":
        return "txt"
    extension = os.path.splitext(os.fspath(path).lower().removesuffix(".gz"))[1]
    if extension not in FORMATS:
        # What it is, if it is no text, says more than its name.
        if not is_stream(path) and next(iter(read_lines(path)), (1, "", None))[2]:
            raise InputError(f"{path} does not begin with text: write its rows as CSV or JSON lines.")
        raise InputError(
            f"{path} has the extension {extension!r}, which names no known format: use {', '.join(FORMATS)} (each also "
            f"with .gz), or name it by {{format}} ({known}).",
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

    Texts are kept as they are, white space included. A column that is not asked for is not looked at. The file's first
    mistakes are found at the first `next`.

    Args:
        path: str or path-like; "-" is standard input.
        text_column, text_pair_column, label_column: str, names of columns or JSON keys; the latter two may be None.
            Plain text has only texts. Without a header columns have numbers from 1; where only one column is left to be
            the one that has no number, it is that one.
        chunk_rows: int, at least 1.
        format: "csv", "tsv", "jsonl" or "txt" in place of the extension's.
        keep_all_columns: bool, whether to keep each row's whole record.
        bad_rows: `BadRows` that counts malformed rows, which are then left out, or None.
        dialect: `Dialect`.

    Raises: InputError, naming file, line and fix, if the file cannot be read, a column is missing, or a row is
        malformed or has no text.
    """
    if chunk_rows < 1:
        raise InputError(f"chunk_rows must be at least 1, and it is {chunk_rows}.")
    format = file_format(path, format)
    wanted = {"text_column": text_column, "text_pair_column": text_pair_column, "label_column": label_column}
    # A number is a natural name of a column without one.
    columns = {argument: str(column) for argument, column in wanted.items() if column is not None}
    for column, count in collections.Counter(columns.values()).items():
        if count > 1:
            raise InputError(f"column {column!r} is asked for twice: text, text pair and label are different columns.")
    rows = usable(_READERS[format](path, columns, dialect), _checked(path, columns), bad_rows)
    found = False
    while part := list(itertools.islice(rows, chunk_rows)):
        found = True
        yield Chunk(
            *(
                [record[columns[argument]] for _, record in part] if argument in columns else None
                for argument in wanted
            ),
            lines=[line for line, _ in part],
            records=[record for _, record in part] if keep_all_columns else None,
        )
    if not found and bad_rows is not None and bad_rows.count:
        raise no_usable_row(path, bad_rows)
    if not found:
        what = "has a header and no rows" if format in ("csv", "tsv") and dialect.header == "first" else "is empty"
        raise InputError(f"{shown_name(path)} {what}: give a file with at least one row.")


def read_rows(path, *, usable=None, bad_rows=None, **reading):
    """A whole file as one `Chunk`, for training; its texts end up once, in tf string tensors.

    Args and Raises: as in `read_chunks`; and
        usable: function of label cells and lines that returns which rows to keep, a sequence of bool; or None.
    """
    chunks = read_chunks(path, chunk_rows=_CHUNK_ROWS, bad_rows=bad_rows, **reading)
    # The first chunk before the slow import: a mistake in the file shows at once.
    first = next(chunks)
    import tensorflow as tf

    parts, labels, lines = {"text": [], "text_pair": []}, None if first.labels is None else [], []
    same = {}  # label cells repeat, and each read makes a new str
    with tf.device("CPU:0"):
        for chunk in itertools.chain([first], chunks):
            kept = [True] * len(chunk) if usable is None else usable(chunk.labels, chunk.lines)
            for column, tensors in parts.items():
                if (texts := getattr(chunk, column)) is not None:
                    tensors.append(tf.constant(list(itertools.compress(texts, kept)), tf.string))
            if labels is not None:
                cells = itertools.compress(chunk.labels, kept)
                labels.extend(same.setdefault(cell, cell) if type(cell) is str else cell for cell in cells)
            lines.extend(itertools.compress(chunk.lines, kept))
        if not lines:
            raise no_usable_row(path, bad_rows)
        return Chunk(*(tf.concat(tensors, 0) if tensors else None for tensors in parts.values()), labels, lines)


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


def no_usable_row(path, bad_rows):
    """The InputError of a file whose rows were all left out."""
    return InputError(f"{shown_name(path)} has no usable row; the first problem: {bad_rows.examples[0]}")


def check_cell(value, path, line, column):
    """Raise the BadRow of a line whose text is none."""
    if value is None or value != value or (isinstance(value, str) and (not value or value.isspace())):
        fail(path, line, f"column {column!r} is empty; fill it in or remove the row.")
    if not isinstance(value, str):
        fail(path, line, f"column {column!r} is {json.dumps(value)[:60]}, which is not a string; write it in quotes.")
    if "\0" in value:
        fail(path, line, f"column {column!r} holds a NUL character; remove it.")
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            fail(path, line, f"column {column!r} holds half of a surrogate pair (\\ud800 to \\udfff); remove it.")


def _checked(path, columns):
    """A function that checks a row, whose record may be a BadRow, and returns it."""
    texts = [columns[argument] for argument in ("text_column", "text_pair_column") if argument in columns]

    def check(row):
        line, record = row
        if isinstance(record, BadRow):
            raise record
        for column in texts:
            check_cell(record[column], path, line, column)
        return row

    return check


# Each reader yields the line of a row, and its record: a dict, or the BadRow that it is.


def _read_txt(path, columns, dialect):
    dialect.refuse(f"{shown_name(path)} is read as plain text")
    column, *others = columns.values()
    if others:
        next(iter(() if is_stream(path) else read_lines(path, dialect.encoding)), None)  # what else it may be
        raise InputError(
            f"{shown_name(path)} is read as plain text, one text a line, and has no column {others[0]!r}: if it is a "
            "table or JSON lines, give {format}.",
            format=NAME,
        )
    for line, row in read_texts(path, dialect.encoding):
        yield line, row if isinstance(row, BadRow) else {column: row}


def read_records(path, columns=None, dialect=USUAL):
    """The objects of JSON lines: the line of each, and the dict, in which all of `columns` are, or the BadRow that it
    is.

    Args:
        columns: dict from the arguments that name keys to these keys, or None.
        dialect: `Dialect`.
    """
    dialect.refuse(f"{shown_name(path)} is read as JSON lines")
    for line, row in read_texts(path, dialect.encoding):
        yield line, row if isinstance(row, BadRow) else _json_record(path, line, row, columns or {})


def _json_record(path, line, text, columns):
    try:
        record = parse_json(text)
        problem = None if isinstance(record, dict) else f"is {text.strip()[:40]!r} and not a JSON object"
    except ValueError as error:
        problem = f"is not JSON ({error})"
    if problem is not None:
        return bad_row(path, line, f"{problem}; write one JSON object a line, or give {{format}}.", format=NAME)
    for argument, column in columns.items():
        if column not in record:
            problem = f"has no key {column!r}; its keys are {listed(record)}: name it by {{{argument}}}."
            return bad_row(path, line, problem, **{argument: NAME})
    return record


_READERS = {"csv": read_csv, "tsv": read_tsv, "jsonl": read_records, "txt": _read_txt}
