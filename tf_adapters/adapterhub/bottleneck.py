"""Bottleneck adapters in the files of `adapters`."""

import re

import numpy as np

from tf_adapters.adapterhub.settings import check_placement, config_for_hub, config_from_hub
from tf_adapters.adapterhub.weights import by_key, by_site, name_of, read_weights
from tf_adapters.errors import InputError
from tf_adapters.models.state import state_of

# Names of first versions.
_RENAMED = (
    (re.compile(r"\.attention_(text_task|text_lang)_adapters\."), ".adapters."),
    (re.compile(r"\.layer_(text_task|text_lang)_adapters\."), ".adapters."),
)
_PARTS = {
    "adapter_down.0.weight": "down.kernel", "adapter_down.0.bias": "down.bias", "adapter_up.weight": "up.kernel",
    "adapter_up.bias": "up.bias",
}  # fmt: skip
_THEIRS = {
    "down.kernel": "adapter_down.{first}.weight", "down.bias": "adapter_down.{first}.bias",
    "up.kernel": "adapter_up.weight",
    "up.bias": "adapter_up.bias", "learned.scaling": "scaling",
}  # fmt: skip


def read(model, directory, settings):
    """The name, the `AdapterConfig` and the values, by the keys of layers, of the adapter in a directory."""
    state = state_of(model)
    weights, path = read_weights(directory, "adapter")
    name, depth, hidden = name_of(settings, weights, path), len(state.family.blocks(model)), model.config.hidden_size
    found = by_site(model, _modern(weights), _prefixes(model, f"adapters.{name}."), path)
    found = {site: _our_parts(parts, path) for site, parts in found.items()}
    sizes = {parts["down.bias"].size for parts in found.values() if "down.bias" in parts}
    if len(sizes) != 1:
        raise InputError(f"{path} has adapters of {sorted(sizes) or 'no'} units: AdapterConfig has one size for all.")
    config = config_from_hub(settings, sizes.pop(), depth, directory)
    check_placement(config, state.family)
    m = config.bottleneck_size
    shapes = {"down.kernel": (hidden, m), "down.bias": (m,), "up.kernel": (m, hidden), "up.bias": (hidden,)}
    if config.inner_norm != "none":
        shapes |= {"norm.gamma": (hidden,), "norm.beta": (hidden,)}
    if config.scaling == "learned":
        shapes["learned.scaling"] = ()
    return name, config, by_key(config, found, lambda site: shapes, depth, path)


def files(model, active, name):
    """What is written of an adapter: `(folder, kind of files, description, arrays)`, in a list."""
    adapter = state_of(model).adapters[active]
    return [("", "adapter", *described(model, adapter.config, adapter.layers, name or active))]


def described(model, config, layers, name):
    """The description and the arrays of adapters.

    Args:
        config: AdapterConfig.
        layers: dict from the config's keys to AdapterLayers.
        name: str, what it is called there.
    """
    family = state_of(model).family
    depth = len(family.blocks(model))
    settings = config_for_hub(config, model.config.hidden_size, depth)
    check_placement(config, family)
    sites, arrays = config.sites(depth), {}
    for prefix, site in _prefixes(model, f"adapters.{name}.").items():
        if site in sites:
            arrays |= {prefix + part: value for part, value in _their_parts(layers[sites[site]], config).items()}
    return {"config": settings, "name": name}, arrays


def _prefixes(model, rest):
    family = state_of(model).family
    return {
        f"{family.adapterhub_site(model, block, place)}.{rest}": (block, place)
        for block in range(len(family.blocks(model)))
        for place in ("attention", "ffn")
    }


def _modern(weights):
    """Weights under the names of today, without the invertible adapters that first versions save beside every task."""
    renamed = {}
    for key, value in weights.items():
        for pattern, replacement in _RENAMED:
            key = pattern.sub(replacement, key)
        if "invertible" not in key:
            renamed[key] = value
    return renamed


def _our_parts(parts, path):
    # A LayerNorm before the projection is there twice, and the projection is the second of the two.
    if "adapter_norm_before.weight" in parts:
        parts = {
            {"adapter_down.1.weight": "adapter_down.0.weight", "adapter_down.1.bias": "adapter_down.0.bias"}.get(
                name, name
            ): value
            for name, value in parts.items()
            if not name.startswith("adapter_down.0.")
        }
    ours = {}
    for name, value in parts.items():
        if name in _PARTS:
            ours[_PARTS[name]] = value.T if value.ndim == 2 else value
        elif name == "scaling":
            ours["learned.scaling"] = value.reshape(()) if value.size == 1 else value
        elif match := re.fullmatch(r"adapter_norm_(?:before|after)\.(weight|bias)", name):
            ours[{"weight": "norm.gamma", "bias": "norm.beta"}[match[1]]] = value
        else:
            raise InputError(f"{path} holds {name!r} in an adapter, which has no like here.")
    return ours


def _their_parts(layer, config):
    before = config.inner_norm == "before"
    arrays = {}
    for part, variable in layer.parts.items():
        value = np.asarray(variable.numpy(), np.float32)
        if part.startswith("norm."):
            which = {"norm.gamma": "weight", "norm.beta": "bias"}[part]
            arrays[f"adapter_norm_{config.inner_norm}.{which}"] = value
            if before:
                arrays[f"adapter_down.0.{which}"] = value
        else:
            arrays[_THEIRS[part].format(first=int(before))] = (
                np.ascontiguousarray(value.T) if value.ndim == 2 else value.reshape(-1)
            )
    return arrays
