"""Adapters that differ from the paper's first: what each computes, where it reads, what it saves."""

import numpy as np
import pytest
import tensorflow as tf

from tests.cases import nightly_but
from tests.conftest import randomize, tiny_inputs, tiny_model
from tf_adapters import AdapterConfig, add_adapters, load_adapter, save_adapter, set_active, set_trainable
from tf_adapters.errors import InputError
from tf_adapters.methods.bottleneck import AdapterLayer
from tf_adapters.models.state import state_of

VARIANTS = {
    "pfeiffer": dict(insertion="after-norm", placement="ffn", activation="relu", train_layer_norm="none"),
    "parallel": dict(insertion="parallel", scaling=4.0, placement="ffn"),
    "scaled": dict(insertion="parallel", scaling="learned"),
    "norm-before": dict(inner_norm="before"),
    "norm-after": dict(inner_norm="after"),
    "deep": dict(hidden_layers=3, activation="tanh"),
    "multiply": dict(interaction="multiply", insertion="parallel"),
    "attention": dict(placement="attention"),
    "random-drop": dict(random_drop=2),
}


def numbers(seed, *shape):
    return tf.constant(np.random.default_rng(seed).standard_normal(shape), tf.float32)


def normalised(x, gamma, beta, epsilon=1e-5):
    x = x.numpy() if hasattr(x, "numpy") else x
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + epsilon) * gamma.numpy() + beta.numpy()


def test_several_layers_stand_between_the_projections():
    layer = AdapterLayer(5, hidden_layers=3, activation="tanh", seed=0)
    x = numbers(0, 4, 8)
    layer(x)
    randomize(layer)
    inner = np.tanh(x.numpy() @ layer.down_kernel.numpy() + layer.down_bias.numpy())
    for number in (1, 2):
        kernel, bias = (getattr(layer, f"hidden_{number}_{part}").numpy() for part in ("kernel", "bias"))
        assert kernel.shape == (5, 5)
        inner = np.tanh(inner @ kernel + bias)
    np.testing.assert_allclose(layer(x), x + inner @ layer.up_kernel.numpy() + layer.up_bias.numpy(), atol=1e-5)


@pytest.mark.parametrize("where", ["before", "after"])
def test_the_inner_layer_norm_has_pytorchs_epsilon_and_starts_as_none(where):
    layer = AdapterLayer(5, inner_norm=where, activation="relu", init_stddev=0.3, seed=0)
    x = numbers(1, 4, 8) * 1e-2  # small, so that the epsilon is seen
    layer(x)
    randomize(layer)
    read = normalised(x, layer.norm_gamma, layer.norm_beta) if where == "before" else x.numpy()
    update = (
        np.maximum(read @ layer.down_kernel.numpy() + layer.down_bias.numpy(), 0) @ layer.up_kernel.numpy()
        + layer.up_bias.numpy()
    )
    if where == "after":
        update = normalised(update, layer.norm_gamma, layer.norm_beta)
    np.testing.assert_allclose(layer(x), x + update, atol=1e-5)


@pytest.mark.parametrize("scaling", [4.0, "learned"])
def test_scaling_and_multiplication(scaling):
    x, read = numbers(2, 4, 8), numbers(3, 4, 8)
    plain = AdapterLayer(5, init_stddev=0.3, seed=0)
    update = (plain(x, inputs=read) - x).numpy()
    scaled = AdapterLayer(5, init_stddev=0.3, seed=0, scaling=scaling)
    scaled(x)
    factor = 4.0
    if scaling == "learned":
        np.testing.assert_array_equal(scaled(x, inputs=read), plain(x, inputs=read))
        scaled.learned_scaling.assign(4.0)
    np.testing.assert_allclose(scaled(x, inputs=read), x + factor * update, atol=1e-5)
    product = AdapterLayer(5, init_stddev=0.3, seed=0, interaction="multiply")
    np.testing.assert_allclose(product(x, inputs=read), x * (1 + update), atol=1e-5)


@pytest.mark.parametrize("gate", [0.0, 1.0])
@pytest.mark.parametrize(
    "variant", [{}, dict(inner_norm="after"), dict(scaling=4.0), dict(interaction="multiply"), dict(hidden_layers=2)]
)
def test_the_gate_is_identity_or_adapter_bit_for_bit(variant, gate):
    layer = AdapterLayer(5, init_stddev=0.3, seed=0, **variant)
    x = numbers(4, 4, 8)
    layer(x)
    randomize(layer)
    expected = layer(x) if gate else x
    np.testing.assert_array_equal(layer(x, gate=tf.constant(gate)), expected)


@pytest.mark.parametrize("insertion", ["sequential", "after-norm", "parallel"])
def test_what_each_insertion_reads(insertion):
    model = tiny_model()
    add_adapters(model, AdapterConfig(bottleneck_size=4, insertion=insertion, init_stddev=0.3), seed=0)
    site = state_of(model).sites[1, "ffn"]
    hidden, residual = numbers(5, 2, 3, 64), numbers(6, 2, 3, 32)
    found = site(hidden, residual)
    y = site.dense(hidden)
    read = {"sequential": y, "after-norm": site.LayerNorm(y + residual), "parallel": residual}[insertion]
    adapter = site.adapters["default"]
    expected = site.LayerNorm(y + (adapter(read) - read) + residual)
    np.testing.assert_allclose(found, expected, atol=2e-6)


@pytest.mark.parametrize("variant", VARIANTS)
def test_parameters_are_those_of_the_formula(variant):
    model = tiny_model()
    config = AdapterConfig(bottleneck_size=5, **VARIANTS[variant])
    add_adapters(model, config, seed=0)
    found = sum(int(tf.size(variable)) for variable in state_of(model).adapter_variables())
    assert found == config.parameters_per_adapter(32) * len(set(config.sites(4).values()))


@pytest.mark.parametrize("variant", nightly_but(["scaled", "norm-after", "deep"], VARIANTS))
def test_a_directory_brings_every_weight_back(variant, tmp_path):
    inputs, config = tiny_inputs(), AdapterConfig(bottleneck_size=5, **VARIANTS[variant])
    model = tiny_model()
    add_adapters(model, config, seed=0)
    for number, layer in enumerate(state_of(model).adapters["default"].layers.values()):
        randomize(layer, number)
    set_trainable(model, "adapters")
    save_adapter(model, tmp_path / "saved")
    other = tiny_model()
    load_adapter(other, tmp_path / "saved")
    assert state_of(other).adapters["default"].config == config
    np.testing.assert_array_equal(other(inputs).logits, model(inputs).logits)


@pytest.mark.parametrize(
    "variant", nightly_but(["scaled", "norm-after", "multiply", "attention"], sorted(set(VARIANTS) - {"random-drop"}))
)
def test_variants_on_fast_blocks_compute_as_on_plain_ones(variant):
    inputs, logits = tiny_inputs(), []
    for fast in (False, True):
        model = tiny_model()
        add_adapters(model, AdapterConfig(bottleneck_size=5, init_stddev=0.3, **VARIANTS[variant]), seed=0, fast=fast)
        logits.append(randomize(model)(inputs).logits)
    np.testing.assert_allclose(*logits, atol=1e-5)


@pytest.mark.slow
def test_several_variants_on_one_model_are_switched_after_tracing():
    model, inputs = tiny_model(), tiny_inputs()
    for name in ("pfeiffer", "parallel", "norm-before"):
        add_adapters(model, AdapterConfig(bottleneck_size=5, init_stddev=0.3, **VARIANTS[name]), name=name, seed=0)
        randomize(model)
    traced = tf.function(lambda: model(inputs).logits)
    for name in ("pfeiffer", "parallel", "norm-before"):
        set_active(model, name)
        alone = tiny_model()
        add_adapters(alone, AdapterConfig(bottleneck_size=5, init_stddev=0.3, **VARIANTS[name]), name=name, seed=0)
        randomize(alone)
        np.testing.assert_allclose(traced(), alone(inputs).logits, atol=1e-6)


def test_adapters_of_chosen_blocks_act_in_graphs_already_traced():
    model, inputs = tiny_model(), tiny_inputs()
    add_adapters(model, AdapterConfig(bottleneck_size=5, init_stddev=0.3), seed=0)
    traced = tf.function(lambda: model(inputs).logits)
    everywhere = traced()
    set_active(model, "default", blocks=[2, 3])
    upper = tiny_model()
    add_adapters(upper, AdapterConfig(bottleneck_size=5, init_stddev=0.3, blocks=(2, 3)), seed=0)
    np.testing.assert_allclose(traced(), upper(inputs).logits, atol=1e-6)
    assert traced.experimental_get_tracing_count() == 1
    set_active(model, "default", blocks=[])
    np.testing.assert_allclose(traced(), tiny_model()(inputs).logits, atol=1e-6)
    set_active(model, "default")
    np.testing.assert_array_equal(traced(), everywhere)
    with pytest.raises(
        InputError,
        match=r"blocks=\[3, 4\] must be a list of some of \[0, 1, 2, 3\], the blocks in which the adapter 'default' "
        r"stands",
    ):
        set_active(model, "default", blocks=[3, 4])


@pytest.mark.parametrize("fast", [False, True])
def test_random_drop_leaves_out_the_lowest_blocks_of_a_step_and_none_in_inference(fast):
    model, inputs = tiny_model(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0), tiny_inputs()
    add_adapters(model, AdapterConfig(bottleneck_size=5, init_stddev=0.3, random_drop=2), seed=0, fast=fast)
    expected = []
    for lowest in range(3):
        set_active(model, "default", blocks=range(lowest, 4))
        expected.append(model(inputs, training=False).logits.numpy())
    set_active(model, "default")
    step = tf.function(lambda: model(inputs, training=True).logits)
    seen = []
    for _ in range(40):
        logits = step().numpy()
        seen += [lowest for lowest in range(3) if np.allclose(logits, expected[lowest], atol=1e-6)]
    assert len(seen) == 40 and set(seen) == {0, 1, 2}
    np.testing.assert_allclose(model(inputs, training=False).logits, expected[0], atol=1e-6 if fast else 0)


@pytest.mark.nightly
def test_the_drops_of_two_runs_of_one_seed_are_the_same():
    from tf_adapters.training.dropout import seed_dropout

    runs = []
    for _ in range(2):
        model = tiny_model()
        add_adapters(model, AdapterConfig(bottleneck_size=5, random_drop=3), seed=0)
        layers = seed_dropout(model, 7)
        drop = state_of(model).sites[0, "attention"].switch.drops["default"]
        runs.append([int((model(tiny_inputs(), training=True), drop.number)[1]) for _ in range(8)])
        # The state is among those that a run saves.
        source = state_of(model).sites[0, "attention"].drop_seeds_default
        assert any(layer is source for layer in layers)
    assert runs[0] == runs[1] and len(set(runs[0])) > 1


@pytest.mark.parametrize(
    "field, value",
    [("insertion", "serial"), ("scaling", 0), ("scaling", "fixed"), ("hidden_layers", 0), ("inner_norm", "both"),
     ("interaction", "divide"), ("random_drop", -1)],
)  # fmt: skip
def test_values_that_are_none_are_named(field, value):
    with pytest.raises(InputError, match=f"{field}={value!r}"):
        AdapterConfig(**{field: value})
