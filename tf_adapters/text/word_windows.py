"""Sentences of words as what the encoder reads, every word in exactly one place.

A sentence that is too long becomes windows, cut between words. Each begins with as many of
the words before it as fit in a third of the window, for context, and the last one reaches
back as far as it has room. A word that stands in several belongs to the one in which the
smaller of its two contexts is largest, the rule of BERT's own code for question answering
(Devlin et al., 2019).
"""

import dataclasses

import numpy as np
import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class WordWindows:
    """Encoded windows, and where each word's first piece stands.

    Attributes:
        input_ids: int32 RaggedTensor, `(windows, (tokens))`: `[CLS]`, pieces, `[SEP]`.
        first, last: int64 arrays, `(windows,)`: the words that belong to window i are
            `first[i]` to `last[i] - 1`, counted over all sentences; each belongs to one.
        position: int64 array, `(words,)`: place of a word's first piece in its window.
    """

    input_ids: tf.RaggedTensor
    first: np.ndarray
    last: np.ndarray
    position: np.ndarray

    @property
    def encoded(self):
        """The windows as `WordPiece.encode` returns texts, a dict."""
        return {"input_ids": self.input_ids, "token_type_ids": tf.zeros_like(self.input_ids)}

    def words_of(self, windows):
        """The words of some windows, and where their first pieces stand in these.

        Args:
            windows: int array of window indices.

        Returns: three int64 arrays, `(words,)`: the word, the place of its window in `windows`,
            and the place of its first piece there.
        """
        counts = (self.last - self.first)[windows]
        words = _ranges(self.first[windows], counts)
        return words, np.repeat(np.arange(len(counts)), counts), self.position[words]


def word_windows(words, wordpiece):
    """Encode sentences of words, each word by itself.

    The pieces are those of HuggingFace's tokenizer with `is_split_into_words=True`, except that
    a word of which nothing is left (a control character) is `[UNK]` here and missing there.
    A word of more pieces than a window holds keeps its first ones.

    Args:
        words: string RaggedTensor, `(sentences, (words))`.
        wordpiece: `WordPiece`.

    Returns: `WordWindows`; a sentence without words has none.
    """
    room = wordpiece.max_length - 2
    with tf.device("CPU:0"):
        distinct, occurrence = tf.unique(words.flat_values, out_idx=tf.int64)
        pieces = tf.gather(_pieces(distinct, wordpiece, room), occurrence)
        splits = pieces.row_splits.numpy()
        start, stop, first, last = _windows(splits, words.row_splits.numpy(), room, room // 3)
        inner = tf.gather(pieces.flat_values, tf.ragged.range(splits[start], splits[stop]))
        ends = [tf.fill([len(start), 1], token) for token in (wordpiece.cls_id, wordpiece.sep_id)]
        input_ids = tf.concat([ends[0], inner, ends[1]], axis=1)
    return WordWindows(
        input_ids=input_ids,
        first=first,
        last=last,
        position=1 + splits[:-1] - np.repeat(splits[start], last - first),
    )


def _pieces(words, wordpiece, room):
    """Pieces of each word, one to `room` of them: int32 RaggedTensor, `(words, (pieces))`."""
    pieces = wordpiece.tokenize(words)
    empty = tf.cast(pieces.row_lengths() == 0, tf.int64)
    unknown = tf.RaggedTensor.from_row_lengths(tf.fill([tf.reduce_sum(empty)], wordpiece.unk_id), empty)
    return tf.concat([pieces, unknown], axis=1)[:, :room]


def _windows(ends, rows, room, overlap):
    """Windows of all rows, cut between words.

    Args:
        ends: int64 array, `(words + 1,)`: pieces before each word, and all of them.
        rows: int64 array, `(rows + 1,)`: words before each row, and all of them.
        room, overlap: ints, the most pieces in a window, and in what two share.

    Returns: four int64 arrays, `(windows,)`: the words from `start` to `stop` that a window
        holds, and those from `first` to `last` that belong to it.
    """
    row = np.flatnonzero(rows[1:] > rows[:-1])
    start, found = rows[row], []
    # One turn for the first windows of all rows, one for the second ones of those that have one, ...
    while len(row):
        end = rows[row + 1]
        stop = np.minimum(np.searchsorted(ends, ends[start] + room, side="right") - 1, end)
        is_last = stop == end
        reaching_back = np.maximum(np.searchsorted(ends, ends[end] - room), rows[row])
        found.append((row, np.where(is_last, reaching_back, start), stop))
        row, stop = row[~is_last], stop[~is_last]
        # The next window has to hold the word that did not fit, whatever that leaves for context.
        start = np.maximum(np.searchsorted(ends, ends[stop] - overlap), np.searchsorted(ends, ends[stop + 1] - room))
    if not found:
        return tuple(np.zeros((4, 0), np.int64))
    row, start, stop = (np.concatenate(parts) for parts in zip(*found))
    order = np.argsort(row, kind="stable")
    row, start, stop = row[order], start[order], stop[order]
    # A word goes to the later of two windows as soon as it has more context before it there than after it here.
    cut = np.searchsorted(ends[:-1] + ends[1:], ends[start[1:]] + ends[stop[:-1]], side="right")
    same_row = row[1:] == row[:-1]
    first = np.concatenate([start[:1], np.where(same_row, cut, start[1:])])
    last = np.concatenate([np.where(same_row, cut, stop[:-1]), stop[-1:]])
    used = last > first
    return start[used], stop[used], first[used], last[used]


def _ranges(starts, counts):
    """`starts[i]`, `starts[i] + 1`, ..., `counts[i]` of each, one after the other."""
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(counts.sum())
