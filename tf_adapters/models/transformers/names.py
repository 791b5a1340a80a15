"""Names of pretrained weights that depend neither on Keras scopes nor on injection."""

import numpy as np
from transformers.modeling_tf_pytorch_utils import convert_tf_weight_name_to_pt_weight_name


def pytorch_name(name, shape):
    """PyTorch name of a TensorFlow weight, and whether the matrix is transposed there.

    Args:
        name: str, a variable name such as
            `tf_bert_model/bert/encoder/layer_._0/output/dense/kernel:0`.
        shape: its shape.

    Returns: `("bert.encoder.layer.0.output.dense.weight", True)`.
    """
    pytorch, transpose = convert_tf_weight_name_to_pt_weight_name(name, tf_weight_shape=tuple(shape))
    return pytorch, transpose.name == "SIMPLE"


def named_weights(variables):
    """Variables under their PyTorch names, each once.

    Returns: dict from name to `(variable, transposed)`, in the order given.
    """
    named = {}
    for variable in variables:
        name, transposed = pytorch_name(variable.name, variable.shape)
        if name in named and named[name][0] is not variable:
            raise RuntimeError(f"Two weights are called {name}.")
        named[name] = (variable, transposed)
    return named


def to_pytorch(variable, transposed):
    """The weight's value as a float32 NumPy array in PyTorch's layout."""
    value = np.asarray(variable.numpy(), dtype=np.float32)
    return np.ascontiguousarray(value.T) if transposed else value
