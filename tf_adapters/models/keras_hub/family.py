"""What injection and loading need to know of an encoder family of KerasHub; one short file each beside this one."""

import dataclasses
import functools
import importlib
from typing import Callable, Dict, Optional

import keras_hub

from tf_adapters._keras3_internals import dense_place, layers_of, part
from tf_adapters.errors import InputError

# Name of a backbone's class -> module with a FAMILY. A new family is a file, where it has none, and a line here.
_MODULES = {
    "AlbertBackbone": "albert",
    "BertBackbone": "bert",
    "DistilBertBackbone": "distilbert",
    "ElectraBackbone": "electra",
    "RobertaBackbone": "roberta",
    "XLMRobertaBackbone": "xlm_roberta",
}
# model_type of config.json -> module.
MODEL_TYPES = {**{name.replace("_", "-"): name for name in _MODULES.values()}, "camembert": "camembert"}

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


@dataclasses.dataclass
class EncoderConfig:
    """What the lifecycle reads of an encoder and its head, as transformers' configurations have it.

    Attributes:
        id2label, label2id: dicts, label names by index and back; KerasHub's models have none of their own.
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


@dataclasses.dataclass(frozen=True)
class Family:
    """An encoder family of KerasHub.

    Attributes:
        model_type: str, as in `config.json`.
        backbone: KerasHub's backbone class.
        arguments: function from the dict of a `config.json` to the arguments of that class.
        classifier: KerasHub's class for a head of classification, or None.
        head: dict from the names of the classifier's dense layers to PyTorch's.
        embeddings: dict from the backbone's attributes to PyTorch's names.
        block: dict from the parts of a block to PyTorch's names.
        block_name: function from a backbone to the PyTorch names of its blocks.
        pooler: PyTorch's name of the dense layer of the first token, or None where only the head has one.
        prefix_name: str, what PyTorch's names of the encoder begin with.
        tokenizer: str, a key of `text.loading`.
        first_position: int, the first row of the positions that a text has.
        prepare: function of a backbone that was built for a checkpoint, and the dict of its `config.json`.
    """

    model_type: str
    backbone: type
    arguments: Callable
    classifier: Optional[type]
    prefix_name: str
    head: Dict[str, str] = dataclasses.field(default_factory=lambda: {"output_dense": "classifier"})
    embeddings: Dict[str, str] = dataclasses.field(default_factory=lambda: BERT_EMBEDDINGS)
    block: Dict[str, str] = dataclasses.field(default_factory=lambda: BERT_BLOCK)
    block_name: Callable = lambda backbone: [f"encoder.layer.{index}" for index in range(backbone.num_layers)]
    pooler_name: Optional[str] = None
    tokenizer: str = "wordpiece"
    first_position: int = 0
    prepare: Callable = lambda backbone, config: None

    def prefix(self, model):
        """As of the first door's `Family`."""
        return self.prefix_name

    def inputs(self, encoded):
        """What models of KerasHub take of the tensors that a tokenizer makes; a dict, of which each model takes the
        names that it knows."""
        return {_INPUTS[name]: value for name, value in encoded.items()}

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
        return self.pooler_name is not None and self.pooler(model) is not None and self.head_of(model) != "tokens"

    def head_of(self, model):
        """`"classification"`, `"none"`, or None of another model."""
        if model is backbone_of(model):
            return "none"
        if self.classifier is not None and isinstance(model, self.classifier):
            return "classification"
        return None

    def intermediate_size(self, config):
        """Units between the two feed-forward layers."""
        return config.intermediate_size

    def dropout_layers(self, model):
        """None: Keras 3 keeps the state of a dropout where it can be saved."""
        return []

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
        if self.head_of(model) == "classification":
            for attribute, name in self.head.items():
                named += _of_layer(getattr(model, attribute), name)
        return named


def _of_layer(layer, name):
    """The weights of a dense layer, a LayerNorm or an embedding."""
    if hasattr(layer, "kernel"):
        return [(layer.kernel, f"{name}.weight", True), (layer.bias, f"{name}.bias", False)]
    if hasattr(layer, "gamma"):
        return [(layer.gamma, f"{name}.weight", False), (layer.beta, f"{name}.bias", False)]
    return [(layer.weights[0], f"{name}.weight", False)]


def backbone_of(model):
    """KerasHub's backbone that a model is, or has inside.

    Raises:
        InputError: there is none, or several.
    """
    if isinstance(model, keras_hub.models.Backbone):
        return model
    found = [layer for layer in layers_of(model) if isinstance(layer, keras_hub.models.Backbone)]
    if len(found) != 1:
        what = "none" if not found else f"{len(found)}"
        raise InputError(
            "{model} must have one backbone of KerasHub inside, called as a whole (`backbone(inputs)`, not its layers "
            f"through `backbone.output`), and has {what}.",
            model=type(model).__name__,
        )
    return found[0]


def get_family(module):
    """The FAMILY of a module's name."""
    return importlib.import_module(f"tf_adapters.models.keras_hub.{module}").FAMILY


def family_of(model):
    """The Family of a model; raises InputError if there is none."""
    backbone = backbone_of(model)
    names = [base.__name__ for base in type(backbone).__mro__ if base.__name__ in _MODULES]
    if not names:
        raise InputError(
            f"{{model}} is not supported: tf_adapters has adapters for {', '.join(sorted(_MODULES))}.",
            model=type(backbone).__name__,
        )
    known_as = getattr(backbone, "_tf_adapters_model_type", None)
    family = get_family(_MODULES[names[0]] if known_as is None else MODEL_TYPES[known_as])
    blocks = family.blocks(model)
    if any(not isinstance(block, keras_hub.layers.TransformerEncoder) or block.normalize_first for block in blocks):
        raise InputError(
            "{model} has blocks that are no TransformerEncoder with its LayerNorms behind the sub-layers.",
            model=type(backbone).__name__,
        )
    return family
