"""Rows that are set aside of a file, where no other file has them."""

import numpy as np

from tf_adapters.errors import InputError

# Of all rows, for each of validation and test.
SHARE = 0.1


def set_aside(rows, kind, shares, *, seed):
    """Draw rows that are not trained on, stratified where a row has one label.

    Each class keeps its share in every part, and a row to train on at least; numbers are spread evenly. Questions about
    one context stay together. What is drawn depends on seed, labels and shares alone, on every machine and NumPy
    version.

    Args:
        rows: `Rows`, or the rows of another kind of task.
        kind: str, of the task.
        shares: dict from the name of a part to its share of all rows, above 0 and below 1.
        seed: int, 0 to 2**32 - 1.

    Returns: dict from "train" and those names to the indices of their rows, ascending int64 arrays.

    Raises:
        InputError: a share, or their sum, is out of range; or there are too few rows.
    """
    for name, share in shares.items():
        if not 0 < share < 1:
            raise InputError(
                f"{{{name}}} must be a share between 0 and 1, such as {SHARE}, or a file.", **{name: share}
            )
    if sum(shares.values()) >= 1:
        names = " and ".join(f"{{{name}}}" for name in shares)
        raise InputError(f"{names} leave no rows to train on: together they must be below 1.", **shares)
    random = np.random.RandomState(seed)  # whose stream is frozen by NumPy
    units, of_row = np.arange(len(rows)), None
    if hasattr(rows, "context_of"):
        units, of_row = np.unique(rows.context_of, return_inverse=True)
    order, held_back = _in_strata(rows.labels if kind in ("classification", "regression") else None, len(units), random)
    if kind != "classification":
        held_back[:] = False
    left, parts = order[~held_back[order]], {}
    for name, share in shares.items():
        count = round(share * len(units))
        if not 0 < count < len(left):
            raise InputError(
                f"{{{name}}}: {len(units):,} {'rows' if of_row is None else 'contexts'} are too few to set a share of "
                f"{share:g} aside: give a file of rows, or a larger share.",
                **{name: share},
            )
        # Evenly from an order in which classes are together, so that each gives its share.
        chosen = np.zeros(len(left), bool)
        chosen[np.floor((np.arange(count) + random.uniform()) * len(left) / count).astype(int)] = True
        parts[name], left = left[chosen], left[~chosen]
    taken = np.zeros(len(units), bool)
    for chosen in parts.values():
        taken[chosen] = True
    parts["train"] = np.flatnonzero(~taken)
    if of_row is None:
        return {name: np.sort(chosen) for name, chosen in parts.items()}
    return {name: np.flatnonzero(np.isin(of_row, chosen)) for name, chosen in parts.items()}


def _in_strata(labels, count, random):
    """An order of all rows, in which those of a class are together, or numbers ascend; and which rows are the first of
    their class there."""
    order = random.permutation(count)
    first = np.zeros(count, bool)
    if labels is not None:
        order = order[np.argsort(labels[order], kind="stable")]
        _, starts = np.unique(labels[order], return_index=True)
        first[order[starts]] = True
    return order, first
