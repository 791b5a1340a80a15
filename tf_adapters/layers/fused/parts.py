"""The parts of an encoder block of BERT's shape, made of the fused operations.

Blocks of either Keras hand over their weights as tensors, in the dtype in which these are stored. Each is cast once, to
that of the hidden states.
"""

from typing import NamedTuple, Tuple

import tensorflow as tf

from tf_adapters.layers.fused.activation import biased_activation
from tf_adapters.layers.fused.attention import dot_product_attention
from tf_adapters.layers.fused.compiled import wide
from tf_adapters.layers.fused.dropout import biased_dropout
from tf_adapters.layers.fused.layer_norm import sum_norm


class Dense(NamedTuple):
    """A dense layer: kernel `(inputs, outputs)`, bias `(outputs,)`, and of an update by LoRA `(a, b, factor)` with
    `factor a b` beside the kernel, or `()`."""

    kernel: tf.Tensor
    bias: tf.Tensor
    update: Tuple = ()


class Adapter(NamedTuple):
    """A bottleneck adapter: the weights of its two dense layers, the name of its activation, and its gate, a scalar."""

    down_kernel: tf.Tensor
    down_bias: tf.Tensor
    up_kernel: tf.Tensor
    up_bias: tf.Tensor
    activation: str
    gate: tf.Tensor


class Norm(NamedTuple):
    """A LayerNorm: gamma and beta, `(size,)`, and epsilon, a float."""

    gamma: tf.Tensor
    beta: tf.Tensor
    epsilon: float


def attend(states, query, key, value, *, heads, mask, rate=0.0, seed=None, queries=None):
    """What self-attention makes of hidden states, before its output layer.

    Args:
        states: `(batch, length, hidden)`.
        query, key, value: `Dense`.
        heads: int.
        mask: can be added to the scores `(batch, heads, queries, length)`, or None.
        rate, seed: of the dropout of the weights (see `random_mask`); at rate 0 there is no seed.
        queries: int, only so many first tokens ask, and the others are asked; None for all.

    Returns: `(batch, queries, hidden)`.
    """
    scale = (query.kernel.shape[1] // heads) ** -0.5
    if queries is None:
        parts = _project(states, (query, key, value), (scale, 1.0, 1.0), heads)
    else:
        parts = _project(states[:, :queries], (query,), (scale,), heads)
        parts += _project(states, (key, value), (1.0, 1.0), heads)
    context = tf.transpose(dot_product_attention(rate)(*parts, mask, seed), [0, 2, 1, 3])
    return tf.reshape(context, tf.concat([tf.shape(context)[:2], [query.kernel.shape[1]]], 0))


def _project(states, denses, scales, heads):
    """`(batch, heads, length, width)` for each of several dense layers, by one product; scores are scaled here.

    LoRA's updates take two narrow products for all of them.
    """
    size = denses[0].kernel.shape[1]
    kernel, bias = (
        tf.cast(
            tf.concat([wide(getattr(dense, name)) * scale for dense, scale in zip(denses, scales)], -1), states.dtype
        )
        for name in ("kernel", "bias")
    )
    flat = rows(states)
    joint = tf.nn.bias_add(tf.matmul(flat, kernel), bias)
    down, up = [], []
    for number, (dense, scale) in enumerate(zip(denses, scales)):
        if dense.update:
            a, b, factor = dense.update
            down.append(tf.cast(a, states.dtype))
            thin = tf.cast(wide(b) * (factor * scale), states.dtype)
            up.append(tf.pad(thin, [[0, 0], [number * size, (len(denses) - 1 - number) * size]]))
    if down:
        joint += tf.matmul(tf.matmul(flat, tf.concat(down, 1)), tf.concat(up, 0))
    batch, length = tf.unstack(tf.shape(states)[:2])
    joint = tf.reshape(joint, [batch, length, len(denses), heads, size // heads])
    return tf.unstack(tf.transpose(joint, [2, 0, 3, 1, 4]))


def expand(states, dense, activation, training):
    """The first feed-forward layer.

    Args:
        states: `(batch, length, hidden)`.
        dense: `Dense` without an update.
        activation: key of `layers.fused.activation.ACTIVATIONS`.
        training: bool, keep what the gradient needs.

    Returns: `(batch, length, size)`.
    """
    product = tf.matmul(rows(states), tf.cast(dense.kernel, states.dtype))
    outputs = biased_activation(activation, training)(product, tf.cast(dense.bias, states.dtype))
    return tf.reshape(outputs, tf.concat([tf.shape(states)[:-1], [dense.kernel.shape[1]]], 0))


def close(states, inputs, dense, norm, *, adapter=None, rate=0.0, seed=None, training=False):
    """What ends a sub-layer: dense layer, dropout, adapter, sum, LayerNorm.

    Args:
        states: `(batch, length, size)`, what the sub-layer made before its last dense layer.
        inputs: `(batch, length, hidden)`, what the sub-layer was given.
        dense: `Dense` without an update.
        norm: `Norm`.
        adapter: `Adapter`, or None.
        rate, seed: of the dropout behind the dense layer; at rate 0 there is no seed.
        training: bool, keep what the gradient needs.

    Returns: as `inputs`.
    """
    dtype, units = states.dtype, dense.kernel.shape[1]
    product, bias = tf.matmul(rows(states), tf.cast(dense.kernel, dtype)), tf.cast(dense.bias, dtype)
    made = biased_dropout(rate)(product, bias, seed) if rate else tf.nn.bias_add(product, bias)
    terms, bias = [made, rows(inputs)], tf.zeros([units])
    if adapter is not None:
        squeezed = tf.matmul(made, tf.cast(adapter.down_kernel, dtype))
        inner = biased_activation(adapter.activation, training)(squeezed, tf.cast(adapter.down_bias, dtype))
        # On the kernel the gate costs m*d products; on the activations it would cost tokens*d.
        kernel, bias = (wide(weight) * adapter.gate for weight in (adapter.up_kernel, adapter.up_bias))
        terms.append(tf.matmul(inner, tf.cast(kernel, dtype)))
    outputs = sum_norm(norm.epsilon, len(terms), units)(wide(norm.gamma), wide(norm.beta), bias, *terms)
    return tf.reshape(outputs, tf.shape(inputs))


def rows(tensor):
    """All but the last axis as one."""
    return tf.reshape(tensor, [-1, tensor.shape[-1]])


def is_known(training):
    """Whether `training` is decided when a graph is traced."""
    return training is None or isinstance(training, (bool, int))


def keeps(training):
    """Whether what the gradient needs is kept: what cannot be known is."""
    return bool(training) if is_known(training) else True
