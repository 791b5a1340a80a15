"""Masked-language modelling: texts without labels, hidden tokens to guess."""

import dataclasses

import numpy as np
import tensorflow as tf

from tf_adapters.kinds.kind import Kind
from tf_adapters.kinds.masked_words import HiddenCrossentropy, HiddenCrossentropyMean, MaskedScorer, MaskedWords
from tf_adapters.text.masking import Masking, masking_noise


class MaskedLanguageModelling(Kind):
    """Hidden tokens of a text. Rows are `Rows` without labels, outputs what `MaskedScorer.sums` says of each.

    It is no kind of a task, which `get_kind` would know: `training.pretrain` hands one to `fit`.

    Args:
        rate, whole_words: as of `Masking`.
        head_steps: int, for how many steps the head was fitted here; 0 for one that came with the encoder. It is kept
            with what is trained.
    """

    name = "masked-lm"
    head = "masked-lm"

    def __init__(self, *, rate=0.15, whole_words=False, head_steps=0):
        self.rate, self.whole_words, self.head_steps = rate, whole_words, head_steps
        self._bounded = False

    def settings(self):
        return {"rate": self.rate, "whole_words": self.whole_words, "head_steps": self.head_steps}

    def num_labels(self, labels):
        return 2  # of which such a head makes nothing

    def losses(self, settings=None, examples=None, ops=None):
        return {"loss": HiddenCrossentropy(), "metrics": [HiddenCrossentropyMean(name="loss_mean")]}

    def loss_weight(self, targets):
        return tf.reduce_sum(tf.cast(targets >= 0, tf.float32))

    def trained(self, model, *, jit_compile):
        self._bounded = bool(jit_compile)
        return MaskedWords(model, rate=self.rate if jit_compile else None)

    def scorer(self, model, tokenizer, *, jit_compile=False, **options):
        masking = Masking(tokenizer, rate=self.rate, whole_words=self.whole_words, bounded=bool(jit_compile))
        return MaskedScorer(model, tokenizer, masking=masking, jit_compile=jit_compile, **options)

    def about(self, rows):
        return {"text_pairs": rows.text_pair is not None, **self.settings()}

    def examples(self, rows, tokenizer):
        self._masking(tokenizer)  # which refuses a vocabulary without a mask
        return dataclasses.replace(rows, labels=np.zeros(len(rows), np.int8))

    def batch(self, inputs, labels, seed, tokenizer, lengths=None):
        inputs, targets = self._masking(tokenizer)(inputs, masking_noise(tf.shape(inputs["input_ids"]), seed))
        return {**inputs, "targets": targets}, targets

    def predict(self, scorer, rows, *, progress=None):
        """Sums over the hidden tokens of each row, which are the same in every call, a float32 array `(rows, 3)`."""
        parts = []
        for index in rows.slices():
            noise = masking_noise([len(index), scorer.tokenizer.max_length], [0, int(index[0])]).numpy()
            parts.append(scorer.sums(rows.encode(scorer.tokenizer, index), noise))
            if progress is not None:
                progress(len(index))
        return np.concatenate(parts)

    def _masking(self, tokenizer):
        return Masking(tokenizer, rate=self.rate, whole_words=self.whole_words, bounded=self._bounded)
