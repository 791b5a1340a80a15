"""A task from the user's own files."""

import os
from typing import TYPE_CHECKING, Optional

from tf_adapters._types import PathLike
from tf_adapters.tasks.readers import get_reader, metric_of
from tf_adapters.tasks.rows import Task

if TYPE_CHECKING:
    from tf_adapters.tasks.files import BadRows


def task_from_files(
    *,
    train: PathLike,
    validation: PathLike,
    test: Optional[PathLike] = None,
    text_column: Optional[str] = None,
    text_pair_column: Optional[str] = None,
    label_column: Optional[str] = None,
    kind: str = "classification",
    metric: Optional[str] = None,
    label_separator: str = "|",
    format: Optional[str] = None,
    bad_rows: "Optional[BadRows]" = None,
) -> Task:
    """A task from CSV, TSV or JSON lines files (see `tasks.files`), or from the files of other kinds of tasks.

    The training file defines the labels: numbers sorted by value, anything else
    by code point. For F1 the second of two labels is the positive one.

    Args:
        train, validation, test: str or path-like; test may be None.
        text_column, text_pair_column, label_column: str, columns or JSON keys,
            the same in all files; None for the kind's usual ones, which are "text",
            no pair, and "label" in tables of sentences.
        kind: "classification", "regression", "multi-label", "token-classification" (see
            `tasks.words`), "question-answering" (see `tasks.squad`) or "multiple-choice" (see `tasks.choices`).
        metric: name in `tasks.metrics.METRICS`, or None for the kind's usual one.
        label_separator: str between the labels of a multi-label cell.
        format: "csv", "tsv" or "jsonl", or another of the kind's formats, in place of the files' extensions.
        bad_rows: `files.BadRows` that counts unusable rows, which are then left out, or None.

    Returns: `Task` with name "files".

    Raises: InputError, naming file, line and fix, for anything unusable.
    """
    metric_of(kind, metric)
    reading = {
        "kind": kind,
        "text_column": text_column,
        "text_pair_column": text_pair_column,
        "label_column": label_column,
        "label_separator": label_separator,
        "format": format,
        "bad_rows": bad_rows,
    }
    rows, labels = get_reader(kind).read(train, labels=None, **reading)
    metric = metric_of(kind, metric, labels)
    splits = {"train": rows}
    for split, path in (("validation", validation), ("test", test)):
        if path is not None:
            splits[split] = rows_from_file(path, labels=labels, **reading)
    paths = {"train": train, "validation": validation, "test": test}
    source = ", ".join(
        f"{split} {os.path.basename(os.fspath(paths[split]))} ({len(splits[split])} rows)" for split in splits
    )
    if bad_rows is not None and bad_rows.count:
        source += f"; {bad_rows.count} unusable rows were left out"
    return Task(name="files", kind=kind, labels=labels, metric=metric, source=f"The user's files: {source}.", **splits)


def rows_from_file(path, *, kind, labels, **reading):
    """The labelled rows of one file, for labels that are already known (to evaluate).

    Args:
        labels: label names in index order; empty where the kind has none.
        kind and others: as in `task_from_files`.

    Returns: the kind's rows, such as `Rows`.

    Raises: InputError, for anything unusable, a label that is not in `labels` included.
    """
    return get_reader(kind).read(path, kind=kind, labels=labels, **reading)[0]


def unlabelled_chunks(path, *, kind, text_column=None, text_pair_column=None, chunk_rows=1024, format=None):
    """Yield a file's rows in chunks, to predict, never holding more than one.

    Each chunk has a method `rows()`, which needs TensorFlow; the reading does not. The file's
    first mistakes are found at the first `next`.

    Args:
        kind: as in `task_from_files`.
        text_column, text_pair_column: columns or JSON keys; None for the kind's usual ones.
        chunk_rows: int, at least 1.
        format: in place of the extension's.

    Raises: InputError, naming file, line and fix, for anything unusable.
    """
    return get_reader(kind).chunks(
        path, text_column=text_column, text_pair_column=text_pair_column, chunk_rows=chunk_rows, format=format
    )
