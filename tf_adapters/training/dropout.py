"""Makes a whole model's dropout follow from one seed and fit into a checkpoint."""

from tf_adapters.layers.dropout import SeededDropout
from tf_adapters.layers.method import MethodLayer
from tf_adapters.models.state import state_of


def seed_dropout(model, seed, *, rate=None):
    """Replace each dropout layer of a model by a SeededDropout, or seed those there anew.

    Args:
        rate: float in [0, 1), for the encoder and the head (adapters have their config's), or
            None for the rates that they were built with, whatever an earlier call said.

    Returns: the list of SeededDropout layers, in an order that depends on the model alone.
    """
    layers = []
    for owner, attribute, value, its_rate in state_of(model).family.dropout_layers(model):
        built_with = getattr(value, "rate_built_with", its_rate)
        dropout = SeededDropout(
            built_with if rate is None or isinstance(owner, MethodLayer) else rate,
            # Of transformers' own classes none has it.
            noise_shape=getattr(value, "noise_shape", None),
            seed=(seed * 1_000_003 + len(layers)) % 2**31,
            name=value.name,
            dtype=value.dtype_policy,
        )
        dropout.rate_built_with = built_with
        setattr(owner, attribute, dropout)
        layers.append(dropout)
    return layers
