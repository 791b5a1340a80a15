"""A task in files as they were published: what is where, whose labels, whose split."""

import collections
import dataclasses
import hashlib
import os
import re
from typing import Mapping, Optional, Tuple, Union

import numpy as np

from tf_adapters.errors import NAME, InputError
from tf_adapters.tasks.about import About
from tf_adapters.tasks.published_files import Layout, collect, read_records
from tf_adapters.tasks.rows import Splits

SPLITS = ("train", "validation", "test")
ALL = "all"  # the one file of a task without an official split
FEWEST_ROWS = 10
_SEED = "tf_adapters split 80/10/10 1\n"


@dataclasses.dataclass(frozen=True)
class PublishedTask:
    """One label for a text, in files with or without an official split; call `load`.

    Without one, the rows are split 80/10/10, the same for ever: they are ordered by a fixed
    hash of their words. Rows with the same words (links, punctuation and case aside) have the
    same place and are never parted.

    Attributes:
        name: str, as on the command line.
        files: dict from a split, or "all", to the places below `data_dir` that are tried in
            turn: a path, or a tuple of paths that make it together.
        layout: `Layout`.
        origin: str, where the files come from; ends a message.
        metric: as in `Task`.
        labels: label names in index order; None for those of the training rows (of all rows,
            without an official split), numbers sorted by value, anything else by code point.
        spellings: dict from a label cell to its name in `labels`.
        dropped: dict from a label cell to why its rows are left out.
        note: sentence for the task's `source`, such as a choice that the paper left open.
        run_on_real_rows: bool, whether this package was run on the published file, or only on
            a small one in its layout.
    """

    name: str
    files: Mapping[str, Tuple[Union[str, Tuple[str, ...]], ...]]
    layout: Layout
    origin: str
    metric: str = "accuracy"
    labels: Optional[Tuple[str, ...]] = None
    spellings: Mapping[str, str] = dataclasses.field(default_factory=dict)
    dropped: Mapping[str, str] = dataclasses.field(default_factory=dict)
    note: str = ""
    run_on_real_rows: bool = False

    @property
    def about(self):
        """`About`, for the list of tasks."""
        return About("classification", self.metric, self.origin, self.run_on_real_rows)

    def load(self, splits, *, data_dir=None):
        """The named splits.

        Args:
            splits: names among train, validation, test.
            data_dir: folder that holds the task's files.

        Returns: `Splits`.

        Raises: InputError, naming folder, files and where to get them, if they are not
            there; naming file and line, if they are other files.
        """
        if ALL in self.files:
            return self._load_and_split(splits, find_files(self, ALL, data_dir))
        return self._load_official(splits, data_dir)

    def _load_and_split(self, splits, paths):
        reading = _Reading(self)
        keys = []

        def number_of(record):
            number = reading.number(record)
            if number is not None:
                keys.append(_key(record.text))
            return number

        rows = collect(reading.records(paths), number_of, path=paths[0])
        labels, rows = reading.named(rows)
        if len(rows) < FEWEST_ROWS:
            raise InputError(
                f"{paths[0]} has {len(rows)} usable rows, and at least {FEWEST_ROWS} are needed to split them: "
                "get the file as it was published."
            )
        parts = split_by_key(np.array(keys, np.uint64))
        how = "They are split 80/10/10 by a fixed hash of their words, equal texts together."
        return Splits(
            kind="classification",
            labels=labels,
            metric=self.metric,
            rows={split: rows.take(parts[split]) for split in splits if split in parts},
            source=self._source([reading.summary(paths), how]),
        )

    def _load_official(self, splits, data_dir):
        found = {split: find_files(self, split, data_dir, missing_ok=True) for split in SPLITS if split in self.files}
        if not any(found.values()):
            find_files(self, "train", data_dir)
        labels = self.labels
        rows, summaries = {}, []
        if labels is None and not found.get("train"):
            find_files(self, "train", data_dir)  # which says what is missing
        # The training rows first: they may define the labels.
        for split in SPLITS:
            if not found.get(split) or not (split in splits or (split == "train" and labels is None)):
                continue
            reading = _Reading(self, labels)
            read = collect(reading.records(found[split]), reading.number, path=found[split][0])
            if split == "train":
                labels, read = reading.named(read)
            if split in splits:
                rows[split] = read
                summaries.append(reading.summary(found[split]))
        absent = [split for split in SPLITS if split in self.files and not found[split]]
        if absent:
            summaries.append(f"No file was found for {' and '.join(absent)}.")
        return Splits(
            kind="classification",
            labels=labels,
            metric=self.metric,
            rows=rows,
            source=self._source([*summaries, "The split is the official one."]),
        )

    def _source(self, sentences):
        return " ".join(filter(None, [*sentences, self.note, f"Origin: {self.origin}"]))


def find_files(task, split, data_dir, *, missing_ok=False):
    """Paths of one split's files: those of the first place that is there.

    Args:
        task: has `name`, `files` and `origin` as `PublishedTask` has.
        split: key of `task.files`.
        data_dir: path, or None.
        missing_ok: bool, return () and do not raise if there are none.

    Returns: tuple of str.
    """
    places = [(place,) if isinstance(place, str) else tuple(place) for place in task.files[split]]
    shown = " or ".join(" with ".join(place) for place in places)
    if data_dir is None:
        raise InputError(
            f"Task {task.name!r} is read from files: give the folder that holds {shown} as {{data_dir}}. Origin: "
            f"{task.origin}",
            data_dir=NAME,
        )
    data_dir = os.fspath(data_dir)
    if not os.path.isdir(data_dir):
        raise InputError(f"data_dir is {data_dir!r}, which is no directory: give the folder that holds {shown}.")
    for place in places:
        paths = tuple(os.path.join(data_dir, path) for path in place)
        if all(map(os.path.exists, paths)):
            return paths
    if missing_ok:
        return ()
    raise InputError(f"Task {task.name!r}: {data_dir} does not hold {shown}. Origin: {task.origin}")


def split_by_key(keys):
    """Indices of train, validation and test, 80/10/10, where equal keys are never parted.

    Args:
        keys: uint64 array, `(rows,)`.

    Returns: dict from split to ascending int array.
    """
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    cuts = [np.searchsorted(ordered, ordered[int(len(keys) * share) - 1], side="right") for share in (0.8, 0.9)]
    return {split: np.sort(part) for split, part in zip(SPLITS, np.split(order, cuts))}


def _key(text):
    """64 bits of a hash of the text's words; of the text itself, if it has none."""
    words = " ".join(re.findall(r"\w+", re.sub(r"https?://\S+", " ", text.casefold())))
    content = _SEED + (words or text)
    return int.from_bytes(hashlib.sha256(content.encode("utf-8", "replace")).digest()[:8], "big")


class _Reading:
    """Label numbers of records, and counts of what was left out."""

    def __init__(self, task, labels=None):
        self.task = task
        labels = task.labels if labels is None else labels
        self.found = labels is None
        self.index = {} if labels is None else {name: number for number, name in enumerate(labels)}
        self.left_out = collections.Counter()
        self.malformed = []
        self.kept = self.read = 0

    def records(self, paths):
        for path in paths:
            yield from read_records(path, self.task.layout, skipped=self.malformed)

    def number(self, record):
        self.read += 1
        cell = record.label.strip()
        reason = self.task.dropped.get(cell)
        if reason is None and (not record.text or record.text.isspace()):
            reason = "without a text"
        if reason is not None:
            self.left_out[reason] += 1
            return None
        if not cell:
            record.fail("the label is empty; get the file as it was published.")
        name = self.task.spellings.get(cell, cell)
        number = self.index.setdefault(name, len(self.index)) if self.found else self.index.get(name)
        if number is None:
            known = ", ".join(map(repr, self.index))
            record.fail(f"the label {cell!r} is not among those of task {self.task.name!r} ({known}).")
        self.kept += 1
        return number

    def named(self, rows):
        """Label names in index order, and the rows with their numbers in it."""
        names = list(self.index)
        if not self.found:
            return tuple(names), rows
        try:
            ordered = sorted(names, key=float)
        except ValueError:
            ordered = sorted(names)
        position = {name: number for number, name in enumerate(ordered)}
        renumber = np.array([position[name] for name in names], np.int32)
        return tuple(ordered), dataclasses.replace(rows, labels=renumber[rows.labels])

    def summary(self, paths):
        """A sentence with the file's name and its rows, those left out included."""
        left_out = [f"{count:,} {reason}" for reason, count in self.left_out.items()]
        if self.malformed:
            left_out.append(f"{len(self.malformed):,} malformed")
        names = " and ".join(os.path.basename(path) for path in paths)
        return f"{names}: {self.kept:,} rows" + (f" (left out: {', '.join(left_out)})." if left_out else ".")
