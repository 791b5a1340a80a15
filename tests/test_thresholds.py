"""The threshold of each label, tuned on validation rows and kept in the head's bias."""

import json
import re

import numpy as np
import pytest

from tests.families import FAMILIES, family_inputs, family_model
from tf_adapters import InputError, TrainingSettings
from tf_adapters.kinds import get_kind
from tf_adapters.models.state import state_of
from tf_adapters.models.transformers.family import get_family
from tf_adapters.models.transformers.heads import use_two_layer_head
from tf_adapters.tasks.analysis import best_thresholds
from tf_adapters.tasks.rows import Rows


def f1_of(has, predicted):
    return 2 * (has & predicted).sum() / max(1, has.sum() + predicted.sum())


def test_thresholds_by_hand():
    has = np.array([[1, 0, 1, 1], [1, 0, 0, 1], [0, 0, 0, 1], [0, 0, 1, 1]])
    logits = np.array([[-1.0, 3.0, 2.0, -1.0], [-2.0, 1.0, 1.0, 1.0], [-3.0, -1.0, -1.0, 1.0], [-4.0, -2.0, -2.0, 1.0]])
    # The first is cut between -2 and -3. The second has no rows, the fourth no others. Of the third, F1 is 2/3 with its
    # first row, and with all four, which no cut gives; between -1 and -2 it is 2/5 less.
    assert best_thresholds(has, logits).tolist() == [-2.5, 0.0, 1.5, 0.0]
    assert best_thresholds(has[:1], logits[:1]).tolist() == [0.0] * 4


@pytest.mark.parametrize("seed", range(20))
def test_no_other_threshold_has_a_higher_f1(seed):
    random = np.random.default_rng(seed)
    has = random.random((30, 3)) < [0.1, 0.5, 0.9]
    logits = np.round(random.normal(0, 1, (30, 3)) + has, random.integers(0, 3))
    found = best_thresholds(has, logits)
    for label in range(3):
        if has[:, label].all() or not has[:, label].any():
            assert found[label] == 0
            continue
        values = logits[:, label]
        reached = f1_of(has[:, label], values > found[label])
        others = [f1_of(has[:, label], values > value) for value in [0.0, *values[values > values.min()]]]
        assert reached >= max(others) - 1e-12
        usual = f1_of(has[:, label], values > 0)
        assert (found[label] == 0) == (reached == usual)
    # What is tuned has its best thresholds at 0.
    assert best_thresholds(has, logits - found.astype(np.float64)).tolist() == [0.0] * 3


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


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("layers", (1, 2))
def test_the_bias_moves_every_logit_by_what_it_moves_itself(family, layers):
    described = get_family(family)
    if layers == 2 and not described.pooled_classifier:
        pytest.skip("its classifier has two layers of its own")
    model = family_model(family, num_labels=32)  # as many as the hidden units
    if layers == 2:
        use_two_layer_head(model)
    inputs = family_inputs(family)
    before, shift = model(inputs).logits.numpy(), np.linspace(-3, 3, 32, dtype=np.float32)
    state_of(model).output_bias(model).assign_sub(shift)
    np.testing.assert_allclose(model(inputs).logits, before - shift, atol=1e-5)


def test_other_kinds_have_none():
    settings = TrainingSettings(epochs=1, learning_rate=1e-3, tune_thresholds=True)
    settings.check_kind(get_kind("multi-label"))
    with pytest.raises(InputError, match="tune_thresholds=True is not for tasks of the kind 'classification'"):
        settings.check_kind(get_kind("classification"))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A label that a fifth of the rows have, and that their words suggest without deciding."""
    folder, random = tmp_path_factory.mktemp("labels"), np.random.default_rng(0)
    for name, rows in (("train", 160), ("validation", 60), ("test", 60)):
        lines = ["text,label"]
        for _ in range(rows):
            good = random.random() < 0.5
            rare = random.random() < (0.35 if good else 0.05)
            labels = [label for label, there in (("nice", good), ("rare", rare)) if there]
            lines.append(f"a {'good' if good else 'bad'} film,{'|'.join(labels)}")
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return folder


def arguments(files, checkpoint, output, *more):
    held = [f"--{name}={files / name}.csv" for name in ("train", "validation", "test")]
    return [
        "train", f"--model={checkpoint}", *held, "--kind=multi-label", "--metric=macro-f1", "--max-length=8",
        "--epochs=6", "--batch-size=4", "--learning-rate=5e-3", f"--output={output}", *more,
    ]  # fmt: skip


@pytest.mark.nightly
def test_a_label_that_was_never_predicted_is_predicted_by_its_own_threshold(cli, checkpoint, files, tmp_path):
    plain, tuned = tmp_path / "plain", tmp_path / "tuned"
    outcome = cli(*arguments(files, checkpoint, plain))
    assert outcome.status == 0, outcome.err
    assert "Never predicted" in outcome.out and "--tune-thresholds" in outcome.out
    outcome = cli(*arguments(files, checkpoint, tuned, "--tune-thresholds"))
    assert outcome.status == 0, outcome.err
    assert re.search("Thresholds of [12] labels were tuned", outcome.out) and "Never predicted" not in outcome.out
    before, after = (json.loads((folder / "tf_adapters.json").read_text()) for folder in (plain, tuned))
    assert after["training"]["tune_thresholds"] and not before["training"]["tune_thresholds"]
    assert before["result"]["classes"]["rare"]["f1"] == 0 < after["result"]["classes"]["rare"]["f1"]
    assert after["result"]["classes"]["nice"]["f1"] > 0.9
    # What is kept is the score of the weights that are kept, and every reader of the directory decides so.
    outcome = cli("evaluate", tuned, "--input", files / "validation.csv", "--output", tmp_path / "scores.json")
    assert outcome.status == 0, outcome.err
    found = json.loads((tmp_path / "scores.json").read_text())["metrics"]
    assert after["metrics"]["validation macro_f1"] == pytest.approx(found["macro_f1"], abs=1e-9)
    assert after["metrics"]["validation macro_f1"] > before["metrics"]["validation macro_f1"]
    assert "threshold of each label" in (tuned / "README.md").read_text()
    assert "threshold of each label" not in (plain / "README.md").read_text()
