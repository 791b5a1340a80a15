"""AdapterFusion in the files of `adapters`, with the adapters that it is of in folders of their own."""

import re

import numpy as np

from tf_adapters.adapterhub import bottleneck
from tf_adapters.adapterhub.description import read_description
from tf_adapters.adapterhub.weights import by_key, by_site, check_fixed, prefixes, read_weights
from tf_adapters.errors import InputError, shown
from tf_adapters.methods.fusion import FusionConfig
from tf_adapters.models.state import state_of
from tf_adapters.models.weight_files import to_pytorch
from tf_adapters.paths import to_path

# What only this value of can be expressed. Whether values are multiplied before they are summed or after makes no
# difference.
_FIXED = {
    **dict.fromkeys(("query", "key", "value"), True),
    **dict.fromkeys(("query_before_ln", "residual_before", "temperature"), False),
}
# The factor on the distance of values from the identity, which their training adds or leaves out.
_REGULARIZATION = 0.01


def read(model, directory, settings, adapters=None):
    """The name, the `FusionConfig` and the values, by the keys of layers, of the fusion in a directory; as of
    `import_adapter`."""
    theirs = settings["config"]
    only = "FusionLayer has only {!r} ('dynamic') for it"
    check_fixed(directory, theirs, {name: (value, only.format(value)) for name, value in _FIXED.items()})
    name = str(settings.get("name"))
    names = settings.get("adapter_names") or name.split(",")
    _check_names(names, f"{directory}: adapter_names={shown(names)}")
    if adapters is not None and set(adapters) != set(names):
        raise InputError(f"{{adapters}} must name the directories of {', '.join(map(repr, names))}.", adapters=adapters)
    configs, saved = {}, {}
    for adapter in names:
        folder = _folder(directory, adapter) if adapters is None else to_path(adapters[adapter])
        method, described = read_description(folder)
        if method != "bottleneck":
            raise InputError(f"{folder} holds {method}: bottleneck adapters are fused.")
        _, configs[adapter], saved[adapter] = bottleneck.read(model, folder, described)
    config = FusionConfig(configs, _REGULARIZATION if theirs.get("regularization", True) else 0.0)
    _check_meaning(config)
    weights, path = read_weights(directory, "fusion")
    # The library saves what only begins with the name too: of "a,b,c" beside "a,b".
    others = re.compile(rf"\.adapter_fusion_layer\.{re.escape(name)}[^.]")
    weights = {key: value for key, value in weights.items() if not others.search(key)}
    found = by_site(model, weights, prefixes(model, f"adapter_fusion_layer.{name}."), path)
    depth, size = len(state_of(model).family.blocks(model)), model.config.hidden_size
    # There is one in blocks without adapters too, where nothing is fused.
    ours = {site: _our_parts(found.get(site, {}), path) for site in config.sites(depth)}
    shapes = {f"{layer}.kernel": (size, size) for layer in ("query", "key", "value")}
    shapes |= {"query.bias": (size,), "key.bias": (size,)}
    values = by_key(config, ours, lambda site: shapes, depth, path)
    for key, parts in values.items():
        for adapter, layers in saved.items():
            parts |= {f"adapters.{adapter}.{part}": value for part, value in layers[key].items()}
    return name.replace(",", "-"), config, values


def files(model, active, name):
    """What is written of a fusion and its adapters: `(folder, kind of files, description, arrays)`, in a list."""
    state = state_of(model)
    config, layers = state.adapters[active].config, state.adapters[active].layers
    names = list(config.adapters)
    name = ",".join(names) if name is None else name
    _check_names(names, f"adapters={names!r}")
    _check_meaning(config)
    sites, arrays = config.sites(len(state.family.blocks(model))), {}
    for prefix, site in prefixes(model, f"adapter_fusion_layer.{name}.").items():
        if site in sites:
            parts = layers[sites[site]].parts
            for layer in ("query", "key", "value"):
                arrays[f"{prefix}{layer}.weight"] = to_pytorch(parts[f"{layer}.kernel"], True)
            arrays[f"{prefix}query.bias"] = to_pytorch(parts["query.bias"], False)
            arrays[f"{prefix}key.bias"] = np.zeros_like(arrays[f"{prefix}query.bias"])
    settings = {
        **_FIXED, "dropout_prob": None, "regularization": config.value_regularization > 0, "value_before_softmax": True,
        "value_initialized": True,
    }  # fmt: skip
    written = [("", "fusion", {"config": settings, "name": name, "adapter_names": names}, arrays)]
    for adapter, described in config.adapters.items():
        own = {key: layer.adapters[adapter] for key, layer in layers.items()}
        written.append((adapter, "adapter", *bottleneck.described(model, described, own, adapter)))
    return written


def _folder(directory, name):
    for folder in (directory / name, directory.resolve().parent / name):
        if (folder / "adapter_config.json").is_file():
            return folder
    raise InputError(f"{directory} is of {name!r}, which is neither in it nor beside it: put its directory there.")


def _check_names(names, what):
    # They become folders.
    if not isinstance(names, list) or not all(
        isinstance(name, str) and re.fullmatch(r"[\w-]+", name) for name in names
    ):
        raise InputError(f"{what} must be names of letters, digits, '_' and '-'.")


def _check_meaning(config):
    """Raise InputError where `adapters` fuses to something else."""
    others = {
        ("insertion", "parallel"): "adds the sub-layer's input twice where such are fused",
        ("inner_norm", "after"): "fuses without that LayerNorm, which acts here",
    }
    for name, adapter in config.adapters.items():
        for (setting, value), does in others.items():
            if getattr(adapter, setting) == value:
                raise InputError(f"The adapter {name!r} has {setting}={value!r}: `adapters` 1.3.0 {does}.")


def _our_parts(parts, path):
    ours = {}
    for name, value in parts.items():
        layer, _, part = name.partition(".")
        if layer not in ("query", "key", "value") or part not in ("weight", "bias"):
            raise InputError(f"{path} holds {name!r} in a fusion, which has no like here.")
        ours[f"{layer}.{'kernel' if part == 'weight' else part}"] = value.T if value.ndim == 2 else value
    return ours
