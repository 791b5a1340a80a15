"""Texts alone, for pretraining on a task's own texts."""

import os

import numpy as np

from tf_adapters.errors import InputError
from tf_adapters.paths import to_path
from tf_adapters.tasks.files import read_rows
from tf_adapters.tasks.lines import dialect_of
from tf_adapters.tasks.rows import Rows, Task

KIND, METRIC = "masked-lm", "perplexity"
# Of texts without a validation file.
HELD_OUT_SHARE, MOST_HELD_OUT = 20, 1000


def check_has_task(kind):
    """Raise InputError for the kind of a directory that `pretrain` wrote, which predicts nothing yet."""
    if kind == KIND:
        raise InputError(
            "This directory was pretrained on texts and knows no task yet: `tf-adapters train "
            "--from-pretrained-adapter` goes on with it."
        )


def without_labels(task):
    """The training and validation texts of a task, a `Task` of the kind "masked-lm"; sentences of words are joined by
    spaces, and of questions each context and each question is a text."""
    train, validation = (rows.plain() for rows in (task.train, task.validation))
    return Task(
        name=task.name, kind=KIND, labels=(), metric=METRIC, train=train, validation=validation, source=task.source
    )


def texts_from_files(
    *,
    train,
    validation=None,
    text_column=None,
    text_pair_column=None,
    format=None,
    encoding=None,
    header="first",
    delimiter=None,
    bad_rows=None,
    seed=0,
):
    """Texts from CSV, TSV, JSON lines, or plain text with one in a line, as a `Task` of the kind "masked-lm".

    Args:
        train, validation: paths; without the second, a twentieth of the first, at most 1,000 texts that the seed draws,
            is held out.
        text_column, text_pair_column, format, encoding, header, delimiter, bad_rows: as in `task_from_files`.
        seed: int.

    Raises: InputError, naming file, line and fix, for anything unusable; fewer than two texts.
    """
    columns = dict(text_column=text_column or "text", text_pair_column=text_pair_column, label_column=None)

    dialect = dialect_of(encoding, header, delimiter)

    def read(path):
        table = read_rows(to_path(path), **columns, format=format, bad_rows=bad_rows, dialect=dialect)
        return Rows(table.text, table.text_pair)

    rows, shown = read(train), os.path.basename(os.fspath(train))
    if validation is not None:
        source = f"The user's files: train {shown}, validation {os.path.basename(os.fspath(validation))}."
        return Task(
            name="files", kind=KIND, labels=(), metric=METRIC, train=rows, validation=read(validation), source=source
        )
    count = min(MOST_HELD_OUT, -(-len(rows) // HELD_OUT_SHARE))
    if count >= len(rows):
        raise InputError(
            f"{{train}} has {len(rows)} text(s), of which none can be held out: give more, or validation.",
            train=str(train),
        )
    order = np.random.RandomState(seed).permutation(len(rows))
    held_out, rest = (rows.take(np.sort(part)) for part in (order[:count], order[count:]))
    source = f"The user's file {shown}, of whose {len(rows)} texts {count} were held out."
    return Task(name="files", kind=KIND, labels=(), metric=METRIC, train=rest, validation=held_out, source=source)
