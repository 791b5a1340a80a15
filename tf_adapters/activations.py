"""Activations by name, so that a configuration can be written down; what they compute is in `layers.ops`."""

from tf_adapters.errors import InputError

NAMES = (
    "elu", "exponential", "gelu", "gelu_tanh", "hard_sigmoid", "linear", "mish", "relu", "selu", "sigmoid", "silu",
    "softmax", "softplus", "softsign", "swish", "tanh",
)  # fmt: skip
# Those that fast blocks compute with their biases; `gelu_new` is what transformers calls `gelu_tanh`.
FUSED = ("gelu", "gelu_tanh", "gelu_new", "relu", "swish", "silu", "tanh")

# transformers' other names for them.
_OTHERS = {
    "gelu_python": "gelu", "gelu_new": "gelu_tanh", "gelu_fast": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh",
    "swish": "silu",
}  # fmt: skip


def one_name(name):
    """The one name, of `NAMES` where it is there, of an activation that transformers may call by several."""
    return _OTHERS.get(name, name)


def check_activation(name):
    """Raise InputError unless `name` is one of `NAMES`: `"gelu"` is the exact one, `"gelu_tanh"` its tanh
    approximation, and `"swish"` and `"silu"` are the same."""
    if not isinstance(name, str) or name not in NAMES:
        raise InputError(f"{{activation}} is unknown: Keras has {', '.join(NAMES)}.", activation=name)
