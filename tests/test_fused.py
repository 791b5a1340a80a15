"""Operations with gradients in closed form against TensorFlow's own and finite differences, and the statistics of
dropout."""

import numpy as np
import pytest
import tensorflow as tf

from tf_adapters._keras import keras
from tf_adapters.config import FUSED
from tf_adapters.layers.attention import dot_product_attention
from tf_adapters.layers.bank import pick
from tf_adapters.layers.fused import (
    ACTIVATIONS,
    biased_activation,
    biased_dropout,
    keep_mask,
    layer_norm,
    narrowed,
    sum_norm,
    widened,
)
from tf_adapters.layers.ops import keras2

SEED = tf.constant([3, 2**31 - 5], tf.int32)


def normal(*shape, seed=0):
    return tf.constant(np.random.default_rng(seed).normal(size=shape), tf.float32)


def agree(found, expected, inputs, *, tolerance=1e-6):
    """Values and gradients of two functions agree, relative to the greatest of each tensor."""
    upstream, results = normal(*found(*inputs).shape, seed=9), []
    for function in (found, expected):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = function(*inputs)
        results.append([outputs, *tape.gradient(outputs, inputs, upstream)])
    for one, other in zip(*results):
        np.testing.assert_allclose(one, other, atol=tolerance * np.abs(other).max() + 1e-7)


def kerass_norm(gamma, beta, inputs):
    layer = keras.layers.LayerNormalization(epsilon=1e-12)
    layer.build(inputs.shape)
    layer.gamma, layer.beta = gamma, beta
    return layer(inputs)


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_activations_and_their_slopes_are_kerass(name):
    plain = keras2.activation({"gelu_new": "gelu_tanh"}.get(name, name))
    inputs = [3 * normal(50, 8), normal(8, seed=1)]
    agree(biased_activation(name), lambda x, bias: plain(tf.nn.bias_add(x, bias)), inputs, tolerance=2e-6)
    assert sorted(FUSED) == sorted(ACTIVATIONS)


def test_conversions_of_bfloat16_are_tensorflows_for_every_number():
    every = tf.bitcast(tf.constant(np.arange(2**16), tf.uint16), tf.bfloat16)
    np.testing.assert_array_equal(
        tf.bitcast(widened(every), tf.int32), tf.bitcast(tf.cast(every, tf.float32), tf.int32)
    )
    # Between two neighbours: the half of the way, and what is next to it.
    bits = np.arange(2**16, dtype=np.uint32)[:, None] << 16 | np.array(
        [0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32
    )
    between = tf.boolean_mask(floats := tf.bitcast(tf.constant(bits), tf.float32), ~tf.math.is_nan(floats))
    found, expected = narrowed(between, tf.bfloat16), tf.cast(between, tf.bfloat16)
    np.testing.assert_array_equal(tf.bitcast(found, tf.int16), tf.bitcast(expected, tf.int16))
    of_nans = tf.boolean_mask(widened(every), tf.math.is_nan(every))
    assert tf.reduce_all(tf.math.is_nan(narrowed(of_nans, tf.bfloat16))) and len(of_nans) == 2 * 127
    assert tf.reduce_all(tf.math.is_nan(narrowed(tf.constant([0.0, -1.0]) / 0.0 * 0.0, tf.bfloat16)))


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_activations_of_bfloat16_are_those_of_float32_to_its_rounding(name):
    inputs = [3 * normal(50, 8), normal(8, seed=1), normal(50, 8, seed=2)]
    results = []
    for dtype in (tf.bfloat16, tf.float32):
        x, bias, upstream = (tf.cast(tf.cast(one, tf.bfloat16), dtype) for one in inputs)
        with tf.GradientTape() as tape:
            tape.watch(x)
            outputs = biased_activation(name)(x, bias)
        results.append([tf.cast(one, tf.float32) for one in (outputs, tape.gradient(outputs, x, upstream))])
    for one, other in zip(*results):
        np.testing.assert_allclose(one, other, rtol=2**-8, atol=1e-30)


@pytest.mark.parametrize("terms, size", [(1, 64), (3, 16)])  # 64 is added up in lanes
def test_the_norm_of_a_sum_is_kerass(terms, size):
    def plain(gamma, beta, bias, *terms):
        return kerass_norm(gamma, beta, tf.add_n(terms) + bias)

    inputs = [normal(size, seed=seed) for seed in range(3)] + [normal(20, size, seed=3 + term) for term in range(terms)]
    agree(sum_norm(1e-12, terms, size), plain, inputs, tolerance=3e-6)


@pytest.mark.parametrize("shape", [(4, 8), (2, 3, 4, 16)])
def test_the_norm_of_adapters_is_kerass_bit_for_bit_and_so_are_its_gradients_nearly(shape):
    inputs = [normal(shape[-1]), normal(shape[-1], seed=1), normal(*shape, seed=2)]

    def found(gamma, beta, inputs):
        return layer_norm(inputs, gamma, beta, 1e-12)

    np.testing.assert_array_equal(found(*inputs), kerass_norm(*inputs))
    # Float32 sums in another order.
    agree(found, kerass_norm, inputs, tolerance=3e-6)


def test_dropout_differentiates_through_the_mask_that_it_drew():
    kept = tf.cast(keep_mask([3, 4], SEED, 0.4), tf.float32) / 0.6

    def plain(x, bias):
        return (x + bias) * kept

    agree(lambda *inputs: biased_dropout(0.4)(*inputs, SEED), plain, [normal(3, 4), normal(4, seed=1)])


# The masks of dropout


@pytest.mark.parametrize("rate", [0.001, 0.1, 0.9])
def test_dropout_drops_its_rate_and_keeps_the_mean(rate):
    count = 1_000_000
    outputs = biased_dropout(rate)(tf.ones([1000, 1000]), tf.zeros([1000]), SEED).numpy()
    # Four standard deviations of a binomial.
    assert abs((outputs == 0).sum() - rate * count) < 4 * (count * rate * (1 - rate)) ** 0.5
    assert np.allclose(outputs[outputs != 0], 1 / (1 - rate))


def masks(seeds, shape=(256, 384), rate=0.1):
    return [keep_mask(shape, tf.constant(seed, tf.int32), rate).numpy() for seed in seeds]


def test_masks_of_different_seeds_are_independent():
    # Sites and steps differ in their seeds: neighbours in either word, and random ones.
    random = np.random.default_rng(0).integers(-(2**31), 2**31, (4, 2)).tolist()
    found = [mask.ravel().astype(float) for mask in masks([[0, 0], [1, 0], [0, 1], [1, 1], [2, 0], [-1, 0], *random])]
    assert np.abs(np.corrcoef(found)[np.triu_indices(len(found), 1)]).max() < 4.5 / found[0].size ** 0.5


def test_within_a_mask_rows_columns_and_neighbours_are_independent():
    (mask,) = masks([[11, 13]])
    flat = (mask - 0.9).ravel()
    assert np.abs(mask.mean(0) - 0.9).max() < 5 * (0.09 / 256) ** 0.5
    assert np.abs(mask.mean(1) - 0.9).max() < 5 * (0.09 / 384) ** 0.5
    for distance in (1, 2, 384, 768):
        assert abs((flat[distance:] * flat[:-distance]).mean() / 0.09) < 4.5 / flat.size**0.5


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16])
def test_half_precision_is_kept_and_gradients_of_vectors_are_summed_in_float32(dtype):
    matrix, vector = tf.cast(normal(4, 8), dtype), tf.cast(normal(8), dtype)
    for outputs in (
        biased_dropout(0.1)(matrix, vector, SEED),
        biased_activation("gelu")(matrix, vector),
        dot_product_attention(0.1, 0.5)(*[tf.reshape(matrix, [1, 2, 4, 4])] * 3, None, SEED),
    ):
        assert outputs.dtype == dtype
    vectors = [tf.ones([8]), tf.zeros([8]), tf.zeros([8])]
    with tf.GradientTape() as tape:
        tape.watch(vectors)
        outputs = sum_norm(1e-12, 1, 8)(*vectors, tf.cast(normal(4096, 8), dtype))
    assert outputs.dtype == dtype
    # In float16 this sum is beyond the greatest number, in bfloat16 it would be rounded to a multiple of 2048.
    _, of_beta, _ = tape.gradient(outputs, vectors, tf.fill(outputs.shape, tf.constant(100.125, dtype)))
    assert of_beta.numpy().tolist() == [4096 * float(tf.constant(100.125, dtype))] * 8


@pytest.mark.parametrize("compiled", [False, True])
def test_of_many_lists_the_one_at_a_place_is_picked_and_has_the_gradient(compiled):
    count = 4 * 4 + 2
    choices = [[normal(2, 3, seed=number), normal(3, seed=100 + number)] for number in range(1, count + 1)]

    @tf.function(jit_compile=compiled)
    def values_and_gradients(place):
        with tf.GradientTape() as tape:
            tape.watch(choices)
            kernel, bias = pick(place, choices)
            total = tf.reduce_sum(kernel**2) + tf.reduce_sum(bias)
        return kernel, bias, tape.gradient(total, choices)

    for place in range(count + 1):
        kernel, bias, gradients = values_and_gradients(tf.constant(place))
        expected = choices[place - 1] if place else [tf.zeros([2, 3]), tf.zeros([3])]
        np.testing.assert_array_equal(kernel, expected[0])
        np.testing.assert_array_equal(bias, expected[1])
        for number, (of_kernel, of_bias) in enumerate(gradients, 1):
            np.testing.assert_array_equal(of_kernel, 2 * kernel if number == place else tf.zeros([2, 3]))
            np.testing.assert_array_equal(of_bias, np.full(3, float(number == place)))
