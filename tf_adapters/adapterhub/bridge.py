"""From a directory of `adapters` or PEFT to an adapter of a model, and back."""

import json
import os

from tf_adapters.adapterhub import bottleneck, description, fusion, lora, peft
from tf_adapters.adapterhub.description import DESCRIPTIONS, FILES, HEAD_DESCRIPTION, find_directory, read_description
from tf_adapters.adapterhub.weights import head_files, read_head
from tf_adapters.errors import InputError, shown
from tf_adapters.models.door import only_first_door
from tf_adapters.models.injection import add_adapters, check_acts
from tf_adapters.models.state import state_of
from tf_adapters.models.transaction import transaction
from tf_adapters.paths import to_path
from tf_adapters.saving.atomic import folder_beside, reason, remove_file, write_safetensors, write_text
from tf_adapters.saving.settings import SETTINGS_FILE
from tf_adapters.tasks.labels import check_label_names, is_default


@transaction
def import_adapter(model, directory, *, name=None, head=True, adapters=None):
    """Load what `adapters` or PEFT saved into a model, and make it active: a bottleneck adapter, LoRA or AdapterFusion.

    Args:
        model: a built transformers TensorFlow model on the encoder that the adapter was trained on. The files name it,
            but hold no digest of it: that the weights are the same cannot be checked.
        directory: path with `adapter_config.json` or `adapter_fusion_config.json`, and weights as safetensors or as
            PyTorch's pickle; or `owner/name` or `owner/name@revision` of such a repository on the HuggingFace hub.
        name: str, the adapter's name on this model; None for the file's own, or `"default"` where it has none (PEFT's).
        head: bool, whether to load the prediction head too, if there is one.
        adapters: dict from the names of adapters that are fused to their directories; None where they are folders of
            these names in the fusion's directory or beside it, as `save_all_adapters` writes them.

    Returns: the settings in the description, a dict.

    Raises:
        InputError: nothing there, another hidden size or family, something that has no like here, a file that is
            damaged or would run code. The model is then as it was.
    """
    only_first_door(model, "import_adapter")
    directory, state = find_directory(directory), state_of(model)
    method, settings = read_description(directory)
    read, read_its_head, _ = _reader(method, settings, directory)
    if adapters is not None and method != "fusion":
        raise InputError(f"{{adapters}} are what a fusion is of, and {directory} holds none.", adapters=adapters)
    if method != "peft" and not state.family.on_adapterhub:
        raise InputError(f"AdapterHub has no adapters for {state.family.model_type}.")
    for key, ours in (("hidden_size", model.config.hidden_size), ("model_type", model.config.model_type)):
        if key in settings and settings[key] != ours:
            raise InputError(
                f"{directory} is for an encoder with {key}={shown(settings[key])}, and this model has {key}={ours!r}."
            )
    found, config, values = read(model, directory, settings, **({} if adapters is None else {"adapters": adapters}))
    name = found if name is None else name
    if state.changed(model):
        raise InputError(
            f"{directory} is for a pretrained encoder, and the weights of this model's were changed since: load anew."
        )
    if state.adapters:
        # What is imported takes the encoder's own head, whichever stands there now.
        state.let(model, active=None, active_blocks=None)
    head_values, has_pooler, labels = read_its_head(model, state, directory, settings) if head else ({}, False, None)
    if labels is not None:
        ours = state.label_names(model, state.plain) or model.config.num_labels
        fix = "load the encoder with the head's labels, or with num_labels alone, or pass head=False"
        check_label_names(f"{directory}'s head", labels, "the model's", ours, fix)
    if has_pooler:
        state.train_pooler(model)
    add_adapters(model, config, name=name, seed=0)
    for key, layer in state.adapters[name].layers.items():
        for part, variable in layer.parts.items():
            state.write(variable, values[key][part])
    for variable, value in head_values.values():
        state.put(state.owner, variable, value)
    if labels is not None and not is_default(labels):
        state.name_labels(model, labels)
    return settings


def describe_head(directory):
    """The `HeadDescription` of what a directory has for a head, or None; InputError if it is damaged or not known
    here."""
    directory = find_directory(directory)
    method, settings = read_description(directory)
    return _reader(method, settings, directory)[2](directory, settings)


def _reader(method, settings, directory):
    if method not in _READERS or (method == "peft") != ("peft_type" in settings):
        raise InputError(f"{directory} has the architecture {shown(method)}: {', '.join(_READERS)} can be imported.")
    return _READERS[method]


# What a directory holds -> the functions that read it, its head, and what the head is.
_READERS = {
    "bottleneck": (bottleneck.read, read_head, description.describe_head),
    "lora": (lora.read, read_head, description.describe_head),
    "fusion": (fusion.read, read_head, description.describe_head),
    "peft": (peft.read, peft.read_head, peft.describe_head),
}


_VERSION = "adapters.1.3.0"
# `method` of a config -> what is written of it.
_WRITERS = {"bottleneck": bottleneck.files, "lora": lora.files, "fusion": fusion.files}


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
    if "." in (name or state.active):
        raise InputError(
            "{name}: PyTorch's modules have no dots in their names: give another.", name=name or state.active
        )
    method = state.adapters[state.active].config.method
    if method not in _WRITERS:
        why = lora.NO_IA3 if method == "ia3" else "it has none of the kind"
        raise InputError(f"An adapter of the method {method!r} cannot be exported to AdapterHub: {why}.")
    written = _WRITERS[method](model, state.active, name)
    if state.changed(model, state.owner):
        raise InputError(
            "LayerNorms were trained, or other weights, which AdapterHub's files lack: set train_layer_norm='none'."
        )
    about = {
        "hidden_size": model.config.hidden_size, "model_class": type(model).__name__.removeprefix("TF"),
        "model_name": state.source or "", "model_type": model.config.model_type, "version": _VERSION,
    }  # fmt: skip
    described_head = head_files(model, state, written[0][2]["name"]) if head else None
    if (directory / SETTINGS_FILE).exists():
        raise InputError(f"{directory} is a directory of this package, whose weights would be replaced: give another.")
    try:
        with folder_beside(directory / HEAD_DESCRIPTION) as new:
            for folder, kind, described, arrays in written:
                write_safetensors(new / folder / FILES[kind][0], arrays, metadata={"format": "pt"})
                _write_json(new / folder / DESCRIPTIONS[kind], {**about, **described})
            if described_head is not None:
                described, weights = described_head
                write_safetensors(new / "model_head.safetensors", weights, metadata={"format": "pt"})
                _write_json(new / HEAD_DESCRIPTION, {**about, **described})
            _move(new, directory)
    except OSError as error:
        raise InputError(f"{directory} cannot be written: {reason(error)}.") from None
    return directory


def _move(new, directory):
    """Put the files of a folder in the place of an earlier export's. The earlier descriptions go first and the new ones
    come last: killed meanwhile, nothing describes other weights."""
    paths = sorted((path.relative_to(new) for path in new.rglob("*") if path.is_file()), key=_is_description)
    # A reader takes the one format or the other, by what it is asked for.
    others = [path.with_name(old) for path in paths for new, old in FILES.values() if path.name == new]
    for path in (HEAD_DESCRIPTION, *FILES["head"], *filter(_is_description, paths), *others):
        remove_file(directory / path)
    for path in paths:
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        os.replace(new / path, directory / path)


def _is_description(path):
    return path.suffix == ".json"


def _write_json(path, content):
    write_text(path, json.dumps(content, indent=2, sort_keys=True) + "\n")
