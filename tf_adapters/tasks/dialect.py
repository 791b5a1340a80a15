"""How the user's files are written, where neither their names nor their first bytes say it."""

import codecs
import dataclasses
from typing import Optional

from tf_adapters.errors import InputError

HEADERS = ("first", "none")
#: Names of delimiters that a shell would take for its own.
DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|"}
# Python's encodings of host names, and of its own source.
_NOT_OF_FILES = ("idna", "punycode", "unicode-escape", "raw-unicode-escape")
#: For messages.
SOME_ENCODINGS = "utf-8, utf-16, cp1252, latin-1, cp1251, mac-roman, shift_jis, gb18030"


@dataclasses.dataclass(frozen=True)
class Dialect:
    """How a file is written.

    Attributes:
        encoding: name that Python knows, or None for UTF-8, and for UTF-16 or UTF-32 that begins with its mark.
        header: of CSV and TSV "first", the first line has the columns' names; or "none", it is a row, and columns are
            named by number from "1".
        delimiter: the character between the columns of CSV; None for a comma, or a semicolon in a file whose first line
            has the wanted columns only so.
    """

    encoding: Optional[str] = None
    header: str = "first"
    delimiter: Optional[str] = None

    def refuse_table_options(self, what):
        """Raise InputError for what only tables have; `what` is what is read in place of one, for the message."""
        if self.header != "first":
            raise InputError(f"{{header}} is for CSV and TSV, and {what}: leave it out.", header=self.header)
        self.refuse_delimiter(what)

    def refuse_delimiter(self, what):
        """Raise InputError for a delimiter; `what` as above."""
        if self.delimiter is not None:
            raise InputError(
                f"{{delimiter}} is for CSV, and {what}: leave it out.", delimiter=delimiter_name(self.delimiter)
            )


USUAL = Dialect()


def dialect_of(encoding=None, header="first", delimiter=None):
    """The `Dialect` of what a user says.

    Args:
        encoding: name of an encoding, or None.
        header: "first" or "none".
        delimiter: one character, a name in `DELIMITERS`, or None.

    Raises: InputError, naming the argument, for anything else.
    """
    if header not in HEADERS:
        raise InputError(f"{{header}} is unknown: use one of {', '.join(HEADERS)}.", header=header)
    if encoding is not None:
        _check_encoding(encoding)
    if delimiter is not None:
        given = delimiter
        if isinstance(delimiter, str):
            delimiter = DELIMITERS.get(delimiter, "\t" if delimiter == "\\t" else delimiter)
        if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"\r\n\0':
            raise InputError(
                f"{{delimiter}} must be one character between columns, or one of {', '.join(DELIMITERS)}.",
                delimiter=given,
            )
    return Dialect(encoding, header, delimiter)


def delimiter_name(delimiter):
    """What a delimiter is called, which no shell takes for its own."""
    return next((name for name, character in DELIMITERS.items() if character == delimiter), delimiter)


def _check_encoding(encoding):
    try:
        # Others than those of text refuse to decode to one, and some write no line end as such.
        decoder = codecs.getincrementaldecoder(encoding)()
        known = decoder.decode("a\n".encode(encoding), True) == "a\n"
        known = known and codecs.lookup(encoding).name.replace("_", "-") not in _NOT_OF_FILES
    except (LookupError, ValueError, TypeError):
        known = False
    if not known:
        raise InputError(
            f"{{encoding}} is no encoding that Python knows: use one such as {SOME_ENCODINGS}.", encoding=encoding
        )
