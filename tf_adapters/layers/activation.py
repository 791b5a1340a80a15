"""Activations by name, so that a configuration can be written down."""

import functools

from tf_adapters._keras import keras
from tf_adapters.errors import InputError

# Keras spells these otherwise, or leaves the choice to a default argument.
_NAMED = {
    "gelu": functools.partial(keras.activations.gelu, approximate=False),
    "gelu_tanh": functools.partial(keras.activations.gelu, approximate=True),
    "silu": keras.activations.swish,
}
_NO_ACTIVATIONS = {"deserialize", "get", "serialize"}  # which Keras finds by name too


def get_activation(name):
    """Return the activation function called `name`.

    Args:
        name: str, `"gelu"` (exact), `"gelu_tanh"`, `"swish"` or `"silu"`, or any other
            name that `keras.activations.get` knows.

    Raises:
        InputError: Keras does not know the name.
    """
    if name in _NAMED:
        return _NAMED[name]
    try:
        found = None if name in _NO_ACTIVATIONS else keras.activations.get(name)
    except (ValueError, TypeError):
        found = None
    if found is None or isinstance(found, type):
        known = sorted({*_NAMED, *(n for n, f in vars(keras.activations).items() if callable(f))} - _NO_ACTIVATIONS)
        raise InputError(f"{{activation}} is unknown: Keras has {', '.join(known)}.", activation=name)
    return found
