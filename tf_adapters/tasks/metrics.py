"""Metrics by name. A new one is an entry in `METRICS`.

Each is better when greater. A metric returns all its numbers by name; the one that `primary` names chooses the best
epoch, and `kinds` are those of task that it is for. scikit-learn, SciPy and seqeval compute them where they can, and
are imported at the first use. If a logit is NaN or infinite every value is NaN, which is never the best.
"""

import collections
import dataclasses
import re
import string
import warnings
from typing import Callable, Tuple

import numpy as np

from tf_adapters.errors import InputError

_CLASSES, _SCORES, _SETS = "classification", "regression", "multi-label"
_WORDS = "token-classification"
_ENTITY_TAG = re.compile(r"O|[BIES](-.+)?")
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


def check_metric(name, *, kind, labels=None):
    """Raise InputError unless `name` is a metric for this kind and, if they are given, these labels."""
    fitting = [metric.name for metric in METRICS.values() if kind in metric.kinds]
    if name not in METRICS:
        raise InputError(f"metric is {name!r} and must be one of {', '.join(fitting or METRICS)}.")
    if name not in fitting:
        raise InputError(f"metric {name!r} is not for {kind} tasks: use one of {', '.join(fitting)}.")
    if name == "f1" and labels is not None and len(labels) != 2:
        raise InputError(f"metric 'f1' needs two labels, and there are {len(labels)}: use 'macro-f1' or 'micro-f1'.")
    if name == "entity-f1" and labels is not None and not are_entity_tags(labels):
        raise InputError(
            f"metric 'entity-f1' needs tags such as B-PER, I-PER and O, and the labels are {', '.join(labels[:20])}: "
            "use 'token-accuracy'."
        )


def _numbers(values, outputs):
    """The values as floats, all NaN if an output is no number."""
    finite = bool(np.isfinite(outputs).all())
    return {name: float(value) if finite else float("nan") for name, value in values.items()}


# Texts


@dataclasses.dataclass(frozen=True)
class Metric:
    """A metric of texts; call it with labels and logits.

    Undefined values (a correlation or Matthews coefficient of constant predictions, F1 of a label of several that is
    neither there nor predicted) are 0; a class that is neither is no part of a mean over classes.

    Attributes:
        name: str, its key in `METRICS`.
        primary: str, the key of the number that counts, in what the call returns.
        kinds: the kinds of task that it is for.
        compute: function of labels and predictions, both as in `Rows.labels`.

    Call arguments:
        labels: array, as `Rows.labels`.
        logits: array, `(rows, labels)`, or `(rows,)` or `(rows, 1)` for regression.

    Returns: dict from name to float.

    Raises: InputError, if there are no rows or labels, or their numbers differ.

    Example:
    >>> from tf_adapters.tasks.metrics import METRICS
    >>> METRICS["accuracy"]([0, 1], [[2.0, 1.0], [3.0, 1.0]])
    {'accuracy': 0.5}
    """

    name: str
    primary: str
    kinds: Tuple[str, ...]
    compute: Callable

    def __call__(self, labels, logits):
        if labels is None:
            raise InputError(f"metric {self.name!r} needs labels, and these rows have none (a GLUE test split?).")
        labels, logits = np.asarray(labels), np.asarray(logits, np.float64)
        if self.kinds == (_SCORES,):
            logits = logits.reshape(len(logits), -1)[:, 0] if logits.ndim > 1 and logits.shape[1:] == (1,) else logits
            fits = logits.shape == labels.shape and labels.ndim == 1
        elif labels.ndim == 2:
            fits = logits.shape == labels.shape
        else:
            fits = logits.ndim == 2 and labels.shape == logits.shape[:1]
        if not fits or not len(labels):
            raise InputError(
                f"metric {self.name!r} got labels of shape {labels.shape} and logits of shape {logits.shape}: give at "
                "least one row, and one label row for each row of logits."
            )
        predictions = np.where(np.isfinite(logits), logits, 0.0)
        if labels.ndim == 2:
            predictions = (predictions > 0).astype(np.int32)  # a probability above 0.5
        elif self.kinds != (_SCORES,):
            predictions = predictions.argmax(-1)
        return _numbers(self.compute(labels, predictions), logits)


def _accuracy(labels, predictions):
    return {"accuracy": np.mean(labels == predictions)}


def _f1(labels, predictions):
    from sklearn.metrics import f1_score

    return {"f1": f1_score(labels, predictions, pos_label=1, zero_division=0), **_accuracy(labels, predictions)}


def _averaged_f1(average):
    """F1 over several classes or labels, and how many rows are right."""

    def compute(labels, predictions):
        from sklearn.metrics import f1_score

        if labels.shape[1:] == (1,):
            # scikit-learn would take one column for two classes.
            f1 = f1_score(labels[:, 0], predictions[:, 0], zero_division=0)
        else:
            f1 = f1_score(labels, predictions, average=average, zero_division=0)
        if labels.ndim == 2:
            return {f"{average}_f1": f1, "exact_match": np.mean((labels == predictions).all(-1))}
        return {f"{average}_f1": f1, **_accuracy(labels, predictions)}

    return compute


_macro_f1, _micro_f1 = _averaged_f1("macro"), _averaged_f1("micro")


def _multi_label(labels, predictions):
    return {**_micro_f1(labels, predictions), **_macro_f1(labels, predictions)}


def _matthews(labels, predictions):
    from sklearn.metrics import matthews_corrcoef

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # constant predictions divide by zero
        matthews = np.nan_to_num(matthews_corrcoef(labels, predictions))
    return {"matthews": matthews, **_accuracy(labels, predictions)}


def _correlations(labels, predictions):
    from scipy import stats

    labels, pearson, spearman = labels.astype(np.float64), 0.0, 0.0
    if np.ptp(labels) and np.ptp(predictions):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # almost constant predictions
            pearson = np.nan_to_num(stats.pearsonr(labels, predictions)[0])
            spearman = np.nan_to_num(stats.spearmanr(labels, predictions)[0])
    mse = np.mean((labels - predictions) ** 2)
    return {"pearson_spearman": (pearson + spearman) / 2, "pearson": pearson, "spearman": spearman, "mse": mse}


def probabilities(logits, *, kind):
    """Probabilities of logits, in float64: softmax, sigmoid, or the logits themselves for regression.

    Args:
        logits: array, the last axis over labels.
        kind: "classification", "regression" or "multi-label".

    Returns: float64 array of the same shape.
    """
    logits = np.asarray(logits, np.float64)
    if kind == _SCORES:
        return logits
    if kind == _SETS:
        return np.exp(-np.logaddexp(0.0, -logits))
    if kind != _CLASSES:
        raise InputError(f"kind is {kind!r} and must be one of {_CLASSES}, {_SCORES}, {_SETS}.")
    exponentials = np.exp(logits - logits.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


# Words


@dataclasses.dataclass(frozen=True)
class WordMetric(Metric):
    """A metric of words; call it with labels and logits.

    Attributes:
        name, primary, kinds: as in `Metric`.
        compute: function of true and predicted classes (int arrays, `(words,)`), row splits (int array, `(rows + 1,)`)
            and label names, that returns the numbers.
        count: function of the same, that returns an int array, `(rows, 3)`: what each row has right, has predicted, and
            has in truth. The primary number is that of all rows, twice the right ones divided by the sum of the two
            others.

    Call arguments:
        labels: int32 tf.RaggedTensor, `(rows, (words))`, as `WordRows.labels`.
        outputs: logits, `WordOutputs`.
        label_names: names of the classes in index order.

    Returns: dict from name to float.

    Raises: InputError, if there are no words or labels, or their numbers differ.
    """

    count: Callable

    def __call__(self, labels, outputs, label_names=()):
        return _numbers(self.compute(*self._arguments(labels, outputs, label_names)), outputs.flat)

    def counts(self, labels, outputs, label_names=()):
        """What `count` says of each row, an int array `(rows, 3)`."""
        return self.count(*self._arguments(labels, outputs, label_names))

    def _arguments(self, labels, outputs, label_names):
        if labels is None:
            raise InputError(f"metric {self.name!r} needs labels, and these rows have none.")
        true, splits = labels.flat_values.numpy(), labels.row_splits.numpy()
        if not len(true) or not np.array_equal(splits, outputs.splits):
            raise InputError(
                f"metric {self.name!r} got {len(true)} labels in {len(splits) - 1} rows, and outputs of "
                f"{len(outputs.flat)} words in {len(outputs)}: give at least one word, and as many outputs as labels "
                "in each row."
            )
        return true, outputs.flat.argmax(-1), splits, tuple(label_names)


def are_entity_tags(labels):
    """Whether the label names are tags of entities in the IOB or IOBES scheme ("B-PER", "I-PER", "O")."""
    return set(labels) - {"O"} != set() and all(_ENTITY_TAG.fullmatch(label) for label in labels)


def default_word_metric(labels=None):
    """The usual metric for these label names: of entities if they all look like tags of them, else of tags."""
    return "entity-f1" if labels and are_entity_tags(labels) else "token-accuracy"


def _token_accuracy(true, predicted, splits, label_names):
    from sklearn.metrics import f1_score

    return {**_accuracy(true, predicted), "macro_f1": f1_score(true, predicted, average="macro", zero_division=0)}


def _right_words(true, predicted, splits, label_names):
    before = np.concatenate([[0], np.cumsum(true == predicted)])
    words = np.diff(splits)
    return np.stack([np.diff(before[splits]), words, words], axis=-1)


def _entity_f1(true, predicted, splits, label_names):
    from seqeval.metrics.sequence_labeling import precision_recall_fscore_support

    tags = [_tags(classes, splits, label_names) for classes in (true, predicted)]
    # Of a tag "O" alone nothing can be divided, and zero is what is meant.
    precision, recall, f1, _ = precision_recall_fscore_support(*tags, average="micro", zero_division=0)
    return {"f1": f1, "precision": precision, "recall": recall, **_accuracy(true, predicted)}


def _right_entities(true, predicted, splits, label_names):
    from seqeval.metrics.sequence_labeling import get_entities

    pairs = zip(*(_tags(classes, splits, label_names) for classes in (true, predicted)))
    entities = ((set(get_entities(row)) for row in pair) for pair in pairs)
    return np.array([(len(real & found), len(found), len(real)) for real, found in entities])


def _tags(classes, splits, label_names):
    """Label names in a list for each row."""
    names = np.asarray(label_names, object)[classes].tolist()
    return [names[start:stop] for start, stop in zip(splits[:-1], splits[1:])]


# Answers


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


class SpanMetric:
    """Exact match and F1 of answers as the SQuAD v1.1 evaluation computes them, each the greatest over a question's
    references.

    Both compare normalised texts: lower case, without the ASCII punctuation, without the English articles a, an and
    the, white space made single. So it is for every language, in the published numbers on XQuAD too: an article of
    German or Spanish counts as a word, and a text without spaces (Chinese, Thai) is one word, whose F1 is its exact
    match.

    Call arguments:
        labels: sequence of one list of str a question, its references.
        answers: sequence of one str or `Answer` a question.

    Returns: dict with "f1" and "exact_match", means over the questions from 0 to 1; NaN if the probability of an
        `Answer` is.

    Raises: InputError, if there are no questions or references, or their numbers differ.

    Example:
    >>> from tf_adapters.tasks.metrics import METRICS
    >>> METRICS["squad"]([["the red fox", "fox"], ["1976"]], ["A fox", "in 1976"])
    {'f1': 0.8333333333333333, 'exact_match': 0.5}

    Reference: Rajpurkar et al. 2016, section 6.1.
    """

    name, primary, kinds = "squad", "f1", ("question-answering",)

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


# Hidden tokens


class Perplexity:
    """Perplexity of the hidden tokens, the exponential of their mean cross-entropy.

    Call arguments:
        labels: of no account: the texts are their own.
        outputs: float array `(rows, 3)`: sum of the cross-entropies, number of hidden tokens, number of those guessed.

    Returns: dict of `log_likelihood` (the mean, in nats; greater is better, and it counts), `perplexity` and
    `accuracy`.

    Raises: InputError, if no token is hidden.
    """

    name, primary, kinds = "perplexity", "log_likelihood", ("masked-lm",)

    def __call__(self, labels, outputs):
        loss, count, right = np.asarray(outputs, np.float64).sum(0)
        if not count:
            raise InputError("outputs has no hidden token: the held-out texts are too few or too short; give more.")
        with np.errstate(over="ignore"):
            return {
                "log_likelihood": float(-loss / count),
                "perplexity": float(np.exp(loss / count)),
                "accuracy": float(right / count),
            }


METRICS = {
    metric.name: metric
    for metric in (
        Metric("accuracy", "accuracy", (_CLASSES,), _accuracy),
        Metric("f1", "f1", (_CLASSES,), _f1),
        Metric("macro-f1", "macro_f1", (_CLASSES, _SETS), _macro_f1),
        Metric("micro-f1", "micro_f1", (_CLASSES, _SETS), _micro_f1),
        Metric("matthews", "matthews", (_CLASSES,), _matthews),
        Metric("pearson-spearman", "pearson_spearman", (_SCORES,), _correlations),
        Metric("spearman", "spearman", (_SCORES,), _correlations),
        Metric("pearson", "pearson", (_SCORES,), _correlations),
        Metric("multi-label", "micro_f1", (_SETS,), _multi_label),
        WordMetric("token-accuracy", "accuracy", (_WORDS,), _token_accuracy, _right_words),
        WordMetric("entity-f1", "f1", (_WORDS,), _entity_f1, _right_entities),
        SpanMetric(),
        Perplexity(),
    )
}
