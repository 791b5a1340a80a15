"""Files that are not read: what they are, and the command that makes one that is."""

import codecs
import os
import re
import shlex
import zipfile

from tf_adapters.errors import InputError

_OF_PANDAS = 'import pandas, sys; pandas.read_{}(sys.argv[1]).to_json(sys.argv[2], orient="records", lines=True)'
# How a file begins, what it is, and what makes another of it: a program that unpacks, or a function of pandas.
_KINDS = (
    (b"PAR1", "a Parquet file", "parquet"),
    (b"ARROW1", "an Arrow file", "feather"),
    (b"BZh", "compressed by bzip2", "bunzip2 -c"),
    (b"\xfd7zXZ", "compressed by xz", "xz -dc"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd", "zstd -dc"),
)
_EXCEL = "is an Excel workbook: save it as `CSV UTF-8` there, and give that file."
_OPENED = '(gzip.open if sys.argv[1].endswith(".gz") else open)(sys.argv[1], "rt")'
_WORDS = (
    'import gzip, sys; from json import loads; [print(*("%s\\t%s" % pair for pair in zip(*(row[key] for key in '
    f'sys.argv[2:]), strict=True)), "", sep="\\n") for row in map(loads, {_OPENED})]'
)
_ROWS = (
    "import gzip, sys; from json import dumps, load; "
    f"all = load({_OPENED}); [print(dumps(row)) for row in "
    "(all if isinstance(all, list) else next(part for part in all.values() if isinstance(part, list)))]"
)
_FASTTEXT = (
    'import gzip, json, sys; [print(json.dumps({"text": " ".join(w for w in line.split() if w[:9] != "__label__"), '
    '"label": "|".join(w[9:] for w in line.split() if w[:9] == "__label__")})) for line in '
    f"{_OPENED}]"
)
_IS_FASTTEXT = re.compile(rb"__label__[^\s,;]+[ \t]")


def refuse_other_files(path, first):
    """Raise InputError, with what to do, for a file whose first bytes are of a kind that is not read."""
    path = os.fspath(path)
    said = _said_of(path, first.removeprefix(codecs.BOM_UTF8))
    if said is not None and path == "-":
        raise InputError(f"standard input {said.partition(':')[0]}: give a file, not standard input.")
    if said is not None:
        raise InputError(f"{path} {said}")


def _said_of(path, first):
    if first.startswith(b"PK\x03\x04"):
        return _zip(path)
    if first.startswith(b"\xd0\xcf\x11\xe0"):
        return _EXCEL
    if _IS_FASTTEXT.match(first):
        command = _python(_FASTTEXT, path) + _into(path, ".jsonl")
        return f"has labels as fastText writes them: write JSON lines by `{command}`."
    for beginning, what, how in _KINDS:
        if first.startswith(beginning):
            return f"is {what}, which is not read: write another file by {_command(path, how)}."
    return None


def words_of_json(path, row):
    """What to do about an object of JSON lines that has a list of words and one of their labels, or None."""
    lists = {key: value for key, value in row.items() if isinstance(value, list) and value}
    for key, words in lists.items():
        others = [other for other in lists if other != key and len(lists[other]) == len(words)]
        if others and all(isinstance(word, str) for word in words):
            tags = next((other for other in others if "tag" in other or "label" in other), others[0])
            return f"write one by `{_python(_WORDS, path, key, tags)}{_into(path, '.columns')}`"
    return None


def rows_of_json(path, text, line):
    """What to do about a file of JSON that is no JSON lines, by the text of a line; or None."""
    if line > 1 or not re.match(r"\s*(\[\s*(\{|$)|\{\s*$|\{[^\[{]*\[\s*(\{|$))", text) or '"paragraphs"' in text:
        return None
    return f"write a row a line by `{_python(_ROWS, path)}{_into(path, '.rows.jsonl')}`"


def _command(path, how):
    root, extension = os.path.splitext(path)
    if " " not in how:
        code = _OF_PANDAS.format(how)
        return f"`{_python(code, path, f'{root}.jsonl')}` (with pandas and pyarrow installed)"
    known = (".bz2", ".xz", ".zst")
    unpacked = root if extension.lower() in known else f"{root}.unpacked{extension}"
    return f"`{how} {shlex.quote(path)} > {shlex.quote(unpacked)}`"


def _zip(path):
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.namelist()
    except (OSError, zipfile.BadZipFile):
        members = []
    if any(member.startswith("xl/") for member in members):
        return _EXCEL
    if not members:
        return "is a zip archive, which is not read: unpack it."
    folder = os.path.dirname(path) or "."
    command = shlex.join(["python", "-m", "zipfile", "-e", path, folder])
    members = ", ".join(os.path.join(folder, member) for member in members[:3])
    return f"is a zip archive, which is not read: unpack it by `{command}`, and give {members}."


def _python(code, *arguments):
    return shlex.join(["python", "-X", "utf8", "-c", code, *arguments])


def _into(path, extension):
    return f" > {shlex.quote(os.path.splitext(path)[0] + extension)}"
