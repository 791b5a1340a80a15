r"""The lines of the user's files.

| what | is read as |
|---|---|
| a byte order mark of UTF-8, UTF-16 or UTF-32 | that encoding; the mark is no part of the text |
| anything else | UTF-8, or the encoding that is named |
| ends of lines | \n and \r\n; of CSV \r too |
| a first part of `LOOKED_AT` bytes with \r and without \n | a file whose lines end in \r |

Elsewhere than in CSV a single \r may be text.
"""

import codecs
import gzip
import io
import os
import sys
import zlib

from tf_adapters.errors import NAME, InputError
from tf_adapters.tasks.dialect import SOME_ENCODINGS

# A line may be all of a file, and one of a compressed file inflates to more than the memory holds.
LONGEST_LINE = 64 * 1024 * 1024
LOOKED_AT = 64 * 1024
# The longer ones first: UTF-32's begins with UTF-16's.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"), (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"),
)  # fmt: skip
# Bytes that cannot be decoded stand in a line as what no text has, half of a surrogate pair each.
_BROKEN = 0xDC00


class BadRow(InputError):
    """One row of a file cannot be used; the rows around it can."""


def shown_name(path):
    """What a path is called in messages."""
    return "standard input" if os.fspath(path) == "-" else os.fspath(path)


def bad_row(path, line, problem, **values):
    """The BadRow of a line, to be raised or yielded; `values` as of `InputError`."""
    return BadRow(f"{shown_name(path)}, line {line}: {problem}", **values)


def fail(path, line, problem, **values):
    """Raise the BadRow of a line."""
    raise bad_row(path, line, problem, **values)


def read_lines(path, encoding=None, *, csv=False, longest=None):
    """Yield each line's number, text and BadRow or None; lines end as the table above says, so that other separators
    may be text.

    Args:
        path: str or path-like; "-" is standard input. It is inflated if its name ends in .gz.
        encoding: as of `dialect.Dialect`.
        csv: bool, whether a \\r ends a line too.
        longest: int, characters that a line may have; `LONGEST_LINE` if that is None.

    Raises: InputError, if the file cannot be read or a line is longer.
    """
    longest = longest or LONGEST_LINE
    name = shown_name(path)
    try:
        if os.fspath(path) == "-":
            yield from _decoded(sys.stdin.buffer, name, encoding, csv, longest)
            return
        with (gzip.open if name.lower().endswith(".gz") else open)(path, "rb") as file:
            yield from _decoded(file, name, encoding, csv, longest)
    except FileNotFoundError:
        raise InputError(f"{name} does not exist: check the path.") from None
    except IsADirectoryError:
        raise InputError(f"{name} is a directory: give a file.") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{name} is not a complete gzip file ({error}): compress it again.") from error
    except OSError as error:
        raise InputError(f"{name} cannot be read: {error.strerror or error}.") from error


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


class _Ahead(io.BufferedIOBase):
    """A binary file of which the first bytes were read already; closing it leaves the file open."""

    def __init__(self, first, file):
        super().__init__()
        self.first, self.file = first, file

    def readable(self):
        return True

    def read1(self, size=-1):
        if not self.first:
            return self.file.read1(size)
        size = len(self.first) if size < 0 else size
        block, self.first = self.first[:size], self.first[size:]
        return block


def _keep_bytes(error):
    """An error handler of `codecs`: the line goes on, and shows which bytes were no text."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "".join(chr(_BROKEN + byte) for byte in error.object[error.start : error.end]), error.end


codecs.register_error("tf_adapters.keep_bytes", _keep_bytes)


def _decoded(file, name, given, csv, longest):
    first = b""
    while len(first) < LOOKED_AT and b"\n" not in first and (block := file.read1(LOOKED_AT)):
        first += block
    encoding, first = _encoding(first, given, name)
    beginning = first.decode(encoding, "replace")
    alone = "\n" not in beginning and "\r" in beginning[:-1]
    lines = io.TextIOWrapper(
        _Ahead(first, file), encoding=encoding, errors="tf_adapters.keep_bytes", newline="" if csv or alone else "\n"
    )
    for number, line in enumerate(iter(lambda: lines.readline(longest + 1), ""), 1):
        if len(line) > longest:
            raise InputError(f"{name}, line {number} is longer than {longest >> 20} MiB: is this a file of texts?")
        line = line.removeprefix("\ufeff") if number == 1 else line
        broken = _broken(line)
        if broken is None and "\0" not in line:
            yield number, line, None
            continue
        problem, values = _nul(line) if "\0" in line else _undecodable(line, broken, encoding)
        text = line.encode("utf-8", "replace").decode().replace("\0", "")
        yield number, text, bad_row(name, number, problem, **values)


def _encoding(first, given, name):
    """The encoding of a file that begins with the bytes `first`, and these without UTF-8's mark.

    The marks of UTF-16 and UTF-32 say the order of their bytes, and are read by what decodes them.
    """
    mark, marked = next(((mark, name) for mark, name in _MARKS if first.startswith(mark)), (b"", "utf-8"))
    encoding = codecs.lookup(given or marked).name
    if encoding in ("utf-16", "utf-32") and marked != encoding:
        if first:
            raise InputError(
                f"{name} has no byte order mark of {encoding.upper()}, which says the order of its bytes; give "
                f"{{encoding}}, or {encoding}-be.",
                encoding=f"{encoding}-le",
            )
        encoding = "utf-8"
    if marked == "utf-8" and not encoding.startswith(("utf-16", "utf-32")):
        # In Latin-1 and its like the mark is no text either.
        first = first.removeprefix(mark)
    return "utf-8" if encoding == "utf-8-sig" else encoding, first


def _broken(line):
    """The place of the first character that is no text, or None."""
    if line.isascii():
        return None
    try:
        line.encode("utf-8")
    except UnicodeEncodeError as error:
        return error.start
    return None


def _nul(line):
    for encoding, others in (("utf-16-le", line[1::2]), ("utf-16-be", line[::2])):
        if len(line) > 1 and others.count("\0") > len(line) // 4:
            return "holds NUL characters, as UTF-16 has; give {encoding}, or save the file as UTF-8.", {
                "encoding": encoding
            }
    return "holds a NUL character; save the file as UTF-8 text without it.", {}


def _undecodable(line, place, encoding):
    """What to say of a line whose character at `place` is no text, and the values of the message."""
    byte = ord(line[place]) - _BROKEN
    if not 0 <= byte < 256:
        return "holds half of a surrogate pair (\\ud800 to \\udfff); remove it.", {}
    problem = f"byte {byte:#04x} is not {encoding.upper()}"
    try:
        raw = line.encode(encoding, "surrogateescape")
        likely = "cp1252" if encoding == "utf-8" else "utf-8"
        read = raw.decode(likely)
    except ValueError:
        return f"{problem}; give the {{encoding}} that the file was saved in, such as {SOME_ENCODINGS}.", {
            "encoding": NAME
        }
    # Where the text begins to differ, not its beginning.
    start = max(0, len(line[:place].encode(encoding, "surrogateescape").decode(likely, "replace")) - 20)
    shown = " ".join(read[start : start + 40].split())
    return (
        f"{problem}; with {{encoding}} it reads {shown!r}: give that if it is right, otherwise the encoding that the "
        "file was saved in.",
        {"encoding": likely},
    )
