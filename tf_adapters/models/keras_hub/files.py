"""Keras' own files (`.keras`) of models that this package changed.

Keras writes down a class and its configuration, builds the model anew from them, and then reads the weights. A class of
this module stands in for the model's own: its configuration has, beside that of the model as KerasHub would build it,
what the checkpoint says and KerasHub cannot say, and which adapters there are. What is not on the model at the moment,
the LayerNorms of the encoder without an adapter and what belongs to adapters that do not act, goes with the weights.
"""

import contextlib
import functools
import importlib

import keras
import numpy as np

from tf_adapters.methods import config_from_dict
from tf_adapters.models.injection import add_adapters, set_active
from tf_adapters.models.keras_hub.family import MODEL_TYPES, backbone_of, get_family
from tf_adapters.models.origin import Origin
from tf_adapters.models.state import state_of
from tf_adapters.models.trainable import set_trainable

_GROUPS = ("norms", "pooler", "head")
_PREFIX = "tf_adapters"
# What of a config.json KerasHub's classes cannot say.
CHECKPOINT = ("model_type", "hidden_act", "activation", "layer_norm_eps", "type_vocab_size")


class Kept:
    """Before a model's own class: how Keras writes it down and builds it again."""

    def get_config(self):
        """The configuration of the model as KerasHub would build it, and what came on top."""
        state = getattr(self, "_tf_adapters", None)
        backbone = backbone_of(self)
        if backbone is self and not _within_another and not (state and state.adapters) and hasattr(self, "adapted_in"):
            raise NotImplementedError(
                f"The adapters in this backbone belong to the {self.adapted_in} around it: save that."
            )
        about = {"checkpoint": getattr(self, "_tf_adapters_checkpoint", None)}
        if state is not None and state.adapters:
            about["adapters"] = _described(self, state)
        with _as_it_was(self):
            model = keras.saving.serialize_keras_object(self)
        return {"model": model, **about}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        """As of Keras."""
        model = keras.saving.deserialize_keras_object(config["model"], custom_objects=custom_objects)
        if config["checkpoint"] is not None:
            follow_checkpoint(model, config["checkpoint"])
        if "adapters" in config:
            _rebuild(model, config["adapters"])
        return model

    def compile_from_config(self, config):
        """As of Keras, which leaves it to the user where a class has a `compile` of its own, as KerasHub's have."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        if getattr(self, "optimizer", None) is not None and self.built:
            self.optimizer.build(self.trainable_variables)

    def save(self, *arguments, **settings):
        """As of Keras; what cannot be saved is refused before the file is opened, which Keras would leave empty."""
        self.get_config()
        return super().save(*arguments, **settings)

    def save_own_variables(self, store):
        """As of Keras, with what is not on the model now."""
        super().save_own_variables(store)
        state = getattr(self, "_tf_adapters", None)
        for key, values in _waiting(state).items() if state is not None else ():
            for index, value in enumerate(values):
                store[f"{key}:{index}"] = np.asarray(value)

    def load_own_variables(self, store):
        """As of Keras."""
        super().load_own_variables({key: store[key] for key in store.keys() if not key.startswith(_PREFIX)})
        state = getattr(self, "_tf_adapters", None)
        for key, values in _waiting(state).items() if state is not None else ():
            if f"{key}:0" in store.keys():  # another version of this package may have left them out
                values[:] = [np.array(store[f"{key}:{index}"]) for index in range(len(values))]

    def save_to_preset(self, *arguments, **settings):
        """Refused: KerasHub would build the model again without what this package changed."""
        raise NotImplementedError(
            "A preset of KerasHub has no place for adapters, or for a checkpoint's own activation and epsilon: keep "
            "the whole model with model.save('model.keras'), or the adapter with tf_adapters.save_adapter."
        )


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
    made = type(own.__name__, (Kept, own), {"own": own, "__module__": own.__module__, "__doc__": own.__doc__})
    return keras.saving.register_keras_serializable(_PREFIX, "Kept")(made)


# What Keras finds in a process that has made none yet.
keras.saving.register_keras_serializable(_PREFIX, "Kept")(Kept)


def load_keras_file(path, **settings):
    """`keras.saving.load_model` of a file that `model.save` wrote, whose adapters act again.

    Args:
        path: of the `.keras` file.
        settings: as of `keras.saving.load_model`.
    """
    return keras.saving.load_model(path, **settings)


def follow_checkpoint(model, checkpoint):
    """Let a fresh model compute what a checkpoint of transformers means.

    Args:
        model: a backbone, or a task model on one.
        checkpoint: dict with the `CHECKPOINT` keys of its `config.json`, those that it has.

    Raises:
        InputError: an activation that this package does not know.
    """
    loading = importlib.import_module("tf_adapters.models.keras_hub.loading")  # which imports this module
    loading.follow(backbone_of(model), get_family(MODEL_TYPES[checkpoint["model_type"]]), checkpoint)


_within_another = []


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
    return {
        "configs": {name: adapter.config.to_dict() for name, adapter in state.adapters.items()},
        "active": state.active,
        "active_blocks": None if state.active_blocks is None else sorted(state.active_blocks),
        "labels": {name: state.label_names(model, owner) for name, owner in _owners(state).items()},
        "untrained_pooler": bool(state.newly_initialized),
        "pretrained_head": state.pretrained_head,
        "trainable": state.trainable,
        "head_trains": any(variable.trainable for variable in state.head_variables(model)),
        "source": state.source,
        "origin": origin.to_dict(names),
    }


def _rebuild(model, about):
    state = state_of(model)
    pooler = state.family.pooler(model)
    state.newly_initialized = [pooler] if about["untrained_pooler"] else []
    state.pretrained_head, state.source = about["pretrained_head"], about["source"]
    for name, config in about["configs"].items():
        add_adapters(model, config_from_dict(config), name=name, seed=0)
    set_active(model, about["active"], blocks=about["active_blocks"])
    config = state.door.config_of(model)
    for name, owner in _owners(state).items():
        labels = about["labels"][name] or [f"LABEL_{index}" for index in range(config.num_labels)]
        both = dict(enumerate(labels)), {label: index for index, label in enumerate(labels)}
        if owner.labels is None:
            config.id2label, config.label2id = both
        else:
            owner.labels = both
    if about["trainable"] is not None:
        set_trainable(model, about["trainable"], head=about["head_trains"])
    variables = {name: variable for variable, name, _ in state.family.names(model)}
    state.let_origin(Origin.from_dict(about["origin"], state.door, variables))


def _owners(state):
    return {"": state.plain, **state.adapters}


def _waiting(state):
    """The lists of values that are not on the model now, by their keys in a file."""
    return {
        f"{_PREFIX}:{name}:{group}": getattr(owner, group)
        for name, owner in _owners(state).items()
        for group in _GROUPS
        if getattr(owner, group)
    }
