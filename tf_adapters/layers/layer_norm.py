"""Layer normalisation with a shorter backward pass. Ba et al. 2016, Layer Normalization."""

import tensorflow as tf


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
