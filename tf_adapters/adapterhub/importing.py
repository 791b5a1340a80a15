"""From AdapterHub's files to an adapter of a model."""

import pathlib
import re

import numpy as np

from tf_adapters.adapterhub.description import read_description
from tf_adapters.adapterhub.heads import read_head
from tf_adapters.adapterhub.settings import check_placement, config_from_hub
from tf_adapters.adapterhub.torch_files import read_torch_file
from tf_adapters.errors import InputError
from tf_adapters.models.injection import add_adapters, remove_adapters
from tf_adapters.models.state import state_of

# Names of first versions.
_RENAMED = (
    (re.compile(r"\.attention_(text_task|text_lang)_adapters\."), ".adapters."),
    (re.compile(r"\.layer_(text_task|text_lang)_adapters\."), ".adapters."),
)
_PARTS = {"adapter_down.0.weight": "down.kernel", "adapter_down.0.bias": "down.bias", "adapter_up.weight": "up.kernel", "adapter_up.bias": "up.bias"}


def import_adapter(model, directory, *, name=None, head=True):
    """Load an adapter that `adapters` saved into a model, and make it active.

    Args:
        model: a built transformers TensorFlow model on the encoder that the adapter was trained on. AdapterHub's files name it,
            but hold no digest of it: that the weights are the same cannot be checked.
        directory: path with `adapter_config.json`, and `adapter.safetensors` or `pytorch_adapter.bin`.
        name: str, the adapter's name on this model; None for the file's own.
        head: bool, whether to load the prediction head too, if there is one.

    Returns: the settings in `adapter_config.json`, a dict.

    Raises:
        InputError: nothing there, another hidden size or family, something that has no like here, a file that is damaged or
            would run code. The model is then as it was.
    """
    directory, state = pathlib.Path(directory), state_of(model)
    settings = read_description(directory)
    weights, path = _read_weights(directory, "adapter")
    _check_encoder(model, state, settings, directory)
    theirs = settings.get("name") or _only_name(weights, path)
    name = theirs if name is None else name
    blocks = len(state.family.blocks(model))
    found = _by_site(model, state, weights, theirs, blocks, path)
    sizes = {parts["down.bias"].shape[0] for parts in found.values() if "down.bias" in parts}
    if len(sizes) != 1:
        raise InputError(f"{path} has adapters of {sorted(sizes) or 'no'} units: AdapterConfig has one size for all.")
    config = config_from_hub(settings, sizes.pop(), blocks, directory)
    check_placement(config, state.family)
    values = _values(config, found, blocks, model.config.hidden_size, path)
    has_head = head and (directory / "head_config.json").is_file()
    head_values, has_pooler = read_head(model, state, directory, *_read_weights(directory, "head")) if has_head else ({}, False)
    if has_pooler:
        state.train_pooler(model)
    add_adapters(model, config, name=name, seed=0)
    try:
        for key, layer in state.adapters[name].layers.items():
            for part, variable in layer.parts.items():
                variable.assign(values[key][part])
        for variable, value in head_values.values():
            variable.assign(value)
    except BaseException:
        remove_adapters(model, name=name)
        raise
    return settings


def _read_weights(directory, what):
    """The arrays of `adapter.safetensors` or `pytorch_adapter.bin`, and the file's path."""
    stem = {"adapter": ("adapter", "pytorch_adapter"), "head": ("model_head", "pytorch_model_head")}[what]
    path = directory / f"{stem[0]}.safetensors"
    if path.is_file():
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        try:
            return load_file(path), path
        except SafetensorError as error:
            raise InputError(f"{path} is no complete safetensors file: {error}.") from None
    path = directory / f"{stem[1]}.bin"
    if not path.is_file():
        raise InputError(f"{directory} has neither {stem[0]}.safetensors nor {path.name}.")
    return read_torch_file(path), path


def _check_encoder(model, state, settings, directory):
    if not state.family.on_adapterhub:
        raise InputError(f"AdapterHub has no adapters for {state.family.model_type}.")
    for key, ours in (("hidden_size", model.config.hidden_size), ("model_type", model.config.model_type)):
        if key in settings and settings[key] != ours:
            raise InputError(f"{directory} is for an encoder with {key}={settings[key]!r}, and this model has {key}={ours!r}.")


def _only_name(weights, path):
    names = {match[1] for key in weights if (match := re.search(r"adapters\.([^.]+)\.adapter_", key))}
    if len(names) != 1:
        raise InputError(f"{path} has adapters called {sorted(names)}, and its settings do not say which.")
    return names.pop()


def _by_site(model, state, weights, name, blocks, path):
    """Dict from `(block, place)` to its arrays by our names of the parts, in our layout."""
    prefixes = {
        f"{state.family.adapterhub_site(model, block, place)}.adapters.{name}.": (block, place)
        for block in range(blocks)
        for place in ("attention", "ffn")
    }
    found = {}
    for key, value in weights.items():
        full = key
        for pattern, replacement in _RENAMED:
            full = pattern.sub(replacement, full)
        if not full.startswith(model.base_model_prefix + "."):
            full = f"{model.base_model_prefix}.{full}"  # saved from the bare encoder
        prefix = next((prefix for prefix in prefixes if full.startswith(prefix)), None)
        if prefix is None:
            if "invertible" in key:
                continue  # first versions save it beside every task
            raise InputError(f"{path} holds {key!r}, for which this model has no place.")
        found.setdefault(prefixes[prefix], {})[full.removeprefix(prefix)] = np.asarray(value, np.float32)
    return {site: _our_parts(parts, path) for site, parts in found.items()}


def _our_parts(parts, path):
    # A LayerNorm before the projection is there twice, and the projection is the second of the two.
    if "adapter_norm_before.weight" in parts:
        parts = {
            {"adapter_down.1.weight": "adapter_down.0.weight", "adapter_down.1.bias": "adapter_down.0.bias"}.get(name, name): value
            for name, value in parts.items()
            if not name.startswith("adapter_down.0.")
        }
    ours = {}
    for name, value in parts.items():
        if name in _PARTS:
            ours[_PARTS[name]] = value.T if value.ndim == 2 else value
        elif name == "scaling":
            ours["learned.scaling"] = value.reshape(())
        elif match := re.fullmatch(r"adapter_norm_(?:before|after)\.(weight|bias)", name):
            ours[{"weight": "norm.gamma", "bias": "norm.beta"}[match[1]]] = value
        else:
            raise InputError(f"{path} holds {name!r} in an adapter, which has no like here.")
    return ours


def _values(config, found, blocks, hidden, path):
    """Dict from our keys to their parts, complete and of the right shapes."""
    sites, m = config.sites(blocks), config.bottleneck_size
    for site in set(found) - set(sites):
        raise InputError(f"{path} has an adapter in block {site[0]} ({site[1]}), which adapter_config.json leaves out.")
    shapes = {"down.kernel": (hidden, m), "down.bias": (m,), "up.kernel": (m, hidden), "up.bias": (hidden,)}
    if config.inner_norm != "none":
        shapes |= {"norm.gamma": (hidden,), "norm.beta": (hidden,)}
    if config.scaling == "learned":
        shapes["learned.scaling"] = ()
    values = {}
    for site, key in sites.items():
        parts = found.get(site, {})
        if {part: value.shape for part, value in parts.items()} != shapes:
            missing = sorted(set(shapes) - set(parts)) or [part for part in parts if parts[part].shape != shapes.get(part)]
            have = parts[missing[0]].shape if missing[0] in parts else "missing"
            raise InputError(
                f"{path}: {missing[0]} of block {site[0]} ({site[1]}) is {have}, and must be {shapes.get(missing[0], 'left out')}."
            )
        values[key] = parts
    return values
