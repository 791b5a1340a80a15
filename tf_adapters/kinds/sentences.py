"""One label, one number or a set of labels for a text or a pair of texts; or which of several continuations or answers
of a text is right."""

import dataclasses
import functools
import textwrap

import numpy as np
import tensorflow as tf

from tf_adapters.kinds.kind import Kind
from tf_adapters.layers import ops as each_keras
from tf_adapters.tasks.analysis import best_thresholds, tf_idf
from tf_adapters.tasks.choices import ChoiceRows
from tf_adapters.tasks.metrics import METRICS, probabilities
from tf_adapters.text.batching import pad_to
from tf_adapters.text.tokenizer import Tokenizer

# Training rows of the baseline, which must not take long.
_MOST_ROWS_ALONE = 10_000


class _Sentences(Kind):
    def about(self, rows):
        return {"text_pairs": rows.text_pair is not None}

    def predict(self, scorer, rows, *, progress=None):
        """Logits, a float32 array `(rows, outputs)`."""
        parts = [scorer.logits(*rows.texts(index), progress=progress) for index in rows.slices()]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def loss(self, rows, outputs, ops=None):
        # As tensors: of arrays Keras does not match the shapes, and a regression's would be broadcast.
        # Without metrics: their variables are made on all workers of a strategy together, and one alone scores.
        ops = ops or each_keras.keras2
        loss = self.plain_loss(ops.keras)
        # Under a strategy Keras refuses to reduce a loss outside of `fit`, so that the mean is taken here.
        by_row = getattr(loss, "call", loss)(ops.value(self.targets(rows.labels)), ops.value(outputs))
        return float(ops.mean(by_row))

    def plain_loss(self, keras):
        """The loss where no setting changes it."""
        raise NotImplementedError

    def words_alone(self, task, rows):
        model = "ridge" if task.kind == "regression" else "logistic"
        try:
            return f"TF-IDF and {model} regression", tf_idf(task, rows, most_rows=_MOST_ROWS_ALONE)[0]
        except ValueError:
            return None  # texts of single characters, say

    def served_texts(self, task):
        return ("text", "text_pair") if task.get("text_pairs") else ("text",)

    def serve(self, texts, tokenizer, forward, names, task):
        logits = forward(tokenizer.encode(*texts))
        finite = tf.reduce_all(tf.math.is_finite(logits), -1)
        return {**self.served_tokens(logits, task), **self.served_labels(logits, names), "finite": finite}

    def served_labels(self, logits, names):
        """What a served model says in words, a dict of strings `(rows,)`."""
        return {}

    def example(self, rows):
        pairs = zip(("text", "text_pair"), rows.texts([0]))
        texts = {name: text.numpy()[0].decode() for name, text in pairs if text is not None}
        # The first words, or so much of a text without spaces.
        return {name: textwrap.shorten(text, 80, placeholder="") or text[:80] for name, text in texts.items()}

    def text(self, rows, index):
        return " | ".join(texts.numpy()[0].decode() for texts in rows.texts([index]) if texts is not None)

    def describe(self, rows, index, output, labels):
        return self.label(output, labels), self.text(rows, index)

    def label(self, output, labels):
        """What one row's logits say, in words."""
        raise NotImplementedError


def smoothed_crossentropy(targets, logits, *, share=0.0, weights=None, ops):
    """Cross-entropy of labels of which a share is spread evenly over all classes; `(rows,)`.

    `weights`, float32 `(classes,)`, are those of rows by their label; `ops` a module of `layers.ops`.

    Reference: Szegedy et al. 2016, Rethinking the Inception Architecture for Computer Vision, section 7.
    """
    log_probabilities = ops.log_softmax(ops.cast(logits, ops.float32))
    targets = ops.flat_labels(targets)
    losses = -(1 - share) * ops.of_label(log_probabilities, targets) - share * ops.mean(log_probabilities)
    return losses if weights is None else ops.take(weights, targets) * losses


def weighted_binary_crossentropy(targets, logits, *, share=0.0, weights, ops):
    """The mean over labels of each one's cross-entropy; `(rows,)`.

    `weights`, float32 `(2, labels)`, are those of a label that a row lacks, and of one that it has; `ops` a module of
    `layers.ops`.
    """
    logits, targets = ops.cast(logits, ops.float32), ops.cast(targets, ops.float32)
    smooth = targets * (1 - share) + 0.5 * share
    losses = ops.binary_crossentropy(logits, smooth)
    return ops.mean(ops.choose(targets > 0.5, weights[1], weights[0]) * losses)


def balanced(counts):
    """Weights by which each class counts as much as another, and the mean over the rows is 1.

    Args:
        counts: int array, `(classes, ...)`, rows of each.

    Returns: float32 array of that shape, `rows / (classes that there are * count)`; 0 of a class without rows.

    Reference: King & Zeng 2001, Logistic Regression in Rare Events Data, section 4.2.
    """
    counts = np.asarray(counts)
    there = (counts > 0).sum(0)
    return (counts.sum(0) / (there * np.maximum(counts, 1)) * (counts > 0)).astype(np.float32)


class Classification(_Sentences):
    """One of several labels. Outputs are logits, `(rows, labels)`."""

    name = "classification"
    choices = ("label_smoothing", "class_weights")

    def classes(self, rows, outputs):
        return rows.labels, outputs.argmax(-1)

    def constant(self, rows, labels):
        counts = np.bincount(rows.labels, minlength=len(labels))
        return np.tile(np.eye(len(labels))[counts.argmax()], (len(rows), 1))

    def losses(self, settings=None, examples=None, ops=None):
        ops = ops or each_keras.keras2
        if settings is not None and (settings.label_smoothing or settings.class_weights):
            weights = balanced(np.bincount(examples.labels)) if settings.class_weights else None
            loss = functools.partial(smoothed_crossentropy, share=settings.label_smoothing, weights=weights, ops=ops)
            return {"loss": loss, "metrics": [ops.keras.metrics.MeanMetricWrapper(loss, name="loss_mean")]}
        return {
            "loss": self.plain_loss(ops.keras),
            "metrics": [ops.keras.metrics.SparseCategoricalCrossentropy(name="loss_mean", from_logits=True)],
        }

    def plain_loss(self, keras):
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def served_labels(self, logits, names):
        return {"label": tf.gather(names, tf.argmax(logits, -1))}

    def _records(self, rows, outputs, labels):
        values = probabilities(outputs, kind=self.name)
        return [
            {"label": labels[best], "probabilities": dict(zip(labels, row))}
            for best, row in zip(values.argmax(-1).tolist(), values.tolist())
        ]

    def label(self, output, labels):
        values = probabilities(output, kind=self.name)
        best = int(np.argmax(values))
        return f"{labels[best]} ({values[best]:.2f})"

    def truth(self, rows, index, labels):
        return labels[int(rows.labels[index])]


class MultiLabel(_Sentences):
    """Any number of several labels. Outputs are logits, `(rows, labels)`."""

    name = "multi-label"
    choices = ("label_smoothing", "class_weights", "tune_thresholds")

    def classes(self, rows, outputs):
        return rows.labels.astype(int), (outputs > 0).astype(int)

    def thresholds(self, metric, rows, outputs):
        found, primary = best_thresholds(rows.labels, outputs), METRICS[metric].primary
        tuned, usual = (self.score(metric, rows, values)[primary] for values in (outputs - found, outputs))
        return found if tuned > usual else np.zeros_like(found)

    def constant(self, rows, labels):
        return np.tile(np.where(rows.labels.mean(0) > 0.5, 1.0, -1.0), (len(rows), 1))

    def losses(self, settings=None, examples=None, ops=None):
        ops = ops or each_keras.keras2
        if settings is not None and settings.class_weights:
            have, share = examples.labels.astype(bool).sum(0), settings.label_smoothing
            weights = balanced([len(examples) - have, have])
            loss = functools.partial(weighted_binary_crossentropy, share=share, weights=weights, ops=ops)
            return {"loss": loss, "metrics": [ops.keras.metrics.MeanMetricWrapper(loss, name="loss_mean")]}
        about = {"from_logits": True, "label_smoothing": settings.label_smoothing if settings is not None else 0.0}
        return {
            "loss": ops.keras.losses.BinaryCrossentropy(**about),
            "metrics": [ops.keras.metrics.BinaryCrossentropy(name="loss_mean", **about)],
        }

    def plain_loss(self, keras):
        return keras.losses.BinaryCrossentropy(from_logits=True)

    def served_tokens(self, logits, task):
        return {"probabilities": tf.sigmoid(logits), "logits": logits}

    def served_labels(self, logits, names):
        chosen = tf.ragged.boolean_mask(tf.tile(names[tf.newaxis], [tf.shape(logits)[0], 1]), logits > 0)
        return {"labels": tf.strings.reduce_join(chosen, -1, separator="|")}

    def _records(self, rows, outputs, labels):
        return [
            {
                "labels": [label for label, value in zip(labels, row) if value > 0.5],
                "probabilities": dict(zip(labels, row)),
            }
            for row in probabilities(outputs, kind=self.name).tolist()
        ]

    def label(self, output, labels):
        values = probabilities(output, kind=self.name)
        return "|".join(label for label, value in zip(labels, values) if value > 0.5) or "(none)"

    def truth(self, rows, index, labels):
        return "|".join(label for label, there in zip(labels, rows.labels[index]) if there) or "(none)"


class Regression(_Sentences):
    """A number. Outputs are `(rows, 1)`."""

    name = "regression"

    def about(self, rows):
        return {**super().about(rows), "value_range": rows.value_range}

    def predict(self, scorer, rows, *, progress=None):
        """Predicted values, a float32 array `(rows, 1)`, within the rows' range of values if they have one."""
        return self.bounded(rows, super().predict(scorer, rows, progress=progress))

    def unbounded(self, scorer, rows):
        return super().predict(scorer, rows)

    def bounded(self, rows, values):
        if rows.value_range is None:
            return values
        # Infinity has no place at the end of the range.
        return np.where(np.isfinite(values), np.clip(values, *rows.value_range), np.float32(np.nan))

    def constant(self, rows, labels):
        return np.full((len(rows), 1), rows.labels.mean())

    def losses(self, settings=None, examples=None, ops=None):
        ops = ops or each_keras.keras2
        return {"loss": self.plain_loss(ops.keras), "metrics": [ops.keras.metrics.MeanSquaredError(name="loss_mean")]}

    def plain_loss(self, keras):
        return keras.losses.MeanSquaredError()

    def targets(self, labels):
        return labels[:, tf.newaxis]

    def served_tokens(self, logits, task):
        value_range = task.get("value_range")
        value = logits
        if value_range is not None:
            value = tf.where(tf.math.is_finite(logits), tf.clip_by_value(logits, *map(float, value_range)), np.nan)
        return {"value": value[:, 0], "logits": logits}

    def _records(self, rows, outputs, labels):
        return [{"value": value} for value in np.asarray(outputs, np.float64).reshape(-1).tolist()]

    def label(self, output, labels):
        return f"{float(np.ravel(output)[0]):.3f}"

    def truth(self, rows, index, labels):
        return f"{float(rows.labels[index]):.3f}"


# One of several choices


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

    name = head = "multiple-choice"
    without = ("cache_frozen",)

    def losses(self, settings=None, examples=None, ops=None):
        return Classification().losses(ops=ops)

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
        return Classification().constant(rows, range(rows.choices.shape[1]))

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
