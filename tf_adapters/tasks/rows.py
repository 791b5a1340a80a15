"""Texts and labels of one split, the task they belong to, and what reads them."""

import dataclasses
import hashlib
from typing import Any, Callable, Dict, Mapping, Optional, Tuple, Union

import numpy as np

from tf_adapters.errors import InputError, shown
from tf_adapters.ranges import in_range
from tf_adapters.tasks.labels import check_joinable, check_label_names
from tf_adapters.tasks.lines import Dialect


class HeldRows:
    """What the rows of all kinds of tasks have in common; `by_row` are the names of the fields with an entry a row, and
    `kinds` the kinds of task whose labels these can be."""

    by_row = ()

    def take(self, chosen):
        """The rows at the indices `chosen` (int array), in that order."""
        chosen = np.asarray(chosen, np.int64)
        return dataclasses.replace(self, **{name: _entries(getattr(self, name), chosen) for name in self.by_row})

    def slices(self, size=8192):
        """Consecutive index arrays of at most `size` rows that cover all rows."""
        for start in range(0, len(self), size):
            yield np.arange(start, min(start + size, len(self)))

    def rows(self):
        """These rows: chunks of files of every kind have this method."""
        return self


def _entries(values, chosen):
    if values is None:
        return None
    if isinstance(values, np.ndarray):
        return values[chosen]
    if hasattr(values, "take"):
        return values.take(chosen)
    import tensorflow as tf

    return tf.gather(values, chosen)


@dataclasses.dataclass(frozen=True)
class Rows(HeldRows):
    """The examples of one split, held once.

    Attributes:
        text: tf string tensor, `(rows,)`.
        text_pair: the same for second texts, or None for single sentences.
        labels: NumPy array: `(rows,)` int32 class indices, `(rows,)` float32 for
            regression, `(rows, labels)` float32 of 0 and 1 for multi-label, or
            None where the labels are unknown.
        value_range: pair of the least and the greatest label that a regression can have, to
            which its predictions are clipped, or None.
        label_names: names of the labels in index order; empty where they are not known.
    """

    text: "tf.Tensor"  # noqa: F821
    text_pair: Optional["tf.Tensor"] = None  # noqa: F821
    labels: Optional[np.ndarray] = None
    value_range: Optional[Tuple[float, float]] = None
    label_names: Tuple[str, ...] = ()

    by_row = ("text", "text_pair", "labels")

    def __len__(self):
        return int(self.text.shape[0])

    @property
    def kinds(self):
        if self.labels.ndim == 2:
            return ("multi-label",)
        return ("regression",) if self.labels.dtype.kind == "f" else ("classification", "regression")

    def plain(self):
        """The texts without labels, as `Rows`."""
        return Rows(self.text, self.text_pair)

    def encode(self, tokenizer, index):
        """Encoded rows at an int64 tensor of indices, as `Tokenizer.encode` returns them; also in a graph."""
        return tokenizer.encode(*self.texts(index))

    def texts(self, index):
        """String tensors at an int64 tensor or array of indices: texts, and second texts or None; also in a graph."""
        import tensorflow as tf

        return tf.gather(self.text, index), None if self.text_pair is None else tf.gather(self.text_pair, index)

    def digest(self):
        """SHA-256 of texts and labels, by hashes of the rows that TensorFlow computes."""
        return digest_of(hashes(self.text), None if self.text_pair is None else hashes(self.text_pair), self.labels)


def with_value_range(rows, task):
    """`Rows` whose predictions are clipped as those of the task, a dict of an adapter directory or None."""
    value_range = (task or {}).get("value_range")
    return rows if value_range is None else dataclasses.replace(rows, value_range=tuple(value_range))


def hashes(texts):
    """A hash of each text that TensorFlow computes, an int64 array of the shape of a string tensor."""
    import tensorflow as tf

    return tf.strings.to_hash_bucket_fast(texts, 2**62).numpy()


def digest_of(*parts):
    """SHA-256 of arrays and bytes one after the other, without those that are None."""
    digest = hashlib.sha256()
    for part in parts:
        if part is not None:
            digest.update(part if isinstance(part, bytes) else np.ascontiguousarray(part))
    return digest.hexdigest()


@dataclasses.dataclass(frozen=True)
class Task:
    """A named data set with its labels, metric and splits.

    Attributes:
        name: str, as given on the command line, or "files".
        kind: name of a `kinds.Kind`, such as "classification".
        labels: label names in index order; empty for regression.
        metric: name in `tasks.metrics.METRICS` that chooses the best epoch.
        train, validation, test: `Rows`; test may be None, and its labels are
            None where they were never published (GLUE).
        source: str, one sentence saying where the rows come from and how they were split.
        reading: dict of str, what was said of how the user's files are read (`own_files.KEPT`), or None.
    """

    name: str
    kind: str
    labels: Tuple[str, ...]
    metric: str
    train: Rows
    validation: Rows
    test: Optional[Rows] = None
    source: str = ""
    reading: Optional[Dict[str, str]] = None

    def __post_init__(self):
        check_joinable(self.labels, self.kind)
        for split in ("train", "validation", "test"):
            rows = getattr(self, split)
            if not self.labels or getattr(rows, "labels", None) is None or not hasattr(rows, "label_names"):
                continue
            check_label_names(
                f"The {split} split", rows.label_names or self.labels, "the task", self.labels, "read both in one order"
            )
            if not rows.label_names:
                object.__setattr__(self, split, dataclasses.replace(rows, label_names=tuple(self.labels)))

    def digests(self) -> Dict[str, str]:
        """SHA-256 of the rows of each split that there is."""
        splits = {"train": self.train, "validation": self.validation, "test": self.test}
        return {split: rows.digest() for split, rows in splits.items() if rows is not None}


@dataclasses.dataclass(frozen=True)
class Splits:
    """What a task's loader returns: some of its splits and what they share.

    Attributes:
        kind, labels, metric, source: as in `Task`.
        rows: dict from a split's name to its `Rows`, without splits that do not exist; of `load_split` the `Rows` of
            the one.
    """

    kind: str
    labels: Tuple[str, ...]
    metric: str
    rows: Dict[str, Rows]
    source: str = ""


@in_range
def sample_rows(rows, *, count, seed):
    """At most `count` of the rows, chosen by `seed`, in their original order.

    The choice is the same on every machine and NumPy version.

    Args:
        rows: `Rows`, or the rows of another kind of task.
        count: int, at least 1; all rows are returned if there are no more.
        seed: int, 0 to 2**32 - 1.

    Returns: `Rows`.

    Raises: InputError, if count or seed is out of range.
    """
    if count >= len(rows):
        return rows
    # RandomState's stream is frozen by NumPy; a Generator's may change between versions.
    chosen = np.sort(np.random.RandomState(seed).permutation(len(rows))[:count])
    return rows.take(chosen)


@dataclasses.dataclass(frozen=True)
class Reading(Dialect):
    """How a user's file is read; each option as of `task_from_files`."""

    kind: str = ""
    text_column: Union[str, int, None] = None
    text_pair_column: Union[str, int, None] = None
    label_column: Union[str, int, None] = None
    label_separator: str = "|"
    format: Optional[str] = None
    bad_rows: Any = None

    def table(self, text="text", text_pair=None, label=None):
        """How a table is read whose columns are usually called so, as keywords of `files.read_chunks`; without `label`
        labels are not looked at."""
        return {
            "text_column": self.text_column or text,
            "text_pair_column": self.text_pair_column or text_pair,
            "label_column": label and (self.label_column or label),
            "format": self.format,
            "bad_rows": self.bad_rows,
            "dialect": self,
        }


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
        try:
            "".join(text).encode()
        except UnicodeEncodeError:
            raise InputError(
                f"texts: number {number} is {shown(text)}, which is not UTF-8: decode it by the encoding that it has."
            ) from None
