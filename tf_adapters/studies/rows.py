"""The rows that studies train on, choose by, and report."""

import dataclasses

from tf_adapters.errors import NAME, InputError
from tf_adapters.paths import to_path
from tf_adapters.tasks.analysis import language_of
from tf_adapters.tasks.own_files import metric_of, task_from_files
from tf_adapters.tasks.rows import sample_rows

# Of a task without a labelled test split, at most a fifth of the training rows chooses the epoch.
VALIDATION_SHARE = 5

# The latest task, by its name and folder.
LOADED = {}


def load(name, data_dir, metric=None):
    """A task by its name, or of the files in a folder, perhaps with another metric; the latest stays in memory."""
    if (name, data_dir) not in LOADED:
        LOADED.clear()
        LOADED[name, data_dir] = _read(name, data_dir)
    task = LOADED[name, data_dir]
    return task if metric is None else dataclasses.replace(task, metric=metric_of(task.kind, metric, task.labels))


def _read(name, data_dir):
    from tf_adapters.tasks.registry import load_task

    folder = to_path(name)
    if not folder.is_dir():
        return load_task(name, data_dir=data_dir)
    files = {}
    for split in ("train", "validation", "test"):
        found = sorted(path for path in folder.glob(f"{split}.*") if path.suffix in (".csv", ".tsv", ".jsonl"))
        if found:
            files[split] = found[0]
        elif split != "test":
            raise InputError(
                f"{{tasks}}: {folder} has no {split}.csv, .tsv or .jsonl: put one there, with columns text and label.",
                tasks=name,
            )
    return dataclasses.replace(task_from_files(**files), name=str(name))


def held_out(task, *, rows, validation_rows, reported_rows, seed):
    """`(Task at the study's budget, labelled rows to report on)`, as `Comparison` says."""
    if task.test is not None and task.test.labels is not None:
        train = task.train if rows is None else sample_rows(task.train, count=rows, seed=seed)
        validation = sample_rows(task.validation, count=validation_rows, seed=seed)
        data = dataclasses.replace(task, train=train, validation=validation, test=None)
    else:
        chosen = min(validation_rows, len(task.train) // VALIDATION_SHARE)
        rest = len(task.train) - chosen
        data = _of_train(task, seed, chosen, chosen + (rest if rows is None else min(rows, rest)), first="validation")
    return data, _reported(task, reported_rows)


def few_rows(task, count, validation_rows, reported_rows, seed):
    """`(Task of so many training rows, labelled rows to report)`, all validation rows from the training split."""
    available = len(task.train)
    if count < 1 or count + validation_rows > available:
        raise InputError(
            f"{{counts}}: {task.name} has {available:,} training rows, of which {validation_rows:,} choose the epoch: "
            f"give at least one row, and at most {available - validation_rows:,}.",
            counts=count,
        )
    return _of_train(task, seed, count, count + validation_rows, first="train"), _reported(task, reported_rows)


def _of_train(task, seed, count, end, *, first):
    """A task whose training and validation rows are drawn from its training rows: the `first` of them up to `count`,
    the other from there to `end`."""
    import numpy as np

    # RandomState's stream is frozen by NumPy.
    order = np.random.RandomState(seed).permutation(len(task.train))
    parts = [task.train.take(np.sort(order[:count])), task.train.take(np.sort(order[count:end]))]
    train, validation = parts if first == "train" else parts[::-1]
    return dataclasses.replace(task, train=train, validation=validation, test=None)


def _reported(task, most):
    labelled = task.test is not None and task.test.labels is not None
    rows = task.test if labelled else task.validation
    return rows if most is None else sample_rows(rows, count=most, seed=0)


def splits_of(names, split, data, data_dir):
    """The rows of a split of tasks of other languages, a dict by the tasks' names; InputError if one has other labels
    than the `Task` that trains."""
    from tf_adapters.tasks.registry import load_split

    splits = {name: load_split(name, split, data_dir=data_dir) for name in names}
    for name, found in splits.items():
        if (found.kind, tuple(found.labels)) != (data.kind, tuple(data.labels)):
            raise InputError(f"{{others}}: {name} has other labels than {data.name}: leave it out.", others=[*names])
    return {name: found.rows for name, found in splits.items()}


def joined(rows):
    """The rows of several splits as one."""
    import numpy as np
    import tensorflow as tf

    first = rows[0]
    if len(rows) == 1:
        return first
    if hasattr(first, "questions"):
        raise InputError("{others}: questions of several tasks cannot be joined: give one of a language.", others=NAME)
    if hasattr(first, "words"):
        parts = {name: tf.concat([getattr(part, name) for part in rows], 0) for name in ("words", "labels")}
        return dataclasses.replace(first, **parts)
    index = [np.arange(len(part)) for part in rows]
    texts = zip(*(part.texts(of_part) for part, of_part in zip(rows, index)))
    text, pair = (None if parts[0] is None else tf.concat(parts, 0) for parts in texts)
    return dataclasses.replace(first, text=text, text_pair=pair, labels=np.concatenate([part.labels for part in rows]))


def by_language(rows):
    """Dict from a language to the rows of its tasks, which are joined; a task whose name has none stands for itself."""
    found = {}
    for task, of_task in rows.items():
        found.setdefault(language_of(task) or task, []).append(of_task)
    return {language: joined(parts) for language, parts in found.items()}
