"""XLM-R (Conneau et al., 2020), RoBERTa over a hundred languages: where its adapters stand."""

import transformers
from transformers.models.xlm_roberta import modeling_tf_xlm_roberta

from tf_adapters.models.transformers.bert_like import block_classes, heads_of
from tf_adapters.models.transformers.family import Family
from tf_adapters.models.transformers.roberta import first_position, roberta_parameters

FAMILY = Family(
    model_type="xlm-roberta",
    config_class=transformers.XLMRobertaConfig,
    heads=heads_of("TFXLMRoberta"),
    first_token_heads=("classification", "multiple-choice"),
    tokenizer="xlm-roberta-sentencepiece",
    first_position=first_position,
    parameters=roberta_parameters,
    **block_classes(modeling_tf_xlm_roberta, "TFXLMRoberta"),
)
