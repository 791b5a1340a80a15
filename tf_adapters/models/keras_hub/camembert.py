"""CamemBERT (Martin et al., 2020) in KerasHub, by the classes of RoBERTa."""

from tf_adapters.models.keras_hub.roberta import family

FAMILY = family("camembert", "Roberta", "camembert-sentencepiece")
