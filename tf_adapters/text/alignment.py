"""From the characters of reference answers to the tokens that a model learns."""

import dataclasses

import numpy as np

from tf_adapters.text.windows import window_steps


@dataclasses.dataclass(frozen=True)
class Alignment:
    """Which token span each question learns, and what became of the others.

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
    room, step = (values[row] for values in window_steps(tokenizer, questions))
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


def span_labels(windows, alignment):
    """Labels of windows whose questions are those of `alignment.row`, in that order; see `Windows.labels`."""
    row, first = windows.row.numpy(), windows.start.numpy()
    context, after = windows.context_positions()
    begin = alignment.first[row] - first + context
    end = alignment.last[row] - first + context
    held = (begin >= context) & (end < after)
    return np.stack([begin * held, end * held, after + 1], axis=-1).astype(np.int32)
