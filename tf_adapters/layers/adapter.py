"""Bottleneck adapter. Houlsby et al. 2019, Parameter-Efficient Transfer Learning for NLP."""

import tensorflow as tf

from tf_adapters._keras import keras
from tf_adapters.errors import InputError
from tf_adapters.layers.activation import get_activation
from tf_adapters.layers.dropout import SeededDropout


class AdapterLayer(keras.layers.Layer):
    """Bottleneck adapter with a skip connection (Houlsby et al., 2019).

    Computes `h + W_up f(W_down h + b_down) + b_up` at every position. With
    `init_stddev` near zero it starts as almost the identity.

    Args:
        bottleneck_size: int, size `m` of the bottleneck.
        activation: str, name of the activation `f`; `"gelu"` is exact, `"gelu_tanh"`
            approximate, every other Keras name works.
        init_stddev: float, standard deviation of the kernels' normal initialisation,
            truncated at two standard deviations. Biases start at zero.
        dropout: float in [0, 1), rate on the up-projection before the skip connection.
        seed: int or None. Each kernel draws from a seed of its own derived from it.

    Call arguments:
        hidden_states: float tensor, `(..., hidden_size)`.
        gate: float scalar or None; multiplies the up-projection and its bias. 1 is the
            adapter, 0 the identity, bit for bit.
        training: bool, whether dropout applies.

    Returns: the same shape and dtype as `hidden_states`.

    Raises:
        InputError: a bottleneck below 1, an unknown activation.

    Example:
    >>> AdapterLayer(bottleneck_size=16)(tf.zeros((2, 5, 64))).shape
    TensorShape([2, 5, 64])

    Reference: Houlsby et al. 2019, section 2.1 and figure 2.
    """

    def __init__(self, bottleneck_size, *, activation="gelu", init_stddev=1e-2, dropout=0.0, seed=None, **kwargs):
        super().__init__(**kwargs)
        if bottleneck_size < 1:
            raise InputError(f"bottleneck_size={bottleneck_size!r} must be at least 1.")
        self.bottleneck_size = bottleneck_size
        self.activation = activation
        self.init_stddev = init_stddev
        self.dropout = dropout
        self.seed = seed
        self._activation_function = get_activation(activation)
        self._dropout_layer = SeededDropout(dropout, seed=None if seed is None else seed + 2) if dropout else None

    def build(self, input_shape):
        hidden_size = input_shape[-1]
        if hidden_size is None:
            raise InputError(f"AdapterLayer needs a known hidden size, and the input shape is {input_shape}.")
        kernels = {"down": (hidden_size, self.bottleneck_size), "up": (self.bottleneck_size, hidden_size)}
        for offset, (name, shape) in enumerate(kernels.items()):
            # One initializer object for both would draw the same numbers twice.
            initializer = keras.initializers.TruncatedNormal(
                stddev=self.init_stddev, seed=None if self.seed is None else self.seed + offset
            )
            kernel = self.add_weight(name=f"{name}/kernel", shape=shape, initializer=initializer)
            bias = self.add_weight(name=f"{name}/bias", shape=shape[1:], initializer="zeros")
            setattr(self, f"{name}_kernel", kernel)
            setattr(self, f"{name}_bias", bias)
        super().build(input_shape)

    def call(self, hidden_states, gate=None, training=False):
        # Matrices, not a batch of them: one MatMul + BiasAdd each, which TensorFlow fuses.
        flat = tf.reshape(hidden_states, (-1, hidden_states.shape[-1]))
        kernel, bias = tf.convert_to_tensor(self.up_kernel), tf.convert_to_tensor(self.up_bias)
        if gate is not None:
            # On the kernel the gate costs m*d products; on the activations it would cost tokens*d.
            kernel, bias = kernel * gate, bias * gate
        inner = self._activation_function(tf.nn.bias_add(tf.matmul(flat, self.down_kernel), self.down_bias))
        update = tf.nn.bias_add(tf.matmul(inner, kernel), bias)
        if self._dropout_layer is not None:
            update = self._dropout_layer(update, training=training)
        return hidden_states + tf.reshape(update, tf.shape(hidden_states))

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        config = super().get_config()
        config.update(
            bottleneck_size=self.bottleneck_size,
            activation=self.activation,
            init_stddev=self.init_stddev,
            dropout=self.dropout,
            seed=self.seed,
        )
        return config
