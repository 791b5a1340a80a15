"""What a score alone does not tell: which classes, how certain, over which languages, and better than what: what the
words say without an encoder, the baselines that a fine-tuned encoder must beat."""

import dataclasses
import re
from typing import Dict, Tuple

import numpy as np

from tf_adapters.tasks.metrics import METRICS


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
    several, asked = true.ndim == 2, indices
    if several and len(labels) == 1:
        # scikit-learn takes one column for two classes, of which 1 is the label.
        true, predicted, asked = true[:, 0], predicted[:, 0], [1]
    numbers = precision_recall_fscore_support(true, predicted, labels=asked, zero_division=0)
    classes = {
        label: {"precision": float(p), "recall": float(r), "f1": float(f), "rows": int(n)}
        for label, p, r, f, n in zip(labels, *numbers)
    }
    return ClassReport(classes, None if several else confusion_matrix(true, predicted, labels=indices))


def best_thresholds(true, logits):
    """What each label's logit must exceed for the highest F1 of that label.

    A threshold lies in the middle between two logits, or below all of them. Of several that are as good it is the one
    nearest to 0; and it is 0 for a label that all rows have, or none.

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
        lower = np.append(values[1:], values[-1:] - 1)
        cuts = np.flatnonzero(values > lower)
        if not len(has) or right[-1] in (0, len(has)):
            thresholds.append(0.0)
            continue
        middle = (values + lower)[cuts] / 2
        f1, usual = right[cuts] / (cuts + 1 + right[-1]), np.count_nonzero(values > 0)
        best = np.flatnonzero(f1 == f1.max())
        nearest = best[np.abs(middle[best]).argmin()]
        of_usual = right[usual - 1] / (usual + right[-1]) if usual else 0.0
        thresholds.append(middle[nearest] if f1[nearest] > of_usual else 0.0)
    return np.array(thresholds, np.float32)


def bootstrap_interval(score, count, *, resamples=1000) -> Tuple[float, float]:
    """A 95 % percentile interval of a score over rows drawn with replacement.

    Args:
        score: function of an int array of row indices, `(count,)`, that returns a float.
        count: int, rows.
        resamples: int.

    Returns: lower and upper bound.
    """
    random = np.random.RandomState(0)
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
        "distant": [language for language in scores if language in OTHER_FAMILIES],
    }
    return {
        name: sum(scores[language] for language in languages) / len(languages)
        for name, languages in groups.items()
        if languages
    }


# Of logistic regression, or of ridge regression the inverse; validation chooses.
STRENGTHS = (0.1, 1.0, 10.0, 100.0)


def tf_idf(task, rows, *, seed=0, most_rows=None):
    """Words and pairs of words, weighted by TF-IDF, and a linear model, whose strength validation chooses.

    Args:
        task: `Task` of the kind "classification", "multi-label" or "regression".
        rows: labelled `Rows` to predict.
        seed: int.
        most_rows: int, at most so many training rows, drawn by the seed; None for all.

    Returns: `(outputs of the rows, as of the kind's Kind.predict; numbers of the validation rows, a dict; parameters)`.

    Raises:
        ValueError: the texts have no words.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    from tf_adapters.tasks.rows import sample_rows

    training = task.train if most_rows is None else sample_rows(task.train, count=most_rows, seed=seed)
    vectors = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2 if len(training) > 1000 else 1)
    features = vectors.fit_transform(texts_of(training))
    validation, rest = (vectors.transform(texts_of(other)) for other in (task.validation, rows))
    metric, best = METRICS[task.metric], None
    for strength in STRENGTHS:
        fitted = _fitted(task, features, training.labels, strength, seed)
        numbers = metric(task.validation.labels, fitted(validation))
        if best is None or numbers[metric.primary] > best[1][metric.primary]:
            best = fitted, numbers
    fitted, numbers = best
    return fitted(rest), numbers, features.shape[1] * max(1, len(task.labels))


def _fitted(task, features, labels, strength, seed):
    """A function from features to outputs."""
    from sklearn.linear_model import LogisticRegression, Ridge

    def logistic(targets):
        return LogisticRegression(C=strength, max_iter=1000, random_state=seed).fit(features, targets)

    if task.kind == "regression":
        model = Ridge(alpha=1 / strength, random_state=seed).fit(features, labels)
        return lambda others: model.predict(others)[:, np.newaxis]
    if task.kind == "multi-label":

        def decider(column):
            # A label that every row has, or none, needs no model.
            if column.min() == column.max():
                return lambda others: np.full(others.shape[0], float(20 * column[0] - 10))
            return logistic(column).decision_function

        deciders = [decider(column) for column in labels.T]
        return lambda others: np.stack([decide(others) for decide in deciders], axis=1)
    present = np.unique(labels)
    model = logistic(labels) if len(present) > 1 else None

    def score(others):
        scores = np.full((others.shape[0], len(task.labels)), -1e3)
        scores[:, present] = 0.0 if model is None else model.predict_log_proba(others)
        return scores

    return score


def word_lookup(task, rows):
    """Each word's most frequent label in training, and the most frequent of all for a new one: float32 array
    `(words of all rows, labels)` of the `WordRows` of a `Task` of the kind "token-classification"."""
    words, labels = task.train.words.flat_values.numpy(), task.train.labels.flat_values.numpy()
    known, number = np.unique(words, return_inverse=True)
    counts = np.zeros((len(known), len(task.labels)), np.int64)
    np.add.at(counts, (number, labels), 1)
    new = rows.words.flat_values.numpy()
    place = np.minimum(np.searchsorted(known, new), len(known) - 1)
    best = np.where(known[place] == new, counts.argmax(1)[place], counts.sum(0).argmax())
    return np.eye(len(task.labels), dtype=np.float32)[best]


def texts_of(rows):
    """First and second texts in one, for words that know no order; a list of str."""
    parts = [part.numpy() for part in rows.texts(range(len(rows))) if part is not None]
    return [" ".join(text.decode() for text in row) for row in zip(*parts)]
