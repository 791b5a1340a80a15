"""The threshold of each label, tuned on validation rows and kept in the head's bias."""

import json
import re

import numpy as np
import pytest

from tests.cases import nightly_but
from tests.families import FAMILIES, family_inputs, family_model
from tf_adapters.kinds import get_kind
from tf_adapters.models.state import state_of
from tf_adapters.models.transformers.heads import use_two_layer_head
from tf_adapters.tasks.analysis import best_thresholds
from tf_adapters.tasks.rows import Rows


def f1_of(has, predicted):
    return 2 * (has & predicted).sum() / max(1, has.sum() + predicted.sum())


def test_thresholds_by_hand():
    has = np.array([[1, 0, 1, 1], [1, 0, 0, 1], [0, 0, 0, 1], [0, 0, 1, 1]])
    logits = np.array([[-1.0, 3.0, 2.0, -1.0], [-2.0, 1.0, 1.0, 1.0], [-3.0, -1.0, -1.0, 1.0], [-4.0, -2.0, -2.0, 1.0]])
    # The first is cut between -2 and -3. The second has no rows, the fourth no others. Of the third, F1 is 2/3 with its
    # first row, and with all four, by a cut that is further from 0; between -1 and -2 it is 2/5 less.
    assert best_thresholds(has, logits).tolist() == [-2.5, 0.0, 1.5, 0.0]
    assert best_thresholds(has[:1], logits[:1]).tolist() == [0.0] * 4


def test_no_other_threshold_has_a_higher_f1():
    random = np.random.default_rng(0)
    has = random.random((30, 60)) < [0.1, 0.5, 0.9] * 20
    values = random.normal(0, 1, has.shape) + has
    logits = np.concatenate([np.round(values[:, 20 * digits : 20 * digits + 20], digits) for digits in range(3)], 1)
    found = best_thresholds(has, logits)
    for label in range(60):
        if has[:, label].all() or not has[:, label].any():
            assert found[label] == 0
            continue
        values = logits[:, label]
        reached = f1_of(has[:, label], values > found[label])
        others = [f1_of(has[:, label], values > value) for value in [0.0, values.min() - 1, *values]]
        assert reached >= max(others) - 1e-12
        usual = f1_of(has[:, label], values > 0)
        assert (found[label] == 0) == (reached == usual)
    # What is tuned has its best thresholds at 0.
    assert best_thresholds(has, logits - found.astype(np.float64)).tolist() == [0.0] * 60


def test_thresholds_that_lower_the_task_s_metric_are_not_taken():
    kind = get_kind("multi-label")
    has = np.array([[1.0], [0.0], [0.0], [0.0], [1.0]], np.float32)
    logits = np.array([[2.0], [-0.2], [-0.5], [-0.6], [-0.4]], np.float32)
    rows = Rows(["text"] * 5, labels=has)
    assert kind.thresholds("micro-f1", rows, logits) == pytest.approx([-0.45])
    # The first label is always right. The second's F1 rises from 0 to 2/3 by one right decision and one wrong one, or
    # by guesses of which most are wrong: then that of all decisions falls.
    has = np.array([[1, 0]] * 8 + [[0, 1]] * 2, np.float32)
    logits = np.stack([20 * has[:, 0] - 10, np.linspace(-1, -2, 10)], 1).astype(np.float32)
    rows = Rows(["text"] * 10, labels=has)
    assert best_thresholds(has, logits)[1] != 0
    assert kind.thresholds("micro-f1", rows, logits).tolist() == [0.0, 0.0]
    assert kind.thresholds("macro-f1", rows, logits)[1] == best_thresholds(has, logits)[1]
    assert get_kind("classification").thresholds("accuracy", rows, logits) is None


@pytest.mark.parametrize(
    "family, layers",
    nightly_but([("albert", 1), ("bert", 2)], [*((family, 1) for family in FAMILIES), ("bert", 2), ("albert", 2)]),
)
def test_the_bias_moves_every_logit_by_what_it_moves_itself(family, layers):
    model = family_model(family, num_labels=32)  # as many as the hidden units
    if layers == 2:
        use_two_layer_head(model)
    inputs = family_inputs(family)
    before, shift = model(inputs).logits.numpy(), np.linspace(-3, 3, 32, dtype=np.float32)
    state_of(model).output_bias(model).assign_sub(shift)
    np.testing.assert_allclose(model(inputs).logits, before - shift, atol=1e-5)


@pytest.mark.nightly
def test_a_label_that_was_never_predicted_is_predicted_by_its_own_threshold(cli, checkpoint, tmp_path):
    """A label that a fifth of the rows have, and that their words suggest without deciding."""
    random = np.random.default_rng(0)
    for name, rows in (("train", 160), ("validation", 60), ("test", 60)):
        lines = ["text,label"]
        for _ in range(rows):
            good = random.random() < 0.5
            rare = random.random() < (0.35 if good else 0.05)
            labels = [label for label, there in (("nice", good), ("rare", rare)) if there]
            lines.append(f"a {'good' if good else 'bad'} film,{'|'.join(labels)}")
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    held = [f"--{name}={tmp_path / name}.csv" for name in ("train", "validation", "test")]
    options = ["--kind=multi-label", "--metric=macro-f1", "--max-length=8", "--epochs=6", "--batch-size=4"]
    options += ["--learning-rate=5e-3", "--tune-thresholds", f"--output={tmp_path / 'a'}"]
    outcome = cli("train", f"--model={checkpoint}", *held, *options)
    assert outcome.status == 0, outcome.err
    assert re.search("Thresholds of [12] labels were tuned", outcome.out) and "Never predicted" not in outcome.out
    kept = json.loads((tmp_path / "a" / "tf_adapters.json").read_text())
    assert kept["result"]["classes"]["rare"]["f1"] > 0 and kept["result"]["classes"]["nice"]["f1"] > 0.9
    # What is kept is the score of the weights that are kept, and every reader of the directory decides so.
    files = ["--input", tmp_path / "validation.csv", "--output", tmp_path / "a.json"]
    outcome = cli("evaluate", tmp_path / "a", *files)
    assert outcome.status == 0, outcome.err
    found = json.loads((tmp_path / "a.json").read_text())["metrics"]
    assert kept["metrics"]["validation macro_f1"] == pytest.approx(found["macro_f1"], abs=1e-9)
    assert "threshold of each label" in (tmp_path / "a" / "README.md").read_text()
