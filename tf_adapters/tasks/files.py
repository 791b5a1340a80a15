"""CSV, TSV, JSON lines and plain text, read in constant memory.

| format | extensions | reading |
|---|---|---|
| csv | .csv | first line is the header; double quotes as in RFC 4180, strictly |
| tsv | .tsv | first line is the header; no quoting: a quote is a character of the text |
| jsonl | .jsonl .ndjson .json | one object a line |
| txt | .txt, and `-` (standard input) | one text a line, no labels |

Each may be compressed (`.csv.gz`). The encoding is UTF-8, with or without a
byte order mark. Empty lines at the end are ignored; elsewhere they are an
error, since a prediction must not silently change its number of rows.

A row that cannot be used is an error with its line, or, where a `BadRows` is
given, left out and counted.
"""

import csv
import dataclasses
import gzip
import itertools
import json
import os
import stat
import sys
import zlib
from typing import List, Optional, Union

import numpy as np

from tf_adapters.errors import InputError
from tf_adapters.json_input import parse_json
from tf_adapters.tasks.rows import Rows
from tf_adapters.tasks.stored_texts import StoredCells, StoredNumbers, StoredTexts

FORMATS = {
    ".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".txt": "txt",
}  # fmt: skip
# Bounds what a quote that is never closed can swallow; csv's own limit is 131,072.
FIELD_LIMIT = 16 * 1024 * 1024
# A larger file's texts stay on disk while a model trains on them.
MOST_BYTES_IN_MEMORY = 256 * 1024 * 1024
# A line may be all of a file, and one of a compressed file inflates to more than the memory holds.
LONGEST_LINE = 64 * 1024 * 1024


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


class BadRow(InputError):
    """One row of a file cannot be used; the rows around it can."""


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
    """A whole file: texts as in `rows.Rows`; label cells and lines as in `Chunk`, to iterate over."""

    text: Union["tf.Tensor", StoredTexts]  # noqa: F821
    text_pair: Union["tf.Tensor", StoredTexts, None]  # noqa: F821
    labels: Union[list, StoredCells, None]
    lines: Union[list, StoredNumbers]


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
            f"with .gz), or say the format ({', '.join(known)})."
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
):
    """Yield a file's rows as `Chunk`s of at most `chunk_rows`, never holding more than one.

    Texts are kept as they are, white space included. A column that is not asked
    for is not looked at. The first chunk is read, and the file's first mistakes
    are found, at the first `next`.

    Args:
        path: str or path-like; "-" is standard input.
        text_column, text_pair_column, label_column: str, names of columns or
            JSON keys; the latter two may be None. Plain text has only texts.
        chunk_rows: int, at least 1.
        format: "csv", "tsv", "jsonl" or "txt" in place of the extension's.
        keep_all_columns: bool, whether to keep each row's whole record.
        bad_rows: `BadRows` that counts malformed rows, which are then left out, or None.

    Raises: InputError, naming file, line and fix, if the file cannot be read, a
        column is missing, or a row is malformed or has no text.
    """
    if chunk_rows < 1:
        raise InputError(f"chunk_rows must be at least 1, and it is {chunk_rows}.")
    format = file_format(path, format)
    columns = [column for column in (text_column, text_pair_column, label_column) if column is not None]
    for column in columns:
        if columns.count(column) > 1:
            raise InputError(f"column {column!r} is asked for twice: text, text pair and label are different columns.")
    if format == "txt" and len(columns) > 1:
        raise InputError(
            f"{shown_name(path)} is read as plain text, one text a line, and has no column {columns[1]!r}: "
            "use CSV, TSV or JSON lines, or say the format."
        )
    rows = _usable(_READERS[format](path, columns), path, text_column, text_pair_column, bad_rows)
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
        what = "has a header and no rows" if format in ("csv", "tsv") else "is empty"
        raise InputError(f"{shown_name(path)} {what}: give a file with at least one row.")


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
    path, *, text_column="text", text_pair_column=None, label_column=None, format=None, bad_rows=None, usable=None
):
    """Read a whole file, for training; its texts end up once, in tf string tensors.

    Of a file above `MOST_BYTES_IN_MEMORY` everything is kept on disk instead.

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
    )
    # The first chunk before the slow import: a mistake in the file shows at once.
    first = next(chunks)
    import tensorflow as tf

    on_disk = _size(path) > MOST_BYTES_IN_MEMORY
    columns = [StoredTexts() if on_disk else [] for _ in range(1 if text_pair_column is None else 2)]
    labels = None if label_column is None else StoredCells() if on_disk else []
    lines = StoredNumbers(np.int64) if on_disk else []
    same = {}  # label cells repeat, and each read makes a new str
    with tf.device("CPU:0"):
        for chunk in itertools.chain([first], chunks):
            if usable is not None:
                chunk = chunk.where(usable(chunk.labels, chunk.lines))
            if not len(chunk):
                continue
            for column, texts in zip(columns, (chunk.text, chunk.text_pair)):
                column.extend(texts if on_disk else [tf.constant(texts)])
            if on_disk:
                labels is None or labels.extend(chunk.labels)
            elif labels is not None:
                labels.extend(same.setdefault(cell, cell) if type(cell) is str else cell for cell in chunk.labels)
            lines.extend(chunk.lines)
        del first, chunk
        if not len(lines):
            raise no_usable_row(path, bad_rows)
        if not on_disk:
            columns = [_joined(column) for column in columns]
    text, text_pair = (*columns, None)[:2]
    return Table(text=text, text_pair=text_pair, labels=labels, lines=lines)


def _joined(tensors):
    """One tensor of a list of them, which is emptied."""
    import tensorflow as tf

    joined = tf.concat(tensors, 0)
    tensors.clear()
    return joined


def _size(path):
    """About how many bytes of text a file holds; 0 for standard input."""
    if os.fspath(path) == "-":
        return 0
    size = os.path.getsize(path)
    return 4 * size if os.fspath(path).lower().endswith(".gz") else size


def no_usable_row(path, bad_rows):
    """The InputError of a file whose rows were all left out."""
    return InputError(f"{shown_name(path)} has no usable row; the first problem: {bad_rows.examples[0]}")


def shown_name(path):
    """What a path is called in messages."""
    return "standard input" if os.fspath(path) == "-" else os.fspath(path)


def bad_row(path, line, problem, **values):
    """The BadRow of a line, to be raised or yielded; `values` as of `InputError`."""
    return BadRow(f"{shown_name(path)}, line {line}: {problem}", **values)


def fail(path, line, problem, **values):
    """Raise the BadRow of a line."""
    raise bad_row(path, line, problem, **values)


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


def read_lines(path, longest=None):
    """Yield each line's number, text and BadRow or None; lines end in \\n only, so that other separators may be text.

    A line of more bytes than `longest`, `LONGEST_LINE` if that is None, is an InputError.
    """
    longest = longest or LONGEST_LINE
    name = shown_name(path)
    try:
        if os.fspath(path) == "-":
            yield from _decoded(sys.stdin.buffer, name, longest)
            return
        with (gzip.open if name.lower().endswith(".gz") else open)(path, "rb") as file:
            yield from _decoded(file, name, longest)
    except FileNotFoundError:
        raise InputError(f"{name} does not exist: check the path.") from None
    except IsADirectoryError:
        raise InputError(f"{name} is a directory: give a file.") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{name} is not a complete gzip file ({error}): compress it again.") from error
    except OSError as error:
        raise InputError(f"{name} cannot be read: {error.strerror or error}.") from error


def _decoded(file, name, longest):
    for number, line in enumerate(iter(lambda: file.readline(longest + 1), b""), 1):
        if len(line) > longest:
            raise InputError(f"{name}, line {number} is longer than {longest >> 20} MiB: is this a file of texts?")
        encoding = "utf-8-sig" if number == 1 else "utf-8"
        try:
            text = line.decode(encoding)
        except UnicodeDecodeError as error:
            problem = f"byte {line[error.start]:#04x} is not UTF-8; save the file as UTF-8."
            yield number, line.decode(encoding, "replace").replace("\0", ""), bad_row(name, number, problem)
            continue
        if "\0" in text:
            problem = "holds a NUL character; save the file as UTF-8 text without it."
            yield number, text.replace("\0", ""), bad_row(name, number, problem)
            continue
        yield number, text, None


# Each reader yields the line of a row, and its record: a dict, or the BadRow that it is.


def _read_txt(path, columns):
    for line, text, problem in without_blank_lines(read_lines(path), path):
        yield line, problem or {columns[0]: text.rstrip("\r\n")}


def read_records(path, columns=()):
    """The objects of JSON lines: the line of each, and the dict, in which all of `columns` are, or the BadRow that it
    is."""
    for line, text, problem in without_blank_lines(read_lines(path), path):
        yield line, problem or _json_record(path, line, text, columns)


def _json_record(path, line, text, columns):
    try:
        record = parse_json(text)
    except json.JSONDecodeError as error:
        return bad_row(path, line, f"is not JSON ({error.msg} at column {error.colno}); write one JSON object a line.")
    except ValueError as error:
        return bad_row(path, line, f"is not usable JSON ({error}); write one JSON object a line.")
    if not isinstance(record, dict):
        return bad_row(path, line, f"is {text.strip()[:40]!r} and not a JSON object; write one JSON object a line.")
    for column in columns:
        if column not in record:
            return bad_row(path, line, f"has no key {column!r}; its keys are {_listed(record)}.")
    return record


def _read_csv(path, columns):
    yield from _with_header(_csv_rows(path), path, columns)


def _read_tsv(path, columns):
    lines = without_blank_lines(read_lines(path), path)
    rows = ((line, problem or text.rstrip("\r\n").split("\t")) for line, text, problem in lines)
    yield from _with_header(rows, path, columns)


_READERS = {"csv": _read_csv, "tsv": _read_tsv, "jsonl": read_records, "txt": _read_txt}


class _CsvLines:
    """The lines of a CSV file for `csv.reader`, remembered until their row is complete.

    Attributes:
        row: list of the `(number, text, problem)` that were read since it was last emptied.
    """

    def __init__(self, lines):
        self.lines = lines
        self.returned = []
        self.row = []

    def __iter__(self):
        return self

    def __next__(self):
        line = self.returned.pop() if self.returned else next(self.lines)
        self.row.append(line)
        return line[1]

    def retreat(self):
        """Return all lines but the first, so that only it is lost where a quote is never closed."""
        self.returned.extend(reversed(self.row[1:]))


def _csv_rows(path):
    # Raised for the process, never lowered: a restore could meet another thread's reading.
    csv.field_size_limit(max(FIELD_LIMIT, csv.field_size_limit()))
    lines = _CsvLines(read_lines(path))
    reader = csv.reader(lines, strict=True)
    blank = None
    while True:
        lines.row.clear()
        try:
            row = next(reader, None)
        except csv.Error as error:
            line = lines.row[0][0]
            lines.retreat()
            row = bad_row(path, line, _csv_problem(error))
        if row is None:
            return
        line = lines.row[0][0]
        if not row:
            blank = blank or line
            continue
        if blank:
            yield blank, bad_row(path, blank, "is empty; remove it.")
            blank = None
        problem = next((problem for _, _, problem in lines.row if problem), None)
        yield line, row if isinstance(row, BadRow) else problem or row


def _csv_problem(error):
    if "unexpected end of data" in str(error):
        return 'a quote (") is opened in this row and never closed; close it or write it twice ("").'
    if "field larger" in str(error):
        return f"a field has more than {FIELD_LIMIT} characters; is a quote never closed?"
    return f'is not valid CSV ({error}); put the field in quotes and write a quote in it twice ("").'


def without_blank_lines(lines, path):
    """The lines of `read_lines` without empty ones at the end; one elsewhere gets its BadRow."""
    blank = None
    for line, text, problem in lines:
        if not text.strip("\r\n"):
            blank = blank or line
            continue
        if blank:
            yield blank, "", bad_row(path, blank, "is empty; remove it.")
            blank = None
        yield line, text, problem


def _with_header(rows, path, columns):
    _, header = next(rows, (1, None))
    if header is None:
        raise InputError(f"{shown_name(path)} is empty: give a file with a header and at least one row.")
    if isinstance(header, BadRow):
        raise header
    for column in columns:
        if header.count(column) != 1:
            problem = "has no column" if column not in header else "has more than one column"
            raise InputError(
                f"{shown_name(path)} {problem} {column!r}: the columns of its first line are {_listed(header)}."
            )
    for line, row in rows:
        if isinstance(row, BadRow):
            yield line, row
        elif len(row) != len(header):
            problem = f"has {len(row)} fields where the header has {len(header)}; quote or remove separators."
            yield line, bad_row(path, line, problem)
        else:
            yield line, dict(zip(header, row))


def _listed(names, most=20):
    names = [repr(name if len(name) <= 60 else name[:60] + "...") for name in names]
    return (", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")) or "none"
