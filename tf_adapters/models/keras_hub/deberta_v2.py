"""DeBERTa-v3 (He et al., 2021) in KerasHub, and what of DeBERTa-v2 computes the same."""

import keras_hub

from tf_adapters._keras3_internals import disentangled_encoder, part
from tf_adapters.activations import one_name
from tf_adapters.errors import shown
from tf_adapters.models.keras_hub.family import (
    BERT_BLOCK,
    Family,
    encoder_arguments,
    kerashub_tasks,
    known_activation,
    refused_setting,
)
from tf_adapters.models.keras_hub.site import AdapterBlock, joined_mask

EPSILON = 1e-7


class AdapterDisentangledEncoder(AdapterBlock, disentangled_encoder()):
    """KerasHub's DisentangledAttentionEncoder with sites."""

    original = disentangled_encoder()

    def call(self, inputs, rel_embeddings, padding_mask=None, attention_mask=None):
        mask = joined_mask(padding_mask, attention_mask)
        return self.finish(part(self, "attention")(inputs, rel_embeddings=rel_embeddings, attention_mask=mask), inputs)


def _words(value):
    """What a setting of `config.json` lists, which may be a string such as `"p2c|c2p"`."""
    return {word.strip() for word in (value.lower().split("|") if isinstance(value, str) else value or ())}


def _check(config):
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


def _arguments(config):
    _check(config)
    return {**encoder_arguments(config), "bucket_size": config["position_buckets"]}


def _head_arguments(config, backbone):
    for name, usual in {
        "pooler_hidden_act": "gelu", "pooler_hidden_size": backbone.hidden_dim, "cls_dropout": backbone.dropout
    }.items():  # fmt: skip
        value = config.get(name)
        if value is not None and one_name(value) != usual:
            raise refused_setting("KerasHub's DebertaV3TextClassifier", name, value, shown(usual))
    return {"dropout": config.get("pooler_dropout", 0.0)}


def _choice_arguments(config, backbone):
    if (config.get("pooler_hidden_size") or backbone.hidden_dim) != backbone.hidden_dim:
        raise refused_setting("this head", "pooler_hidden_size", config["pooler_hidden_size"], backbone.hidden_dim)
    return {
        "dropout": backbone.dropout,
        "activation": known_activation(config, "pooler_hidden_act", "gelu"),
        "pooled_dropout": config.get("pooler_dropout", 0.0),
    }


def _prepare(backbone, config):
    """The LayerNorm of the relative embeddings has the epsilon of the others."""
    norm, epsilon = backbone.relative_embeddings.layer_norm, config.get("layer_norm_eps", EPSILON)
    backbone.relative_embeddings.layer_norm_epsilon = norm.epsilon = epsilon


FAMILY = Family(
    model_type="deberta-v2",
    backbone=keras_hub.models.DebertaV3Backbone,
    arguments=_arguments,
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
    tokenizer="deberta-v2-sentencepiece",
    epsilon=EPSILON,
    head_arguments=_head_arguments,
    choice_arguments=_choice_arguments,
    prepare=_prepare,
)
