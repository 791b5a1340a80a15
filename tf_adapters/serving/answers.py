"""What logits of tasks of different kinds and sizes say, row by row."""

import numpy as np
import tensorflow as tf

from tf_adapters.kinds.kind import NOT_FINITE

NOT_UTF8 = "the text is not UTF-8"
KINDS = ("classification", "multi-label", "regression")


def answers_of(logits, slots, *, task, known, readable, names, ranges):
    """The outputs of an `AdapterBank`, in a graph.

    Args:
        logits: float32 `(batch, widest)`.
        slots: dict of the int32 columns `slot`, `kind` (a place in `KINDS`) and `outputs`, each `(batch,)`.
        task: strings `(batch,)`, as they were asked for.
        known, readable: bool `(batch,)`: is there such a task, is its text UTF-8.
        names: strings `(batch, widest)`, the labels of each row's task.
        ranges: float32 `(batch, 2)`, least and greatest value of a regression.

    Returns: dict, as a call of the bank returns it.
    """
    shown = tf.strings.unicode_transcode(task, "UTF-8", "UTF-8", errors="replace", replacement_char=0xFFFD)
    missing = tf.where(
        slots["slot"] == -2,
        "the bank has changed: trace this graph anew",
        tf.strings.join(["unknown task '", shown, "'"]),
    )
    finite = tf.reduce_all(tf.math.is_finite(logits), -1)
    error = tf.where(known, tf.where(readable, tf.where(finite, "", NOT_FINITE), NOT_UTF8), missing)
    outputs = tf.where(error == "", slots["outputs"], 0)
    given = tf.range(tf.shape(logits)[1]) < outputs[:, tf.newaxis]
    kind = {name: slots["kind"] == number for number, name in enumerate(KINDS)}
    several, number = kind["multi-label"], kind["regression"]
    logits = tf.where(given, logits, 0.0)
    # Of a row without outputs the softmax has nothing to divide by.
    softmax = tf.nn.softmax(tf.where(given | (outputs == 0)[:, tf.newaxis], logits, -np.inf))
    probabilities = tf.where(
        given & ~number[:, tf.newaxis], tf.where(several[:, tf.newaxis], tf.sigmoid(logits), softmax), 0.0
    )
    best = tf.one_hot(tf.argmax(probabilities, -1), tf.shape(logits)[1], on_value=True, off_value=False)
    chosen = tf.where(several[:, tf.newaxis], logits > 0, best) & given & ~number[:, tf.newaxis]
    chosen_names = tf.ragged.boolean_mask(names, chosen)
    low, high = tf.unstack(ranges, axis=1)
    value = tf.minimum(tf.maximum(logits[:, 0], low), high)
    return {
        "label": tf.strings.reduce_join(chosen_names, -1, separator="|"),
        "probabilities": probabilities,
        "logits": logits,
        "outputs": outputs,
        "value": tf.where(number & (outputs > 0), value, 0.0),
        "error": error,
    }


def is_utf8(text):
    """Whether strings are UTF-8, bool of their shape; in a graph."""
    return tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace", replacement_char=0xFFFD) == text
