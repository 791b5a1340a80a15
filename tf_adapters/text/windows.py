"""Questions with the parts of a long context: `[CLS] question [SEP] part [SEP]`."""

import dataclasses
from typing import Optional

import numpy as np
import tensorflow as tf

from tf_adapters.errors import InputError

MOST_QUESTION_TOKENS = 64
SHORTEST_WINDOW = 16
_TEXTS_AT_ONCE = 1024  # tokenizing takes some hundred bytes a character


@dataclasses.dataclass(frozen=True)
class ContextTokens:
    """The tokens of many texts, flat, and the characters of the texts that they stand for.

    Attributes:
        ids, starts, ends: int32 arrays, `(tokens,)`, as of `WordPiece.tokenize_with_offsets`.
        splits: int64 array, `(texts + 1,)`: text i has the tokens `splits[i]:splits[i + 1]`.
    """

    ids: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    splits: np.ndarray

    @classmethod
    def of(cls, tokenizer, texts):
        """Tokenize an array of str, some at a time."""
        parts = [
            tokenizer.tokenize_with_offsets(texts[first : first + _TEXTS_AT_ONCE].tolist())
            for first in range(0, len(texts), _TEXTS_AT_ONCE)
        ]
        flat = [np.concatenate([part[index].flat_values for part in parts]) for index in range(3)]
        lengths = np.concatenate([part[0].row_lengths() for part in parts])
        return cls(*flat, splits=np.concatenate([[0], np.cumsum(lengths)]))

    def __len__(self):
        return len(self.splits) - 1

    def find(self, text, first, after):
        """The tokens of spans of characters.

        Args:
            text, first, after: int arrays, `(spans,)`: the text of each span, its first character and the one after its
                last.

        Returns: `(first, last)`, int64 arrays: the first and the last token, counted over all texts,
            that have a character in the span; first is greater than last where there is none.
        """
        lengths = np.diff(self.splits)
        # Texts one after the other: the last token's end of each is as far as a search may go.
        size = np.zeros(len(self), np.int64)
        size[lengths > 0] = self.ends[self.splits[1:][lengths > 0] - 1]
        base = np.concatenate([[0], np.cumsum(size)[:-1]])
        shift = np.repeat(base, lengths)
        first, after = (base[text] + np.minimum(place, size[text]) for place in (first, after))
        return (
            np.searchsorted(self.ends + shift, first, side="right"),
            np.searchsorted(self.starts + shift, after, side="left") - 1,
        )


@dataclasses.dataclass(frozen=True)
class Windows:
    """Pairs of a question and a part of its context; `training_batches` takes them in place of rows.

    The tokens of a context are stored once, however many questions and windows share it.

    Attributes:
        questions: int32 RaggedTensor, `(rows, (tokens))`.
        tokens: int32 tensor, `(tokens,)`, those of all contexts.
        row: int64 tensor, `(windows,)`, the question of each window.
        first, length: int64 tensors, `(windows,)`: the window's part of `tokens`.
        start: int64 tensor, `(windows,)`: `first`, counted from the first token of the window's context.
        labels: int32 array, `(windows, 3)`: positions of the answer's first and last token in the window, both 0
            ([CLS]) if it does not hold the answer, and the window's length; or None.
        alignment: `Alignment` behind the labels, or None.
    """

    questions: tf.RaggedTensor
    tokens: tf.Tensor
    row: tf.Tensor
    first: tf.Tensor
    start: tf.Tensor
    length: tf.Tensor
    labels: Optional[np.ndarray] = None
    alignment: Optional["Alignment"] = None  # noqa: F821

    def __len__(self):
        return int(self.row.shape[0])

    @property
    def notes(self):
        """Sentences on questions that are left out or changed, to show once before training."""
        return self.alignment.notes if self.alignment is not None else ()

    def encode(self, tokenizer, index):
        """The windows at an int64 tensor of indices, a dict as of `Tokenizer.encode`; also in a graph."""
        with tf.device("CPU:0"):
            first = tf.gather(self.first, index)
            places = tf.ragged.range(first, first + tf.gather(self.length, index))
            part = places.with_values(tf.gather(self.tokens, places.values))
            return tokenizer.join(tf.gather(self.questions, tf.gather(self.row, index)), part)

    def context_positions(self):
        """Where the part of the context stands in each window: first position and the one after, `(windows,)`."""
        first = 2 + self.questions.row_lengths().numpy()[self.row.numpy()]
        return first, first + self.length.numpy()


def overlap_of(max_length):
    """Tokens of the context that two neighbouring windows share.

    Raises: InputError, if windows of `max_length` tokens are too short for a question and a context.
    """
    if max_length < SHORTEST_WINDOW:
        raise InputError(
            f"{{max_length}} has no room for a question and its context: give at least {SHORTEST_WINDOW}, better 256.",
            max_length=max_length,
        )
    return max_length // 3


def question_tokens(tokenizer, questions):
    """Token rows of an array of questions, cut at the end, and how many were cut.

    At most `MOST_QUESTION_TOKENS` stay, and at most a third of the window, so that each window shows something new.
    """
    most = min(MOST_QUESTION_TOKENS, overlap_of(tokenizer.max_length))
    parts, cut = [], 0
    with tf.device("CPU:0"):
        for first in range(0, len(questions), _TEXTS_AT_ONCE):
            ids = tokenizer.tokenize(questions[first : first + _TEXTS_AT_ONCE].tolist())
            cut += int(tf.math.count_nonzero(ids.row_lengths() > most))
            parts.append(ids[:, :most])
        return tf.concat(parts, axis=0), cut


def cut_windows(tokenizer, questions, contexts, context_of):
    """All windows of questions.

    The last window of a context is shorter than the others. A context without a token has one window without it.

    Args:
        questions: int32 RaggedTensor, `(rows, (tokens))`, as of `question_tokens`.
        contexts: `ContextTokens`.
        context_of: int array, `(rows,)`.

    Returns: `Windows` without labels.
    """
    row, start, length = place_windows(np.diff(contexts.splits)[context_of], questions.row_lengths(), tokenizer)
    with tf.device("CPU:0"):
        return Windows(
            questions=questions,
            tokens=tf.constant(contexts.ids),
            row=row,
            first=tf.gather(tf.constant(contexts.splits[context_of], tf.int64), row) + start,
            start=start,
            length=length,
        )


def place_windows(contexts, questions, tokenizer):
    """Where the windows of questions lie in their contexts; also in a graph.

    Args:
        contexts, questions: int64 tensors, `(rows,)`: tokens of each row's context and question.
        tokenizer: `Tokenizer`, which says how many tokens a window has.

    Returns: three int64 tensors, `(windows,)`: the row, the first token of the context, and how many.
    """
    with tf.device("CPU:0"):
        contexts, questions = tf.cast(contexts, tf.int64), tf.cast(questions, tf.int64)
        room = tokenizer.max_length - tokenizer.pair_specials - questions
        step = room - overlap_of(tokenizer.max_length)
        counts = 1 + tf.maximum(tf.constant(0, tf.int64), -(-(contexts - room) // step))
        row = tf.repeat(tf.range(tf.size(counts, out_type=tf.int64)), counts)
        number = tf.ragged.range(counts).values
        start = number * tf.gather(step, row)
        return row, start, tf.minimum(tf.gather(room, row), tf.gather(contexts, row) - start)


def window_steps(tokenizer, questions):
    """Tokens of the context that a window has room for, and from one window's first to the next one's, `(rows,)`."""
    room = tokenizer.max_length - tokenizer.pair_specials - questions.row_lengths().numpy()
    return room, room - overlap_of(tokenizer.max_length)
