"""What acts is what is trained, saved and merged, or that is refused by name."""

import contextlib

import numpy as np
import pytest

from tests.conftest import is_refused, randomize, tiny_model
from tests.whole import assert_same, outputs, picture
from tf_adapters import (
    AdapterConfig,
    InputError,
    LoraConfig,
    add_adapters,
    disable_adapters,
    fit,
    merge_adapter,
    save_adapter,
    set_active,
    set_trainable,
)
from tf_adapters.adapterhub import export_adapter
from tf_adapters.models.injection import merged
from tf_adapters.models.state import state_of
from tf_adapters.training.fit import _checked_state
from tf_adapters.training.run import Run

CONFIG = AdapterConfig(4, init_stddev=0.5, train_layer_norm="encoder")
MODES = ("adapters", "full", "top-1", "layer-norm", "bias", "head")


def model_of(*names, config=CONFIG):
    model = tiny_model(num_hidden_layers=2)
    for seed, name in enumerate(names):
        randomize(add_adapters(model, config, name=name, seed=seed), seed=seed)
    return model


STATES = {
    "disabled": (disable_adapters, "inside disable_adapters"),
    "blocks": (
        lambda model: contextlib.nullcontext(set_active(model, "a", blocks=[1])),
        r"adapter 'a' only those of the blocks \[1\] act: set_active\(model, 'a'\)",
    ),
}


@pytest.mark.parametrize("state", STATES)
def test_what_acts_and_would_not_be_saved_is_neither_trained_nor_written(state, tmp_path):
    enter, message = STATES[state]
    model = model_of("a")
    for mode in ("adapters", "full"):
        set_trainable(model, mode)
        before = picture(model)
        with enter(model):
            for name, write in {
                "fit": lambda: fit(model, None, None, tmp_path / "run", epochs=1, learning_rate=1e-3),
                "save_adapter": lambda: save_adapter(model, tmp_path / "saved"),
                "export_adapter": lambda: export_adapter(model, tmp_path / "hub"),
            }.items():
                is_refused(f"{name} is of .*{message}", write)
        set_active(model, "a")
        assert_same(before, picture(model))
    assert not list(tmp_path.iterdir())


def test_without_adapters_what_acts_is_the_encoder_in_every_context(tmp_path):
    model = set_trainable(model_of(), "full")
    with disable_adapters(model):
        assert _checked_state(model) and save_adapter(model, tmp_path / "saved")


def test_the_encoders_own_weights_do_not_train_beside_a_second_adapter(tmp_path):
    model = model_of("a", "b")
    for mode in MODES:
        set_trainable(model, mode)
        if mode in ("adapters", "layer-norm", "head"):
            assert _checked_state(model)
            continue
        with pytest.raises(InputError, match=rf"own weights train.*'{mode}'.*other adapters \(a\).*remove them first"):
            fit(model, None, None, tmp_path / "run", epochs=1, learning_rate=1e-3)
    state = state_of(set_trainable(model, "adapters"))
    norms = {id(variable) for variable in state.layer_norm_variables(model)}
    kernel = next(variable for variable in state.backbone_variables(model) if id(variable) not in norms)
    kernel.assign_add(np.ones_like(kernel))
    is_refused("or were changed", fit, model, None, None, tmp_path / "run", epochs=1, learning_rate=1e-3)


def test_only_the_blocks_that_act_are_merged():
    model = model_of("a", config=LoraConfig(rank=2))
    whole = outputs(model)
    set_active(model, "a", blocks=[1])
    acts = outputs(model)
    assert np.abs(whole - acts).max() > 1e-2
    with merged(model):
        np.testing.assert_allclose(outputs(model), acts, atol=1e-5)
    with disable_adapters(model), merged(model):
        assert not np.allclose(outputs(model), acts, atol=1e-2)
    merge_adapter(model)
    np.testing.assert_allclose(outputs(model), acts, atol=1e-5)


def test_a_row_of_the_log_has_the_columns_of_its_header(tmp_path):
    run = Run.__new__(Run)
    run.output, run.log_bytes, run.writer = tmp_path, 0, None
    run._log({"epoch": 1, "validation_accuracy": 0.5})
    run._log({"epoch": 2, "validation_f1": 0.25})
    assert (tmp_path / "log.csv").read_bytes().splitlines() == [b"epoch,validation_accuracy", b"1,0.5", b"2,"]
