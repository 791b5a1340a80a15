"""Numbers that a file may not hold: NaN and infinity answer a label, and no error."""

import ml_dtypes
import numpy as np

from tf_adapters.errors import InputError


def check_finite(arrays, source, *, dtype="float32"):
    """Raise InputError if a weight holds NaN or infinity, also where only the dtype cannot hold it.

    Args:
        arrays: dict from name to array.
        source: path of what was read, for the message.
        dtype: str, that of the variables that are to hold it.
    """
    # A float of Python would be cast to the array's own dtype, and float16 has infinity for what float32 holds.
    largest = np.float64(ml_dtypes.finfo(dtype).max)
    for name, value in arrays.items():
        if not (np.abs(value) <= largest).all():
            what = "NaN or infinity (or what float32 cannot hold): train or fetch the weights again"
            raise InputError(
                f"{source}: {name} holds "
                f"{what if dtype == 'float32' else f'numbers beyond what {dtype} holds: store it as float32'}."
            )
