"""CSV and TSV: rows of cells, and the columns that have names or numbers."""

import csv
import itertools
import re

from tf_adapters.errors import NAME, InputError
from tf_adapters.tasks.dialect import DELIMITERS
from tf_adapters.tasks.lines import BadRow, bad_row, read_lines, shown_name, without_blank_lines

# Bounds what a quote that is never closed can swallow; csv's own limit is 131,072.
FIELD_LIMIT = 16 * 1024 * 1024
# What columns are called where they are not called as is usual here.
_OTHER_NAMES = {
    "text_column": (
        "text sentence review content body message comment tweet description document question utterance post "
        "headline title sms"
    ).split(),
    "text_pair_column": [],
    "label_column": (
        "label labels class category target sentiment rating stars score topic intent tag emotion y"
    ).split(),
}  # fmt: skip
# A name of a column has fewer words or letters than this; a text has more.
_WORDS_OF_TEXT, _LETTERS_OF_TEXT = 3, 40


def read_csv(path, columns, dialect):
    """The rows of CSV: the line of each, and its dict or the BadRow that it is.

    Args:
        columns: dict from the arguments that name columns to these names.
        dialect: `Dialect`.
    """
    yield from _records(_csv_rows(path, columns, dialect), path, columns, dialect, "csv")


def read_tsv(path, columns, dialect):
    """The same of TSV."""
    dialect.refuse_delimiter("of TSV it is the tab")
    lines = without_blank_lines(read_lines(path, dialect.encoding), path)
    rows = ((line, problem or text.rstrip("\r\n").split("\t")) for line, text, problem in lines)
    yield from _records(rows, path, columns, dialect, "tsv")


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


def _csv_rows(path, columns, dialect):
    # Raised for the process, never lowered: a restore could meet another thread's reading.
    csv.field_size_limit(max(FIELD_LIMIT, csv.field_size_limit()))
    lines = read_lines(path, dialect.encoding, csv=True)
    first = list(itertools.islice(lines, 1))
    delimiter = dialect.delimiter or (_delimiter_of(first, columns) if dialect.header == "first" else ",")
    lines = _CsvLines(itertools.chain(first, lines))
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
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


def _delimiter_of(first, columns):
    """A semicolon where the first line, a list of none or one, has the wanted columns only so; otherwise a comma."""
    for _, text, _ in first:
        for delimiter in ",;":
            try:
                names = next(csv.reader([text], delimiter=delimiter, strict=True), [])
            except csv.Error:
                continue
            if set(columns.values()) <= set(names):
                return delimiter
    return ","


def _csv_problem(error):
    if "unexpected end of data" in str(error):
        return 'a quote (") is opened in this row and never closed; close it or write it twice ("").'
    if "field larger" in str(error):
        return f"a field has more than {FIELD_LIMIT} characters; is a quote never closed?"
    return f'is not valid CSV ({error}); put the field in quotes and write a quote in it twice ("").'


def _records(rows, path, columns, dialect, format):
    first = []
    for line, row in rows:
        first.append((line, row))
        # The first row tells how many columns there are; a header is nothing that can be left out.
        if dialect.header == "first" or not isinstance(row, BadRow):
            break
    if not first:
        what = "a header and at least one row" if dialect.header == "first" else "at least one row"
        raise InputError(f"{shown_name(path)} is empty: give a file with {what}.")
    line, header = first[-1]
    if isinstance(header, BadRow):
        if dialect.header == "first":
            raise header
        yield from first
        return
    if dialect.header == "first":
        first = list(itertools.islice(rows, 1))
        _check_columns(
            path, columns, header, next((row for _, row in first if not isinstance(row, BadRow)), ()), format
        )
        names, of_what = _unique(header), "the header"
    else:
        names, of_what = _numbered(path, columns, header, format), "the first row"
    for line, row in itertools.chain(first, rows):
        if isinstance(row, BadRow):
            yield line, row
        elif len(row) != len(names):
            problem = f"has {len(row)} fields where {of_what} has {len(names)}; quote or remove separators."
            yield line, bad_row(path, line, problem)
        else:
            yield line, dict(zip(names, row))


def _check_columns(path, columns, header, row, format):
    """Raise InputError, with what may be the way out, unless the header has each column once."""
    for argument, column in columns.items():
        known = f"the columns of its first line are {listed(header)}"
        if header.count(column) > 1:
            raise InputError(f"{shown_name(path)} has more than one column {column!r}: {known}.")
        if column not in header:
            hint, values = _of_another_format(header, format) or of_another_name(argument, header, columns, row, True)
            raise InputError(f"{shown_name(path)} has no column {column!r}: {known}; {hint}.", **values)


def _numbered(path, columns, row, format):
    """The names of a file's columns, by its first row: numbers, or what was asked for where one is left to be it."""
    names = [str(number) for number in range(1, len(row) + 1)]
    missing = {argument: column for argument, column in columns.items() if column not in names}
    if not missing:
        return names
    left = [name for name in names if name not in columns.values()]
    argument, column = next(iter(missing.items()))
    found = _of_another_format(row, format)
    if len(missing) == len(left) == 1 and not column.isdecimal():
        if found is None:
            names[names.index(left[0])] = column
            return names
        found = f"{found[0]}, or {{{argument}}}", {**found[1], argument: left[0]}
    elif found is None:
        numbered = " and ".join(f"{{{argument}}}" for argument in missing)
        found = f"name {numbered} by number", dict.fromkeys(missing, NAME)
    # A usual name was not given by anybody.
    numbers = [f" and none {column!r}" for column in missing.values() if column.isdecimal()]
    raise InputError(
        f"{shown_name(path)} is read without a header and has the columns 1 to {len(row)}{''.join(numbers)}, in its "
        f"first row {listed(row)}: {found[0]}.",
        **found[1],
    )


def _unique(header):
    """The names of a header, of which those that come again have a number: "x", "x.1"."""
    names, numbers = {}, {}
    for name in header:
        unique = name
        while unique in names or (unique != name and unique in header):
            numbers[name] = numbers.get(name, 0) + 1
            unique = f"{name}.{numbers[name]}"
        names[unique] = None
    return list(names)


def _of_another_format(cells, format):
    """What to do about a first line that is one of another format, and the values of the message; or None."""
    if cells[0].lstrip("\ufeff ").startswith("{"):
        return "give {format}", {"format": "jsonl"}
    if len(cells) > 1:
        return None
    likely = {cells[0].count(delimiter): name for name, delimiter in DELIMITERS.items()}
    if not max(likely):
        return None
    name = likely[max(likely)]
    if format == "csv":
        return "give {delimiter}", {"delimiter": name}
    return ("give {format}", {"format": "csv"}) if name in ("comma", "semicolon") else None


def of_another_name(argument, names, columns, cells, is_table=False):
    """What to do about a column that is not there, and the values of the message.

    Args:
        argument: str, which names the column.
        names: list of str, those that are there.
        columns: dict of what all arguments ask for.
        cells: what the first row has in the columns.
        is_table: bool, whether the names are the first line of a table, which may be a row.
    """
    free = [name for name in names if name not in columns.values()]
    lower = {name.strip().lower(): name for name in reversed(free)}
    for known in (columns[argument].lower(), *_OTHER_NAMES[argument]):
        if known in lower:
            return _named(argument, lower[known])
    if is_table and any(_is_data(name) for name in names):
        return "if that line is a row, give {header} and number the columns from 1", {"header": "none"}
    lengths = {name: len(cell.split()) for name, cell in zip(names, cells) if name in free and isinstance(cell, str)}
    if argument == "text_column" and lengths and max(lengths.values()) >= _WORDS_OF_TEXT:
        return _named(argument, max(lengths, key=lengths.get))
    return f"name it by {{{argument}}}", {argument: NAME}


def _named(argument, name):
    # What a shell would take apart is told from the option.
    if re.fullmatch(r"[\w.@%+=:,/][\w.@%+=:,/-]{0,59}", name):
        return f"give {{{argument}}}", {argument: name}
    return f"name {name[:60]!r} by {{{argument}}}", {argument: NAME}


def _is_data(cell):
    try:
        float(cell)
    except ValueError:
        return len(cell.split()) >= _WORDS_OF_TEXT or len(cell) >= _LETTERS_OF_TEXT
    return True


def likely_table(line):
    """The format of a table, by a line of it."""
    return "tsv" if "\t" in line else "csv"


def listed(names, most=20):
    """Names of columns for a message."""
    names = [repr(name if len(name) <= 60 else name[:60] + "...") for name in names]
    return (", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")) or "none"
