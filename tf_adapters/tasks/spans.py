"""Questions with a context each, and the spans of it that answer them: of references, and of predictions."""

import collections.abc
import dataclasses
import hashlib
from typing import Optional, Tuple

import numpy as np

from tf_adapters.tasks.rows import Rows


@dataclasses.dataclass(frozen=True)
class References:
    """The reference answers of each question: a sequence of one list of str a question.

    Attributes:
        texts: object array of str, `(references,)`, those of a question one after the other.
        starts: int32 array, `(references,)`: the first character (code point) of each in its context, -1 where the
            context has another text there.
        splits: int64 array, `(rows + 1,)`: row i has the references `splits[i]:splits[i + 1]`.
    """

    texts: np.ndarray
    starts: np.ndarray
    splits: np.ndarray

    def __len__(self):
        return len(self.splits) - 1

    def __getitem__(self, row):
        return self.texts[self.splits[row] : self.splits[row + 1]].tolist()

    @property
    def row(self):
        """The question of each reference, int64 array `(references,)`."""
        return np.repeat(np.arange(len(self)), np.diff(self.splits))

    def take(self, chosen):
        """The references of the questions `chosen` (int array), in that order."""
        counts = np.diff(self.splits)[chosen]
        splits = np.concatenate([[0], np.cumsum(counts)])
        places = np.arange(splits[-1]) + np.repeat(self.splits[chosen] - splits[:-1], counts)
        return References(texts=self.texts[places], starts=self.starts[places], splits=splits)


@dataclasses.dataclass(frozen=True)
class SpanRows:
    """The questions of one split; a context that many share is held once.

    Attributes:
        ids, questions: object arrays of str, `(rows,)`.
        contexts: object array of str, `(contexts,)`, all different.
        context_of: int32 array, `(rows,)`: the context of each question.
        labels: `References`, or None where the answers are unknown.
    """

    ids: np.ndarray
    questions: np.ndarray
    contexts: np.ndarray
    context_of: np.ndarray
    labels: Optional[References] = None

    kinds = ("question-answering",)

    def __len__(self):
        return len(self.questions)

    def context(self, row):
        """The context of one question, a str."""
        return self.contexts[self.context_of[row]]

    def take(self, chosen):
        """The rows at the indices `chosen` (int array), in that order."""
        return dataclasses.replace(
            self,
            ids=self.ids[chosen],
            questions=self.questions[chosen],
            context_of=self.context_of[chosen],
            labels=None if self.labels is None else self.labels.take(chosen),
        )

    def plain(self):
        """Each context that is used, and each question, as a text without labels, `Rows`."""
        import tensorflow as tf

        with tf.device("CPU:0"):
            return Rows(tf.constant([*self.contexts[np.unique(self.context_of)].tolist(), *self.questions.tolist()]))

    def rows(self):
        """These rows: chunks of files of every kind have this method."""
        return self

    def used_contexts(self):
        """The contexts that the rows have, and which of them each row has: object array, int array."""
        used, context_of = np.unique(self.context_of, return_inverse=True)
        return self.contexts[used], context_of.reshape(-1)

    def digest(self):
        """SHA-256 of questions, contexts and answers, by hashes of the texts that TensorFlow computes in one pass."""
        import tensorflow as tf

        def hashes(texts):
            if not len(texts):
                return np.zeros(0, np.int64)
            return tf.strings.to_hash_bucket_fast(tf.constant(texts.tolist()), 2**62).numpy()

        contexts, context_of = self.used_contexts()
        digest = hashlib.sha256(hashes(self.questions).tobytes())
        digest.update(hashes(contexts)[context_of].tobytes())
        if self.labels is not None:
            digest.update(hashes(self.labels.texts).tobytes())
            digest.update(self.labels.starts.tobytes())
            digest.update(self.labels.splits.tobytes())
        return digest.hexdigest()


class SpanRowsBuilder:
    """Collects questions one at a time.

    Args:
        labelled: bool, whether the questions have answers.
    """

    def __init__(self, *, labelled):
        self.labelled = labelled
        self.ids, self.questions, self.context_of = [], [], []
        self.places = {}  # of each context, in the order of insertion
        self.texts, self.starts, self.counts = [], [], []

    def __len__(self):
        return len(self.ids)

    def add(self, id, question, context, answers=()):
        """Add a question; answers are pairs of text and first character, as in `References`."""
        self.ids.append(id)
        self.questions.append(question)
        self.context_of.append(self.places.setdefault(context, len(self.places)))
        if self.labelled:
            self.counts.append(len(answers))
            for text, start in answers:
                self.texts.append(text)
                self.starts.append(start)

    def rows(self):
        """All questions, `SpanRows`."""
        labels = None
        if self.labelled:
            splits = np.concatenate([[0], np.cumsum(self.counts, dtype=np.int64)])
            labels = References(_objects(self.texts), np.array(self.starts, np.int32), splits)
        return SpanRows(
            ids=_objects(self.ids),
            questions=_objects(self.questions),
            contexts=_objects(self.places),
            context_of=np.array(self.context_of, np.int32),
            labels=labels,
        )


def _objects(texts):
    return np.fromiter(texts, object, len(texts))


@dataclasses.dataclass(frozen=True)
class Answer:
    """A part of a context.

    Attributes:
        text: str, `context[start:end]`; empty if the context has no token.
        start, end: ints, characters (code points) of the context.
        probability: float, among the best answers to the question, which sum to 1.
        n_best: tuple of `Answer`, the best ones of which this is the first; empty in those.
    """

    text: str
    start: int
    end: int
    probability: float
    n_best: Tuple["Answer", ...] = ()


class Answers(collections.abc.Sequence):
    """One `Answer` for each row, made when it is asked for: texts are not stored a second time.

    Args:
        rows: `SpanRows`.
        starts, ends: int arrays, `(rows, n)`, the best first.
        probabilities: float array, `(rows, n)`.
        counts: int array, `(rows,)`: how many of the n a row has.
    """

    def __init__(self, rows, starts, ends, probabilities, counts):
        self.rows = rows
        self.starts = starts
        self.ends = ends
        self.probabilities = probabilities
        self.counts = counts

    def __len__(self):
        return len(self.counts)

    def __getitem__(self, row):
        context = self.rows.context(row)
        columns = (values[row, : self.counts[row]].tolist() for values in (self.starts, self.ends, self.probabilities))
        n_best = tuple(Answer(context[start:end], start, end, number) for start, end, number in zip(*columns))
        if not n_best:
            return Answer("", 0, 0, float(self.probabilities[row, 0]))
        return dataclasses.replace(n_best[0], n_best=n_best)


def n_best_spans(row, start, end, score, *, rows, count):
    """The best spans of each row, out of those that its windows offer.

    A span that several windows offer keeps its greatest score. Probabilities are the softmax of the scores over the
    `count` best of a row. Equal scores are ordered by place.

    Args:
        row, start, end: int arrays, `(spans,)`: the row and the characters of each span.
        score: float array, `(spans,)`.
        rows: int, how many rows there are.
        count: int, the most spans of a row.

    Returns: `starts`, `ends`, `probabilities` and `counts`, as in `Answers`; zeros where a row has fewer.
    """
    order = np.lexsort((-score, end, start, row))
    row, start, end, score = (values[order] for values in (row, start, end, score))
    first = np.ones(len(row), bool)
    first[1:] = (row[1:] != row[:-1]) | (start[1:] != start[:-1]) | (end[1:] != end[:-1])
    order = np.flatnonzero(first)
    order = order[np.lexsort((end[order], start[order], -score[order], row[order]))]
    rank = np.arange(len(order)) - np.searchsorted(row[order], row[order])
    order, rank = order[rank < count], rank[rank < count]
    row = row[order]

    starts, ends = np.zeros((rows, count), np.int32), np.zeros((rows, count), np.int32)
    scores = np.full((rows, count), -np.inf)
    starts[row, rank], ends[row, rank], scores[row, rank] = start[order], end[order], score[order]
    counts = np.bincount(row, minlength=rows)
    exponentials = np.exp(scores - np.where(counts, scores[:, 0], 0.0)[:, np.newaxis])
    totals = exponentials.sum(-1, keepdims=True)
    return starts, ends, exponentials / np.where(totals, totals, 1.0), counts
