"""From an adapter of a model to AdapterHub's files."""

import json
import pathlib

import numpy as np

from tf_adapters.adapterhub.settings import VERSION, check_placement, config_for_hub
from tf_adapters.errors import InputError
from tf_adapters.models.names import named_weights, to_pytorch
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
        head: bool, whether to write the head of a sequence classification model too.

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
    head_files = _head(model, state, name) if head else None
    about = {
        "hidden_size": model.config.hidden_size, "model_class": type(model).__name__.removeprefix("TF"), "model_name": state.source or "",
        "model_type": model.config.model_type, "name": name, "version": VERSION,
    }  # fmt: skip
    write_safetensors(directory / "adapter.safetensors", arrays, metadata={"format": "pt"})
    if head_files is not None:
        described, weights = head_files
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


def _head(model, state, name):
    """`head_config.json`'s own entries, and the weights."""
    if type(model) is not state.family.heads["classification"]:
        raise InputError(f"The head of a {type(model).__name__} cannot be exported: pass head=False.")
    labels = {label: index for index, label in model.config.id2label.items()}
    named = {key: to_pytorch(*target) for key, target in named_weights(state.head_variables(model)).items()}
    if type(model.classifier).__name__ == "TwoLayerHead":
        raise InputError("A head of two layers on the pooler has no like on AdapterHub: pass head=False.")
    if not state.newly_initialized:
        return {"config": None, "label2id": labels, "name": None, "num_labels": model.config.num_labels}, named
    # A pooler that was trained with the head is the first layer of a flexible head there.
    flexible = {
        "activation_function": "tanh", "bias": True, "dropout_prob": None, "head_type": "classification", "label2id": labels, "layers": 2,
        "num_labels": model.config.num_labels, "use_pooler": False,
    }  # fmt: skip
    places = {f"{model.base_model_prefix}.pooler.dense": "1", "classifier": "4"}
    weights = {}
    for key, value in named.items():
        layer, _, part = key.rpartition(".")
        weights[f"heads.{name}.{places[layer]}.{part}"] = value
    return {"config": flexible, "name": name, "model_class": "BertAdapterModel"}, weights
