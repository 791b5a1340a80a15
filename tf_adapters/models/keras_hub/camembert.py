"""CamemBERT (Martin et al., 2020) in KerasHub, by the classes of RoBERTa."""

import keras_hub

from tf_adapters.models.keras_hub.roberta import family

FAMILY = family(
    "camembert", keras_hub.models.RobertaBackbone, keras_hub.models.RobertaTextClassifier, "camembert-sentencepiece"
)
