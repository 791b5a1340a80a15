"""The low-resource protocol of He et al. 2021, section 3.2."""

import dataclasses

import numpy as np

from tf_adapters.errors import InputError
from tf_adapters.ranges import in_range

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
