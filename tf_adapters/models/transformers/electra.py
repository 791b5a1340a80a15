"""ELECTRA (Clark et al., 2020), the discriminator: where its adapters stand."""

import transformers
from transformers.models.electra import modeling_tf_electra

from tf_adapters.models.transformers.bert_like import block_classes, heads_of
from tf_adapters.models.transformers.family import Family, encoder_parameters


def _parameters(config):
    width, size = config.embedding_size, config.hidden_size
    embeddings = config.vocab_size + config.max_position_embeddings + config.type_vocab_size
    return encoder_parameters(config, embeddings, others=0 if width == size else (width + 1) * size)


FAMILY = Family(
    model_type="electra",
    config_class=transformers.ElectraConfig,
    heads=heads_of("TFElectra", pretraining=transformers.TFElectraForPreTraining),
    first_token_heads=("classification",),
    head_activation=lambda config: "gelu",
    parameters=_parameters,
    **block_classes(modeling_tf_electra, "TFElectra"),
)
