"""RoBERTa (Liu et al., 2019) in KerasHub, with what KerasHub leaves out: the first rows of the positions, and the
embedding of token types, which every token gets."""

import keras
import keras_hub
from keras import ops

from tf_adapters._keras3_internals import unlocked
from tf_adapters.models.keras_hub.family import Family

# PyTorch's positions count from the number after that of padding.
FIRST_POSITION = 2


class OffsetPositions(keras_hub.layers.PositionEmbedding):
    """PositionEmbedding whose first token has the position 2, as RoBERTa's checkpoints number them."""

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


def arguments(config):
    """KerasHub's arguments, from the dict of a `config.json`."""
    return {
        "vocabulary_size": config["vocab_size"],
        "num_layers": config["num_hidden_layers"],
        "num_heads": config["num_attention_heads"],
        "hidden_dim": config["hidden_size"],
        "intermediate_dim": config["intermediate_size"],
        "dropout": config.get("hidden_dropout_prob", 0.1),
        "max_sequence_length": config["max_position_embeddings"],
    }


class Roberta(Family):
    """A family of RoBERTa's shape."""

    def names(self, model):
        """As of `Family`; KerasHub's own backbones have no token types."""
        named, embeddings = super().names(model), self.main_layer(model).embeddings
        if isinstance(embeddings, TypedEmbedding):
            name = f"{self.prefix_name}.embeddings.token_type_embeddings.weight"
            named.append((embeddings.token_types.embeddings, name, False))
        return named


def family(model_type, backbone, classifier, tokenizer):
    """A Family of RoBERTa's shape."""
    return Roberta(
        model_type=model_type,
        backbone=backbone,
        arguments=arguments,
        classifier=classifier,
        prefix_name="roberta",
        head={"pooled_dense": "classifier.dense", "output_dense": "classifier.out_proj"},
        embeddings={
            "embeddings.token_embedding": "embeddings.word_embeddings",
            "embeddings.position_embedding": "embeddings.position_embeddings",
            "embeddings_layer_norm": "embeddings.LayerNorm",
        },
        tokenizer=tokenizer,
        first_position=FIRST_POSITION,
        prepare=prepare,
    )


FAMILY = family("roberta", keras_hub.models.RobertaBackbone, keras_hub.models.RobertaTextClassifier, "byte-level-bpe")
