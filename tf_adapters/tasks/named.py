"""A named task in files as they were published: what is where, in which layout, with whose labels and whose split."""

import collections
import dataclasses
import glob
import hashlib
import os
import re
from typing import Any, Callable, Mapping, NamedTuple, Optional, Tuple, Union

import numpy as np

from tf_adapters.errors import NAME, InputError
from tf_adapters.tasks.labels import in_order
from tf_adapters.tasks.layouts import Layout, collect, read_records
from tf_adapters.tasks.lines import fail
from tf_adapters.tasks.own_files import READERS, Reading
from tf_adapters.tasks.rows import Splits
from tf_adapters.tasks.spans import read_squad

SPLITS = ("train", "validation", "test")
#: The splits of a file that has no official one.
ALL = " ".join(SPLITS)
FEWEST_ROWS = 10
_SEED = "tf_adapters split 80/10/10 1\n"
_SEED_OF_ARTICLES = "squad 1"
_HOW = {
    "words": "They are split 80/10/10 by a fixed hash of their words, equal texts together.",
    "articles": "A tenth of the articles is held out for each further split by a fixed hash of their titles.",
    "classes": "They are split 80/10/10 within each class by a fixed hash.",
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
            looked_for = dict.fromkeys(_shown(path) for files in self.places for path in files.of.values())
            raise InputError(
                f"Task {self.name!r} has no files in {os.fspath(data_dir or '.')}: give the folder that holds "
                f"{' or '.join(looked_for)} as {{data_dir}}. Origin: {self.origin}",
                data_dir=NAME,
            )
        rows, said, how = {}, [], "official"
        # The training rows first: they may define the labels.
        for of in sorted(found, key=lambda of: not of.startswith("train")):
            parts = of.split()
            asked = set(parts) & set(splits)
            if not asked and (labels is not None or "train" not in parts):
                continue
            read = self._read(*found[of], labels)
            labels = read.labels
            if len(parts) > 1:
                how, chosen = read.how, read.split(parts) if asked else {}
                rows |= {split: read.rows.take(chosen[split]) for split in parts if split in asked}
            elif asked:
                rows[of] = read.rows
            said += [read.summary] if asked else []
        looked_for = {}
        for files in self.places:
            looked_for |= {of: path for of, path in files.of.items() if of not in looked_for}
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

    def check(self, data_dir):
        """Raise InputError if a package is missing that the task needs, which is known without reading rows."""

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

    def _read(self, paths, layout, labels):
        """The rows of a file, or of several that make one, a `_Read`; `labels` as the task's attribute."""
        name = os.path.basename(paths[0])
        if layout.format == "squad":
            rows, titles = read_squad(paths[0], Reading(), labelled=True)
            return _Read(
                rows, (), f"{name}: {len(rows):,} questions.", "articles", lambda parts: _articles(titles, parts)
            )
        if layout.format in ("conllu", "columns"):
            rows = READERS[self.kind].read(paths[0], labels=labels, format=layout.format)[0]
            if set(rows.words.flat_values.numpy()) == {b"_"}:
                raise InputError(
                    f"{paths[0]}: every word is '_', because {self.name} is published without its text: put the text "
                    "in as its README says."
                )
            return _Read(rows, labels, f"{name}: {len(rows):,} sentences.")
        return self._read_texts(paths, layout, labels)

    def _read_texts(self, paths, layout, labels):
        """Texts with a label or a score each, numbered; the summary counts what was left out."""
        index = {name: number for number, name in enumerate(labels or ())}
        left_out, keys, malformed = collections.Counter(), [], []

        def number_of(record):
            """The number of a record's label, or its score; None for a record that is left out."""
            cell = record.label.strip()
            reason = self.dropped.get(cell)
            if reason is None and record.text_pair is None and (not record.text or record.text.isspace()):
                reason = "without a text"
            if reason is not None:
                left_out[reason] += 1
                return None
            if not cell:
                fail(record.path, record.line, "the label is empty; get the file as it was published.")
            keys.append(_key(record.text))
            if self.kind == "regression":
                try:
                    return float(cell)
                except ValueError:
                    fail(record.path, record.line, f"the score {cell!r} of {self.name} is no number.")
            name = self.spellings.get(cell, cell)
            number = index.setdefault(name, len(index)) if labels is None else index.get(name)
            if number is None:
                known = ", ".join(map(repr, index))
                problem = f"the label {cell!r} is not among those of task {self.name!r} ({known})."
                fail(record.path, record.line, problem)
            return number

        def split(parts):
            if len(keys) < FEWEST_ROWS:
                raise InputError(
                    f"{paths[0]} has {len(keys)} usable rows, and at least {FEWEST_ROWS} are needed to split them: "
                    "get the file as it was published."
                )
            return split_by_key(np.array(keys, np.uint64))

        rows = collect(
            (record for path in paths for record in read_records(path, layout, skipped=malformed)),
            None if layout.label is None else number_of,
            path=paths[0],
            dtype=np.float32 if self.kind == "regression" else np.int32,
        )
        if labels is None:
            labels, _ = in_order(index)
            numbers = np.array([labels.index(name) for name in index], np.int32)
            rows = dataclasses.replace(rows, labels=numbers[rows.labels])
        left_out["malformed"] = len(malformed)
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in left_out.items() if count)
        summary = f"{' and '.join(map(os.path.basename, paths))}: {len(rows):,} rows"
        summary += f" (left out: {reasons})." if reasons else "."
        return _Read(dataclasses.replace(rows, value_range=self.value_range), tuple(labels), summary, "words", split)


class _Read(NamedTuple):
    """What was read of a file: its rows, label names, a sentence with its name and how many rows, and, of files that
    can be cut into several splits, by what of `_HOW`, and a function of these that returns each one's indices."""

    rows: Any
    labels: Tuple[str, ...]
    summary: str
    how: Optional[str] = None
    split: Optional[Callable] = None


def _shown(path):
    return path if isinstance(path, str) else " with ".join(path)


def _articles(titles, splits):
    """Indices of the rows of each split, by the titles of their articles: the last tenth of these by a hash is the last
    split, and so on."""

    def order(title):
        return hashlib.sha256(f"{_SEED_OF_ARTICLES} {title}".encode()).hexdigest()

    ordered = sorted(set(titles), key=order)
    tenth = round(len(ordered) / 10)
    cuts = [len(ordered) - number * tenth for number in range(len(splits) - 1, 0, -1)]
    parts = [set(part) for part in np.split(np.array(ordered, object), cuts)]
    return {split: np.flatnonzero([title in part for title in titles]) for split, part in zip(splits, parts)}


def split_by_key(keys):
    """Ascending indices of train, validation and test, a dict, 80/10/10, where equal `keys`, a uint64 array `(rows,)`,
    are never parted."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    cuts = [np.searchsorted(ordered, ordered[int(len(keys) * share) - 1], side="right") for share in (0.8, 0.9)]
    return {split: np.sort(part) for split, part in zip(SPLITS, np.split(order, cuts))}


def _key(text):
    """64 bits of a hash of the text's words; of the text itself, if it has none."""
    words = " ".join(re.findall(r"\w+", re.sub(r"https?://\S+", " ", text.casefold())))
    content = _SEED + (words or text)
    return int.from_bytes(hashlib.sha256(content.encode("utf-8", "replace")).digest()[:8], "big")
