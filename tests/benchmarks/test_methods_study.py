"""methods.py, with runs that are made up."""

import pytest

from benchmarks.studies import methods, study, training_runs
from tests.benchmarks.support import step_result

ENCODER = {
    "depth": 6,
    "hidden_size": 384,
    "intermediate_size": 1536,
    "layer_norm": {"none": 0, "encoder": 9216, "all": 9984},
}


def test_methods_are_sized_to_the_same_number_of_parameters():
    # 12 (2 * 32 * 384 + 384 + 32) + 9,984; 6 (2 * 67 * 384 + 384 + 67); 6 * 34 * 4 * 384
    expected = {"houlsby": 309_888, "pfeiffer": 311_442, "parallel": 311_442, "lora": 313_344}
    assert {
        method: methods.count(methods.sized(method, 310_000, ENCODER), ENCODER) for method in methods.METHODS
    } == expected
    assert methods.sized("lora", 1, ENCODER).rank == 1


def test_the_methods_study_chooses_each_rate_by_validation_and_goes_on(tmp_path):
    scores = {
        "houlsby": {1e-3: 0.8, 3e-3: 0.7},
        "pfeiffer": {1e-3: 0.6, 3e-3: 0.9},
        "parallel": {1e-3: 0.5, 3e-3: 0.5},
        "lora": {1e-3: None, 3e-3: 0.4},
    }
    arms = {method: [{"learning_rate": rate} for rate in rates] for method, rates in scores.items()}

    def train(task, identity):
        value = scores[identity["method"]][identity["learning_rate"]]
        return {
            "validation_best": value,
            "primary": value and value - 0.1 * identity["seed"],
            "metric": "accuracy",
            "constant": 0.5,
            "trained_parameters": 5,
            "config": {"rank": 2},
        }

    def conduct(train, arms=arms, seeds=(0, 1)):
        return study.conduct(
            training_runs.Runs(tmp_path), {"rows": 1}, ["a"], arms, seeds, train, log=lambda line: None
        )

    found = conduct(train)
    assert {method: runs[0]["learning_rate"] for method, runs in found["a"].items()} == {
        "houlsby": 1e-3,
        "pfeiffer": 3e-3,
        "parallel": 1e-3,
        "lora": 3e-3,
    }
    assert len(training_runs.Runs(tmp_path).runs) == 4 * 2 + 4
    assert conduct(lambda *identity: pytest.fail("again")) == found
    summary = methods.summarise(found, [1e-3, 3e-3])
    pfeiffer = summary["a"]["methods"]["pfeiffer"]
    assert (
        pfeiffer["values"] == [0.9, 0.8]
        and pfeiffer["minus houlsby"]["mean"] == pytest.approx(0.1)
        and pfeiffer["at_edge_of_grid"]
    )
    about = {name: step_result()[name] for name in ("date", "machine", "git")}
    result = {
        "kind": "methods",
        "file": "x",
        "link": "x",
        "versions": {"tensorflow": "2.21.0"},
        **about,
        "seeds": [0, 1],
        "tasks": summary,
        "settings": {"model": "minilm", "rows": 2000, "epochs": 3},
    }
    assert (
        "| a, accuracy | 50.0 | pfeiffer, 2 | 5 | 0.003 (edge of the grid) | 85.0 ± 7.1 | +10.00 (+10.00 to +10.00) |"
        in methods.table(result)
    )
    with pytest.raises(RuntimeError, match="houlsby diverged on a at every learning rate"):
        conduct(lambda *identity: {"validation_best": None}, {"houlsby": [{"learning_rate": 1.0}]}, [0])
