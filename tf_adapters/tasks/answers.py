"""Answers to questions: spans of the contexts, with probabilities."""

import collections.abc
import dataclasses
from typing import Tuple

import numpy as np


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
