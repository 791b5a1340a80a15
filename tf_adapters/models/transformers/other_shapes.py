"""Families whose blocks have another shape than BERT's: where their adapters stand."""

import types

import tensorflow as tf
import transformers
from transformers.models.albert.modeling_tf_albert import TFAlbertAttention, TFAlbertLayer
from transformers.models.deberta_v2.modeling_tf_deberta_v2 import (
    TFDebertaV2Layer,
    TFDebertaV2Output,
    TFDebertaV2SelfOutput,
    TFDebertaV2StableDropout,
)
from transformers.models.distilbert.modeling_tf_distilbert import TFTransformerBlock
from transformers.models.mpnet.modeling_tf_mpnet import TFMPNetAttention, TFMPNetLayer, TFMPNetOutput
from transformers.tf_utils import stable_softmax

from tf_adapters.config import DENSE_PLACES
from tf_adapters.errors import InputError
from tf_adapters.models.transformers.family import KERAS_DROPOUT, Family, denses_of, encoder_parameters, heads_of
from tf_adapters.models.transformers.site import AdaptedBlock, AdapterBlock, AdapterSite, NormSite, adopted

# DistilBERT (Sanh et al., 2019)


class TFDistilBertAdapterBlock(AdaptedBlock, TFTransformerBlock):
    """TFTransformerBlock whose sub-layers may be followed by adapters."""

    @classmethod
    def adopt(cls, original):
        block = adopted(cls, original, "attention", "sa_layer_norm", "ffn", "output_layer_norm")
        block.attention_site = NormSite.adopt(block.sa_layer_norm, "attention_site")
        block.ffn_site = NormSite.adopt(block.output_layer_norm, "ffn_site")
        return block

    @property
    def sites(self):
        return {"attention": self.attention_site, "ffn": self.ffn_site}

    def call(self, x, attn_mask, head_mask, output_attentions, training=False):
        attended, *weights = self.attention(x, x, x, attn_mask, head_mask, output_attentions, training=training)
        hidden_states = self.attention_site(attended, x, training=training)
        outputs = self.ffn_site(self.ffn(hidden_states, training=training), hidden_states, training=training)
        return (*weights, outputs)


class _DistilBert(Family):
    def stack(self, model):
        return self.main_layer(model).transformer

    def intermediate_size(self, config):
        return config.hidden_dim

    def block_layer_norms(self, block):
        return [block.sa_layer_norm, block.output_layer_norm]

    def adapterhub_site(self, model, block, place):
        name = {"attention": "attention_adapters", "ffn": "output_adapters"}[place]
        return f"{model.base_model_prefix}.transformer.layer.{block}.{name}"


def _distilbert_parameters(config):
    under_berts_names = types.SimpleNamespace(
        hidden_size=config.dim, intermediate_size=config.hidden_dim, num_hidden_layers=config.n_layers
    )
    return encoder_parameters(under_berts_names, config.vocab_size + config.max_position_embeddings)


DISTILBERT = _DistilBert(
    model_type="distilbert",
    config_class=transformers.DistilBertConfig,
    block_class=TFDistilBertAdapterBlock,
    heads=heads_of("TFDistilBert"),
    head_activation=lambda config: "relu",
    classifier=("pre_classifier", "classifier"),
    parameters=_distilbert_parameters,
    token_types=False,
    denses=(*(f"attention.{name}_lin" for name in ("q", "k", "v", "out")), "ffn.lin1", "ffn.lin2"),
)


# MPNet (Song et al., 2020)


class TFMPNetAdapterAttention(AdapterSite, TFMPNetAttention):
    """TFMPNetAttention, which ends with dropout and LayerNorm itself, with an adapter between them."""

    @classmethod
    def adopt(cls, original):
        layer = adopted(cls, original, "attn", "LayerNorm", "dropout")
        layer.make_site()
        return layer

    def call(self, input_tensor, attention_mask, head_mask, output_attentions, position_bias=None, training=False):
        attended, *weights = self.attn(
            input_tensor, attention_mask, head_mask, output_attentions, position_bias=position_bias, training=training
        )
        return (self.finish(self.dropout(attended, training=training), input_tensor, training), *weights)


class TFMPNetAdapterOutput(AdapterSite, TFMPNetOutput):
    """TFMPNetOutput with an adapter after the second feed-forward layer."""


class TFMPNetAdapterLayer(AdaptedBlock, TFMPNetLayer):
    """TFMPNetLayer whose sub-layers may be followed by adapters."""

    @classmethod
    def adopt(cls, original):
        block = cls(original.out.config, name=original.name, dtype=original.dtype_policy)
        block.attention = TFMPNetAdapterAttention.adopt(original.attention)
        block.intermediate = original.intermediate
        block.out = TFMPNetAdapterOutput.adopt(original.out)
        block.built = True
        return block

    @property
    def sites(self):
        return {"attention": self.attention, "ffn": self.out}


class _MPNet(Family):
    def block_layer_norms(self, block):
        return [block.attention.LayerNorm, block.out.LayerNorm]


def _mpnet_parameters(config):
    size = config.hidden_size
    others = (size + 1) * size + config.relative_attention_num_buckets * config.num_attention_heads
    return encoder_parameters(config, config.vocab_size + config.max_position_embeddings, others=others)


MPNET = _MPNet(
    model_type="mpnet",
    config_class=transformers.MPNetConfig,
    block_class=TFMPNetAdapterLayer,
    heads=heads_of("TFMPNet"),
    on_adapterhub=False,
    denses=(*(f"attention.attn.{name}" for name in "qkvo"), "intermediate.dense", "out.dense"),
    parameters=_mpnet_parameters,
    token_types=False,
    tokenizer="wordpiece:mpnet",
    first_position=lambda config: config.pad_token_id + 1,
)


# DeBERTa-v2 and -v3 (He et al., 2021)


class TFDebertaV2AdapterSelfOutput(AdapterSite, TFDebertaV2SelfOutput):
    """TFDebertaV2SelfOutput with an adapter after the attention's projection."""


class TFDebertaV2AdapterOutput(AdapterSite, TFDebertaV2Output):
    """TFDebertaV2Output with an adapter after the second feed-forward layer."""


class TFDebertaV2AdapterLayer(AdapterBlock, TFDebertaV2Layer):
    """TFDebertaV2Layer whose output halves may hold adapters."""

    site_classes = {"attention": TFDebertaV2AdapterSelfOutput, "ffn": TFDebertaV2AdapterOutput}
    replaced_parts = ("dense_output",)


def _deberta_parameters(config):
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


def _deberta_row_places(config):
    # With one matrix for both, queries and keys are made of the embeddings of distances too, which all rows share.
    shared = getattr(config, "share_att_key", False) and config.relative_attention
    return [place for place in DENSE_PLACES if not (shared and place in ("query", "key"))]


class _DebertaV2(Family):
    def beside_lowest(self, model):
        # A convolution, or None.
        return [(self.stack(model), "conv")]


DEBERTA_V2 = _DebertaV2(
    model_type="deberta-v2",
    config_class=transformers.DebertaV2Config,
    block_class=TFDebertaV2AdapterLayer,
    heads=heads_of("TFDebertaV2"),
    denses=denses_of("attention.self.{}_proj"),
    dropouts={**KERAS_DROPOUT, TFDebertaV2StableDropout: "drop_prob"},
    head_activation=lambda config: config.pooler_hidden_act,
    classifier=("pooler.dense", "classifier"),
    row_places=_deberta_row_places,
    tokenizer="sentencepiece:deberta-v2",
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
    parameters=_deberta_parameters,
)


# ALBERT (Lan et al., 2020). Its blocks are shared over the depth: usually all positions use one block. An adapter
# belongs to a block, and so acts at every depth where the block does; `AdapterConfig.blocks` counts the blocks that
# have weights of their own.


class TFAlbertAdapterAttention(TFAlbertAttention):
    """TFAlbertAttention, which ends with the LayerNorm of a sum, with an adapter before that sum."""

    @classmethod
    def adopt(cls, original):
        parts = ("query", "key", "value", "dense", "LayerNorm", "attention_dropout", "output_dropout")
        layer = adopted(cls, original, *parts)
        layer.site = NormSite.adopt(original.LayerNorm, "site")
        return layer

    def call(self, input_tensor, attention_mask, head_mask, output_attentions, training=False):
        batch = tf.shape(input_tensor)[0]
        query, key, value = (
            self.transpose_for_scores(layer(inputs=input_tensor), batch) for layer in (self.query, self.key, self.value)
        )
        scores = tf.matmul(query, key, transpose_b=True) / tf.cast(self.sqrt_att_head_size, query.dtype)
        if attention_mask is not None:
            scores += attention_mask
        weights = self.attention_dropout(inputs=stable_softmax(logits=scores, axis=-1), training=training)
        if head_mask is not None:
            weights *= head_mask
        context = tf.transpose(tf.matmul(weights, value), [0, 2, 1, 3])
        attended = self.dense(inputs=tf.reshape(context, (batch, -1, self.all_head_size)))
        attended = self.output_dropout(inputs=attended, training=training)
        outputs = self.site(attended, input_tensor, training=training)
        return (outputs, weights) if output_attentions else (outputs,)


class TFAlbertAdapterLayer(AdaptedBlock, TFAlbertLayer):
    """TFAlbertLayer whose sub-layers may be followed by adapters."""

    @classmethod
    def adopt(cls, original):
        block = cls(original.config, name=original.name, dtype=original.dtype_policy)
        block.attention = TFAlbertAdapterAttention.adopt(original.attention)
        for part in ("ffn", "ffn_output", "full_layer_layer_norm", "dropout"):
            setattr(block, part, getattr(original, part))
        block.ffn_site = NormSite.adopt(original.full_layer_layer_norm, "ffn_site")
        block.built = True
        return block

    @property
    def sites(self):
        return {"attention": self.attention.site, "ffn": self.ffn_site}

    def call(self, hidden_states, attention_mask, head_mask, output_attentions, training=False):
        hidden_states, *weights = self.attention(
            hidden_states, attention_mask, head_mask, output_attentions, training=training
        )
        outputs = self.ffn_output(inputs=self.activation(self.ffn(inputs=hidden_states)))
        outputs = self.dropout(inputs=outputs, training=training)
        return (self.ffn_site(outputs, hidden_states, training=training), *weights)


class _Albert(Family):
    def stack(self, model):
        raise InputError("ALBERT's blocks are shared over the depth, so that there are no lower and upper ones.")

    def blocks(self, model):
        return [block for group in self.main_layer(model).encoder.albert_layer_groups for block in group.albert_layers]

    def set_blocks(self, model, blocks):
        blocks = iter(blocks)
        for group in self.main_layer(model).encoder.albert_layer_groups:
            group.albert_layers = [next(blocks) for _ in group.albert_layers]

    def depth(self, config):
        return config.num_hidden_groups * config.inner_group_num

    def block_layer_norms(self, block):
        return [block.attention.LayerNorm, block.full_layer_layer_norm]

    def adapterhub_site(self, model, block, place):
        group, inner = divmod(block, model.config.inner_group_num)
        name = {"attention": "attention.attention_adapters", "ffn": "output_adapters"}[place]
        return f"{model.base_model_prefix}.encoder.albert_layer_groups.{group}.albert_layers.{inner}.{name}"


def _albert_parameters(config):
    others = (config.embedding_size + 1 + config.hidden_size + 1) * config.hidden_size
    return encoder_parameters(config, depth=config.num_hidden_groups * config.inner_group_num, others=others)


ALBERT = _Albert(
    model_type="albert",
    config_class=transformers.AlbertConfig,
    block_class=TFAlbertAdapterLayer,
    heads=heads_of("TFAlbert", pretraining=transformers.TFAlbertForPreTraining),
    pooled_classifier=True,
    classifier=("classifier",),
    adapterhub_attention=False,
    denses=(*(f"attention.{name}" for name in ("query", "key", "value", "dense")), "ffn", "ffn_output"),
    tokenizer="sentencepiece:albert",
    parameters=_albert_parameters,
)
