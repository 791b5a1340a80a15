"""What a score alone does not tell: which classes, how certain, over which languages, and better than what."""

import dataclasses
import re
from typing import Dict, Tuple

import numpy as np


@dataclasses.dataclass(frozen=True)
class ClassReport:
    """Precision, recall and F1 of each class, and which classes are taken for which.

    Attributes:
        classes: dict from a label's name to a dict of precision, recall, f1 (floats from 0
            to 1) and rows (int, how many have the label).
        confusion: int array, `(labels, labels)`: rows of the true label i that got label j;
            None where a row can have several labels.
    """

    classes: Dict[str, Dict[str, float]]
    confusion: np.ndarray

    def most_confused(self, count=10):
        """Pairs of labels that are most often confused: list of (true, predicted, rows), the most first."""
        names = list(self.classes)
        wrong = self.confusion * (1 - np.eye(len(names), dtype=int))
        order = np.argsort(-wrong, axis=None, kind="stable")[:count]
        pairs = zip(*np.unravel_index(order, wrong.shape))
        return [(names[true], names[taken], int(wrong[true, taken])) for true, taken in pairs if wrong[true, taken]]


def class_report(true, predicted, labels):
    """Per-class numbers by scikit-learn; undefined ones are 0.

    Args:
        true, predicted: int arrays of classes, `(rows,)`, or of 0 and 1, `(rows, labels)`.
        labels: label names in index order.

    Returns: `ClassReport`.
    """
    from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

    true, predicted, indices = np.asarray(true), np.asarray(predicted), np.arange(len(labels))
    numbers = precision_recall_fscore_support(true, predicted, labels=indices, zero_division=0)
    classes = {
        label: {"precision": float(p), "recall": float(r), "f1": float(f), "rows": int(n)}
        for label, p, r, f, n in zip(labels, *numbers)
    }
    return ClassReport(classes, None if true.ndim == 2 else confusion_matrix(true, predicted, labels=indices))


def best_thresholds(true, logits):
    """What each label's logit must exceed for the highest F1 of that label.

    A threshold lies in the middle between two logits. Of several that are as good it is the one nearest to 0; and it is
    0 for a label that all rows have, or none.

    Args:
        true: array of 0 and 1, `(rows, labels)`.
        logits: float array of that shape.

    Returns: float32 array, `(labels,)`.

    Reference: Lipton et al. 2014, Optimal Thresholding of Classifiers to Maximize F1 Measure, section 4.
    """
    thresholds = []
    for has, values in zip(np.asarray(true).astype(bool).T, np.asarray(logits, np.float64).T):
        order = np.argsort(-values, kind="stable")
        values, right = values[order], np.cumsum(has[order])
        # A cut behind the last of equal logits, and before any that is lower.
        cuts = np.flatnonzero(values[:-1] > values[1:])
        if not len(cuts) or right[-1] in (0, len(has)):
            thresholds.append(0.0)
            continue
        middle = (values[cuts] + values[cuts + 1]) / 2
        f1, usual = right[cuts] / (cuts + 1 + right[-1]), np.count_nonzero(values > 0)
        best = np.flatnonzero(f1 == f1.max())
        nearest = best[np.abs(middle[best]).argmin()]
        of_usual = right[usual - 1] / (usual + right[-1]) if usual else 0.0
        thresholds.append(middle[nearest] if f1[nearest] > of_usual else 0.0)
    return np.array(thresholds, np.float32)


def bootstrap_interval(score, count, *, resamples=1000, seed=0) -> Tuple[float, float]:
    """A 95 % percentile interval of a score over rows drawn with replacement.

    Args:
        score: function of an int array of row indices, `(count,)`, that returns a float.
        count: int, rows.
        resamples: int.
        seed: int.

    Returns: lower and upper bound.
    """
    random = np.random.RandomState(seed)
    scores = [score(random.randint(count, size=count)) for _ in range(resamples)]
    low, high = np.percentile(scores, [2.5, 97.5])
    return float(low), float(high)


def summary_of_seeds(values):
    """Mean, standard deviation (n - 1) and standard error of one number over seeds; the latter two None for one
    seed."""
    values = np.asarray(values, np.float64)
    spread = float(values.std(ddof=1)) if len(values) > 1 else None
    return {
        "mean": float(values.mean()),
        "sd": spread,
        "sem": None if spread is None else spread / len(values) ** 0.5,
        "n": len(values),
    }


# ISO 639-1 codes of the languages in XTREME, in XNLI, and of the usual UD treebanks.
INDO_EUROPEAN = frozenset(
    "af be bg bn bs ca cs cy da de el en es fa fo fr ga gd gl gu hi hr hsb hy is it ku la lt lv mk mr nb ne nl nn no "
    "or pa pl pt ro ru sa sk sl sq sr sv tg uk ur".split()
)
OTHER_FAMILIES = frozenset(
    "ar az eu et fi he hu id ja jv ka kk kn ko ml mn ms mt my qu sw ta te th tl tr tt ug uz vi wo yo zh".split()
)


def language_of(task):
    """The language code in a task's name ("xnli/sw", "ud/fr_sequoia", "ner/wikiann-tr"), or None."""
    match = re.search(r"(?:^|[/_.-])([a-z]{2,3})(?:_[a-z]+)?$", task.lower())
    return match[1] if match and match[1] in INDO_EUROPEAN | OTHER_FAMILIES else None


def group_means(scores, *, source="en"):
    """Means over languages as He et al. 2021 report them (section 4, table 3).

    Args:
        scores: dict from language code to a float.
        source: code of the language that was trained on.

    Returns: dict: "all", "target" (all but the source language) and "distant" (those outside
        the Indo-European family), without groups that have no language.
    """
    groups = {
        "all": list(scores),
        "target": [language for language in scores if language != source],
        "distant": [language for language in scores if language not in INDO_EUROPEAN],
    }
    return {
        name: sum(scores[language] for language in languages) / len(languages)
        for name, languages in groups.items()
        if languages
    }
