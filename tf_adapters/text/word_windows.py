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
        """The windows as `Tokenizer.encode` returns texts, a dict."""
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


def word_windows(words, tokenizer):
    """Encode sentences of words, each word by itself.

    The pieces are those of HuggingFace's tokenizer with `is_split_into_words=True`, except that
    a word of which nothing is left (a control character) is `[UNK]` here and missing there.
    A word of more pieces than a window holds keeps its first ones.

    Args:
        words: string RaggedTensor, `(sentences, (words))`.
        tokenizer: `Tokenizer`.

    Returns: `WordWindows`; a sentence without words has none.
    """
    input_ids, *arrays = encode_words(words, tokenizer)
    return WordWindows(input_ids, *(array.numpy() for array in arrays))


def encode_words(words, tokenizer):
    """The fields of `WordWindows` as tensors, in their order; also in a graph."""
    room = tokenizer.max_length - tokenizer.single_specials
    with tf.device("CPU:0"):
        distinct, occurrence = tf.unique(words.flat_values, out_idx=tf.int64)
        pieces = tf.gather(_pieces(distinct, tokenizer, room), occurrence)
        splits = pieces.row_splits
        start, stop, first, last = _windows(splits, words.row_splits, room, room // 3)
        inner = tf.gather(pieces.flat_values, tf.ragged.range(tf.gather(splits, start), tf.gather(splits, stop)))
        ends = [tf.fill(tf.stack([tf.size(start), 1]), token) for token in (tokenizer.cls_id, tokenizer.sep_id)]
        input_ids = tf.concat([ends[0], inner, ends[1]], axis=1)
        position = 1 + splits[:-1] - tf.repeat(tf.gather(splits, start), last - first)
    return input_ids, first, last, position


def _pieces(words, tokenizer, room):
    """Pieces of each word, one to `room` of them: int32 RaggedTensor, `(words, (pieces))`."""
    pieces = tokenizer.tokenize_words(words)
    empty = tf.cast(pieces.row_lengths() == 0, tf.int64)
    unknown = tf.RaggedTensor.from_row_lengths(tf.fill([tf.reduce_sum(empty)], tokenizer.unk_id), empty)
    return tf.concat([pieces, unknown], axis=1)[:, :room]


def _windows(ends, rows, room, overlap):
    """Windows of all rows, cut between words.

    Args:
        ends: int64 tensor, `(words + 1,)`: pieces before each word, and all of them.
        rows: int64 tensor, `(rows + 1,)`: words before each row, and all of them.
        room, overlap: ints, the most pieces in a window, and in what two share.

    Returns: four int64 tensors, `(windows,)`: the words from `start` to `stop` that a window
        holds, and those from `first` to `last` that belong to it.
    """
    ends, rows = tf.convert_to_tensor(ends, tf.int64), tf.convert_to_tensor(rows, tf.int64)

    def search(values, side="left", among=ends):
        return tf.searchsorted(among, values, side=side, out_type=tf.int64)

    # One turn for the first windows of all rows, one for the second ones of those that have one, ...
    def turn(row, start, rows_found, starts_found, stops_found):
        end = tf.gather(rows, row + 1)
        stop = tf.minimum(search(tf.gather(ends, start) + room, "right") - 1, end)
        is_last = stop == end
        reaching_back = tf.maximum(search(tf.gather(ends, end) - room), tf.gather(rows, row))
        found = [
            tf.concat(parts, 0)
            for parts in (
                (rows_found, row),
                (starts_found, tf.where(is_last, reaching_back, start)),
                (stops_found, stop),
            )
        ]
        row, stop = (tf.boolean_mask(values, ~is_last) for values in (row, stop))
        # The next window has to hold the word that did not fit, whatever that leaves for context.
        start = tf.maximum(search(tf.gather(ends, stop) - overlap), search(tf.gather(ends, stop + 1) - room))
        return row, start, *found

    row = tf.where(rows[1:] > rows[:-1])[:, 0]
    nothing = tf.zeros([0], tf.int64)
    _, _, row, start, stop = tf.while_loop(
        lambda row, *_: tf.size(row) > 0, turn, [row, tf.gather(rows, row), nothing, nothing, nothing],
        shape_invariants=[tf.TensorShape([None])] * 5,
    )  # fmt: skip
    order = tf.argsort(row, stable=True)
    row, start, stop = (tf.gather(values, order) for values in (row, start, stop))
    # A word goes to the later of two windows as soon as it has more context before it there than after it here.
    cut = search(tf.gather(ends, start[1:]) + tf.gather(ends, stop[:-1]), "right", ends[:-1] + ends[1:])
    same_row = row[1:] == row[:-1]
    first = tf.concat([start[:1], tf.where(same_row, cut, start[1:])], 0)
    last = tf.concat([tf.where(same_row, cut, stop[:-1]), stop[-1:]], 0)
    return tuple(tf.boolean_mask(values, last > first) for values in (start, stop, first, last))


def _ranges(starts, counts):
    """`starts[i]`, `starts[i] + 1`, ..., `counts[i]` of each, one after the other."""
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(counts.sum())
