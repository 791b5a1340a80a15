"""quality.py, with runs that are made up."""

import json
import math

import pytest

from benchmarks import tables
from benchmarks.studies import quality, study, training_runs
from tests.benchmarks.support import step_result


def fake_run(accuracy, validation=0.5, rate=1e-3, seed=0):
    return {
        "accuracy": accuracy,
        "validation_best": None if accuracy is None else validation,
        "learning_rate": rate,
        "seed": seed,
        "best_epoch": 1,
        "seconds": 1.0,
        "trained_parameters": 10,
        "further_accuracy": accuracy,
        "further_rows": 6000,
    }


def point(rate, dropout=None, init_stddev=None):
    return {"learning_rate": rate, "dropout": dropout, "init_stddev": init_stddev}


GRIDS = {"adapters": [point(1e-3), point(3e-3, 0.0, 0.03)], "full": [point(1e-5), point(5e-5)]}


def test_the_study_chooses_by_validation_and_runs_the_other_seeds_at_the_best_rate(tmp_path):
    calls = []

    def train(task, identity):
        calls.append(tuple(identity.values()))
        # The rate that is worse on the reported rows is the better one on the validation rows.
        good = identity["learning_rate"] in (3e-3, 5e-5)
        return {**fake_run(0.8 if good else 0.9, 0.95 if good else 0.6)}

    best = quality.conduct(
        {"task": "a", "rows": 1},
        grids=GRIDS,
        seeds=[5, 6],
        runs=training_runs.Runs(tmp_path),
        train=train,
        log=lambda line: None,
    )
    assert calls == [
        ("adapters", 1e-3, None, None, 5),
        ("adapters", 3e-3, 0.0, 0.03, 5),
        ("full", 1e-5, None, None, 5),
        ("full", 5e-5, None, None, 5),
        ("adapters", 3e-3, 0.0, 0.03, 6),
        ("full", 5e-5, None, None, 6),
    ]
    assert list(best) == ["adapters", "full"]
    assert all([run["seed"] for run in runs] == [5, 6] for runs in best.values())
    assert all(run["accuracy"] == 0.8 for run in best["adapters"])


def test_a_killed_study_goes_on_without_repeating_a_run(tmp_path):
    calls = []

    def train(task, identity):
        calls.append(tuple(identity.values()))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return fake_run(0.9)

    def run_study(settings):
        return quality.conduct(
            {"task": "a", **settings},
            grids=GRIDS,
            seeds=[0, 1],
            runs=training_runs.Runs(tmp_path),
            train=train,
            log=lambda _: None,
        )

    with pytest.raises(KeyboardInterrupt):
        run_study({"rows": 1})
    with open(tmp_path / "runs.jsonl", "a") as file:
        file.write('{"half a li')
    run_study({"rows": 1})
    assert calls[2] == calls[3] and len(calls) == 7 and len(set(calls)) == 6
    assert len(training_runs.Runs(tmp_path).runs) == 6
    run_study({"rows": 1})
    assert len(calls) == 7
    run_study({"rows": 2})  # other settings are other runs
    assert len(calls) == 13 and len((tmp_path / "runs.jsonl").read_text().splitlines()) == 12


def test_the_best_runs_of_before_the_further_rows_are_done_again(tmp_path):
    calls = []

    def conduct(further_rows):
        def train(task, identity):
            calls.append((identity["method"], identity["seed"]))
            return fake_run(0.9) | {"further_rows": further_rows}

        grids, runs = {method: grid[:1] for method, grid in GRIDS.items()}, training_runs.Runs(tmp_path)
        return quality.conduct(
            {"task": "a"},
            grids=grids,
            seeds=[0, 1],
            runs=runs,
            train=train,
            further_rows=further_rows,
            log=lambda line: None,
        )

    everything = [(method, seed) for method in GRIDS for seed in (0, 1)]
    for further_rows in (None, 100, 200):
        best = conduct(further_rows)
        assert sorted(calls) == sorted(everything)
        assert all(run["further_rows"] == further_rows for runs in best.values() for run in runs)
        calls.clear()
        conduct(further_rows)
        assert not calls


def test_of_equal_rates_the_smaller_is_chosen_and_a_diverged_one_never():
    runs = [fake_run(0.9, 0.7, 3e-3), fake_run(0.8, 0.7, 1e-3), fake_run(None, 0.99, 1e-2), fake_run(0.8, 0.8, 1e-4)]
    assert [run["learning_rate"] for run in study.rank(runs)] == [1e-4, 1e-3, 3e-3, 1e-2]
    assert [study.diverged(run) for run in study.rank(runs)] == [False, False, False, True]


@pytest.mark.parametrize("later, chosen", [(0.95, 1e-3), (0.69, 3e-3), (None, 3e-3)])
def test_of_the_finalists_the_best_mean_over_the_seeds_is_chosen(tmp_path, later, chosen):
    # At the first seed 3e-3 is ahead of 1e-3, and 1e-2 is no finalist.
    validation = {3e-3: (0.9, 0.7), 1e-3: (0.89, later), 1e-2: (0.5, 0.99)}
    calls = []

    def train(task, identity):
        calls.append((identity["learning_rate"], identity["seed"]))
        number = validation[identity["learning_rate"]][identity["seed"]]
        return fake_run(None if number is None else 0.8, number or 0.99) | {"failure": "diverged"}

    best = quality.conduct(
        {"task": "a"},
        grids={"full": [point(rate) for rate in validation]},
        seeds=[0, 1],
        runs=training_runs.Runs(tmp_path),
        train=train,
        finalists=2,
        log=lambda line: None,
    )
    assert calls == [(3e-3, 0), (1e-3, 0), (1e-2, 0), (3e-3, 1), (1e-3, 1)]
    assert [run["learning_rate"] for run in best["full"]] == [chosen, chosen]


def test_summary_of_the_study_by_hand():
    best = {
        "adapters": [fake_run(0.90), fake_run(0.88, seed=1)],
        "full": [fake_run(0.89, rate=5e-5), fake_run(0.89, rate=5e-5, seed=1)],
    }
    summary = quality.summarise(
        best, {"adapters": [point(rate) for rate in (3e-4, 1e-3, 3e-3)], "full": [point(1e-5), point(5e-5)]}
    )
    assert summary["methods"]["adapters"]["mean"] == pytest.approx(0.89)
    assert summary["methods"]["adapters"]["sd"] == pytest.approx(0.01 * math.sqrt(2))
    assert not summary["methods"]["adapters"]["at_edge_of_grid"] and summary["methods"]["full"]["at_edge_of_grid"]
    assert summary["adapters - full"]["mean"] == pytest.approx(0.0)
    # t(0.975, 1) = 12.7062 and s.e.m. 0.01
    assert summary["adapters - full"]["interval"] == pytest.approx([-0.127062, 0.127062], abs=1e-6)
    assert "adapters - full: +0.00 points, 95 % interval -12.71 to +12.71" in quality.describe(summary)


def test_table_of_the_study_and_of_the_newest_result_only(tmp_path):
    best = {"adapters": [fake_run(0.90), fake_run(0.88)], "full": [fake_run(0.89, rate=5e-5)] * 2}
    summary = {
        "kind": "quality",
        "date": "2026-01-02",
        "seeds": [0, 1],
        "reported_rows": 872,
        "further_rows": 6000,
        "settings": {"task": "glue/sst2", "model": "minilm", "rows": 8000, "epochs": 3},
        "versions": {"tensorflow": "2.21.0"},
        "machine": {"cpu": "A Processor", "cores": 2},
        "git": {"commit": "0123456789", "dirty": True},
        **quality.summarise(best, GRIDS),
    }
    (tmp_path / "sst2").mkdir()
    (tmp_path / "sst2" / "summary.json").write_text(json.dumps(summary))
    (tmp_path / "new.json").write_text(json.dumps(step_result(date="2026-02-01T00:00:00+00:00")))
    (tmp_path / "old.json").write_text(json.dumps(step_result(weights="pretrained")))
    text = tables.make_tables(tables.read_results(tmp_path))
    assert "| **adapters** | 0.001 (edge of its grid) | encoder's | 0.01 | 89.00 | 1.41 | 1.00 | 10 |" in text
    assert (
        "Adapters minus full fine-tuning: +0.00 points, 95 % interval -12.71 to +12.71 (paired t, 2 seeds). On 6,000 "
        "further rows" in text
    )
    assert "**adapters** 89.00 %, full fine-tuning 89.00 %; +0.00 points, 95 %" in text
    assert "commit 0123456 with changes" in text
    notes = tables.make_tables(tables.read_results(tmp_path), tables.NOTES)
    assert "new.json" in notes and "old.json" not in notes
