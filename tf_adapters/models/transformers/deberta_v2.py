"""DeBERTa-v2 and -v3 (He et al., 2021): where their adapters stand."""

import transformers
from transformers.models.deberta_v2.modeling_tf_deberta_v2 import (
    TFDebertaV2Layer,
    TFDebertaV2Output,
    TFDebertaV2SelfOutput,
    TFDebertaV2StableDropout,
)

from tf_adapters.models.transformers.bert_like import heads_of
from tf_adapters.models.transformers.family import BERT_DENSES, KERAS_DROPOUT, Family, encoder_parameters
from tf_adapters.models.transformers.site import AdapterBlock, AdapterSite


class TFDebertaV2AdapterSelfOutput(AdapterSite, TFDebertaV2SelfOutput):
    """TFDebertaV2SelfOutput with an adapter after the attention's projection."""


class TFDebertaV2AdapterOutput(AdapterSite, TFDebertaV2Output):
    """TFDebertaV2Output with an adapter after the second feed-forward layer."""


class TFDebertaV2AdapterLayer(AdapterBlock, TFDebertaV2Layer):
    """TFDebertaV2Layer whose output halves may hold adapters."""

    site_classes = {"attention": TFDebertaV2AdapterSelfOutput, "ffn": TFDebertaV2AdapterOutput}
    replaced_parts = ("dense_output",)


def _parameters(config):
    size, depth, others = config.hidden_size, config.num_hidden_layers, 0
    width = getattr(config, "embedding_size", size)
    embeddings = (
        config.vocab_size
        + config.type_vocab_size
        + (config.max_position_embeddings if config.position_biased_input else 0)
    )
    if width != size:
        # The LayerNorm stands behind the projection.
        others += width * size + 2 * (size - width)
    if config.relative_attention:
        most = config.max_relative_positions if config.max_relative_positions > 0 else config.max_position_embeddings
        buckets = getattr(config, "position_buckets", -1)
        others += 2 * (buckets if buckets > 0 else most) * size
        kinds = config.pos_att_type or ()
        if not getattr(config, "share_att_key", False):
            others += depth * (size + 1) * size * (("c2p" in kinds) + ("p2c" in kinds))
    if "layer_norm" in getattr(config, "norm_rel_ebd", "none"):
        others += 2 * size
    if getattr(config, "conv_kernel_size", 0) > 0:
        others += config.conv_kernel_size * size * size // getattr(config, "conv_groups", 1) + 3 * size
    return encoder_parameters(config, embeddings, others=others)


class _DebertaV2(Family):
    def beside_lowest(self, model):
        # A convolution, or None.
        return [(self.stack(model), "conv")]


FAMILY = _DebertaV2(
    model_type="deberta-v2",
    config_class=transformers.DebertaV2Config,
    block_class=TFDebertaV2AdapterLayer,
    heads=heads_of("TFDebertaV2"),
    denses={**BERT_DENSES, **{place: f"attention.self.{place}_proj" for place in ("query", "key", "value")}},
    dropouts={**KERAS_DROPOUT, TFDebertaV2StableDropout: "drop_prob"},
    head_activation=lambda config: config.pooler_hidden_act,
    tokenizer="deberta-v2-sentencepiece",
    config_keys={
        "embedding_size": 768,
        "pooler_hidden_size": 768,
        "position_buckets": -1,
        "norm_rel_ebd": "none",
        "share_att_key": False,
        "conv_kernel_size": 0,
        "conv_groups": 1,
        "conv_act": "tanh",
        "attention_head_size": 64,
        "cls_dropout": 0.0,
    },  # fmt: skip
    autograph=True,
    parameters=_parameters,
)
