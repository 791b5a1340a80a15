"""The same LoRA tasks for this package's bank and for PEFT: their weights, and whether the answers agree."""

import numpy as np

TASKS, RANK, ALPHA, TARGETS = 32, 8, 16, ("query", "value")


def task_weights(number, depth, hidden_size):
    """Trained weights of a task.

    Args:
        number: int, the task's.
        depth, hidden_size: ints.

    Returns: dict from `(block, target)` to `A`, `(hidden_size, RANK)`, and `B`, `(RANK, hidden_size)`; and the
        classifier's kernel, `(hidden_size, 2)`, and bias, `(2,)`. float32 arrays.
    """
    random = np.random.default_rng(number)

    def draw(*shape):
        return (random.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)

    sites = [(block, target) for block in range(depth) for target in TARGETS]
    return {site: (draw(hidden_size, RANK), draw(RANK, hidden_size)) for site in sites}, (draw(hidden_size, 2), draw(2))


def names_of(rows):
    """The task of each row of a batch, a list of str."""
    return [f"task{number % TASKS}" for number in range(rows)]


def check_same(answers, tolerance=1e-3):
    """Raise RuntimeError unless arms answered the same.

    Args:
        answers: dict from an arm to the logits of its first batch, lists of rows.

    Returns: the greatest difference, a float.
    """
    values = np.asarray(list(answers.values()))
    difference = float(np.ptp(values, axis=0).max(initial=0.0))
    if not difference <= tolerance:
        raise RuntimeError(f"{' and '.join(answers)} answer otherwise, by {difference:.1g}: they compute other things.")
    return difference
