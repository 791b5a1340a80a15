"""From a directory of `adapters` or PEFT to an adapter of a model."""

from tf_adapters.adapterhub import bottleneck, fusion, lora, peft
from tf_adapters.adapterhub.description import read_description, read_head_description
from tf_adapters.adapterhub.fetching import find_directory
from tf_adapters.adapterhub.heads import read_head
from tf_adapters.adapterhub.layout import HEAD_DESCRIPTION
from tf_adapters.adapterhub.weights import read_weights
from tf_adapters.errors import InputError, shown
from tf_adapters.models.door import only_first_door
from tf_adapters.models.injection import add_adapters
from tf_adapters.models.state import state_of
from tf_adapters.models.transaction import transaction
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
    read, read_its_head, _ = _methods(method, settings, directory)
    if adapters is not None and method != "fusion":
        raise InputError(
            f"{{adapters}} are what a fusion is of, and {directory} holds none: leave it out.", adapters=adapters
        )
    _check_encoder(model, method, settings, directory)
    found, config, values = read(model, directory, settings, **({} if adapters is None else {"adapters": adapters}))
    name = found if name is None else name
    head_values, has_pooler, labels = read_its_head(model, state, directory, settings) if head else ({}, False, None)
    if labels is not None:
        check_label_names(
            f"{directory}'s head", labels, "the model's", state.label_names(model, state.plain) or model.num_labels,
            "load the encoder with the head's labels, or with num_labels alone, or pass head=False",
        )  # fmt: skip
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
    return _methods(method, settings, directory)[2](directory, settings)


def _check_encoder(model, method, settings, directory):
    family = state_of(model).family
    if method != "peft" and not family.on_adapterhub:
        raise InputError(f"AdapterHub has no adapters for {family.model_type}.")
    for key, ours in (("hidden_size", model.config.hidden_size), ("model_type", model.config.model_type)):
        if key in settings and settings[key] != ours:
            raise InputError(
                f"{directory} is for an encoder with {key}={shown(settings[key])}, and this model has {key}={ours!r}."
            )


def _methods(method, settings, directory):
    if method not in METHODS or (method == "peft") != ("peft_type" in settings):
        raise InputError(f"{directory} has the architecture {shown(method)}: {', '.join(METHODS)} can be imported.")
    return METHODS[method]


def _head(model, state, directory, settings):
    if not (directory / HEAD_DESCRIPTION).is_file():
        return {}, False, None
    return read_head(model, state, directory, *read_weights(directory, "head"))


def _describe_head(directory, settings):
    return read_head_description(directory) if (directory / HEAD_DESCRIPTION).is_file() else None


# What a directory holds -> the functions that read it, its head, and what the head is.
METHODS = {
    "bottleneck": (bottleneck.read, _head, _describe_head),
    "lora": (lora.read, _head, _describe_head),
    "fusion": (fusion.read, _head, _describe_head),
    "peft": (peft.read, peft.read_head, peft.describe_head),
}
