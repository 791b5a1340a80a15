"""The weights in a directory of `adapters` or PEFT, by the places of a model that they belong to."""

import re

import numpy as np

from tf_adapters.adapterhub.layout import FILES
from tf_adapters.adapterhub.torch_files import read_torch_file
from tf_adapters.errors import InputError, shown
from tf_adapters.models.state import state_of
from tf_adapters.models.weight_files import check_finite, open_weights


def read_weights(directory, what):
    """The weights of a directory as float32 arrays, and the path of their file.

    Args:
        directory: path.
        what: str, a key of `layout.FILES`.

    Raises:
        InputError: there is no such file, it is damaged or would run code, or it holds NaN or infinity.
    """
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
                f"{path}: the adapter's name is {shown(settings['name'])}, and must be a text of at most 200 "
                "characters."
            )
        return settings["name"]
    names = {match[1] for key in weights if (match := re.search(r"(?:adapters|loras)\.([^.]+)\.", key))}
    if len(names) != 1:
        raise InputError(f"{path} has adapters called {sorted(names)}, and its settings do not say which.")
    return names.pop()


def by_site(model, weights, prefixes, path):
    """Weights by their place and by what is left of their name.

    Args:
        weights: dict of arrays.
        prefixes: dict from what names begin with to the place, `(block, place)`.
        path: of the file, for messages.

    Returns: dict from place to dict of arrays.

    Raises:
        InputError: a name begins otherwise.
    """
    found, base = {}, model.base_model_prefix + "."
    for key, value in weights.items():
        full = key if key.startswith(base) else base + key  # saved from the bare encoder
        prefix = next((prefix for prefix in prefixes if full.startswith(prefix)), None)
        if prefix is None:
            raise InputError(
                f"{path} holds {shown(key)}, for which this model has no place: a "
                f"{state_of(model).family.model_type}'s names begin as {next(iter(prefixes))!r} does."
            )
        found.setdefault(prefixes[prefix], {})[full.removeprefix(prefix)] = value
    return found


def by_key(config, found, shapes, depth, path):
    """What was found, by the keys of the config's layers, complete and of the right shapes.

    Args:
        config: a MethodConfig.
        found: dict from place to dict of arrays, in our layout and by our names.
        shapes: function from a place to its parts' shapes, a dict.
        depth: int, blocks of the encoder.
        path: of the file, for messages.

    Raises:
        InputError: a part is lacking, too much, or of another shape.
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
