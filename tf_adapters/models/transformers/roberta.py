"""RoBERTa (Liu et al., 2019): where its adapters stand."""

import transformers
from transformers.models.roberta import modeling_tf_roberta

from tf_adapters.models.transformers.bert_like import block_classes, heads_of
from tf_adapters.models.transformers.family import Family, encoder_parameters


def roberta_parameters(config):
    """Numbers of parameters, as a `Family` has them: no head but `none` and `multiple-choice` has a pooler."""
    return encoder_parameters(config, config.vocab_size + config.max_position_embeddings + config.type_vocab_size)


def first_position(config):
    """Positions count from behind that of padding."""
    return config.pad_token_id + 1


FAMILY = Family(
    model_type="roberta",
    config_class=transformers.RobertaConfig,
    heads=heads_of("TFRoberta"),
    first_token_heads=("classification", "multiple-choice"),
    tokenizer="byte-level-bpe",
    first_position=first_position,
    parameters=roberta_parameters,
    **block_classes(modeling_tf_roberta, "TFRoberta"),
)
