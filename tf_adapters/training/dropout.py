"""Makes a whole model's dropout follow from one seed and fit into a checkpoint."""

from tf_adapters.layers.method import MethodLayer
from tf_adapters.layers.dropout import SeededDropout, dropout_layers


def seed_dropout(model, seed, *, rate=None):
    """Replace each Keras Dropout of a model by a SeededDropout, or seed those there anew.

    Args:
        rate: float in [0, 1), for the encoder and the head (adapters have their config's), or
            None for the rates that they were built with, whatever an earlier call said.

    Returns: the list of SeededDropout layers, in an order that depends on the model alone.
    """
    layers = []
    for owner, attribute, value in dropout_layers(model):
        built_with = getattr(value, "rate_built_with", value.rate)
        dropout = SeededDropout(
            built_with if rate is None or isinstance(owner, MethodLayer) else rate,
            noise_shape=value.noise_shape,
            seed=(seed * 1_000_003 + len(layers)) % 2**31,
            name=value.name,
            dtype=value.dtype_policy,
        )
        dropout.rate_built_with = built_with
        setattr(owner, attribute, dropout)
        layers.append(dropout)
    return layers
