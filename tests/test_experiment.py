"""An experiment from Python: what the command line trains, over one seed or several."""

import csv
import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from tests.runs import Killed, content
from tf_adapters import InputError, TrainingSettings, get_recipe, load_trained, task_from_files
from tf_adapters.cli.progress import Runner
from tf_adapters.cli.quiet import terminal
from tf_adapters.models.state import state_of
from tf_adapters.models.transformers import door
from tf_adapters.tasks.analysis import summary_of_seeds
from tf_adapters.training.experiment import Experiment, Observer
from tf_adapters.training.run import Reporter, Run
from tf_adapters.training.settings import Cluster

SETTINGS = TrainingSettings(epochs=2, learning_rate=3e-3, batch_size=32, dropout=0.0, seed=1)


def test_a_run_that_is_long_enough_has_fast_blocks(experiment, monkeypatch):
    rows = len(experiment.task.train)

    def is_fast(epochs, trainable="adapters", jit_compile=False, **others):
        settings = dataclasses.replace(SETTINGS, epochs=epochs, batch_size=rows, jit_compile=jit_compile)
        model, _ = dataclasses.replace(experiment, settings=settings, trainable=trainable, **others).build()
        return state_of(model).fast

    assert is_fast(100) and not is_fast(99)
    assert is_fast(1, fast=True) and not is_fast(100, fast=False)
    assert not is_fast(100, jit_compile=True) and not is_fast(100, "full")
    with monkeypatch.context() as other:
        other.setattr(door, "why_not_fast", lambda family: "it has none")
        assert not is_fast(100)
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["GPU:0"])
    assert not is_fast(100)


def test_how_a_run_computes_is_said_and_what_would_take_less_time(experiment, monkeypatch, capsys):
    def said(fast, precision, here):
        monkeypatch.setattr("tf_adapters.cli.progress.has_bfloat16", lambda: here)
        one = dataclasses.replace(experiment, fast=fast, precision=precision)
        runner, (model, _) = Runner(terminal(), one, Cluster(), 1, 0.0), one.build()
        runner.begin(SETTINGS.seed, one.task, model)
        out = capsys.readouterr().out
        return "Computing" in out, f"Computing in {precision}, with fast blocks" in out, "has bfloat16" in out

    assert said(True, "float32", True) == (True, True, True)
    assert said(True, "float32", None) == (True, True, False)
    assert said(True, "mixed_bfloat16", True) == (True, True, False)
    assert said(False, "mixed_bfloat16", True) == (True, False, False)
    assert said(False, "float32", True) == (False, False, False)


class StopAtScore(Observer):
    def __init__(self):
        self.steps = []

    def progress(self, seed):
        raise Killed

    def end(self, seed, result):
        self.steps.append(result.steps)


class StopAtSeed(Observer):
    def __init__(self, seed):
        self.seed, self.begun, self.done = seed, [], []

    def begin(self, seed, task, model):
        self.begun.append(seed)
        if seed == self.seed:
            raise Killed

    def end(self, seed, result):
        self.done.append((seed, result is None))


@pytest.fixture(scope="module")
def experiment(one_block, sentences):
    task = task_from_files(
        train=sentences / "train.csv", validation=sentences / "validation.csv", test=sentences / "test.csv"
    )
    adapter = dataclasses.replace(get_recipe("default").adapter, bottleneck_size=4)
    return Experiment(str(one_block), task, "default", SETTINGS, adapter=adapter, max_length=32)


@pytest.mark.slow
def test_seeds_are_trained_the_best_is_kept_and_a_stopped_one_goes_on(experiment, sentences, cli, tmp_path):
    observer = StopAtSeed(2)
    with pytest.raises(Killed):
        experiment.run_seeds(tmp_path / "a", 2, observer=observer)
    assert observer.begun == [1, 2] and observer.done == [(1, False)]
    assert not (tmp_path / "a" / ".seed-1" / ".resume").exists()  # which is larger than what it trained
    with pytest.raises(InputError, match="holds seeds of a run with another learning_rate .0.003, now 0.1."):
        other = dataclasses.replace(experiment, settings=dataclasses.replace(SETTINGS, learning_rate=0.1))
        other.run_seeds(tmp_path / "a", 2, resume=True)
    with pytest.raises(InputError, match="holds seeds of a run with another data"):
        task = dataclasses.replace(experiment.task, train=experiment.task.train.take(range(20)))
        dataclasses.replace(experiment, task=task).run_seeds(tmp_path / "a", 2, resume=True)
    observer = StopAtSeed(None)
    runs = experiment.run_seeds(tmp_path / "a", 2, resume=True, observer=observer)
    assert observer.begun == [2] and observer.done == [(1, True), (2, False)]
    kept = json.loads((tmp_path / "a" / "tf_adapters.json").read_text())
    best = runs.best()
    assert kept["seeds"]["runs"] == runs.runs and [run["seed"] for run in runs.runs] == [1, 2]
    assert kept["training"]["seed"] == best["seed"] and kept["metrics"]["validation accuracy"] == best["validation"]
    assert best["validation"] == max(run["validation"] for run in runs.runs)
    assert kept["seeds"]["summary"]["test"] == summary_of_seeds([run["test"] for run in runs.runs])
    with pytest.raises(InputError, match="holds no seeds to go on with: start them without resume=True"):
        experiment.run_seeds(tmp_path / "a", 2, resume=True)
    # So is its log, and nothing else of the runs.
    names = {"README.md", "adapter.safetensors", "log.csv", "tf_adapters.json"}
    assert {path.name for path in (tmp_path / "a").iterdir()} - {"learning-curve.png"} == names
    log = list(csv.DictReader((tmp_path / "a" / "log.csv").read_text().splitlines()))
    assert max(float(row["validation_accuracy"]) for row in log) == pytest.approx(best["validation"])
    assert "Over 2 seeds: test accuracy" in (tmp_path / "a" / "README.md").read_text()
    shown = cli("evaluate", tmp_path / "a", "--input", sentences / "test.csv").out
    assert f"This is seed {best['seed']}, the best by validation of 2, whose test accuracy has mean" in shown
    # As `tf-adapters train` keeps it.
    assert kept["result"]["numbers"]["accuracy"] == best["test"] and kept["result"]["split"] == "test"
    assert set(kept["result"]["without_training"]) == {"one constant answer", "TF-IDF and logistic regression"}
    alone = dataclasses.replace(experiment, settings=dataclasses.replace(SETTINGS, seed=best["seed"]))
    alone.train(*alone.build(), tmp_path / "alone")
    name = "adapter.safetensors"
    assert (tmp_path / "alone" / name).read_bytes() == (tmp_path / "a" / name).read_bytes()
    # What is kept computes the number that is said of it.
    model, _ = load_trained(tmp_path / "a")
    _, tokenizer = experiment.build(best["seed"])
    assert experiment.score(model, tokenizer).numbers["accuracy"] == best["test"]


def test_a_seed_that_was_killed_while_it_was_scored_is_not_trained_again(experiment, tmp_path, monkeypatch):
    folder, observer = tmp_path / "a", StopAtScore()
    one_epoch = dataclasses.replace(experiment, settings=dataclasses.replace(SETTINGS, epochs=1))
    with pytest.raises(Killed):
        one_epoch.run_seeds(folder, 1, observer=observer)
    monkeypatch.setattr(Run, "on_train_batch_end", lambda *arguments: pytest.fail("it trained again"))
    runs = one_epoch.run_seeds(folder, 1, resume=True)
    assert observer.steps[0] > 0 and len(runs.runs) == 1 and "test" in runs.runs[0]
    assert not list(folder.glob(".*"))


@pytest.mark.slow
def test_a_training_is_that_of_the_command_line(experiment, one_block, sentences, cli, tmp_path):
    class Losses(Reporter):
        seen = []

        def step(self, done, numbers):
            self.seen.append(float(numbers["loss"]))

    model, tokenizer = experiment.build()
    result = experiment.train(model, tokenizer, tmp_path / "python", reporter=Losses())
    assert len(Losses.seen) == result.steps and np.isfinite(Losses.seen).all()
    files = [f"--{name}={sentences / name}.csv" for name in ("train", "validation", "test")]
    words = ["--epochs=2", "--learning-rate=3e-3", "--batch-size=32", "--seed=1", "--adapter-size=4", "--max-length=32"]
    outcome = cli("train", f"--model={one_block}", *files, *words, f"--output={tmp_path / 'cli'}")
    assert outcome.status == 0, outcome.err
    ours, theirs = content(tmp_path / "python"), content(tmp_path / "cli")
    # The command scores the test rows too, keeps that, and draws.
    theirs.pop("learning-curve.png", None)
    assert ours.keys() == theirs.keys() and all(
        ours[name] == theirs[name] for name in ("adapter.safetensors", "log.csv")
    )
    described = [json.loads(files["tf_adapters.json"]) for files in (ours, theirs)]
    assert described[1].pop("result")["split"] == "test"
    assert described[0] == described[1]


def test_what_has_no_parts_for_fusion_is_refused(experiment):
    with pytest.raises(InputError, match="fast=True has no parts for fused adapters"):
        dataclasses.replace(experiment, fast=True, fused={"a": "a", "b": "b"})
