"""Masked-language modelling: texts without labels, hidden tokens to guess, and a head that computes them alone."""

import dataclasses

import numpy as np
import tensorflow as tf

from tf_adapters._keras import keras
from tf_adapters.kinds.kind import Kind
from tf_adapters.kinds.scoring import Scorer
from tf_adapters.models.state import state_of
from tf_adapters.models.transformers.site import replaced
from tf_adapters.text.batching import sorted_batches
from tf_adapters.text.masking import Masking, masking_noise, most_hidden


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


class MaskedWords(keras.Model):
    """Logits of the hidden tokens of a batch.

    The head's product with the whole vocabulary takes longer than a small encoder, and is needed for one token in
    seven.

    Args:
        model: a transformers TensorFlow model with a head of masked words.
        rate: float or None: with a number, the logits of a fixed number of tokens are computed, as XLA needs it, enough
            for what a bounded `Masking` of this rate hides.

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
            count = tf.maximum(tf.math.count_nonzero(targets >= 0, dtype=tf.int32), 1)
        else:
            # One more, where a compiled step rounds otherwise than the input pipeline.
            count = tf.minimum(tf.size(targets), most_hidden(self.rate, tf.size(targets)) + 1)
        places = hidden_places(targets, count)
        name = self.inner.base_model_prefix
        encoder = vars(self.inner)[name]

        def encode(*arguments, **options):
            outputs = encoder(*arguments, **options)
            states = outputs[0]
            flat = tf.reshape(states, [-1, states.shape[-1]])
            return type(outputs)(last_hidden_state=tf.gather(flat, places)[tf.newaxis])

        with replaced([(self.inner, name, encode)]):
            return self.inner(inputs, training=training).logits


def hidden_places(targets, count):
    """The places of the hidden tokens in a batch's flat order, int32 `(count,)`; others behind them if they are
    fewer."""
    return tf.math.top_k(tf.cast(tf.reshape(targets, [-1]) >= 0, tf.int32), count).indices


def hidden_losses(targets, logits):
    """Cross-entropies of the hidden tokens, which of them count (1.0), and the tokens, `(hidden tokens,)` each."""
    logits = tf.cast(logits[0], tf.float32)
    tokens = tf.gather(tf.reshape(tf.cast(targets, tf.int32), [-1]), hidden_places(targets, tf.shape(logits)[0]))
    counts = tf.cast(tokens >= 0, tf.float32)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.maximum(tokens, 0), logits)
    return losses * counts, counts, tokens


class HiddenCrossentropy(keras.losses.Loss):
    """Mean cross-entropy of the hidden tokens of a batch; 0 where nothing is hidden.

    Call arguments:
        y_true: int tensor, `(rows, length)`, -1 where nothing is hidden.
        y_pred: logits, as `MaskedWords` returns them.
    """

    def __init__(self, name="hidden_crossentropy"):
        super().__init__(name=name)

    def call(self, y_true, y_pred):
        losses, counts, _ = hidden_losses(y_true, y_pred)
        # Keras takes the mean over all entries.
        return losses * tf.cast(tf.size(losses), tf.float32) / tf.maximum(tf.reduce_sum(counts), 1.0)


class HiddenCrossentropyMean(keras.metrics.Mean):
    """Mean of the same over all hidden tokens that came by."""

    def update_state(self, y_true, y_pred, sample_weight=None):
        losses, counts, _ = hidden_losses(y_true, y_pred)
        return super().update_state(losses, sample_weight=counts)


class MaskedScorer(Scorer):
    """Scores a model's guesses of hidden tokens; arguments as of `Scorer`, and

    Args:
        masking: `Masking`.
    """

    def __init__(self, model, tokenizer, *, masking, jit_compile=False, **options):
        super().__init__(model, tokenizer, jit_compile=jit_compile, **options)
        self.masking, family = masking, state_of(model).family
        guess = MaskedWords(model, rate=masking.rate if jit_compile else None)
        specs = {
            name: tf.TensorSpec((None, None), tf.int32) for name in ("input_ids", "attention_mask", "token_type_ids")
        }

        # Keras' variables of the masks' shapes are none of the model's, so one trace does for all shapes without XLA.
        @tf.function(
            input_signature=None if jit_compile else [specs, tf.TensorSpec((3, None, None))],
            jit_compile=jit_compile or None,
        )
        def sums(inputs, noise):
            inputs, targets = masking(inputs, noise)
            logits = guess({**family.inputs(inputs), "targets": targets}, training=False)
            losses, counts, tokens = hidden_losses(targets, logits)
            right = counts * tf.cast(tf.argmax(logits[0], -1, tf.int32) == tokens, tf.float32)
            row = hidden_places(targets, tf.shape(logits)[1]) // tf.shape(targets)[1]
            return tf.math.unsorted_segment_sum(tf.stack([losses, counts, right], -1), row, tf.shape(targets)[0])

        self._sums = sums

    def sums(self, encoded, noise):
        """Of each row the sum of the losses, the number of hidden tokens, and how many of them were guessed; float32
        `(rows, 3)`.

        Args:
            encoded: dict, as `Tokenizer.encode` returns it.
            noise: float32 array `(3, rows, length)`, as `Masking` takes it; a row's does not depend on its batch.
        """
        result = np.zeros((noise.shape[1], 3), np.float32)
        for positions, inputs in sorted_batches(
            encoded, batch_size=self.batch_size, tokenizer=self.tokenizer, lengths=self.lengths,
            multiple_of=self.multiple_of,
            fill=self.fill,
        ):  # fmt: skip
            rows, length = inputs["input_ids"].shape
            of_batch = np.ones((3, rows, length), np.float32)
            of_batch[:, : len(positions)] = noise[:, positions, :length]
            result[positions] = self._sums(inputs, tf.constant(of_batch)).numpy()[: len(positions)]
        return result
