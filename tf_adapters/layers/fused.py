"""What stands between the matrix products of an encoder block, compiled, with gradients in closed form, and the parts
of a block that are made of it.

Matrix products stay with TensorFlow's kernels (oneDNN on CPUs). What stands between them is a few operations that read
and write each tensor once: both directions of each are an XLA program of their own, since differentiating
through a program would split it up again. Inside a graph that is compiled as a whole the programs are inlined, and
XLA sees one.

The operations know nothing of layers. They take and return tensors of any floating type; the programs compute in
float32, and gradients of biases, gamma and beta are summed in it. Each operation is made once (`functools.cache`),
whatever number of layers asks for it: they then share its compilations.
"""

import contextlib
import functools
import math
import threading
from typing import NamedTuple, Tuple

import tensorflow as tf

_HERE = threading.local()


def compiled(function):
    """`function` of tensors as an XLA program, traced once for each rank and dtype, compiled once for each shape."""
    program = tf.function(function, jit_compile=True, autograph=False, reduce_retracing=True)

    @functools.wraps(function)
    def call(*tensors):
        return (function if is_uncompiled() else program)(*tensors)

    return call


def is_uncompiled():
    """Whether this thread is in the context `uncompiled`."""
    return getattr(_HERE, "plain", False)


@contextlib.contextmanager
def uncompiled():
    """What this thread traces in the context has the operations themselves in place of their programs, for servers
    without XLA."""
    before = is_uncompiled()
    with contextlib.ExitStack() as end:
        end.callback(setattr, _HERE, "plain", before)
        _HERE.plain = True
        yield


def wide(tensor):
    """A tensor in float32."""
    return tf.cast(tensor, tf.float32)


# XLA's own conversions of bfloat16 cost a CPU more than what programs do between them, the error function included.


def widened(tensor):
    """As `wide`, inside a program."""
    if tensor.dtype != tf.bfloat16 or is_uncompiled():
        return wide(tensor)
    bits = tf.cast(tf.bitcast(tensor, tf.uint16), tf.uint32)
    return tf.bitcast(tf.bitwise.left_shift(bits, tf.constant(16, tf.uint32)), tf.float32)


def narrowed(tensor, dtype):
    """A float32 tensor in `dtype`, inside a program; as `tf.cast`, to the nearest, of two the even one.

    A NaN stays one if it comes from bfloat16 or from arithmetic: none of those has all of its bits set.
    """
    if dtype != tf.bfloat16 or is_uncompiled():
        return tf.cast(tensor, dtype)
    sixteen, bits = tf.constant(16, tf.uint32), tf.bitcast(tensor, tf.uint32)
    odd = tf.bitwise.bitwise_and(tf.bitwise.right_shift(bits, sixteen), tf.constant(1, tf.uint32))
    bits = tf.bitwise.right_shift(bits + (odd + tf.constant(0x7FFF, tf.uint32)), sixteen)
    return tf.bitcast(tf.cast(bits, tf.uint16), tf.bfloat16)


# Dropout masks, which are computed from a seed wherever they are needed, and never stored


def keep_mask(shape, seed, rate, start=0):
    """Which elements dropout keeps, as a bool tensor; the same for the same arguments.

    The bits are a hash of the element's position: the finaliser of MurmurHash3 over a sequence whose odd step and
    whose beginning depend on the whole seed (Steele et al. 2014, Fast Splittable Pseudorandom Number Generators).

    Args:
        shape: int32 tensor, the shape of the result; fewer than 2**31 elements.
        seed: int32 tensor, `(2,)`.
        rate: float in (0, 1), the share that is dropped, exact to 2**-32.
        start: int32 scalar, the position of the first element, where the tensor is a part of a larger one.
    """
    first, second = tf.unstack(tf.bitcast(seed, tf.uint32))
    # So that seeds which differ in one word differ in both.
    first = _mix(first + _mix(second))
    second = _mix(second + _mix(first))
    bits = tf.bitcast(start + tf.range(tf.reduce_prod(shape)), tf.uint32)
    bits = _mix(bits * tf.bitwise.bitwise_or(first, tf.constant(1, tf.uint32)) + second)
    return tf.reshape(bits >= tf.constant(min(round(rate * 2**32), 2**32 - 1), tf.uint32), shape)


def _mix(bits):
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        bits = tf.bitwise.bitwise_xor(bits, tf.bitwise.right_shift(bits, tf.constant(shift, tf.uint32)))
        bits = bits * tf.constant(factor, tf.uint32)
    return bits


def drop(inputs, seed, rate, start=0):
    """Dropout of a float32 tensor: zero where it is dropped, and the rest scaled by 1 / (1 - rate)."""
    return tf.where(keep_mask(tf.shape(inputs), seed, rate, start), inputs * (1 / (1 - rate)), 0.0)


# Activations

# Each function takes a float32 tensor and returns its values and its derivatives.


def _gelu(x):
    bell = tf.exp(-0.5 * x * x) * (1 / math.sqrt(2 * math.pi))
    below = 0.5 * (1 + tf.math.erf(x * math.sqrt(0.5)))
    return x * below, below + x * bell


def _gelu_tanh(x):
    scale = math.sqrt(2 / math.pi)
    tanh = tf.tanh(scale * (x + 0.044715 * x * x * x))
    inner = scale * (1 + 3 * 0.044715 * x * x)
    return 0.5 * x * (1 + tanh), 0.5 * (1 + tanh) + 0.5 * x * (1 - tanh * tanh) * inner


def _relu(x):
    return tf.nn.relu(x), tf.cast(x > 0, x.dtype)


def _swish(x):
    gate = tf.sigmoid(x)
    return x * gate, gate * (1 + x * (1 - gate))


def _tanh(x):
    tanh = tf.tanh(x)
    return tanh, 1 - tanh * tanh


# Names as in `config` and in the configurations of transformers.
ACTIVATIONS = {
    "gelu": _gelu, "gelu_tanh": _gelu_tanh, "gelu_new": _gelu_tanh, "relu": _relu, "swish": _swish, "silu": _swish,
    "tanh": _tanh,
}  # fmt: skip


@functools.cache
def biased_activation(name):
    """The operation `activation(inputs + bias)`; its gradient computes the derivative, which is not kept.

    Args:
        name: key of `ACTIVATIONS`.

    Returns: function of inputs `(rows, size)` and bias `(size,)`.
    """
    function = ACTIVATIONS[name]

    @compiled
    def forward(inputs, bias):
        values, _ = function(widened(inputs) + widened(bias))
        return narrowed(values, inputs.dtype)

    @compiled
    def backward(upstream, inputs, bias):
        _, slopes = function(widened(inputs) + widened(bias))
        return narrowed(widened(upstream) * slopes, inputs.dtype)

    @tf.custom_gradient
    def operation(inputs, bias):
        def gradient(upstream):
            upstream = backward(upstream, inputs, bias)
            return upstream, tf.cast(tf.reduce_sum(wide(upstream), 0), bias.dtype)

        return forward(inputs, bias), gradient

    return operation


# Dropout that stores no mask


@functools.cache
def biased_dropout(rate):
    """The operation `dropout(inputs + bias)` at `rate`, in (0, 1).

    Returns: function of inputs `(rows, size)`, bias `(size,)` and seed (see `keep_mask`).
    """

    @compiled
    def forward(inputs, bias, seed):
        return narrowed(drop(widened(inputs) + widened(bias), seed, rate), inputs.dtype)

    @compiled
    def backward(upstream, seed):
        return narrowed(drop(widened(upstream), seed, rate), upstream.dtype)

    @tf.custom_gradient
    def operation(inputs, bias, seed):
        def gradient(upstream):
            upstream = backward(upstream, seed)
            return upstream, tf.cast(tf.reduce_sum(wide(upstream), 0), bias.dtype), None

        return forward(inputs, bias, seed), gradient

    return operation


# Layer normalisation: of plain blocks, and of a sum. Ba et al. 2016, Layer Normalization


@tf.custom_gradient
def layer_norm(inputs, gamma, beta, epsilon):
    """Normalise over the last axis; forward bit-equal to `keras.layers.LayerNormalization` in float32.

    The gradient is the closed form, `dx = (g - mean(g) - xhat mean(g xhat)) / sigma` with
    `g = gamma dy`, which reads the activations fewer times than differentiating the
    moments one by one.

    Args:
        inputs: float32 tensor, `(..., size)`.
        gamma, beta: float32 tensors, `(size,)`.
        epsilon: float, added to the variance.

    Returns: the shape of `inputs`.
    """
    mean, variance = tf.nn.moments(inputs, [-1], keepdims=True)
    outputs = tf.nn.batch_normalization(inputs, mean, variance, beta, gamma, epsilon)

    def gradient(upstream):
        inverse = tf.math.rsqrt(variance + epsilon)
        normalised = (inputs - mean) * inverse
        scaled = upstream * gamma
        centred = scaled - tf.reduce_mean(scaled, -1, keepdims=True)
        along = tf.reduce_mean(scaled * normalised, -1, keepdims=True)
        axes = list(range(inputs.shape.rank - 1))
        return (
            inverse * (centred - normalised * along),
            tf.reduce_sum(upstream * normalised, axes),
            tf.reduce_sum(upstream, axes),
            None,
        )

    return outputs, gradient


def _row_means(tensor):
    """Means over the last axis of a matrix, `(rows, 1)`.

    XLA adds the numbers of a row one after the other on a CPU; side by side in lanes it uses the processor's vectors.
    """
    size, lanes = tensor.shape[-1], 32
    if size % lanes:
        return tf.reduce_mean(tensor, -1, keepdims=True)
    sums = tf.reduce_sum(tf.reshape(tensor, [-1, size // lanes, lanes]), 1)
    return tf.reduce_sum(sums[:, : lanes // 2] + sums[:, lanes // 2 :], -1, keepdims=True) / size


@functools.cache
def sum_norm(epsilon, count, size):
    """The operation `LayerNorm(bias + first + second + ...)` over the last axis.

    Args:
        epsilon: float, added to the variance.
        count: int, how many terms there are beside the bias.
        size: int, of the last axis; an operation for each, since its programs must know it when they are traced.

    Returns: function of gamma, beta, bias, each `(size,)`, and `count` tensors `(rows, size)`.
    """

    @compiled
    def forward(gamma, beta, bias, *terms):
        summed = sum(map(widened, terms), wide(bias))
        centred = summed - _row_means(summed)
        inverse = tf.math.rsqrt(_row_means(centred * centred) + epsilon)
        normalised, dtype = centred * inverse, terms[0].dtype
        return narrowed(normalised * wide(gamma) + wide(beta), dtype), narrowed(normalised, dtype), inverse

    @compiled
    def backward(upstream, normalised, inverse, gamma):
        dtype, upstream, normalised = upstream.dtype, widened(upstream), widened(normalised)
        scaled = upstream * wide(gamma)
        along = _row_means(scaled * normalised)
        of_terms = inverse * (scaled - _row_means(scaled) - normalised * along)
        sums = (tf.reduce_sum(values, 0) for values in (upstream * normalised, upstream, of_terms))
        return narrowed(of_terms, dtype), *sums

    @tf.custom_gradient
    def operation(gamma, beta, bias, *terms):
        outputs, normalised, inverse = forward(gamma, beta, bias, *terms)

        def gradient(upstream):
            of_terms, *sums = backward(upstream, normalised, inverse, gamma)
            of_vectors = [tf.cast(of_vector, like.dtype) for of_vector, like in zip(sums, (gamma, beta, bias))]
            return *of_vectors, *[of_terms] * len(terms)

        return outputs, gradient

    return operation


# The parts of an encoder block of BERT's shape. Blocks of either Keras hand over their weights as tensors, in the dtype
# in which these are stored. Each is cast once, to that of the hidden states.


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


def expand(states, dense, activation):
    """The first feed-forward layer.

    Args:
        states: `(batch, length, hidden)`.
        dense: `Dense` without an update.
        activation: key of `ACTIVATIONS`.

    Returns: `(batch, length, size)`.
    """
    product = tf.matmul(rows(states), tf.cast(dense.kernel, states.dtype))
    outputs = biased_activation(activation)(product, tf.cast(dense.bias, states.dtype))
    return tf.reshape(outputs, tf.concat([tf.shape(states)[:-1], [dense.kernel.shape[1]]], 0))


def close(states, inputs, dense, norm, *, adapter=None, rate=0.0, seed=None):
    """What ends a sub-layer: dense layer, dropout, adapter, sum, LayerNorm.

    Args:
        states: `(batch, length, size)`, what the sub-layer made before its last dense layer.
        inputs: `(batch, length, hidden)`, what the sub-layer was given.
        dense: `Dense` without an update.
        norm: `Norm`.
        adapter: `Adapter`, or None.
        rate, seed: of the dropout behind the dense layer; at rate 0 there is no seed.

    Returns: as `inputs`.
    """
    dtype, units = states.dtype, dense.kernel.shape[1]
    product, bias = tf.matmul(rows(states), tf.cast(dense.kernel, dtype)), tf.cast(dense.bias, dtype)
    made = biased_dropout(rate)(product, bias, seed) if rate else tf.nn.bias_add(product, bias)
    terms, bias = [made, rows(inputs)], tf.zeros([units])
    if adapter is not None:
        squeezed = tf.matmul(made, tf.cast(adapter.down_kernel, dtype))
        inner = biased_activation(adapter.activation)(squeezed, tf.cast(adapter.down_bias, dtype))
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
