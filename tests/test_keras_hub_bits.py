"""The second door's encoder in eight bits: whatever reads a weight knows how it is kept."""

import numpy as np
import pytest

pytest.importorskip("keras_hub", reason="needs the extra `keras-hub`")

import tf_adapters  # noqa: E402
from tests.keras_hub_models import CONFIGS, answers, fill, inputs, keras  # noqa: E402
from tf_adapters import InputError  # noqa: E402
from tf_adapters.methods import DoraConfig  # noqa: E402
from tf_adapters.models import cast_frozen  # noqa: E402
from tf_adapters.models.keras_hub.loading import load_backbone  # noqa: E402

PLACES = ("query", "key", "value", "attention_output", "intermediate", "output")
METHODS = {"dora": DoraConfig(rank=2, targets=PLACES), "lora": CONFIGS["lora"], "ia3": CONFIGS["ia3"]}


def assert_close(found, exact):
    """Equal but for the rounding of weights and of what they multiply, and not equal."""
    assert 0 < np.abs(found - exact).max() < 0.02 * np.abs(exact).max()


def adapted(checkpoint, name):
    keras.utils.set_random_seed(0)
    model = load_backbone(checkpoint)
    tf_adapters.add_adapters(model, METHODS.get(name, CONFIGS["houlsby"]), name=name, seed=1)
    fill(model, 1)
    return tf_adapters.set_trainable(model)


@pytest.mark.parametrize("first", ["houlsby", "dora"])
def test_methods_in_dense_layers_compute_as_on_float32_before_and_after(checkpoints, first):
    model, exact = (adapted(checkpoints("bert"), first) for _ in range(2))
    cast_frozen(model, "int8")
    assert_close(answers(model, "bert"), answers(exact, "bert"))
    for seed, name in enumerate(METHODS if first == "houlsby" else ()):
        for one in (model, exact):
            tf_adapters.add_adapters(one, METHODS[name], name=name, seed=seed)
            fill(one, seed)
        assert_close(answers(model, "bert"), answers(exact, "bert"))


def test_what_training_changed_is_saved_as_what_its_codes_stand_for(checkpoints, tmp_path):
    model = adapted(checkpoints("bert"), "houlsby")
    cast_frozen(model, "int8")
    tf_adapters.save_adapter(model, tmp_path / "unchanged")
    assert not any(key.endswith("dense.weight") for key in backbone_of(tmp_path / "unchanged"))
    model = adapted(checkpoints("bert"), "houlsby")
    for layer in (model.backbone.transformer_layers[0]._feedforward_output_dense, model.backbone.token_embedding):
        layer.weights[0].assign(layer.weights[0] * 1.5)
    query = model.backbone.transformer_layers[1]._self_attention_layer._query_dense.kernel
    query.assign(query * 1.5)
    exact = answers(model, "bert")
    cast_frozen(model, "int8")
    tf_adapters.save_adapter(model, tmp_path / "changed")
    assert len(backbone_of(tmp_path / "changed")) == len(backbone_of(tmp_path / "unchanged")) + 3
    again = load_backbone(checkpoints("bert"))
    tf_adapters.load_adapter(again, tmp_path / "changed")
    assert_close(answers(again, "bert"), exact)


def backbone_of(directory):
    _, arrays = tf_adapters.saving.directory.read_adapter(directory)
    return [key for key in arrays if key.startswith("backbone.")]


def test_a_second_cast_changes_nothing_and_no_scale_counts_as_a_weight(checkpoints):
    model = adapted(checkpoints("bert"), "houlsby")
    counts, digest = tf_adapters.parameter_counts(model), tf_adapters.backbone_digest(model)
    cast_frozen(model, "int8")
    weights, before = model.weights, answers(model, "bert")
    cast_frozen(model, "int8")
    assert all(one is other for one, other in zip(model.weights, weights))
    np.testing.assert_array_equal(answers(model, "bert"), before)
    assert tf_adapters.parameter_counts(model) == counts and tf_adapters.backbone_digest(model) == digest


def test_another_model_on_the_encoder_knows_that_it_was_cast(checkpoints):
    model = load_backbone(checkpoints("bert"))
    cast_frozen(tf_adapters.models.freeze(model), "int8")
    for operation in (tf_adapters.backbone_digest, tf_adapters.add_adapters, tf_adapters.set_trainable):
        with pytest.raises(InputError, match="needs the encoder's float32 weights|mode='adapters'"):
            operation(model.backbone)
    tf_adapters.add_adapters(model, CONFIGS["lora"])


@pytest.mark.nightly
def test_a_method_in_dense_layers_trains_on_eight_bits(checkpoints):
    model = adapted(checkpoints("bert"), "houlsby")
    cast_frozen(model, "int8")
    tf_adapters.set_trainable(tf_adapters.add_adapters(model, METHODS["dora"], name="dora", seed=1))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.Adam(1e-2), loss=loss)
    given, targets = inputs("bert")[1], np.array([0, 1, 1])
    before = model.evaluate(given, targets, verbose=0)
    model.fit(given, targets, epochs=6, verbose=0)
    assert model.evaluate(given, targets, verbose=0) < before
