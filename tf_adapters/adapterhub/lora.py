"""LoRA in the files of `adapters`."""

import re

from tf_adapters.adapterhub.bottleneck import blocks_left, blocks_left_out
from tf_adapters.adapterhub.weights import by_key, by_site, check_fixed, name_of, read_weights, refuse_setting
from tf_adapters.config import DENSE_PLACES
from tf_adapters.errors import InputError
from tf_adapters.methods.lora import LoraConfig
from tf_adapters.models.state import state_of
from tf_adapters.models.weight_files import pytorch_name, to_pytorch

NO_IA3 = (
    "(IA)^3 in `adapters` 1.3.0 scales what comes out of the first feed-forward layer before its activation, and here "
    "behind it, as in the paper, always together with keys and values"
)
# What only this value of can be expressed, and why.
_FIXED = {
    "composition_mode": ("add", NO_IA3),
    "use_gating": (False, "a gate has no like here"),
    "use_dora": (False, "DoRA's magnitudes have no like here"),
    "vera_d": (None, "VeRA's shared matrices have no like here"),
    "vera_b": (None, "VeRA's shared matrices have no like here"),
}
_DEFAULTS = {
    **{name: value for name, (value, _) in _FIXED.items()}, "selfattn_lora": True, "intermediate_lora": False,
    "output_lora": False,
    "attn_matrices": ["q", "v"], "leave_out": [], "r": 8, "alpha": 8, "dropout": 0.0,
}  # fmt: skip
_MATRICES = {"q": "query", "k": "key", "v": "value"}
_PARTS = {"lora_A": "a", "lora_B": "b"}


def read(model, directory, settings):
    """The name, the `LoraConfig` and the values, by the keys of layers, of the LoRA in a directory."""
    depth = len(state_of(model).family.blocks(model))
    config = config_from_hub(settings, depth, directory)
    weights, path = read_weights(directory, "adapter")
    name, denses = name_of(settings, weights, path), dense_layers(model)
    found = by_site(model, weights, {f"{dense}.loras.{name}.": site for site, (dense, _) in denses.items()}, path)
    return name, config, values(config, found, _PARTS, denses, depth, path)


def values(config, found, names, denses, depth, path):
    """Matrices that were found, by the keys of the config's layers.

    Args:
        found: dict from place to dict of arrays in PyTorch's layout.
        names: dict from what the two matrices are called there to our parts.
        denses: what `dense_layers` says.
    """
    ours = {}
    for site, parts in found.items():
        unknown = sorted(set(parts) - set(names))
        if unknown:
            raise InputError(f"{path} holds {unknown[0]!r} of block {site[0]} ({site[1]}), which has no like here.")
        ours[site] = {names[part]: value.T for part, value in parts.items()}

    def shapes(site):
        inputs, outputs = denses[site][1]
        return {"a": (inputs, config.rank), "b": (config.rank, outputs)}

    return by_key(config, ours, shapes, depth, path)


def dense_layers(model):
    """Dict from `(block, place)` to what PyTorch calls the dense layer there, and its `(inputs, outputs)`."""
    state, denses = state_of(model), {}
    for number, block in enumerate(state.family.blocks(model)):
        for place in DENSE_PLACES:
            site = state.sites.get((number, place))
            kernel = (getattr(*state.family.dense(block, place)) if site is None else site.dense).kernel
            name, _ = pytorch_name(kernel.name, kernel.shape)
            denses[number, place] = name.removesuffix(".weight"), tuple(kernel.shape)
    return denses


def files(model, active, name):
    """What is written of an adapter: `(folder, kind of files, description, arrays)`, in a list."""
    adapter, denses = state_of(model).adapters[active], dense_layers(model)
    name, depth = name or active, len(state_of(model).family.blocks(model))
    settings, arrays = config_for_hub(adapter.config, depth), {}
    for site, key in adapter.config.sites(depth).items():
        for theirs, part in _PARTS.items():
            arrays[f"{denses[site][0]}.loras.{name}.{theirs}"] = to_pytorch(adapter.layers[key].parts[part], True)
    return [("", "adapter", {"config": settings, "name": name}, arrays)]


def config_from_hub(settings, depth, directory):
    """The `LoraConfig` of an `adapter_config.json`; InputError for what LoraConfig cannot say."""
    theirs = {**_DEFAULTS, **settings["config"]}
    check_fixed(directory, theirs, _FIXED, ("selfattn_lora", "intermediate_lora", "output_lora"))
    letters = theirs["attn_matrices"] or []
    if not isinstance(letters, list) or not all(isinstance(letter, str) and letter in _MATRICES for letter in letters):
        refuse_setting(directory, theirs, "attn_matrices", f"it must be a list of {', '.join(_MATRICES)}")
    targets = [place for letter, place in _MATRICES.items() if theirs["selfattn_lora"] and letter in letters]
    targets += [place for place in ("intermediate", "output") if theirs[f"{place}_lora"]]
    if not targets:
        refuse_setting(directory, theirs, "attn_matrices", "there is no LoRA")
    # Before 1.1.0 they computed without the scale, and later versions read such files so.
    version = re.match(r"adapters\.(\d{1,9})\.(\d{1,9})", str(settings.get("version")))
    unscaled = version is not None and (int(version[1]), int(version[2])) < (1, 1)
    return LoraConfig(
        rank=theirs["r"],
        alpha=theirs["r"] if unscaled else theirs["alpha"],
        targets=targets,
        blocks=blocks_left(theirs["leave_out"], depth, directory),
        dropout=theirs["dropout"],
    )


def config_for_hub(config, depth):
    """The `config` of an `adapter_config.json` for a `LoraConfig`; InputError for what it cannot say."""
    if "attention_output" in config.targets:
        raise InputError(
            "{targets} cannot be exported to AdapterHub: its LoRA has no place at 'attention_output'.",
            targets=config.targets,
        )
    matrices = [letter for letter, place in _MATRICES.items() if place in config.targets]
    return {
        "alpha": int(config.alpha) if config.alpha.is_integer() else config.alpha, "architecture": "lora",
        "attn_matrices": matrices, "composition_mode": "add", "dropout": config.dropout, "dtype": None,
        "init_weights": "lora", "init_weights_seed": None, "intermediate_lora": "intermediate" in config.targets,
        "leave_out": blocks_left_out(config.blocks, depth), "output_lora": "output" in config.targets, "r": config.rank,
        "selfattn_lora": bool(matrices), "use_dora": False, "use_gating": False, "vera_b": None, "vera_d": None,
    }  # fmt: skip
