"""BERT, and families whose transformers classes are BERT's under another name: where their adapters stand."""

import transformers
from transformers.models.bert import modeling_tf_bert
from transformers.models.camembert import modeling_tf_camembert
from transformers.models.electra import modeling_tf_electra
from transformers.models.roberta import modeling_tf_roberta
from transformers.models.xlm_roberta import modeling_tf_xlm_roberta

from tf_adapters.models.transformers.family import Family, encoder_parameters, heads_of
from tf_adapters.models.transformers.fast import FastBlock, FastEncoder, FastIntermediate, FastSelfAttention, FastSite
from tf_adapters.models.transformers.site import AdapterBlock, AdapterSite


def block_classes(module, prefix):
    """What a `Family` needs of blocks: a module's classes behind the mixins of sites and of fast parts.

    Args:
        module: a `modeling_tf_...` module of transformers.
        prefix: str, which the names of its classes begin with, such as `"TFRoberta"`.

    Returns: dict of `block_class`, `fast_block_class` and `fast_encoder_class`.
    """

    def make(name, mixin, original, **attributes):
        bases = (mixin, getattr(module, prefix + original))
        doc = f"{prefix}{original} behind {mixin.__name__}."
        return type(prefix + name, bases, {"__module__": __name__, "__doc__": doc, **attributes})

    sites, fast_sites = (
        {"attention": make(f"{kind}SelfOutput", mixin, "SelfOutput"), "ffn": make(f"{kind}Output", mixin, "Output")}
        for kind, mixin in (("Adapter", AdapterSite), ("Fast", FastSite))
    )
    return {
        "block_class": make("AdapterLayer", AdapterBlock, "Layer", site_classes=sites),
        "fast_block_class": make(
            "FastLayer",
            FastBlock,
            "Layer",
            site_classes=fast_sites,
            self_attention_class=make("FastSelfAttention", FastSelfAttention, "SelfAttention"),
            intermediate_class=make("FastIntermediate", FastIntermediate, "Intermediate"),
        ),
        "fast_encoder_class": make("FastEncoder", FastEncoder, "Encoder"),
    }


# BERT (Devlin et al., 2019)


BERT = Family(
    model_type="bert",
    config_class=transformers.BertConfig,
    heads=heads_of("TFBert", next_sentence=transformers.TFBertForNextSentencePrediction),
    first_token_heads=("classification", "multiple-choice", "next-sentence"),
    pooled_classifier=True,
    classifier=("classifier",),
    parameters=lambda config: encoder_parameters(config, others=(config.hidden_size + 1) * config.hidden_size),
    **block_classes(modeling_tf_bert, "TFBert"),
)


# RoBERTa (Liu et al., 2019), XLM-R (Conneau et al., 2020), which has a hundred languages, and CamemBERT (Martin et al.,
# 2020), which is French


def _roberta(model_type, name, module, tokenizer, **others):
    """A Family of RoBERTa's shape; `name` is what transformers' classes have behind TF."""
    return Family(
        model_type=model_type,
        config_class=getattr(transformers, f"{name}Config"),
        heads=heads_of(f"TF{name}"),
        first_token_heads=("classification", "multiple-choice"),
        tokenizer=tokenizer,
        # Positions count from behind that of padding.
        first_position=lambda config: config.pad_token_id + 1,
        # No head but `none` and `multiple-choice` has a pooler.
        parameters=encoder_parameters,
        **block_classes(module, f"TF{name}"),
        **others,
    )


ROBERTA = _roberta("roberta", "Roberta", modeling_tf_roberta, "byte-level-bpe")
XLM_ROBERTA = _roberta("xlm-roberta", "XLMRoberta", modeling_tf_xlm_roberta, "sentencepiece:xlm-roberta")
CAMEMBERT = _roberta("camembert", "Camembert", modeling_tf_camembert, "sentencepiece:camembert", on_adapterhub=False)


# ELECTRA (Clark et al., 2020), the discriminator


def _electra_parameters(config):
    width, size = config.embedding_size, config.hidden_size
    return encoder_parameters(config, others=0 if width == size else (width + 1) * size)


ELECTRA = Family(
    model_type="electra",
    config_class=transformers.ElectraConfig,
    heads=heads_of("TFElectra", pretraining=transformers.TFElectraForPreTraining),
    first_token_heads=("classification",),
    head_activation=lambda config: "gelu",
    parameters=_electra_parameters,
    **block_classes(modeling_tf_electra, "TFElectra"),
)
