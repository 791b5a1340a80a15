"""ALBERT (Lan et al., 2020): where its adapters stand.

Its blocks are shared over the depth: usually all positions use one block. An adapter belongs to a block, and so acts at
every depth where the block does; `AdapterConfig.blocks` counts the blocks that have weights of their own.
"""

import tensorflow as tf
import transformers
from transformers.models.albert.modeling_tf_albert import TFAlbertAttention, TFAlbertLayer
from transformers.tf_utils import stable_softmax

from tf_adapters.errors import InputError
from tf_adapters.models.transformers.bert_like import heads_of
from tf_adapters.models.transformers.family import Family, encoder_parameters
from tf_adapters.models.transformers.site import AdaptedBlock, NormSite


class TFAlbertAdapterAttention(TFAlbertAttention):
    """TFAlbertAttention, which ends with the LayerNorm of a sum, with an adapter before that sum."""

    @classmethod
    def adopt(cls, original):
        """A layer that owns the layers of the built `original`."""
        layer = cls(original.config, name=original.name, dtype=original.dtype_policy)
        for part in ("query", "key", "value", "dense", "LayerNorm", "attention_dropout", "output_dropout"):
            setattr(layer, part, getattr(original, part))
        layer.site = NormSite.adopt(original.LayerNorm, "site")
        layer.built = True
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


def _parameters(config):
    width, size = config.embedding_size, config.hidden_size
    embeddings = config.vocab_size + config.max_position_embeddings + config.type_vocab_size
    return encoder_parameters(
        config,
        embeddings,
        depth=config.num_hidden_groups * config.inner_group_num,
        others=(width + 1) * size + (size + 1) * size,
    )


FAMILY = _Albert(
    model_type="albert",
    config_class=transformers.AlbertConfig,
    block_class=TFAlbertAdapterLayer,
    heads=heads_of("TFAlbert", pretraining=transformers.TFAlbertForPreTraining),
    pooled_classifier=True,
    adapterhub_attention=False,
    denses={
        "query": "attention.query",
        "key": "attention.key",
        "value": "attention.value",
        "attention_output": "attention.dense",
        "intermediate": "ffn",
        "output": "ffn_output",
    },
    tokenizer="albert-sentencepiece",
    parameters=_parameters,
)
