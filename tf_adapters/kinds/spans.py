"""Extractive question answering: the span of a context that answers a question."""

import dataclasses
import functools

import numpy as np
import tensorflow as tf

from tf_adapters.errors import InputError
from tf_adapters.kinds.kind import Kind
from tf_adapters.layers import ops as each_keras
from tf_adapters.ranges import MOST_FLOAT
from tf_adapters.tasks.analysis import bootstrap_interval
from tf_adapters.tasks.metrics import METRICS
from tf_adapters.tasks.spans import Answers
from tf_adapters.text.tokenizer import check_positive
from tf_adapters.text.windows import (
    MOST_QUESTION_TOKENS,
    ContextTokens,
    align,
    cut_windows,
    overlap_of,
    place_windows,
    question_tokens,
    span_labels,
)

_CHUNK_ROWS = 512


class QuestionAnswering(Kind):
    """The start and the end of the answer in a context. Rows are `SpanRows`, outputs `Answers`.

    A context beyond the encoder's window is cut into windows that overlap by a third of it. In training, a window
    without the whole answer points to [CLS]. In prediction, all spans of all windows of a question compete
    by the sum of their start and end logits.

    Args:
        longest_answer: int, tokens of the longest span that is predicted.
        n_best: int, how many answers to a question are kept; their probabilities sum to 1.

    Reference: Devlin et al. 2019, section 4.2.
    """

    name = "question-answering"
    head = "question-answering"
    max_length = 384

    def __init__(self, *, longest_answer=30, n_best=20):
        for argument, value in (("longest_answer", longest_answer), ("n_best", n_best)):
            check_positive(value, argument)
        self.longest_answer = longest_answer
        self.n_best = n_best

    def num_labels(self, labels):
        return 2

    def losses(self, settings=None, examples=None, ops=None):
        outputs, ops = ("start_logits", "end_logits"), ops or each_keras.keras2
        loss = position_loss(ops)(name="position_crossentropy")
        return {
            "loss": {name: loss for name in outputs},
            "loss_weights": {name: 0.5 for name in outputs},
            "metrics": {name: [ops.keras.metrics.MeanMetricWrapper(loss.call, name="loss_mean")] for name in outputs},
        }

    def running_loss(self, logs):
        return 0.5 * (logs["start_logits_loss_mean"] + logs["end_logits_loss_mean"])

    def targets(self, labels):
        """Position and window length for each output, from `Windows.labels`."""
        return {"start_logits": tf.gather(labels, [0, 2], axis=1), "end_logits": tf.gather(labels, [1, 2], axis=1)}

    def examples(self, rows, tokenizer):
        """All windows of the rows whose answers can be learned, `Windows`; its `notes` say what is left out."""
        if rows.labels is None:
            raise InputError("rows.labels is None: training needs answers; give a split that has them.")
        texts, context_of = rows.used_contexts()
        contexts = ContextTokens.of(tokenizer, texts)
        questions, cut = question_tokens(tokenizer, rows.questions)
        row, starts = rows.labels.row, rows.labels.starts
        ends = starts + np.fromiter(map(len, rows.labels.texts), np.int32, len(starts))
        alignment = align(tokenizer, questions, contexts, context_of, row=row, start=starts, end=ends)
        alignment = dataclasses.replace(alignment, cut_questions=cut)
        if not len(alignment.row):
            raise InputError("rows has no question to learn: " + " ".join(alignment.notes))
        with tf.device("CPU:0"):
            questions = tf.gather(questions, alignment.row)
        windows = cut_windows(tokenizer, questions, contexts, context_of[alignment.row])
        return dataclasses.replace(windows, labels=span_labels(windows, alignment, tokenizer), alignment=alignment)

    def predict(self, scorer, rows, *, progress=None):
        """The best spans of each row, `Answers`; NaN as their probabilities if a logit of the row is not finite."""
        parts = [self._predict(scorer, rows.take(index), progress) for index in rows.slices(_CHUNK_ROWS)]
        return Answers(rows, *(np.concatenate(arrays) for arrays in zip(*parts)))

    def _predict(self, scorer, rows, progress):
        """The arrays of `Answers` for as many rows as may lie in memory with all their windows."""
        texts, context_of = rows.used_contexts()
        contexts = ContextTokens.of(scorer.tokenizer, texts)
        questions, _ = question_tokens(scorer.tokenizer, rows.questions)
        windows = cut_windows(scorer.tokenizer, questions, contexts, context_of)
        row, first = windows.row.numpy(), windows.first.numpy()
        begin, after = windows.context_positions(scorer.tokenizer)
        left = np.bincount(row, minlength=len(rows))
        broken, found = np.zeros(len(rows), bool), []
        encoded = windows.encode(scorer.tokenizer, tf.range(len(windows), dtype=tf.int64))
        for positions, logits in scorer.batches(encoded):
            bad = ~np.isfinite(logits).all((1, 2))
            broken[row[positions[bad]]] = True
            with tf.device("CPU:0"):
                found_here = best_spans(
                    np.where(bad[:, np.newaxis, np.newaxis], 0.0, logits), begin[positions], after[positions],
                    longest=self.longest_answer, count=self.n_best,
                )  # fmt: skip
            window, start, end, score = (values.numpy() for values in found_here)
            window = positions[window]
            shift = first[window] - begin[window]
            found.append((row[window], contexts.starts[start + shift], contexts.ends[end + shift], score))
            if progress is not None:
                done = np.bincount(row[positions], minlength=len(rows))
                progress(int(((done > 0) & (left == done)).sum()))
                left -= done
        *places, scores = (np.concatenate(arrays) for arrays in zip(*found))
        with tf.device("CPU:0"):
            best = n_best_spans(*places, scores.astype(np.float64), rows=len(rows), count=self.n_best)
        starts, ends, probabilities, counts = (values.numpy() for values in best)
        probabilities[broken] = np.nan
        return starts, ends, probabilities, counts

    def interval(self, metric, rows, outputs):
        _, f1 = METRICS[metric].each(rows.labels, outputs)
        return bootstrap_interval(lambda index: f1[index].mean(), len(f1))

    def _records(self, rows, outputs, labels):
        return [
            {"id": rows.ids[row], **_record(answer), "n_best": [_record(other) for other in answer.n_best]}
            for row, answer in enumerate(outputs)
        ]

    def finite(self, outputs):
        return np.isfinite(outputs.probabilities).all(-1)

    def served_texts(self, task):
        return ("question", "context")

    def serve(self, texts, tokenizer, forward, names, task):
        """The best answer of each row, and up to `n_best` of them, the best first.

        `answer`, string; `start` and `end`, int32, characters (code points) of the context; `probability`: `(rows,)`.
        `n_best`, strings, and `n_best_probabilities`: `(rows, n_best)`, empty and 0 where there are fewer. Bytes that
        are not UTF-8 count, and are answered, as U+FFFD.
        """
        readable = (tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", replacement_char=0xFFFD) for text in texts)
        question, context = readable
        most = min(MOST_QUESTION_TOKENS, overlap_of(tokenizer.max_length))
        questions = tokenizer.tokenize(question)[:, :most]
        ids, starts, ends = tokenizer.tokenize_with_offsets(context)
        row, start, length = place_windows(ids.row_lengths(), questions.row_lengths(), tokenizer)
        first = tf.gather(ids.row_starts(), row) + start
        part = tf.gather(ids.flat_values, tf.ragged.range(first, first + length))
        asked = tf.gather(questions, row)
        logits = forward(tokenizer.join(asked, part))
        whole = tf.reduce_all(tf.math.is_finite(logits), [1, 2])
        logits = tf.where(whole[:, tf.newaxis, tf.newaxis], logits, 0.0)
        begin = asked.row_lengths() + tokenizer.before_second
        window, one, other, score = best_spans(
            logits, begin, begin + length, longest=self.longest_answer, count=self.n_best
        )
        shift = tf.gather(first - begin, window)
        start, end, probability, count = n_best_spans(
            tf.gather(row, window), tf.gather(starts.flat_values, one + shift),
            tf.gather(ends.flat_values, other + shift), score,
            rows=tf.size(context), count=self.n_best,
        )  # fmt: skip
        texts = tf.strings.substr(
            tf.tile(context[:, tf.newaxis], [1, self.n_best]), start, end - start, unit="UTF8_CHAR"
        )
        n_best = tf.where(tf.range(self.n_best) < count[:, tf.newaxis], texts, "")
        return {
            "answer": n_best[:, 0],
            "start": start[:, 0],
            "end": end[:, 0],
            "probability": probability[:, 0],
            "n_best": n_best,
            "n_best_probabilities": probability,
            "finite": tf.math.unsorted_segment_min(tf.cast(whole, tf.int32), row, tf.size(context)) > 0,
        }

    def served_tokens(self, logits, task):
        return {"start_logits": logits[..., 0], "end_logits": logits[..., 1]}

    def text(self, rows, index):
        return rows.questions[index]

    def describe(self, rows, index, output, labels):
        return f"{output.text} ({output.probability:.2f})", self.text(rows, index)

    def truth(self, rows, index, labels):
        texts = rows.labels.take(np.array([index])).texts
        return texts[0] if len(texts) else "(none)"


def _record(answer):
    return {"answer": answer.text, "probability": answer.probability, "start": answer.start, "end": answer.end}


def best_spans(logits, begin, after, *, longest, count):
    """The best spans of each window by the sum of their first token's start logit and their last one's end logit; also
    in a graph.

    Args:
        logits: float32 tensor or array, `(windows, length, 2)`, start and end.
        begin, after: int64, `(windows,)`: the first position that a span may have, and the one after the last.
        longest: int, the most tokens of a span.
        count: int, the most spans of a window.

    Returns: int64 tensors `window`, `start` and `end` (positions, `end` is the last one) and float32 `score`,
        `(spans,)`.
    """
    length = tf.shape(logits)[1]
    position = tf.range(length, dtype=tf.int64)
    outside = (position < begin[:, tf.newaxis]) | (position >= after[:, tf.newaxis])
    start, end = (tf.where(outside, -np.inf, logits[..., column]) for column in (0, 1))
    end = tf.pad(end, [[0, 0], [0, longest - 1]], constant_values=-np.inf)
    # scores[w, s, d] is that of the span from s to s + d.
    scores = start[:, :, tf.newaxis] + tf.signal.frame(end, longest, 1)
    best, place = tf.math.top_k(tf.reshape(scores, [-1, length * longest]), tf.minimum(count, length * longest))
    found = tf.where(best > -np.inf)
    place = tf.cast(tf.gather_nd(place, found), tf.int64)
    return found[:, 0], place // longest, place // longest + place % longest, tf.gather_nd(best, found)


def n_best_spans(row, start, end, score, *, rows, count):
    """The best spans of each row, out of those that its windows offer; also in a graph.

    A span that several windows offer keeps its greatest score. Probabilities are the softmax of the scores over the
    `count` best of a row. Equal scores are ordered by place.

    Args:
        row, start, end: int tensors or arrays, `(spans,)`: the row and the characters of each span.
        score: float tensor or array, `(spans,)`.
        rows: int, how many rows there are.
        count: int, the most spans of a row.

    Returns: `start` and `end`, int32, and `probability`, of the type of `score`, `(rows, count)`, zeros where a row has
        fewer; and how many there are, int32 `(rows,)`.
    """
    row, start, end = (tf.cast(values, tf.int64) for values in (row, start, end))
    size = 1 + tf.reduce_max(tf.concat([end, [0]], 0))
    spans, index = tf.unique((row * size + start) * size + end)
    score = tf.math.unsorted_segment_max(score, index, tf.size(spans))
    order = tf.argsort(spans)
    order = tf.gather(order, tf.argsort(tf.gather(score, order), direction="DESCENDING", stable=True))
    order = tf.gather(order, tf.argsort(tf.gather(spans, order) // (size * size), stable=True))
    spans, score = tf.gather(spans, order), tf.gather(score, order)
    row = spans // (size * size)
    of_row = tf.math.bincount(tf.cast(row, tf.int32), minlength=rows, maxlength=rows)
    rank = tf.range(tf.size(row)) - tf.gather(tf.cumsum(of_row, exclusive=True), row)
    chosen = rank < count
    place = tf.stack([tf.cast(tf.boolean_mask(row, chosen), tf.int32), tf.boolean_mask(rank, chosen)], -1)
    shape = tf.stack([rows, count])
    empty = tf.fill(shape, tf.constant(-np.inf, score.dtype))
    scores = tf.tensor_scatter_nd_update(empty, place, tf.boolean_mask(score, chosen))
    exponentials = tf.exp(scores - tf.where(of_row > 0, scores[:, 0], tf.zeros_like(scores[:, 0]))[:, tf.newaxis])
    start, end = (
        tf.scatter_nd(place, tf.boolean_mask(tf.cast(values, tf.int32), chosen), shape)
        for values in (spans // size % size, spans % size)
    )
    total = tf.reduce_sum(exponentials, -1, keepdims=True)
    return start, end, tf.math.divide_no_nan(exponentials, total), tf.minimum(of_row, count)


@functools.cache
def position_loss(ops):
    """`position_crossentropy` as a class of the Keras of `ops`, a module of `layers.ops`."""

    @ops.registered
    class PositionCrossentropy(ops.keras.losses.Loss):
        def call(self, y_true, y_pred):
            return position_crossentropy(y_true, y_pred, ops=ops)

    return PositionCrossentropy


def position_crossentropy(targets, logits, *, ops=None):
    """Cross-entropy of a position among those of a window; padding is none of them.

    Args:
        targets: int tensor, `(batch, 2)`: the position, and how long the window is.
        logits: float tensor, `(batch, length)`.
        ops: module of `layers.ops`; None for the first door's.

    Returns: float32 tensor, `(batch,)`.
    """
    ops = ops or each_keras.keras2
    targets, logits = ops.cast(targets, "int32"), ops.cast(logits, ops.float32)
    inside = ops.before(targets[:, 1], logits)
    return ops.crossentropy(targets[:, 0], ops.choose(inside, logits, -MOST_FLOAT))
