"""RoBERTa (Liu et al., 2019) in KerasHub, with what KerasHub leaves out: the first rows of the positions, and the
embedding of token types, which every token gets."""

import keras
import keras_hub
from keras import ops

from tf_adapters._keras3_internals import unlocked
from tf_adapters.models.keras_hub.family import Family, encoder_arguments, kerashub_tasks
from tf_adapters.models.keras_hub.positions import OpenPositions

# PyTorch's positions count from the number after that of padding.
FIRST_POSITION = 2


class OffsetPositions(OpenPositions):
    """Positions whose first token has the position 2, as RoBERTa's checkpoints number them."""

    def call(self, inputs, start_index=0, positions=None):
        return super().call(inputs, start_index=start_index + FIRST_POSITION, positions=positions)


class TypedEmbedding(keras_hub.layers.TokenAndPositionEmbedding):
    """TokenAndPositionEmbedding that adds the embedding of the first token type to every token."""

    def make_types(self, number):
        """Add the weight, `(number, hidden)`."""
        with unlocked(self):
            self.token_types = keras.layers.Embedding(
                number, self.embedding_dim, dtype=self.dtype_policy, name="token_types"
            )
            self.token_types.build((None, None))

    def call(self, inputs, start_index=0, positions=None):
        outputs = super().call(inputs, start_index=start_index, positions=positions)
        return outputs + ops.cast(ops.convert_to_tensor(self.token_types.embeddings)[0], outputs.dtype)


def prepare(backbone, config):
    """Let a fresh backbone compute what a checkpoint of transformers means."""
    embeddings = backbone.embeddings
    embeddings.position_embedding.__class__ = OffsetPositions
    embeddings.__class__ = TypedEmbedding
    embeddings.make_types(config["type_vocab_size"])


class Roberta(Family):
    """A family of RoBERTa's shape."""

    def names(self, model):
        """As of `Family`; KerasHub's own backbones have no token types."""
        named, embeddings = super().names(model), self.main_layer(model).embeddings
        if isinstance(embeddings, TypedEmbedding):
            name = f"{self.prefix_name}.embeddings.token_type_embeddings.weight"
            named.append((embeddings.token_types.embeddings, name, False))
        return named


def family(model_type, name, tokenizer):
    """A Family of RoBERTa's shape; `name` is what KerasHub's classes begin with."""
    return Roberta(
        model_type=model_type,
        backbone=getattr(keras_hub.models, f"{name}Backbone"),
        arguments=encoder_arguments,
        tasks=kerashub_tasks(name),
        prefix_name="roberta",
        heads={
            "classification": {"pooled_dense": "classifier.dense", "output_dense": "classifier.out_proj"},
            "masked-lm": {"dense": "lm_head.dense", "norm": "lm_head.layer_norm", "bias": "lm_head"},
        },
        masked_words_activation=lambda config: "gelu",
        embeddings={
            "embeddings.token_embedding": "embeddings.word_embeddings",
            "embeddings.position_embedding": "embeddings.position_embeddings",
            "embeddings_layer_norm": "embeddings.LayerNorm",
        },
        # Of transformers' heads that are here, multiple choice alone reads it.
        pooler_name="pooler.dense",
        tokenizer=tokenizer,
        first_position=FIRST_POSITION,
        choice_arguments=lambda config, backbone: {
            "dropout": backbone.dropout, "activation": "tanh", "in_encoder": True,
        },
        prepare=prepare,
    )  # fmt: skip


FAMILY = family("roberta", "Roberta", "byte-level-bpe")
