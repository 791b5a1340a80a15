"""Bottleneck adapter. Houlsby et al. 2019, Parameter-Efficient Transfer Learning for NLP."""

import tensorflow as tf

from tf_adapters._keras import keras
from tf_adapters.config import INNER_NORMS, INTERACTIONS, check_scaling
from tf_adapters.errors import InputError
from tf_adapters.layers.activation import get_activation
from tf_adapters.layers.dropout import SeededDropout
from tf_adapters.layers.layer_norm import layer_norm
from tf_adapters.layers.method import MethodLayer
from tf_adapters.ranges import in_range

# PyTorch's default, which AdapterHub's adapters have.
INNER_NORM_EPSILON = 1e-5


class AdapterLayer(MethodLayer):
    """Bottleneck adapter with a skip connection (Houlsby et al., 2019), and its variants.

    Computes `h + A(h)` at every position, where `A(x) = W_up f(W_down x + b_down) + b_up`. With
    `init_stddev` near zero it starts as almost the identity.

    Args:
        bottleneck_size: int, size `m` of the bottleneck.
        activation: str, name of the activation `f`; `"gelu"` is exact, `"gelu_tanh"`
            approximate, every other Keras name works.
        init_stddev: float, standard deviation of the kernels' normal initialisation,
            truncated at two standard deviations. Biases start at zero.
        dropout: float in [0, 1), rate on the up-projection before the skip connection.
        hidden_layers: int, layers of `m` units between the projections; 1 is the paper's adapter.
        inner_norm: `"none"`, or a LayerNorm `"before"` the down- or `"after"` the up-projection.
        scaling: float, a factor on `A(x)`, or `"learned"`: a scalar that trains and starts at 1.
        interaction: `"add"`, or `"multiply"` for `h * (1 + A(x))`.
        seed: int or None. Each kernel draws from a seed of its own derived from it.

    Call arguments:
        hidden_states: float tensor, `(..., hidden_size)`.
        inputs: what the adapter reads, a tensor like `hidden_states`, which it reads if this is None.
        gate: float scalar or None; multiplies `A(x)`. 1 is the adapter, 0 the identity, bit for bit.
        training: bool, whether dropout applies.

    Returns: the same shape and dtype as `hidden_states`.

    Raises:
        InputError: a size below 1, an unknown choice.

    Example:
    >>> AdapterLayer(bottleneck_size=16)(tf.zeros((2, 5, 64))).shape
    TensorShape([2, 5, 64])

    Reference: Houlsby et al. 2019, sections 2.1 (with figure 2) and 3.6 (several layers, normalisation, multiplication);
        scaling: He et al. 2022, section 4.
    """

    @in_range
    def __init__(
        self, bottleneck_size, *, activation="gelu", init_stddev=1e-2, dropout=0.0, hidden_layers=1, inner_norm="none",
        scaling=1.0, interaction="add", seed=None, **kwargs,
    ):  # fmt: skip
        super().__init__(**kwargs)
        check_scaling(scaling)
        for name, value, choices in (("inner_norm", inner_norm, INNER_NORMS), ("interaction", interaction, INTERACTIONS)):
            if value not in choices:
                raise InputError(f"{name}={value!r} is unknown: use one of {', '.join(map(repr, choices))}.")
        self.bottleneck_size = bottleneck_size
        self.activation = activation
        self.init_stddev = init_stddev
        self.dropout = dropout
        self.hidden_layers = hidden_layers
        self.inner_norm = inner_norm
        self.scaling = scaling
        self.interaction = interaction
        self.seed = seed
        self._activation_function = get_activation(activation)
        self._dropout_layer = SeededDropout(dropout, seed=None if seed is None else seed + 2) if dropout else None

    @property
    def is_plain(self):
        """Whether it is the paper's adapter, whose two projections are all that it has."""
        return (self.hidden_layers, self.inner_norm, self.scaling, self.interaction) == (1, "none", 1.0, "add")

    def build(self, input_shape):
        hidden_size, m = input_shape[-1], self.bottleneck_size
        if hidden_size is None:
            raise InputError(f"AdapterLayer needs a known hidden size, and the input shape is {input_shape}.")
        kernels = {"down": (hidden_size, m), "up": (m, hidden_size)}
        kernels |= {f"hidden_{number}": (m, m) for number in range(1, self.hidden_layers)}
        for name, shape in kernels.items():
            # One initializer object for all would draw the same numbers again.
            initializer = keras.initializers.TruncatedNormal(stddev=self._stddev(name), seed=self._seed(name))
            self._add(f"{name}.kernel", shape, initializer)
            self._add(f"{name}.bias", shape[1:], "zeros")
        if self.inner_norm != "none":
            self._add("norm.gamma", (hidden_size,), "ones")
            self._add("norm.beta", (hidden_size,), "zeros")
        if self.scaling == "learned":
            self._add("learned.scaling", (), "ones")
        super().build(input_shape)

    def _stddev(self, name):
        # Near zero at both ends is near the identity; between them it would stop the signal.
        return self.init_stddev if name in ("down", "up") else self.bottleneck_size**-0.5

    def _seed(self, name):
        offset = {"down": 0, "up": 1}[name] if name in ("down", "up") else 2 + int(name.removeprefix("hidden_"))
        return None if self.seed is None else self.seed + offset

    def call(self, hidden_states, inputs=None, gate=None, training=False):
        update = self.update(hidden_states if inputs is None else inputs, gate=gate, training=training)
        update = tf.reshape(update, tf.shape(hidden_states))
        return hidden_states + (hidden_states * update if self.interaction == "multiply" else update)

    def update(self, inputs, *, gate=None, training=False):
        """`A(inputs)`, one row for each position: `(positions, hidden_size)`."""
        # Matrices, not a batch of them: one MatMul + BiasAdd each, which TensorFlow fuses.
        flat = tf.reshape(inputs, (-1, inputs.shape[-1]))
        kernel, bias = tf.convert_to_tensor(self.up_kernel), tf.convert_to_tensor(self.up_bias)
        if gate is not None and self.is_plain:
            # On the kernel the gate costs m*d products; on the activations it would cost tokens*d.
            kernel, bias, gate = kernel * gate, bias * gate, None
        if self.inner_norm == "before":
            flat = self._normalise(flat)
        inner = self._activation_function(tf.nn.bias_add(tf.matmul(flat, self.down_kernel), self.down_bias))
        for number in range(1, self.hidden_layers):
            middle, shift = (tf.convert_to_tensor(getattr(self, f"hidden_{number}_{part}")) for part in ("kernel", "bias"))
            inner = self._activation_function(tf.nn.bias_add(tf.matmul(inner, middle), shift))
        update = tf.nn.bias_add(tf.matmul(inner, kernel), bias)
        if self.scaling != 1.0:
            update *= tf.cast(self.scaling_factor, update.dtype)
        if self._dropout_layer is not None:
            update = self._dropout_layer(update, training=training)
        if self.inner_norm == "after":
            update = self._normalise(update)
        return update if gate is None else update * gate

    @property
    def scaling_factor(self):
        """The factor on the adapter's output: a float, or the variable that learns it."""
        return self.learned_scaling if self.scaling == "learned" else self.scaling

    def _normalise(self, rows):
        gamma, beta = (tf.cast(tf.convert_to_tensor(weight), tf.float32) for weight in (self.norm_gamma, self.norm_beta))
        return tf.cast(layer_norm(tf.cast(rows, tf.float32), gamma, beta, INNER_NORM_EPSILON), rows.dtype)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        names = (
            "bottleneck_size", "activation", "init_stddev", "dropout", "hidden_layers", "inner_norm", "scaling", "interaction", "seed",
        )  # fmt: skip
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}
