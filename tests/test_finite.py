"""Weights that are no numbers are refused by name."""

import numpy as np
import pytest

from tests.conftest import is_refused
from tf_adapters.models.weight_files import check_finite


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e39])
def test_a_weight_that_float32_cannot_hold_is_named(value):
    for dtype in (np.float16, np.float32, np.float64):
        with np.errstate(over="ignore"):
            arrays = {"whole": np.ones(3, dtype), "broken": np.array([[0.0, value]]).astype(dtype)}
        is_refused("here: broken holds NaN or infinity", check_finite, arrays, "here")
    finite = {"halves": np.ones(2, np.float16), "scalar": np.float32(3), "integers": np.arange(3)}
    check_finite({**finite, "none": np.zeros((0, 4), np.float32)}, "here")
