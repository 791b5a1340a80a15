"""Multiple choice: which of several continuations or answers of a text is right."""

import dataclasses

import numpy as np
import tensorflow as tf

from tf_adapters.kinds.kind import Kind
from tf_adapters.layers import ops as each_keras
from tf_adapters.tasks.choices import ChoiceRows
from tf_adapters.tasks.metrics import probabilities
from tf_adapters.text.batching import pad_to
from tf_adapters.text.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True)
class _Examples:
    """The pairs of text and choice of a row, one after the other, as one example for `training_batches`."""

    rows: ChoiceRows
    tokenizer: Tokenizer

    @property
    def labels(self):
        return self.rows.labels

    def __len__(self):
        return len(self.rows)

    def encode(self, tokenizer, index):
        pairs, count = self.rows.pairs(index), self.rows.choices.shape[1]
        encoded = self.tokenizer.encode(pairs.text, pairs.text_pair)
        return {
            name: tf.RaggedTensor.from_row_splits(ragged.values, ragged.row_splits[::count])
            for name, ragged in encoded.items()
        }


class MultipleChoice(Kind):
    """One of several choices. Rows are `ChoiceRows`, outputs the choices' logits, `(rows, choices)`.

    The encoder reads each choice behind the text, as a pair, and the head gives each pair a logit.

    Reference: Zellers et al. 2018, SWAG, section 5; Devlin et al. 2019, section 4.4.
    """

    name = "multiple-choice"
    head = "multiple-choice"
    without = ("cache_frozen",)

    def losses(self, settings=None, examples=None, ops=None):
        keras = (ops or each_keras.keras2).keras
        return {
            "loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            "metrics": [keras.metrics.SparseCategoricalCrossentropy(name="loss_mean", from_logits=True)],
        }

    def examples(self, rows, tokenizer):
        return _Examples(rows, tokenizer)

    def padder(self, tokenizer, examples):
        return tokenizer.with_max_length(tokenizer.max_length * examples.rows.choices.shape[1])

    def batch(self, inputs, labels, seed, tokenizer, lengths=None):
        """Tensors `(rows, choices, length)` of a batch whose rows have their choices one after the other."""
        real = inputs["attention_mask"] > 0
        ids = tf.boolean_mask(inputs["input_ids"], real)
        # Each pair begins with the one token that stands at no other place.
        pair = tf.cumsum(tf.cast(ids == tokenizer.cls_id, tf.int64)) - 1
        rows = tf.shape(labels, tf.int64)[0]
        encoded = {"input_ids": ids, "token_type_ids": tf.boolean_mask(inputs["token_type_ids"], real)}
        encoded = {name: tf.RaggedTensor.from_value_rowids(values, pair) for name, values in encoded.items()}
        padded = pad_to(encoded, tokenizer, lengths)
        return {
            name: tf.reshape(tensor, tf.stack([rows, -1, tf.shape(tensor, tf.int64)[1]]))
            for name, tensor in padded.items()
        }, labels

    def predict(self, scorer, rows, *, progress=None):
        """Logits, a float32 array `(rows, choices)`."""
        count = rows.choices.shape[1]
        parts, done = [], 0
        for index in rows.slices(2048):
            pairs = rows.pairs(index)

            def advance(number):
                nonlocal done
                before, done = done // count, done + number
                progress(done // count - before)

            parts.append(scorer.logits(pairs.text, pairs.text_pair, progress=progress and advance).reshape(-1, count))
        return np.concatenate(parts)

    def loss(self, rows, outputs, ops=None):
        return float(tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(rows.labels, outputs)))

    def constant(self, rows, labels):
        """The place that is right most often."""
        count = rows.choices.shape[1]
        return np.tile(np.eye(count)[np.bincount(rows.labels, minlength=count).argmax()], (len(rows), 1))

    def served_texts(self, task):
        return ("text", "choices")

    def served_spec(self, name):
        return tf.TensorSpec([None, None] if name == "choices" else [None], tf.string, name=name)

    def serve(self, texts, tokenizer, forward, names, task):
        """`choice`, int32 `(rows,)`, `answer`, its text, `probabilities` and `logits`, `(rows, choices)`."""
        text, choices = texts
        encoded = tokenizer.encode(tf.repeat(text, tf.shape(choices)[1]), tf.reshape(choices, [-1]))
        logits = tf.reshape(forward(encoded), tf.shape(choices))
        best = tf.argmax(logits, -1, tf.int32)
        return {
            "choice": best,
            "answer": tf.gather(choices, best, batch_dims=1),
            "probabilities": tf.nn.softmax(logits),
            "logits": logits,
            "finite": tf.reduce_all(tf.math.is_finite(logits), -1),
        }

    def served_tokens(self, logits, task):
        """Of ids of one text with one choice each: the `logits`, `(rows,)`, of which those of a text's choices are
        compared."""
        return {"logits": logits[:, 0]}

    def _records(self, rows, outputs, labels):
        values = probabilities(outputs, kind="classification")
        answers = tf.gather(rows.choices, values.argmax(-1), batch_dims=1).numpy().tolist()
        return [
            {"choice": best, "answer": answer.decode(), "probabilities": row}
            for best, answer, row in zip(values.argmax(-1).tolist(), answers, values.tolist())
        ]

    def text(self, rows, index):
        return rows.text[index].numpy().decode()

    def describe(self, rows, index, output, labels):
        values = probabilities(output, kind="classification")
        best = int(np.argmax(values))
        return f"{rows.choices[index, best].numpy().decode()} ({values[best]:.2f})", self.text(rows, index)

    def truth(self, rows, index, labels):
        return rows.choices[index, int(rows.labels[index])].numpy().decode()
