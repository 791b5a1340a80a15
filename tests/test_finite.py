"""Weights that are no numbers are refused by name."""

import numpy as np
import pytest

from tf_adapters.errors import InputError
from tf_adapters.models.weight_files import check_finite


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_weight_that_is_no_number_is_named(dtype, value):
    arrays = {"whole": np.ones(3, dtype), "broken": np.array([[0.0, value]], dtype)}
    with pytest.raises(InputError, match="here: broken holds NaN or infinity"):
        check_finite(arrays, "here")


def test_a_weight_that_float32_cannot_hold_is_refused():
    with pytest.raises(InputError, match="broken"):
        check_finite({"broken": np.array([1e39])}, "here")


def test_finite_weights_of_any_kind_pass():
    arrays = {
        "halves": np.ones(2, np.float16),
        "scalar": np.float32(3),
        "integers": np.arange(3),
        "none": np.zeros((0, 4), np.float32),
    }
    check_finite(arrays, "here")
