"""What a checkpoint says and KerasHub's classes cannot: a class before a model's own computes it, and keeps it in
Keras' files and in presets."""

import functools

import keras
import keras_hub

from tf_adapters._keras3_internals import dense_place, layers_of, masked_words_part, part
from tf_adapters.activations import NAMES, one_name
from tf_adapters.layers.ops import keras3
from tf_adapters.models.keras_hub.exports import export
from tf_adapters.models.keras_hub.families import FAMILIES, OpenPositions
from tf_adapters.models.keras_hub.family import activation_named, backbone_of

_KEY = "tf_adapters_checkpoint"
# What of a config.json KerasHub's classes cannot say.
_SAID = ("model_type", "hidden_act", "activation", "layer_norm_eps", "type_vocab_size")


class _AsOwn(type):
    """Equal to the model's own class: KerasHub compares the classes of backbones to find out what fits a preset."""

    def __eq__(cls, other):
        return cls is other or vars(cls).get("own") is other

    # Keras registers both, in a dict.
    __hash__ = type.__hash__


class _OfCheckpoint(metaclass=_AsOwn):
    def get_config(self):
        """As of the model's own class, with what the checkpoint says."""
        return {**super().get_config(), _KEY: self._tf_adapters_checkpoint}

    @classmethod
    def from_config(cls, config):
        """As of Keras."""
        config = dict(config)
        checkpoint = config.pop(_KEY)
        model, family = cls.own.from_config(config), FAMILIES[checkpoint["model_type"]]
        (follow if model is backbone_of(model) else follow_in_head)(model, family, checkpoint)
        return model

    @classmethod
    def from_preset(cls, *arguments, **settings):
        """As of the model's own class, where KerasHub looks for what fits a preset."""
        return cls.own.from_preset(*arguments, **settings)

    def export(self, *arguments, **settings):
        """As of Keras; see `exports.export`."""
        return export(self, *arguments, **settings)


@functools.cache
def _of_checkpoint(own):
    attributes = {"own": own, "__module__": __name__, "__doc__": own.__doc__}
    if hasattr(own, "backbone_cls"):
        attributes["backbone_cls"] = None  # or KerasHub would take it for a task's own class in any preset
    made = globals()[own.__name__] = _AsOwn(own.__name__, (_OfCheckpoint, own), attributes)  # where pickle looks for it
    # Where this package is not imported, KerasHub's error has this name and no more.
    name = f"{own.__name__} (import tf_adapters.models.keras_hub)"
    return keras.saving.register_keras_serializable("tf_adapters", name)(made)


# What Keras finds in a process that has loaded no checkpoint.
for _family in FAMILIES.values():
    for _own in (_family.backbone, *(own for head, own in _family.tasks.items() if head == "masked-lm")):
        _of_checkpoint(_own)


def follow(backbone, family, config):
    """Let a fresh backbone compute what a checkpoint means, which KerasHub's classes cannot say.

    Args:
        config: dict of its `config.json`, or what an earlier call kept of it.

    Raises:
        ValueError: an activation that is unknown.
    """
    function, epsilon = activation_of(config), config.get("layer_norm_eps", family.epsilon)
    for layer in layers_of(backbone):
        if type(layer) is keras_hub.layers.PositionEmbedding:
            layer.__class__ = OpenPositions
    family.prepare(backbone, config)
    backbone._tf_adapters_model_type = family.model_type
    backbone._tf_adapters_checkpoint = {name: config[name] for name in _SAID if name in config}
    backbone.embeddings_layer_norm.epsilon = epsilon
    for block in family.blocks(backbone):
        block.activation, block.layer_norm_epsilon = function, epsilon
        getattr(*dense_place(block, "intermediate")).activation = function
        for norm in ("attention_norm", "ffn_norm"):
            part(block, norm).epsilon = epsilon
    backbone.__class__ = _of_checkpoint(type(backbone))


def follow_in_head(model, family, config):
    """Let a fresh task model of masked words compute what a checkpoint means; arguments as of `follow`."""
    masked_words_part(model, "dense").activation = activation_of(config, family.masked_words_activation)
    masked_words_part(model, "norm").epsilon = config.get("layer_norm_eps", family.epsilon)
    model._tf_adapters_checkpoint = dict(config)
    model.__class__ = _of_checkpoint(type(model))


def activation_of(config, named=activation_named):
    """The function that a checkpoint's `config.json` names; ValueError for one that is unknown."""
    activation = named(config)
    name = one_name(activation)
    if name not in NAMES:
        raise ValueError(f"the activation {activation!r} is unknown")
    return keras3.activation(name)
