"""Masked-language modelling: which tokens are hidden, and what stands in their place."""

import numpy as np
import tensorflow as tf

from tf_adapters.errors import InputError
from tf_adapters.ranges import in_range
from tf_adapters.text.tokenizer import no_autograph

_SPARE = 5.0  # standard deviations


class Masking:
    """Hides tokens of a batch that a model is to guess.

    Each token, or with `whole_words` each word, is chosen with probability `rate`. Of the chosen tokens four fifths
    become the mask, a tenth some token of the vocabulary, and a tenth stay. Special tokens, padding and unknown ones
    are never chosen. Nothing but the numbers that come with a batch is random, so that masks are others in each epoch
    and the same in a run that goes on.

    Args:
        tokenizer: `Tokenizer`, whose `mask_id` stands for a hidden token.
        rate: float in (0, 1).
        whole_words: bool, choose all tokens of a word or none.
        bounded: bool, hide no more tokens of a batch than `most_hidden`, as a compiled step has places for: of what is
            chosen beyond it, the words of the highest numbers stay. That is the published code's
            `max_predictions_per_seq`, of a batch.

    Call arguments:
        inputs: dict of the int32 tensors `input_ids` and `attention_mask`, `(rows, length)`, and others, which stay.
        noise: float32 tensor `(3, rows, length)` of numbers in [0, 1), each independent.

    Returns: the dict with other `input_ids`, and the targets, an int32 tensor `(rows, length)`: the token of the text
        where one was chosen, otherwise -1.

    Raises:
        InputError: a rate out of range, or a vocabulary without a mask.

    Reference: Devlin et al. 2019, section 3.1 and appendix A.1; whole words: their published code, 2019. Masks anew in
    each epoch: Liu
        et al. 2019, section 4.1.
    """

    @in_range
    def __init__(self, tokenizer, *, rate=0.15, whole_words=False, bounded=False):
        if tokenizer.mask_id is None:
            raise InputError(
                "The encoder's vocabulary has no token for what is masked ([MASK] or <mask>): give an encoder whose "
                "has."
            )
        self.rate, self.whole_words, self.bounded = rate, whole_words, bounded
        self._mask_id, self._size = tokenizer.mask_id, tokenizer.size
        self._special = np.array([tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id, tokenizer.unk_id], np.int32)
        self._starts = tokenizer.word_starts() if whole_words else None

    @no_autograph
    def __call__(self, inputs, noise):
        ids = inputs["input_ids"]
        special = tf.reduce_any(ids[..., tf.newaxis] == self._special, -1) | (inputs["attention_mask"] == 0)
        draw = noise[0]
        if self.whole_words:
            starts = tf.gather(tf.constant(self._starts), tf.minimum(ids, self._size - 1)) | special
            starts |= tf.pad(special[:, :-1], [[0, 0], [1, 0]], constant_values=True)
            # One number for each word.
            draw = tf.gather(draw, tf.cumsum(tf.cast(starts, tf.int32), axis=1) - 1, axis=1, batch_dims=1)
        below = self.rate
        if self.bounded:
            numbers, most = tf.reshape(tf.where(special, 1.0, draw), [-1]), most_hidden(self.rate, tf.size(ids))
            # All tokens of a word have one number: where it is the first beyond the bound, none of them is hidden.
            first_beyond = -tf.math.top_k(-numbers, tf.minimum(most + 1, tf.size(ids))).values[-1]
            below = tf.where(most < tf.size(ids), tf.minimum(below, first_beyond), below)
        chosen = (draw < below) & ~special
        other = tf.cast(noise[2] * self._size, ids.dtype)
        replaced = tf.where(noise[1] < 0.8, self._mask_id, tf.where(noise[1] < 0.9, other, ids))
        return {**inputs, "input_ids": tf.where(chosen, replaced, ids)}, tf.where(chosen, ids, -1)


def most_hidden(rate, size):
    """How many of a batch's `size` tokens are hidden at most where that is bounded, an int32 scalar: five standard
    deviations above the mean.

    Of tokens that are chosen one by one no more are in one of ten million batches; whole words spread further.
    """
    mean = rate * tf.cast(size, tf.float32)
    return tf.minimum(size, tf.cast(mean + _SPARE * tf.sqrt(mean), tf.int32))


def masking_noise(shape, seed):
    """The noise of a batch of `shape`, `(rows, length)`, which the int64 `seed`, `(2,)`, decides."""
    return tf.random.stateless_uniform(tf.concat([[3], shape], 0), seed)
