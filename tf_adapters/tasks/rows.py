"""Texts and labels of one split, the task they belong to, and parts of them: those set aside where no other file has
them, few of them, and one of several equal parts."""

import dataclasses
import hashlib
import itertools
import re
from typing import Callable, Dict, List, Optional, Tuple

import numpy as np

from tf_adapters.errors import InputError, shown
from tf_adapters.ranges import in_range
from tf_adapters.tasks.labels import check_joinable, check_label_names


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


@dataclasses.dataclass(frozen=True)
class Part:
    """So many rows of a file, of any kind, which `rows` makes when it is called, since that may load TensorFlow, and
    their `records`, all columns of each in a dict, or None unless kept."""

    count: int
    rows: Callable
    records: Optional[List[dict]] = None

    def __len__(self):
        return self.count


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


def string_tensors(parts):
    """String tensors of columns that come in parts, each a tuple of lists of str, or of None in all of them: a text is
    held once in the end."""
    parts = iter(parts)
    # The first part before the slow import: a mistake in it shows at once.
    parts = itertools.chain([next(parts)], parts)
    import tensorflow as tf

    with tf.device("CPU:0"):
        made = [[None if texts is None else tf.constant(texts, tf.string) for texts in part] for part in parts]
        return [None if column[0] is None else tf.concat(column, 0) for column in zip(*made)]


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


# Parts of the rows

# Of all rows, for each of validation and test.
SHARE = 0.1


def set_aside(rows, kind, shares, *, seed):
    """Draw rows that are not trained on, stratified where a row has one label.

    Each class keeps its share in every part, and a row to train on at least; numbers are spread evenly. Questions about
    one context stay together. What is drawn depends on seed, labels and shares alone, on every machine and NumPy
    version.

    Args:
        rows: `Rows`, or the rows of another kind of task.
        kind: str, of the task.
        shares: dict from the name of a part to its share of all rows, above 0 and below 1.
        seed: int, 0 to 2**32 - 1.

    Returns: dict from "train" and those names to the indices of their rows, ascending int64 arrays.

    Raises:
        InputError: a share, or their sum, is out of range; or there are too few rows.
    """
    for name, share in shares.items():
        if not 0 < share < 1:
            raise InputError(
                f"{{{name}}} must be a share between 0 and 1, such as {SHARE}, or a file.", **{name: share}
            )
    if sum(shares.values()) >= 1:
        names = " and ".join(f"{{{name}}}" for name in shares)
        raise InputError(f"{names} leave no rows to train on: together they must be below 1.", **shares)
    random = np.random.RandomState(seed)  # whose stream is frozen by NumPy
    units, of_row = np.arange(len(rows)), None
    if hasattr(rows, "context_of"):
        units, of_row = np.unique(rows.context_of, return_inverse=True)
    order, held_back = random.permutation(len(units)), np.zeros(len(units), bool)
    if kind in ("classification", "regression"):
        # The rows of a class together, or numbers ascending.
        order = order[np.argsort(rows.labels[order], kind="stable")]
    if kind == "classification":
        _, starts = np.unique(rows.labels[order], return_index=True)
        held_back[order[starts]] = True
    left, parts = order[~held_back[order]], {}
    for name, share in shares.items():
        count = round(share * len(units))
        if not 0 < count < len(left):
            raise InputError(
                f"{{{name}}}: {len(units):,} {'rows' if of_row is None else 'contexts'} are too few to set a share of "
                f"{share:g} aside: give a file of rows, or a larger share.",
                **{name: share},
            )
        # Evenly from an order in which classes are together, so that each gives its share.
        chosen = np.zeros(len(left), bool)
        chosen[np.floor((np.arange(count) + random.uniform()) * len(left) / count).astype(int)] = True
        parts[name], left = left[chosen], left[~chosen]
    taken = np.zeros(len(units), bool)
    for chosen in parts.values():
        taken[chosen] = True
    parts["train"] = np.flatnonzero(~taken)
    if of_row is None:
        return {name: np.sort(chosen) for name, chosen in parts.items()}
    return {name: np.flatnonzero(np.isin(of_row, chosen)) for name, chosen in parts.items()}


VALIDATION_ROWS = 1000


@in_range
def low_resource(task, *, count, seed):
    """A task with few training rows, drawn by a seed.

    `count` rows of the training split are drawn to train on, another 1,000 of the rest to
    choose the best epoch by, and the original validation split is the test split (GLUE's
    own test labels are not public). Rows are drawn without stratification, as in the paper
    (which draws 1,000 and 5,000), and keep their order. What is drawn depends on the seed and
    the number of training rows alone, on every machine and NumPy version.

    Args:
        task: `Task`, with a labelled validation split.
        count: int, at least 1.
        seed: int, 0 to 2**32 - 1.

    Returns: `Task`, whose `source` says how it was drawn.

    Raises: InputError, if an argument is out of range, or the task has too few rows or no
        validation labels.
    """
    available = len(task.train)
    if count + VALIDATION_ROWS > available:
        raise InputError(
            f"Task {task.name!r} has {available:,} training rows, too few for {count:,} to train on and "
            f"{VALIDATION_ROWS:,} to validate: draw {available - VALIDATION_ROWS:,} or fewer."
            if available > VALIDATION_ROWS
            else f"Task {task.name!r} has {available:,} training rows, and {VALIDATION_ROWS:,} of them would validate: "
            "it is too small for the low-resource protocol."
        )
    if task.validation.labels is None:
        raise InputError(f"Task {task.name!r} has no validation labels, which the low-resource protocol tests on.")
    # RandomState's stream is frozen by NumPy; a Generator's may change between versions.
    drawn = np.random.RandomState(seed).permutation(available)
    return dataclasses.replace(
        task,
        train=task.train.take(np.sort(drawn[:count])),
        validation=task.train.take(np.sort(drawn[count : count + VALIDATION_ROWS])),
        test=task.validation,
        source=f"{task.source} Low-resource protocol of He et al. 2021: {count:,} of {available:,} training rows drawn "
        f"by seed {seed} without stratification, another {VALIDATION_ROWS:,} of the rest as validation, the original "
        "validation split as test.".strip(),
    )


def parse_shard(text):
    """`"2/8"` as `(2, 8)`, or an InputError that says what a shard is."""
    match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
    index, count = map(int, match.groups()) if match else (0, 0)
    if not 1 <= index <= count:
        raise InputError("{shard} must be PART/PARTS, such as 2/8 for the second of eight.", shard=text)
    return index, count


def shard_chunks(read, index, count):
    """The chunks of one of `count` parts of a file, whose rows are consecutive; one after the other they are the file.

    Args:
        read: function without arguments that returns the file's chunks, as `Reader.chunks` does. The file
            is read twice: once to count its rows.
        index: int from 1 to `count`.
        count: int.

    Returns: iterator of chunks; `len(chunk)`, `chunk.rows()` and `chunk.records` are all that they have.

    Raises: InputError, if there are fewer rows than parts, or as `read`.
    """
    total = sum(len(chunk) for chunk in read())
    if total < count:
        shard = f"{index}/{count}"
        raise InputError(f"{{shard}}: the input has {total} rows, so there are at most {total} parts.", shard=shard)
    first, end = total * (index - 1) // count, total * index // count

    def chunks():
        start = 0
        for chunk in read():
            low, high = max(first - start, 0), min(end - start, len(chunk))
            start += len(chunk)
            if low < high:
                records = getattr(chunk, "records", None)
                yield Part(
                    high - low,
                    lambda chunk=chunk, index=np.arange(low, high): chunk.rows().take(index),
                    records and records[low:high],
                )
            if start >= end:
                return

    return chunks()
