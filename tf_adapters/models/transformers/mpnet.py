"""MPNet (Song et al., 2020): where its adapters stand."""

import transformers
from transformers.models.mpnet.modeling_tf_mpnet import TFMPNetAttention, TFMPNetLayer, TFMPNetOutput

from tf_adapters.models.transformers.bert_like import heads_of
from tf_adapters.models.transformers.family import Family, encoder_parameters
from tf_adapters.models.transformers.site import AdaptedBlock, AdapterSite


class TFMPNetAdapterAttention(AdapterSite, TFMPNetAttention):
    """TFMPNetAttention, which ends with dropout and LayerNorm itself, with an adapter between them."""

    @classmethod
    def adopt(cls, original):
        layer = cls(original.config, name=original.name, dtype=original.dtype_policy)
        layer.attn, layer.LayerNorm, layer.dropout = original.attn, original.LayerNorm, original.dropout
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


def _parameters(config):
    size = config.hidden_size
    others = (size + 1) * size + config.relative_attention_num_buckets * config.num_attention_heads
    return encoder_parameters(config, config.vocab_size + config.max_position_embeddings, others=others)


FAMILY = _MPNet(
    model_type="mpnet",
    config_class=transformers.MPNetConfig,
    block_class=TFMPNetAdapterLayer,
    heads=heads_of("TFMPNet"),
    on_adapterhub=False,
    denses={
        "query": "attention.attn.q",
        "key": "attention.attn.k",
        "value": "attention.attn.v",
        "attention_output": "attention.attn.o",
        "intermediate": "intermediate.dense",
        "output": "out.dense",
    },
    parameters=_parameters,
    token_types=False,
    tokenizer="mpnet-wordpiece",
    first_position=lambda config: config.pad_token_id + 1,
)
