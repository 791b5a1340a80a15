"""XLM-R (Conneau et al., 2020) in KerasHub."""

from tf_adapters.models.keras_hub.roberta import family

FAMILY = family("xlm-roberta", "XLMRoberta", "xlm-roberta-sentencepiece")
