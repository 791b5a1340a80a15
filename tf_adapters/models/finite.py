"""Numbers that a file may not hold: NaN and infinity answer a label, and no error."""

import numpy as np

from tf_adapters.errors import InputError


def check_finite(arrays, source):
    """Raise InputError if a weight holds NaN or infinity, also where only float32 cannot hold it.

    Args:
        arrays: dict from name to array.
        source: path of what was read, for the message.
    """
    for name, value in arrays.items():
        with np.errstate(over="ignore"):
            finite = np.isfinite(np.asarray(value, np.float32)).all()
        if not finite:
            raise InputError(f"{source}: {name} holds NaN or infinity (or what float32 cannot hold): train or fetch the weights again.")
