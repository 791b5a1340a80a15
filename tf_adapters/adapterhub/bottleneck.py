"""Bottleneck adapters in the files of `adapters`."""

import functools
import re

from tf_adapters.adapterhub.weights import by_key, by_site, check_fixed, name_of, prefixes, read_weights, refuse_setting
from tf_adapters.errors import InputError
from tf_adapters.methods.bottleneck import AdapterConfig
from tf_adapters.models.state import state_of
from tf_adapters.models.weight_files import to_pytorch
from tf_adapters.ranges import is_int

# Names of first versions.
_RENAMED = re.compile(r"\.(attention|layer)_(text_task|text_lang)_adapters\.")
_THEIRS = {
    "down.kernel": "adapter_down.{first}.weight", "down.bias": "adapter_down.{first}.bias",
    "up.kernel": "adapter_up.weight", "up.bias": "adapter_up.bias", "learned.scaling": "scaling",
}  # fmt: skip


def read(model, directory, settings):
    """The name, the `AdapterConfig` and the values, by the keys of layers, of the adapter in a directory."""
    state = state_of(model)
    weights, path = read_weights(directory, "adapter")
    name, depth, hidden = name_of(settings, weights, path), len(state.family.blocks(model)), model.config.hidden_size
    found = by_site(model, _modern(weights), prefixes(model, f"adapters.{name}."), path)
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
    """The description and the arrays of adapters; `layers` by the config's keys, `name` is what it is called there."""
    family = state_of(model).family
    depth = len(family.blocks(model))
    settings = config_for_hub(config, model.config.hidden_size, depth)
    check_placement(config, family)
    sites, arrays = config.sites(depth), {}
    for prefix, site in prefixes(model, f"adapters.{name}.").items():
        if site in sites:
            arrays |= {prefix + part: value for part, value in _their_parts(layers[sites[site]], config).items()}
    return {"config": settings, "name": name}, arrays


def _modern(weights):
    """Weights under the names of today, without the invertible adapters that first versions save beside every task."""
    return {_RENAMED.sub(".adapters.", key): value for key, value in weights.items() if "invertible" not in key}


def _our_parts(parts, path):
    # A LayerNorm before the projection is there twice, and the projection is the second of the two.
    first, ours = int("adapter_norm_before.weight" in parts), {}
    known = {theirs.format(first=first): part for part, theirs in _THEIRS.items()}
    for name, value in parts.items():
        if name == "scaling":
            ours["learned.scaling"] = value.reshape(()) if value.size == 1 else value
        elif name in known:
            ours[known[name]] = value.T if value.ndim == 2 else value
        elif first and name.startswith("adapter_down.0."):
            continue
        elif match := re.fullmatch(r"adapter_norm_(?:before|after)\.(weight|bias)", name):
            ours[{"weight": "norm.gamma", "bias": "norm.beta"}[match[1]]] = value
        else:
            raise InputError(f"{path} holds {name!r} in an adapter, which has no like here.")
    return ours


def _their_parts(layer, config):
    before = config.inner_norm == "before"
    arrays = {}
    for part, variable in layer.parts.items():
        value = to_pytorch(variable, transposed=len(variable.shape) == 2)
        if part.startswith("norm."):
            which = {"norm.gamma": "weight", "norm.beta": "bias"}[part]
            arrays[f"adapter_norm_{config.inner_norm}.{which}"] = value
            if before:
                arrays[f"adapter_down.0.{which}"] = value
        else:
            # A scalar has an axis there.
            arrays[_THEIRS[part].format(first=int(before))] = value if value.ndim == 2 else value.reshape(-1)
    return arrays


# Theirs -> ours. Before files had a version, "gelu" was the approximation.
_ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "swish": "swish", "silu": "swish"}
_ACTIVATIONS_BEFORE_VERSIONS = {**_ACTIVATIONS, "gelu": "gelu_tanh", "gelu_orig": "gelu"}
# Of those that transformers' PyTorch classes know, by which `adapters` finds them.
_SAME = ("relu", "tanh", "sigmoid", "linear")
# What only this value of can be expressed, and what it says where it is left out.
_FIXED = {
    "cross_adapter": False, "phm_layer": False, "use_gating": False, "stochastic_depth": 0.0,
    "adapter_residual_before_ln": False, "original_ln_after": True,
}  # fmt: skip
_DEFAULTS = {
    **_FIXED, "mh_adapter": False, "output_adapter": True, "is_parallel": False, "ln_before": False, "ln_after": False,
    "original_ln_before": False, "residual_before_ln": True, "non_linearity": "swish", "scaling": 1.0, "dropout": 0.0,
    "leave_out": [],
}  # fmt: skip
_SWITCHES = ("mh_adapter", "output_adapter", "is_parallel", "ln_before", "ln_after", "original_ln_before")


def config_from_hub(settings, bottleneck_size, depth, directory):
    """The `AdapterConfig` of an `adapter_config.json`; InputError for what AdapterConfig cannot say.

    `bottleneck_size` is as the weights have it: reduction factors of old files do not say it exactly.
    """
    theirs = {**_DEFAULTS, **(settings.get("config") or {})}
    versioned = "version" in settings
    refuse = functools.partial(refuse_setting, directory, theirs)
    fixed = {name: (value, f"only {value!r} has its like here") for name, value in _FIXED.items()}
    check_fixed(directory, theirs, fixed, _SWITCHES)
    # First versions carry the default of an invertible adapter in every task's file.
    inverted = theirs.get("inv_adapter") or theirs.get("invertible_adapter")
    if inverted and not (not versioned and settings.get("type") == "text_task"):
        refuse("inv_adapter", "invertible adapters of languages have no like here")
    if theirs["ln_before"] and theirs["ln_after"]:
        refuse("ln_after", "with ln_before it would be a second LayerNorm inside the adapter")
    if theirs["scaling"] != "learned" and not isinstance(theirs["scaling"], (int, float)):
        refuse("scaling", "it must be a number or 'learned'")
    if theirs["is_parallel"]:
        insertion = "parallel"
    elif theirs["residual_before_ln"] is not True:
        refuse("residual_before_ln", "the residual must be the sub-layer's own output (true)")
    else:
        insertion = "after-norm" if theirs["original_ln_before"] else "sequential"
    if not theirs["mh_adapter"] and not theirs["output_adapter"]:
        refuse("output_adapter", "there is no adapter")
    name = str(theirs["non_linearity"]).lower()
    known = _ACTIVATIONS if versioned else _ACTIVATIONS_BEFORE_VERSIONS
    if name not in known and name not in _SAME:
        refuse("non_linearity", f"use one of {', '.join((*known, *_SAME))}")
    placement = "both" if theirs["mh_adapter"] and theirs["output_adapter"] else "ffn"
    return AdapterConfig(
        bottleneck_size=bottleneck_size,
        placement=placement if theirs["output_adapter"] else "attention",
        blocks=blocks_left(theirs["leave_out"], depth, directory),
        activation=known.get(name, name),
        dropout=theirs["dropout"],
        insertion=insertion,
        scaling=theirs["scaling"],
        inner_norm="before" if theirs["ln_before"] else "after" if theirs["ln_after"] else "none",
        train_layer_norm="none",
    )


def config_for_hub(config, hidden_size, depth):
    """The `config` of an `adapter_config.json` for an `AdapterConfig`; InputError for what it cannot say."""

    def refuse(name, why):
        raise InputError(f"{name}={getattr(config, name)!r} cannot be exported to AdapterHub: {why}.")

    if config.interaction != "add":
        refuse("interaction", "its adapters add")
    if config.hidden_layers != 1:
        refuse("hidden_layers", "its adapters have one layer between the projections")
    activation = {"gelu": "gelu", "gelu_tanh": "gelu_new", "swish": "swish", "silu": "swish"}.get(config.activation)
    if activation is None and config.activation not in _SAME:
        refuse("activation", f"use one of {', '.join(('gelu', 'gelu_tanh', 'swish', *_SAME))}")
    return {
        **_FIXED, "dropout": config.dropout, "factorized_phm_W": True, "factorized_phm_rule": False,
        "hypercomplex_nonlinearity": "glorot-uniform", "init_weights": "bert", "init_weights_seed": None,
        "inv_adapter": None, "inv_adapter_reduction_factor": None, "is_parallel": config.insertion == "parallel",
        "learn_phm": True, "leave_out": blocks_left_out(config.blocks, depth),
        "ln_after": config.inner_norm == "after", "ln_before": config.inner_norm == "before",
        "mh_adapter": config.placement in ("both", "attention"), "non_linearity": activation or config.activation,
        "original_ln_before": config.insertion == "after-norm", "output_adapter": config.placement in ("both", "ffn"),
        "phm_bias": True, "phm_c_init": "normal", "phm_dim": 4, "phm_init_range": 0.0001, "phm_rank": 1,
        # int(hidden / factor) must be the size: hidden / size itself falls below it for two sizes of five.
        "reduction_factor": hidden_size / (config.bottleneck_size + 0.5), "residual_before_ln": True,
        "scaling": config.scaling, "shared_W_phm": False, "shared_phm_rule": True,
    }  # fmt: skip


def blocks_left(leave_out, depth, directory):
    """The `blocks` of a configuration here, for a `leave_out` there."""
    if leave_out is not None and not (isinstance(leave_out, list) and all(map(is_int, leave_out))):
        refuse_setting(directory, {"leave_out": leave_out}, "leave_out", "it must be a list of numbers of blocks")
    return tuple(block for block in range(depth) if block not in leave_out) if leave_out else None


def blocks_left_out(blocks, depth):
    """The `leave_out` there, for the `blocks` of a configuration here."""
    return [] if blocks is None else [block for block in range(depth) if block not in blocks]


def check_placement(config, family):
    """Raise InputError where `adapters` computes something else at these places."""
    if config.placement != "ffn" and not family.adapterhub_attention:
        raise InputError(
            f"Behind the attention of {family.model_type} an adapter reads the attention's input in `adapters` 1.3.0: "
            "give placement='ffn'."
        )
