"""Makes a whole model's dropout follow from one seed and fit into a checkpoint."""

from tf_adapters._keras import keras
from tf_adapters.layers.dropout import SeededDropout


def seed_dropout(model, seed):
    """Replace each Keras Dropout of a model by a SeededDropout, or seed those there anew.

    Returns: the list of SeededDropout layers, in an order that depends on the model alone.
    """
    layers = []
    for owner in [model, *model.submodules]:
        if not isinstance(owner, keras.layers.Layer):
            continue
        for attribute, value in sorted(vars(owner).items()):
            if isinstance(value, keras.layers.Dropout):
                dropout = SeededDropout(
                    value.rate,
                    noise_shape=value.noise_shape,
                    seed=(seed * 1_000_003 + len(layers)) % 2**31,
                    name=value.name,
                    dtype=value.dtype_policy,
                )
                setattr(owner, attribute, dropout)
                layers.append(dropout)
    return layers
