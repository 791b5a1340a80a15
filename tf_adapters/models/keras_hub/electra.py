"""ELECTRA (Clark et al., 2020) in KerasHub, which has no heads for it."""

import keras_hub

from tf_adapters.errors import shown
from tf_adapters.models.keras_hub.bert import arguments
from tf_adapters.models.keras_hub.family import BERT_EMBEDDINGS, Family, known_activation, refused_setting


def _arguments(config):
    renamed = arguments(config)
    renamed["vocab_size"] = renamed.pop("vocabulary_size")
    return {**renamed, "embedding_dim": config.get("embedding_size", config["hidden_size"])}


def _choice_arguments(config, backbone):
    for name, computed in {"summary_type": "first", "summary_use_proj": True}.items():
        if config.get(name, computed) != computed:
            raise refused_setting("this head", name, config[name], shown(computed))
    activation = known_activation(config, "summary_activation", "gelu")
    return {"dropout": config.get("summary_last_dropout", 0.1), "activation": activation}


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
    tasks={},
    prefix_name="electra",
    heads={"multiple-choice": {"pooled_dense": "sequence_summary.summary", "output_dense": "classifier"}},
    embeddings=BERT_EMBEDDINGS,
    choice_arguments=_choice_arguments,
)
