"""Pretrained encoders from a hub, a directory or a Python package, without PyTorch."""

import inspect
import os
import pathlib
import warnings

import tensorflow as tf

from tf_adapters._keras import keras
from tf_adapters._keras_internals import file_on_hub, replace_layer
from tf_adapters.errors import InputError, shown
from tf_adapters.models.door import door_of, only_first_door
from tf_adapters.models.origin import check_not_cast
from tf_adapters.models.state import check_head, state_of
from tf_adapters.models.transformers.family import get_family
from tf_adapters.models.transformers.graphs import hold_gradients_weakly
from tf_adapters.models.transformers.heads import check_head_of, keep_float32, use_two_layer_head
from tf_adapters.models.weight_files import (
    WEIGHT_FILES,
    named_weights,
    names_of_outputs,
    open_weights,
    read_weights,
    shard_names,
)
from tf_adapters.paths import ALIASES, find_here, read_json, to_path
from tf_adapters.ranges import is_int, is_real

TEXT_FILES = (
    "vocab.txt", "tokenizer_config.json", "tokenizer.json", "vocab.json", "merges.txt", "sentencepiece.bpe.model",
    "spiece.model", "spm.model", "added_tokens.json",
)  # fmt: skip


def load_backbone(
    source, *, head="classification", num_labels=2, labels=None, head_layers=1, revision=None, stacklevel=3
):
    """See `tf_adapters.load_backbone`; `stacklevel` says whose line a warning names, as of `warnings.warn`."""
    check_head(num_labels, labels, head, head_layers)
    directory = find_files(source, revision=revision)
    family, config = _described_encoder(directory)
    known = list(config.id2label.values())
    model = _build(family, config, head, num_labels, labels, head_layers)
    return _finish(model, family, str(source), str(directory), known, stacklevel=stacklevel)


def change_head(model, *, head="classification", num_labels=2, labels=None, head_layers=1):
    """Another head on the encoder of a model, which is in memory once.

    What `load_backbone` would give at this place, head and a pooler that it trains included, without a second encoder:
    for tasks that are trained one after the other. The encoder is compared with its files. The given model keeps it
    too; use one of them at a time, and no graph of the other that was traced before. What trains in the encoder is what
    trained in the given model: `set_trainable` decides anew.

    Args:
        model: as `load_backbone` returns it, without adapters (`remove_adapters`).
        head, num_labels, labels, head_layers: as in `load_backbone`; not "masked-lm", whose head and embeddings are
            one.

    Raises:
        InputError: as `load_backbone`; a model with adapters, built otherwise, or whose encoder is not that of its
            files any more.
    """
    only_first_door(model, "change_head")
    state = state_of(model)
    if state.directory is None or head == "masked-lm":
        raise InputError("model: change_head takes one that load_backbone returned, and makes no head of masked words.")
    if state.adapters:
        raise InputError("model: it has adapters, and change_head takes one without adapters: remove_adapters first.")
    check_not_cast(model.weights, "change_head")
    check_head(num_labels, labels, head, head_layers)
    family, config = _described_encoder(state.directory)
    known = list(config.id2label.values())
    other = _build(family, config, head, num_labels, labels, head_layers)
    own, shared = family.main_layer(other), family.main_layer(model)
    pooler = family.pooler(other)
    for name, layer in list(vars(own).items()):
        if isinstance(layer, keras.layers.Layer) and layer is not pooler:
            replace_layer(own, name, getattr(shared, name))
    kept = {id(variable) for variable in shared.weights}
    return _finish(other, family, state.source, state.directory, known, kept=kept)


def _finish(model, family, source, directory, known, kept=(), stacklevel=3):
    """Read the weights, and remember where they came from; `known` is what the checkpoint calls the outputs of its
    head, `kept` as in `read_weights`."""
    named = named_weights(model.weights)
    lacks_pooler, found = read_weights(door_of(model), named, family.prefix(model), directory, kept)
    state = state_of(model)
    state.pretrained_head = all(id(variable) in found for variable in state.head_variables(model))
    state.order_outputs(model, known, found)
    state.source, state.directory = source, directory
    if lacks_pooler and family.reads_pooler(model):
        state.newly_initialized = [family.pooler(model)]
        warnings.warn(
            f"{source} has no pooler weights: the pooler starts at random, trains and is saved with the head.",
            stacklevel=stacklevel,
        )
    keep_float32(model, state)
    return model


def _build(family, config, head, num_labels, labels, head_layers):
    """A model whose weights are random, or zeros."""
    check_head_of(family, head, head_layers)
    config.num_labels = num_labels if labels is None else len(labels)
    if labels is not None:
        config.id2label = dict(enumerate(labels))
        config.label2id = {label: index for index, label in enumerate(labels)}
    hold_gradients_weakly()  # of models before this one
    try:
        model = family.heads[head](config)
        for layer in (layer for block in family.blocks(model) for layer in block.submodules):
            if isinstance(layer, keras.layers.Dense):
                layer.kernel_initializer = keras.initializers.Zeros()  # every one of them is read from the files
        model.build_in_name_scope()
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError, tf.errors.InvalidArgumentError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise InputError(
            f"config.json describes no encoder that transformers can build ({first}): restore the file."
        ) from error
    if head_layers == 2:
        use_two_layer_head(model)
    return model


def _described_encoder(directory):
    """What `read_config` says, if the weights that are there can be of such an encoder: before anything of its size is
    made."""
    family, config = read_config(directory)
    with open_weights(directory, WEIGHT_FILES) as weights:
        try:
            numbers, depth = family.parameters(config)["total"], family.depth(config)
        except (ArithmeticError, TypeError, ValueError):
            raise InputError(
                f"{directory}: config.json describes no encoder of the kind {family.model_type}: restore the file."
            ) from None
        # A number takes at least a byte, and a block has at least one weight.
        if numbers > weights.size or depth > len(weights):
            raise InputError(
                f"{weights.path} lacks most weights of config.json's encoder ({numbers:,} in {depth:,} blocks): the "
                "two are of different models."
            )
    return family, config


def find_files(source, *, revision=None, config_only=False):
    """Directory that holds a model's files: of an alias, on this machine, or fetched from the hub.

    With `config_only`, nothing but the configuration is fetched.
    """
    here = find_here(source)
    if here is not None:
        return here
    from transformers.utils import cached_file

    given = source = os.fspath(source)
    if "://" in source:
        raise InputError("{source} is a preset of KerasHub, for {door} alone.", source=source, door="keras-hub")
    if "@" in source:
        source, _, pinned = source.partition("@")
        if revision not in (None, pinned):
            raise InputError("{revision}: {source} names another: leave one out.", revision=revision, source=given)
        revision = pinned
    try:
        config = cached_file(source, "config.json", revision=revision)
        if config is None:
            raise InputError("{source}: the hub's repository has no config.json.", source=given)
        for name in () if config_only else WEIGHT_FILES:
            path = file_on_hub(source, name, revision)
            if path is not None and name.endswith(".index.json"):
                for shard in shard_names(path):
                    file_on_hub(source, shard, revision)
            if path is not None:
                break
        for name in () if config_only else TEXT_FILES:
            file_on_hub(source, name, revision)
    except (OSError, ValueError) as error:
        raise InputError(
            f"{{source}} is neither a directory here nor an alias ({', '.join(ALIASES)}), {{door}} takes presets, and "
            f"the hub gave: {str(error).splitlines()[0]}",
            source=given,
            door="keras-hub",
        ) from None
    return pathlib.Path(config).parent


# An encoder's `config.json`, which a stranger wrote: the keys that are read, each of its type, and nothing else of it.

# They change what an encoder computes, to what is not implemented here.
_REFUSED = ("is_decoder", "add_cross_attention", "pruned_heads", "rope_parameters", "rope_scaling")
_MOST = 2**31 - 1


def read_config(directory):
    """Family and configuration object of the model in a directory; data only, nothing is run.

    Only what the family's configuration class and model read of the shape of an encoder, and names of labels, comes
    into the object. transformers would keep every other key as an attribute, among them ones that choose code to fetch
    and run.
    """
    path = to_path(directory) / "config.json"
    if not path.exists():
        raise InputError(f"{directory} holds no config.json, so it is no transformers model.")
    values = read_json(path)
    if "registered_name" in values:
        raise InputError(f"{directory} is a preset of KerasHub, which goes through {{door}} alone.", door="keras-hub")
    if "model_type" not in values:
        raise InputError(f"{path} has no model_type, so it is no transformers model configuration.")
    family = get_family(values["model_type"])
    if values.get("position_embedding_type", "absolute") != "absolute":
        raise InputError(
            f"{path}: position_embedding_type={shown(values['position_embedding_type'])}: transformers' TensorFlow "
            "classes know 'absolute' alone."
        )
    for name in _REFUSED:
        if values.get(name):
            raise InputError(f"{path}: {name}={shown(values[name])} is not supported: give an encoder without it.")
    parameters = list(inspect.signature(family.config_class.__init__).parameters.values())[1:]
    # The keys that are read, with their defaults.
    named = {one.name: one.default for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD}
    other_names = {name: named[own] for name, own in family.config_class.attribute_map.items() if own in named}
    defaults = {**named, **other_names, **family.config_keys}
    kept = {name: values[name] for name in defaults if name in values}
    for name, value in kept.items():
        _check(name, value, defaults[name], path)
    return family, family.config_class(**kept, **_labels(values))


def _check(name, value, default, path):
    """Raise InputError for a value of another type than the default's, or one that no encoder has."""
    if isinstance(default, bool):
        right, must = isinstance(value, bool), "true or false"
    elif name.endswith("token_id"):
        right, must = value is None or is_int(value), "an integer or null"
    elif isinstance(default, int):
        # Negative ones say "as the others are".
        right, must = is_int(value) and (-1 if default < 0 else 0) <= value <= _MOST, f"an integer from 0 to {_MOST}"
    elif isinstance(default, float):
        most = 1.0 if "drop" in name else float("inf")
        right = is_real(value) and 0 <= value <= most
        must = "a number of at least 0" + (" and at most 1" if most == 1 else "")
    elif isinstance(default, str):
        right, must = isinstance(value, str), "a text"
    else:
        listed = isinstance(value, list) and all(isinstance(part, str) for part in value)
        right = value is None or listed or isinstance(value, str) or is_real(value)
        must = "a number, a text, a list of texts or null"
    if not right:
        raise InputError(f"{path}: {name}={shown(value)} must be {must}: restore the file.")


def _labels(values):
    """The names of labels as arguments of a configuration class, if they are complete."""
    names = dict(enumerate(names_of_outputs(values)))
    return {"id2label": names, "label2id": {name: number for number, name in names.items()}} if names else {}
