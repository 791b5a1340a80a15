"""DoRA: the formula, and a model that has it trains, switches, is saved, merged, exported and searched."""

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import tiny_inputs, write_checkpoint
from tests.whole import train
from tf_adapters import (
    AdapterBank,
    InputError,
    add_adapters,
    disable_adapters,
    get_recipe,
    load_adapter,
    load_backbone,
    load_tokenizer,
    merge_adapter,
    parameter_counts,
    save_adapter,
    set_active,
    set_trainable,
)
from tf_adapters._keras import keras
from tf_adapters.methods.dora import DoraConfig, DoraLayer

CONFIG = DoraConfig(rank=2, alpha=6, targets=("query", "output"))
INPUTS = tiny_inputs()


def logits(model):
    return model(INPUTS).logits.numpy()


def learned(seed=0, inputs=5, units=4):
    """A layer whose weights are not those of the beginning, and the dense layer that it is around."""
    random = np.random.default_rng(seed)
    dense = keras.layers.Dense(units, bias_initializer="normal")
    dense.build((None, inputs))
    layer = DoraLayer(units, rank=2, alpha=6)
    layer.build((None, inputs))
    for weight in layer.weights:
        weight.assign(random.normal(1, 0.5, weight.shape))
    return layer, dense


def test_the_formula_by_hand():
    layer, dense = learned()
    inputs = np.random.default_rng(1).normal(size=(3, 5)).astype(np.float32)
    kernel, bias = (weight.numpy().astype(np.float64) for weight in dense.weights)
    direction = kernel + 3 * layer.a.numpy().astype(np.float64) @ layer.b.numpy()
    whole = layer.magnitude.numpy() * np.sqrt((kernel**2).sum(0)) * direction / np.sqrt((direction**2).sum(0))
    np.testing.assert_allclose(layer(inputs, dense), inputs @ whole + bias, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(layer.merged(dense.kernel.numpy(), dense.bias.numpy())[0], whole, rtol=1e-6)
    np.testing.assert_array_equal(layer(inputs, dense, gate=tf.constant(0.0)), dense(inputs))
    np.testing.assert_allclose(layer(inputs, dense, gate=tf.constant(1.0)), layer(inputs, dense), rtol=1e-6)


def test_the_gradient_takes_the_norm_as_a_constant():
    layer, dense = learned()
    inputs = tf.constant(np.random.default_rng(1).normal(size=(3, 5)), tf.float32)
    norms = tf.norm(dense.kernel + 3 * tf.matmul(layer.a, layer.b), axis=0).numpy()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(inputs, dense) ** 2)
    found = tape.gradient(loss, [layer.a, layer.b, layer.magnitude])
    with tf.GradientTape() as tape:
        whole = (
            layer.magnitude * tf.norm(dense.kernel, axis=0) / norms * (dense.kernel + 3 * tf.matmul(layer.a, layer.b))
        )
        loss = tf.reduce_sum((tf.matmul(inputs, whole) + dense.bias) ** 2)
    for ours, expected in zip(found, tape.gradient(loss, [layer.a, layer.b, layer.magnitude])):
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("fast", [False, True])
def test_a_model_starts_as_it_was_trains_is_switched_and_merged(fast, tmp_path):
    write_checkpoint(tmp_path / "encoder", num_hidden_layers=2)
    model = load_backbone(tmp_path / "encoder")
    plain = logits(model)
    add_adapters(model, CONFIG, name="a", seed=0, fast=fast)
    if not fast:
        np.testing.assert_array_equal(logits(model), plain)
    np.testing.assert_allclose(logits(model), plain, atol=1e-5)
    counts = parameter_counts(set_trainable(model, "adapters"))
    size, inner = model.config.hidden_size, model.config.intermediate_size
    assert (
        counts.adapter == CONFIG.parameters(2, size, inner) == 2 * (2 * (2 * size) + size + 2 * (inner + size) + size)
    )
    train(model)
    trained = logits(model)
    assert np.abs(trained - plain).max() > 1e-3
    with disable_adapters(model):
        head = [variable.numpy() for variable in model.classifier.weights]
        expected = load_backbone(tmp_path / "encoder")
        expected.set_weights([*expected.get_weights()[: -len(head)], *head])
        np.testing.assert_allclose(logits(model), logits(expected), atol=1e-5)
    save_adapter(model, tmp_path / "a")
    fresh = load_backbone(tmp_path / "encoder")
    load_adapter(fresh, tmp_path / "a", name="a")
    np.testing.assert_allclose(logits(fresh), trained, atol=1e-5)
    add_adapters(fresh, CONFIG, name="b", seed=1)
    set_active(fresh, "a")
    np.testing.assert_allclose(logits(fresh), trained, atol=1e-5)
    np.testing.assert_allclose(logits(merge_adapter(model)), trained, atol=1e-5)


@pytest.mark.nightly
def test_it_is_trained_exported_and_searched_by_the_commands(cli, train_arguments, tmp_path):
    words = [word for word in train_arguments if "adapter-size" not in word and "epochs" not in word]
    recipe = ["--recipe=liu-2024-dora", "--rank=2", "--epochs=1"]
    outcome = cli(*words, *recipe, f"--output={tmp_path / 'a'}")
    assert outcome.status == 0, outcome.err
    assert cli("export", tmp_path / "a", "--output", tmp_path / "served" / "1").status == 0
    model = load_backbone(train_arguments[1].partition("=")[2])
    load_adapter(model, tmp_path / "a")
    text = tf.constant(["a good film"])
    served = tf.saved_model.load(str(tmp_path / "served" / "1")).signatures["serving_default"](text=text)
    expected = model(load_tokenizer(model, max_length=32)(text)).logits
    np.testing.assert_allclose(served["logits"], expected, atol=1e-5)
    with pytest.raises(InputError, match="dora"):
        AdapterBank(train_arguments[1].partition("=")[2]).add("a", tmp_path / "a")
    space = ["--space=none", "--recipe=liu-2024-dora", "--vary=rank=1,2", "--vary=epochs=1", "--tuner=grid"]
    assert cli("tune", *words[1:], *space, f"--output={tmp_path / 'search'}").status == 0


def test_its_recipe_is_the_method():
    recipe = get_recipe("liu-2024-dora")
    assert recipe.adapter == DoraConfig.from_dict(recipe.adapter.to_dict()) and recipe.adapter.method == "dora"
