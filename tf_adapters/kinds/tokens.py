"""A label for each word of a sentence: parts of speech, names."""

import dataclasses
import functools

import numpy as np
import tensorflow as tf

from tf_adapters.kinds.kind import Kind
from tf_adapters.layers import ops as each_keras
from tf_adapters.tasks.analysis import bootstrap_interval, word_lookup
from tf_adapters.tasks.metrics import METRICS, probabilities
from tf_adapters.text.batching import PackedExamples
from tf_adapters.text.windows import encode_words, word_windows

_CHUNK_ROWS = 4096
_WHITE_SPACE = r"[\pZ\t-\r\x{1c}-\x{1f}\x{85}]"  # as of str.split
_MOST_WORDS_SHOWN = 8


@dataclasses.dataclass(frozen=True)
class WordOutputs:
    """A sequence of one float32 array `(words, labels)` for each row, views of one array.

    Attributes:
        flat: float32 array, `(words of all rows, labels)`.
        splits: int64 array, `(rows + 1,)`: words before each row, and all of them.
    """

    flat: np.ndarray
    splits: np.ndarray

    def __len__(self):
        return len(self.splits) - 1

    def __getitem__(self, row):
        row = range(len(self))[row]  # which knows negative ones, and those beyond the end
        return self.flat[self.splits[row] : self.splits[row + 1]]


class TokenClassification(Kind):
    """A label for each word, from its first piece. Rows are `WordRows`, outputs logits in `WordOutputs`.

    Sentences beyond the encoder's window are cut into overlapping ones (see `text.windows.word_windows`):
    each word is trained on once and predicted once, where it has most context.
    """

    name = "token-classification"
    head = "token-classification"

    def losses(self, settings=None, examples=None, ops=None):
        loss, mean = word_crossentropy(ops or each_keras.keras2)
        return {"loss": loss(name="word_crossentropy"), "metrics": [mean(name="loss_mean")]}

    def loss_weight(self, targets):
        return tf.reduce_sum(tf.cast(targets >= 0, tf.float32))

    def examples(self, rows, tokenizer):
        ids, labels = [], []
        with tf.device("CPU:0"):
            for start in range(0, len(rows), _CHUNK_ROWS):
                windows = word_windows(rows.words[start : start + _CHUNK_ROWS], tokenizer)
                ids.append(windows.input_ids)
                labels.append(_token_labels(windows, rows.labels[start : start + _CHUNK_ROWS].flat_values))
            input_ids = tf.concat(ids, axis=0)
            labels = input_ids.with_values(tf.concat(labels, axis=0))
            return PackedExamples(input_ids=input_ids, token_type_ids=tf.zeros_like(input_ids), labels=labels)

    def predict(self, scorer, rows, *, progress=None):
        """Logits of each word, `WordOutputs`."""
        splits = rows.words.row_splits.numpy()
        flat = None
        for start in range(0, len(rows), _CHUNK_ROWS):
            stop = min(start + _CHUNK_ROWS, len(rows))
            chunk = splits[start : stop + 1] - splits[start]
            windows = word_windows(rows.words[start:stop], scorer.tokenizer)
            # A row is done with its first window or, without words, at once.
            begins_row = np.isin(windows.first, chunk[:-1][np.diff(chunk) > 0])
            for positions, logits in scorer.batches(windows.encoded):
                if flat is None:
                    flat = np.empty((splits[-1], logits.shape[-1]), np.float32)
                words, window, position = windows.words_of(positions)
                flat[splits[start] + words] = logits[window, position]
                if progress is not None:
                    progress(int(begins_row[positions].sum()))
            if progress is not None:
                progress(stop - start - int(begins_row.sum()))
        return WordOutputs(np.empty((0, 0), np.float32) if flat is None else flat, splits)

    def loss(self, rows, outputs, ops=None):
        """The mean over words, of which each counts by its first token as in training."""
        labels = rows.labels.flat_values
        return float(tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, outputs.flat)))

    def score(self, metric, rows, outputs):
        return METRICS[metric](rows.labels, outputs, rows.label_names)

    def classes(self, rows, outputs):
        return rows.labels.flat_values.numpy(), outputs.flat.argmax(-1)

    def constant(self, rows, labels):
        """Each word has the most frequent label."""
        true = rows.labels.flat_values.numpy()
        best = np.eye(len(labels), dtype=np.float32)[np.bincount(true, minlength=len(labels)).argmax()]
        return WordOutputs(np.tile(best, (len(true), 1)), rows.labels.row_splits.numpy())

    def words_alone(self, task, rows):
        return "each word's usual label", WordOutputs(word_lookup(task, rows), rows.labels.row_splits.numpy())

    def interval(self, metric, rows, outputs):
        counts = METRICS[metric].counts(rows.labels, outputs, rows.label_names)

        def score(index):
            right, predicted, true = counts[index].sum(0)
            return 2 * right / max(1, predicted + true)

        return bootstrap_interval(score, len(counts))

    def _records(self, rows, outputs, labels):
        splits, values = outputs.splits, probabilities(outputs.flat, kind="classification")
        # One conversion of all words: a tensor's own indexing costs more than the rest.
        words = [word.decode() for word in rows.words.flat_values.numpy().tolist()]
        names, likely = [labels[number] for number in values.argmax(-1).tolist()], values.max(-1).tolist()
        return [
            {"words": words[start:stop], "labels": names[start:stop], "probabilities": likely[start:stop]}
            for start, stop in zip(splits[:-1].tolist(), splits[1:].tolist())
        ]

    def finite(self, outputs):
        broken = np.concatenate([[0], np.cumsum(~np.isfinite(outputs.flat).all(-1))])
        return broken[outputs.splits[1:]] == broken[outputs.splits[:-1]]

    def served_texts(self, task):
        return ("text",)

    def serve(self, texts, tokenizer, forward, names, task):
        """`word`, `label` and `probabilities` (the label's), `(rows, words)`, and `logits`, `(rows, words, labels)`.

        Words are what white space separates. Behind a row's last word are empty strings and zeros.
        """
        words = tf.strings.split(tf.strings.regex_replace(texts[0], _WHITE_SPACE, " "))
        input_ids, first, last, position = encode_words(words, tokenizer)
        # The encoder takes no batch of no windows.
        missing = tf.cast(tf.size(first) == 0, tf.int64)
        dummy = tf.RaggedTensor.from_row_lengths(tf.fill([missing], tokenizer.cls_id), [missing])
        input_ids = tf.concat([input_ids, dummy], 0)
        logits = forward({"input_ids": input_ids, "token_type_ids": tf.zeros_like(input_ids)})
        window = tf.repeat(tf.range(tf.size(first)), last - first)
        of_words = tf.gather_nd(logits, tf.stack([tf.cast(window, tf.int64), position], -1))
        best = tf.argmax(of_words, -1)
        columns = {
            "word": words.flat_values,
            "label": tf.gather(names, best),
            "probabilities": tf.reduce_max(tf.nn.softmax(of_words), -1),
            "logits": of_words,
        }
        finite = words.with_flat_values(tf.reduce_all(tf.math.is_finite(of_words), -1))
        columns = {name: words.with_flat_values(values).to_tensor() for name, values in columns.items()}
        return {**columns, "finite": tf.reduce_all(finite, 1)}

    def text(self, rows, index):
        return " ".join(word.decode() for word in rows.words[index].numpy().tolist())

    def describe(self, rows, index, output, labels):
        return _marked(rows, index, output.argmax(-1), labels), self.text(rows, index)

    def truth(self, rows, index, labels):
        return _marked(rows, index, rows.labels[index].numpy(), labels)


def _marked(rows, index, numbers, labels):
    """A row's words with their labels; of entities most words are outside."""
    pairs = zip(rows.words[index].numpy().tolist(), (labels[number] for number in numbers.tolist()))
    marked = [f"{word.decode()}/{label}" for word, label in pairs if label != "O"]
    shown = " ".join(marked[:_MOST_WORDS_SHOWN]) + (" ..." if len(marked) > _MOST_WORDS_SHOWN else "")
    return shown or "(none)"


@functools.cache
def word_crossentropy(ops):
    """The classes `WordCrossentropy` and `WordCrossentropyMean` of the Keras of `ops`, a module of `layers.ops`."""

    @ops.registered
    class WordCrossentropy(ops.keras.losses.Loss):
        """Cross-entropy of the tokens that have a label, their mean over the batch.

        A batch without any has the loss 0.

        Call arguments:
            y_true: int tensor, `(batch, length)`, -1 where a token has no label.
            y_pred: logits, `(batch, length, labels)`.
        """

        def call(self, y_true, y_pred):
            losses, labelled = by_row(y_true, y_pred)
            # Keras takes the mean over rows, and rows have unequally many words.
            return losses / ops.maximum(ops.mean(labelled), 1e-9)

    class WordCrossentropyMean(ops.keras.metrics.Mean):
        """Mean of the same over all labelled tokens that came by."""

        def update_state(self, y_true, y_pred, sample_weight=None):
            losses, labelled = by_row(y_true, y_pred)
            return super().update_state(losses / ops.maximum(labelled, 1.0), sample_weight=labelled)

    def by_row(y_true, y_pred):
        """The cross-entropies' sum and how many tokens have a label, two float32 tensors `(batch,)`."""
        y_true = ops.cast(y_true, "int32")
        labelled = ops.cast(y_true >= 0, ops.float32)
        losses = ops.crossentropy(ops.maximum(y_true, 0), ops.cast(y_pred, ops.float32))
        return ops.sums(losses * labelled), ops.sums(labelled)

    return WordCrossentropy, WordCrossentropyMean


def _token_labels(windows, labels):
    """Labels of words as labels of tokens, -1 for those that begin no word; int32, all windows in one row."""
    words, window, position = windows.words_of(np.arange(len(windows.first)))
    tokens = np.full(windows.input_ids.flat_values.shape[0], -1, np.int32)
    tokens[windows.input_ids.row_splits.numpy()[window] + position] = labels.numpy()[words]
    return tokens
