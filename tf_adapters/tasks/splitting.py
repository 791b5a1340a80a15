"""Parts of the rows: those set aside where no other file has them, few of them, and one of several equal parts."""

import dataclasses
import re

import numpy as np

from tf_adapters.errors import InputError
from tf_adapters.ranges import in_range

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
    order, held_back = _in_strata(rows.labels if kind in ("classification", "regression") else None, len(units), random)
    if kind != "classification":
        held_back[:] = False
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


def _in_strata(labels, count, random):
    """An order of all rows, in which those of a class are together, or numbers ascend; and which rows are the first of
    their class there."""
    order = random.permutation(count)
    first = np.zeros(count, bool)
    if labels is not None:
        order = order[np.argsort(labels[order], kind="stable")]
        _, starts = np.unique(labels[order], return_index=True)
        first[order[starts]] = True
    return order, first


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
        read: function without arguments that returns the file's chunks, as `own_files.unlabelled_chunks` does. The file
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
                yield _Part(chunk, low, high)
            if start >= end:
                return

    return chunks()


class _Part:
    """The rows from `low` to `high` of a chunk, which are made when they are asked for: that loads TensorFlow."""

    def __init__(self, chunk, low, high):
        self.chunk, self.low, self.high = chunk, low, high
        records = getattr(chunk, "records", None)
        self.records = records and records[low:high]

    def __len__(self):
        return self.high - self.low

    def rows(self):
        return self.chunk.rows().take(np.arange(self.low, self.high))
