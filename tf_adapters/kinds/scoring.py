"""Logits of any number of texts."""

import numpy as np

from tf_adapters.models.state import state_of
from tf_adapters.text.batching import default_lengths, padding_multiple, sorted_batches


class Scorer:
    """Computes logits in batches sorted by length, traced once for all calls.

    Args:
        model: a model with a head.
        tokenizer: `Tokenizer`.
        batch_size: int.
        lengths: tuple of padded lengths for XLA, or None to pad as `padding_multiple` says.
        jit_compile: bool, compile with XLA; then `lengths` should be given.
    """

    def __init__(self, model, tokenizer, *, batch_size=32, lengths=None, jit_compile=False):
        self.model = model
        self.tokenizer = tokenizer
        self.batch_size = batch_size
        door = state_of(model).door
        always = door.compiles_shapes()
        self.lengths = default_lengths(tokenizer.max_length) if always and lengths is None else lengths
        self.multiple_of = padding_multiple(fast=state_of(model).fast)
        # What is compiled for each shape should meet few.
        self.fill = jit_compile or always or state_of(model).fast
        self.forward = door.forward(model, jit_compile=jit_compile)

    def batches(self, encoded):
        """Logits of encoded examples, a batch at a time.

        Args:
            encoded: dict, as `Tokenizer.encode` returns it.

        Returns: iterator of `(positions, logits)`: int64 array of where the batch's examples
            stand in `encoded`, and their float32 logits, `(examples, labels)`,
            `(examples, length, labels)` for tokens, or `(examples, length, 2)`, start and
            end, for spans; each example comes once, padding examples never.
        """
        for positions, inputs in sorted_batches(
            encoded,
            batch_size=self.batch_size,
            tokenizer=self.tokenizer,
            lengths=self.lengths,
            multiple_of=self.multiple_of,
            fill=self.fill,
        ):
            yield positions, self.forward(inputs)[: len(positions)]

    def logits(self, text, text_pair=None, *, progress=None):
        """Logits of a chunk of texts.

        Args:
            text, text_pair: string tensors `(rows,)`; text_pair may be None.
            progress: function called with the number of rows done after each batch, or None.

        Returns: float32 NumPy array, `(rows, labels)`, in the order of the rows.
        """
        encoded = self.tokenizer.encode(text, text_pair)
        result, rows = None, int(text.shape[0])
        for positions, logits in self.batches(encoded):
            if result is None:
                result = np.empty((rows, *logits.shape[1:]), np.float32)
            result[positions] = logits
            if progress is not None:
                progress(len(positions))
        return result
