"""ALBERT (Lan et al., 2020) in KerasHub: few blocks, each computed several times."""

import keras_hub

from tf_adapters.models.keras_hub.bert import arguments
from tf_adapters.models.keras_hub.family import BERT_EMBEDDINGS, Family, kerashub_tasks


def _arguments(config):
    return {
        **arguments(config),
        "dropout": config.get("hidden_dropout_prob", 0.0),
        "embedding_dim": config["embedding_size"],
        "num_groups": config.get("num_hidden_groups", 1),
        "num_inner_repetitions": config.get("inner_group_num", 1),
    }


def _block_names(backbone):
    inner = backbone.num_inner_repetitions
    return [
        f"encoder.albert_layer_groups.{group}.albert_layers.{index}"
        for group in range(backbone.num_groups)
        for index in range(inner)
    ]


FAMILY = Family(
    model_type="albert",
    backbone=keras_hub.models.AlbertBackbone,
    arguments=_arguments,
    tasks=kerashub_tasks("Albert"),
    prefix_name="albert",
    embeddings={**BERT_EMBEDDINGS, "embeddings_projection": "encoder.embedding_hidden_mapping_in"},
    block={
        **{place: f"attention.{place}" for place in ("query", "key", "value")},
        "attention_output": "attention.dense", "attention_norm": "attention.LayerNorm", "intermediate": "ffn",
        "output": "ffn_output", "ffn_norm": "full_layer_layer_norm",
    },
    block_name=_block_names,
    heads={
        "masked-lm": {"dense": "predictions.dense", "norm": "predictions.LayerNorm", "bias": "predictions.decoder"}
    },
    pooler_name="pooler",
    tokenizer="albert-sentencepiece",
)  # fmt: skip
