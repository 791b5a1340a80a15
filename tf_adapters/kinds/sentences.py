"""One label, one number or a set of labels for a text or a pair of texts."""

import functools

import numpy as np
import tensorflow as tf

from tf_adapters._keras import keras
from tf_adapters.kinds.kind import Kind
from tf_adapters.tasks.metrics import probabilities


class _Sentences(Kind):
    def about(self, rows):
        return {"text_pairs": rows.text_pair is not None}

    def predict(self, scorer, rows, *, progress=None):
        """Logits, a float32 array `(rows, outputs)`."""
        parts = [scorer.logits(*rows.texts(index), progress=progress) for index in rows.slices()]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def loss(self, rows, outputs):
        # As tensors: of arrays Keras does not match the shapes, and a regression's would be broadcast.
        return float(self.losses()["loss"](tf.constant(self.targets(rows.labels)), tf.constant(outputs)))

    def finite(self, outputs):
        return np.isfinite(outputs).all(-1)

    def served_texts(self, task):
        return ("text", "text_pair") if task.get("text_pairs") else ("text",)

    def serve(self, texts, tokenizer, forward, names, task):
        logits = forward(tokenizer.encode(*texts))
        finite = tf.reduce_all(tf.math.is_finite(logits), -1)
        return {**self.served_tokens(logits, task), **self.served_labels(logits, names), "finite": finite}

    def served_labels(self, logits, names):
        """What a served model says in words, a dict of strings `(rows,)`."""
        return {}

    def example_command(self, directory, rows):
        if rows.text_pair is not None:
            return f"tf-adapters predict {directory} --input FILE --text-column A --text-pair-column B"
        return f"echo 'a quiet, moving film' | tf-adapters predict {directory} --input -"

    def describe(self, rows, index, output, labels):
        texts = (texts.numpy()[0].decode() for texts in rows.texts([index]) if texts is not None)
        return self.label(output, labels), " | ".join(texts)

    def label(self, output, labels):
        """What one row's logits say, in words."""
        raise NotImplementedError


def smoothed_crossentropy(targets, logits, *, share):
    """Cross-entropy of labels of which a share is spread evenly over all classes; `(rows,)`.

    Reference: Szegedy et al. 2016, Rethinking the Inception Architecture for Computer Vision, section 7.
    """
    log_probabilities = tf.nn.log_softmax(tf.cast(logits, tf.float32))
    of_label = tf.gather(log_probabilities, tf.reshape(tf.cast(targets, tf.int32), [-1]), batch_dims=1)
    return -(1 - share) * of_label - share * tf.reduce_mean(log_probabilities, axis=-1)


class Classification(_Sentences):
    """One of several labels. Outputs are logits, `(rows, labels)`."""

    name = "classification"
    choices = ("label_smoothing",)

    def classes(self, rows, outputs):
        return rows.labels, outputs.argmax(-1)

    def constant(self, rows, labels):
        counts = np.bincount(rows.labels, minlength=len(labels))
        return np.tile(np.eye(len(labels))[counts.argmax()], (len(rows), 1))

    def losses(self, settings=None):
        if settings is not None and settings.label_smoothing:
            loss = functools.partial(smoothed_crossentropy, share=settings.label_smoothing)
            return {"loss": loss, "metrics": [keras.metrics.MeanMetricWrapper(loss, name="loss_mean")]}
        return {
            "loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            "metrics": [keras.metrics.SparseCategoricalCrossentropy(name="loss_mean", from_logits=True)],
        }

    def served_tokens(self, logits, task):
        return {"probabilities": tf.nn.softmax(logits), "logits": logits}

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


class MultiLabel(_Sentences):
    """Any number of several labels. Outputs are logits, `(rows, labels)`."""

    name = "multi-label"
    choices = ("label_smoothing",)

    def classes(self, rows, outputs):
        return rows.labels.astype(int), (outputs > 0).astype(int)

    def constant(self, rows, labels):
        return np.tile(np.where(rows.labels.mean(0) > 0.5, 1.0, -1.0), (len(rows), 1))

    def losses(self, settings=None):
        about = {"from_logits": True, "label_smoothing": settings.label_smoothing if settings is not None else 0.0}
        return {
            "loss": keras.losses.BinaryCrossentropy(**about),
            "metrics": [keras.metrics.BinaryCrossentropy(name="loss_mean", **about)],
        }

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


class Regression(_Sentences):
    """A number. Outputs are `(rows, 1)`."""

    name = "regression"

    def about(self, rows):
        return {**super().about(rows), "value_range": rows.value_range}

    def predict(self, scorer, rows, *, progress=None):
        """Predicted values, a float32 array `(rows, 1)`, within the rows' range of values if they have one."""
        values = super().predict(scorer, rows, progress=progress)
        if rows.value_range is None:
            return values
        # Infinity has no place at the end of the range.
        return np.where(np.isfinite(values), np.clip(values, *rows.value_range), np.float32(np.nan))

    def constant(self, rows, labels):
        return np.full((len(rows), 1), rows.labels.mean())

    def losses(self, settings=None):
        return {"loss": keras.losses.MeanSquaredError(), "metrics": [keras.metrics.MeanSquaredError(name="loss_mean")]}

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
