"""DistilBERT (Sanh et al., 2019): where its adapters stand."""

import transformers
from transformers.models.distilbert.modeling_tf_distilbert import TFTransformerBlock

from tf_adapters.models.transformers.bert_like import heads_of
from tf_adapters.models.transformers.family import Family, encoder_parameters
from tf_adapters.models.transformers.site import AdaptedBlock, NormSite


class TFDistilBertAdapterBlock(AdaptedBlock, TFTransformerBlock):
    """TFTransformerBlock whose sub-layers may be followed by adapters."""

    @classmethod
    def adopt(cls, original):
        block = cls(original.config, name=original.name, dtype=original.dtype_policy)
        for part in ("attention", "sa_layer_norm", "ffn", "output_layer_norm"):
            setattr(block, part, getattr(original, part))
        block.attention_site = NormSite.adopt(block.sa_layer_norm, "attention_site")
        block.ffn_site = NormSite.adopt(block.output_layer_norm, "ffn_site")
        block.built = True
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


def _parameters(config):
    return encoder_parameters(_Sizes(config), config.vocab_size + config.max_position_embeddings)


class _Sizes:
    """The configuration under BERT's names."""

    def __init__(self, config):
        self.hidden_size, self.intermediate_size, self.num_hidden_layers = (
            config.dim,
            config.hidden_dim,
            config.n_layers,
        )


FAMILY = _DistilBert(
    model_type="distilbert",
    config_class=transformers.DistilBertConfig,
    block_class=TFDistilBertAdapterBlock,
    heads=heads_of("TFDistilBert"),
    head_activation=lambda config: "relu",
    parameters=_parameters,
    token_types=False,
    denses={
        "query": "attention.q_lin",
        "key": "attention.k_lin",
        "value": "attention.v_lin",
        "attention_output": "attention.out_lin",
        "intermediate": "ffn.lin1",
        "output": "ffn.lin2",
    },
)
