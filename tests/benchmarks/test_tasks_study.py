"""tasks.py, with runs that are made up."""

import pytest

from benchmarks import tables
from benchmarks.studies import study, training_runs
from benchmarks.studies import tasks as tasks_script
from benchmarks.table_parts import NOTES


def test_summary_of_the_tasks_by_hand():
    def run(method, seed, reported, other, task="ud/en_ewt", rate=1e-3, validation=0.5):
        return {
            "settings": {"task": task},
            "method": method,
            "seed": seed,
            "metric": "accuracy",
            "train_rows": 9,
            "learning_rate": rate,
            "reported_rows": 5,
            "constant": 0.25,
            "primary": {"reported": reported, "ud/tr_imst": other},
            "validation_best": validation,
        }

    runs = [
        run("adapters", 0, 0.8, 0.5),
        run("adapters", 1, 0.9, 0.7),
        run("full", 0, 0.9, 0.4),
        run("full", 1, 0.9, 0.4),
    ]
    summary = tasks_script.summarise(runs)
    results = summary["ud/en_ewt"]["results"]
    assert results["reported"]["adapters"]["mean"] == pytest.approx(0.85)
    assert results["reported"]["adapters - full"]["mean"] == pytest.approx(-0.05)
    assert results["ud/tr_imst"]["adapters - full"]["mean"] == pytest.approx(0.2)
    result = {
        "kind": "tasks",
        "tasks": summary,
        "passed_over": {},
        "settings": {"model": "minilm", "rows": 9, "epochs": 3},
        "versions": {"tensorflow": "2.21.0"},
        "machine": {"cpu": "A", "cores": 2},
        "date": "2026-01-02",
        "file": "a.json",
        "git": {"commit": "0123456789", "dirty": False},
    }
    text = tables.make_tables([result])
    assert "| ud/en_ewt | accuracy | 9 | 25.0 | 85.0 ± 7.1 | 90.0 ± 0.0 | 2 |" in text
    assert "| ud/en_ewt, zero-shot on ud/tr_imst | accuracy | 9 |  | 60.0 ± 14.1 | 40.0 ± 0.0 | 2 |" in text
    variants = tasks_script.summarise([*runs[:2], run("fast", 0, 0.9, 0.5), run("fast", 1, 0.9, 0.5)])
    results = [{**result, "tasks": variants}, result]
    text = tables.make_tables(results, NOTES)
    assert "| **adapters** | adapters, fast, bfloat16 | fast minus adapters, points | seeds |" in text
    # The differences are 0.1 and 0: mean 0.05, standard error 0.05, t of one degree of freedom 12.706.
    assert "| 85.0 ± 7.1 | 90.0 ± 0.0 | +5.00 (-58.53 to +68.53) | 2 |" in text
    assert "85.0 ± 7.1 | 90.0 ± 0.0 | 2 |" in tables.make_tables(results), "each summary has its place"
    # Of several rates that one counts which is the best at the first seed, whatever the others report.
    others = [
        run("full", 0, 1.0, 1.0, rate=1e-4, validation=0.4),
        {**run("full", 0, 1.0, 1.0, rate=1e-2), "validation_best": None},
    ]
    assert tasks_script.summarise([*others, *runs]) == summary
    better = [run("full", 0, 0.2, 0.2, rate=1e-4, validation=0.6), run("full", 1, 0.4, 0.2, rate=1e-4)]
    of_rates = tasks_script.summarise([*runs, *better])
    assert of_rates["ud/en_ewt"]["results"]["reported"]["full"]["mean"] == pytest.approx(0.3)
    of_two = {"ud/en_ewt": of_rates["ud/en_ewt"], "b": tasks_script.summarise(runs)["ud/en_ewt"]}
    text = tables.make_tables([{**result, "tasks": of_two}])
    assert "by validation at the first seed: adapters 0.001, full 0.0001 or 0.001;" in text


def test_a_grid_of_rates_is_run_at_the_first_seed_and_its_best_at_the_others(tmp_path, monkeypatch):
    done = []

    def train(trainer, task, identity):
        done.append((identity["method"], identity["learning_rate"], identity["seed"]))
        return {"validation_best": None if identity["learning_rate"] == 1e-2 else identity["learning_rate"]}

    monkeypatch.setattr(study.Trainer, "__call__", train)
    words = [
        "--data-dir",
        str(tmp_path),
        "--tasks",
        "a",
        "--seeds",
        "0",
        "1",
        "--adapter-learning-rate",
        "1e-4",
        "1e-3",
        "1e-2",
    ]
    runs = training_runs.Runs(tmp_path / "results")
    for _ in range(2):  # the second time nothing is missing
        assert tasks_script.conduct(tasks_script.parse(words), runs) == {}
        assert done == [
            ("adapters", 1e-4, 0),
            ("adapters", 1e-3, 0),
            ("adapters", 1e-2, 0),
            ("full", 5e-5, 0),
            ("adapters", 1e-3, 1),
            ("full", 5e-5, 1),
        ]


def test_a_task_is_also_scored_on_the_languages_that_it_was_not_trained_on(tmp_path, monkeypatch):
    line = "{}\t{}\t_\t{}\t_\t_\t_\t_\t_\t_\n"
    sentence = "".join(
        line.format(number, word, tag) for number, (word, tag) in enumerate([("dogs", "NOUN"), ("run", "VERB")], 1)
    )
    for treebank in ("en_ewt", "fr_sequoia", "tr_imst"):
        (tmp_path / "ud" / treebank).mkdir(parents=True)
        for split, count in (("train", 6), ("dev", 3), ("test", 4)):
            (tmp_path / "ud" / treebank / f"{split}.conllu").write_text((sentence + "\n") * count)
    seen = {}

    def make_run(settings, model):
        def run(data, reported, *, log, **identity):
            seen.update({name: len(rows) for name, rows in reported.items()})
            scores = {name: {"accuracy": 0.5} for name in reported}
            return {"validation_best": 0.5, "scores": scores, "best_epoch": 1}

        return run

    monkeypatch.setattr(study, "make_run", make_run)
    options = tasks_script.parse(
        ["--data-dir", str(tmp_path), "--tasks", "ud/en_ewt", "--methods", "adapters", "--seeds", "0"]
    )
    runs = training_runs.Runs(tmp_path / "results")
    assert tasks_script.conduct(options, runs) == {}
    assert seen == {"reported": 4, "ud/fr_sequoia": 4, "ud/tr_imst": 4}
    assert runs.runs[0]["primary"] == dict.fromkeys(seen, 0.5) and runs.runs[0]["constant"] == 0.5


def test_a_task_without_files_is_passed_over_once_and_ends_a_study_that_needs_it(tmp_path):
    calls = []

    def train(task, identity):
        calls.append((task, identity["method"], identity["seed"]))
        if task == "a":
            raise study.Missing("no such file")
        return {"validation_best": None}

    def conduct(**options):
        arms = {method: [{"learning_rate": 1e-3}] for method in ("adapters", "full")}
        study.conduct(
            training_runs.Runs(tmp_path), {}, ["a", "b"], arms, [0, 1], train, log=lambda line: None, **options
        )

    passed_over = {}
    conduct(passed_over=passed_over)
    assert passed_over == {"a": "no such file"}
    # What diverges is a finding like any other.
    assert calls == [
        ("a", "adapters", 0),
        ("b", "adapters", 0),
        ("b", "full", 0),
        ("b", "adapters", 1),
        ("b", "full", 1),
    ]
    with pytest.raises(RuntimeError, match="a: no such file"):
        conduct()
