"""What injection and loading need to know of an encoder family; `bert_like` and `other_shapes` have them."""

import dataclasses
import functools
import importlib
from typing import Callable, Dict, Optional, Tuple

from tf_adapters._keras import keras
from tf_adapters.config import DENSE_PLACES
from tf_adapters.errors import InputError
from tf_adapters.models.door import no_model
from tf_adapters.models.transformers.site import replace_layer

# model_type of config.json -> module and its `Family`. A new family is such an object, and a line here.
_FAMILIES = {
    "albert": "other_shapes.ALBERT",
    "bert": "bert_like.BERT",
    "camembert": "bert_like.CAMEMBERT",
    "deberta-v2": "other_shapes.DEBERTA_V2",
    "distilbert": "other_shapes.DISTILBERT",
    "electra": "bert_like.ELECTRA",
    "mpnet": "other_shapes.MPNET",
    "roberta": "bert_like.ROBERTA",
    "xlm-roberta": "bert_like.XLM_ROBERTA",
}


def denses_of(read):
    """`Family.denses` of a block of BERT's shape; `read` is the path of its query, with `{}` for that name."""
    behind = ("attention.dense_output.dense", "intermediate.dense", "bert_output.dense")
    return (*map(read.format, ("query", "key", "value")), *behind)


KERAS_DROPOUT = {keras.layers.Dropout: "rate"}


@dataclasses.dataclass(frozen=True)
class Family:
    """An encoder family of transformers.

    Attributes:
        model_type: str, as in `config.json`.
        config_class: transformers' configuration class.
        block_class: `AdaptedBlock` subclass for one encoder block.
        heads: dict from head name to transformers' model class.
        parameters: function from a configuration to the encoder's numbers of parameters:
            `{"total": int, "layer_norm": {"none": 0, "encoder": int, "all": int}}`.
        fast_block_class, fast_encoder_class: block and stack of blocks of `models.transformers.fast`, or None.
        first_token_heads: names of the heads that read the last block's first token alone.
        pooled_classifier: bool, whether `classifier` of a sequence classification model is one dense layer on the
            pooled output.
        head_activation: function from a configuration to the name of what stands between the dense layers of the
            sequence classification head, the pooler that it reads among them.
        classifier: PyTorch's names of the dense layers of the sequence classification head, without a pooler of the
            encoder's own.
        row_places: function from a configuration to those of `config.DENSE_PLACES` whose layers read the rows of a
            batch and nothing else.
        token_types: bool, whether the encoder takes `token_type_ids`.
        tokenizer: str, what cuts texts, as in `text.tokenizer`.
        on_adapterhub: bool, whether `adapters` has the family.
        adapterhub_attention: bool, whether its adapters behind the attention read what ours do.
        denses: the path of each dense layer's attribute in an adapted block, in the order of `config.DENSE_PLACES`.
        dropouts: dict from each class of dropout layers to the name of the attribute that is its rate.
        autograph: bool, whether transformers' code branches on tensors, so that a graph for any length needs AutoGraph.
        config_keys: dict from keys of config.json that the model reads, beside those that `config_class` names, to
            their defaults.
        first_position: function from a configuration to the number of positions that no token has.
    """

    model_type: str
    config_class: type
    block_class: type
    heads: Dict[str, type]
    parameters: Callable
    fast_block_class: Optional[type] = None
    fast_encoder_class: Optional[type] = None
    first_token_heads: Tuple[str, ...] = ()
    pooled_classifier: bool = False
    head_activation: Callable = lambda config: "tanh"
    classifier: Tuple[str, ...] = ("classifier.dense", "classifier.out_proj")
    row_places: Callable = lambda config: DENSE_PLACES
    token_types: bool = True
    tokenizer: str = "wordpiece"
    denses: Tuple[str, ...] = denses_of("attention.self_attention.{}")
    dropouts: Dict[type, str] = dataclasses.field(default_factory=lambda: KERAS_DROPOUT)
    autograph: bool = False
    config_keys: Dict[str, object] = dataclasses.field(default_factory=dict)
    first_position: Callable = lambda config: 0
    on_adapterhub: bool = True
    adapterhub_attention: bool = True

    def head_of(self, model):
        """The name in `heads` of the model's class, or None of another one."""
        return next((head for head, model_class in self.heads.items() if type(model) is model_class), None)

    def prefix(self, model):
        """What PyTorch's names of the encoder's weights begin with."""
        return model.base_model_prefix

    def main_layer(self, model):
        """The pretrained encoder inside `model`, without its head."""
        return getattr(model, model.base_model_prefix)

    def stack(self, model):
        """The layer whose attribute `layer` is the list of blocks."""
        return self.main_layer(model).encoder

    def blocks(self, model):
        """The encoder blocks, from the bottom up."""
        return list(self.stack(model).layer)

    def set_blocks(self, model, blocks):
        """Replace the list of encoder blocks."""
        # Assigned as a whole: Keras cannot save a tracked list one of whose elements was replaced.
        replace_layer(self.stack(model), "layer", list(blocks))

    def inputs(self, encoded):
        """What the encoder takes of the tensors that a tokenizer makes; a dict."""
        return {name: value for name, value in encoded.items() if self.token_types or name != "token_type_ids"}

    def takes(self, model):
        """Names of those tensors of a tokenizer that a model takes, a list."""
        return list(self.inputs(dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"))))

    def positions(self, config):
        """The most tokens of a row."""
        return config.max_position_embeddings - self.first_position(config)

    def depth(self, config):
        """How many blocks with weights of their own an encoder of this configuration has."""
        return config.num_hidden_layers

    def intermediate_size(self, config):
        """Units between the two feed-forward layers."""
        return config.intermediate_size

    def reads_first_token_only(self, model):
        """Whether the model's head reads only the first token of the last block."""
        return type(model) in [self.heads[head] for head in self.first_token_heads]

    def layer_norms(self, model, which, adapted=None):
        """The pretrained LayerNorm layers: one of `AdapterConfig.train_layer_norm`, with the adapted blocks' indices or
        None."""
        if which == "none":
            return []
        blocks = self.blocks(model)
        if which == "adapted" and adapted is not None:
            blocks = [blocks[index] for index in adapted]
        norms = [norm for block in blocks for norm in self.block_layer_norms(block)]
        return norms + [self.main_layer(model).embeddings.LayerNorm] if which == "all" else norms

    def output_half(self, block, place):
        """Where a block keeps the output half after which an adapter stands: `(owner, attribute)`."""
        return {"attention": (block.attention, "dense_output"), "ffn": (block, "bert_output")}[place]

    def dense(self, block, place):
        """Where an adapted block keeps a dense layer: `(owner, attribute)`; `place` is one of `config.DENSE_PLACES`."""
        *path, attribute = self.denses[DENSE_PLACES.index(place)].split(".")
        return functools.reduce(getattr, path, block), attribute

    def beside_lowest(self, model):
        """What the stack computes right above its lowest block, as a list of `(layer that owns it, attribute)`."""
        return []

    def dropout_layers(self, model):
        """All dropout layers of a model, as `(the layer that owns it, attribute, layer, rate)`.

        Their order depends on the model alone.
        """
        return [
            (owner, attribute, value, getattr(value, rate))
            for owner in [model, *model.submodules]
            if isinstance(owner, keras.layers.Layer)
            for attribute, value in sorted(vars(owner).items())
            for kind, rate in self.dropouts.items()
            if isinstance(value, kind)
        ]

    def block_layer_norms(self, block):
        """The two LayerNorms of a block, adapted or not."""
        return [getattr(*self.output_half(block, place)).LayerNorm for place in ("attention", "ffn")]

    def adapterhub_site(self, model, block, place):
        """What the weights of the adapters at a site begin with in AdapterHub's files, before `.adapters.NAME`."""
        return (
            f"{model.base_model_prefix}.encoder.layer.{block}."
            + {"attention": "attention.output", "ffn": "output"}[place]
        )

    def pooler(self, model):
        """The pooler layer of the encoder, or None."""
        return getattr(self.main_layer(model), "pooler", None)

    def reads_pooler(self, model):
        """Whether anything reads the pooler: some encoders have one under every head."""
        if self.pooler(model) is None:
            return False
        head = self.head_of(model)
        if head in ("token-classification", "question-answering"):
            return False  # a pooler is there for another adapter's head
        # A class of the user's own may read it.
        return self.pooled_classifier or head in ("multiple-choice", "none", None)


def heads_of(prefix, **others):
    """Model classes of transformers for the heads that every family has.

    Args:
        prefix: str, which the names of its classes begin with, such as `"TFRoberta"`.
        others: further heads and their classes.
    """
    import transformers

    names = {
        "classification": "ForSequenceClassification", "token-classification": "ForTokenClassification",
        "question-answering": "ForQuestionAnswering", "multiple-choice": "ForMultipleChoice",
        "masked-lm": "ForMaskedLM", "none": "Model",
    }  # fmt: skip
    heads = {head: getattr(transformers, prefix + name) for head, name in names.items()}
    return heads | {head.replace("_", "-"): value for head, value in others.items()}


def encoder_parameters(config, embeddings=None, *, depth=None, others=0):
    """`Family.parameters` of an encoder of blocks of BERT's shape.

    Args:
        embeddings: int, columns of all embeddings together, or None for those of words, positions and token types;
            their LayerNorm follows from `config`.
        depth: int, blocks with weights of their own; None for all.
        others: int, parameters of what else there is.
    """
    if embeddings is None:
        embeddings = config.vocab_size + config.max_position_embeddings + config.type_vocab_size
    depth = config.num_hidden_layers if depth is None else depth
    size, inner = config.hidden_size, config.intermediate_size
    block, norm = 4 * (size + 1) * size + (size + 1) * inner + (inner + 1) * size + 4 * size, 2 * size
    width = getattr(config, "embedding_size", config.hidden_size)
    return {
        "total": embeddings * width + 2 * width + depth * block + others,
        "layer_norm": {"none": 0, "encoder": depth * 2 * norm, "all": depth * 2 * norm + 2 * width},
    }


def get_family(model_type):
    """The Family for a `model_type`; raises InputError with the supported ones otherwise."""
    if not isinstance(model_type, str) or model_type not in _FAMILIES:
        raise InputError(
            f"{{model_type}} is not supported: adapters are for {', '.join(sorted(_FAMILIES))}.", model_type=model_type
        )
    module, _, name = _FAMILIES[model_type].partition(".")
    return getattr(importlib.import_module(f"tf_adapters.models.transformers.{module}"), name)


def family_of(model):
    """The Family of a model that the user built; raises InputError if there is none."""
    model_type = getattr(getattr(model, "config", None), "model_type", None)
    if model_type is None:
        raise no_model(model)
    return get_family(model_type)
