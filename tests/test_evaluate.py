"""What `evaluate` tells beside a score, and several seeds."""

import json
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf
from sklearn import metrics

from tests.conftest import tiny_inputs
from tf_adapters.kinds import get_kind
from tf_adapters.saving.directory import copy_adapter, load_trained
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


def test_most_confused_pairs_come_first_and_right_answers_never():
    report = class_report([0, 0, 0, 1, 1, 2], [1, 1, 0, 2, 1, 2], ("a", "b", "c"))
    assert report.most_confused() == [("a", "b", 2), ("b", "c", 1)]


def test_several_labels_a_row_have_no_confusion_matrix():
    report = class_report([[1, 0], [1, 1]], [[1, 1], [0, 1]], ("a", "b"))
    assert report.confusion is None
    assert report.classes["a"] == {"precision": 1.0, "recall": 0.5, "f1": pytest.approx(2 / 3), "rows": 2}


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
    plot = tmp_path / "confusion.png"
    outcome = cli(
        "evaluate",
        adapter_directory,
        "--input",
        sentences / "test.csv",
        "--output",
        tmp_path / "a.json",
        "--plot",
        plot,
    )
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


def test_evaluate_takes_several_files_in_one_command(cli, adapter_directory, sentences, tmp_path):
    files = [f"--input={sentences / name}.csv" for name in ("validation", "test")]
    outcome = cli("evaluate", adapter_directory, *files, "--output", tmp_path / "a.json")
    assert outcome.status == 0, outcome.err
    results = json.loads((tmp_path / "a.json").read_text())["results"]
    assert [(result["data"], result["rows"]) for result in results] == [("validation.csv", 40), ("test.csv", 40)]


@pytest.mark.nightly
def test_rows_that_are_left_out_are_counted_by_train_and_evaluate(cli, train_arguments, sentences, tmp_path):
    text = (sentences / "test.csv").read_text() + 'three,fields,here\n"open\ngood fun,unheard-of\n'
    (tmp_path / "bad.csv").write_text(text)
    refused = cli("train", *train_arguments[1:], f"--train={tmp_path / 'bad.csv'}", f"--output={tmp_path / 'a'}")
    assert refused.status == 2 and "bad.csv, line 42: has 3 fields" in refused.err
    trained = cli(
        "train",
        *train_arguments[1:],
        f"--train={tmp_path / 'bad.csv'}",
        f"--output={tmp_path / 'a'}",
        "--skip-bad-rows",
    )
    assert trained.status == 0, trained.err
    assert "2 unusable rows were left out" in trained.out and "line 43: a quote" in trained.out
    (tmp_path / "b.csv").write_text((sentences / "test.csv").read_text() + "\u00e9,other\n,positive\n")
    outcome = cli("evaluate", tmp_path / "a", "--input", tmp_path / "b.csv", "--skip-bad-rows")
    assert outcome.status == 0 and "2 unusable rows were left out" in outcome.out


@pytest.mark.nightly
def test_seeds_are_aggregated_and_the_best_by_validation_is_kept(cli, train_arguments, sentences, tmp_path):
    output = tmp_path / "a"
    outcome = cli(*train_arguments, f"--output={output}", "--seeds=3", "--seed=7")
    assert outcome.status == 0, outcome.err
    settings = json.loads((output / "tf_adapters.json").read_text())
    runs = settings["seeds"]["runs"]
    assert [run["seed"] for run in runs] == [7, 8, 9]
    best = max(runs, key=lambda run: run["validation"])
    assert settings["training"]["seed"] == best["seed"]
    assert settings["metrics"]["validation accuracy"] == best["validation"]
    tests = [run["test"] for run in runs]
    assert settings["seeds"]["summary"]["test"]["mean"] == pytest.approx(np.mean(tests))
    assert settings["seeds"]["summary"]["test"]["sd"] == pytest.approx(np.std(tests, ddof=1))
    assert "standard error" in outcome.out and re.search(rf"{best['seed']}\s+kept", outcome.out)
    kept = {path.name for path in output.iterdir()}
    assert kept - {"learning-curve.png"} == {"README.md", "adapter.safetensors", "log.csv", "tf_adapters.json"}
    # What is kept is the run of that seed alone.
    alone = tmp_path / "b"
    assert cli(*train_arguments, f"--output={alone}", f"--seed={best['seed']}").status == 0
    assert (alone / "adapter.safetensors").read_bytes() == (output / "adapter.safetensors").read_bytes()
    shown = cli("evaluate", output, "--input", sentences / "test.csv")
    assert f"This is seed {best['seed']}, the best by validation of 3, whose test accuracy has mean" in shown.out


@pytest.mark.nightly
def test_seeds_that_are_done_are_not_repeated(cli, train_arguments, tmp_path, monkeypatch):
    from tf_adapters.training.experiment import Experiment

    output, calls, train = tmp_path / "a", [], Experiment.train

    def interrupted(self, model, tokenizer, folder, *, seed, **options):
        calls.append(seed)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return train(self, model, tokenizer, folder, seed=seed, **options)

    monkeypatch.setattr(Experiment, "train", interrupted)
    assert cli(*train_arguments, f"--output={output}", "--seeds=2").status == 130
    again = cli(*train_arguments, f"--output={output}", "--seeds=2")
    assert again.status == 2 and "--resume" in again.err
    single = cli(*train_arguments, f"--output={output}", "--resume")
    assert single.status == 2 and "an interrupted run of several seeds: give the same --seeds" in single.err
    other = cli(*train_arguments, f"--output={output}", "--seeds=2", "--resume", "--batch-size=8")
    assert other.status == 2 and "another --batch-size (32, now 8)" in other.err
    outcome = cli(*train_arguments, f"--output={output}", "--seeds=2", "--resume")
    assert outcome.status == 0, outcome.err
    assert calls == [0, 1, 1] and "Seed 0: done before" in outcome.out


def test_copied_adapter_directory_is_the_same_adapter(adapter_directory, tmp_path):
    copy_adapter(adapter_directory, tmp_path / "copy", seeds={"runs": []})
    model, settings = load_trained(tmp_path / "copy")
    assert settings["seeds"] == {"runs": []}
    original, _ = load_trained(adapter_directory)
    assert np.array_equal(model(tiny_inputs()).logits, original(tiny_inputs()).logits)


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_scores_of_predictions_that_are_not_numbers_are_refused(
    cli, adapter_directory, sentences, tmp_path, monkeypatch, broken
):
    """JSON has no NaN, and a table that holds some is no score; `predict` names the rows."""
    from tf_adapters.kinds.scoring import Scorer

    logits = Scorer.logits
    monkeypatch.setattr(
        Scorer, "logits", lambda *arguments, **options: logits(*arguments, **options) * np.float32([0, broken])
    )
    outcome = cli(
        "evaluate", adapter_directory, "--input", sentences / "test.csv", "--output", tmp_path / "numbers.json"
    )
    assert outcome.status == 2 and not list(tmp_path.iterdir())
    assert "predicts numbers that are not finite: train it again" in outcome.err
    assert "NaN" not in outcome.out


def test_settings_that_json_cannot_hold_are_not_shown_as_json(cli, adapter_directory, tmp_path):
    shutil.copytree(adapter_directory, tmp_path / "a")
    path = tmp_path / "a" / "tf_adapters.json"
    settings = json.loads(path.read_text())
    settings["metrics"] = {"validation accuracy": float("nan")}
    path.write_text(json.dumps(settings))
    outcome = cli("info", tmp_path / "a", "--json")
    assert outcome.status == 2 and "NaN" not in outcome.out and "not finite" in outcome.err
