"""Metrics against numbers calculated by hand."""

import math
import warnings

import numpy as np
import pytest

from tf_adapters.errors import InputError
from tf_adapters.tasks.metrics import METRICS, check_metric, probabilities
from tf_adapters.tasks.own_files import READERS, metric_of

NAN = float("nan")


def logits_of(classes, count):
    """Logits whose greatest column is the given class, none of them a probability."""
    return np.eye(count)[list(classes)] * 7 - 3


@pytest.fixture(autouse=True)
def no_warning_reaches_the_user():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


TWO, OF_TWO = [1, 1, 1, 0, 0], logits_of([1, 1, 0, 1, 0], 2)
THREE, OF_THREE = [0, 0, 1, 2], logits_of([0, 1, 1, 1], 3)
SCORES, PEARSON = np.float32([1, 2, 3]), 5 / math.sqrt(28)
CORRELATED = {"pearson_spearman": (PEARSON + 1) / 2, "pearson": PEARSON, "spearman": 1.0, "mse": 3.0}
SETS = np.float32([[1, 0, 1], [0, 1, 0], [1, 1, 0]]), np.float32([[2, -1, -0.1], [-1, 3, 0], [-1, 0.1, -3]])


def test_metrics_by_hand():
    for name, labels, logits, expected in (
        ("accuracy", [0, 1, 2, 2], logits_of([0, 1, 2, 1], 3), {"accuracy": 0.75}),
        # The second label is the positive one: 2 found, 1 wrongly, 1 missed: 4 / (4 + 1 + 1).
        ("f1", TWO, OF_TWO, {"f1": 2 / 3, "accuracy": 3 / 5}),
        # (2*1 - 1*1) / sqrt(3 * 3 * 2 * 2)
        ("matthews", TWO, OF_TWO, {"matthews": 1 / 6, "accuracy": 3 / 5}),
        # F1 by class: 2/3 (1 right, 1 missed), 1/2 (1 right, 2 wrong), 0.
        ("macro-f1", THREE, OF_THREE, {"macro_f1": 7 / 18, "accuracy": 0.5}),
        ("micro-f1", THREE, OF_THREE, {"micro_f1": 0.5, "accuracy": 0.5}),
        # Deviations (-1, 0, 1) and (-2, -1, 3): 5 / sqrt(2 * 14); the order is the same.
        ("pearson-spearman", SCORES, [1.0, 2.0, 6.0], CORRELATED),
        # A probability above one half: 3 right, none wrong, 2 missed; F1 by label 2/3, 1, 0; one row exact.
        ("multi-label", *SETS, {"micro_f1": 6 / 8, "macro_f1": 5 / 9, "exact_match": 1 / 3}),
        # What is not defined is 0.
        ("matthews", [0, 1, 1], logits_of([1, 1, 1], 2), {"matthews": 0.0, "accuracy": 2 / 3}),
        ("f1", [0, 1, 1], logits_of([0, 0, 0], 2), {"f1": 0.0, "accuracy": 1 / 3}),
        ("pearson", SCORES, [3.0] * 3, {"pearson_spearman": 0.0, "pearson": 0.0, "spearman": 0.0, "mse": 5 / 3}),
        ("micro-f1", np.zeros((2, 2)), -np.ones((2, 2)), {"micro_f1": 0.0, "exact_match": 1.0}),
        # Logits that are no numbers are never the best.
        ("accuracy", [0, 1], [[NAN, 1.0], [0.0, 1.0]], {"accuracy": NAN}),
        ("pearson", SCORES, [math.inf, 1.0, 2.0], dict.fromkeys(CORRELATED, NAN)),
    ):
        values = METRICS[name](labels, logits)
        assert values == pytest.approx(expected, nan_ok=True) and METRICS[name].primary in values
        assert METRICS[name].name == name and all(type(value) is float for value in values.values())


def test_almost_constant_scores_give_a_number_and_no_warning():
    assert math.isfinite(METRICS["pearson-spearman"](SCORES, [1.0, 1.0, 1.0 + 2e-16])["pearson_spearman"])


def test_each_kind_has_a_default_metric_of_its_own_kind():
    for kind, reader in READERS.items():
        check_metric(metric_of(kind), kind=reader.scored_as or kind)
    for check, message in (
        (lambda: check_metric("bleu", kind="regression"), "metric is 'bleu' and must be one of pearson-spearman"),
        (lambda: check_metric("accuracy", kind="multi-label"), "metric 'accuracy' is not for multi-label tasks: use"),
        (lambda: check_metric("f1", kind="classification", labels="abc"), "'f1' needs two labels, and there are 3"),
    ):
        with pytest.raises(InputError, match=message):
            check()


def test_labels_that_do_not_fit_are_refused():
    for name, labels, shape in (
        ("accuracy", [], (0, 2)),
        ("accuracy", [0, 1], (3, 2)),
        ("pearson-spearman", [0.0, 1.0], (2, 2)),
        ("multi-label", np.zeros((2, 3)), (2, 2)),
    ):
        with pytest.raises(InputError, match=f"metric '{name}' (needs|got) labels"):
            METRICS[name](labels, np.zeros(shape))


def test_probabilities_are_softmax_sigmoid_or_the_score_itself():
    third, large = [math.log(2), 0.0], np.float32([[3e38, -3e38], [1000, 1001]])
    np.testing.assert_allclose(probabilities([third], kind="classification"), [[2 / 3, 1 / 3]], rtol=1e-15)
    np.testing.assert_allclose(probabilities([third], kind="multi-label"), [[2 / 3, 1 / 2]], rtol=1e-15)
    np.testing.assert_array_equal(probabilities([2.5], kind="regression"), [2.5])
    softmax = probabilities(large, kind="classification")
    assert softmax.dtype == np.float64
    np.testing.assert_allclose(softmax.sum(-1), 1, rtol=1e-15)
    np.testing.assert_array_equal(probabilities(large, kind="multi-label")[0], [1, 0])
