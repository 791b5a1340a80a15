"""BERT (Devlin et al., 2019) in KerasHub."""

import keras_hub

from tf_adapters.models.keras_hub.family import Family


def arguments(config):
    """KerasHub's arguments of an encoder of BERT's shape, from the dict of a `config.json`."""
    return {
        "vocabulary_size": config["vocab_size"],
        "num_layers": config["num_hidden_layers"],
        "num_heads": config["num_attention_heads"],
        "hidden_dim": config["hidden_size"],
        "intermediate_dim": config["intermediate_size"],
        "dropout": config.get("hidden_dropout_prob", 0.1),
        "max_sequence_length": config["max_position_embeddings"],
        "num_segments": config["type_vocab_size"],
    }


FAMILY = Family(
    model_type="bert",
    backbone=keras_hub.models.BertBackbone,
    arguments=arguments,
    classifier=keras_hub.models.BertTextClassifier,
    prefix_name="bert",
    pooler_name="pooler.dense",
)
