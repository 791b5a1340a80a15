import numpy as np
import pytest
import tensorflow as tf

from tf_adapters._keras import keras
from tf_adapters.layers.layer_norm import layer_norm


@pytest.mark.parametrize("shape", [(4, 8), (2, 5, 32), (2, 3, 4, 16)])
def test_forward_is_bit_equal_to_keras_and_the_gradients_agree(shape):
    layer = keras.layers.LayerNormalization(epsilon=1e-12)
    random = np.random.default_rng(0)
    x, upstream = (tf.constant(random.normal(size=shape), tf.float32) for _ in range(2))
    layer.build(shape)
    layer.gamma.assign(random.normal(size=shape[-1:]))
    layer.beta.assign(random.normal(size=shape[-1:]))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        expected = layer(x)
        found = layer_norm(x, tf.convert_to_tensor(layer.gamma), tf.convert_to_tensor(layer.beta), layer.epsilon)
    assert np.array_equal(found, expected)
    for variable in (x, layer.gamma, layer.beta):
        want = tape.gradient(expected, variable, upstream).numpy()
        # Float32 sums in another order.
        np.testing.assert_allclose(tape.gradient(found, variable, upstream), want, atol=3e-6 * np.abs(want).max())


def test_gradient_agrees_with_finite_differences():
    x = tf.constant(np.random.default_rng(1).normal(size=(3, 6)), tf.float32)
    gamma, beta = tf.linspace(0.5, 1.5, 6), tf.linspace(-1.0, 1.0, 6)
    theory, numeric = tf.test.compute_gradient(lambda *a: layer_norm(*a, 1e-12), [x, gamma, beta], delta=1e-2)
    for one, other in zip(theory, numeric):
        np.testing.assert_allclose(one, other, atol=5e-3)
