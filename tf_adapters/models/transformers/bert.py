"""BERT (Devlin et al., 2019): where its adapters stand."""

import transformers
from transformers.models.bert.modeling_tf_bert import (
    TFBertEncoder,
    TFBertIntermediate,
    TFBertLayer,
    TFBertOutput,
    TFBertSelfAttention,
    TFBertSelfOutput,
)

from tf_adapters.models.transformers.family import Family, encoder_parameters
from tf_adapters.models.transformers.fast import FastBlock, FastEncoder, FastIntermediate, FastSelfAttention, FastSite
from tf_adapters.models.transformers.site import AdapterBlock, AdapterSite


class TFBertAdapterSelfOutput(AdapterSite, TFBertSelfOutput):
    """TFBertSelfOutput with an adapter after the attention's projection."""


class TFBertAdapterOutput(AdapterSite, TFBertOutput):
    """TFBertOutput with an adapter after the second feed-forward layer."""


class TFBertAdapterLayer(AdapterBlock, TFBertLayer):
    """TFBertLayer whose output halves may hold adapters."""

    site_classes = {"attention": TFBertAdapterSelfOutput, "ffn": TFBertAdapterOutput}


class TFBertFastSelfAttention(FastSelfAttention, TFBertSelfAttention):
    """TFBertSelfAttention with one product for query, key and value."""


class TFBertFastIntermediate(FastIntermediate, TFBertIntermediate):
    """TFBertIntermediate whose activation keeps its derivative in training."""


class TFBertFastSelfOutput(FastSite, TFBertSelfOutput):
    """TFBertAdapterSelfOutput as one part."""


class TFBertFastOutput(FastSite, TFBertOutput):
    """TFBertAdapterOutput as one part."""


class TFBertFastLayer(FastBlock, TFBertLayer):
    """TFBertAdapterLayer of fast parts."""

    site_classes = {"attention": TFBertFastSelfOutput, "ffn": TFBertFastOutput}
    self_attention_class = TFBertFastSelfAttention
    intermediate_class = TFBertFastIntermediate


class TFBertFastEncoder(FastEncoder, TFBertEncoder):
    """TFBertEncoder of TFBertFastLayers."""


def _parameters(config):
    embeddings = config.vocab_size + config.max_position_embeddings + config.type_vocab_size
    return encoder_parameters(config, embeddings, others=(config.hidden_size + 1) * config.hidden_size)


FAMILY = Family(
    model_type="bert",
    config_class=transformers.BertConfig,
    block_class=TFBertAdapterLayer,
    fast_block_class=TFBertFastLayer,
    fast_encoder_class=TFBertFastEncoder,
    heads={
        "classification": transformers.TFBertForSequenceClassification,
        "token-classification": transformers.TFBertForTokenClassification,
        "question-answering": transformers.TFBertForQuestionAnswering,
        "multiple-choice": transformers.TFBertForMultipleChoice,
        "masked-lm": transformers.TFBertForMaskedLM,
        "next-sentence": transformers.TFBertForNextSentencePrediction,
        "none": transformers.TFBertModel,
    },
    first_token_heads=("classification", "multiple-choice", "next-sentence"),
    pooled_classifier=True,
    classifier=("classifier",),
    parameters=_parameters,
)
