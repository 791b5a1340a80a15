"""BERT (Devlin et al., 2019) in KerasHub."""

import keras_hub

from tf_adapters.models.keras_hub.family import Family, encoder_arguments, kerashub_tasks


def arguments(config):
    """KerasHub's arguments of an encoder of BERT's shape, from the dict of a `config.json`."""
    return {**encoder_arguments(config), "num_segments": config["type_vocab_size"]}


FAMILY = Family(
    model_type="bert",
    backbone=keras_hub.models.BertBackbone,
    arguments=arguments,
    tasks=kerashub_tasks("Bert"),
    prefix_name="bert",
    pooler_name="pooler.dense",
)
