"""What reads the rows of a kind of task."""

import dataclasses
from typing import Any, Callable, Dict, Mapping, Optional, Union

from tf_adapters.errors import InputError, shown
from tf_adapters.tasks.lines import USUAL, Dialect


@dataclasses.dataclass(frozen=True)
class Reading:
    """How a user's file is read; each option as of `task_from_files`, but a `Dialect`."""

    kind: str
    text_column: Union[str, int, None] = None
    text_pair_column: Union[str, int, None] = None
    label_column: Union[str, int, None] = None
    label_separator: str = "|"
    format: Optional[str] = None
    bad_rows: Any = None
    dialect: Dialect = USUAL


@dataclasses.dataclass(frozen=True)
class Reader:
    """How the rows of a kind of task come from files, and from lists in Python.

    Attributes:
        kind: str, the kind of task.
        files: str, what its files are, for help texts.
        whole: function of a path, a `Reading` and known label names, or None, that returns a whole labelled file's
            rows, and the label names, a tuple of str.
        parts: function of a path, a `Reading`, `chunk_rows` and `keep_all_columns` that yields rows without labels in
            parts, each with a method `rows()`.
        of_texts: function of a list of texts, and one of second texts or None, that returns rows without labels.
        metric: name of the usual metric, or a function of label names, None where they are not known, that returns it.
        scored_as: the kind whose metrics are for this one too, or None for its own.
        named: bool, whether each output of the head has a label name.
        without: dict from an option that has no meaning here to why.
    """

    kind: str
    files: str
    whole: Callable
    parts: Callable
    of_texts: Callable
    metric: Union[str, Callable]
    scored_as: Optional[str] = None
    named: bool = True
    without: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def read(self, path, *, labels=None, **options):
        """A whole labelled file.

        Args:
            path: str or path-like; "-" is standard input.
            labels: label names in index order, or None to find them in this file.
            options: fields of `Reading`.

        Returns: the kind's rows, and the label names, a tuple of str.

        Raises: InputError, naming file, line and fix, for anything unusable.
        """
        return self.whole(path, self._reading(options), labels)

    def chunks(self, path, *, chunk_rows=1024, keep_all_columns=False, **options):
        """Yield a file's rows without labels in parts of at most `chunk_rows`, to predict; what it says of labels is
        not looked at. The file's first mistakes are found at the first `next`.

        Args and Raises: as of `read`; and
            keep_all_columns: bool, whether each part has `records`, the whole rows as dicts, where rows have columns.
        """
        if chunk_rows < 1:
            raise InputError(f"chunk_rows must be at least 1, and it is {chunk_rows}.")
        return self.parts(path, self._reading(options), chunk_rows, keep_all_columns)

    def _reading(self, options: Dict[str, Any]):
        reading = Reading(**{"kind": self.kind, **options})
        for name, why in self.without.items():
            value = getattr(reading, name)
            if value != getattr(Reading, name):
                raise InputError(f"{{{name}}}: {why}, leave it out.", **{name: value})
        return reading


def check_texts(texts, what="a text", fits=lambda text: isinstance(text, str)):
    """Raise InputError for an entry of a list that is not `what`."""
    for number, text in enumerate(texts or ()):
        if not fits(text):
            raise InputError(f"texts: number {number} is {shown(text)}; give {what}.")
