"""What a training came to, beside what is reached without one, kept with the adapter."""

import time

from tf_adapters._installation import versions
from tf_adapters.kinds import get_kind
from tf_adapters.saving.directory import keep_result
from tf_adapters.tasks.analysis import class_report
from tf_adapters.tasks.metrics import METRICS

MOST_CLASSES_KEPT = 200


def keep(task, output, held_out):
    """Keep a result in its adapter directory, with what is reached without training.

    Args:
        task: `Task`.
        output: path of the adapter directory.
        held_out: `HeldOut`.

    Returns: `without_training`.
    """
    kind = get_kind(task.kind)
    others = without_training(kind, task, held_out.rows)
    keep_result(output, _result(kind, task, held_out, others))
    return others


def without_training(kind, task, rows):
    """What scores are reached without fine-tuning, a dict of the task's main number by what reaches it."""
    primary, found = METRICS[task.metric].primary, {}
    constant = kind.constant(rows, task.labels)
    if constant is not None:
        found["one constant answer"] = kind.score(task.metric, rows, constant)[primary]
    alone = kind.words_alone(task, rows)
    if alone is not None:
        found[alone[0]] = kind.score(task.metric, rows, alone[1])[primary]
    return found


def _result(kind, task, held_out, others):
    """What the adapter directory keeps of it; no times, by which equal runs would differ."""
    classes = kind.classes(held_out.rows, held_out.outputs)
    few = len(task.labels) <= MOST_CLASSES_KEPT
    return {
        "split": held_out.split,
        "rows": len(held_out.rows),
        "numbers": {name: float(value) for name, value in held_out.numbers.items()},
        "without_training": {what: float(value) for what, value in others.items()},
        "classes": class_report(*classes, task.labels).classes if classes is not None and few else None,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "versions": versions(),
    }
