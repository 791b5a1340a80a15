"""Tasks by name. A new task is a row of `tasks.catalogue`."""

import dataclasses
import difflib
import importlib.util
from typing import Optional

from tf_adapters._types import PathLike
from tf_adapters.errors import InputError
from tf_adapters.paths import to_path
from tf_adapters.tasks.catalogue import OTHERS, ROTTEN_TOMATOES, treebank, wikiann
from tf_adapters.tasks.glue import GLUE
from tf_adapters.tasks.own_files import metric_of
from tf_adapters.tasks.rows import Task
from tf_adapters.tasks.tfds_reader import find_builder, import_tfds, read_splits

TASKS = {task.name: task for task in (ROTTEN_TOMATOES, *GLUE, *OTHERS)}
# Tasks of which there are too many to list: what follows the prefix makes one.
FAMILIES = {"ud/": treebank, "ner/wikiann-": wikiann}


def load_task(
    name: str,
    *,
    data_dir: Optional[PathLike] = None,
    text_column: Optional[str] = None,
    text_pair_column: Optional[str] = None,
    label_column: Optional[str] = None,
    metric: Optional[str] = None,
    validation_split: str = "validation",
) -> Task:
    """A task by its name.

    Args:
        name: "rotten-tomatoes", "glue/sst2" and the other names in `TASKS`, or a
            name of TensorFlow Datasets ("imdb_reviews"), whose text and label
            columns are found.
        data_dir: folder with the task's files; for GLUE and other TensorFlow Datasets
            the one where they are prepared, by default tensorflow_datasets' own.
        text_column, text_pair_column, label_column: columns of a TensorFlow
            Datasets name that is not in `TASKS`, where those found do not serve.
        metric: name in `tasks.metrics.METRICS` of what chooses the best epoch, or None for the task's own.
        validation_split: the split on whose rows it does, such as "validation_mismatched" of glue/mnli.

    Returns: `Task`. Its splits are the same in every run and on every machine.

    Raises: InputError, if there is no such task, or its data cannot be had.
    """
    columns = {"text_column": text_column, "text_pair_column": text_pair_column, "label_column": label_column}
    splits = _load(name, ("train", validation_split, "test"), data_dir=data_dir, **columns)
    for split in ("train", validation_split):
        _check_has(splits, split, name, "use load_split for the splits that it has.")
    return Task(
        name=name,
        kind=splits.kind,
        labels=splits.labels,
        metric=metric_of(splits.kind, metric, splits.labels) if metric else splits.metric,
        train=splits.rows["train"],
        validation=splits.rows[validation_split],
        test=splits.rows.get("test"),
        source=splits.source,
    )


def check_task(name, *, data_dir=None):
    """Raise InputError if a package is missing that a task needs, which is known without reading rows or TensorFlow."""
    task = _named(name)
    if task is not None:
        task.check(data_dir)
    elif importlib.util.find_spec("tensorflow_datasets") is None and _builder_or_none(name, data_dir) is None:
        raise InputError(_unknown(name))


def load_split(name, split, *, data_dir=None, **columns):
    """One split of a task, such as "train" or "validation_mismatched" of glue/mnli, without reading the others (to
    evaluate): `Splits`, whose `rows` are those of the split. Args and Raises: as of `load_task`."""
    splits = _load(name, (split,), data_dir=data_dir, **columns)
    _check_has(splits, split, name, "use train, validation or test (if it has one).")
    return dataclasses.replace(splits, rows=splits.rows[split])


def _check_has(splits, split, name, advice):
    if split not in splits.rows:
        raise InputError(f"Task {name!r} has no split {split!r}: {advice} {splits.source}".strip())


def _load(name, splits, *, data_dir, **columns):
    data_dir = data_dir and to_path(data_dir)
    task = _named(name)
    if task is not None:
        for argument, column in columns.items():
            if column is not None:
                raise InputError(f"{argument} is {column!r}, but the columns of task {name!r} are fixed: leave it out.")
        return task.load(splits, data_dir=data_dir)
    builder = _builder_or_none(name, data_dir)
    if builder is None:
        raise InputError(_unknown(name))
    return read_splits(builder, splits, name=name, **columns)


def _named(name):
    """The `NamedTask` in `TASKS` or of `FAMILIES`, or None."""
    if name in TASKS:
        return TASKS[name]
    prefix = next((prefix for prefix in FAMILIES if name.startswith(prefix)), None)
    return None if prefix is None else FAMILIES[prefix](name.removeprefix(prefix))


def _is_listed(name):
    return name.lower().partition("/")[0] in {task.partition("/")[0] for task in TASKS}


def _builder_or_none(name, data_dir):
    # Another spelling of a listed data set would be read without its metric and columns.
    if _is_listed(name):
        return None
    try:
        import_tfds()
    except InputError:
        # A mistyped name must not be answered with what to install.
        if difflib.get_close_matches(name, TASKS, n=1):
            return None
        raise
    return find_builder(name, data_dir=data_dir)


def _unknown(name):
    names = list(TASKS)
    try:
        others = import_tfds().list_builders(with_community_datasets=False)
        names += [other for other in others if not _is_listed(other)]
    except InputError:
        pass
    close = difflib.get_close_matches(name.lower(), names, n=3)
    meant = f" (did you mean {' or '.join(repr(match) for match in close)}?)" if close else ""
    groups = dict.fromkeys(task.partition("/")[0] + "/..." if "/" in task else task for task in TASKS)
    return (
        f"There is no task {name!r}{meant}: the tasks are {', '.join(groups)} (`tf-adapters tasks` lists them), "
        "and the names of TensorFlow Datasets such as imdb_reviews."
    )
