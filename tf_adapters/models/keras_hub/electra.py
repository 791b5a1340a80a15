"""ELECTRA (Clark et al., 2020) in KerasHub, which has no head of classification for it."""

import keras_hub

from tf_adapters.models.keras_hub.bert import arguments
from tf_adapters.models.keras_hub.family import BERT_EMBEDDINGS, Family


def _arguments(config):
    renamed = arguments(config)
    renamed["vocab_size"] = renamed.pop("vocabulary_size")
    return {**renamed, "embedding_dim": config.get("embedding_size", config["hidden_size"])}


class _Electra(Family):
    def names(self, model):
        """As of `Family`; smaller embeddings have a projection."""
        named, main = super().names(model), self.main_layer(model)
        if hasattr(main, "embeddings_projection"):
            kernel, bias = main.embeddings_projection.kernel, main.embeddings_projection.bias
            start = f"{self.prefix_name}.embeddings_project"
            named += [(kernel, f"{start}.weight", True), (bias, f"{start}.bias", False)]
        return named


FAMILY = _Electra(
    model_type="electra",
    backbone=keras_hub.models.ElectraBackbone,
    arguments=_arguments,
    classifier=None,
    prefix_name="electra",
    embeddings=BERT_EMBEDDINGS,
)
