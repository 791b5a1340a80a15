r"""The lines of the user's files, which gzip may have compressed.

A byte order mark of UTF-8, UTF-16 or UTF-32 says the encoding and is no part of the text. Other files are UTF-8, or in
the encoding that is named. Lines end by \n or \r\n, those of CSV by \r too; so do those of a file whose beginning has
no \n. Elsewhere \r is text.
"""

import codecs
import contextlib
import dataclasses
import gzip
import io
import os
import re
import sys
import zlib
from typing import Optional

from tf_adapters.errors import NAME, InputError
from tf_adapters.ranges import check_choice

HEADERS = ("first", "none")
#: Names of delimiters that a shell would take for its own.
DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|"}
_SOME_ENCODINGS = "utf-8, utf-16, cp1252, latin-1, cp1251, mac-roman, shift_jis, gb18030"
# The longer ones first: UTF-32's begins with UTF-16's.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"), (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"),
)  # fmt: skip
_PANDAS = "write it as JSON lines, such as by pandas: `read_{}(path).to_json(new, orient='records', lines=True)`"
# How files begin that are not read, what they are, and what to do.
_OTHERS = (
    (b"PAR1", "a Parquet file", _PANDAS.format("parquet")),
    (b"ARROW1", "an Arrow file", _PANDAS.format("feather")),
    (b"PK\x03\x04", "a zip archive or an Excel workbook", "unpack it, or save it as `CSV UTF-8`"),
    (b"\xd0\xcf\x11\xe0", "an Excel workbook", "save it as `CSV UTF-8`"),
    (b"BZh", "compressed by bzip2", "unpack it by `bunzip2`"),
    (b"\xfd7zXZ", "compressed by xz", "unpack it by `xz -d`"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd", "unpack it by `zstd -d`"),
)
_IS_FASTTEXT = re.compile(rb"__label__[^\s,;]+[ \t]")
_LOOKED_AT = 64 * 1024
# Bytes that cannot be decoded stand in a line as what no text has, half of a surrogate pair each.
_BROKEN = 0xDC00


@dataclasses.dataclass(frozen=True)
class Dialect:
    """How a file is written, where neither its name nor its first bytes say it.

    Args:
        encoding: name that Python knows, or None for UTF-8, and for UTF-16 or UTF-32 that begins with its mark.
        header: of CSV and TSV "first", the first line has the columns' names; or "none", it is a row, and columns are
            named by number from "1".
        delimiter: the character between the columns of CSV, or its name in `DELIMITERS`; None for what the first line
            says: by `sep=;`, or by having the wanted columns with a comma or else a semicolon, tab or vertical bar.

    Raises: InputError, naming the argument, for what no file has.
    """

    encoding: Optional[str] = None
    header: str = "first"
    delimiter: Optional[str] = None

    def __post_init__(self):
        check_choice("header", self.header, HEADERS)
        if self.encoding is not None and not _is_encoding(self.encoding):
            problem = f"{{encoding}} is no encoding that Python knows: use one such as {_SOME_ENCODINGS}."
            raise InputError(problem, encoding=self.encoding)
        if self.delimiter is not None:
            names, given = {**DELIMITERS, "\\t": "\t"}, self.delimiter
            found = names.get(given, given) if isinstance(given, str) else ""
            if len(found) != 1 or found in '"\r\n\0':
                problem = f"{{delimiter}} must be one character between columns, or one of {', '.join(DELIMITERS)}."
                raise InputError(problem, delimiter=given)
            object.__setattr__(self, "delimiter", found)

    def refuse(self, what, header=True):
        """Raise InputError for what only tables have; `what` is what is read in place of one, for the message."""
        if header and self.header != "first":
            raise InputError(f"{{header}} is for CSV and TSV, and {what}: leave it out.", header=self.header)
        if self.delimiter is not None:
            name = {character: name for name, character in DELIMITERS.items()}.get(self.delimiter, self.delimiter)
            raise InputError(f"{{delimiter}} is for CSV, and {what}: leave it out.", delimiter=name)


USUAL = Dialect()


def _is_encoding(name):
    try:
        # Others than those of text refuse to decode to one, and some write no line end as such.
        return (
            "a\n".encode(name).decode(name) == "a\n" == codecs.getincrementaldecoder(name)().decode("a\n".encode(name))
        )
    except (LookupError, ValueError, TypeError):
        return False


class BadRow(InputError):
    """One row of a file cannot be used; the rows around it can."""


def usable(rows, check, path, bad_rows, what="row", otherwise="is empty: give a file with at least one row."):
    """What `check` returns of each row that can be used.

    Args:
        rows: iterable of tuples or lists, whose last entry may be the BadRow that a row is.
        check: function of a row, which may raise its BadRow.
        path: the file.
        bad_rows: `files.BadRows` that counts the rows that cannot be used, which are left out; where it is None, they
            are errors.
        what, otherwise: what a row is, and what is said of a file without any.

    Raises: InputError, if no row is left, whether all were left out or there is none.
    """
    found = False
    for row in rows:
        try:
            if isinstance(row[-1], BadRow):
                raise row[-1]
            checked = check(row)
        except BadRow as problem:
            if bad_rows is None:
                raise
            bad_rows.add(problem)
        else:
            found = True
            yield checked
    if not found:
        if bad_rows is not None and bad_rows.count:
            otherwise = f"has no usable {what}; the first problem: {bad_rows.examples[0]}"
        raise InputError(f"{shown_name(path)} {otherwise}")


def shown_name(path):
    """What a path is called in messages."""
    return "standard input" if os.fspath(path) == "-" else os.fspath(path)


def bad_row(path, line, problem, **values):
    """The BadRow of a line, to be raised or yielded; `values` as of `InputError`."""
    return BadRow(f"{shown_name(path)}, line {line}: {problem}", **values)


def fail(path, line, problem, **values):
    """Raise the BadRow of a line."""
    raise bad_row(path, line, problem, **values)


def read_lines(path, encoding=None, *, csv=False):
    """Yield each line's number, text and BadRow or None.

    Args:
        path: str or path-like; "-" is standard input.
        encoding: as of `Dialect`.
        csv: bool, whether a \\r ends a line too.

    Raises: InputError, if the file cannot be read.
    """
    name = shown_name(path)
    try:
        with _opened(path, encoding, csv) as lines:
            for number, line in enumerate(lines, 1):
                line = line.removeprefix("\ufeff") if number == 1 else line
                problem = None
                if "\0" in line or not line.isascii():
                    said = _problem(line, lines.encoding)
                    problem = said and bad_row(path, number, said[0], **said[1])
                    line = line.replace("\0", "")
                yield number, line, problem
    except FileNotFoundError:
        raise InputError(f"{name} does not exist: check the path.") from None
    except IsADirectoryError:
        raise InputError(f"{name} is a directory: give a file.") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{name} is not a complete gzip file ({error}): compress it again.") from error
    except OSError as error:
        raise InputError(f"{name} cannot be read: {error.strerror or error}.") from error


def read_texts(path, encoding=None, empty="is empty; remove it.", **values):
    """Yield pairs of each line's number, and its text without the end or the BadRow that it is; as `without_gaps`."""
    lines = read_lines(path, encoding)
    rows = ((line, problem or text.rstrip("\r\n")) for line, text, problem in lines)
    return without_gaps(rows, path, empty, **values)


def without_gaps(rows, path, empty="is empty; remove it.", **values):
    """Pairs of line and row without empty rows at the end; one elsewhere is a BadRow, since a prediction must not
    silently change its number of rows. `empty` is what is said of it, with the `values` of the message."""
    blank = None
    for line, row in rows:
        if not row:
            blank = blank or line
            continue
        if blank:
            yield blank, bad_row(path, blank, empty, **values)
            blank = None
        yield line, row


def _refuse_other_files(path, first):
    """Raise InputError, with what to do, for a file whose first bytes are of a kind that is not read."""
    first = first.removeprefix(codecs.BOM_UTF8)
    others = [(what, how) for beginning, what, how in _OTHERS if first.startswith(beginning)]
    if _IS_FASTTEXT.match(first):
        others.append(("a file of fastText", "write an object with `text` and `label` a line, as JSON lines"))
    for what, how in others:
        raise InputError(f"{shown_name(path)} is {what}, which is not read: {how}.")


def _keep_bytes(error):
    """An error handler of `codecs`: the line goes on, and shows which bytes were no text."""
    return "".join(chr(_BROKEN + byte) for byte in error.object[error.start : error.end]), error.end


codecs.register_error("tf_adapters.keep_bytes", _keep_bytes)


@contextlib.contextmanager
def _opened(path, encoding, csv):
    """A file as decoded lines; standard input stays open."""
    with contextlib.ExitStack() as stack:
        is_stdin = os.fspath(path) == "-"
        file = sys.stdin.buffer if is_stdin else stack.enter_context(open(path, "rb", _LOOKED_AT))
        if not hasattr(file, "peek"):
            file = io.BufferedReader(file)
            stack.callback(file.detach)
        first = file.peek(_LOOKED_AT)
        if first.startswith(b"\x1f\x8b"):
            file = stack.enter_context(gzip.GzipFile(fileobj=file))
            first = file.peek(_LOOKED_AT)
        _refuse_other_files(path, first)
        mark, marked = next(((mark, name) for mark, name in _MARKS if first.startswith(mark)), (b"", "utf-8"))
        found = codecs.lookup(marked if mark else encoding or marked).name.removesuffix("-sig")
        if found in ("utf-16", "utf-32") and marked != found and first:
            raise InputError(
                f"{shown_name(path)} has no byte order mark of {found.upper()}, which says the order of its bytes; "
                f"give {{encoding}}, or {found}-be.",
                encoding=f"{found}-le",
            )
        if mark == codecs.BOM_UTF8:
            file.read(len(mark))
        beginning = first.decode(found, "replace")
        alone = "\n" not in beginning and "\r" in beginning[:-1]
        lines = io.TextIOWrapper(
            file, encoding=found, errors="tf_adapters.keep_bytes", newline="" if csv or alone else "\n"
        )
        stack.callback(lines.detach)
        yield lines


def _problem(line, encoding):
    """What to say of a line that may hold what is no text, and the values of the message; or None."""
    if "\0" in line:
        for likely, others in (("utf-16-le", line[1::2]), ("utf-16-be", line[::2])):
            if others.count("\0") > len(line) // 4:
                return "holds NUL characters, as UTF-16 has; give {encoding}, or save the file as UTF-8.", {
                    "encoding": likely
                }
        return "holds a NUL character; save the file as UTF-8 text without it.", {}
    try:
        line.encode("utf-8")
        return None
    except UnicodeEncodeError as error:
        place = error.start
    byte = ord(line[place]) - _BROKEN
    if not 0 <= byte < 256:
        return "holds half of a surrogate pair (\\ud800 to \\udfff); remove it.", {}
    likely = "cp1252" if encoding == "utf-8" else "utf-8"
    try:
        read = line.encode(encoding, "surrogateescape").decode(likely)
    except ValueError:
        return (
            f"byte {byte:#04x} is not {encoding.upper()}; give the {{encoding}} that the file was saved in, such as "
            f"{_SOME_ENCODINGS}."
        ), {"encoding": NAME}
    shown = " ".join(read[max(0, place - 20) :][:40].split())
    return (
        f"byte {byte:#04x} is not {encoding.upper()}; with {{encoding}} it reads {shown!r}: give that if it is right, "
        "otherwise the encoding that the file was saved in."
    ), {"encoding": likely}
