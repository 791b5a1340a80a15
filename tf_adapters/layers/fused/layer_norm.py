"""Layer normalisation of a sum. Ba et al. 2016, Layer Normalization."""

import functools

import tensorflow as tf

from tf_adapters.layers.fused.compiled import compiled, wide

_LANES = 32


def _row_means(tensor):
    """Means over the last axis of a matrix, `(rows, 1)`.

    XLA adds the numbers of a row one after the other on a CPU; side by side in lanes it uses the processor's vectors.
    """
    size, lanes = tensor.shape[-1], _LANES
    if size % lanes:
        return tf.reduce_mean(tensor, -1, keepdims=True)
    sums = tf.reduce_sum(tf.reshape(tensor, [-1, size // lanes, lanes]), 1)
    while lanes > 1:
        lanes //= 2
        sums = sums[:, :lanes] + sums[:, lanes:]
    return sums / size


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
        summed = sum(map(wide, terms), wide(bias))
        centred = summed - _row_means(summed)
        inverse = tf.math.rsqrt(_row_means(centred * centred) + epsilon)
        normalised, dtype = centred * inverse, terms[0].dtype
        return tf.cast(normalised * wide(gamma) + wide(beta), dtype), tf.cast(normalised, dtype), inverse

    @compiled
    def backward(upstream, normalised, inverse, gamma):
        dtype, upstream, normalised = upstream.dtype, wide(upstream), wide(normalised)
        scaled = upstream * wide(gamma)
        along = _row_means(scaled * normalised)
        of_terms = inverse * (scaled - _row_means(scaled) - normalised * along)
        sums = (tf.reduce_sum(values, 0) for values in (upstream * normalised, upstream, of_terms))
        return tf.cast(of_terms, dtype), *sums

    @tf.custom_gradient
    def operation(gamma, beta, bias, *terms):
        outputs, normalised, inverse = forward(gamma, beta, bias, *terms)

        def gradient(upstream):
            of_terms, *sums = backward(upstream, normalised, inverse, gamma)
            of_vectors = [tf.cast(of_vector, like.dtype) for of_vector, like in zip(sums, (gamma, beta, bias))]
            return *of_vectors, *[of_terms] * len(terms)

        return outputs, gradient

    return operation
