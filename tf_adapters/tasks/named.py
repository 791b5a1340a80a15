"""A named task in files as they were published: what is where, in which layout, with whose labels and whose split."""

import collections
import dataclasses
import glob
import hashlib
import os
import re
from typing import Mapping, Optional, Tuple, Union

import numpy as np

from tf_adapters.errors import NAME, InputError
from tf_adapters.tasks.labels import in_order
from tf_adapters.tasks.layouts import Layout, collect, read_records
from tf_adapters.tasks.rows import Reading, Splits
from tf_adapters.tasks.spans import read_squad
from tf_adapters.tasks.words import WORDS

SPLITS = ("train", "validation", "test")
#: The splits of a file that has no official one.
ALL = " ".join(SPLITS)
FEWEST_ROWS = 10
_SEED = "tf_adapters split 80/10/10 1\n"
_SEED_OF_ARTICLES = "squad 1"
_HOW = {
    "words": "They are split 80/10/10 by a fixed hash of their words, equal texts together.",
    "articles": "A tenth of the articles is held out for each further split by a fixed hash of their titles.",
    "official": "The split is the official one.",
}


@dataclasses.dataclass(frozen=True)
class Files:
    """Files that belong together, in one layout.

    Attributes:
        layout: `Layout`.
        of: dict from a split to the path of its file below `data_dir`, which may be a pattern of `glob`; or to a tuple
            of paths that make it together. A file that is cut into several splits has them as its key, with spaces
            between them (`ALL`).
    """

    layout: Layout
    of: Mapping[str, Union[str, Tuple[str, ...]]]


@dataclasses.dataclass(frozen=True)
class NamedTask:
    """One task; call `load` for its splits.

    Texts without an official split are split 80/10/10, the same for ever: they are ordered by a fixed
    hash of their words. Rows with the same words (links, punctuation and case aside) have the
    same place and are never parted. Of questions the articles are ordered so.

    Attributes:
        name: str, as on the command line.
        places: `Files` that are tried in turn. The first of which a file is there has all of its splits.
        origin: str, where the files come from; ends a message.
        kind, metric: as in `Task`.
        labels: label names in index order; None for those of the training rows (of all rows,
            without an official split), numbers sorted by value, anything else by code point.
        spellings: dict from a label cell to its name in `labels`.
        dropped: dict from a label cell to why its rows are left out.
        value_range: as in `Rows`.
        note: sentence for the task's `source`, such as a choice that the paper left open.
        run_on_real_rows: bool, whether this package was run on the published rows, or only on a small file in their
            layout; for the list of tasks.
    """

    name: str
    places: Tuple[Files, ...]
    origin: str
    kind: str = "classification"
    metric: str = "accuracy"
    labels: Optional[Tuple[str, ...]] = None
    spellings: Mapping[str, str] = dataclasses.field(default_factory=dict)
    dropped: Mapping[str, str] = dataclasses.field(default_factory=dict)
    value_range: Optional[Tuple[float, float]] = None
    note: str = ""
    run_on_real_rows: bool = False

    def load(self, splits, *, data_dir=None):
        """The named splits.

        Args:
            splits: names of splits; one that the task does not have, or whose file is not there, is left out.
            data_dir: folder that holds the task's files; the default is the current one.

        Returns: `Splits`.

        Raises: InputError, naming folder, files and where to get them, if they are not
            there; naming file and line, if they are other files.
        """
        found, labels = self.find(data_dir), self.labels
        if not found or (labels is None and not any("train" in of.split() for of in found)):
            raise self._missing(data_dir)
        rows, said, how = {}, [], "official"
        # The training rows first: they may define the labels.
        for of in sorted(found, key=lambda of: not of.startswith("train")):
            parts = of.split()
            if not set(parts) & set(splits) and (labels is not None or "train" not in parts):
                continue
            read = self._read(*found[of], labels)
            labels = read.labels
            if set(parts) & set(splits):
                rows |= {split: part for split, part in read.cut(parts).items() if split in splits}
                said.append(read.summary)
            how = read.how if len(parts) > 1 else how
        looked_for = {}
        for files in self.places:
            for of, path in files.of.items():
                looked_for.setdefault(of, path)
        for of, path in looked_for.items():
            if of not in found and set(of.split()) & set(splits):
                said.append(f"No {_shown(path)} was found for {of.replace(' ', ' and ')}.")
        return Splits(
            kind=self.kind,
            labels=labels,
            metric=self.metric,
            rows=rows,
            source=" ".join(filter(None, [*said, _HOW[how], self.note, f"Origin: {self.origin}"])),
        )

    def find(self, data_dir):
        """Dict from the splits of each file that is there to its paths, a tuple of str, and its `Layout`."""
        data_dir, found, taken = os.fspath(data_dir or "."), {}, set()
        for files in self.places:
            exists = os.path.isdir if files.layout.format == "folders" else os.path.isfile
            there = {}
            for of, path in files.of.items():
                parts = (path,) if isinstance(path, str) else path
                paths = [sorted(glob.glob(os.path.join(glob.escape(data_dir), part)))[:1] for part in parts]
                if of not in taken and all(each and exists(each[0]) for each in paths):
                    there[of] = tuple(os.path.normpath(each[0]) for each in paths), files.layout
            if there:
                found |= there
                taken |= set(files.of)
        return found

    def _missing(self, data_dir):
        looked_for = dict.fromkeys(_shown(path) for files in self.places for path in files.of.values())
        return InputError(
            f"Task {self.name!r} has no files in {os.fspath(data_dir or '.')}: give the folder that holds "
            f"{' or '.join(looked_for)} as {{data_dir}}. Origin: {self.origin}",
            data_dir=NAME,
        )

    def _read(self, paths, layout, labels):
        if layout.format == "squad":
            rows, titles = read_squad(paths[0], Reading(self.kind), labelled=True)
            return _Articles(rows, titles, paths)
        if layout.format in ("conllu", "columns"):
            rows = WORDS.read(paths[0], labels=labels, format=layout.format)[0]
            if set(rows.words.flat_values.numpy()) == {b"_"}:
                raise InputError(
                    f"{paths[0]}: every word is '_', because {self.name} is published without its text: put the text "
                    "in as its README says."
                )
            return _Words(rows, labels, paths)
        return _Texts(self, paths, layout, labels)


def _shown(path):
    return path if isinstance(path, str) else " with ".join(path)


class _Words:
    """Sentences of words that were read; like those below it has `labels`, a `summary`, and is `cut` into splits."""

    def __init__(self, rows, labels, paths):
        self.rows, self.labels = rows, labels
        self.summary = f"{os.path.basename(paths[0])}: {len(rows):,} sentences."

    def cut(self, splits):
        return {splits[0]: self.rows}


class _Articles:
    """Questions on articles."""

    how, labels = "articles", ()

    def __init__(self, rows, titles, paths):
        self.rows, self.titles = rows, titles
        self.summary = f"{os.path.basename(paths[0])}: {len(rows):,} questions."

    def cut(self, splits):
        """The last tenth of the articles by a hash of their titles is the last split, and so on."""

        def order(title):
            return hashlib.sha256(f"{_SEED_OF_ARTICLES} {title}".encode()).hexdigest()

        ordered = sorted(set(self.titles), key=order)
        tenth = round(len(ordered) / 10)
        part_of = {title: 0 for title in ordered}
        for part in range(1, len(splits)):
            end = len(ordered) - (len(splits) - 1 - part) * tenth
            part_of.update({title: part for title in ordered[end - tenth : end]})
        parts = np.array([part_of[title] for title in self.titles])
        return {split: self.rows.take(np.flatnonzero(parts == part)) for part, split in enumerate(splits)}


class _Texts:
    """Texts with a label or a score each, numbered, and counts of what was left out."""

    how = "words"

    def __init__(self, task, paths, layout, labels):
        self.task, self.paths, self.found = task, paths, labels is None
        self.index = {name: number for number, name in enumerate(labels or ())}
        self.left_out, self.keys = collections.Counter(), []
        malformed = []
        records = (record for path in paths for record in read_records(path, layout, skipped=malformed))
        self.rows = dataclasses.replace(
            collect(
                records,
                None if layout.label is None else self._number,
                path=paths[0],
                dtype=np.float32 if task.kind == "regression" else np.int32,
            ),
            value_range=task.value_range,
        )
        if malformed:
            self.left_out["malformed"] = len(malformed)
        self.labels = tuple(self._sorted() if self.found else self.index)

    @property
    def summary(self):
        """A sentence with the file's name and its rows, those left out included."""
        left_out = ", ".join(f"{count:,} {reason}" for reason, count in self.left_out.items())
        names = " and ".join(map(os.path.basename, self.paths))
        return f"{names}: {len(self.rows):,} rows" + (f" (left out: {left_out})." if left_out else ".")

    def cut(self, splits):
        if len(splits) == 1:
            return {splits[0]: self.rows}
        if len(self.rows) < FEWEST_ROWS:
            raise InputError(
                f"{self.paths[0]} has {len(self.rows)} usable rows, and at least {FEWEST_ROWS} are needed to split "
                "them: get the file as it was published."
            )
        return {split: self.rows.take(part) for split, part in split_by_key(np.array(self.keys, np.uint64)).items()}

    def _number(self, record):
        """The number of a record's label, or its score; None for a record that is left out."""
        cell = record.label.strip()
        reason = self.task.dropped.get(cell)
        if reason is None and record.text_pair is None and (not record.text or record.text.isspace()):
            reason = "without a text"
        if reason is not None:
            self.left_out[reason] += 1
            return None
        if not cell:
            record.fail("the label is empty; get the file as it was published.")
        self.keys.append(_key(record.text))
        if self.task.kind == "regression":
            try:
                return float(cell)
            except ValueError:
                record.fail(f"the score {cell!r} of {self.task.name} is no number.")
        name = self.task.spellings.get(cell, cell)
        number = self.index.setdefault(name, len(self.index)) if self.found else self.index.get(name)
        if number is None:
            known = ", ".join(map(repr, self.index))
            record.fail(f"the label {cell!r} is not among those of task {self.task.name!r} ({known}).")
        return number

    def _sorted(self):
        """The label names that were found in index order, in which the rows get their numbers."""
        ordered, _ = in_order(self.index)
        position = {name: number for number, name in enumerate(ordered)}
        renumber = np.array([position[name] for name in self.index], np.int32)
        self.rows = dataclasses.replace(self.rows, labels=renumber[self.rows.labels])
        return ordered


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
