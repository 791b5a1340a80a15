"""quality.py, tasks.py and methods.py, with runs that are made up, and the tables of earlier commands."""

import json
import math

import pytest

from benchmarks import tables
from benchmarks.studies import methods, quality, study, tasks, training_runs
from benchmarks.table_parts import NOTES
from tests.benchmarks.support import step_result


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


def test_summary_of_quality_by_hand_and_the_newest_of_several_results(tmp_path):
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
    (tmp_path / "new.json").write_text(json.dumps(step_result(date="2026-02-01T00:00:00+00:00")))
    (tmp_path / "old.json").write_text(json.dumps(step_result(weights="pretrained")))
    # Of one measurement the newest result alone is shown.
    notes = tables.make_tables(tables.read_results(tmp_path), NOTES)
    assert "new.json" in notes and "old.json" not in notes


def test_summary_of_the_tasks_by_hand():
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
    # Of several rates that one counts which is the best at the first seed, whatever the others report.
    others = [run("full", 0, 1.0, 1.0, 1e-4, 0.4), run("full", 0, 1.0, 1.0, 1e-2, None)]
    assert tasks.summarise([*others, *runs]) == summary == tasks.summarise([*runs, *others])
    better = [run("full", 0, 0.2, 0.2, 1e-4, 0.6), run("full", 1, 0.4, 0.2, 1e-4)]
    assert tasks.summarise([*runs, *better])["ud/en_ewt"]["results"]["reported"]["full"]["mean"] == pytest.approx(0.3)


def test_methods_are_sized_to_the_same_number_of_parameters():
    norms = {"none": 0, "encoder": 9216, "all": 9984}
    encoder = {"depth": 6, "hidden_size": 384, "intermediate_size": 1536, "layer_norm": norms}
    # 12 (2 * 32 * 384 + 384 + 32) + 9,984; 6 (2 * 67 * 384 + 384 + 67); 6 * 34 * 4 * 384
    expected = {"houlsby": 309_888, "pfeiffer": 311_442, "parallel": 311_442, "lora": 313_344}
    counts = {name: methods.count(methods.sized(name, 310_000, encoder), encoder) for name in methods.METHODS}
    assert counts == expected and methods.sized("lora", 1, encoder).rank == 1


def test_summary_of_the_methods_by_hand():
    def runs(rate, *scores):
        about = {"metric": "accuracy", "constant": 0.5, "trained_parameters": 5, "config": {"rank": 2}}
        return [{**about, "learning_rate": rate, "validation_best": 0.5, "primary": score} for score in scores]

    found = {"a": {"houlsby": runs(1e-3, 0.8, 0.7), "pfeiffer": runs(3e-3, 0.9, 0.8)}}
    summary = methods.summarise(found, [1e-3, 3e-3])
    pfeiffer = summary["a"]["methods"]["pfeiffer"]
    assert pfeiffer["values"] == [0.9, 0.8] and pfeiffer["minus houlsby"]["mean"] == pytest.approx(0.1)
