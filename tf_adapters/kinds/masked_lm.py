"""Masked-language modelling: texts without labels, which tokens are hidden and what stands in their place, and a head
that guesses these alone."""

import dataclasses
import functools

import numpy as np
import tensorflow as tf

from tf_adapters.errors import InputError
from tf_adapters.kinds.kind import Kind, Scorer
from tf_adapters.layers import ops as each_keras
from tf_adapters.models.state import state_of
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
        loss, mean = hidden_crossentropy(ops or each_keras.keras2)
        return {"loss": loss(name="hidden_crossentropy"), "metrics": [mean(name="loss_mean")]}

    def loss_weight(self, targets):
        return tf.reduce_sum(tf.cast(targets >= 0, tf.float32))

    def trained(self, model, *, jit_compile):
        self._bounded = bool(jit_compile)
        words, _ = masked_words(state_of(model).door.ops)
        return words(model, rate=self.rate if jit_compile else None)

    def scorer(self, model, tokenizer, *, jit_compile=False, **options):
        bounded = bool(jit_compile) or state_of(model).door.compiles_shapes()
        masking = Masking(tokenizer, rate=self.rate, whole_words=self.whole_words, bounded=bounded)
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


@functools.cache
def masked_words(ops):
    """The classes `MaskedWords` and `Guesses` of the Keras of `ops`, a module of `layers.ops`."""

    class MaskedWords(ops.keras.Model):
        """Logits of the hidden tokens of a batch.

        The head's product with the whole vocabulary takes longer than a small encoder, and is needed for one token in
        seven.

        Args:
            model: a model with a head of masked words.
            rate: float or None: with a number, the logits of a fixed number of tokens are computed, as a compiler of
                shapes needs it, enough for what a bounded `Masking` of this rate hides.

        Call arguments:
            inputs: dict of what the model takes, and `targets`, int32 `(rows, length)`, -1 where nothing is hidden.

        Returns: logits, `(1, hidden tokens, vocabulary)`, in the order of `hidden_places`.

        Reference: the `gather_indexes` of Devlin et al.'s published code.
        """

        def __init__(self, model, *, rate=None):
            super().__init__(name="masked_words", dtype=model.dtype_policy)
            self.inner, self.rate = model, rate

        def call(self, inputs, training=None):
            inputs = dict(inputs)
            targets = inputs.pop("targets")
            if self.rate is None:
                count = ops.maximum(ops.sums(ops.cast(ops.reshape(targets, [-1]) >= 0, "int32")), 1)
            else:
                size = ops.shape(targets)[0] * ops.shape(targets)[1]
                # One more, where a compiled step rounds otherwise than the input pipeline.
                count = tf.minimum(size, most_hidden(self.rate, size) + 1)
            places = hidden_places(targets, count, ops)
            return state_of(self.inner).door.logits_at(self.inner, inputs, places, training)

    class Guesses(MaskedWords):
        """Of each hidden token, and of others behind them, its cross-entropy, 1 where it counts, 1 where it was guessed
        and the row that it is of, float32 `(hidden tokens, 4)`; arguments as of `MaskedWords`."""

        def call(self, inputs, training=None):
            logits, targets = super().call(inputs, training), inputs["targets"]
            losses, counts, tokens = hidden_losses(targets, logits, ops)
            right = counts * ops.cast(ops.cast(ops.argmax(logits[0], -1), "int32") == tokens, ops.float32)
            row = hidden_places(targets, ops.shape(logits)[1], ops) // ops.shape(targets)[1]
            return ops.stack([losses, counts, right, ops.cast(row, ops.float32)], -1)

    return MaskedWords, Guesses


def hidden_places(targets, count, ops):
    """The places of the hidden tokens in a batch's flat order, int32 `(count,)`; others behind them if they are
    fewer."""
    return ops.largest(ops.cast(ops.reshape(targets, [-1]) >= 0, "int32"), count)


def hidden_losses(targets, logits, ops):
    """Cross-entropies of the hidden tokens, which of them count (1.0), and the tokens, `(hidden tokens,)` each."""
    logits, targets = ops.cast(logits[0], ops.float32), ops.cast(targets, "int32")
    tokens = ops.take(ops.reshape(targets, [-1]), hidden_places(targets, ops.shape(logits)[0], ops))
    counts = ops.cast(tokens >= 0, ops.float32)
    return ops.crossentropy(ops.maximum(tokens, 0), logits) * counts, counts, tokens


@functools.cache
def hidden_crossentropy(ops):
    """The classes `HiddenCrossentropy` and `HiddenCrossentropyMean` of the Keras of `ops`."""

    @ops.registered
    class HiddenCrossentropy(ops.keras.losses.Loss):
        """Mean cross-entropy of the hidden tokens of a batch; 0 where nothing is hidden.

        Call arguments:
            y_true: int tensor, `(rows, length)`, -1 where nothing is hidden.
            y_pred: logits, as `MaskedWords` returns them.
        """

        def call(self, y_true, y_pred):
            losses, counts, _ = hidden_losses(y_true, y_pred, ops)
            # Keras takes the mean over all entries.
            return losses * ops.sums(counts * 0 + 1) / ops.maximum(ops.sums(counts), 1.0)

    class HiddenCrossentropyMean(ops.keras.metrics.Mean):
        """Mean of the same over all hidden tokens that came by."""

        def update_state(self, y_true, y_pred, sample_weight=None):
            losses, counts, _ = hidden_losses(y_true, y_pred, ops)
            return super().update_state(losses, sample_weight=counts)

    return HiddenCrossentropy, HiddenCrossentropyMean


class MaskedScorer(Scorer):
    """Scores a model's guesses of hidden tokens; arguments as of `Scorer`, and

    Args:
        masking: `Masking`.
    """

    def __init__(self, model, tokenizer, *, masking, jit_compile=False, **options):
        super().__init__(model, tokenizer, jit_compile=jit_compile, **options)
        self.masking, door = masking, state_of(model).door
        _, guesses = masked_words(door.ops)
        # A bounded masking is one for a compiler of shapes.
        guesses = guesses(model, rate=masking.rate if masking.bounded else None)
        self._guesses = door.compiled(guesses, jit_compile=jit_compile)

    def sums(self, encoded, noise):
        """Of each row the sum of the losses, the number of hidden tokens, and how many of them were guessed; float32
        `(rows, 3)`.

        Args:
            encoded: dict, as `Tokenizer.encode` returns it.
            noise: float32 array `(3, rows, length)`, as `Masking` takes it; a row's does not depend on its batch.
        """
        result = np.zeros((noise.shape[1], 3), np.float32)
        for positions, inputs in self.inputs(encoded):
            rows, length = inputs["input_ids"].shape
            of_batch = np.ones((3, rows, length), np.float32)
            of_batch[:, : len(positions)] = noise[:, positions, :length]
            inputs, targets = self.masking(inputs, tf.constant(of_batch))
            guessed = self._guesses({**state_of(self.model).family.inputs(inputs), "targets": targets})
            guessed = guessed[guessed[:, 1] > 0]
            np.add.at(result, positions[guessed[:, 3].astype(np.int64)], guessed[:, :3])
        return result
