"""Attention by parts against its formula: values, gradients, masks of every shape, and dropout."""

import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.test_fused import SEED, agree, normal
from tf_adapters.layers import attention, fused
from tf_adapters.layers.attention import dot_product_attention
from tf_adapters.layers.fused import keep_mask

# Rows, heads, queries and keys, of how many scores a part is at most, and whether there are parts.
CASES = [((5, 1, 8, 8), 2**18, True), ((4, 3, 2, 5), 55, True), ((2, 2, 1, 6), 1, True), ((2, 3, 2, 5), 1, False)]
SCALE = 0.5
TOLERANCE = 4e-6  # Beside float64 both err by half of it.


@pytest.fixture(params=CASES, ids=str)
def case(request, monkeypatch):
    shape, part, is_long = request.param
    monkeypatch.setattr(attention, "_LONG", 1 if is_long else 2**15)
    monkeypatch.setattr(attention, "_PART", part)
    return shape, is_long


def tensors(shape, width=4):
    rows, heads, queries, keys = shape
    lengths = enumerate((queries, keys, keys))
    return [normal(rows, heads, length, width, seed=seed) for seed, length in lengths]


def formula(mask=0.0, kept=1.0):
    def plain(query, key, value):
        return (tf.nn.softmax(SCALE * query @ tf.linalg.matrix_transpose(key) + mask) * kept) @ value

    return plain


def kept_weights(shape, by_parts):
    """Dropout at a rate of 0.3: by parts the scores are keys by queries."""
    rows, heads, queries, keys = shape
    if by_parts:
        return tf.linalg.matrix_transpose(kept_weights((rows, heads, keys, queries), False))
    return tf.cast(keep_mask(shape, SEED, 0.3), tf.float32) / 0.7


def dropping(*inputs):
    return dot_product_attention(0.3, SCALE)(*inputs, None, SEED)


def masks(shape):
    """Each dimension of the scores of its own, or one for all."""
    rows, heads, queries, keys = shape
    for own in ((rows, 1, 1, keys), (rows, heads, queries, keys), (1, heads, 1, keys)):
        mask = np.where(np.random.default_rng(0).random(own) < 0.3, np.finfo(np.float32).min, 0)
        mask[..., 0, :] = 0
        if own[2] == 1:
            mask[-1, -1] = np.finfo(np.float32).min  # Of a row, or of a head, all keys.
        yield tf.constant(mask, tf.float32)


def test_attention_is_its_formula(case):
    shape, _ = case
    for mask in masks(shape):

        def found(*inputs):
            return dot_product_attention(0.0, SCALE)(*inputs, mask, None)

        agree(found, formula(mask), tensors(shape), tolerance=TOLERANCE)


@pytest.mark.parametrize("compiled", [False, True])
def test_it_drops_weights_and_differentiates_through_the_same_mask(case, compiled):
    """Whatever the parts are; in a graph that is compiled as a whole too."""
    found, expected = tf.function(dropping, jit_compile=compiled), formula(kept=kept_weights(*case))
    agree(found, expected, tensors(case[0]), tolerance=TOLERANCE)


@pytest.mark.parametrize(("dtype", "tolerance"), [(tf.bfloat16, 0.02), (tf.float16, 0.002)])
def test_in_half_precision_weights_that_are_dropped_have_their_share_in_the_gradient(dtype, tolerance):
    shape = 2, 3, 5, 5

    def found(*inputs):
        return tf.cast(dropping(*[tf.cast(tensor, dtype) for tensor in inputs]), tf.float32)

    agree(found, formula(kept=kept_weights(shape, False)), tensors(shape), tolerance=tolerance)


def test_for_the_gradient_one_tensor_of_the_scores_size_is_kept():
    forward, _ = attention._at_once(0.3, SCALE)
    _, *kept = forward(None, SEED, *tensors((2, 3, 5, 5)))
    assert [int(tf.size(tensor)) for tensor in kept] == [2 * 3 * 5 * 5, 1]


@pytest.mark.parametrize("compiled", [False, True])
def test_a_graph_of_any_length_makes_long_rows_by_parts(monkeypatch, compiled):
    monkeypatch.setattr(attention, "_LONG", 30)
    found = tf.function(dropping, [tf.TensorSpec([None, 2, None, 4])] * 3, jit_compile=compiled)
    for length in (5, 6):
        shape = 3, 2, length, length
        agree(found, formula(kept=kept_weights(shape, length == 6)), tensors(shape), tolerance=TOLERANCE)


@pytest.mark.parametrize("known", [[None, 2, 5, 4], [None] * 4], ids=str)
@pytest.mark.parametrize("compiled", [False, True])
def test_of_no_rows_there_is_no_loop_either(monkeypatch, compiled, known):
    monkeypatch.setattr(attention, "_LONG", 1)
    function = tf.function(dropping, [tf.TensorSpec(known)] * 3, jit_compile=compiled)
    for found in (function, dropping):
        inputs = [tensor[:0] for tensor in tensors((1, 2, 5, 5))]
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            made = found(*inputs)
        assert {tuple(tensor.shape) for tensor in (made, *tape.gradient(made, inputs))} == {(0, 2, 5, 4)}


def test_a_row_without_a_key_is_the_mean_of_all_whatever_its_mask(case):
    shape, _ = case
    query, key, value = tensors(shape)
    for least in (np.finfo(np.float32).min, -np.inf):
        mask = tf.fill([shape[0], 1, 1, shape[3]], tf.constant(least, tf.float32))
        made = dot_product_attention(0.0, SCALE)(query, key, value, mask, None)
        expected = tf.broadcast_to(tf.reduce_mean(value, 2, keepdims=True), made.shape)
        np.testing.assert_allclose(made, expected, atol=1e-6)


def test_without_programs_there_is_no_loop(monkeypatch):
    monkeypatch.setattr(attention, "_LONG", 1)

    def found(*inputs):
        with fused.uncompiled():
            return dropping(*inputs)

    inputs = tensors((2, 3, 5, 5))
    agree(found, formula(kept=kept_weights((2, 3, 5, 5), False)), inputs, tolerance=TOLERANCE)
    graph = tf.function(found).get_concrete_function(*inputs).graph
    assert not {"While", "StatelessWhile"} & {operation.type for operation in graph.get_operations()}


@pytest.mark.skipif("64" not in os.uname().machine, reason="oneDNN is no part of TensorFlow there")
def test_where_onednn_makes_the_products_rows_are_long_from_512_tokens_on():
    found = []
    for used in "01":
        code = "from tf_adapters.layers import attention; print('long:', attention._LONG)"
        environment = {**os.environ, "TF_ENABLE_ONEDNN_OPTS": used, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        found.append(int(done.stdout.partition("long: ")[2]))
    assert found == [2**15, 512 * 512]
