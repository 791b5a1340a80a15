"""The weights in a directory of `adapters` or PEFT, by the places of a model that they belong to, and its head.

A static head has the names of transformers' class. A flexible one is a sequence of dense layers under numbers, with an
activation between them, on the pooler, the first token or every token; which of these a model of ours computes follows
from its own layers.
"""

import re

import numpy as np

from tf_adapters.adapterhub.description import FILES, HEAD_TYPES, describe_head
from tf_adapters.adapterhub.torch_files import read_torch_file
from tf_adapters.errors import InputError, shown
from tf_adapters.models.state import state_of
from tf_adapters.models.transformers.heads import TwoLayerHead, head_layers
from tf_adapters.models.weight_files import check_finite, named_weights, open_weights, to_pytorch


def read_weights(directory, what):
    """The weights of a directory as float32 arrays, and the path of their file; `what` is a key of `FILES`. InputError
    if there is no such file, it is damaged or would run code, or it holds NaN or infinity."""
    tensors, pickled = (directory / name for name in FILES[what])
    if tensors.is_file():
        path = tensors
        with open_weights(directory, [tensors.name]) as file:
            arrays = {name: file.read(name) for name in file}
    elif pickled.is_file():
        path = pickled
        arrays = {name: np.asarray(value, np.float32) for name, value in read_torch_file(pickled).items()}
    else:
        raise InputError(f"{directory} has neither {tensors.name} nor {pickled.name}.")
    check_finite(arrays, path)
    return arrays, path


def name_of(settings, weights, path):
    """What an adapter is called in a file: as its description says, or as its weights do."""
    if settings.get("name"):
        if not isinstance(settings["name"], str) or len(settings["name"]) > 200:
            raise InputError(
                f"{path}: the adapter's name is {shown(settings['name'])}, not one of at most 200 letters."
            )
        return settings["name"]
    names = {match[1] for key in weights if (match := re.search(r"(?:adapters|loras)\.([^.]+)\.", key))}
    if len(names) != 1:
        raise InputError(f"{path} has adapters called {sorted(names)}, and its settings do not say which.")
    return names.pop()


def refuse_setting(directory, settings, name, why):
    """Raise the InputError for a setting of a directory that has no like here."""
    raise InputError(f"{directory}: {name}={shown(settings.get(name))} cannot be imported: {why}.")


def check_fixed(directory, settings, fixed, switches=()):
    """Raise it where a setting has another value than in `fixed`, a dict from its name to `(value, why)`, or where a
    switch is neither true nor false."""
    for name, (value, why) in fixed.items():
        if settings.get(name, value) != value:
            refuse_setting(directory, settings, name, why)
    for name in switches:
        if not isinstance(settings[name], bool):
            refuse_setting(directory, settings, name, "it must be true or false")


def prefixes(model, rest):
    """What names of an adapter's weights begin with -> its place, `(block, place)`; `rest` follows the sub-layer's."""
    family = state_of(model).family
    return {
        f"{family.adapterhub_site(model, block, place)}.{rest}": (block, place)
        for block in range(len(family.blocks(model)))
        for place in ("attention", "ffn")
    }


def by_site(model, weights, places, path):
    """Weights by their place and by what is left of their name, dicts in a dict; InputError for a name that begins as
    none of `places`, a dict as of `prefixes`."""
    found, base = {}, model.base_model_prefix + "."
    for key, value in weights.items():
        full = key if key.startswith(base) else base + key  # saved from the bare encoder
        prefix = next((prefix for prefix in places if full.startswith(prefix)), None)
        if prefix is None:
            raise InputError(
                f"{path} holds {shown(key)}, for which this model has no place: a "
                f"{state_of(model).family.model_type}'s names begin as {next(iter(places))!r} does."
            )
        found.setdefault(places[prefix], {})[full.removeprefix(prefix)] = value
    return found


def by_key(config, found, shapes, depth, path):
    """What was found, by the keys of the config's layers; InputError where a part is lacking, too much, or of another
    shape.

    Args:
        found: dict from place to dict of arrays, in our layout and by our names.
        shapes: function from a place to its parts' shapes, a dict.
    """
    sites, values = config.sites(depth), {}
    for block, place in set(found) - set(sites):
        raise InputError(f"{path} has an adapter in block {block} ({place}), which adapter_config.json leaves out.")
    for site, key in sites.items():
        parts, expected = found.get(site, {}), shapes(site)
        if {part: value.shape for part, value in parts.items()} != expected:
            wrong = sorted(set(expected) - set(parts)) or [
                part for part in parts if parts[part].shape != expected.get(part)
            ]
            have = parts[wrong[0]].shape if wrong[0] in parts else "missing"
            must = expected.get(wrong[0], "left out")
            raise InputError(f"{path}: {wrong[0]} of block {site[0]} ({site[1]}) is {have}, and must be {must}.")
        values[key] = parts
    return values


def read_head(model, state, directory, settings):
    """The values of a directory's head, if it has one.

    Returns: dict from names to `(variable, value)`, whether the head has a dense layer of its own in the pooler's
    place, and the names of its labels, None where there are none.

    Raises:
        InputError: the head is of another kind, computes something else, or lacks a weight.
    """
    described = describe_head(directory, settings)
    if described is None:
        return {}, False, None
    weights, path = read_weights(directory, "head")
    check_kind(model, state, described.head, directory)
    targets, has_pooler = named_weights(state.head_variables(model)), False
    if described.flexible is not None:
        names, has_pooler = _names_of_flexible(described, model, state, directory)
        weights = {_rename(key, described.name, names): value for key, value in weights.items()}
    if has_pooler:
        targets |= named_weights(state.family.pooler(model).weights)
    named = described.head in ("classification", "token-classification") and described.label2id is not None
    return matched(weights, targets, path), has_pooler, described.labels if named else None


def check_kind(model, state, head, directory):
    """Raise InputError if a directory's head is of another kind than the model's."""
    if state.family.head_of(model) != head:
        raise InputError(
            f"{directory} has a head for {head}, and this model is a {type(model).__name__}: load the encoder with "
            f"head={head!r}, or pass {{head}}.",
            head=False,
        )


def matched(weights, targets, path):
    """The values of a head in PyTorch's layout, by our names, with their variables: dict from name to `(variable,
    value)`, in which all `targets`, `(variable, transposed)`, must be."""
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
                f"{path}: {name} is {value.shape}, not {tuple(variable.shape)}: load the encoder with as many labels, "
                "or pass {head}.",
                head=False,
            )
        values[name] = variable, value
    lacking = sorted(set(targets) - set(values))
    if lacking:
        raise InputError(f"{path} lacks {lacking[0]!r}, which this model's head has: pass {{head}}.", head=False)
    return values


def head_files(model, state, name):
    """`head_config.json`'s own entries, and the weights, of a model's head.

    A static head is written wherever there is a class for it: PyTorch's models with flexible heads read it too. `name`
    is the adapter's there. InputError where AdapterHub has no like of the head.
    """
    head = state.family.head_of(model)
    if head not in HEAD_TYPES:
        raise InputError(f"The head of a {type(model).__name__} cannot be exported: pass {{head}}.", head=False)
    labels = {label: index for index, label in model.config.id2label.items()}
    named = {key: to_pytorch(*target) for key, target in named_weights(state.head_variables(model)).items()}
    fresh = state.newly_initialized and state.family.reads_pooler(model)
    if not fresh and not isinstance(getattr(model, "classifier", None), TwoLayerHead):
        return {"config": None, "label2id": labels, "name": None, "num_labels": model.config.num_labels}, named
    if head != "classification":
        raise InputError(
            "The head has a pooler of its own, which AdapterHub has in classification alone: pass {head}.", head=False
        )
    # A pooler that was trained with the head is the first layer of a flexible head there.
    pooler, layers = _dense_layers(model, state)
    layers = pooler + layers if fresh else layers
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
