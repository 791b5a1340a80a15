"""Activations whose gradient reads one tensor."""

import functools
import math

import tensorflow as tf

from tf_adapters.layers.fused.compiled import compiled, wide

# Each function takes a float32 tensor and returns its values and its derivatives.


def _gelu(x):
    bell = tf.exp(-0.5 * x * x) * (1 / math.sqrt(2 * math.pi))
    below = 0.5 * (1 + tf.math.erf(x * math.sqrt(0.5)))
    return x * below, below + x * bell


# The odd polynomial g for which 0.5 * (1 + tanh(g(x))) is nearest to the normal distribution up to 5, by least
# squares: the values are within 7e-6 of GELU's, the slopes within 2e-5. bfloat16 rounds to 2e-3.
_NORMAL = (0.7978711293, 0.0363879775, -8.486972636e-05, -3.734048251e-05, 1.46651086e-06)


def _gelu_half(x):
    # One tanh in place of an error function and an exponential, each of which costs XLA on a CPU twice as much.
    near = tf.clip_by_value(x, -5.0, 5.0)
    square, polynomial, slope = near * near, 0.0, 0.0
    for power in reversed(range(len(_NORMAL))):
        polynomial = polynomial * square + _NORMAL[power]
        slope = slope * square + (2 * power + 1) * _NORMAL[power]
    tanh = tf.tanh(near * polynomial)
    below = 0.5 * (1 + tanh)
    return x * below, below + near * 0.5 * (1 - tanh * tanh) * slope


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


# For tensors whose dtype is rounded to more coarsely than these differ from the exact ones.
HALF_PRECISION = {"gelu": _gelu_half}
# Names as in `activations` and in the configurations of transformers.
ACTIVATIONS = {
    "gelu": _gelu, "gelu_tanh": _gelu_tanh, "gelu_new": _gelu_tanh, "relu": _relu, "swish": _swish, "silu": _swish,
    "tanh": _tanh,
}  # fmt: skip


@functools.cache
def biased_activation(name, training):
    """The operation `activation(inputs + bias)`.

    Args:
        name: key of `ACTIVATIONS`.
        training: bool, keep the derivative for the gradient; otherwise it is computed when one is asked for.

    Returns: function of inputs `(rows, size)` and bias `(size,)`.
    """

    def values_and_slopes(inputs, bias):
        function = ACTIVATIONS[name] if inputs.dtype == tf.float32 else HALF_PRECISION.get(name, ACTIVATIONS[name])
        values, slopes = function(wide(inputs) + wide(bias))
        return tf.cast(values, inputs.dtype), tf.cast(slopes, inputs.dtype)

    forward = compiled(values_and_slopes if training else lambda inputs, bias: values_and_slopes(inputs, bias)[:1])
    later = compiled(lambda inputs, bias: values_and_slopes(inputs, bias)[1])

    @tf.custom_gradient
    def operation(inputs, bias):
        values, *slopes = forward(inputs, bias)

        def gradient(upstream):
            upstream = upstream * (slopes[0] if slopes else later(inputs, bias))
            return upstream, tf.cast(tf.reduce_sum(wide(upstream), 0), bias.dtype)

        return values, gradient

    return operation
