"""Keras' own files (`.keras`) and KerasHub's presets of models that this package changed.

Keras writes down a class and its configuration, builds the model anew from them, and then reads the weights. A class of
this module stands in for the model's own: its configuration has, beside that of the model as KerasHub would build it,
what the checkpoint says and KerasHub cannot say, and which adapters there are. What is not on the model at the moment,
the LayerNorms of the encoder without an adapter and what belongs to adapters that do not act, goes with the weights.

A preset has one file of weights for the backbone and one for the rest. So LayerNorms and poolers go with the backbone,
whose configuration has the adapters too, and heads go with the task model.
"""

import contextlib
import functools
import importlib

import keras
import numpy as np

from tf_adapters._keras3_internals import layers_of
from tf_adapters.layers.ops import keras3
from tf_adapters.methods import config_from_dict
from tf_adapters.models.injection import add_adapters, set_active
from tf_adapters.models.keras_hub.family import MODEL_TYPES, backbone_of, get_family
from tf_adapters.models.origin import Origin
from tf_adapters.models.state import state_of
from tf_adapters.models.trainable import set_trainable

_PREFIX = "tf_adapters"
# What of a config.json KerasHub's classes cannot say.
CHECKPOINT = ("model_type", "hidden_act", "activation", "layer_norm_eps", "type_vocab_size")

# KerasHub's classes of which a preset may be; others have no name that Keras finds in a new process.
_FAMILIES = [get_family(module) for module in MODEL_TYPES.values()]
_OF_PRESETS = dict.fromkeys(own for family in _FAMILIES for own in (family.backbone, *family.tasks.values()))


# Of an input, by how many it has.
_DIMENSIONS = {2: "(batch, length)", 3: "(batch, choices, length)"}
_OF_PLACES = "(batch, places)"


class _AsOwn(type):
    """Equal to the model's own class: KerasHub compares the classes of backbones to find out what fits a preset."""

    def __eq__(cls, other):
        return cls is other or vars(cls).get("own") is other

    # Keras registers both, in a dict.
    __hash__ = type.__hash__


class Kept(metaclass=_AsOwn):
    """Before a model's own class: how Keras writes it down and builds it again."""

    def get_config(self):
        """The configuration of the model as KerasHub would build it, and what came on top."""
        state = getattr(self, "adapters_of", None)
        inside = state is not None and state is not getattr(self, "_tf_adapters", None)
        if inside and not _within_another and self not in _backbones_alone:
            raise NotImplementedError(
                f"The adapters in this backbone belong to the {self.adapted_in} around it: save that."
            )
        about = {"checkpoint": getattr(self, "_tf_adapters_checkpoint", None)}
        if state is not None and not (inside and _within_another):
            about["adapters"] = _described(self, state)
        with _as_it_was(self):
            model = keras.saving.serialize_keras_object(self)
        about["class"] = {name: model[name] for name in ("module", "class_name", "registered_name")}
        return {**model["config"], _PREFIX: about}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        """As of Keras."""
        config = dict(config)
        about = config.pop(_PREFIX)
        model = keras.saving.deserialize_keras_object(
            {**about["class"], "config": config}, custom_objects=custom_objects
        )
        if about["checkpoint"] is not None:
            follow_checkpoint(model, about["checkpoint"])
        if "adapters" in about:
            _rebuild(model, about["adapters"])
        return model

    def call(self, *inputs, **settings):
        """As of the model's own class."""
        state = getattr(self, "adapters_of", None)
        # Of a task model; a backbone that is called alone answers all tokens.
        if state is None or not state.fast or self is backbone_of(self):
            return super().call(*inputs, **settings)
        with importlib.import_module("tf_adapters.models.keras_hub.fast").first_token_only():
            return super().call(*inputs, **settings)

    def compile_from_config(self, config):
        """As of Keras, which leaves it to the user where a class has a `compile` of its own, as KerasHub's have."""
        _make_classes()
        self.compile(**keras.saving.deserialize_keras_object(config))
        if getattr(self, "optimizer", None) is not None and self.built:
            self.optimizer.build(self.trainable_variables)

    def save(self, *arguments, **settings):
        """As of Keras; what cannot be saved is refused before the file is opened, which Keras would leave empty."""
        self.get_config()
        return super().save(*arguments, **settings)

    def export(self, filepath, format="tf_saved_model", **settings):
        """As of Keras, which on JAX takes the inputs' lengths for different ones."""
        if keras.backend.backend() == "jax" and format == "tf_saved_model" and settings.get("input_signature") is None:
            shapes = {name: _DIMENSIONS[len(each.shape)] for name, each in self.input.items()}
            shapes = [{name: _OF_PLACES if name == "mask_positions" else shape for name, shape in shapes.items()}]
            settings["jax2tf_kwargs"] = {"polymorphic_shapes": shapes, **settings.get("jax2tf_kwargs", {})}
        with contextlib.ExitStack() as stack:
            if getattr(getattr(self, "adapters_of", None), "fast", False):
                # Servers need no compiler then, and LiteRT no operations of TensorFlow.
                stack.enter_context(importlib.import_module("tf_adapters.models.keras_hub.fast").plain())
            if format == "onnx":
                ones = {name: np.zeros((1,) * len(each.shape), "int32") for name, each in self.input.items()}
                self(ones)  # Keras asks for a call before
                stack.enter_context(_gelu_by_erf(self))
            return super().export(filepath, format=format, **settings)

    def save_own_variables(self, store):
        """As of Keras, with what is not on the model now."""
        super().save_own_variables(store)
        for key, values in _waiting(self).items():
            for index, value in enumerate(values):
                store[f"{key}:{index}"] = np.asarray(value)

    def load_own_variables(self, store):
        """As of Keras."""
        super().load_own_variables({key: store[key] for key in store.keys() if not key.startswith(_PREFIX)})
        for key, values in _waiting(self).items():
            if f"{key}:0" in store.keys():  # another version of this package may have left them out
                values[:] = [np.array(store[f"{key}:{index}"]) for index in range(len(values))]
        origin = vars(self).pop("origin_in_file", None)
        if origin is not None:
            state = self.adapters_of
            variables = {name: variable for variable, name, _ in state.family.names(self)}
            state.let_origin(Origin.from_dict(origin, state.door, variables))

    def save_to_preset(self, *arguments, **settings):
        """As of KerasHub; what cannot be saved is refused before a file is written."""
        own, backbone = type(self).own, backbone_of(self)
        if own not in _OF_PRESETS:
            raise NotImplementedError(
                f"A preset holds a model of {', '.join(sorted(one.__name__ for one in _OF_PRESETS))}, and this one is "
                f"of {own.__name__}: keep it with model.save('model.keras'), or the adapter with "
                "tf_adapters.save_adapter."
            )
        _backbones_alone.append(backbone)
        try:
            for one in (self, backbone):
                one.get_config()
            return super().save_to_preset(*arguments, **settings)
        finally:
            _backbones_alone.pop()

    @classmethod
    def from_preset(cls, *arguments, **settings):
        """As of the model's own class, where KerasHub looks for what fits a preset."""
        return cls.own.from_preset(*arguments, **settings)


def keep(model):
    """Let Keras write a model down by this module."""
    if not isinstance(model, Kept):
        model.__class__ = _kept(type(model))


def forget(model):
    """Let a model be of its own class again."""
    if isinstance(model, Kept):
        model.__class__ = type(model).own


@functools.cache
def _kept(own):
    attributes = {"own": own, "__module__": own.__module__, "__doc__": own.__doc__}
    if hasattr(own, "backbone_cls"):
        attributes["backbone_cls"] = None  # or KerasHub would take it for a task's own class in any preset
    made = type(own.__name__, (Kept, own), attributes)
    # Where this package is not imported, KerasHub's error has this name and no more.
    name = f"{own.__name__} (import tf_adapters.models.keras_hub)" if own in _OF_PRESETS else "Kept"
    return keras.saving.register_keras_serializable(_PREFIX, name)(made)


# What Keras finds in a process that has made none yet.
keras.saving.register_keras_serializable(_PREFIX, "Kept")(Kept)
for _own in _OF_PRESETS:
    _kept(_own)


def load_keras_file(path, **settings):
    """`keras.saving.load_model` of a file that `model.save` wrote, whose adapters act again.

    Args:
        path: of the `.keras` file.
        settings: as of `keras.saving.load_model`.
    """
    _make_classes()
    return keras.saving.load_model(path, **settings)


@contextlib.contextmanager
def _gelu_by_erf(model):
    """While it lasts, graphs of the model have no erfc, which ONNX lacks."""
    exact = [layer for layer in layers_of(model) if getattr(layer, "activation", None) is keras.activations.gelu]
    try:
        for layer in exact:
            layer.activation = keras3.activation("gelu")
        with keras3.gelu_by_erf():
            yield
    finally:
        for layer in exact:
            layer.activation = keras.activations.gelu


def _make_classes():
    # With what `fit` compiled the model.
    importlib.import_module("tf_adapters.training.on_keras3").make_classes()


def follow_checkpoint(model, checkpoint):
    """Let a fresh model compute what a checkpoint of transformers means.

    Args:
        model: a backbone, or a task model of masked words on one that does already.
        checkpoint: dict with the `CHECKPOINT` keys of its `config.json`, those that it has.

    Raises:
        InputError: an activation that this package does not know.
    """
    loading = importlib.import_module("tf_adapters.models.keras_hub.loading")  # which imports this module
    family, backbone = get_family(MODEL_TYPES[checkpoint["model_type"]]), backbone_of(model)
    if model is backbone:
        loading.follow(backbone, family, checkpoint)
    else:
        loading.follow_in_head(model, family, checkpoint)


_within_another, _backbones_alone = [], []


@contextlib.contextmanager
def _as_it_was(model):
    """While it lasts, a model is of its own class, and what is inside may be written down."""
    kept = type(model)
    _within_another.append(model)
    model.__class__ = kept.own
    try:
        yield
    finally:
        model.__class__ = kept
        _within_another.pop()


def _described(model, state):
    """What builds adapters again, a dict for JSON."""
    if state.suspensions or state.cast:
        what = "inside disable_adapters" if state.suspensions else "after cast_frozen"
        raise NotImplementedError(f"A model is not saved {what}: save it outside or before.")
    origin, names = state.origin(model), {id(v): name for v, name, _ in state.family.names(model)}
    head, owners = state.head_variables(model), _owners(state).items()
    trained = {id(variable): trains for variable, trains in state.freezing[0]}
    found = [variable for variable, _ in state.freezing[0]]
    # A weight's own `trainable` says nothing where the model's is False.
    trains = {id(variable) for variable in model.trainable_variables}
    return {
        "configs": {name: adapter.config.to_dict() for name, adapter in state.adapters.items()},
        "numbers": {name: adapter.number for name, adapter in state.adapters.items()},
        "active": state.active,
        "active_blocks": None if state.active_blocks is None else sorted(state.active_blocks),
        "labels": {name: state.label_names(model, owner) for name, owner in owners},
        "pretrained": {name: owner.pretrained for name, owner in owners},
        "untrained_pooler": bool(state.newly_initialized),
        "pretrained_head": state.pretrained_head,
        "trainable": state.trainable,
        "fast": state.fast,
        "head_trains": not head or any(variable.trainable for variable in head),
        "trains": [name for name, variable in _by_name(model, state).items() if id(variable) in trains],
        "trained_before": [
            [name for name, (variable, _) in state.door.named_weights(model, found).items() if trained[id(variable)]],
            [trains for _, trains in state.freezing[1]],
        ],
        "source": state.source,
        "origin": origin.to_dict(names),
    }


def _rebuild(model, about):
    state = state_of(model)
    pooler = state.family.pooler(model)
    state.newly_initialized = [pooler] if about["untrained_pooler"] else []
    state.pretrained_head, state.source = about["pretrained_head"], about["source"]
    fast = about["fast"] and keras.backend.backend() == "tensorflow"  # others have the same numbers, but for rounding
    for name, config in about["configs"].items():
        state.acting.last = about["numbers"][name] - 1  # which the sites' weights name
        add_adapters(model, config_from_dict(config), name=name, seed=0, fast=fast)
    set_active(model, about["active"], blocks=about["active_blocks"])
    config = state.door.config_of(model)
    for name, owner in _owners(state).items():
        labels = about["labels"][name]
        if labels is None or len(labels) != config.num_labels:  # KerasHub builds a task for other labels if asked to
            labels = [f"LABEL_{index}" for index in range(config.num_labels)]
        both = dict(enumerate(labels)), {label: index for index, label in enumerate(labels)}
        if owner.labels is None:
            config.id2label, config.label2id = both
        else:
            owner.labels = both
        owner.pretrained = about["pretrained"][name]
    if about["trainable"] is not None:
        set_trainable(model, about["trainable"], head=about["head_trains"])
    # A mode alone does not tell which of several adapters it was chosen for.
    trains = set(about["trains"])
    if trains:
        state.door.choose(model, state, {id(one) for name, one in _by_name(model, state).items() if name in trains})
    else:
        state.door.freeze(model, state)
    names, layers = about["trained_before"]
    variables, found = [variable for variable, _ in state.freezing[0]], state.freezing[1]
    named = state.door.named_weights(model, variables)
    state.freezing = (
        [(variable, name in names) for name, (variable, _) in named.items()],
        [(layer, trains) for (layer, _), trains in zip(found, layers)],
    )
    # The encoder is the one that was written down when it has its weights.
    vars(backbone_of(model))["origin_in_file"] = about["origin"]


def _by_name(model, state):
    """The weights of a model by names that one that is built again has too."""
    own = {
        f"{_PREFIX}:{name}:{key}.{part}": variable
        for name, adapter in state.adapters.items()
        for key, layer in adapter.layers.items()
        for part, variable in layer.parts.items()
    }
    of_adapters = {id(variable) for variable in own.values()}
    others = [variable for variable in state.door.weights(model) if id(variable) not in of_adapters]
    return own | {name: variable for name, (variable, _) in state.door.named_weights(model, others).items()}


def _owners(state):
    return {"": state.plain, **state.adapters}


def _waiting(model):
    """The lists of values that belong to a model, or to the backbone that it is, and are not on it now, by their keys
    in a file."""
    state = getattr(model, "adapters_of", None)
    if state is None:
        return {}
    groups = ("norms", "pooler") if model is backbone_of(model) else ()
    groups += ("head",) if state is getattr(model, "_tf_adapters", None) else ()
    return {
        f"{_PREFIX}:{name}:{group}": getattr(owner, group)
        for name, owner in _owners(state).items()
        for group in groups
        if getattr(owner, group)
    }
