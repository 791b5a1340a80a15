"""What came out is kept with the adapter: in its settings, its card and its learning curve."""

import importlib.util
import json

import pytest

from tests.runs import content
from tf_adapters import InputError
from tf_adapters.saving.directory import keep_result
from tf_adapters.saving.settings import read_settings

RESULT = {
    "split": "test",
    "rows": 40,
    "numbers": {"accuracy": 0.75, "f1": float("nan")},
    "without_training": {"one constant answer": 0.5},
    "classes": {"a|b": {"precision": 1.0, "recall": 0.5, "f1": 2 / 3, "rows": 4}},
    "date": "2026-01-02",
    "versions": {"tf_adapters": "0.1.0"},
}


@pytest.fixture
def trained(cli, train_arguments, tmp_path):
    outcome = cli(*train_arguments, "--epochs=2", f"--output={tmp_path / 'mine'}")
    assert outcome.status == 0, outcome.err
    return tmp_path / "mine"


@pytest.mark.slow
def test_train_keeps_its_score_its_classes_and_its_curve(cli, trained):
    settings = read_settings(trained)
    result = settings["result"]
    assert result["split"] == "test" and result["numbers"]["accuracy"] == pytest.approx(
        sum(row["recall"] * row["rows"] for row in result["classes"].values()) / result["rows"]
    )
    assert sum(row["rows"] for row in result["classes"].values()) == result["rows"]
    assert set(result["without_training"]) == {"one constant answer", "TF-IDF and logistic regression"}
    assert (trained / "log.csv").exists()
    if importlib.util.find_spec("matplotlib"):
        assert (trained / "learning-curve.png").stat().st_size > 1000
    card = (trained / "README.md").read_text()
    assert "# Adapter for " in card and f"| accuracy | {result['numbers']['accuracy']:.4f} |" in card
    assert "| the same of one constant answer |" in card and "learning rate" in card and "seed 0" in card
    assert "echo 'a text' | tf-adapters predict DIRECTORY --input -" in card
    shown = cli("info", trained).out
    assert "test accuracy" in shown and "TF-IDF" in shown
    before = content(trained)
    settings["result"]["numbers"] = {"accuracy": "high"}
    (trained / "tf_adapters.json").write_text(json.dumps(settings))
    outcome = cli("info", trained)
    assert outcome.status == 2 and "'result' holds 'high' where a number has to be" in outcome.err
    (trained / "tf_adapters.json").write_bytes(before["tf_adapters.json"])

    kept = keep_result(trained, RESULT)["result"]
    assert kept["numbers"] == {"accuracy": 0.75, "f1": None} and read_settings(trained)["result"] == kept
    card = (trained / "README.md").read_text()
    assert "| f1 | not finite |" in card and "| a\\|b | 1.0000 | 0.5000 | 0.6667 | 4 |" in card
    after = content(trained)
    assert {name for name in before if before[name] != after[name]} == {"README.md", "tf_adapters.json"}
    with pytest.raises(InputError, match="'result.rows' is 'many'"):
        keep_result(trained, {**RESULT, "rows": "many"})
    assert content(trained) == after


@pytest.mark.nightly
def test_of_several_seeds_the_best_one_s_log_stays(cli, train_arguments, tmp_path):
    outcome = cli(*train_arguments, "--epochs=2", "--seeds=2", f"--output={tmp_path / 'mine'}")
    assert outcome.status == 0, outcome.err
    settings = read_settings(tmp_path / "mine")
    log = (tmp_path / "mine" / "log.csv").read_text().splitlines()
    best = max(run["validation"] for run in settings["seeds"]["runs"])
    column = log[0].split(",").index("validation_accuracy")
    assert max(float(line.split(",")[column]) for line in log[1:]) == pytest.approx(best)
    card = (tmp_path / "mine" / "README.md").read_text()
    assert "Over 2 seeds: validation accuracy" in card and "Over 2 seeds: test accuracy" in card
