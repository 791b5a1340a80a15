"""Numbers that settings may have: the same for the Python functions and the command line."""

import inspect
import math

import numpy as np
import pytest

import tf_adapters
from tests.conftest import is_refused
from tf_adapters.ranges import LEAST_FLOAT, MOST_FLOAT, RANGES, Whole, check_seeds, checked, is_real
from tf_adapters.training.settings import TrainingSettings

BEYOND = [math.nan, math.inf, -math.inf, 1e300, 10**400, 1e-320, -1e-320, True, "1", None, 1j, [1]]


@pytest.mark.parametrize("name", RANGES)
def test_nothing_that_float32_cannot_hold_is_in_a_range(name):
    for value in [*BEYOND, -1, *([0.5, 2**64, np.float32(2)] if isinstance(RANGES[name], Whole) else [])]:
        is_refused(f"^{name}=.* must be ", checked, name, value)


def test_bounds_are_those_of_float32():
    for value in (LEAST_FLOAT, MOST_FLOAT, -MOST_FLOAT, 0, 0.0, np.float32(1e-3), 7):
        assert is_real(value)
        assert np.isfinite(np.float32(value)) and (np.float32(value) == 0) == (value == 0)
    assert not is_real(math.nextafter(LEAST_FLOAT, 0)) and not is_real(math.nextafter(MOST_FLOAT, math.inf))
    # 1 in float32, whose dropout would keep nothing.
    assert np.float32(1 - 1e-9) == 1
    is_refused("dropout=0.999999999 must be a number of at least 0 and below 1", checked, "dropout", 1 - 1e-9)
    assert checked("dropout", 0.9999999) == 0.9999999


def test_values_become_plain_numbers():
    """Which JSON can hold."""
    assert type(checked("epochs", np.int64(3))) is int and type(checked("learning_rate", np.float32(0.5))) is float
    config = tf_adapters.AdapterConfig(bottleneck_size=np.int32(4), dropout=np.float32(0.5))
    assert (type(config.bottleneck_size), type(config.dropout)) == (int, float)


def test_the_last_seed_is_named():
    check_seeds(2**32 - 2, 2)
    is_refused(
        "seeds=3 from 4294967294 on are more than there are: the last seed is 4294967295", check_seeds, 2**32 - 2, 3
    )


@pytest.mark.parametrize("function", ["fit", "pretrain"])
def test_functions_check_every_number_before_they_look_at_the_model(function):
    function = getattr(tf_adapters, function)
    parameters = inspect.signature(TrainingSettings if function is tf_adapters.fit else function).parameters
    usual = {"output": "nowhere", "learning_rate": 1e-3, "epochs": 1, "steps": 1, "save_every": 1}
    usual = {"output": "nowhere"} | {name: value for name, value in usual.items() if name in parameters}
    if function is tf_adapters.fit:
        del usual["steps"]
    numbers = [name for name in parameters if name in RANGES]
    assert len(numbers) > 5
    for name in numbers:
        for value in (-1, math.nan, 1e300, "1", *([] if parameters[name].default is None else [None])):
            is_refused(f"^{name}=", function, None, None, None, **{**usual, name: value})
    # Settings of `fit` too.
    is_refused("^weight_decay=nan must be", function, None, None, None, **{**usual, "weight_decay": math.nan})


def test_configurations_and_layers_check_theirs():
    for make in (
        lambda value: tf_adapters.AdapterConfig(scaling=value),
        lambda value: tf_adapters.methods.AdapterLayer(value),
        lambda value: tf_adapters.methods.AdapterLayer(4, dropout=value),
        lambda value: tf_adapters.LoraConfig(alpha=value),
        lambda value: tf_adapters.methods.FusionConfig({}, value_regularization=value),
    ):
        for value in (math.nan, math.inf, 1e300, 1e-320, 2.0**200):
            is_refused(" must be ", make, value)
