"""What came out: what `evaluate` tells beside a score, of several seeds, and what is kept with the adapter."""

import importlib.util
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
from sklearn import metrics

from tests.conftest import is_refused
from tests.runs import content
from tf_adapters.cli.report import draw_confusion
from tf_adapters.kinds import get_kind
from tf_adapters.kinds.kind import Scorer
from tf_adapters.saving.directory import keep_result
from tf_adapters.saving.settings import read_settings
from tf_adapters.tasks.analysis import bootstrap_interval, class_report, group_means, language_of, summary_of_seeds
from tf_adapters.tasks.rows import Rows


def test_class_report_equals_scikit_learn():
    random = np.random.RandomState(0)
    true, predicted = random.randint(4, size=200), random.randint(3, size=200)
    report = class_report(true, predicted, ("a", "b", "c", "d"))
    expected = metrics.classification_report(
        true, predicted, target_names=["a", "b", "c", "d"], output_dict=True, zero_division=0
    )
    for label, numbers in report.classes.items():
        assert numbers["f1"] == pytest.approx(expected[label]["f1-score"], abs=1e-12)
        assert numbers["rows"] == expected[label]["support"]
    assert (report.confusion == metrics.confusion_matrix(true, predicted)).all()
    # The most confused pairs come first, and right answers never; several labels a row have no matrix.
    report = class_report([0, 0, 0, 1, 1, 2], [1, 1, 0, 2, 1, 2], ("a", "b", "c"))
    assert report.most_confused() == [("a", "b", 2), ("b", "c", 1)]
    report = class_report([[1, 0], [1, 1]], [[1, 1], [0, 1]], ("a", "b"))
    assert report.confusion is None
    assert report.classes["a"] == {"precision": 1.0, "recall": 0.5, "f1": pytest.approx(2 / 3), "rows": 2}
    report = class_report([[1], [1], [0], [0]], [[0], [1], [1], [1]], ("only",))
    assert report.classes["only"] == {"precision": pytest.approx(1 / 3), "recall": 0.5, "f1": 0.4, "rows": 2}
    assert report.confusion is None


def test_bootstrap_interval_of_a_mean_is_about_two_standard_errors_wide():
    right = np.arange(400) % 4 > 0
    low, high = bootstrap_interval(lambda index: right[index].mean(), 400)
    error = 1.96 * (0.75 * 0.25 / 400) ** 0.5
    assert low == pytest.approx(0.75 - error, abs=0.006) and high == pytest.approx(0.75 + error, abs=0.006)
    assert (low, high) == bootstrap_interval(lambda index: right[index].mean(), 400)


def test_summary_of_seeds_by_hand():
    assert summary_of_seeds([1.0, 2.0, 3.0]) == {"mean": 2.0, "sd": 1.0, "sem": pytest.approx(3**-0.5), "n": 3}
    assert summary_of_seeds([1.0]) == {"mean": 1.0, "sd": None, "sem": None, "n": 1}


def test_languages_and_their_groups():
    names = ("xnli/sw", "ud/fr_sequoia", "ner/wikiann-tr", "xquad/de", "glue/sst2", "ud/xx_none")
    assert [language_of(name) for name in names] == ["sw", "fr", "tr", "de", None, None]
    means = group_means({"en": 0.9, "fr": 0.8, "tr": 0.4, "sw": 0.2})
    assert means == {"all": pytest.approx(0.575), "target": pytest.approx(1.4 / 3), "distant": pytest.approx(0.3)}
    assert group_means({"en": 0.9}) == {"all": 0.9}


def test_constant_answer_is_the_most_frequent_class():
    rows = Rows(tf.constant(["a"] * 5), labels=np.array([0, 1, 1, 1, 0], np.int32))
    kind = get_kind("classification")
    assert kind.score("accuracy", rows, kind.constant(rows, ("x", "y"))) == {"accuracy": 0.6}
    sets = Rows(tf.constant(["a"] * 3), labels=np.array([[1, 0], [1, 1], [1, 0]], np.float32))
    kind = get_kind("multi-label")
    assert kind.score("micro-f1", sets, kind.constant(sets, ("x", "y")))["micro_f1"] == pytest.approx(6 / 7)


def test_evaluate_shows_classes_confusion_interval_and_the_constant_answer(cli, adapter_directory, sentences, tmp_path):
    plot, given = tmp_path / "confusion.png", f"--input={sentences / 'test.csv'}"
    outcome = cli("evaluate", adapter_directory, given, f"--output={tmp_path / 'a.json'}", f"--plot={plot}")
    assert outcome.status == 0, outcome.err
    for text in ("precision", "negative", "true \\ predicted", "95 % interval", "of one constant answer", "--seeds 5"):
        assert text in outcome.out
    numbers = json.loads((tmp_path / "a.json").read_text())
    assert numbers["rows"] == np.sum(numbers["confusion"]) == 40
    assert numbers["metrics"]["accuracy"] == np.trace(numbers["confusion"]) / 40
    assert numbers["constant"] == 0.5
    low, high = numbers["interval"]
    assert low <= numbers["metrics"]["accuracy"] <= high
    assert plot.read_bytes().startswith(b"\x89PNG")
    draw_confusion({**numbers, "classes": ["$10_$20", "$5"], "data": "$1_$2.csv"}, plot)  # no formulas


def test_evaluate_takes_several_files_in_one_command(cli, adapter_directory, sentences, tmp_path):
    files = [f"--input={sentences / name}.csv" for name in ("validation", "test")]
    outcome = cli("evaluate", adapter_directory, *files, "--output", tmp_path / "a.json")
    assert outcome.status == 0, outcome.err
    results = json.loads((tmp_path / "a.json").read_text())["results"]
    assert [(result["data"], result["rows"]) for result in results] == [("validation.csv", 40), ("test.csv", 40)]


@pytest.mark.nightly
def test_rows_that_are_left_out_are_counted_by_train_and_evaluate(cli, train_arguments, sentences, tmp_path):
    header, _, text = (sentences / "test.csv").read_text().partition("\n")
    text = f'{header}\nthree,fields,here\n{text}"open\ngood fun,unheard-of\n'
    (tmp_path / "bad.csv").write_text(text)
    train = ["train", *train_arguments[1:], f"--train={tmp_path / 'bad.csv'}", f"--output={tmp_path / 'a'}"]
    refused = cli(*train)
    assert refused.status == 2 and "bad.csv, line 2: has 3 fields" in refused.err
    trained = cli(*train, "--skip-bad-rows")
    assert trained.status == 0, trained.err
    assert "2 unusable rows were left out" in trained.out and "line 43: a quote" in trained.out
    (tmp_path / "b.csv").write_text((sentences / "test.csv").read_text() + "\u00e9,other\n,positive\n")
    outcome = cli("evaluate", tmp_path / "a", "--input", tmp_path / "b.csv", "--skip-bad-rows")
    assert outcome.status == 0 and "2 unusable rows were left out" in outcome.out


def test_one_seed_does_not_go_on_with_an_interrupted_run_of_several(refused, train_arguments, tmp_path):
    (tmp_path / "seeds.json").write_text(json.dumps({"settings": {}, "runs": []}))
    (tmp_path / ".seed-0" / ".resume").mkdir(parents=True)
    says = "an interrupted run of several seeds: give the same --seeds"
    refused(*train_arguments, f"--output={tmp_path}", "--resume", says=says)


def test_scores_that_are_not_numbers_are_refused(refused, adapter_directory, sentences, tmp_path, monkeypatch):
    """JSON has no NaN, and a table that holds some is no score; `predict` names the rows."""
    logits, broken = Scorer.logits, np.float32([0, np.inf])
    monkeypatch.setattr(Scorer, "logits", lambda *arguments, **options: logits(*arguments, **options) * broken)
    given = [f"--input={sentences / 'test.csv'}", f"--output={tmp_path / 'numbers.json'}"]
    for name, value in (("source-language", "english"), ("output", "-")):
        refused("evaluate", adapter_directory, *given, f"--{name}", value, says=f"--{name} {value} is ")
    refused("evaluate", adapter_directory, *given, says="predicts numbers that are not finite: train it again")


RESULT = {
    "split": "test", "rows": 40, "numbers": {"accuracy": 0.75, "f1": float("nan")},
    "without_training": {"one constant answer": 0.5}, "date": "2026-01-02", "versions": {"tf_adapters": "0.1.0"},
    "classes": {"a|b": {"precision": 1.0, "recall": 0.5, "f1": 2 / 3, "rows": 4}},
}  # fmt: skip


def test_train_keeps_its_score_its_classes_and_its_curve(cli, adapter_directory, tmp_path):
    trained = shutil.copytree(adapter_directory, tmp_path / "mine")
    result = read_settings(trained)["result"]
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
    kept = keep_result(trained, RESULT)["result"]
    assert kept["numbers"] == {"accuracy": 0.75, "f1": None} and read_settings(trained)["result"] == kept
    card = (trained / "README.md").read_text()
    assert "| f1 | not finite |" in card and "| a\\|b | 1.0000 | 0.5000 | 0.6667 | 4 |" in card
    after = content(trained)
    assert {name for name in before if before[name] != after[name]} == {"README.md", "tf_adapters.json"}
    is_refused("'result.rows' is 'many'", keep_result, trained, {**RESULT, "rows": "many"})
    assert content(trained) == after
