"""What reads the rows of a kind of task."""

import dataclasses
from typing import Callable, Union

from tf_adapters.errors import InputError, shown


@dataclasses.dataclass(frozen=True)
class Reader:
    """How the rows of a kind of task come from files, and from lists in Python.

    Attributes:
        kind: str, the kind of task.
        files: str, what its files are, for help texts.
        read: function of a path that returns a whole labelled file's rows and its label names; takes what
            `task_from_files` does, but a `dialect`, a `Dialect`; and `labels`, names that are known already, or None.
        chunks: function of a path that yields rows without labels in parts, each with a method `rows()`; takes
            `text_column`, `text_pair_column`, `chunk_rows`, `format`, `keep_all_columns` and `dialect`.
        of_texts: function of a list of texts, and one of second texts or None, that returns rows without labels.
        metric: name of the usual metric, or a function of label names, None where they are not known, that returns it.
        scored_as: the kind whose metrics are for this one too, or None for its own.
        named: bool, whether each output of the head has a label name.
    """

    kind: str
    files: str
    read: Callable
    chunks: Callable
    of_texts: Callable
    metric: Union[str, Callable]
    scored_as: str = None
    named: bool = True


def check_texts(texts, what="a text", fits=lambda text: isinstance(text, str)):
    """Raise InputError for an entry of a list that is not `what`."""
    for number, text in enumerate(texts or ()):
        if not fits(text):
            raise InputError(f"texts: number {number} is {shown(text)}; give {what}.")
