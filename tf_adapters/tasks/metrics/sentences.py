"""Metrics of texts, from the labels and the raw outputs (logits) of a head, by scikit-learn and SciPy."""

import dataclasses
import warnings
from typing import Callable, Tuple

import numpy as np

from tf_adapters.errors import InputError


@dataclasses.dataclass(frozen=True)
class Metric:
    """A named metric; call it with labels and logits.

    Undefined values (a correlation or Matthews coefficient of constant
    predictions, F1 of a class that is neither there nor predicted) are 0. If a
    logit is NaN or infinite every value is NaN, which is never the best.

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
        if self.kinds == ("regression",):
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
        finite = bool(np.isfinite(logits).all())
        predictions = _predictions(labels, np.where(np.isfinite(logits), logits, 0.0), self.kinds)
        values = self.compute(labels, predictions)
        return {name: float(value) if finite else float("nan") for name, value in values.items()}


def _predictions(labels, logits, kinds):
    if kinds == ("regression",):
        return logits
    if labels.ndim == 2:
        return (logits > 0).astype(np.int32)  # a probability above 0.5
    return logits.argmax(-1)


def _accuracy(labels, predictions):
    return {"accuracy": np.mean(labels == predictions)}


def _f1(labels, predictions):
    from sklearn.metrics import f1_score

    return {"f1": f1_score(labels, predictions, pos_label=1, zero_division=0), **_accuracy(labels, predictions)}


def _averaged_f1(labels, predictions, average):
    from sklearn.metrics import f1_score

    if labels.shape[1:] == (1,):
        # scikit-learn would take one column for two classes.
        return f1_score(labels[:, 0], predictions[:, 0], zero_division=0)
    return f1_score(labels, predictions, average=average, zero_division=0)


def _macro_f1(labels, predictions):
    return {"macro_f1": _averaged_f1(labels, predictions, "macro"), **_exact(labels, predictions)}


def _micro_f1(labels, predictions):
    return {"micro_f1": _averaged_f1(labels, predictions, "micro"), **_exact(labels, predictions)}


def _exact(labels, predictions):
    if labels.ndim == 2:
        return {"exact_match": np.mean((labels == predictions).all(-1))}
    return _accuracy(labels, predictions)


def _multi_label(labels, predictions):
    return {**_micro_f1(labels, predictions), "macro_f1": _averaged_f1(labels, predictions, "macro")}


def _matthews(labels, predictions):
    from sklearn.metrics import matthews_corrcoef

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # constant predictions divide by zero
        matthews = np.nan_to_num(matthews_corrcoef(labels, predictions))
    return {"matthews": matthews, **_accuracy(labels, predictions)}


def _pearson_spearman(labels, predictions):
    from scipy import stats

    pearson = spearman = 0.0
    if np.ptp(labels) and np.ptp(predictions):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # almost constant predictions
            pearson = np.nan_to_num(stats.pearsonr(labels.astype(np.float64), predictions)[0])
            spearman = np.nan_to_num(stats.spearmanr(labels, predictions)[0])
    mse = np.mean((labels.astype(np.float64) - predictions) ** 2)
    return {"pearson_spearman": (pearson + spearman) / 2, "pearson": pearson, "spearman": spearman, "mse": mse}


_CLASSES, _SCORES, _SETS = "classification", "regression", "multi-label"
SENTENCE_METRICS = (
    Metric("accuracy", "accuracy", (_CLASSES,), _accuracy),
    Metric("f1", "f1", (_CLASSES,), _f1),
    Metric("macro-f1", "macro_f1", (_CLASSES, _SETS), _macro_f1),
    Metric("micro-f1", "micro_f1", (_CLASSES, _SETS), _micro_f1),
    Metric("matthews", "matthews", (_CLASSES,), _matthews),
    Metric("pearson-spearman", "pearson_spearman", (_SCORES,), _pearson_spearman),
    Metric("spearman", "spearman", (_SCORES,), _pearson_spearman),
    Metric("pearson", "pearson", (_SCORES,), _pearson_spearman),
    Metric("multi-label", "micro_f1", (_SETS,), _multi_label),
)


def probabilities(logits, *, kind):
    """Probabilities of logits, in float64: softmax, sigmoid, or the logits themselves for regression.

    Args:
        logits: array, the last axis over labels.
        kind: "classification", "regression" or "multi-label".

    Returns: float64 array of the same shape.
    """
    if kind not in (_CLASSES, _SCORES, _SETS):
        raise InputError(f"kind is {kind!r} and must be one of {_CLASSES}, {_SCORES}, {_SETS}.")
    logits = np.asarray(logits, np.float64)
    if kind == "regression":
        return logits
    if kind == "multi-label":
        return np.exp(-np.logaddexp(0.0, -logits))
    exponentials = np.exp(logits - logits.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)
