"""Exact match and F1 of answers, as the SQuAD v1.1 evaluation computes them.

Both compare normalised texts: lower case, without the ASCII punctuation, without the
English articles a, an and the, white space made single. So it is for every language, in
the published numbers on XQuAD too: an article of German or Spanish counts as a word,
and a text without spaces (Chinese, Thai) is one word, whose F1 is its exact match.

Reference: Rajpurkar et al. 2016, section 6.1.
"""

import collections
import dataclasses
import re
import string
from typing import Tuple

import numpy as np

from tf_adapters.errors import InputError

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text):
    """A text as it is compared: `"The Panthers' 308."` is `"panthers 308"`."""
    text = text.lower().translate(_WITHOUT_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def word_f1(answer, reference):
    """F1 of the words of two normalised texts, counted with repetition; 0 without a common word."""
    answer, reference = answer.split(), reference.split()
    common = sum((collections.Counter(answer) & collections.Counter(reference)).values())
    # 2 / (1 / precision + 1 / recall)
    return 2 * common / (len(answer) + len(reference)) if common else 0.0


@dataclasses.dataclass(frozen=True)
class SpanMetric:
    """Exact match and F1 of answers, each the greatest over a question's references.

    Attributes:
        name, primary, kinds: as in `Metric`.

    Call arguments:
        labels: sequence of one list of str a question, its references.
        answers: sequence of one str or `Answer` a question.

    Returns: dict with "f1" and "exact_match", means over the questions from 0 to 1; NaN if the
        probability of an `Answer` is.

    Raises: InputError, if there are no questions or references, or their numbers differ.

    Example:
    >>> from tf_adapters.tasks.metrics import METRICS
    >>> METRICS["squad"]([["the red fox", "fox"], ["1976"]], ["A fox", "in 1976"])
    {'f1': 0.8333333333333333, 'exact_match': 0.5}
    """

    name: str
    primary: str
    kinds: Tuple[str, ...]

    def __call__(self, labels, answers):
        exact_match, f1 = self.each(labels, answers)
        return {"f1": float(f1.mean()), "exact_match": float(exact_match.mean())}

    def each(self, labels, answers):
        """Exact match and F1 of each question, two float arrays `(rows,)`."""
        if labels is None:
            raise InputError(f"metric {self.name!r} needs reference answers, and these questions have none.")
        if not len(labels) or len(labels) != len(answers):
            raise InputError(
                f"metric {self.name!r} got references of {len(labels)} questions and {len(answers)} answers: "
                "give at least one question, and one answer for each."
            )
        scores = np.empty((2, len(labels)))
        for row, (references, answer) in enumerate(zip(labels, answers)):
            if not references:
                raise InputError(f"metric {self.name!r} needs references, and question {row} has none: leave it out.")
            text = normalize_answer(getattr(answer, "text", answer))
            references = [normalize_answer(reference) for reference in references]
            scores[:, row] = text in references, max(word_f1(text, reference) for reference in references)
            if np.isnan(getattr(answer, "probability", 0.0)):
                scores[:, row] = np.nan
        return scores


SPAN_METRICS = (SpanMetric("squad", "f1", ("question-answering",)),)
