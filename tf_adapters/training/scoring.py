"""Logits of any number of texts."""

import numpy as np
import tensorflow as tf

from tf_adapters.text.batching import sorted_batches


class Scorer:
    """Computes logits in batches sorted by length, traced once for all calls.

    Args:
        model: a classification model.
        wordpiece: `WordPiece`.
        batch_size: int.
        lengths: tuple of padded lengths for XLA, or None to pad to each batch's longest.
        jit_compile: bool, compile with XLA; then `lengths` should be given.
    """

    def __init__(self, model, wordpiece, *, batch_size=32, lengths=None, jit_compile=False):
        self.wordpiece = wordpiece
        self.batch_size = batch_size
        self.lengths = lengths
        specs = {name: tf.TensorSpec((None, None), tf.int32) for name in ("input_ids", "attention_mask", "token_type_ids")}

        @tf.function(input_signature=[specs], jit_compile=jit_compile or None)
        def forward(inputs):
            return model(inputs, training=False).logits

        self._forward = forward

    def logits(self, text, text_pair=None, *, progress=None):
        """Logits of a chunk of texts.

        Args:
            text, text_pair: string tensors `(rows,)`; text_pair may be None.
            progress: function called with the number of rows done after each batch, or None.

        Returns: float32 NumPy array, `(rows, labels)`, in the order of the rows.
        """
        encoded = self.wordpiece.encode(text, text_pair)
        result, rows = None, int(text.shape[0])
        for positions, inputs in sorted_batches(
            encoded, batch_size=self.batch_size, wordpiece=self.wordpiece, lengths=self.lengths
        ):
            logits = self._forward(inputs).numpy()[: len(positions)]
            if result is None:
                result = np.empty((rows, *logits.shape[1:]), np.float32)
            result[positions] = logits
            if progress is not None:
                progress(len(positions))
        return result
