"""The encoder families of KerasHub, by the `model_type` of a `config.json`. A new family is an entry here."""

import keras
import keras_hub
from keras import ops

from tf_adapters._keras3_internals import disentangled_encoder, part, unlocked
from tf_adapters.config import DENSE_PLACES, one_name
from tf_adapters.errors import InputError, shown
from tf_adapters.models.keras_hub.family import (
    BERT_BLOCK,
    BERT_EMBEDDINGS,
    Family,
    backbone_of,
    encoder_arguments,
    kerashub_tasks,
    known_activation,
    refused_setting,
)
from tf_adapters.models.keras_hub.heads import FirstTokenClassifier
from tf_adapters.models.keras_hub.site import AdapterBlock, joined_mask


class OpenPositions(keras_hub.layers.PositionEmbedding):
    """PositionEmbedding for rows of any length up to its number of positions.

    KerasHub's slices them, which JAX refuses where the length is a symbol: it cannot know that there are as many. Here
    they are then looked up, and a row that turns out to be too long answers NaN.
    """

    def call(self, inputs, start_index=0, positions=None):
        length = ops.shape(inputs)[-2]
        if positions is None and keras.backend.backend() == "jax" and not isinstance(length, int):
            positions = ops.arange(length, dtype="int32") + start_index
        return super().call(inputs, start_index=start_index, positions=positions)


# BERT (Devlin et al., 2019)


def _bert_arguments(config):
    """KerasHub's arguments of an encoder of BERT's shape, from the dict of a `config.json`."""
    return {**encoder_arguments(config), "num_segments": config["type_vocab_size"]}


_BERT = Family(
    model_type="bert",
    backbone=keras_hub.models.BertBackbone,
    arguments=_bert_arguments,
    tasks=kerashub_tasks("Bert"),
    prefix_name="bert",
    pooler_name="pooler.dense",
    pooled_classifier=True,
)


# DistilBERT (Sanh et al., 2019)


def _distilbert_arguments(config):
    own = {"num_hidden_layers": "n_layers", "num_attention_heads": "n_heads", "hidden_size": "dim"}
    renamed = {berts: config[name] for berts, name in {**own, "intermediate_size": "hidden_dim"}.items()}
    return encoder_arguments({**config, **renamed, "hidden_dropout_prob": config.get("dropout", 0.1)})


# Embeddings that KerasHub has in one layer.
_IN_ONE_LAYER = {
    "embeddings.token_embedding": "embeddings.word_embeddings",
    "embeddings.position_embedding": "embeddings.position_embeddings",
    "embeddings_layer_norm": "embeddings.LayerNorm",
}
_DISTILBERT_HEAD = {"pooled_dense": "pre_classifier", "output_dense": "classifier"}

_DISTILBERT = Family(
    model_type="distilbert",
    backbone=keras_hub.models.DistilBertBackbone,
    arguments=_distilbert_arguments,
    tasks=kerashub_tasks("DistilBert"),
    prefix_name="distilbert",
    heads={
        "classification": _DISTILBERT_HEAD,
        "multiple-choice": _DISTILBERT_HEAD,
        "masked-lm": {"dense": "vocab_transform", "norm": "vocab_layer_norm", "bias": "vocab_projector"},
    },
    embeddings=_IN_ONE_LAYER,
    block={
        "query": "attention.q_lin", "key": "attention.k_lin", "value": "attention.v_lin",
        "attention_output": "attention.out_lin", "attention_norm": "sa_layer_norm", "intermediate": "ffn.lin1",
        "output": "ffn.lin2", "ffn_norm": "output_layer_norm",
    },
    block_name=lambda backbone: [f"transformer.layer.{index}" for index in range(backbone.num_layers)],
    reads_epsilon=False,
    head_activation=lambda config: "relu",
    choice_arguments=lambda config, backbone: {
        "dropout": config.get("seq_classif_dropout", 0.2), "activation": "relu",
    },
)  # fmt: skip


# RoBERTa (Liu et al., 2019), XLM-R (Conneau et al., 2020) and CamemBERT (Martin et al., 2020), with what KerasHub
# leaves out: the first rows of the positions, and the embedding of token types, which every token gets


# PyTorch's positions count from the number after that of padding.
FIRST_POSITION = 2


class OffsetPositions(OpenPositions):
    """Positions whose first token has the position 2, as RoBERTa's checkpoints number them."""

    def call(self, inputs, start_index=0, positions=None):
        return super().call(inputs, start_index=start_index + FIRST_POSITION, positions=positions)


class TypedEmbedding(keras_hub.layers.TokenAndPositionEmbedding):
    """TokenAndPositionEmbedding that adds the embedding of the first token type to every token."""

    def make_types(self, number):
        """Add the weight, `(number, hidden)`."""
        with unlocked(self):
            self.token_types = keras.layers.Embedding(
                number, self.embedding_dim, dtype=self.dtype_policy, name="token_types"
            )
            self.token_types.build((None, None))

    def call(self, inputs, start_index=0, positions=None):
        outputs = super().call(inputs, start_index=start_index, positions=positions)
        return outputs + ops.cast(ops.convert_to_tensor(self.token_types.embeddings)[0], outputs.dtype)


def _prepare_roberta(backbone, config):
    """Let a fresh backbone compute what a checkpoint of transformers means."""
    embeddings = backbone.embeddings
    embeddings.position_embedding.__class__ = OffsetPositions
    embeddings.__class__ = TypedEmbedding
    embeddings.make_types(config["type_vocab_size"])


class Roberta(Family):
    """A family of RoBERTa's shape."""

    def names(self, model):
        """As of `Family`; KerasHub's own backbones have no token types."""
        named, embeddings = super().names(model), self.main_layer(model).embeddings
        if isinstance(embeddings, TypedEmbedding):
            name = f"{self.prefix_name}.embeddings.token_type_embeddings.weight"
            named.append((embeddings.token_types.embeddings, name, False))
        return named


def _roberta(model_type, name, tokenizer):
    """A Family of RoBERTa's shape; `name` is what KerasHub's classes begin with."""
    return Roberta(
        model_type=model_type,
        backbone=getattr(keras_hub.models, f"{name}Backbone"),
        arguments=encoder_arguments,
        tasks=kerashub_tasks(name),
        prefix_name="roberta",
        heads={
            "classification": {"pooled_dense": "classifier.dense", "output_dense": "classifier.out_proj"},
            "masked-lm": {"dense": "lm_head.dense", "norm": "lm_head.layer_norm", "bias": "lm_head"},
        },
        masked_words_activation=lambda config: "gelu",
        embeddings=_IN_ONE_LAYER,
        # Of transformers' heads that are here, multiple choice alone reads it.
        pooler_name="pooler.dense",
        tokenizer=tokenizer,
        first_position=FIRST_POSITION,
        choice_arguments=lambda config, backbone: {
            "dropout": backbone.dropout, "activation": "tanh", "in_encoder": True,
        },
        prepare=_prepare_roberta,
    )  # fmt: skip


# ALBERT (Lan et al., 2020): few blocks, each computed several times


def _albert_arguments(config):
    return {
        **_bert_arguments(config),
        "dropout": config.get("hidden_dropout_prob", 0.0),
        "embedding_dim": config["embedding_size"],
        "num_groups": config.get("num_hidden_groups", 1),
        "num_inner_repetitions": config.get("inner_group_num", 1),
    }


def _albert_block_names(backbone):
    inner = backbone.num_inner_repetitions
    return [
        f"encoder.albert_layer_groups.{group}.albert_layers.{index}"
        for group in range(backbone.num_groups)
        for index in range(inner)
    ]


_ALBERT = Family(
    model_type="albert",
    backbone=keras_hub.models.AlbertBackbone,
    arguments=_albert_arguments,
    tasks=kerashub_tasks("Albert"),
    prefix_name="albert",
    embeddings={**BERT_EMBEDDINGS, "embeddings_projection": "encoder.embedding_hidden_mapping_in"},
    block={
        **{place: f"attention.{place}" for place in ("query", "key", "value")},
        "attention_output": "attention.dense", "attention_norm": "attention.LayerNorm", "intermediate": "ffn",
        "output": "ffn_output", "ffn_norm": "full_layer_layer_norm",
    },
    block_name=_albert_block_names,
    heads={
        "masked-lm": {"dense": "predictions.dense", "norm": "predictions.LayerNorm", "bias": "predictions.decoder"}
    },
    pooler_name="pooler",
    pooled_classifier=True,
    tokenizer="sentencepiece:albert",
)  # fmt: skip


# ELECTRA (Clark et al., 2020), for which KerasHub has a backbone alone


def _electra_arguments(config):
    renamed = _bert_arguments(config)
    renamed["vocab_size"] = renamed.pop("vocabulary_size")
    return {**renamed, "embedding_dim": config.get("embedding_size", config["hidden_size"])}


def _electra_choice_arguments(config, backbone):
    for name, computed in {"summary_type": "first", "summary_use_proj": True}.items():
        if config.get(name, computed) != computed:
            raise refused_setting("this head", name, config[name], shown(computed))
    activation = known_activation(config, "summary_activation", "gelu")
    return {"dropout": config.get("summary_last_dropout", 0.1), "activation": activation}


class _Electra(Family):
    def names(self, model):
        """As of `Family`; smaller embeddings have a projection."""
        named, main = super().names(model), self.main_layer(model)
        if hasattr(main, "embeddings_projection"):
            kernel, bias = main.embeddings_projection.kernel, main.embeddings_projection.bias
            start = f"{self.prefix_name}.embeddings_project"
            named += [(kernel, f"{start}.weight", True), (bias, f"{start}.bias", False)]
        return named


_ELECTRA = _Electra(
    model_type="electra",
    backbone=keras_hub.models.ElectraBackbone,
    arguments=_electra_arguments,
    tasks={"classification": FirstTokenClassifier},
    prefix_name="electra",
    heads={
        "classification": {"pooled_dense": "classifier.dense", "output_dense": "classifier.out_proj"},
        "multiple-choice": {"pooled_dense": "sequence_summary.summary", "output_dense": "classifier"},
    },
    embeddings=BERT_EMBEDDINGS,
    head_activation=lambda config: "gelu",
    choice_arguments=_electra_choice_arguments,
)


# DeBERTa-v3 (He et al., 2021), and what of DeBERTa-v2 computes the same


_DEBERTA_EPSILON = 1e-7


class AdapterDisentangledEncoder(AdapterBlock, disentangled_encoder()):
    """KerasHub's DisentangledAttentionEncoder with sites."""

    original = disentangled_encoder()

    def call(self, inputs, rel_embeddings, padding_mask=None, attention_mask=None):
        mask = joined_mask(padding_mask, attention_mask)
        return self.finish(part(self, "attention")(inputs, rel_embeddings=rel_embeddings, attention_mask=mask), inputs)


def _words(value):
    """What a setting of `config.json` lists, which may be a string such as `"p2c|c2p"`."""
    return {word.strip() for word in (value.lower().split("|") if isinstance(value, str) else value or ())}


def _check_deberta(config):
    """Raise InputError for a setting that KerasHub's class cannot compute."""
    size, positions = config["hidden_size"], config["max_position_embeddings"]
    of_head = size // config["num_attention_heads"]
    # What transformers takes where the file has none, whether KerasHub computes a value, and which values these are.
    for name, usual, computes, computed in (
        ("relative_attention", False, bool, "True"),
        ("position_buckets", -1, lambda buckets: buckets > 0, "a number above 0"),
        ("max_relative_positions", -1, lambda most: most in (-1, 0, positions), f"-1 or {positions}"),
        ("pos_att_type", None, lambda kinds: _words(kinds) == {"p2c", "c2p"}, "'p2c|c2p'"),
        ("share_att_key", False, bool, "True"),
        ("norm_rel_ebd", "none", lambda norms: "layer_norm" in _words(norms), "'layer_norm'"),
        ("position_biased_input", True, lambda biased: not biased, "False"),
        ("type_vocab_size", 0, lambda types: types == 0, "0"),
        ("conv_kernel_size", 0, lambda width: width < 1, "0"),
        ("embedding_size", size, lambda width: width == size, f"{size}"),
        ("attention_head_size", of_head, lambda width: width == of_head, f"{of_head}"),
    ):
        value = config.get(name, usual)
        if not computes(value):
            raise refused_setting("KerasHub's DebertaV3Backbone", name, value, computed)


def _deberta_arguments(config):
    _check_deberta(config)
    return {**encoder_arguments(config), "bucket_size": config["position_buckets"]}


def _deberta_head_arguments(config, backbone):
    for name, usual in {
        "pooler_hidden_act": "gelu", "pooler_hidden_size": backbone.hidden_dim, "cls_dropout": backbone.dropout
    }.items():  # fmt: skip
        value = config.get(name)
        if value is not None and one_name(value) != usual:
            raise refused_setting("KerasHub's DebertaV3TextClassifier", name, value, shown(usual))
    return {"dropout": config.get("pooler_dropout", 0.0)}


def _deberta_choice_arguments(config, backbone):
    if (config.get("pooler_hidden_size") or backbone.hidden_dim) != backbone.hidden_dim:
        raise refused_setting("this head", "pooler_hidden_size", config["pooler_hidden_size"], backbone.hidden_dim)
    return {
        "dropout": backbone.dropout,
        "activation": known_activation(config, "pooler_hidden_act", "gelu"),
        "pooled_dropout": config.get("pooler_dropout", 0.0),
    }


def _prepare_deberta(backbone, config):
    """The LayerNorm of the relative embeddings has the epsilon of the others."""
    norm, epsilon = backbone.relative_embeddings.layer_norm, config.get("layer_norm_eps", _DEBERTA_EPSILON)
    backbone.relative_embeddings.layer_norm_epsilon = norm.epsilon = epsilon


_DEBERTA_V2 = Family(
    model_type="deberta-v2",
    backbone=keras_hub.models.DebertaV3Backbone,
    arguments=_deberta_arguments,
    tasks=kerashub_tasks("DebertaV3"),
    prefix_name="deberta",
    heads=dict.fromkeys(
        ("classification", "multiple-choice"), {"pooled_dense": "pooler.dense", "output_dense": "classifier"}
    ),
    embeddings={
        "token_embedding": "embeddings.word_embeddings",
        "embeddings_layer_norm": "embeddings.LayerNorm",
        "relative_embeddings.rel_embeddings": "encoder.rel_embeddings",
        "relative_embeddings.layer_norm": "encoder.LayerNorm",
    },
    block={**BERT_BLOCK, **{place: f"attention.self.{place}_proj" for place in ("query", "key", "value")}},
    block_class=AdapterDisentangledEncoder,
    tokenizer="sentencepiece:deberta-v2",
    epsilon=_DEBERTA_EPSILON,
    head_activation=lambda config: config.pooler_hidden_act or "gelu",
    # Queries and keys are made of the embeddings of distances too, which all rows share.
    row_places=lambda config: [place for place in DENSE_PLACES if place not in ("query", "key")],
    head_arguments=_deberta_head_arguments,
    choice_arguments=_deberta_choice_arguments,
    prepare=_prepare_deberta,
)


FAMILIES = {
    family.model_type: family
    for family in (
        _BERT,
        _DISTILBERT,
        _roberta("roberta", "Roberta", "byte-level-bpe"),
        _roberta("xlm-roberta", "XLMRoberta", "sentencepiece:xlm-roberta"),
        _roberta("camembert", "Roberta", "sentencepiece:camembert"),
        _ALBERT,
        _ELECTRA,
        _DEBERTA_V2,
    )
}


def family_of(model):
    """The Family of a model; raises InputError if there is none."""
    backbone = backbone_of(model)
    # The most special class first: XLM-R's is made of RoBERTa's.
    known = [one for kind in type(backbone).__mro__ for one in FAMILIES.values() if one.backbone is kind]
    if not known:
        names = sorted({one.backbone.__name__ for one in FAMILIES.values()})
        raise InputError(
            f"{{model}} is not supported: tf_adapters has adapters for {', '.join(names)}.",
            model=type(backbone).__name__,
        )
    family = FAMILIES.get(getattr(backbone, "_tf_adapters_model_type", None), known[0])
    kind = family.block_class.original
    # Of the kinds of blocks one alone can have its LayerNorms elsewhere.
    if any(not isinstance(one, kind) or getattr(one, "normalize_first", False) for one in family.blocks(model)):
        raise InputError(
            f"{{model}} has blocks that are no {kind.__name__} with its LayerNorms behind.",
            model=type(backbone).__name__,
        )
    return family
