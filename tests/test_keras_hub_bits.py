"""The second door's encoder in eight bits: whatever reads a weight knows how it is kept."""

import numpy as np
import pytest

import tf_adapters
from tests.conftest import is_refused
from tests.keras_hub_models import BACKEND, CONFIGS, LABELS, adapted, answers, bits, inputs, keras, learn
from tf_adapters import AdapterConfig
from tf_adapters.methods import DoraConfig
from tf_adapters.models import cast_frozen, frozen_digest
from tf_adapters.models.keras_hub import door
from tf_adapters.models.keras_hub.loading import load_backbone
from tf_adapters.models.state import state_of

PLACES = ("query", "key", "value", "attention_output", "intermediate", "output")
METHODS = {"dora": DoraConfig(rank=2, targets=PLACES), "lora": CONFIGS["lora"], "ia3": CONFIGS["ia3"]}


def assert_close(found, exact):
    """Equal but for the rounding of weights and of what they multiply, and not equal."""
    # Where another backend draws the weights, the head's answers may be smaller.
    near = 0.02 if BACKEND == "tensorflow" else 0.1
    assert 0 < np.abs(found - exact).max() < near * np.abs(exact).max()


@pytest.fixture
def model(checkpoints):
    checkpoint = checkpoints("bert")  # whose making draws numbers too
    keras.utils.set_random_seed(0)  # of the head
    return tf_adapters.set_trainable(adapted(load_backbone(checkpoint), "houlsby", name="houlsby"))


def written(model, directory):
    """Bytes of what `save_adapter` writes, and which of it are weights of the encoder."""
    tf_adapters.save_adapter(model, directory)
    _, arrays = tf_adapters.saving.directory.read_adapter(directory)
    return (directory / "adapter.safetensors").read_bytes(), [key for key in arrays if key.startswith("backbone.")]


def test_frozen_kernels_go_into_eight_bits_and_the_adapter_goes_on(checkpoints, model, tmp_path):
    exact, before = answers(model, "bert"), written(model, tmp_path / "before")
    names = [weight.path for weight in model.trainable_weights]
    counts, digest = tf_adapters.parameter_counts(model), tf_adapters.models.backbone_digest(model)
    is_refused("dtype=None must be 'int8'", cast_frozen, model)
    cast_frozen(model, "int8")
    assert [weight.path for weight in model.trainable_weights] == names
    rounded, weights = answers(model, "bert"), model.weights
    assert_close(rounded, exact)
    adapters = {id(weight) for weight in state_of(model).adapter_variables()}
    kernels = [one for one in model.backbone.weights if one.path.endswith("kernel") and id(one) not in adapters]
    assert {weight.dtype for weight in kernels} == {"int8"}
    # A second cast changes nothing, and no scale counts as a weight.
    cast_frozen(model, "int8")
    assert all(one is other for one, other in zip(model.weights, weights))
    assert tf_adapters.parameter_counts(model) == counts and tf_adapters.models.backbone_digest(model) == digest
    for refused in (lambda: tf_adapters.set_trainable(model, "full"), lambda: tf_adapters.remove_adapters(model)):
        is_refused("needs the encoder's float32 weights.*is int8 now", refused)
    tf_adapters.add_adapters(model, AdapterConfig(bottleneck_size=3), name="two")
    tf_adapters.remove_adapters(model, name="two")
    np.testing.assert_allclose(answers(model, "bert"), rounded, atol=2e-6)
    assert written(model, tmp_path / "after") == before
    again = load_backbone(checkpoints("bert"))
    tf_adapters.load_adapter(again, tmp_path / "after")
    np.testing.assert_array_equal(answers(again, "bert"), exact)


@pytest.mark.slow
def test_methods_in_dense_layers_compute_as_on_float32(checkpoints, model):
    keras.utils.set_random_seed(0)
    exact = adapted(load_backbone(checkpoints("bert")), "houlsby", name="houlsby")
    cast_frozen(model, "int8")
    for name, config in METHODS.items():
        for one in (model, exact):
            adapted(one, config, name=name)
        assert_close(answers(model, "bert"), answers(exact, "bert"))


@pytest.mark.slow
def test_a_method_in_dense_layers_is_there_before_the_cast(checkpoints):
    model = tf_adapters.set_trainable(adapted(load_backbone(checkpoints("bert")), METHODS["dora"]))
    exact = answers(model, "bert")
    cast_frozen(model, "int8")
    assert_close(answers(model, "bert"), exact)


@pytest.mark.slow
def test_what_training_changed_is_saved_as_what_its_codes_stand_for(checkpoints, model, tmp_path):
    _, unchanged = written(model, tmp_path / "unchanged")
    block, next_block = model.backbone.transformer_layers[:2]
    query = next_block._self_attention_layer._query_dense
    for layer in (block._feedforward_output_dense, model.backbone.token_embedding, query):
        layer.weights[0].assign(layer.weights[0] * 1.5)
    exact = answers(model, "bert")
    cast_frozen(model, "int8")
    _, changed = written(model, tmp_path / "changed")
    assert not any(key.endswith("dense.weight") for key in unchanged) and len(changed) == len(unchanged) + 3
    again = load_backbone(checkpoints("bert"))
    tf_adapters.load_adapter(again, tmp_path / "changed")
    assert_close(answers(again, "bert"), exact)


@pytest.mark.slow
def test_another_model_on_the_encoder_knows_that_it_was_cast(checkpoints, model, tmp_path):
    written(model, tmp_path / "adapter")
    model = load_backbone(checkpoints("bert"))
    is_refused("nothing is frozen", cast_frozen, model, "int8")
    tf_adapters.models.freeze(model)
    query = model.backbone.transformer_layers[0]._self_attention_layer._query_dense
    query.kernel.assign(query.kernel * 1.5)  # an encoder that was changed before is another one afterwards too
    cast_frozen(model, "int8")
    for operation in (tf_adapters.models.backbone_digest, tf_adapters.add_adapters, tf_adapters.set_trainable):
        is_refused("needs the encoder's float32 weights|mode='adapters'", operation, model.backbone)
    is_refused("changed since|another encoder", tf_adapters.load_adapter, model, tmp_path / "adapter")
    tf_adapters.add_adapters(model, CONFIGS["lora"])


@pytest.mark.slow
def test_interrupted_rounding_has_not_happened(model, monkeypatch):
    before, plain, flags = bits(model), answers(model, "bert"), [weight.trainable for weight in model.weights]

    def interrupt(model):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(door, "forget_traces", interrupt)
        with pytest.raises(KeyboardInterrupt):
            cast_frozen(model, "int8")
    assert bits(model) == before and flags == [weight.trainable for weight in model.weights]
    np.testing.assert_array_equal(answers(model, "bert"), plain)
    tf_adapters.remove_adapters(model)


@pytest.mark.nightly
def test_adapters_and_methods_in_dense_layers_train_on_eight_bits(model):
    cast_frozen(model, "int8")
    for name in ("houlsby", "dora"):
        if name == "dora":
            tf_adapters.set_trainable(tf_adapters.add_adapters(model, METHODS[name], name=name, seed=1))
        frozen = frozen_digest(model)
        learn(model, inputs("bert")[1], LABELS)
        assert frozen_digest(model) == frozen
