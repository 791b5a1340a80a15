"""Embeddings of positions that take a length that is not known yet, as an export from JAX has it."""

import keras
import keras_hub
from keras import ops


class OpenPositions(keras_hub.layers.PositionEmbedding):
    """PositionEmbedding for rows of any length up to its number of positions.

    KerasHub's slices them, which JAX refuses where the length is a symbol: it cannot know that there are as many. Here
    they are then looked up, and a row that turns out to be too long answers NaN.
    """

    def call(self, inputs, start_index=0, positions=None):
        length = ops.shape(inputs)[-2]
        if positions is None and keras.backend.backend() == "jax" and not isinstance(length, int):
            positions = ops.arange(length, dtype="int32") + start_index
        return super().call(inputs, start_index=start_index, positions=positions)
