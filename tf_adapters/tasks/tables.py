"""CSV and TSV: rows of cells, and the columns that have names or numbers."""

import collections
import csv
import itertools
import re

from tf_adapters.errors import NAME, InputError
from tf_adapters.tasks.lines import DELIMITERS, BadRow, bad_row, read_lines, read_texts, shown_name, without_gaps

# Bounds what a quote that is never closed can swallow; csv's own limit is 131,072.
FIELD_LIMIT = 16 * 1024 * 1024
# What Excel reads as the delimiter, ahead of the header.
_SAID = re.compile(r'"?sep=(.)"?\s*')


def read_csv(path, columns, dialect):
    """The rows of CSV: the line of each, and its dict or the BadRow that it is.

    Args:
        columns: dict from the arguments that name columns to these names.
        dialect: `Dialect`.
    """
    rows = without_gaps(_csv_rows(path, columns, dialect), path)
    yield from _records(rows, path, columns, dialect, "csv")


def read_tsv(path, columns, dialect):
    """The same of TSV."""
    dialect.refuse("of TSV it is the tab", header=False)
    rows = read_texts(path, dialect.encoding)
    rows = ((line, row if isinstance(row, BadRow) else row.split("\t")) for line, row in rows)
    yield from _records(rows, path, columns, dialect, "tsv")


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


def _records(rows, path, columns, dialect, format):
    """The rows of a table by the names of its columns."""
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
