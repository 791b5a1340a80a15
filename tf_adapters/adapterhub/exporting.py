"""From an adapter of a model to AdapterHub's files."""

import json
import pathlib

import numpy as np

from tf_adapters.adapterhub.heads import head_files
from tf_adapters.adapterhub.settings import VERSION, check_placement, config_for_hub
from tf_adapters.errors import InputError
from tf_adapters.models.state import state_of
from tf_adapters.saving.atomic import write_safetensors, write_text

_PARTS = {
    "down.kernel": "adapter_down.{first}.weight", "down.bias": "adapter_down.{first}.bias", "up.kernel": "adapter_up.weight",
    "up.bias": "adapter_up.bias", "learned.scaling": "scaling",
}  # fmt: skip


def export_adapter(model, directory, *, name=None, head=True):
    """Write the active adapter as `adapters` saves it; `model.load_adapter(directory, use_safetensors=True)` reads it there.

    An adapter that sites share is written once for each of them.

    Args:
        model: a model with adapters.
        directory: path; files that are there are replaced.
        name: str, what it is called there; None for its name on this model.
        head: bool, whether to write the head too: of classification, token classification, question answering or multiple choice.

    Returns: the directory, a `pathlib.Path`.

    Raises:
        InputError: there is no adapter, or it has what AdapterHub's files cannot hold: LayerNorms that were trained, several
            layers, multiplication, another kind of head.
    """
    state, directory = state_of(model), pathlib.Path(directory)
    if state.active is None:
        raise InputError("The model has no adapter to export: add or load one first.")
    if not state.family.on_adapterhub:
        raise InputError(f"AdapterHub has no adapters for {state.family.model_type}.")
    config, layers = state.adapters[state.active].config, state.adapters[state.active].layers
    name = state.active if name is None else name
    blocks = len(state.family.blocks(model))
    settings = config_for_hub(config, model.config.hidden_size, blocks)
    check_placement(config, state.family)
    _check_layer_norms(model, state)
    arrays = {}
    for (block, place), key in config.sites(blocks).items():
        prefix = f"{state.family.adapterhub_site(model, block, place)}.adapters.{name}."
        for part, value in _parts(layers[key], config).items():
            arrays[prefix + part] = value
    described_head = head_files(model, state, name) if head else None
    about = {
        "hidden_size": model.config.hidden_size, "model_class": type(model).__name__.removeprefix("TF"), "model_name": state.source or "",
        "model_type": model.config.model_type, "name": name, "version": VERSION,
    }  # fmt: skip
    write_safetensors(directory / "adapter.safetensors", arrays, metadata={"format": "pt"})
    if described_head is not None:
        described, weights = described_head
        write_safetensors(directory / "model_head.safetensors", weights, metadata={"format": "pt"})
        write_text(directory / "head_config.json", json.dumps({**about, **described}, indent=2, sort_keys=True) + "\n")
    write_text(directory / "adapter_config.json", json.dumps({"config": settings, **about}, indent=2, sort_keys=True) + "\n")
    return directory


def _parts(layer, config):
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
            arrays[_PARTS[part].format(first=int(before))] = np.ascontiguousarray(value.T) if value.ndim == 2 else value.reshape(-1)
    return arrays


def _check_layer_norms(model, state):
    norms = state.layer_norm_variables(model)
    if any(not np.array_equal(variable.numpy(), before) for variable, before in zip(norms, state.pristine)):
        raise InputError(
            "The adapter's LayerNorms were trained, which AdapterHub's files do not hold: train with train_layer_norm='none' to export it."
        )
