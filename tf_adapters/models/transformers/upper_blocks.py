"""A model in two parts: the blocks up to a depth, and what stands above them."""

import contextlib

import tensorflow as tf

from tf_adapters._keras import keras
from tf_adapters.models.state import state_of
from tf_adapters.models.transaction import replaced

_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


@contextlib.contextmanager
def _with_layers(model, blocks, embeddings=None):
    """While a graph is traced, the encoder has these blocks; with other embeddings given, they are not the lowest
    ones."""
    family = state_of(model).family
    main = family.main_layer(model)
    changes = [(family.stack(model), "layer", list(blocks))]
    if embeddings is not None:
        changes.append((main, "embeddings", embeddings))
        changes += [(owner, attribute, None) for owner, attribute in family.beside_lowest(model)]
    with replaced(changes):
        yield main


def lower_blocks(model, depth):
    """The embeddings and the first `depth` blocks in inference.

    Returns: tf.function of the dict of int32 `(batch, length)` tensors that the model takes; the hidden
        states, `(batch, length, hidden)`.
    """
    family = state_of(model).family
    blocks, specs = family.blocks(model)[:depth], {name: tf.TensorSpec((None, None), tf.int32) for name in _INPUTS}

    @tf.function(input_signature=[specs], autograph=family.autograph)
    def lower(inputs):
        with _with_layers(model, blocks) as main:
            # With hidden states asked for, no block is computed for its first token alone.
            return main(family.inputs(inputs), output_hidden_states=True, training=False).last_hidden_state

    return lower


class UpperBlocks(keras.Model):
    """A model that goes on where its lower blocks ended; it has the model's own weights.

    Args:
        model: a transformers TensorFlow model.
        first: int, the first block that is computed.

    Call arguments:
        inputs: dict of `states`, `(batch, length, hidden)`, the outputs of block `first - 1`, and
            int32 `attention_mask`, `(batch, length)`.

    Returns: the model's outputs.
    """

    def __init__(self, model, first):
        super().__init__(name="upper_blocks", dtype=model.dtype_policy)
        self.whole = model
        self.first = first

    def call(self, inputs, training=None):
        blocks = state_of(self.whole).family.blocks(self.whole)[self.first :]

        def pass_on(*_, inputs_embeds, **__):
            return inputs_embeds

        with _with_layers(self.whole, blocks, pass_on):
            return self.whole(
                {"inputs_embeds": inputs["states"], "attention_mask": inputs["attention_mask"]}, training=training
            )
