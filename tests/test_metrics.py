"""Metrics against numbers calculated by hand."""

import math
import warnings

import numpy as np
import pytest

from tf_adapters.errors import InputError
from tf_adapters.tasks.metrics import METRICS, check_metric, probabilities
from tf_adapters.tasks.readers import READERS, metric_of


def logits_of(classes, count):
    """Logits whose greatest column is the given class, none of them a probability."""
    return np.eye(count)[list(classes)] * 7 - 3


@pytest.fixture(autouse=True)
def no_warning_reaches_the_user():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_accuracy_is_the_share_of_right_classes():
    assert METRICS["accuracy"]([0, 1, 2, 2], logits_of([0, 1, 2, 1], 3)) == {"accuracy": 0.75}


def test_f1_takes_the_second_label_as_positive():
    # 2 true positives, 1 false positive, 1 false negative: 4 / (4 + 1 + 1).
    values = METRICS["f1"]([1, 1, 1, 0, 0], logits_of([1, 1, 0, 1, 0], 2))
    assert values == pytest.approx({"f1": 2 / 3, "accuracy": 3 / 5})


def test_macro_f1_is_the_mean_of_the_classes_and_micro_f1_counts_all_rows():
    # F1 by class: 2/3 (1 right, 1 missed), 1/2 (1 right, 2 wrong), 0.
    labels, logits = [0, 0, 1, 2], logits_of([0, 1, 1, 1], 3)
    assert METRICS["macro-f1"](labels, logits) == pytest.approx({"macro_f1": 7 / 18, "accuracy": 0.5})
    assert METRICS["micro-f1"](labels, logits) == pytest.approx({"micro_f1": 0.5, "accuracy": 0.5})


def test_matthews_of_a_small_table():
    # (2*1 - 1*1) / sqrt(3 * 3 * 2 * 2)
    values = METRICS["matthews"]([1, 1, 1, 0, 0], logits_of([1, 1, 0, 1, 0], 2))
    assert values == pytest.approx({"matthews": 1 / 6, "accuracy": 3 / 5})


@pytest.mark.parametrize("predictions", [[1.0, 2.0, 6.0], [[1.0], [2.0], [6.0]]])
def test_pearson_spearman_is_the_mean_of_both(predictions):
    # Deviations (-1, 0, 1) and (-2, -1, 3): 5 / sqrt(2 * 14); the order is the same.
    values = METRICS["pearson-spearman"](np.float32([1, 2, 3]), predictions)
    pearson = 5 / math.sqrt(28)
    assert values == pytest.approx(
        {"pearson_spearman": (pearson + 1) / 2, "pearson": pearson, "spearman": 1.0, "mse": 3.0}
    )


def test_multi_label_counts_labels_with_a_probability_above_one_half():
    labels = np.float32([[1, 0, 1], [0, 1, 0], [1, 1, 0]])
    logits = np.float32([[2, -1, -0.1], [-1, 3, 0], [-1, 0.1, -3]])
    # 3 right, none wrong, 2 missed; F1 by label 2/3, 1, 0; one row exact.
    values = METRICS["multi-label"](labels, logits)
    assert values == pytest.approx({"micro_f1": 6 / 8, "macro_f1": 5 / 9, "exact_match": 1 / 3})
    assert METRICS["macro-f1"](labels, logits) == pytest.approx({"macro_f1": 5 / 9, "exact_match": 1 / 3})


def test_constant_predictions_give_zero_and_no_warning():
    assert METRICS["matthews"]([0, 1, 1], logits_of([1, 1, 1], 2))["matthews"] == 0.0
    assert METRICS["f1"]([0, 1, 1], logits_of([0, 0, 0], 2))["f1"] == 0.0
    for predictions in ([3.0, 3.0, 3.0], [1.0, 1.0, 1.0 + 2e-16]):
        values = METRICS["pearson-spearman"]([1.0, 2.0, 3.0], predictions)
        assert math.isfinite(values["pearson_spearman"])
    assert METRICS["pearson-spearman"]([1.0, 2.0, 3.0], [3.0, 3.0, 3.0])["pearson_spearman"] == 0.0
    assert METRICS["pearson-spearman"]([1.0], [2.0])["pearson_spearman"] == 0.0
    assert METRICS["multi-label"](np.zeros((2, 2)), -np.ones((2, 2)))["micro_f1"] == 0.0


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_are_never_the_best(broken):
    values = METRICS["accuracy"]([0, 1], [[broken, 1.0], [0.0, 1.0]])
    assert math.isnan(values["accuracy"]) and not values["accuracy"] > -1
    assert all(math.isnan(value) for value in METRICS["pearson-spearman"]([0.0, 1.0], [broken, 1.0]).values())


def test_every_metric_returns_floats_and_its_primary_number():
    data = {
        "classification": (np.int32([0, 1, 1]), logits_of([0, 1, 0], 2)),
        "regression": (np.float32([0, 1, 3]), np.float32([[0.5], [1], [2]])),
        "multi-label": (np.float32([[0, 1], [1, 1]]), np.float32([[1, 1], [-1, 2]])),
    }
    for name, metric in METRICS.items():
        for kind in set(metric.kinds) & set(data):  # those of words and spans have tests of their own
            values = metric(*data[kind])
            assert metric.name == name and metric.primary in values
            assert all(type(value) is float for value in values.values())


def test_each_kind_has_a_default_metric_of_its_own_kind():
    for kind, reader in READERS.items():
        check_metric(metric_of(kind), kind=reader.scored_as or kind)
    with pytest.raises(InputError, match="kind is 'ranking' and must be one of classification, regression, multi"):
        metric_of("ranking")


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"name": "bleu", "kind": "regression"}, "metric is 'bleu' and must be one of pearson-spearman."),
        (
            {"name": "accuracy", "kind": "multi-label"},
            "metric 'accuracy' is not for multi-label tasks: use one of macro",
        ),
        (
            {"name": "f1", "kind": "classification", "labels": "abc"},
            "'f1' needs two labels, and there are 3: use 'macro",
        ),
    ],
)
def test_a_metric_that_does_not_fit_the_task_is_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        check_metric(arguments.pop("name"), **arguments)


@pytest.mark.parametrize(
    "name, labels, logits",
    [
        ("accuracy", [], np.zeros((0, 2))),
        ("accuracy", [0, 1], np.zeros((3, 2))),
        ("accuracy", [0, 1], np.zeros(2)),
        ("pearson-spearman", [0.0, 1.0], np.zeros((2, 2))),
        ("multi-label", np.zeros((2, 3)), np.zeros((2, 2))),
    ],
)
def test_shapes_that_do_not_fit_are_refused(name, labels, logits):
    with pytest.raises(InputError, match=f"metric '{name}' got labels of shape .* and logits of shape"):
        METRICS[name](labels, logits)


def test_rows_without_labels_cannot_be_measured():
    with pytest.raises(InputError, match="metric 'accuracy' needs labels, and these rows have none"):
        METRICS["accuracy"](None, np.zeros((2, 2)))


def test_probabilities_are_softmax_sigmoid_or_the_score_itself():
    third = [math.log(2), 0.0]
    np.testing.assert_allclose(probabilities([third], kind="classification"), [[2 / 3, 1 / 3]], rtol=1e-15)
    np.testing.assert_allclose(probabilities([third], kind="multi-label"), [[2 / 3, 1 / 2]], rtol=1e-15)
    np.testing.assert_array_equal(probabilities([2.5], kind="regression"), [2.5])


def test_probabilities_of_large_logits_are_finite_and_sum_to_one():
    large = np.float32([[3e38, -3e38], [1000, 1001]])
    softmax = probabilities(large, kind="classification")
    assert softmax.dtype == np.float64
    np.testing.assert_allclose(softmax.sum(-1), 1, rtol=1e-15)
    np.testing.assert_array_equal(probabilities(large, kind="multi-label")[0], [1, 0])
