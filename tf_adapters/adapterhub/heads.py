"""Prediction heads: AdapterHub's files and the layers of a model.

A static head has the names of transformers' class. A flexible one is a sequence of dense layers under numbers, with an
activation between them, on the pooler, the first token or every token; which of these a model of ours computes follows
from its own layers.
"""

import re

import numpy as np

from tf_adapters.adapterhub.description import HEAD_TYPES, read_head_description
from tf_adapters.errors import InputError, shown
from tf_adapters.models.transformers.heads import TwoLayerHead, head_layers
from tf_adapters.models.transformers.names import named_weights, to_pytorch


def read_head(model, state, directory, weights, path):
    """The values of a directory's head.

    Args:
        weights: dict of arrays from the head's file.
        path: of that file.

    Returns: dict from names to `(variable, value)`, whether the head has a dense layer of its own in the pooler's
    place, and the names of its labels, None where there are none.

    Raises:
        InputError: the head is of another kind, computes something else, or lacks a weight.
    """
    described = read_head_description(directory)
    if state.family.head_of(model) != described.head:
        raise InputError(
            f"{directory} has a head for {described.head}, and this model is a {type(model).__name__}: load the "
            f"encoder with head={described.head!r}, or pass {{head}}.",
            head=False,
        )
    targets, has_pooler = named_weights(state.head_variables(model)), False
    if described.flexible is not None:
        names, has_pooler = _names_of_flexible(described, model, state, directory)
        weights = {_rename(key, described.name, names): value for key, value in weights.items()}
    if has_pooler:
        targets |= named_weights(state.family.pooler(model).weights)
    named = described.head in ("classification", "token-classification") and described.label2id is not None
    return matched(weights, targets, path), has_pooler, described.labels if named else None


def matched(weights, targets, path):
    """The values of a head by its layers' names: dict from name to `(variable, value)`.

    Args:
        weights: dict of arrays in PyTorch's layout, by our names.
        targets: dict from name to `(variable, transposed)`, all of which are wanted.
        path: of the file, for messages.
    """
    values = {}
    for name, value in weights.items():
        if name not in targets:
            raise InputError(
                f"{path} holds {shown(name)}, for which this model's head has no weight: pass {{head}}.", head=False
            )
        variable, transposed = targets[name]
        value = np.asarray(value, np.float32).T if transposed else np.asarray(value, np.float32)
        if value.shape != tuple(variable.shape):
            raise InputError(
                f"{path}: {name} is {value.shape}, and the model's is {tuple(variable.shape)}: load the encoder with "
                "as many labels, or pass {head}.",
                head=False,
            )
        values[name] = variable, value
    lacking = sorted(set(targets) - set(values))
    if lacking:
        raise InputError(f"{path} lacks {lacking[0]!r}, which this model's head has: pass {{head}}.", head=False)
    return values


def head_files(model, state, name):
    """`head_config.json`'s own entries, and the weights, of a model's head.

    A static head is written wherever there is a class for it: PyTorch's models with flexible heads read it too.

    Args:
        name: str, the adapter's name there.

    Raises:
        InputError: AdapterHub has no like of the head.
    """
    head = state.family.head_of(model)
    if head not in HEAD_TYPES:
        raise InputError(f"The head of a {type(model).__name__} cannot be exported: pass {{head}}.", head=False)
    labels = {label: index for index, label in model.config.id2label.items()}
    named = {key: to_pytorch(*target) for key, target in named_weights(state.head_variables(model)).items()}
    if not state.newly_initialized and not isinstance(getattr(model, "classifier", None), TwoLayerHead):
        return {"config": None, "label2id": labels, "name": None, "num_labels": model.config.num_labels}, named
    if head != "classification":
        raise InputError(
            f"The head of this {type(model).__name__} has a pooler of its own, which AdapterHub's files have in heads "
            "of classification alone: pass {head}.",
            head=False,
        )
    # A pooler that was trained with the head is the first layer of a flexible head there.
    pooler, layers = _dense_layers(model, state)
    layers = pooler + layers if state.newly_initialized else layers
    flexible = {
        "activation_function": "tanh", "bias": True, "dropout_prob": None, "head_type": "classification",
        "label2id": labels,
        "layers": len(layers), "num_labels": model.config.num_labels, "use_pooler": not state.newly_initialized,
    }  # fmt: skip
    numbers = dict(zip(layers, _numbers(len(layers))))
    weights = {}
    for key, value in named.items():
        layer, _, part = key.rpartition(".")
        weights[f"heads.{name}.{numbers[layer]}.{part}"] = value
    model_class = type(model).__name__.removeprefix("TF").partition("For")[0] + "AdapterModel"
    return {"config": flexible, "name": name, "model_class": model_class}, weights


def _dense_layers(model, state):
    """Names of the dense layers that make a head, in the order in which they compute: the encoder's pooler, and the
    others."""
    pooler = state.family.pooler(model).weights if state.family.reads_pooler(model) else []
    others = [variable for layer in head_layers(model, state) for variable in layer.weights]
    return tuple(
        list(dict.fromkeys(name.rpartition(".")[0] for name in named_weights(variables)))
        for variables in (pooler, others)
    )


def _numbers(count):
    """Where the dense layers stand in a flexible head: dropout, dense, activation, dropout, dense, ..."""
    return [str(1 + 3 * index) for index in range(count)]


def _names_of_flexible(described, model, state, directory):
    """Names of our layers by the numbers in a flexible head, and whether the first of them is the pooler."""
    theirs, activation = described.flexible, state.family.head_activation(model.config)
    pooler, layers = _dense_layers(model, state)
    # The same with a pooler as it was pretrained, or with one of the head's own.
    ways = {False: pooler + layers, True: layers} if pooler else {False: layers}
    on_pooler = bool(theirs.get("use_pooler"))
    chosen = ways.get(on_pooler, [])
    if theirs.get("layers") != len(chosen) or (len(chosen) > 1 and theirs.get("activation_function") != activation):
        computed = " or ".join(_in_words(len(names), activation, pooled) for pooled, names in ways.items())
        raise InputError(
            f"{directory} has the flexible head {theirs['head_type']!r} of "
            f"{_in_words(theirs.get('layers'), theirs.get('activation_function'), on_pooler)}, and that of a "
            f"{type(model).__name__} has {computed}: pass {{head}}.",
            head=False,
        )
    return dict(zip(_numbers(len(chosen)), chosen)), bool(pooler) and not on_pooler


def _in_words(layers, activation, pooled):
    return f"{layers} layer(s)" + (f" with {activation}" if layers != 1 else "") + (" on the pooler" if pooled else "")


def _rename(key, name, names):
    match = re.fullmatch(rf"heads\.{re.escape(name)}\.(\d+)\.(weight|bias)", key)
    return f"{names[match[1]]}.{match[2]}" if match and match[1] in names else key
