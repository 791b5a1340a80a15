"""Compares label names wherever two orders of them meet. Nothing is ever put into another order."""

from tf_adapters.errors import InputError, shown

_MOST_SHOWN = 1000  # characters of a list in a message


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


def is_default(names):
    """Whether label names are those that transformers gives by default, which say nothing."""
    return list(names) == [f"LABEL_{index}" for index in range(len(names))]


def _in_words(names):
    if is_default(names):
        return f"{len(names)} output{'s' * (len(names) != 1)} without names"
    return f"the labels {shown(names, _MOST_SHOWN)}"
