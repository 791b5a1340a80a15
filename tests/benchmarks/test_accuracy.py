"""quality.py, tasks.py and methods.py, with runs that are made up, and the tables of earlier commands."""

import json
import math

import pytest

from benchmarks import tables
from benchmarks.studies import methods, quality, study, tasks, training_runs
from benchmarks.table_parts import NOTES
from tests.benchmarks.support import result_of, step_result


def conduct(folder, train, arms, *, settings=None, seeds=(0, 1), **options):
    """Conduct a study of the task "a", whose runs are kept in a folder."""
    runs, given = training_runs.Runs(folder), {"rows": 1, **(settings or {})}
    return study.conduct(runs, given, ["a"], arms, seeds, train, log=lambda line: None, **options)["a"]


def points(*rates, **others):
    return [{"learning_rate": rate, **others} for rate in rates]


def test_the_best_by_validation_is_run_at_the_other_seeds_and_a_killed_study_repeats_no_run(tmp_path):
    arms = {"adapters": points(1e-3, 3e-3, dropout=0.0), "full": points(1e-5, 5e-5)}
    calls = []

    def train(task, identity):
        calls.append(tuple(identity.values()))
        if len(calls) == 3:
            raise KeyboardInterrupt
        # The rate that is worse on the reported rows is the better one on the validation rows.
        good = identity["learning_rate"] in (3e-3, 5e-5)
        return {"accuracy": 0.8 if good else 0.9, "validation_best": 0.95 if good else 0.6}

    with pytest.raises(KeyboardInterrupt):
        conduct(tmp_path, train, arms)
    with open(tmp_path / "runs.jsonl", "a") as file:
        file.write('{"half a li')
    best = conduct(tmp_path, train, arms)
    of_first = [("adapters", 1e-3, 0.0, 0), ("adapters", 3e-3, 0.0, 0), ("full", 1e-5, 0), ("full", 5e-5, 0)]
    assert calls == [*of_first[:3], *of_first[2:], ("adapters", 3e-3, 0.0, 1), ("full", 5e-5, 1)]
    assert {name: [run["seed"] for run in runs] for name, runs in best.items()} == {"adapters": [0, 1], "full": [0, 1]}
    assert all(run["accuracy"] == 0.8 for runs in best.values() for run in runs)
    assert len(training_runs.Runs(tmp_path).runs) == 6
    assert conduct(tmp_path, lambda *given: pytest.fail("again"), arms) == best
    conduct(tmp_path, train, arms, settings={"rows": 2})  # other settings are other runs
    assert len(calls) == 13 and len((tmp_path / "runs.jsonl").read_text().splitlines()) == 12


def test_of_equal_rates_the_smaller_is_chosen_and_a_diverged_one_never(tmp_path):
    runs = [{"learning_rate": rate, "validation_best": best} for rate, best in
            ((3e-3, 0.7), (1e-3, 0.7), (1e-2, None), (1e-4, 0.8))]  # fmt: skip
    assert [run["learning_rate"] for run in study.rank(runs)] == [1e-4, 1e-3, 3e-3, 1e-2]
    with pytest.raises(RuntimeError, match="full diverged on a at every learning rate"):
        conduct(tmp_path, lambda *given: {"validation_best": None}, {"full": points(1.0)})
    with pytest.raises(RuntimeError, match="full on a diverged at its best learning rate with seed 1"):
        study.check_finished("full on a", [{**run, "seed": place - 1} for place, run in enumerate(runs)])


@pytest.mark.parametrize("later, chosen", [(0.95, 1e-3), (0.69, 3e-3), (None, 3e-3)])
def test_of_the_finalists_the_best_mean_over_the_seeds_is_chosen(tmp_path, later, chosen):
    # At the first seed 3e-3 is ahead of 1e-3, and 1e-2 is no finalist.
    validation = {3e-3: (0.9, 0.7), 1e-3: (0.89, later), 1e-2: (0.5, 0.99)}
    calls = []

    def train(task, identity):
        calls.append((identity["learning_rate"], identity["seed"]))
        return {"validation_best": validation[identity["learning_rate"]][identity["seed"]]}

    best = conduct(tmp_path, train, {"full": points(*validation)}, finalists=2)
    assert calls == [(3e-3, 0), (1e-3, 0), (1e-2, 0), (3e-3, 1), (1e-3, 1)]
    assert [run["learning_rate"] for run in best["full"]] == [chosen, chosen]


def test_a_task_without_files_is_passed_over_once_and_ends_a_study_that_needs_it(tmp_path):
    calls = []

    def train(task, identity):
        calls.append((task, identity["method"], identity["seed"]))
        if task == "a":
            raise study.Missing("no such file")
        return {"validation_best": None}

    def of_two(**options):
        arms = dict.fromkeys(("adapters", "full"), points(1e-3))
        study.conduct(training_runs.Runs(tmp_path), {}, ["a", "b"], arms, [0, 1], train, log=lambda _: None, **options)

    passed_over = {}
    of_two(passed_over=passed_over)
    assert passed_over == {"a": "no such file"}
    # What diverges is a finding like any other.
    of_b = [("b", method, seed) for seed in (0, 1) for method in ("adapters", "full")]
    assert calls == [("a", "adapters", 0), *of_b]
    with pytest.raises(RuntimeError, match="a: no such file"):
        of_two()


def test_summary_and_table_of_quality_by_hand(tmp_path):
    def run(accuracy, rate):
        about = {"validation_best": 0.5, "learning_rate": rate, "seconds": 1.0, "trained_parameters": 10}
        return {**about, "accuracy": accuracy, "further_accuracy": accuracy}

    best = {"adapters": [run(0.9, 1e-3), run(0.88, 1e-3)], "full": [run(0.89, 5e-5)] * 2}
    grids = {"adapters": points(3e-4, 1e-3, 3e-3), "full": points(1e-5, 5e-5)}
    found = quality.summarise(best, grids)
    row = found["methods"]["adapters"]
    assert row["mean"] == pytest.approx(0.89) and row["sd"] == pytest.approx(0.01 * math.sqrt(2))
    assert not row["at_edge_of_grid"] and found["methods"]["full"]["at_edge_of_grid"]
    # t(0.975, 1) = 12.7062 and s.e.m. 0.01
    assert found["adapters - full"]["interval"] == pytest.approx([-0.127062, 0.127062], abs=1e-6)
    settings = {"task": "glue/sst2", "model": "minilm", "rows": 8000, "epochs": 3}
    result = result_of("quality", settings, reported_rows=872, further_rows=6000, **found)
    result["git"] = {"commit": "0123456789", "dirty": True}
    (tmp_path / "sst2").mkdir()
    (tmp_path / "sst2" / "summary.json").write_text(json.dumps(result))
    (tmp_path / "new.json").write_text(json.dumps(step_result(date="2026-02-01T00:00:00+00:00")))
    (tmp_path / "old.json").write_text(json.dumps(step_result(weights="pretrained")))
    text = tables.make_tables(tables.read_results(tmp_path))
    assert "| **adapters** | 0.001 | encoder's | 0.01 | 89.00 | 1.41 | 1.00 | 10 |" in text
    assert "| full fine-tuning | 5e-05 (edge of its grid) | encoder's |  | 89.00 | 0.00 | 0.00 | 10 |" in text
    said = (
        "Adapters minus full fine-tuning: +0.00 points, 95 % interval -12.71 to +12.71 (paired t, 2 seeds). On 6,000 "
    )
    assert f"{said}further rows" in text and "commit 0123456 with changes" in text
    assert "**adapters** 89.00 %, full fine-tuning 89.00 %; +0.00 points, 95 %" in text
    # Of one measurement the newest result alone is shown.
    notes = tables.make_tables(tables.read_results(tmp_path), NOTES)
    assert "new.json" in notes and "old.json" not in notes


def test_summary_and_table_of_the_tasks_by_hand():
    def run(method, seed, reported, other, rate=1e-3, validation=0.5):
        about = {"metric": "accuracy", "train_rows": 9, "reported_rows": 5, "constant": 0.25}
        about |= {"settings": {"task": "ud/en_ewt"}, "method": method, "seed": seed, "learning_rate": rate}
        return {**about, "primary": {"reported": reported, "ud/tr_imst": other}, "validation_best": validation}

    adapters = [run("adapters", 0, 0.8, 0.5), run("adapters", 1, 0.9, 0.7)]
    runs = [*adapters, run("full", 0, 0.9, 0.4), run("full", 1, 0.9, 0.4)]
    summary = tasks.summarise(runs)
    results = summary["ud/en_ewt"]["results"]
    assert results["reported"]["adapters"]["mean"] == pytest.approx(0.85)
    assert results["reported"]["adapters - full"]["mean"] == pytest.approx(-0.05)
    assert results["ud/tr_imst"]["adapters - full"]["mean"] == pytest.approx(0.2)
    result = result_of("tasks", {"model": "minilm", "rows": 9, "epochs": 3}, tasks=summary, passed_over={})
    text = tables.make_tables([result])
    assert "| ud/en_ewt | accuracy | 9 | 25.0 | 85.0 ± 7.1 | 90.0 ± 0.0 | 2 |" in text
    assert "| ud/en_ewt, zero-shot on ud/tr_imst | accuracy | 9 |  | 60.0 ± 14.1 | 40.0 ± 0.0 | 2 |" in text
    variants = tasks.summarise([*adapters, run("fast", 0, 0.9, 0.5), run("fast", 1, 0.9, 0.5)])
    both = [{**result, "tasks": variants}, result]
    text = tables.make_tables(both, NOTES)
    assert "| **adapters** | adapters, fast, bfloat16 | fast minus adapters, points | seeds |" in text
    # The differences are 0.1 and 0: mean 0.05, standard error 0.05, t of one degree of freedom 12.706.
    assert "| 85.0 ± 7.1 | 90.0 ± 0.0 | +5.00 (-58.53 to +68.53) | 2 |" in text
    assert "85.0 ± 7.1 | 90.0 ± 0.0 | 2 |" in tables.make_tables(both), "each summary has its place"
    # Of several rates that one counts which is the best at the first seed, whatever the others report.
    others = [run("full", 0, 1.0, 1.0, 1e-4, 0.4), run("full", 0, 1.0, 1.0, 1e-2, None)]
    assert tasks.summarise([*others, *runs]) == summary == tasks.summarise([*runs, *others])
    better = [run("full", 0, 0.2, 0.2, 1e-4, 0.6), run("full", 1, 0.4, 0.2, 1e-4)]
    of_rates = tasks.summarise([*runs, *better])["ud/en_ewt"]
    assert of_rates["results"]["reported"]["full"]["mean"] == pytest.approx(0.3)
    text = tables.make_tables([{**result, "tasks": {"a": of_rates, "b": summary["ud/en_ewt"]}}])
    assert "by validation at the first seed: adapters 0.001, full 0.0001 or 0.001;" in text


def test_a_task_is_also_scored_on_the_languages_that_it_was_not_trained_on(tmp_path, monkeypatch):
    words = [("dogs", "NOUN"), ("run", "VERB")]
    sentence = "".join(f"{number}\t{word}\t_\t{tag}" + "\t_" * 6 + "\n" for number, (word, tag) in enumerate(words, 1))
    for treebank in ("en_ewt", "fr_sequoia", "tr_imst"):
        (tmp_path / "ud" / treebank).mkdir(parents=True)
        for split, count in (("train", 6), ("dev", 3), ("test", 4)):
            (tmp_path / "ud" / treebank / f"{split}.conllu").write_text((sentence + "\n") * count)
    seen, rates = {}, []

    def make_run(settings, model):
        def run(data, reported, *, log, **identity):
            seen.update({name: len(rows) for name, rows in reported.items()})
            rates.append(identity["learning_rate"])
            scores = {name: {"accuracy": 0.5} for name in reported}
            return {"validation_best": identity["learning_rate"], "scores": scores, "best_epoch": 1}

        return run

    monkeypatch.setattr(study, "make_run", make_run)
    given = ["--data-dir", str(tmp_path), "--tasks", "ud/en_ewt", "--methods", "adapters", "--seeds", "0", "1"]
    options = tasks.parse([*given, "--adapter-learning-rate", "1e-4", "1e-3"])
    runs = training_runs.Runs(tmp_path / "results")
    assert tasks.conduct(options, runs) == {} and rates == [1e-4, 1e-3, 1e-3]
    assert seen == {"reported": 4, "ud/fr_sequoia": 4, "ud/tr_imst": 4}
    assert runs.runs[0]["primary"] == dict.fromkeys(seen, 0.5) and runs.runs[0]["constant"] == 0.5


def test_methods_are_sized_to_the_same_number_of_parameters():
    norms = {"none": 0, "encoder": 9216, "all": 9984}
    encoder = {"depth": 6, "hidden_size": 384, "intermediate_size": 1536, "layer_norm": norms}
    # 12 (2 * 32 * 384 + 384 + 32) + 9,984; 6 (2 * 67 * 384 + 384 + 67); 6 * 34 * 4 * 384
    expected = {"houlsby": 309_888, "pfeiffer": 311_442, "parallel": 311_442, "lora": 313_344}
    counts = {name: methods.count(methods.sized(name, 310_000, encoder), encoder) for name in methods.METHODS}
    assert counts == expected and methods.sized("lora", 1, encoder).rank == 1


def test_summary_and_table_of_the_methods_by_hand():
    def runs(rate, *scores):
        about = {"metric": "accuracy", "constant": 0.5, "trained_parameters": 5, "config": {"rank": 2}}
        return [{**about, "learning_rate": rate, "validation_best": 0.5, "primary": score} for score in scores]

    found = {"a": {"houlsby": runs(1e-3, 0.8, 0.7), "pfeiffer": runs(3e-3, 0.9, 0.8)}}
    summary = methods.summarise(found, [1e-3, 3e-3])
    pfeiffer = summary["a"]["methods"]["pfeiffer"]
    assert pfeiffer["values"] == [0.9, 0.8] and pfeiffer["minus houlsby"]["mean"] == pytest.approx(0.1)
    row = "| a, accuracy | 50.0 | pfeiffer, 2 | 5 | 0.003 (edge of the grid) | 85.0 ± 7.1 | +10.00 (+10.00 to +10.00) |"
    assert row in methods.table(result_of("methods", {"model": "minilm", "rows": 9, "epochs": 3}, tasks=summary))


def test_a_searchs_table_marks_the_best_pair_and_what_failed():
    def cell(size, rate, mean, sd, message=""):
        return {"bottleneck_size": size, "learning_rate": rate, "mean": mean, "sd": sd, "message": message}

    cells = [
        cell(64, 1e-3, 0.6, 0.1414),
        cell(8, 1e-3, 0.9, 0.0),
        cell(8, 3e-3, 0.25, None),
        cell(64, 3e-3, 0.4, None, "x"),
    ]
    settings = {"task": "glue/cola", "model": "minilm", "metric": "matthews", "rows": 2000, "epochs": 3, "seeds": 2}
    best = {"bottleneck_size": 8, "learning_rate": 1e-3}
    found = {"cells": [*cells, cell(256, 1e-3, None, None, "diverged")], "best": best}
    text = tables.make_tables([result_of("search", settings, **found, test={"matthews_correlation": 0.625})])
    assert "| size | 0.001 | 0.003 |\n|---:|---:|---:|\n| 8 | **90.0 ± 0.0** | 25.0 |\n" in text
    assert "\n| 64 | 60.0 ± 14.1 | failed |\n| 256 | failed | - |\n" in text
    assert "2 seeds; a constant answer has 0.0; test of the best adapter: matthews correlation 62.5 %" in text
