"""What Keras itself saves of a model with adapters comes back with them, or is refused."""

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import tiny_inputs, tiny_model
from tests.families import family_model
from tests.whole import outputs, train
from tf_adapters import AdapterConfig, add_adapters, remove_adapters
from tf_adapters._keras import keras

CONFIG = AdapterConfig(4, init_stddev=0.3)


def functional(model):
    """A user's own Keras model on the encoder of a transformers model."""
    ids = keras.Input((None,), dtype=tf.int32, name="ids")
    return keras.Model(ids, keras.layers.Dense(2)(getattr(model, model.base_model_prefix)(ids)[0][:, 0]))


@pytest.mark.nightly
@pytest.mark.parametrize("family, fast", [("bert", True), ("bert", False), ("distilbert", False)])
def test_a_functional_model_on_an_encoder_with_adapters_comes_back_with_them(family, fast, tmp_path):
    model = tiny_model("none", num_hidden_layers=2) if family == "bert" else family_model(family, "none")
    train(add_adapters(model, CONFIG, seed=0, fast=fast))
    own, ids = functional(model), tiny_inputs()["input_ids"] % 16
    own.save(tmp_path / "saved")
    loaded = keras.models.load_model(tmp_path / "saved")
    np.testing.assert_allclose(loaded(ids), own(ids), atol=1e-5)


@pytest.mark.parametrize("file", ["model.keras", "model.h5"])
def test_formats_that_would_lose_the_adapters_are_refused(file, tmp_path):
    model = tiny_model("none", num_hidden_layers=2)
    train(add_adapters(model, CONFIG, seed=0))
    for own in (functional(model), *([model] if file.endswith("keras") else [])):
        with pytest.raises(NotImplementedError, match="save_adapter"):
            own.save(tmp_path / file)
    remove_adapters(model)
    functional(model).save(tmp_path / file)


@pytest.mark.nightly
def test_a_whole_model_comes_back_from_a_saved_model_with_its_adapters(tmp_path):
    model = train(add_adapters(tiny_model(num_hidden_layers=2), CONFIG, seed=0))
    model.save(tmp_path / "saved")
    np.testing.assert_allclose(
        keras.models.load_model(tmp_path / "saved")(dict(tiny_inputs()))["logits"], outputs(model), atol=1e-5
    )
