"""Reads rows from files as their authors published them: other encodings, no header, broken rows.

The user's own files are read strictly, by `tasks.files`. A published file cannot be corrected, so
that what is wrong with it is said once, in the `Layout` of its task.
"""

import codecs
import csv
import dataclasses
import itertools
import json
import os
import re
from typing import NamedTuple, Optional, Tuple

import numpy as np

from tf_adapters.errors import InputError
from tf_adapters.paths import parse_json, reading
from tf_adapters.tasks.files import FIELD_LIMIT
from tf_adapters.tasks.lines import bad_row, fail
from tf_adapters.tasks.rows import Rows, string_tensors

UTF8, LATIN1, UTF8_OR_MAC = "utf-8", "latin-1", "utf-8 or mac-roman"
_CHUNK_ROWS = 16384
_AGAIN = "get the file as it was published."


@dataclasses.dataclass(frozen=True)
class Layout:
    """How a file of rows is written.

    Attributes:
        format: "csv" (quotes as in RFC 4180), "tsv" (nothing is quoted), "jsonl" (an object a
            line), or "folders" (a file a text, in a folder that is named as its label). Other rows than texts
            are read as the user's are: "conllu" and "columns" by `tasks.words`, "squad" by `tasks.spans`.
        text, text_pair, label: names of columns or keys; the latter two may be None.
        index: column with the row's number, or None.
        header: names of all columns, where the first line is already a row. It is left out
            all the same if it holds exactly `other_header`.
        other_header: see `header`.
        encoding: "utf-8", "latin-1" or "utf-8 or mac-roman" (see `_repaired`).
        where: pair of a column and the only value of it that is read, or None.
        skip_malformed: bool, whether a row with more or fewer cells than columns is left out, and not refused.
    """

    format: str
    text: str = "text"
    text_pair: Optional[str] = None
    label: Optional[str] = "label"
    index: Optional[str] = None
    header: Optional[Tuple[str, ...]] = None
    other_header: Optional[Tuple[str, ...]] = None
    encoding: str = UTF8
    where: Optional[Tuple[str, str]] = None
    skip_malformed: bool = False


class Record(NamedTuple):
    """One row of a file: where it stands, and its cells; None for a column that was not asked for."""

    path: str
    line: int
    text: str
    text_pair: Optional[str] = None
    label: Optional[str] = None
    index: Optional[str] = None


def read_records(path, layout, *, skipped=None):
    """Yield the rows of one file as `Record`s, never holding more than one.

    Args:
        path: str or path-like; a folder if the layout's format is "folders".
        layout: `Layout`.
        skipped: list to which the lines of malformed rows are appended, or None.

    Raises: InputError, naming file, line and fix, if the file does not have this layout.
    """
    path = os.fspath(path)
    if layout.format == "folders":
        yield from _read_folders(path, layout)
        return
    rows = _read_objects(path, layout) if layout.format == "jsonl" else _read_table(path, layout, skipped)
    for line, row in rows:
        if layout.where is None or row[layout.where[0]] == layout.where[1]:
            yield Record(path, line, *(None if column is None else row[column] for column in _wanted(layout)))


def collect(records, number_of=None, *, path, dtype=np.int32):
    """`Rows` of the `Record`s of the file `path`, held once.

    Args:
        number_of: function from a record to its label's number, or to None to leave the row
            out; without it all rows are taken, and have no labels.
        dtype: of the labels.

    Raises: InputError, if no row is left.
    """
    numbers = []

    def kept():
        for record in records:
            number = 0 if number_of is None else number_of(record)
            if number is not None:
                numbers.append(number)
                # Half of a surrogate pair, which JSON can hold, is no text.
                cells = record.text, record.text_pair
                yield [None if cell is None else cell.encode("utf-8", "replace") for cell in cells]

    def parts():
        rows = kept()
        while part := list(itertools.islice(rows, _CHUNK_ROWS)):
            yield [None if None in cells else cells for cells in zip(*part)]
        if not numbers:
            raise InputError(f"{path} holds no row that can be used: {_AGAIN}")

    return Rows(*string_tensors(parts()), None if number_of is None else np.array(numbers, dtype))


def _wanted(layout):
    return layout.text, layout.text_pair, layout.label, layout.index


def _columns(layout):
    return [column for column in _wanted(layout) if column is not None] + ([layout.where[0]] if layout.where else [])


def _lines(path, layout):
    """Yield decoded lines with their numbers, endings included."""
    encoding = UTF8 if layout.encoding == UTF8_OR_MAC and _is_utf8(path) else layout.encoding
    # Latin-1 gives a character for each byte. Some CSV files end their lines by a carriage return alone; elsewhere one
    # may be text.
    with reading(path), open(path, encoding="latin-1", newline="" if layout.format == "csv" else "\n") as file:
        for number, line in enumerate(file, 1):
            raw = line.encode("latin-1").removeprefix(codecs.BOM_UTF8 if number == 1 else b"")
            try:
                yield number, _repaired(raw) if encoding == UTF8_OR_MAC else raw.decode(encoding)
            except UnicodeDecodeError as error:
                problem = f"byte {raw[error.start]:#04x} is not {encoding.upper()}; {_AGAIN}"
                raise bad_row(path, number, problem) from None


def _is_utf8(path):
    try:
        with reading(path), open(path, encoding="utf-8") as file:
            while file.read(1 << 20):
                pass
    except UnicodeDecodeError:
        return False
    return True


def _mac_to_windows():
    table = bytearray(range(256))
    for byte in range(128, 256):
        try:
            table[byte] = bytes([byte]).decode("mac-roman").encode("cp1252")[0]
        except UnicodeEncodeError:
            pass  # Windows-1252 lacks the character
    table[0x9D] = 0x9D  # a hole in Windows-1252, which the conversion left as it was: the last byte of ”
    return bytes(table)


_WINDOWS_OF_MAC = _mac_to_windows()


def _repaired(raw):
    """Text of a spreadsheet export that took UTF-8 for Windows-1252 and wrote Mac Roman: what is not ASCII is turned
    back where that gives UTF-8; what the conversion destroyed (emoji mostly) is read as Mac Roman.

    >>> _repaired(b"can\\x89\\xdb\\xaat, caf\\x8e")
    'can’t, café'
    """

    def run(match):
        try:
            return match[0].translate(_WINDOWS_OF_MAC).decode("utf-8").encode("utf-8")
        except UnicodeDecodeError:
            return match[0].decode("mac-roman").encode("utf-8")

    return re.sub(rb"[\x80-\xff]+", run, raw).decode("utf-8")


def _rows_of_cells(path, layout):
    """Yield lines and lists of cells of a CSV or TSV file."""
    lines = _lines(path, layout)
    if layout.format == "tsv":
        for line, text in lines:
            text = text.rstrip("\r\n")
            if text:
                yield line, text.split("\t")
        return
    # Raised for the process, never lowered, as in tasks.files.
    csv.field_size_limit(max(FIELD_LIMIT, csv.field_size_limit()))
    reader = csv.reader(text for _, text in lines)
    line = 1
    try:
        for row in reader:
            if row:
                yield line, row
            line = reader.line_num + 1
    except csv.Error as error:
        raise bad_row(path, line, f"is not valid CSV ({error}); {_AGAIN}") from None


def _read_table(path, layout, skipped):
    rows = _rows_of_cells(path, layout)
    header = layout.header
    if header is None:
        _, header = next(rows, (1, None))
        if header is None:
            raise InputError(f"{path} is empty: {_AGAIN}")
        for column in _columns(layout):
            if column not in header:
                shown = ", ".join(repr(name[:60]) for name in header[:20])
                raise InputError(f"{path} has no column {column!r}: the columns of its first line are {shown}.")
    # A name that comes twice means the first.
    position = {name: place for place, name in reversed(list(enumerate(header)))}
    for line, row in rows:
        if len(row) != len(header):
            if layout.skip_malformed:
                if skipped is not None:
                    skipped.append(line)
                continue
            fail(path, line, f"has {len(row)} cells where {len(header)} belong; {_AGAIN}")
        if line == 1 and layout.other_header is not None and tuple(row) == layout.other_header:
            continue
        yield line, {column: row[position[column]] for column in _columns(layout)}


def _read_objects(path, layout):
    columns = _columns(layout)
    for line, text in _lines(path, layout):
        if not text.strip():
            continue
        try:
            row = parse_json(text)
            cells = {column: row[column] for column in columns}
        except (ValueError, KeyError, TypeError) as error:
            problem = f"is no JSON object with {', '.join(map(repr, columns))} ({type(error).__name__}: {error})"
            raise bad_row(path, line, f"{problem}; {_AGAIN}") from None
        yield line, {name: cell if isinstance(cell, str) else json.dumps(cell) for name, cell in cells.items()}


def _read_folders(path, layout):
    for label in sorted(os.listdir(path)):
        folder = os.path.join(path, label)
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
            file = os.path.join(folder, name)
            try:
                with open(file, encoding=layout.encoding, newline="") as opened:
                    yield Record(file, 1, opened.read(), label=label)
            except (OSError, UnicodeDecodeError) as error:
                raise InputError(f"{file} cannot be read: {error}.") from error
