"""Label names, whose order is compared wherever two meet, and how label cells become numbers, for each kind of task.

A class name is the cell without white space around it. A whole number is written without a point and a truth value as
in JSON ("1", "true"), so that what one program writes as `1.0` or `True` is the same label.
"""

import collections
import itertools
import json
import math
import re
import unicodedata

import numpy as np

from tf_adapters.errors import NAME, InputError, shown
from tf_adapters.paths import parse_json
from tf_adapters.tasks.lines import bad_row, fail

#: What labels of whole texts may be.
KINDS = ("classification", "regression", "multi-label")
# A classification column with decimal points and more distinct values than this is taken for scores.
MOST_DECIMAL_CLASSES = 20
# Between the labels of a cell, and so many cells whose every part is in another one too that they look joined.
_SEPARATORS, _LEAST_JOINED = "|;,", 2
_WHOLE = re.compile(r"(-?[0-9]+)\.0+")
_MISSING = ("nan", "null", "n/a", "na", "#n/a", "<na>")
# A list as JSON or Python writes it.
_LIST = re.compile(r"""\[(\s*|.*['"].*|\s*-?\d+(\s*,\s*-?\d+)*\s*)\]""", re.DOTALL)
_EMPTY = "the label is empty; fill it in or remove the row."
_TRUTH = {"true": "1", "false": "0"}


def label_name(cell):
    """What a label is called, of a str, number or bool."""
    name = cell.strip() if isinstance(cell, str) else json.dumps(cell)
    if name.lower() in _TRUTH:
        return name.lower()
    whole = _WHOLE.fullmatch(name)
    return {"-0": "0"}.get(whole[1], whole[1]) if whole else name


def index_of(labels):
    """The places of known labels, by their names and then by what `label_name` makes of these: a model may have others
    from before."""
    places = {name: place for place, name in enumerate(labels)}
    for name in labels:
        places.setdefault(label_name(name), places[name])
    return places


def place_of(cell, index):
    """The place of a cell's label in what `index_of` returned, by its own spelling first; or None."""
    place = index.get(cell.strip()) if isinstance(cell, str) else None
    return index.get(label_name(cell)) if place is None else place


def unknown_label(name, index):
    """What is wrong with a label that is not in what `index_of` returned, and what to do."""
    labels = list({place: known for known, place in reversed(index.items())}.values())[::-1]
    known = ", ".join(map(repr, labels[:20])) + (", ..." if len(labels) > 20 else "")
    truth = _TRUTH.get(name) or next((word for word, number in _TRUTH.items() if number == name), None)
    same = {_alike(label): label for label in labels}.get(_alike(name), truth if truth in index else None)
    advice = "correct it, or add rows with it to the training file" if same is None else f"write {same!r} for it"
    return f"the label {name!r} is not among those of the training rows ({known}); {advice}."


def _alike(name):
    """What labels have in common that differ only by case, white space, invisible characters or the way a number is
    written."""
    name = "".join(letter for letter in unicodedata.normalize("NFKC", name) if unicodedata.category(letter) != "Cf")
    number = _as_numbers([name])
    return number[0] if number else " ".join(name.casefold().split())


def find_labels(cells, *, kind, path, lines=None, separator="|"):
    """The label names of a training file, in index order.

    Numbers are sorted by value, everything else by code point.

    Args:
        cells: list of label cells, as `files.Chunk.labels`.
        kind: "classification", "regression" or "multi-label".
        path: str, the file's name for messages.
        lines: ints, the line of each cell; 1, 2, ... without it.
        separator: str between the labels of a multi-label cell.

    Returns: tuple of str, empty for regression.

    Raises: InputError, if a cell is unusable, there is only one class, or a
        classification column looks like scores or like an identifier.
    """
    if kind == "regression":
        return ()
    names = set()
    for cell, line in zip(cells, lines or itertools.count(1)):
        names.update(map(label_name, _parts(cell, kind, path, line, separator)))
    names, numbers = in_order(names)
    if kind == "multi-label":
        if not names:
            raise InputError(f"{path} has no label in any row: a multi-label task needs at least one.")
        return tuple(names)
    if len(names) < 2:
        raise InputError(f"{path} has only the label {names[0]!r}: training needs rows of at least two classes.")
    if numbers is not None and len(names) > MOST_DECIMAL_CLASSES and any(number % 1 for number in numbers):
        raise InputError(
            f"{path} has {len(names)} different labels that are decimal numbers "
            f"({', '.join(names[:3])}, ...), which look like scores: use {{kind}}.",
            kind="regression",
        )
    if len(names) == len(cells) > MOST_DECIMAL_CLASSES:
        raise InputError(
            f"{path} has a different label in each of its {len(cells)} rows ({names[0][:40]!r}, ...): "
            "check {label_column}.",
            label_column=NAME,
        )
    return tuple(names)


def in_order(names):
    """Label names in index order, numbers by value and everything else by code point, a list; and their numbers in any
    order, or None."""
    names = sorted(names)
    numbers = _as_numbers(names)
    return names if numbers is None else [name for _, name in sorted(zip(numbers, names))], numbers


def encode_labels(cells, *, kind, labels, path, lines=None, separator="|"):
    """The numbers of label cells, a NumPy array as in `rows.Rows.labels`.

    Args: as in `find_labels`; and `labels`, the names in index order, as it returned them.

    Raises: InputError, naming file and line, if a cell is unusable or its label unknown.
    """
    width = (len(labels),) if kind == "multi-label" else ()
    encoded = np.zeros((len(cells), *width), np.int32 if kind == "classification" else np.float32)
    index = index_of(labels)
    for row, (cell, line) in enumerate(zip(cells, lines or itertools.count(1))):
        numbers = label_numbers(cell, line, kind=kind, path=path, index=index, separator=separator)
        if kind == "multi-label":
            encoded[row, numbers] = 1
        else:
            (encoded[row],) = numbers
    return encoded


def label_numbers(cell, line, *, kind, path, index, separator="|"):
    """The places of a cell's labels in what `index_of` returned, or its score, in a list; nothing but that the cell can
    be read where that is None. Others as in `find_labels`. Raises the `BadRow` of a cell that cannot be used."""
    if kind == "regression":
        return [_score(cell, path, line)]
    parts = _parts(cell, kind, path, line, separator)
    places = [place_of(part, index) for part in parts if index is not None]
    if None in places:
        fail(path, line, unknown_label(label_name(parts[places.index(None)]), index))
    return places


def _is_missing(cell):
    return cell is None or cell != cell or (isinstance(cell, str) and not cell.strip())


def _as_numbers(names):
    try:
        numbers = [float(name) for name in names]
    except ValueError:
        return None
    return numbers if all(math.isfinite(number) for number in numbers) else None


def _check_label(cell, path, line):
    if not isinstance(cell, (str, bool, int, float)):
        way = ", or use {kind}." if isinstance(cell, list) else "."
        fail(path, line, f"the label is {json.dumps(cell)[:60]}; give a string or a number{way}", kind="multi-label")


def _parts(cell, kind, path, line, separator):
    """The labels of a cell, as they are written; none is missing or a list."""
    if kind == "classification":
        if _is_missing(cell):
            fail(path, line, _EMPTY)
        _check_label(cell, path, line)
        return (cell,)
    if isinstance(cell, str):
        if not cell.strip():
            return ()
        cell = _listed(cell, path, line) if _LIST.fullmatch(cell.strip()) else cell.split(separator)
    elif _is_missing(cell):
        fail(path, line, "the label is null; write [] for a row without labels.")
    elif not isinstance(cell, list):
        cell = [cell]
    for part in cell:
        if _is_missing(part):
            fail(path, line, f"one of the labels is empty; remove the extra {separator!r}.")
        _check_label(part, path, line)
    return cell


def _listed(cell, path, line):
    for text in (cell, cell.replace("'", '"')):
        try:
            return parse_json(text)
        except ValueError:
            pass
    problem = f"the label {cell[:60]!r} looks like a list; write the labels with {{label_separator}} between them."
    return fail(path, line, problem, label_separator=NAME)


def _score(cell, path, line):
    if _is_missing(cell):
        fail(path, line, _EMPTY)
    try:
        # float() reads "1_000" as Python does, and JSON's true as 1.
        if isinstance(cell, (bool, list, dict)) or (isinstance(cell, str) and "_" in cell):
            raise ValueError
        score = float(cell)
    except (ValueError, OverflowError):
        # As many languages write a number.
        comma = isinstance(cell, str) and re.fullmatch(r"\s*-?\d+,\d+\s*", cell)
        way = f"{'write a point for the comma, ' if comma else ''}correct it, or use {{kind}}."
        problem = f"the label {str(cell)[:60]!r} is not a number, which regression needs; {way}"
        raise bad_row(path, line, problem, kind="classification") from None
    if not abs(score) <= float(np.finfo(np.float32).max):
        fail(path, line, f"the label {str(cell)[:60]!r} is not a finite number; correct it.")
    return score


def doubts(names, *, kind, separator="|"):
    """What the label names of a training file may be in place of what they were taken for.

    Args:
        names: tuple of str, as `find_labels` returned them.
        kind: as in `find_labels`.
        separator: str between the labels of a multi-label cell.

    Returns: a sentence, in which `{kind}` and `{label_separator}` stand for these arguments, and their values by name;
        or None.
    """
    same = collections.defaultdict(list)
    for name in names:
        same[_alike(name)].append(name)
    several = [" and ".join(map(repr, group[:5])) for group in same.values() if len(group) > 1]
    if several:
        return (
            f"The labels {'; '.join(several[:5])} differ by no more than case, spaces or the way a number is written, "
            "and are different classes here. If they are not, write each of them in one way."
        ), {}
    if kind == "classification" and len(names) > MOST_DECIMAL_CLASSES and _as_numbers(names) is not None:
        return f"The {len(names):,} labels are whole numbers. If they are amounts, give {{kind}}.", {
            "kind": "regression"
        }
    if kind not in ("classification", "multi-label"):
        return None
    none = [name for name in names if name.lower() in _MISSING]
    if none:
        return f"The label {none[0]!r} is a class here. If it stands for a missing one, leave these cells empty.", {}
    lists = [name for name in names if _LIST.fullmatch(name)]
    if lists:
        return f"Labels such as {lists[0][:60]!r} are lists. For a row's several labels give {{kind}}.", {
            "kind": "multi-label"
        }
    for between in (one for one in _SEPARATORS if kind == "classification" or one != separator):
        joined = [name for name in names if between in name]
        counts = collections.Counter(part.strip() for name in names for part in name.split(between))
        again = [name for name in joined if all(counts[part.strip()] > 1 for part in name.split(between))]
        if len(again) < _LEAST_JOINED or 2 * len(again) < len(joined):
            continue
        values = {"kind": "multi-label"} if kind == "classification" else {}
        values |= {"label_separator": between} if between != separator else {}
        options = " and ".join(f"{{{name}}}" for name in values)
        return f"Labels such as {again[0][:60]!r} look like several. If they are, give {options}.", values
    return None


def check_label_names(what, names, whose, known, fix):
    """Raise InputError unless two heads, or a head and what it is to learn or to be compared with, mean the same by
    each output.

    Args:
        what, whose: str, the subjects of the two, such as `"The task"` and `"the model"`.
        names, known: label names in index order, or an int, so many outputs without names. Names that transformers
            gives by default, `LABEL_0` and so on, are none: of such only the number counts.
        fix: str, what is to be done.
    """
    names, known = (
        [f"LABEL_{index}" for index in range(each)] if isinstance(each, int) else list(each) for each in (names, known)
    )
    same = names == known or (is_default(names) or is_default(known)) and set(names) != set(known)
    if len(names) != len(known) or not same:
        raise InputError(f"{what} has {_in_words(names)}, and {whose} has {_in_words(known)}: {fix}.")


def check_joinable(labels, kind):
    """Raise InputError for a label of a kind of several a text that would look like two where they are served, joined
    by `|`."""
    for name in labels if kind == "multi-label" else ():
        if "|" in name:
            raise InputError(
                f"The label {name!r} has the '|' that stands between a text's labels where they are served: call it "
                "something else in the training rows."
            )


def is_default(names):
    """Whether label names are those that transformers gives by default, which say nothing."""
    return list(names) == [f"LABEL_{index}" for index in range(len(names))]


def _in_words(names):
    if is_default(names):
        return f"{len(names)} output{'s' * (len(names) != 1)} without names"
    return f"the labels {shown(names, 1000)}"
