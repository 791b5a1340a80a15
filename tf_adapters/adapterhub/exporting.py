"""From an adapter of a model to AdapterHub's files."""

import json

from tf_adapters.adapterhub import bottleneck, fusion, lora
from tf_adapters.adapterhub.heads import head_files
from tf_adapters.adapterhub.layout import DESCRIPTIONS, FILES
from tf_adapters.adapterhub.settings import VERSION
from tf_adapters.errors import InputError
from tf_adapters.models.door import only_first_door
from tf_adapters.models.injection import check_acts
from tf_adapters.models.state import state_of
from tf_adapters.paths import to_path
from tf_adapters.saving.atomic import write_safetensors, write_text

# `method` of a config -> what is written of it.
METHODS = {"bottleneck": bottleneck.files, "lora": lora.files, "fusion": fusion.files}
_WITHOUT_LIKE = {"ia3": lora.NO_IA3}


def export_adapter(model, directory, *, name=None, head=True):
    """Write the active adapter as `adapters` saves it, which reads it with `use_safetensors=True`.

    A bottleneck adapter or LoRA is for `model.load_adapter(directory)`. A fusion's adapters are written in folders of
    their names, for `load_adapter(directory/NAME)`, and the fusion beside them for `load_adapter_fusion(directory)`. An
    adapter that sites share is written once for each of them.

    Args:
        model: a model with adapters.
        directory: path; files that are there are replaced.
        name: str, what it is called there; None for its name on this model, and for the names of a fusion's adapters
            with commas between them, by which `Fuse` finds it.
        head: bool, whether to write the head too: of classification, token classification, question answering or
            multiple choice.

    Returns: the directory, a `pathlib.Path`.

    Raises:
        InputError: there is no adapter, or it has what AdapterHub's files cannot hold: LayerNorms that were trained,
            several layers, multiplication, (IA)^3, LoRA behind the attention, another kind of head.
    """
    only_first_door(model, "export_adapter")
    state, directory = state_of(model), to_path(directory)
    if state.active is None:
        raise InputError("The model has no adapter to export: add or load one first.")
    check_acts(state, "export_adapter")
    if not state.family.on_adapterhub:
        raise InputError(f"AdapterHub has no adapters for {state.family.model_type}.")
    method = state.adapters[state.active].config.method
    if method not in METHODS:
        why = _WITHOUT_LIKE.get(method, "it has none of the kind")
        raise InputError(f"An adapter of the method {method!r} cannot be exported to AdapterHub: {why}.")
    written = METHODS[method](model, state.active, name)
    _check_layer_norms(model, state)
    about = {
        "hidden_size": model.config.hidden_size, "model_class": type(model).__name__.removeprefix("TF"),
        "model_name": state.source or "",
        "model_type": model.config.model_type, "version": VERSION,
    }  # fmt: skip
    described_head = head_files(model, state, written[0][2]["name"]) if head else None
    for folder, kind, described, arrays in written:
        write_safetensors(directory / folder / FILES[kind][0], arrays, metadata={"format": "pt"})
        _write_json(directory / folder / DESCRIPTIONS[kind], {**about, **described})
    if described_head is not None:
        described, weights = described_head
        write_safetensors(directory / "model_head.safetensors", weights, metadata={"format": "pt"})
        _write_json(directory / "head_config.json", {**about, **described})
    return directory


def _write_json(path, content):
    write_text(path, json.dumps(content, indent=2, sort_keys=True) + "\n")


def _check_layer_norms(model, state):
    if state.changed(model, state.owner):
        raise InputError(
            "The adapter's LayerNorms were trained, or other weights of the encoder, which AdapterHub's files do not "
            "hold: train with train_layer_norm='none' to export it."
        )
