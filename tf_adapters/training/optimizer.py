"""The optimiser of a run."""

from tf_adapters._keras import keras
from tf_adapters.ranges import checked


def make_optimizer(learning_rate, variables, *, weight_decay=0.0, clip_norm=None):
    """Adam, or AdamW where there is a weight decay.

    Args:
        learning_rate: float or schedule.
        variables: what trains.
        weight_decay: float, what a step takes off of each matrix, times the learning rate. Vectors (biases, LayerNorms,
            scales) and scalars do not decay.
        clip_norm: float, the norm of the gradient of all weights together that is not exceeded; a longer one is scaled
            down. None for any.

    Raises:
        InputError: a value out of range.

    Reference: Loshchilov & Hutter 2019 (decoupled decay); which weights decay: Devlin et al. 2019, published code.
    """
    weight_decay = checked("weight_decay", weight_decay)
    clip_norm = None if clip_norm is None else checked("clip_norm", clip_norm)
    if not weight_decay:
        return keras.optimizers.Adam(learning_rate, global_clipnorm=clip_norm)
    optimizer = keras.optimizers.AdamW(learning_rate, weight_decay=weight_decay, global_clipnorm=clip_norm)
    optimizer.exclude_from_weight_decay(var_list=[variable for variable in variables if variable.shape.rank < 2])
    return optimizer
