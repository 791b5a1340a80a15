"""The adapter directory: everything that training changed, and what it needs to be used again."""

import contextlib
import dataclasses
import json
import pathlib
import shutil
from typing import TYPE_CHECKING, Any, Dict, Optional, Tuple

from tf_adapters._types import Model, PathLike, Settings
from tf_adapters.errors import NAME, InputError, shown
from tf_adapters.methods import config_from_dict
from tf_adapters.models.door import load_backbone
from tf_adapters.models.injection import add_adapters, check_acts, check_fast, set_active
from tf_adapters.models.origin import called, check_not_cast
from tf_adapters.models.state import SWITCHED, HeadShape, state_of
from tf_adapters.models.trainable import parameter_counts
from tf_adapters.models.transaction import transaction
from tf_adapters.models.weight_files import as_stored, read_tensors
from tf_adapters.paths import finite, to_path
from tf_adapters.saving import settings as files
from tf_adapters.saving.atomic import only_writer, replacing, write_safetensors
from tf_adapters.saving.hub import find_adapter
from tf_adapters.tasks.labels import check_label_names

if TYPE_CHECKING:
    from tf_adapters.text.tokenizer import Tokenizer


def save_adapter(
    model: Model,
    directory: PathLike,
    *,
    text: "Optional[Tokenizer]" = None,
    recipe: Optional[str] = None,
    task: Optional[Dict[str, Any]] = None,
    metrics: Optional[Dict[str, float]] = None,
    training: Optional[Dict[str, Any]] = None,
) -> pathlib.Path:
    """Save what was trained, atomically; a directory that is there is replaced.

    Written are the active adapter, the head and every other weight that trains at the
    time of the call (see `set_trainable`): LayerNorms, and for full or top-N training
    the encoder's own weights.

    Args:
        model: the trained model.
        directory: path; folders are made as needed.
        text: `Tokenizer`, whose settings are kept, or None.
        recipe: str or None, name of the recipe.
        task: dict that JSON can hold, or None: name, kind ("classification", "regression",
            "multi-label"), metric, and `text_pairs`, whether it reads two texts.
        metrics: dict of floats, or None: results to keep, by name.
        training: dict that JSON can hold, or None: learning rate, seed and what else the run had.

    Returns: the directory, a `pathlib.Path`.

    Raises:
        InputError: nothing was chosen to train, another model acts than would be saved, or the path cannot be written.
    """
    state = state_of(model)
    try:
        directory = to_path(directory)
    except TypeError:
        raise InputError("{directory} must be a path.", directory=directory) from None
    if directory.exists() and not directory.is_dir():
        raise InputError("{directory} is a file: give a directory.", directory=str(directory))
    if state.trainable is None:
        raise InputError("Nothing says yet what to save: call set_trainable(model, ...) first.")
    if text is not None:
        from tf_adapters.text.tokenizer import check_text

        check_text(model, text)
    for name, value in (("recipe", recipe), ("task", task), ("metrics", metrics), ("training", training)):
        try:
            json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(f"{name}={shown(value)} is nothing that JSON can hold ({error}).") from None
    if task is not None:
        files.check_task(task, "")
        files.check_kind(task, state.family.head_of(model), state.door.config_of(model).num_labels, "")
    check_acts(state, "save_adapter")
    arrays = _collect(model, state)
    with only_writer(directory):
        files.finish_commit(directory)
        next_weights = directory / files.NEXT_WEIGHTS_FILE
        write_safetensors(next_weights, arrays, metadata={"format": "tf_adapters"})
        settings = _settings(model, state, arrays, files.sha256_of(next_weights), text, recipe, task, metrics, training)
        files.commit(directory, settings)
    return directory


def copy_adapter(source, directory, **additions):
    """Copy an adapter directory, atomically, with entries added to its settings; one that is there is replaced."""
    source, directory = to_path(source), to_path(directory)
    settings = files.read_settings(source)
    with only_writer(directory):
        files.finish_commit(directory)
        with replacing(directory / files.NEXT_WEIGHTS_FILE) as temporary:
            shutil.copyfile(files.weights_path(source, settings), temporary)
        files.commit(directory, {**settings, **additions})


def keep_result(directory, result):
    """Add what a trained adapter came to, to its directory's settings and model card.

    Args:
        directory: path of an adapter directory.
        result: dict for JSON: `split`, `rows`, `numbers` (dict of floats), `without_training` (a dict of what else
            reaches which main number), `classes` (dict from label to precision, recall, f1 and rows, or None), `date`
            and `versions`. Numbers that are not finite become None.

    Returns: the settings.

    Raises:
        InputError: no such directory, or it cannot be written; its weights are as they were.
    """
    directory = to_path(directory)
    files.read_settings(directory)
    with only_writer(directory):
        files.finish_commit(directory)
        settings = {**files.read_settings(directory), "result": finite(result)}
        files.check_result(settings["result"], "")
        files.describe(directory, settings)
    return settings


@transaction
def load_adapter(
    model: Model, directory: PathLike, *, name: str = "default", head: bool = True, fast: Optional[bool] = None
) -> Settings:
    """Load an adapter directory into a model, and make its adapter active.

    Adapters are injected as its config says; a model that already has an adapter of that
    name takes the weights if the configs are equal. The label names come with the head. Where
    it has another shape than the model's, with other numbers of labels or of another kind, the
    adapter has it for its own, as in `add_adapters`. To train on, call `set_trainable`.

    Args:
        model: a model on the same pretrained encoder that the adapter was trained on.
        directory: path, or `owner/name` or `owner/name@revision` of a repository on the HuggingFace hub. A folder of
            that name wins.
        name: str, the adapter's name on this model.
        head: bool, whether to load the head too; False needs no fitting number of labels.
        fast: as in `add_adapters`.

    Returns: the settings in the directory's `tf_adapters.json`, a dict.

    Raises:
        InputError: another encoder or one that was changed since it was loaded, another head, other label names than
            the model was given, missing, truncated or unknown content. The model is then as it was.
    """
    directory = find_adapter(directory)
    settings, arrays = _read(directory)
    state = state_of(model)
    config = None if settings["adapter"] is None else config_from_dict(settings["adapter"])
    check_backbone(model, state, settings, directory, arrays)
    _check_numbers(model, state, config, arrays, directory)
    others = sorted(set(state.adapters) - ({name} if config is not None else set()))
    if others and (config is None or settings["backbone"]["weights_saved"]):
        raise InputError(
            f"{directory} holds weights of the encoder or a head without an adapter ({settings['trainable']}), not "
            f"those of {', '.join(others)}: load it into a model of its own."
        )
    if head and settings["head"]["pooler"] and state.family.reads_pooler(model):
        state.train_pooler(model, for_adapter=config is not None)
    if config is None:
        if fast not in (None, state.fast):
            raise InputError(f"{{fast}}: {directory} holds no adapter to be fast: leave it out.", fast=fast)
    elif name not in state.adapters:
        own = _own_head(model, state, settings, arrays) if head else {}
        add_adapters(model, config, name=name, seed=0, fast=fast, **own)
    else:
        check_fast(state, fast)
        if state.adapters[name].config != config:
            raise InputError(f"{{name}}: the model's own of that name has another config than {directory}.", name=name)
        set_active(model, name)
        # What the directory does not have is as it was in the encoder that it was trained on.
        plain = state.values_of(state.plain)
        for variable in state.switched["norms"].variables:
            state.put(state.owner, variable, plain.get(id(variable), variable))
    if head:
        _check_head(model, state, settings, arrays, directory)
    _assign(model, state, arrays, head, directory)
    state.owner.pretrained = settings.get("pretrained_adapter")  # which older directories lack
    if head and settings["head"]["labels"]:
        state.name_labels(model, settings["head"]["labels"])
    return settings


def read_adapter(directory):
    """What an adapter directory holds, without a model: `(settings, arrays)`.

    Returns: the settings, a dict, and a dict from key to float32 array. Adapters (`layer.0.ffn.down.kernel`) have
        TensorFlow's layout, the others (`head.classifier.weight`, `backbone.embeddings.LayerNorm.bias`) PyTorch's.

    Raises:
        InputError: missing, truncated or unknown content.
    """
    return _read(find_adapter(directory))


def _read(directory):
    """Settings and arrays of one save: another may come while they are read."""
    while True:
        # Before the settings, so that no save goes unseen.
        before, settings = _files(directory), files.read_settings(directory)
        try:
            arrays = read_tensors(files.weights_path(directory, settings))
        except InputError:
            if _files(directory) == before:
                raise
            continue
        if _files(directory) == before:
            return settings, arrays


def _files(directory):
    """What tells the files of two saves apart, each of which puts new ones in their place."""
    found = []
    for file in (files.SETTINGS_FILE, files.WEIGHTS_FILE, files.NEXT_WEIGHTS_FILE):
        with contextlib.suppress(OSError):
            about = (directory / file).stat()
            found.append((about.st_ino, about.st_mtime_ns))
    return found


def load_trained(
    directory: PathLike, *, backbone: Optional[PathLike] = None, fast: Optional[bool] = None, door: Optional[str] = None
) -> Tuple[Model, Settings]:
    """Rebuild the whole model of an adapter directory.

    Args:
        directory: path, or `owner/name` or `owner/name@revision` on the hub, as in `load_adapter`.
        backbone: source of the pretrained encoder, as in `load_backbone`, or None for the
            one that the directory names.
        fast: as in `add_adapters`.
        door: as in `load_backbone`; a directory goes through each, whichever it was trained through.

    Returns: `(model, settings)`.

    Raises:
        InputError: the encoder is not to be found or is another one, ...
    """
    directory = find_adapter(directory)
    settings = files.read_settings(directory)
    if fast and settings["adapter"] is None:
        raise InputError(f"{{fast}} is for adapters, and {directory} holds none: leave it out.", fast=True)
    source = settings["backbone"]["source"] if backbone is None else backbone
    if source is None:
        raise InputError(f"{directory} does not say where its encoder came from: give {{backbone}}.", backbone=NAME)
    head = settings["head"]
    try:
        model = load_backbone(
            source, head=head["type"], num_labels=head["num_labels"], head_layers=head["layers"], door=door
        )
    except InputError as error:
        if backbone is None:
            raise InputError(
                f"The encoder that {directory} was trained on: {error.template} Give another place by {{backbone}}.",
                **{**error.values, "backbone": NAME},
            ) from None
        raise
    return model, load_adapter(model, directory, fast=fast)


def kind_of_model(model, task=None):
    """The kind of task that a model answers: as `task` says, a dict, or else by its head."""
    state = state_of(model)
    return files.kind_of(task, state.family.head_of(model), state.door.config_of(model).num_labels)


def _collect(model, state):
    """What of the model is not in the pretrained encoder: adapter, head, all that trains, and all that was changed
    before."""
    owner = state.owner
    wanted = {id(variable) for variable in [*model.trainable_variables, *state.changed(model, owner)]}
    values = state.values_of(owner)
    return {
        key: as_stored(state.door.array(variable, values.get(id(variable))), transposed)
        for key, (variable, transposed) in _targets(model, state, state.adapters.get(state.active)).items()
        if key.startswith(("layer", "head.")) or id(variable) in wanted
    }


def _targets(model, state, adapter):
    """Keys of a saved file with the variables they stand for: adapters, head, encoder."""
    targets = {}
    for key, layer in adapter.layers.items() if adapter is not None else ():
        # Adapters keep TensorFlow's layout: (inputs, outputs).
        targets |= {f"{key}.{part}": (variable, False) for part, variable in layer.parts.items()}
    for prefix, variables in (("head", state.head_variables(model)), ("backbone", state.backbone_variables(model))):
        for name, (variable, transposed) in state.door.named_weights(model, variables).items():
            targets[f"{prefix}.{name.removeprefix(state.family.prefix(model) + '.')}"] = (variable, transposed)
    return targets


def _assign(model, state, arrays, head, directory):
    """Check every array against its variable, and only then assign them."""
    targets = _targets(model, state, state.adapters.get(state.active))
    arrays = {key: value for key, value in arrays.items() if head or not key.startswith("head.")}
    unknown = sorted(set(arrays) - set(targets))
    if unknown:
        raise InputError(f"{directory} holds {unknown[0]!r}, for which the model has no weight.")
    absent = [key for key in targets if key.startswith("layer") and key not in arrays]
    if absent:
        raise InputError(f"{directory} lacks {absent[0]!r}, which its own config asks for.")
    for key, value in arrays.items():
        expected = _stored_shape(state, *targets[key])
        if value.shape != expected:
            raise InputError(f"{directory}: {key} has shape {value.shape}, and the model's is {expected}.")
    check_not_cast([targets[key][0] for key in arrays], f"{directory} holds weights of the encoder and")
    for key, value in arrays.items():
        variable, transposed = targets[key]
        state.put(state.owner, variable, (value.T if transposed else value).reshape(tuple(variable.shape)))


def _stored_shape(state, variable, transposed):
    shape = state.door.shape(variable)
    return shape[::-1] if transposed else shape


def _settings(model, state, arrays, sha256, text, recipe, task, metrics, training):
    from tf_adapters._installation import __version__

    adapter = state.adapters.get(state.active)
    counts = dataclasses.asdict(parameter_counts(model))
    config = state.door.config_of(model)
    norms = {id(variable) for variable in state.layer_norm_variables(model)}
    targets = _targets(model, state, None)
    encoder = [key for key in arrays if key.startswith("backbone.") and id(targets[key][0]) not in norms]
    return {
        "format_version": files.FORMAT_VERSION,
        "tf_adapters_version": __version__,
        "adapter": None if adapter is None else adapter.config.to_dict(),
        "trainable": state.trainable,
        "recipe": recipe,
        "task": task,
        "metrics": metrics,
        "training": training,
        "pretrained_adapter": state.owner.pretrained,
        "head": {
            "type": state.family.head_of(model) or type(model).__name__,
            "layers": state.door.head_shape(model, state.family).layers,
            "num_labels": config.num_labels,
            "labels": state.label_names(model, state.owner),
            "pooler": bool(state.newly_initialized),
        },
        "text": None if text is None else text.settings(),
        "backbone": {
            "source": state.source,
            "model_type": config.model_type,
            "hidden_size": config.hidden_size,
            "num_hidden_layers": config.num_hidden_layers,
            "sha256": state.digest(model),
            "weights_saved": bool(encoder),
            **state.door.computes(model),
        },
        "parameters": {"trained" if kind == "trainable" else kind: count for kind, count in counts.items()},
        "weights": {"file": files.WEIGHTS_FILE, "sha256": sha256},
    }


def check_backbone(model, state, settings, directory, arrays=()):
    """Raise InputError if a directory was trained on another encoder than the model has, or would have with the
    directory's `arrays`."""
    saved, config, origin = settings["backbone"], state.door.config_of(model), state.origin(model)
    for key in ("model_type", "hidden_size", "num_hidden_layers"):
        if saved[key] != getattr(config, key):
            raise InputError(
                f"{directory} was trained on an encoder with {key}={saved[key]!r}, and this model has "
                f"{key}={getattr(config, key)!r}: load the encoder that it was trained on."
            )
    # Under some heads an encoder has no pooler, and what was trained there has no use for one.
    if saved["sha256"] not in (origin.digest, origin.digest_without_pooler):
        raise InputError(
            f"{directory} was trained on another encoder ({called(saved['source'], saved['sha256'])}) than the "
            f"model's ({called(state.source, origin.digest)}): the shape is the same, the weights are not: load "
            "the one that it was trained on."
        )
    check_computes(saved, state.door.computes(model), directory)
    brought = {id(variable) for key, (variable, _) in _targets(model, state, None).items() if key in arrays}
    changed = [variable.name for variable in state.changed(model) if id(variable) not in brought]
    if changed:
        raise InputError(
            f"{directory} was trained on the pretrained encoder, and {len(changed)} weights of this model's were "
            f"changed since ({changed[0]} the first): load the encoder again."
        )


def check_computes(saved, computes, directory):
    """Raise InputError if an encoder of the same weights computes something else with them, by `computes` of its door,
    than `backbone` in a directory's settings says."""
    for key, value in computes.items():
        if value is not None and saved.get(key) is not None and saved[key] != value:
            raise InputError(
                f"{directory} was trained on an encoder of these weights with {key}={saved[key]!r}, and this model "
                f"computes with {key}={value!r}: its answers would be others. Load one that says {saved[key]!r}."
            )


def _check_numbers(model, state, config, arrays, directory):
    """Raise InputError if a config asks for other weights than there are, before any is made."""
    found = sum(value.size for key, value in arrays.items() if key.startswith("layer"))
    family, sizes = state.family, state.door.config_of(model)
    depth, inner = len(family.blocks(model)), family.intermediate_size(sizes)
    wanted = 0 if config is None else config.stored(depth, sizes.hidden_size, inner)
    if found != wanted:
        raise InputError(f"{directory} holds {found} numbers for an adapter whose config asks for {wanted}: damaged.")


def _own_head(model, state, settings, arrays):
    """Arguments of `add_adapters` for a directory whose head has another shape than the model's; otherwise none."""
    saved = settings["head"]
    plain = state.door.head_shape(model, state.family) if state.head is None else state.plain.stands.shape
    shape = HeadShape(saved["type"], saved["num_labels"], saved["layers"])
    if shape == plain or shape.head not in SWITCHED or plain.head is None:
        return {}
    # So many outputs were saved: what a damaged file says must not become memory.
    if not any(shape.num_labels in value.shape for key, value in arrays.items() if key.startswith("head.")):
        return {}
    return {"head": shape.head, "num_labels": shape.num_labels, "head_layers": shape.layers}


def _check_head(model, state, settings, arrays, directory):
    found = {key: value.shape for key, value in arrays.items() if key.startswith("head.")}
    targets = _targets(model, state, None)
    wanted = {key: _stored_shape(state, *target) for key, target in targets.items() if key.startswith("head.")}
    if found != wanted:
        raise InputError(
            f"{directory} has a head for {settings['head']['num_labels']} labels in {settings['head']['layers']} "
            f"layer(s) ({settings['head']['type']}), and the model's is another; load it with that, or pass head=False."
        )
    theirs, ours = settings["head"]["labels"], state.label_names(model, state.owner)
    if theirs or ours:
        check_label_names(
            f"{directory}'s head", theirs or settings["head"]["num_labels"],
            "the model's", ours or state.door.config_of(model).num_labels,
            "load the encoder with the directory's labels, or with num_labels alone",
        )  # fmt: skip
