"""Whole models with adapters, as Keras and transformers write them, are refused; weights and exports are not."""

import copy
import pickle

import numpy as np
import pytest
import tensorflow as tf

from tests.cases import nightly_but
from tests.conftest import randomize, tiny_inputs, tiny_model
from tests.families import family_model
from tests.whole import outputs
from tf_adapters import (
    AdapterConfig,
    LoraConfig,
    add_adapters,
    disable_adapters,
    merge_adapter,
    remove_adapters,
    set_trainable,
)
from tf_adapters._keras import keras
from tf_adapters.models.keras_files import REFUSAL

BOTTLENECK = AdapterConfig(4, init_stddev=0.3)
# How Keras and transformers write or copy a whole model.
WAYS = {
    "keras": lambda model, path: model.save(f"{path}.keras"),
    "h5": lambda model, path: model.save(f"{path}.h5"),
    "saved_model": lambda model, path: model.save(path),
    "function": lambda model, path: keras.models.save_model(model, f"{path}.keras"),
    "save_pretrained": lambda model, path: model.save_pretrained(path),
    "push_to_hub": lambda model, path: model.push_to_hub(path),
    "config": lambda model, path: model.get_config(),
    "clone": lambda model, path: keras.models.clone_model(model),
    "json": lambda model, path: model.to_json(),
    "copy": lambda model, path: copy.deepcopy(model),
    "pickle": lambda model, path: pickle.dumps(model),
}
# Those that are tried of what is around a model; the configuration of a model of one's own has no weights, and each
# SavedModel takes seconds to trace.
AROUND = {"around the encoder": ("keras", "saved_model", "clone", "copy", "pickle"), "of one's own": ("keras", "copy")}


class OfOnesOwn(keras.Model):
    """Has a model inside, of which its configuration says nothing."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def call(self, inputs):
        return self.inner(inputs)[0]

    def get_config(self):
        return {}


def on_encoder(model):
    """A user's own Keras model on the encoder of a transformers model."""
    ids = keras.Input((None,), dtype=tf.int32, name="ids")
    return keras.Model(ids, keras.layers.Dense(2)(getattr(model, model.base_model_prefix)(ids)[0][:, 0]))


def with_adapters_inside(model):
    """A model and models around it, or some of its layers, by what they are."""
    ids, states = keras.Input((None,), dtype=tf.int32, name="ids"), keras.Input((None, model.config.hidden_size))
    block = model.bert.encoder.layer[0]
    own = OfOnesOwn(model)
    own(tiny_inputs())
    return {
        "model": model,
        "around the model": keras.Model(ids, model(ids)[0]),
        "around the encoder": on_encoder(model),
        "a block": keras.Model(states, block(states, None, None, None, None, None, False)[0]),
        "of one's own": own,
    }


@pytest.mark.slow
@pytest.mark.parametrize("fast", nightly_but([False], [False, True]))
def test_no_whole_file_or_copy_of_adapters_is_made_and_all_are_refused(fast, tmp_path):
    model = randomize(add_adapters(tiny_model(num_hidden_layers=1), BOTTLENECK, seed=0, fast=fast))
    before = outputs(model)
    for name, one in with_adapters_inside(model).items():
        for way in WAYS if name == "model" else AROUND.get(name, ("keras", "h5", "config", "copy")):
            with pytest.raises(NotImplementedError) as refused:
                WAYS[way](one, str(tmp_path / f"{name} {way}"))
            assert str(refused.value) == REFUSAL, (name, way)
    assert not list(tmp_path.glob("model *")) and not [path for path in tmp_path.iterdir() if path.is_dir()]
    with disable_adapters(model), pytest.raises(NotImplementedError, match="save_adapter"):
        model.save_pretrained(tmp_path / "off")
    np.testing.assert_array_equal(outputs(model), before)


def test_without_adapters_whole_files_answer_the_same(tmp_path):
    model = add_adapters(tiny_model(num_hidden_layers=1), LoraConfig(rank=2), seed=0)
    own = on_encoder(randomize(model))
    merge_adapter(model)  # which takes them out as remove_adapters does
    expected, ids = outputs(model), tiny_inputs()["input_ids"]
    model.save_pretrained(tmp_path / "pretrained")
    np.testing.assert_allclose(outputs(type(model).from_pretrained(tmp_path / "pretrained")), expected, atol=1e-6)
    for file in ("own.keras", "own.h5"):
        own.save(tmp_path / file)
        np.testing.assert_allclose(keras.models.load_model(tmp_path / file)(ids), own(ids), atol=1e-6)


@pytest.mark.nightly
def test_computation_alone_is_exported_with_the_adapters(tmp_path):
    model = family_model("distilbert", "none")
    own, ids = on_encoder(randomize(add_adapters(model, BOTTLENECK, seed=0))), tiny_inputs()["input_ids"] % 16
    own.export(tmp_path / "export")
    loaded = tf.saved_model.load(tmp_path / "export")  # its variables live as long as it does
    np.testing.assert_allclose(loaded.serve(ids), own(ids), atol=1e-5)
    remove_adapters(model)
    own.save(tmp_path / "saved")
    np.testing.assert_allclose(keras.models.load_model(tmp_path / "saved")(ids), own(ids), atol=1e-5)


def test_weights_alone_come_back(tmp_path):
    """As Keras' callbacks keep them, which refuse the whole model."""
    model, other = (add_adapters(tiny_model(num_hidden_layers=1), BOTTLENECK, seed=0) for _ in range(2))
    for one in (model, other):
        set_trainable(one, "adapters")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.Adam(1e-2), loss=loss, run_eagerly=True)
    data = dict(tiny_inputs()), np.arange(len(tiny_inputs()["input_ids"])) % 2
    with pytest.raises(NotImplementedError, match="save_adapter"):
        model.fit(*data, verbose=0, callbacks=[keras.callbacks.ModelCheckpoint(str(tmp_path / "whole"))])
    assert not (tmp_path / "whole").exists()
    callbacks = [
        keras.callbacks.ModelCheckpoint(str(tmp_path / "{epoch}.h5"), save_weights_only=True),
        keras.callbacks.EarlyStopping("val_loss", restore_best_weights=True, mode="max", patience=1),
        keras.callbacks.BackupAndRestore(str(tmp_path / "backup")),
    ]
    model.fit(*data, epochs=3, validation_data=data, verbose=0, callbacks=callbacks)
    other.load_weights(tmp_path / "1.h5")
    np.testing.assert_array_equal(outputs(other), outputs(model))
