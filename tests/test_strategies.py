"""Training under tf.distribute, on virtual CPUs and on two processes of this machine."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from tests.cases import nightly_but
from tests.conftest import is_refused, tiny_model
from tests.runs import content
from tests.strategy_runs import make_task
from tf_adapters import AdapterConfig, InputError, add_adapters, fit, set_trainable
from tf_adapters.text import WordPiece
from tf_adapters.training.settings import read_cluster
from tf_adapters.training.strategies import Workers, make_strategy

ROOT = pathlib.Path(__file__).parents[1]
# Sums of float32 in another order, through 100 steps of Adam.
TOLERANCE = 1e-5


def start(runs, *, devices=1, tf_config=None):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", "TF_USE_LEGACY_KERAS": "1"}
    environment.pop("TF_CONFIG", None)
    if tf_config is not None:
        environment["TF_CONFIG"] = json.dumps(tf_config)
    command = [sys.executable, "-m", "tests.strategy_runs", str(devices), json.dumps(runs)]
    # Files, for a worker that waits until its pipe is read would have the other wait too.
    out, err = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=err)
    process.out, process.err = out, err
    return process


def printed(file):
    file.seek(0)
    return file.read()


def finish(*processes, status=0, seconds=300):
    """What each has printed, standard output and standard error, when all have ended; none outlives the call. `status`
    is what all must end with, or a tuple of one for each; `seconds` are for all of them."""
    deadline = time.monotonic() + seconds
    wanted = status if isinstance(status, tuple) else (status,) * len(processes)
    try:
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=max(0.0, deadline - time.monotonic()))
        ended = tuple(process.poll() for process in processes)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    outputs = tuple((printed(process.out), printed(process.err)) for process in processes)
    assert ended == wanted, "\n\n".join(err[-3000:] for _, err in outputs)
    return outputs


def two_workers():
    """TF_CONFIG of two processes on free ports of this machine."""
    with socket.create_server(("localhost", 0)) as one, socket.create_server(("localhost", 0)) as other:
        addresses = [f"localhost:{server.getsockname()[1]}" for server in (one, other)]
    return [{"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}} for index in (0, 1)]


def assert_same(folder, other):
    """Losses of every step and final weights agree."""
    one, two = np.load(f"{folder}.npz"), np.load(f"{other}.npz")
    assert len(one["losses"]) >= 100 and one.files == two.files
    for name in one.files:
        np.testing.assert_allclose(
            two[name], one[name], atol=TOLERANCE if name == "losses" else 1e-4, rtol=0, err_msg=name
        )


TRAININGS = {
    "sentences": {},
    "fast blocks": {"fast": True},
    "words by a fusion": {"kind": "token-classification", "fusion": True},
    "questions": {"kind": "question-answering"},
    "masked words": {"kind": "masked-lm"},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", nightly_but(["sentences"], TRAININGS))
def test_virtual_devices_train_as_one(one_block, tmp_path, name):
    """Devices have unequal numbers of rows and words, and one has no row of the last batch."""
    settings = {"checkpoint": str(one_block), **TRAININGS[name]}
    folders = {None: tmp_path / "one", "mirrored": tmp_path / "two"}
    runs = [{"strategy": strategy, "folder": str(folder), **settings} for strategy, folder in folders.items()]
    finish(start(runs, devices=2))
    assert_same(*folders.values())


@pytest.mark.nightly
def test_two_processes_train_as_one_and_a_signal_to_one_stops_both_and_resume_ends_bit_equal(one_block, tmp_path):
    """One worker gets SIGTERM; both stop at the next step that they agree at. The chief alone writes the output that
    they share."""
    finish(start([{"strategy": None, "folder": str(tmp_path / "one"), "checkpoint": str(one_block)}]))

    def run(name, **second):
        workers = []
        for config, settings in zip(
            two_workers(), ({key: value for key, value in second.items() if key == "resume"}, second)
        ):
            run = {"strategy": "multi-worker", "folder": str(tmp_path / name), "checkpoint": str(one_block), **settings}
            run["record"] = str(tmp_path / f"{name}-{config['task']['index']}")
            workers.append(start([run], tf_config=config))
        (chief, _), (second, _) = finish(*workers)
        assert chief == second
        return chief

    assert run("whole") == "steps 108 interrupted False\n"
    assert_same(tmp_path / "one", tmp_path / "whole-0")
    whole, second = np.load(tmp_path / "whole-0.npz"), np.load(tmp_path / "whole-1.npz")
    assert all(np.array_equal(whole[name], second[name]) for name in whole.files)

    assert run("stopped", stop_at=26) == "steps 30 interrupted True\n"
    assert (tmp_path / "stopped" / ".resume").is_dir()
    assert run("stopped", resume=True) == "steps 108 interrupted False\n"
    assert content(tmp_path / "stopped") == content(tmp_path / "whole")


@pytest.mark.nightly
@pytest.mark.parametrize("killed", [0, 1])
def test_a_worker_that_dies_ends_the_other_with_a_sentence(one_block, tmp_path, killed):
    settings = {"strategy": "multi-worker", "folder": str(tmp_path / "out"), "checkpoint": str(one_block)}
    # Ten trainings in a row do not end before one is killed.
    workers = [
        start([{**settings, "folder": f"{settings['folder']}-{run}"} for run in range(10)], tf_config=config)
        for config in two_workers()
    ]
    deadline = time.monotonic() + 200
    while not (tmp_path / "out-0" / "log.csv").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    workers[killed].kill()
    _, err = finish(*workers, status=(-signal.SIGKILL, 1) if killed == 0 else (1, -signal.SIGKILL))[1 - killed]
    assert "error: Another worker was lost, and this one cannot go on alone." in err


def test_a_strategy_without_its_hardware_is_refused(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [])
    for name, message in {
        "ps": "strategy='ps' is unknown: use one of mirrored, multi-worker",
        "mirrored": "needs two devices or more, and TensorFlow sees one CPU",
        "multi-worker": "TF_CONFIG, and it is not set",
    }.items():
        is_refused(message, make_strategy, name)


def test_what_is_wrong_with_tf_config_is_named_beside_one_that_is_right():
    for config, message in (
        ("{", "it is not JSON"),
        ({"task": {"type": "worker", "index": 0}}, 'its "cluster" must be an object'),
        ({"cluster": {"worker": ["a:1", "b"]}}, "with a list of addresses HOST:PORT"),
        ({"cluster": {"worker": ["a:1"]}}, "must have two workers or more"),
        ({"cluster": {"worker": ["a:1", "b:1"]}}, r'its "task" must say .* \(worker 0, worker 1\), and is None'),
        ({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": "0"}}, "'index': '0'"),
    ):
        said = is_refused(
            message, read_cluster, {"TF_CONFIG": config if isinstance(config, str) else json.dumps(config)}
        )
        example = said.partition("TF_CONFIG='")[2].partition("';")[0]
        assert read_cluster({"TF_CONFIG": example}).chief


def test_tf_config_with_a_chief_numbers_it_first():
    config = {"cluster": {"worker": ["b:1", "c:1"], "chief": ["a:1"]}, "task": {"type": "worker", "index": 1}}
    cluster = read_cluster({"TF_CONFIG": json.dumps(config)})
    assert (cluster.workers, cluster.number, cluster.chief) == (3, 2, False)


@pytest.mark.parametrize(
    "here, seed, message",
    [
        (True, 0, None),
        (False, 0, "this worker does not see what the first one writes there"),
        (True, 1, r"This worker has another seed than the chief \(0, not 1\)"),
    ],
)
def test_a_worker_that_does_not_see_the_output_or_has_other_settings_is_refused(tmp_path, here, seed, message):
    workers = Workers.__new__(Workers)
    (tmp_path / "of-the-chief").touch()
    of_chief = iter([{"seed": seed}, "of-the-chief" if here else "elsewhere"])
    workers.processes, workers.from_chief = 2, lambda compute: next(of_chief)
    workers.any = lambda unseen: unseen
    with pytest.raises(InputError, match=message) if message else contextlib.nullcontext():
        workers.check(tmp_path, {"seed": 0})


def test_a_model_of_another_scope_and_settings_for_one_device_are_refused(checkpoint, tmp_path, monkeypatch):
    wordpiece = WordPiece.from_directory(checkpoint, max_length=16)
    task, strategy = make_task("classification"), tf.distribute.MirroredStrategy(["CPU:0"])

    def model(**changes):
        adapted = add_adapters(tiny_model(num_hidden_layers=1), AdapterConfig(4, **changes), seed=0)
        return set_trainable(adapted, "adapters")

    def assert_refused(message, model, **changes):
        common = {"output": tmp_path, "epochs": 1, "learning_rate": 1e-3, "batch_size": 8, "strategy": strategy}
        is_refused(message, fit, model, task, wordpiece, **{**common, **changes})

    assert_refused("load it and add its adapters inside `with strategy.scope", model())
    assert_refused("random_drop=2: 1 blocks have adapters", model(random_drop=2), strategy=None)
    with strategy.scope():
        made, dropping = model(), model(random_drop=1)
    assert_refused("the model was made under", made, strategy=None)
    for change, value in {"cache_frozen": True, "accumulate": 2, "mixout": 0.5, "jit_compile": True}.items():
        assert_refused(f"{change}={value} is for one device", made, **{change: value})
    assert_refused("random_drop=1 is for one device", dropping)
    monkeypatch.setattr(tf.distribute.MirroredStrategy, "num_replicas_in_sync", 3)
    assert_refused("batch_size=8 rows of a step do not divide among 3 devices", made)
    assert not any(tmp_path.iterdir())


def test_the_command_refuses_before_it_trains(refused, train_arguments, tmp_path, monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    for words, message in {
        "--strategy=ring": "--strategy ring is unknown: use one of mirrored, multi-worker",
        "--strategy=mirrored --cache-frozen": "--cache-frozen cannot be together with --strategy mirrored",
        "--strategy=multi-worker --seeds=2": "--seeds cannot be together with --strategy multi-worker",
    }.items():
        refused(*train_arguments, f"--output={tmp_path / 'out'}", *words.split(), says=message)


def test_the_validation_loss_of_sentences_is_the_same_inside_a_strategy():
    from tf_adapters.kinds import get_kind
    from tf_adapters.tasks.rows import Rows
    from tf_adapters.training.run import Run

    kind, rows = get_kind("regression"), Rows(text=tf.constant(["a", "b"]), labels=np.float32([1, 3]))
    outputs = np.float32([[0], [1]])
    with tf.distribute.OneDeviceStrategy("CPU:0").scope():
        assert kind.loss(rows, outputs) == (1 + 4) / 2
    # Of the outputs themselves, where the values have a range too.
    about = {
        "settings.tune_thresholds": False,
        "task.metric": "pearson-spearman",
        "scorer.logits.return_value": outputs,
    }
    run = mock.Mock(kind=kind, whole=tiny_model(), **about)
    found = Run._validate(run, Rows(rows.text, labels=rows.labels, value_range=(1.0, 5.0)))
    assert found["mean loss"] == (1 + 4) / 2 and found["mse"] == (0 + 4) / 2
