"""CamemBERT (Martin et al., 2020), RoBERTa for French: where its adapters stand."""

import transformers
from transformers.models.camembert import modeling_tf_camembert

from tf_adapters.models.transformers.bert_like import block_classes, heads_of
from tf_adapters.models.transformers.family import Family
from tf_adapters.models.transformers.roberta import first_position, roberta_parameters

FAMILY = Family(
    model_type="camembert",
    config_class=transformers.CamembertConfig,
    heads=heads_of("TFCamembert"),
    first_token_heads=("classification", "multiple-choice"),
    tokenizer="camembert-sentencepiece",
    first_position=first_position,
    on_adapterhub=False,
    parameters=roberta_parameters,
    **block_classes(modeling_tf_camembert, "TFCamembert"),
)
