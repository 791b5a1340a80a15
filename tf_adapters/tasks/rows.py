"""Texts and labels of one split, and the task they belong to."""

import dataclasses
import hashlib
from typing import Dict, Optional, Tuple

import numpy as np

from tf_adapters.ranges import in_range
from tf_adapters.tasks.labels import check_label_names


@dataclasses.dataclass(frozen=True)
class Rows:
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

    def __len__(self):
        return int(self.text.shape[0])

    @property
    def kinds(self):
        """The kinds of task whose labels these can be."""
        if self.labels.ndim == 2:
            return ("multi-label",)
        return ("regression",) if self.labels.dtype.kind == "f" else ("classification", "regression")

    def take(self, chosen):
        """The rows at the indices `chosen` (int array), in that order."""
        chosen = np.asarray(chosen, np.int64)
        labels = None if self.labels is None else self.labels[chosen]
        return Rows(*self.texts(chosen), labels=labels, value_range=self.value_range, label_names=self.label_names)

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

    def slices(self, size=8192):
        """Consecutive index arrays of at most `size` rows that cover all rows."""
        for start in range(0, len(self), size):
            yield np.arange(start, min(start + size, len(self)))

    def digest(self):
        """SHA-256 of texts and labels, by hashes of the rows that TensorFlow computes."""
        import tensorflow as tf

        digest = hashlib.sha256()
        for part in (0, 1):
            for index in self.slices() if (self.text, self.text_pair)[part] is not None else ():
                digest.update(tf.strings.to_hash_bucket_fast(self.texts(index)[part], 2**62).numpy().tobytes())
        for index in self.slices() if self.labels is not None else ():
            digest.update(self.labels[index].tobytes())
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
        for split in ("train", "validation", "test"):
            rows = getattr(self, split)
            if not self.labels or getattr(rows, "labels", None) is None or not hasattr(rows, "label_names"):
                continue
            check_label_names(
                f"The {split} split", rows.label_names or self.labels, "the task", self.labels, "read both in one order"
            )
            if not rows.label_names:
                object.__setattr__(self, split, dataclasses.replace(rows, label_names=tuple(self.labels)))


@dataclasses.dataclass(frozen=True)
class Splits:
    """What a task's loader returns: some of its splits and what they share.

    Attributes:
        kind, labels, metric, source: as in `Task`.
        rows: dict from a split's name to its `Rows`, without splits that do not exist.
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
