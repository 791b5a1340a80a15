"""step.py: its workers, its arms and what they compute; no time is measured here."""

import importlib.util
import json
import sys
import textwrap

import numpy as np
import pytest

from benchmarks import pairing, result
from benchmarks.peers import torch_environment, worker_protocol
from benchmarks.steps import batches as batches_script
from benchmarks.steps import gpu, step
from tests.benchmarks.support import BENCHMARKS, run_script

FAKE_WORKER = """
import sys, time
from benchmarks.peers import worker_protocol

class Arm(worker_protocol.Arm):
    trained_parameters = 7
    batch_count = 2
    details = {"versions": {"fake": "1"}}
    def __init__(self, settings):
        print("a library's chatter on standard output")
        self.settings, self.seen = settings, []
        if settings.get("fail") == "build":
            raise ValueError("no such thing")
    def step(self, index):
        print("more chatter")
        self.seen.append(index)
        if self.settings.get("fail") == "die":
            import os
            print("last words", file=sys.stderr, flush=True)
            os._exit(3)
        with open(self.settings["trace"], "a") as file:
            file.write(f"{self.settings['arm']} {index}\\n")
    def save(self, directory):
        with open(directory + "/weights", "wb") as file:
            file.write(b"x" * 1234)

worker_protocol.serve(Arm)
"""


@pytest.fixture
def fake_worker(tmp_path):
    script = tmp_path / "fake_worker.py"
    script.write_text(textwrap.dedent(FAKE_WORKER))
    made = []

    def make(arm):
        words, environment = [sys.executable, str(script)], {"PYTHONPATH": str(BENCHMARKS.parent)}
        made.append(worker_protocol.Worker(arm, words, environment=environment, log=tmp_path / f"{arm}.log"))
        return made[-1]

    yield make
    for worker in made:
        worker.close()


def test_a_worker_builds_warms_up_steps_and_finishes(fake_worker, tmp_path):
    worker = fake_worker("one")
    built = worker.ask("build", arm="one", trace=str(tmp_path / "trace"))
    assert built["trained_parameters"] == 7 and built["versions"] == {"fake": "1"} and built["built_rss_mib"] > 1
    assert worker.ask("warm-up").keys() == {"first_step_s", "warm_up_s", "peak_rss_mib"}
    assert len(worker.ask("steps", count=3)["step_ms"]) == 3
    assert len(worker.ask("steps", count=1)["step_ms"]) == 1
    finished = worker.ask("finish")
    assert finished["saved_bytes"] == 1234 and finished["peak_rss_mib"] >= built["built_rss_mib"]
    assert worker.process.wait(10) == 0
    # The warm-up goes once over the batches; turns go on where the last one stopped.
    assert (tmp_path / "trace").read_text().split() == "one 0 one 1 one 0 one 1 one 0 one 1".split()


def test_errors_of_a_worker_reach_the_driver_and_its_end_with_its_last_words(fake_worker):
    worker = fake_worker("one")
    with pytest.raises(worker_protocol.WorkerError, match="one: ValueError: no such thing"):
        worker.ask("build", fail="build")
    worker.ask("build", fail="die")
    with pytest.raises(worker_protocol.WorkerError, match=r"one: the worker ended \(status 3\)[\s\S]*last words"):
        worker.ask("warm-up")


def test_workers_take_turns_and_every_second_round_goes_backwards(fake_worker, tmp_path):
    workers = {}
    for arm in ("a", "b"):
        workers[arm] = fake_worker(arm)
        workers[arm].ask("build", arm=arm, trace=str(tmp_path / "trace"))
    lines = []
    busy = iter([0.0, 0.25, 0.5, 0.25])
    turns, others = step.alternate(
        workers, rounds=2, steps=2, log=lines.append, pause=0.0, busy=lambda pause: next(busy)
    )
    assert (tmp_path / "trace").read_text().split("\n")[:-1] == "a 0,a 1,b 0,b 1,b 0,b 1,a 0,a 1".split(",")
    assert {arm: [len(turn) for turn in rows] for arm, rows in turns.items()} == {"a": [2, 2], "b": [2, 2]}
    assert others == 0.25 and len(lines) == 2


def test_a_result_is_never_overwritten(tmp_path, capsys, monkeypatch):
    path = tmp_path / "results" / "one.json"
    result.write_result(path, {"a": 1})
    with pytest.raises(FileExistsError):
        result.write_result(path, {"a": 2})
    assert json.loads(path.read_text()) == {"a": 1}
    monkeypatch.setattr("sys.argv", ["benchmark", f"--output={path}"])
    for begin in (step.main, gpu.parse):
        with pytest.raises(SystemExit):
            begin()
        assert "never edited" in capsys.readouterr().err


def test_options_depend_on_the_model_and_turns_are_whole(tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.result.RESULTS", tmp_path)  # a result of today may be there
    assert step.parse(["--model", "bert-base"]).batch_size == 16
    options = step.parse(["--model", "bert-base", "--batches", "short"])
    assert (options.batch_size, options.steps) == (32, 8)
    assert step.parse(["--batch-size", "4", "--steps", "12"]).steps == 12
    for arguments in (["--steps", "3"], ["--rounds", "0"], ["--arms", "full", "full"], ["--before", str(tmp_path)]):
        with pytest.raises(SystemExit):
            step.parse(arguments)


def test_each_arm_of_tensorflow_is_paired_with_the_same_arm_before_a_change(tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.result.RESULTS", tmp_path)  # a result of today may be there
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "start.py").touch()
    arms = step.parse(["--before", str(tmp_path), "--arms", "full@float32", "fast", "torch-full"]).arms
    assert arms == ["full@float32", "fast", "torch-full", "before:full@float32", "before:fast"]
    assert step.split_arm(arms[3], "mixed_bfloat16") == ("full", "float32")
    ratios = pairing.paired_ratios({arm: [[100.0 + 10 * place]] for place, arm in enumerate(arms)})
    assert ratios["before:fast / fast"]["median"] == 140 / 110
    assert ratios["before:full@float32 / full@float32"]["median"] == 1.3


def test_short_batches_are_sorted_padded_to_their_longest_and_keep_their_labels():
    rows = [[1, 5, 5, 2], [1, 2], [1, 6, 2], [1, 2]]
    made = batches_script.sort_into_batches(rows, np.array([3, 0, 2, 1]), 2, pad_id=0)
    assert [ids.tolist() for ids, _, _ in made] == [[[1, 2], [1, 2]], [[1, 6, 2, 0], [1, 5, 5, 2]]]
    assert [mask.tolist() for _, mask, _ in made] == [[[1, 1], [1, 1]], [[1, 1, 1, 0], [1, 1, 1, 1]]]
    assert [labels.tolist() for _, _, labels in made] == [[0, 1], [2, 3]]


@pytest.mark.nightly
def test_random_bert_loads_and_step_compares_two_arms(tmp_path):
    """The real workers on a real model; the PyTorch arm too where its environment was made."""
    arms = ["adapters", "forward-adapters", "fast@mixed_bfloat16", "routed", "texts"]
    hub = ["tensorflow-hub-adapters", "jax-hub-lora"]
    arms += hub if all(map(importlib.util.find_spec, ("keras_hub", "jax"))) else []
    if (torch_environment.FOLDER / "bin" / "python").exists():
        arms.append("torch-adapters")
    options = ("--smoke", "--batches", "short", "--threads", "2", "--profile", "--output", str(tmp_path / "a.json"))
    done = run_script("step.py", *options, "--arms", *arms)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "a.json").read_text())
    assert {
        row["trained_parameters"]
        for arm, row in result["arms"].items()
        if arm.startswith(("adapters", "fast@", "torch", "tensorflow-hub"))
    } == {753_026}
    assert result["arms"]["adapters"]["saved_bytes"] > 4 * 753_026
    profiled = {arm: row["profile_ms"] for arm, row in result["arms"].items() if "profile_ms" in row}
    assert profiled.keys() == {"adapters", "forward-adapters", "fast@mixed_bfloat16"}
    assert min(row["products"] for row in profiled.values()) > 0
    assert [arm for arm, row in profiled.items() if row["programs"]] == ["fast@mixed_bfloat16"]
    assert "| **adapters, fast**, tf_adapters |" in done.stdout.partition("ms of a step's operations")[2]
