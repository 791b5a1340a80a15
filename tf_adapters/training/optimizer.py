"""The optimiser of a run."""

import tensorflow as tf

from tf_adapters._keras import keras
from tf_adapters.ranges import checked


def make_optimizer(learning_rate, variables, *, weight_decay=0.0, clip_norm=None):
    """Adam, or AdamW where there is a weight decay.

    Args:
        learning_rate: float or schedule.
        variables: what trains.
        weight_decay: float, what a step takes off of each matrix, times the learning rate. Vectors (biases, LayerNorms, scales) and
            scalars do not decay.
        clip_norm: float, the norm of the gradient of all weights together that is not exceeded; a longer one is scaled down. None for
            any.

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


def go_on_with(optimizer, variables):
    """Let an optimizer that has trained some variables train others: those that it had before keep their moments, new ones start.

    Without it Keras' optimizers fail with a `KeyError` at the first step, for they know only what they were built with.

    Args:
        optimizer: of Keras, a `LossScaleOptimizer` too; the object stays the same.
        variables: list of what trains from now on.
    """
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if not getattr(inner, "_built", False) or not hasattr(inner, "_index_dict"):
        return  # it is built at its first step
    before = list(inner._index_dict)
    slots = {
        name: list(values)
        for name, values in vars(inner).items()
        if isinstance(values, list) and name != "_variables" and len(values) == len(before) and all(isinstance(v, tf.Variable) for v in values)
    }
    moments = {id(variable) for values in slots.values() for variable in values}
    inner._variables = [variable for variable in inner._variables if id(variable) not in moments]
    inner._built = False
    inner.build(variables)
    for name, values in slots.items():
        for key, value in zip(before, values):
            if key in inner._index_dict:
                getattr(inner, name)[inner._index_dict[key]].assign(value)
