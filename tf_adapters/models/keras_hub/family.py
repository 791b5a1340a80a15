"""What injection and loading need to know of an encoder family of KerasHub; `families` has one of each."""

import dataclasses
import functools
from typing import Callable, Dict, Optional

import keras
import keras_hub

from tf_adapters._keras3_internals import dense_place, layers_of, masked_words_part, part
from tf_adapters.config import ACTIVATIONS, DENSE_PLACES, one_name
from tf_adapters.errors import InputError, shown
from tf_adapters.models.keras_hub.heads import HEADS, HeadModel, rate_of
from tf_adapters.models.keras_hub.site import AdapterEncoder

BERT_EMBEDDINGS = {
    "token_embedding": "embeddings.word_embeddings",
    "position_embedding": "embeddings.position_embeddings",
    "segment_embedding": "embeddings.token_type_embeddings",
    "embeddings_layer_norm": "embeddings.LayerNorm",
}
BERT_BLOCK = {
    **{place: f"attention.self.{place}" for place in ("query", "key", "value")},
    "attention_output": "attention.output.dense", "attention_norm": "attention.output.LayerNorm",
    "intermediate": "intermediate.dense", "output": "output.dense", "ffn_norm": "output.LayerNorm",
}  # fmt: skip
_INPUTS = {"input_ids": "token_ids", "attention_mask": "padding_mask", "token_type_ids": "segment_ids"}
_NORMS = ("attention_norm", "ffn_norm")
# PyTorch's usual names of the heads' layers.
_HEADS = {
    "classification": {"output_dense": "classifier"},
    "masked-lm": {
        "dense": "cls.predictions.transform.dense",
        "norm": "cls.predictions.transform.LayerNorm",
        "bias": "cls.predictions",
    },
    **{head: made.head_names for head, made in HEADS.items()},
}


def encoder_arguments(config):
    """KerasHub's arguments of most encoders, from the dict of a `config.json`."""
    return {
        "vocabulary_size": config["vocab_size"],
        "num_layers": config["num_hidden_layers"],
        "num_heads": config["num_attention_heads"],
        "hidden_dim": config["hidden_size"],
        "intermediate_dim": config["intermediate_size"],
        "dropout": config.get("hidden_dropout_prob", 0.1),
        "max_sequence_length": config["max_position_embeddings"],
    }


def head_arguments(config, backbone):
    """KerasHub's arguments of a head of classification beside its size, from the dict of a `config.json`."""
    keys = ("classifier_dropout", "seq_classif_dropout", "classifier_dropout_prob")
    return {"dropout": rate_of(config, keys, backbone.dropout)}


def activation_named(config):
    """transformers' name of the activation of an encoder, from the dict of a `config.json`."""
    return config.get("hidden_act") or config.get("activation") or "gelu"


def known_activation(config, key, usual):
    """The name in `config.ACTIVATIONS` of what a `config.json` names, `usual` where it names none, and `"linear"` where
    it says that there is none; InputError for an activation that this package does not know."""
    name = one_name(config.get(key, usual) or "linear")
    if name not in ACTIVATIONS:
        raise refused_setting("this package", key, config[key], ", ".join(ACTIVATIONS))
    return name


def refused_setting(what, name, value, computed):
    """An InputError for a setting of `config.json` of which `what` computes other values alone."""
    return InputError(
        f"config.json has {name}={shown(value)}, and {what} computes {computed} alone: use {{door}}.",
        door="transformers",
    )


@dataclasses.dataclass
class EncoderConfig:
    """What the lifecycle reads of an encoder and its head, as transformers' configurations have it.

    Attributes:
        id2label, label2id: dicts, label names by index and back; KerasHub's models have none of their own.
        pooler_hidden_act: what a checkpoint of DeBERTa says of its head, or None.
    """

    model_type: str
    hidden_size: int
    num_hidden_layers: int
    intermediate_size: int
    num_labels: int
    id2label: Dict[int, str]
    label2id: Dict[str, int]
    vocab_size: int
    max_position_embeddings: int
    pooler_hidden_act: Optional[str] = None


@dataclasses.dataclass(frozen=True)
class Family:
    """An encoder family of KerasHub.

    Attributes:
        model_type: str, as in `config.json`.
        backbone: KerasHub's backbone class.
        arguments: function from the dict of a `config.json` to the arguments of that class; it raises InputError for
            a setting that the class cannot compute.
        tasks: dict from the name of a head, as in `load_backbone`, to the family's own class of a model with it.
        heads: dict from the name of a head to a dict from the names of its layers to PyTorch's, where these are not the
            usual ones; those of masked words as in `masked_words_part`.
        embeddings: dict from the backbone's attributes to PyTorch's names.
        block: dict from the parts of a block to PyTorch's names.
        block_class: what a block becomes, an `AdapterBlock`.
        block_name: function from a backbone to the PyTorch names of its blocks.
        pooler_name: PyTorch's name of the encoder's dense layer of the first token, or None where only heads have one.
        prefix_name: str, what PyTorch's names of the encoder begin with.
        tokenizer: str, as of the first door's `Family`.
        first_position: int, the first row of the positions that a text has.
        epsilon: float, of the LayerNorms where `config.json` has none.
        reads_epsilon: bool, whether transformers looks for it there.
        masked_words_activation: function from the dict of a `config.json` to transformers' name of the activation in
            the head of masked words.
        head_arguments: as of the function `head_arguments`; it raises InputError as `arguments` does.
        choice_arguments: the same of `heads.ChoiceClassifier`.
        pooled_classifier, head_activation, row_places: as of the first door's `Family`.
        prepare: function of a backbone that was built for a checkpoint, and the dict of its `config.json`.
    """

    model_type: str
    backbone: type
    arguments: Callable
    tasks: Dict[str, type]
    prefix_name: str
    heads: Dict[str, Dict[str, str]] = dataclasses.field(default_factory=dict)
    embeddings: Dict[str, str] = dataclasses.field(default_factory=lambda: BERT_EMBEDDINGS)
    block: Dict[str, str] = dataclasses.field(default_factory=lambda: BERT_BLOCK)
    block_class: type = AdapterEncoder
    block_name: Callable = lambda backbone: [f"encoder.layer.{index}" for index in range(backbone.num_layers)]
    pooler_name: Optional[str] = None
    tokenizer: str = "wordpiece"
    first_position: int = 0
    epsilon: float = 1e-12
    reads_epsilon: bool = True
    masked_words_activation: Callable = activation_named
    head_arguments: Callable = head_arguments
    choice_arguments: Callable = lambda config, backbone: {"dropout": backbone.dropout}
    prepare: Callable = lambda backbone, config: None
    pooled_classifier: bool = False
    head_activation: Callable = lambda config: "tanh"
    row_places: Callable = lambda config: DENSE_PLACES
    autograph = False

    @property
    def classifier(self):
        """As of the first door's `Family`."""
        return tuple({**_HEADS, **self.heads}["classification"].values())

    def epsilon_of(self, config):
        """That of the LayerNorms, from the dict of a `config.json`."""
        return config.get("layer_norm_eps", self.epsilon) if self.reads_epsilon else self.epsilon

    def prefix(self, model):
        """As of the first door's `Family`."""
        return self.prefix_name

    def inputs(self, encoded):
        """What models of KerasHub take of the tensors that a tokenizer makes; a dict, of which each model takes the
        names that it knows."""
        return {_INPUTS.get(name, name): value for name, value in encoded.items()}

    def takes(self, model):
        """As of the first door's `Family`."""
        return [name for name, theirs in _INPUTS.items() if theirs in model.input]

    def positions(self, config):
        """The most tokens of a row."""
        return config.max_position_embeddings - self.first_position

    def main_layer(self, model):
        """The backbone inside `model`."""
        return backbone_of(model)

    def blocks(self, model):
        """The encoder blocks with weights of their own, from the bottom up."""
        found = []
        for block in backbone_of(model).transformer_layers:
            found += block if isinstance(block, (list, tuple)) else [block]
        return found

    def dense(self, block, place):
        """Where a block keeps a dense layer: `(owner, attribute)`."""
        return dense_place(block, place)

    def layer_norms(self, model, which, adapted=None):
        """As of the first door's `Family`."""
        if which == "none":
            return []
        blocks = self.blocks(model)
        if which == "adapted" and adapted is not None:
            blocks = [blocks[index] for index in adapted]
        norms = [part(block, name) for block in blocks for name in _NORMS]
        return norms + [backbone_of(model).embeddings_layer_norm] if which == "all" else norms

    def pooler(self, model):
        """The backbone's dense layer of the first token, or None."""
        return getattr(backbone_of(model), "pooled_dense", None)

    def reads_pooler(self, model):
        """Whether the pretrained encoder has a pooler and something reads it."""
        if self.pooler_name is None or self.pooler(model) is None:
            return False
        head = self.head_of(model)
        if head in HEADS:
            return HEADS[head].reads_pooler
        # One that a head brought along is none of the backbone's outputs.
        return head != "masked-lm" and isinstance(backbone_of(model).output, dict)

    def head_of(self, model):
        """As of the first door's `Family`."""
        if model is backbone_of(model):
            return "none"
        if isinstance(model, HeadModel):
            return model.head
        return next((head for head, kind in self.tasks.items() if isinstance(model, kind)), None)

    def intermediate_size(self, config):
        """Units between the two feed-forward layers."""
        return config.intermediate_size

    def dropout_layers(self, model):
        """List of `(layer, the rate at which it drops)`."""
        return [(layer, layer.rate) for layer in layers_of(model) if isinstance(layer, keras.layers.Dropout)]

    def names(self, model):
        """Every weight of the pretrained encoder and of a known head by PyTorch's name.

        Returns: list of `(variable, name, whether PyTorch transposes it)`.
        """
        backbone, named = backbone_of(model), []
        for attribute, name in self.embeddings.items():
            layer = functools.reduce(getattr, attribute.split("."), backbone)
            named += _of_layer(layer, f"{self.prefix_name}.{name}")
        for block, start in zip(self.blocks(model), self.block_name(backbone)):
            for place, name in self.block.items():
                layer = part(block, place) if place in _NORMS else getattr(*dense_place(block, place))
                named += _of_layer(getattr(layer, "dense", layer), f"{self.prefix_name}.{start}.{name}")
        if self.pooler_name is not None and self.pooler(model) is not None:
            named += _of_layer(self.pooler(model), f"{self.prefix_name}.{self.pooler_name}")
        head = self.head_of(model)
        own = masked_words_part if head == "masked-lm" else getattr
        for attribute, name in {**_HEADS, **self.heads}.get(head, {}).items():
            named += _of_layer(own(model, attribute), name)
        return named


def _of_layer(layer, name):
    """The weights of a dense layer, a LayerNorm or an embedding, which may be a variable alone, as a bias may be."""
    if isinstance(layer, keras.Variable):
        return [(layer, f"{name}.{'bias' if len(layer.shape) == 1 else 'weight'}", False)]
    if hasattr(layer, "kernel"):
        return [(layer.kernel, f"{name}.weight", True), (layer.bias, f"{name}.bias", False)]
    if hasattr(layer, "gamma"):
        return [(layer.gamma, f"{name}.weight", False), (layer.beta, f"{name}.bias", False)]
    return [(layer.weights[0], f"{name}.weight", False)]


def backbone_of(model):
    """KerasHub's backbone that a model is, or has inside; InputError if there is none, or several."""
    if isinstance(model, keras_hub.models.Backbone):
        return model
    found = [layer for layer in layers_of(model) if isinstance(layer, keras_hub.models.Backbone)]
    if len(found) != 1:
        what = "none" if not found else f"{len(found)}"
        raise InputError(
            f"{{model}} must have one backbone of KerasHub inside, called as `backbone(inputs)`, and has {what}.",
            model=type(model).__name__,
        )
    return found[0]


def kerashub_tasks(name):
    """`Family.tasks` of which KerasHub has each; `name` is what its classes begin with."""
    kinds = {"classification": "TextClassifier", "masked-lm": "MaskedLM"}
    return {head: getattr(keras_hub.models, f"{name}{kind}") for head, kind in kinds.items()}
