"""Pretrained encoders as models of KerasHub, with the checkpoint's own numbers.

What a checkpoint says and KerasHub's classes cannot, a class before a model's own computes. It keeps that in the files
of Keras and in presets.
"""

import functools

import keras
import keras_hub

from tf_adapters._keras3_internals import dense_place, layers_of, masked_words_part, part
from tf_adapters.config import ACTIVATIONS, one_name
from tf_adapters.errors import InputError
from tf_adapters.layers.ops import keras3
from tf_adapters.models.keras_hub import door, presets
from tf_adapters.models.keras_hub.families import FAMILIES, OpenPositions
from tf_adapters.models.keras_hub.family import activation_named, backbone_of
from tf_adapters.models.keras_hub.heads import HEADS
from tf_adapters.models.state import check_head, state_of
from tf_adapters.models.weight_files import names_of_outputs, read_weights
from tf_adapters.paths import find_here, read_json

_KEY = "tf_adapters_checkpoint"
# What of a config.json KerasHub's classes cannot say.
_SAID = ("model_type", "hidden_act", "activation", "layer_norm_eps", "type_vocab_size", "pooler_hidden_act")


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
        (_follow if model is backbone_of(model) else _follow_in_head)(model, family, checkpoint)
        return model

    @classmethod
    def from_preset(cls, *arguments, **settings):
        """As of the model's own class, where KerasHub looks for what fits a preset."""
        return cls.own.from_preset(*arguments, **settings)

    def export(self, *arguments, **settings):
        """As of Keras; see `door.export`."""
        return door.export(self, *arguments, **settings)


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


def _follow(backbone, family, config):
    """Let a fresh backbone compute what a checkpoint means, which KerasHub's classes cannot say, by the dict of its
    `config.json`, or what an earlier call kept of it; ValueError for an activation that is unknown."""
    function, epsilon = _activation_of(config), family.epsilon_of(config)
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


def _follow_in_head(model, family, config):
    """Let a fresh task model of masked words compute what a checkpoint means; arguments as of `_follow`."""
    masked_words_part(model, "dense").activation = _activation_of(config, family.masked_words_activation)
    masked_words_part(model, "norm").epsilon = family.epsilon_of(config)
    model._tf_adapters_checkpoint = dict(config)
    model.__class__ = _of_checkpoint(type(model))


def _activation_of(config, named=activation_named):
    """The function that a checkpoint's `config.json` names; ValueError for one that is unknown."""
    activation = named(config)
    name = one_name(activation)
    if name not in ACTIVATIONS:
        raise ValueError(f"the activation {activation!r} is unknown")
    return keras3.activation(name)


def load_backbone(source, *, head="classification", num_labels=2, labels=None, dtype=None):
    """Load a pretrained encoder as a model of KerasHub; see `tf_adapters.load_backbone`.

    KerasHub's own converters leave out what a checkpoint says of its activation, its epsilon and its token types
    (`docs/keras-hub.md`). Here hidden states are those of transformers' TensorFlow models within 1e-5.

    Args:
        source: as of `tf_adapters.load_backbone`; not the hub, but a preset of KerasHub (`presets`).
        head: `"classification"`, `"token-classification"`, `"question-answering"`, `"multiple-choice"`, `"masked-lm"`
            or `"none"`, which is the backbone.
        num_labels, labels: as of `tf_adapters.load_backbone`.
        dtype: dtype or dtype policy of Keras for the backbone; None for the global one.

    Returns: a KerasHub task model or backbone.
    """
    check_head(num_labels, labels, head, 1)
    number = num_labels if labels is None else len(labels)
    directory = find_here(source)
    config = presets.described(source) if directory is None else read_json(directory / "config.json")
    if presets.is_preset(config):
        place = str(directory or source)
        model, pretrained, missing = presets.load(place, config, head, number, dtype)
        state = _finish(model, labels, source, pretrained, missing)
        state.tokenizer = functools.partial(presets.tokenizer_of, place)
        return model
    model_type = config.get("model_type")
    if model_type not in FAMILIES:
        raise InputError(
            f"{{model_type}} has no backbone of this door: it has {', '.join(sorted(FAMILIES))}.", model_type=model_type
        )
    family = FAMILIES[model_type]
    presets.check_head_of(family, head)
    model = _build(family, config, head, number, dtype, directory)
    named = {name: (variable, transposed) for variable, name, transposed in family.names(model)}
    lacks_pooler, found = read_weights(door, named, family.prefix_name, directory)
    pretrained = all(id(variable) in found for variable in state_of(model).head_variables(model))
    missing = [family.pooler(model)] if lacks_pooler and family.reads_pooler(model) else []
    known = names_of_outputs(config)
    if pretrained and labels is None and head.endswith("classification") and len(known) == number:
        labels = known
    state = _finish(model, labels, source, pretrained, missing)
    state.directory = str(directory)
    state.order_outputs(model, known, found)
    return model


def _finish(model, labels, source, pretrained_head, missing):
    """The state of a loaded model, which knows its label names, its source, and what pretraining did not train."""
    state = state_of(model)
    if labels is not None:
        state.name_labels(model, labels)
    state.pretrained_head, state.source = pretrained_head, str(source)
    if missing:
        state.newly_initialized = missing
    door.keep_float32(model, state)
    return state


def _build(family, config, head, num_labels, dtype, directory):
    try:
        backbone = family.backbone(**family.arguments(config), dtype=dtype)
        _activation_of(config)
    except InputError:
        raise
    except (ArithmeticError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{directory}: config.json describes no encoder of KerasHub's ({str(error)[:200]}): restore the file."
        ) from error
    _follow(backbone, family, {**config, "model_type": family.model_type})
    if head == "none":
        return backbone
    if head == "masked-lm":
        model = family.tasks[head](backbone)
        _follow_in_head(model, family, backbone._tf_adapters_checkpoint)
        return model
    if head == "classification":
        return family.tasks[head](backbone, num_classes=num_labels, **family.head_arguments(config, backbone))
    return HEADS[head](backbone, num_labels, **HEADS[head].arguments(family, config, backbone))
