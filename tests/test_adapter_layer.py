import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import randomize
from tf_adapters import AdapterLayer, InputError
from tf_adapters._keras import keras
from tf_adapters.layers.dropout import SeededDropout
from tf_adapters.layers.ops import keras2


def by_hand(layer, x, activation):
    inner = activation(x @ layer.down_kernel.numpy() + layer.down_bias.numpy())
    return x + inner @ layer.up_kernel.numpy() + layer.up_bias.numpy()


def test_output_is_the_formula():
    layer = AdapterLayer(3, activation="tanh", init_stddev=0.5, seed=1)
    x = np.random.default_rng(0).normal(size=(2, 5, 4)).astype(np.float32)
    output = layer(x)
    layer.down_bias.assign([0.1, -0.2, 0.3])
    layer.up_bias.assign([1.0, 2.0, 3.0, 4.0])
    assert output.shape == (2, 5, 4)
    # Float32 sums of at most four products.
    np.testing.assert_allclose(layer(x), by_hand(layer, x, np.tanh), atol=1e-6)


def test_zero_up_projection_is_the_identity_bit_for_bit():
    x = tf.random.normal((3, 7, 16), seed=1)
    layer = AdapterLayer(4, init_stddev=1.0, seed=0)
    layer(x)
    layer.up_kernel.assign(tf.zeros_like(layer.up_kernel))
    assert np.array_equal(layer(x), x)


def test_gate_of_one_is_the_adapter_and_of_zero_the_identity_bit_for_bit():
    x = tf.random.normal((3, 7, 16), seed=1)
    layer = AdapterLayer(4, init_stddev=1.0, seed=0)
    layer(x)
    randomize(layer)
    assert np.array_equal(layer(x, gate=tf.constant(1.0)), layer(x))
    assert np.array_equal(layer(x, gate=tf.constant(0.0)), x)


def test_kernels_are_drawn_from_a_normal_truncated_at_two_standard_deviations():
    layer = AdapterLayer(256, init_stddev=1e-2, seed=3)
    layer.build((None, 512))
    for kernel in (layer.down_kernel.numpy(), layer.up_kernel.numpy()):
        assert np.abs(kernel).max() <= 2e-2
        assert np.abs(kernel).max() > 1.98e-2
        # A unit normal cut at 2 has a standard deviation of 0.8796.
        assert kernel.std() == pytest.approx(0.8796e-2, rel=0.01)
    assert not layer.down_bias.numpy().any() and not layer.up_bias.numpy().any()


def test_kernels_of_adapterhub_are_drawn_from_a_normal_that_is_not_truncated():
    layer = AdapterLayer(256, init_stddev=2e-2, init_distribution="normal", seed=3)
    layer.build((None, 512))
    for kernel in (layer.down_kernel.numpy(), layer.up_kernel.numpy()):
        # Of 131,072 draws the greatest is beyond four standard deviations.
        assert kernel.std() == pytest.approx(2e-2, rel=0.01) and np.abs(kernel).max() > 4 * 2e-2
    assert AdapterLayer.from_config(layer.get_config()).init_distribution == "normal"
    with pytest.raises(InputError, match="init_distribution='uniform' is unknown"):
        AdapterLayer(4, init_distribution="uniform")


def test_kernels_between_the_projections_keep_the_size_of_the_signal():
    layer = AdapterLayer(256, hidden_layers=2, init_stddev=1e-2, seed=3)
    layer.build((None, 8))
    # A unit normal cut at 2 has a standard deviation of 0.8796.
    assert layer.hidden_1_kernel.numpy().std() == pytest.approx(0.8796 / 256**0.5, rel=0.02)


def test_dropout_is_of_the_update_in_training_alone():
    plain, layer = (randomize_built(AdapterLayer(4, dropout=dropout, seed=0)) for dropout in (0.0, 0.5))
    x = tf.random.normal((30, 16), seed=1)
    assert np.array_equal(layer(x), plain(x)) and np.array_equal(layer(x, training=False), plain(x))
    dropped, update = layer(x, training=True) - x, plain(x) - x
    kept = np.abs(dropped.numpy()) > 1e-6
    # 480 draws: five standard deviations are 0.114.
    assert abs(kept.mean() - 0.5) < 0.114
    np.testing.assert_allclose(dropped.numpy()[kept], 2 * update.numpy()[kept], atol=1e-5)


def randomize_built(layer):
    layer.build((None, 16))
    return randomize(layer)


def test_the_two_kernels_do_not_repeat_each_other():
    layer = AdapterLayer(16, seed=3)
    layer.build((None, 16))
    assert not np.array_equal(layer.down_kernel, layer.up_kernel)


@pytest.mark.parametrize(
    "name, function",
    [
        ("gelu", lambda x: keras.activations.gelu(x, approximate=False)),
        ("gelu_tanh", lambda x: keras.activations.gelu(x, approximate=True)),
        ("swish", lambda x: x * tf.sigmoid(x)),
        ("silu", lambda x: x * tf.sigmoid(x)),
        ("relu", tf.nn.relu),
        ("tanh", tf.tanh),
    ],
)
def test_named_activations(name, function):
    x = tf.linspace(-4.0, 4.0, 50)
    np.testing.assert_allclose(keras2.activation(name)(x), function(x), atol=1e-6)


def test_every_activation_of_keras_works():
    names = [
        "elu",
        "exponential",
        "gelu",
        "hard_sigmoid",
        "linear",
        "mish",
        "relu",
        "selu",
        "sigmoid",
        "softmax",
        "softplus",
        "softsign",
        "swish",
        "tanh",
    ]
    for name in names:
        output = AdapterLayer(3, activation=name, seed=0)(tf.ones((2, 4)))
        assert np.isfinite(output).all(), name


def test_bad_arguments_are_named():
    with pytest.raises(InputError, match="bottleneck_size=0"):
        AdapterLayer(0)
    with pytest.raises(InputError, match="activation='nope'"):
        AdapterLayer(4, activation="nope")
    with pytest.raises(InputError, match="known hidden size"):
        AdapterLayer(4).build((None, None))


def test_config_round_trip_rebuilds_the_layer():
    layer = AdapterLayer(5, activation="swish", init_stddev=0.1, dropout=0.2, seed=4, name="a")
    twin = AdapterLayer.from_config(layer.get_config())
    assert twin.get_config() == layer.get_config()
    layer.build((None, 8))
    twin.build((None, 8))
    for one, other in zip(layer.weights, twin.weights):
        assert np.array_equal(one, other)


def test_layer_trains_in_a_keras_model_and_with_mixed_precision(float32_policy):
    for policy in ("float32", "mixed_bfloat16"):
        float32_policy(policy)
        inputs = keras.Input((6, 8))
        outputs = keras.layers.Dense(1, dtype="float32")(AdapterLayer(2, dropout=0.1, seed=0)(inputs))
        model = keras.Model(inputs, outputs)
        model.compile("adam", "mse")
        history = model.fit(np.ones((4, 6, 8), np.float32), np.ones((4, 6, 1), np.float32), epochs=2, verbose=0)
        assert history.history["loss"][1] < history.history["loss"][0]
        assert all(weight.dtype == tf.float32 for weight in model.trainable_weights)


def test_dropout_follows_from_its_seed_and_its_state():
    x = tf.ones((50, 40))
    one, other = SeededDropout(0.3, seed=5), SeededDropout(0.3, seed=5)
    first, second = one(x, training=True), one(x, training=True)
    assert np.array_equal(first, other(x, training=True))
    assert not np.array_equal(first, second)
    state = other.generator.state.numpy()
    assert np.array_equal(other(x, training=True), second)
    other.generator.state.assign(state)
    assert np.array_equal(other(x, training=True), second)
    assert np.array_equal(one(x, training=False), x)
    # 2,000 draws at rate 0.3: five standard deviations are 0.051.
    assert abs(np.mean(first.numpy() == 0) - 0.3) < 0.051
    np.testing.assert_allclose(first.numpy()[first.numpy() != 0], 1 / 0.7, rtol=1e-6)
