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
import csv
import dataclasses
import functools
import itertools
import json
import os
import re
import stat
from typing import List, Optional

from tf_adapters.errors import NAME, InputError
from tf_adapters.paths import parse_json
from tf_adapters.tasks.lines import (
    DELIMITERS,
    USUAL,
    BadRow,
    bad_row,
    fail,
    read_lines,
    read_texts,
    shown_name,
    usable,
    without_gaps,
)
from tf_adapters.tasks.rows import Rows, string_tensors

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
        return Rows(*string_tensors([(self.text, self.text_pair)]))


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
    """ "csv", "tsv", "jsonl" or "txt", from `format` or the extension of `path`; InputError if neither says which."""
    known = ", ".join(sorted(_READERS))
    if format in _READERS:
        return format
    if format is not None:
        raise InputError(f"format is {format!r} and must be one of {known}.")
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
    check_label=None,
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
        check_label: function of a label cell and its line that raises the BadRow of one that cannot be used; or None.
        bad_rows: `BadRows` that counts malformed rows, which are then left out, or None.
        dialect: `Dialect`.

    Raises: InputError, naming file, line and fix, if the file cannot be read, a column is missing, or a row is
        malformed or has no text.
    """
    format = file_format(path, format)
    wanted = {"text_column": text_column, "text_pair_column": text_pair_column, "label_column": label_column}
    # A number is a natural name of a column without one.
    columns = {argument: str(column) for argument, column in wanted.items() if column is not None}
    for column, count in collections.Counter(columns.values()).items():
        if count > 1:
            raise InputError(f"column {column!r} is asked for twice: text, text pair and label are different columns.")
    what = "has a header and no rows" if format in ("csv", "tsv") and dialect.header == "first" else "is empty"
    rows = usable(
        _READERS[format](path, columns, dialect), _checked(path, columns, check_label), path, bad_rows,
        otherwise=f"{what}: give a file with at least one row.",
    )  # fmt: skip
    while part := list(itertools.islice(rows, chunk_rows)):
        yield Chunk(
            *(
                [record[columns[argument]] for _, record in part] if argument in columns else None
                for argument in wanted
            ),
            lines=[line for line, _ in part],
            records=[record for _, record in part] if keep_all_columns else None,
        )


def read_rows(path, **reading):
    """A whole file as one `Chunk`, for training; its texts end up once, in tf string tensors. Args and Raises: as in
    `read_chunks`."""
    labels, lines = [], []
    same = {}  # label cells repeat, and each read makes a new str

    def texts():
        for chunk in read_chunks(path, chunk_rows=_CHUNK_ROWS, **reading):
            labels.extend(same.setdefault(cell, cell) if type(cell) is str else cell for cell in chunk.labels or ())
            lines.extend(chunk.lines)
            yield chunk.text, chunk.text_pair

    return Chunk(*string_tensors(texts()), None if reading.get("label_column") is None else labels, lines)


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


def check_cell(value, path, line, column):
    """Raise the BadRow of a line whose text is none."""
    if problem := text_problem(value):
        fail(path, line, f"column {column!r} {problem}")


def text_problem(value):
    """What is wrong with a value that is to be a text, or None."""
    if value is None or value != value or (isinstance(value, str) and (not value or value.isspace())):
        return "is empty; fill it in or remove the row."
    if isinstance(value, list):
        return (
            f"is {json.dumps(value)[:60]}, a list: join its words into one text. Labels of words are of kind "
            "token-classification, whose files have a word and its label a line."
        )
    if not isinstance(value, str):
        return f"is {json.dumps(value)[:60]}, which is not a string; write it in quotes."
    if "\0" in value:
        return "holds a NUL character; remove it."
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            return "holds half of a surrogate pair (\\ud800 to \\udfff); remove it."
    return None


def _checked(path, columns, check_label):
    """A function that checks a row and returns it."""
    texts = [columns[argument] for argument in ("text_column", "text_pair_column") if argument in columns]

    def check(row):
        line, record = row
        for column in texts:
            check_cell(record[column], path, line, column)
        if check_label is not None:
            check_label(record[columns["label_column"]], line)
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
    """The objects of JSON lines: the line of each, and the dict, in which all keys are that `columns` has by the
    arguments that name them, or the BadRow that it is."""
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


# CSV and TSV: rows of cells, and the columns that have names or numbers.

# Bounds what a quote that is never closed can swallow; csv's own limit is 131,072.
FIELD_LIMIT = 16 * 1024 * 1024
# What Excel reads as the delimiter, ahead of the header.
_SAID = re.compile(r'"?sep=(.)"?\s*')


def _csv_rows(path, columns, dialect):
    """Pairs of each row's first line, and its cells or the BadRow that it is."""
    # Raised for the process, never lowered: a restore could meet another thread's reading.
    csv.field_size_limit(max(FIELD_LIMIT, csv.field_size_limit()))
    lines = read_lines(path, dialect.encoding, csv=True)
    ahead = collections.deque(itertools.islice(lines, 1))
    delimiter, said = dialect.delimiter, _SAID.fullmatch(ahead[0][1]) if ahead else None
    if said:
        delimiter, ahead = delimiter or said[1], collections.deque(itertools.islice(lines, 1))
    if ahead and not delimiter and dialect.header == "first":
        delimiter = next((one for one in DELIMITERS.values() if _has_columns(ahead[0][1], one, columns)), ",")
    row = []

    def texts():
        while ahead or (line := next(lines, None)):
            row.append(ahead.popleft() if ahead else line)
            yield row[-1][1]

    while True:
        try:
            for cells in csv.reader(texts(), delimiter=delimiter or ",", strict=True):
                problem = row[0][2] if len(row) == 1 else next((problem for _, _, problem in row if problem), None)
                yield row[0][0], problem or cells
                row.clear()
            return
        except csv.Error as error:
            yield row[0][0], bad_row(path, row[0][0], _csv_problem(error))
            # A quote that is never closed loses its own line alone.
            ahead.extendleft(reversed(row[1:]))
            row.clear()


def _has_columns(header, delimiter, columns):
    try:
        return set(columns.values()) <= set(next(csv.reader([header], delimiter=delimiter, strict=True), ()))
    except csv.Error:
        return False


def _csv_problem(error):
    if "unexpected end of data" in str(error):
        return 'a quote (") is opened in this row and never closed; close it or write it twice ("").'
    if "field larger" in str(error):
        return f"a field has more than {FIELD_LIMIT} characters; is a quote never closed?"
    return f'is not valid CSV ({error}); put the field in quotes and write a quote in it twice ("").'


def _read_table(path, columns, dialect, format):
    """The rows of CSV or TSV: the line of each, and its dict or the BadRow that it is; `columns` has the names that are
    asked for, by the arguments that name them."""
    if format == "csv":
        rows = without_gaps(_csv_rows(path, columns, dialect), path)
    else:
        dialect.refuse("of TSV it is the tab", header=False)
        rows = read_texts(path, dialect.encoding)
        rows = ((line, row if isinstance(row, BadRow) else row.split("\t")) for line, row in rows)
    first, is_named = [], dialect.header == "first"
    for line, row in rows:
        first.append((line, row))
        # The first row tells how many columns there are; a header is nothing that can be left out.
        if is_named or not isinstance(row, BadRow):
            break
    if not first:
        what = "a header and at least one row" if is_named else "at least one row"
        raise InputError(f"{shown_name(path)} is empty: give a file with {what}.")
    if is_named:
        (_, header), first = first[0], list(itertools.islice(rows, 1))
        if isinstance(header, BadRow):
            raise header
        row = next((row for _, row in first if not isinstance(row, BadRow)), ())
        _check_header(path, columns, header, row, format)
        names, of_what = _unique(header), "the header"
    else:
        row = first[-1][1]
        names, of_what = () if isinstance(row, BadRow) else _numbered(path, columns, row, format), "the first row"
    for line, row in itertools.chain(first, rows):
        if isinstance(row, BadRow):
            yield line, row
        elif len(row) != len(names):
            problem = f"has {len(row)} fields where {of_what} has {len(names)}; quote or remove separators."
            yield line, bad_row(path, line, problem)
        else:
            yield line, dict(zip(names, row))


def _check_header(path, columns, header, row, format):
    """Raise InputError, with the way out, unless the header has each column once."""
    for argument, column in columns.items():
        known = f"the columns of its first line are {listed(header)}"
        if header.count(column) > 1:
            raise InputError(f"{shown_name(path)} has more than one column {column!r}: {known}.")
        if column in header:
            continue
        hint, values = f"name it by {{{argument}}}", {argument: NAME}
        marks = [name for name, cell in zip(header, row) if cell in ("0", "1", "0.0", "1.0")]
        if other := _other_format(header, format):
            hint, values = f"give {{{next(iter(other))}}}", other
        # Of words, or of a number, a first line is a row.
        elif any(len(name.split()) > 2 or name.strip().isdecimal() for name in header):
            hint += "; if that line is a row, give {header} and number the columns from 1"
            values["header"] = "none"
        elif argument == "label_column" and len(marks) > 1:
            known += f", of which {listed(marks, 5)} look like a label each"
            hint = f"join the names of those columns that are 1 by | in one column, {hint}, and give {{kind}}"
            values["kind"] = "multi-label"
        raise InputError(f"{shown_name(path)} has no column {column!r}: {known}; {hint}.", **values)


def _numbered(path, columns, row, format):
    """The names of a file's columns, by its first row: numbers, or what was asked for where one is left to be it."""
    names = [str(number) for number in range(1, len(row) + 1)]
    missing = {argument: column for argument, column in columns.items() if column not in names}
    left = [name for name in names if name not in columns.values()]
    values = _other_format(row, format)
    if not missing:
        return names
    if len(missing) == len(left) == 1 and not values and not (column := next(iter(missing.values()))).isdecimal():
        return [column if name == left[0] else name for name in names]
    hint = " and ".join(f"{{{argument}}}" for argument in missing)
    hint = f"give {{{next(iter(values))}}}, or name {hint} by number" if values else f"name {hint} by number"
    raise InputError(
        f"{shown_name(path)} is read without a header and has the columns 1 to {len(row)}, in its first row "
        f"{listed(row)}: {hint}.",
        **values,
        **dict.fromkeys(missing, NAME),
    )


def _unique(header):
    """The names of a header, of which those that come again have a number: "x", "x.1"."""
    names = {}
    for name in header:
        unique, number = name, 0
        while unique in names or (number and unique in header):
            number += 1
            unique = f"{name}.{number}"
        names[unique] = None
    return list(names)


def _other_format(cells, format):
    """The argument for a first line that is one of another format; {} for one that is not."""
    if cells[0].lstrip("\ufeff ").startswith("{"):
        return {"format": "jsonl"}
    counts = {cells[0].count(delimiter): name for name, delimiter in DELIMITERS.items()}
    if len(cells) > 1 or not max(counts):
        return {}
    return {"delimiter": counts[max(counts)]} if format == "csv" else {"format": "csv"}


def listed(names, most=20):
    """Names of columns for a message."""
    names = [repr(name if len(name) <= 60 else name[:60] + "...") for name in names]
    return (", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")) or "none"


_READERS = {
    "csv": functools.partial(_read_table, format="csv"),
    "tsv": functools.partial(_read_table, format="tsv"),
    "jsonl": read_records,
    "txt": _read_txt,
}
