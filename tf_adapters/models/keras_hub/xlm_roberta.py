"""XLM-R (Conneau et al., 2020) in KerasHub."""

import keras_hub

from tf_adapters.models.keras_hub.roberta import family

FAMILY = family(
    "xlm-roberta", keras_hub.models.XLMRobertaBackbone, keras_hub.models.XLMRobertaTextClassifier,
    "xlm-roberta-sentencepiece",
)  # fmt: skip
