"""Windows of texts that are too long: questions with the parts of a context (`[CLS] question [SEP] part [SEP]`) and the
tokens of their answers, and sentences of words, every word in exactly one place.

A sentence that is too long becomes windows, cut between words. Each begins with as many of
the words before it as fit in a third of the window, for context, and the last one reaches
back as far as it has room. A word that stands in several belongs to the one in which the
smaller of its two contexts is largest, the rule of BERT's own code for question answering
(Devlin et al., 2019).
"""

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
class Alignment:
    """Which token span each question learns, of the characters of its reference answers, and what became of the others.

    Attributes:
        row: int64 array, `(kept,)`: the questions that have a span, ascending.
        first, last: int64 arrays, `(kept,)`: its tokens, counted from the context's first.
        questions: int, all questions.
        elsewhere: int, questions left out since the context has another text where the answer should start.
        no_token: int, questions left out since the answer's characters are of no token (white space, controls).
        too_long: int, questions left out since no window holds the whole answer.
        inside_token: int, answers that begin or end inside a token, which is learned as a whole.
        cut_questions: int, questions whose end is cut.
    """

    row: np.ndarray
    first: np.ndarray
    last: np.ndarray
    questions: int
    elsewhere: int
    no_token: int
    too_long: int
    inside_token: int
    cut_questions: int = 0

    @property
    def left_out(self):
        """Questions that have no span and are not learned."""
        return self.elsewhere + self.no_token + self.too_long

    @property
    def notes(self):
        """Sentences on what is left out or changed, a tuple; empty if nothing is."""
        notes = []
        if self.left_out:
            reasons = {
                "the context has another text at answer_start": self.elsewhere,
                "the answer is of no token": self.no_token,
                "no window holds the whole answer": self.too_long,
            }
            reasons = "; ".join(f"{reason}: {count:,}" for reason, count in reasons.items() if count)
            notes.append(f"Training questions left out: {self.left_out:,} of {self.questions:,} ({reasons}).")
        if self.inside_token:
            notes.append(f"Answers that begin or end inside a token, which is learned whole: {self.inside_token:,}.")
        if self.cut_questions:
            notes.append(f"Questions cut at their end to leave room for the context: {self.cut_questions:,}.")
        return tuple(notes)


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
    alignment: Optional[Alignment] = None

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

    def context_positions(self, tokenizer):
        """Where the part of the context stands in each window: first position and the one after, `(windows,)`."""
        first = tokenizer.before_second + self.questions.row_lengths().numpy()[self.row.numpy()]
        return first, first + self.length.numpy()


def overlap_of(max_length):
    """Tokens of the context that two neighbouring windows share.

    Raises: InputError, if windows of `max_length` tokens are too short for a question and a context.
    """
    if max_length < SHORTEST_WINDOW:
        raise InputError(
            f"{{max_length}} has no room for a question and its context: give at least {SHORTEST_WINDOW}.",
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


def align(tokenizer, questions, contexts, context_of, *, row, start, end):
    """Find the tokens of the first reference of each question that some window holds.

    A span is the tokens that have a character in the answer.

    Args:
        questions, contexts, context_of: as in `windows.cut_windows`.
        row: int array, `(references,)`, ascending: the question of each reference.
        start, end: int arrays, `(references,)`: its first character in the context and the one after its last; start is
            -1 where the context has another text.

    Returns: `Alignment`.
    """
    text = context_of[row]
    there = start >= 0
    first, last = contexts.find(text, np.where(there, start, 0), np.where(there, end, 0))
    of_tokens = there & (first <= last)
    inside = np.zeros(len(row), bool)
    inside[of_tokens] = (contexts.starts[first[of_tokens]] < start[of_tokens]) | (
        contexts.ends[last[of_tokens]] > end[of_tokens]
    )
    begin = contexts.splits[text]
    first, last = first - begin, last - begin

    # Of the windows that hold the first token, the last one reaches farthest.
    room = (tokenizer.max_length - tokenizer.pair_specials - questions.row_lengths().numpy())[row]
    step = room - overlap_of(tokenizer.max_length)
    windows = 1 + np.maximum(0, -(-(contexts.splits[text + 1] - begin - room) // step))
    held = of_tokens & (last < np.minimum(first // step, windows - 1) * step + room)

    count = len(context_of)

    def questions_with(references):
        found = np.zeros(count, bool)
        found[row[references]] = True
        return found

    kept, chosen = np.unique(row[held], return_index=True)
    chosen = np.flatnonzero(held)[chosen]
    without_text, without_token = ~questions_with(there), ~questions_with(of_tokens)
    return Alignment(
        row=kept,
        first=first[chosen],
        last=last[chosen],
        questions=count,
        elsewhere=int(without_text.sum()),
        no_token=int((without_token & ~without_text).sum()),
        too_long=int((~questions_with(held) & ~without_token).sum()),
        inside_token=int(inside[chosen].sum()),
    )


def span_labels(windows, alignment, tokenizer):
    """Labels of windows whose questions are those of `alignment.row`, in that order; see `Windows.labels`."""
    row, first = windows.row.numpy(), windows.start.numpy()
    context, after = windows.context_positions(tokenizer)
    begin = alignment.first[row] - first + context
    end = alignment.last[row] - first + context
    held = (begin >= context) & (end < after)
    return np.stack([begin * held, end * held, after + 1], axis=-1).astype(np.int32)


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
        words = tf.ragged.range(self.first[windows], self.last[windows])
        window, words = words.value_rowids().numpy(), words.values.numpy()
        return words, window, self.position[words]


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
        input_ids = tokenizer.join(inner)["input_ids"]
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
