"""What tf_keras, TensorFlow and transformers keep to themselves and is needed here, each with why. tests/test_keras_internals.py tries
them at both ends of the versions."""

import tensorflow as tf


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
