"""DistilBERT (Sanh et al., 2019) in KerasHub."""

import keras_hub

from tf_adapters.models.keras_hub.family import Family, kerashub_tasks


def _arguments(config):
    return {
        "vocabulary_size": config["vocab_size"],
        "num_layers": config["n_layers"],
        "num_heads": config["n_heads"],
        "hidden_dim": config["dim"],
        "intermediate_dim": config["hidden_dim"],
        "dropout": config.get("dropout", 0.1),
        "max_sequence_length": config["max_position_embeddings"],
    }


_HEAD = {"pooled_dense": "pre_classifier", "output_dense": "classifier"}

FAMILY = Family(
    model_type="distilbert",
    backbone=keras_hub.models.DistilBertBackbone,
    arguments=_arguments,
    tasks=kerashub_tasks("DistilBert"),
    prefix_name="distilbert",
    heads={
        "classification": _HEAD,
        "multiple-choice": _HEAD,
        "masked-lm": {"dense": "vocab_transform", "norm": "vocab_layer_norm", "bias": "vocab_projector"},
    },
    embeddings={
        "embeddings.token_embedding": "embeddings.word_embeddings",
        "embeddings.position_embedding": "embeddings.position_embeddings",
        "embeddings_layer_norm": "embeddings.LayerNorm",
    },
    block={
        "query": "attention.q_lin", "key": "attention.k_lin", "value": "attention.v_lin",
        "attention_output": "attention.out_lin", "attention_norm": "sa_layer_norm", "intermediate": "ffn.lin1",
        "output": "ffn.lin2", "ffn_norm": "output_layer_norm",
    },
    block_name=lambda backbone: [f"transformer.layer.{index}" for index in range(backbone.num_layers)],
    choice_arguments=lambda config, backbone: {
        "dropout": config.get("seq_classif_dropout", 0.2), "activation": "relu",
    },
)  # fmt: skip
