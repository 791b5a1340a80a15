"""What a kill may leave in an output folder: the commands' advice leads out of it, and nothing stays behind."""

import fcntl
import functools
import json
import os
import pathlib
import random
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest
import tensorflow as tf

from tests.conftest import is_refused, write_checkpoint, write_csv
from tests.runs import Killed, content
from tf_adapters import fit, load_backbone, load_tokenizer, save_adapter, set_trainable, task_from_files
from tf_adapters.cli import pretrain, train, tune
from tf_adapters.cli.directories import next_directory
from tf_adapters.errors import InputError
from tf_adapters.saving import atomic
from tf_adapters.saving.directory import read_adapter
from tf_adapters.serving import export
from tf_adapters.studies import lab
from tf_adapters.training import disk
from tf_adapters.training import pretrain as pretraining
from tf_adapters.training.disk import SeedRuns
from tf_adapters.training.experiment import Experiment
from tf_adapters.training.run import Reporter
from tf_adapters.training.settings import TrainingSettings
from tf_adapters.tuning.search import AdapterTuner

TEMPORARY = ".0123456789abcdef.tf_adapters.tmp"
COMMANDS = {"train": train, "seeds": train, "tune": tune, "pretrain": pretrain}


def check(command, output, *, resume=False, overwrite=False):
    """What a command says of its output folder: an error's text, or None."""
    try:
        COMMANDS[command]._check_output(output, resume, overwrite, *({"train": [1], "seeds": [2]}.get(command, [])))
    except InputError as error:
        return str(error)


def make(folder, *paths):
    folder.mkdir(exist_ok=True)
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).mkdir() if path.endswith("/") else (folder / path).write_text("{}")


LEFT = ["", f"{TEMPORARY}/", f".resume/{TEMPORARY}/", f"{TEMPORARY}/state.safetensors", "head/", ".resume/"]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_run_that_was_killed_before_it_wrote_anything_can_be_started_again_and_other_files_stay(tmp_path, command):
    for number, path in enumerate([*LEFT, ".seed-0/.resume/"]):
        make(tmp_path / str(number), *filter(None, [path]))
        assert check(command, tmp_path / str(number)) is None, path
    make(tmp_path, "deep/mine.txt")
    assert "--output" in check(command, tmp_path)
    assert (tmp_path / "deep" / "mine.txt").exists()


def test_what_comes_after_a_command_has_another_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    places = {"searches/film": "adapters/film", "adapters/film": "adapters/film-trained"}
    assert {place: str(next_directory(pathlib.Path(place))) for place in places} == places
    assert next_directory(pathlib.Path(".")) == pathlib.Path("adapters", tmp_path.name)


@pytest.mark.parametrize("command", ["train", "pretrain"])
def test_a_run_that_was_killed_before_its_first_state_resumes(tmp_path, command):
    make(tmp_path, ".resume/", "tf_adapters.json")
    assert check(command, tmp_path, resume=True) is None


@pytest.mark.parametrize("command", ["train", "seeds", "pretrain"])
def test_a_run_that_was_killed_after_its_end_is_not_to_be_started_again(tmp_path, command):
    make(tmp_path, "tf_adapters.json", f"{TEMPORARY}/state.safetensors")
    if command != "pretrain":
        make(tmp_path, ".seed-0/tf_adapters.json")
    message = check(command, tmp_path, resume=True)
    assert "holds no interrupted run, but what one came to: use it, or replace it by --overwrite" in message
    assert check(command, tmp_path, overwrite=True) is None
    assert [path.name for path in tmp_path.iterdir()] == ["tf_adapters.json"]


def test_seeds_that_were_killed_while_older_ones_went_are_replaced(tmp_path):
    make(tmp_path, ".seed-1/tf_adapters.json")
    assert "replace it by --overwrite" in check("seeds", tmp_path)
    assert check("seeds", tmp_path, overwrite=True) is None


def test_the_list_of_seeds_is_there_before_the_first_seed(tmp_path):
    make(tmp_path, ".seed-0/tf_adapters.json")
    SeedRuns(tmp_path, metric="accuracy", settings={}, resume=False)
    assert [path.name for path in tmp_path.iterdir()] == ["seeds.json"]
    make(tmp_path, ".seed-0/tf_adapters.json")
    assert check("seeds", tmp_path, resume=True) is None
    assert not SeedRuns(tmp_path, metric="accuracy", settings={}, resume=True).done(0)
    # Folders without the list are what was left when the run ended.
    (tmp_path / "seeds.json").unlink()
    make(tmp_path, "mine/a.txt")
    disk.remove_leftovers(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("done", range(5))
def test_an_older_run_goes_as_a_whole_however_often_its_removal_is_killed(tmp_path, monkeypatch, done):
    make(tmp_path, "head/tf_adapters.json", "step-2/tf_adapters.json", ".resume/state.safetensors")
    make(tmp_path, "adapter.safetensors", "log.csv", "tf_adapters.json")
    real, removed = disk._remove, []

    def remove(path):
        if len(removed) == done:
            raise Killed
        removed.append(path.name)
        real(path)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(disk, "_remove", remove)
        disk.clear(tmp_path)
    # Weights without what describes them are no adapter; the other way round they would be a broken one.
    assert removed[:1] == ["tf_adapters.json"][:done]
    assert disk.is_to_be_cleared(tmp_path) and check("pretrain", tmp_path, resume=True) is None
    disk.clear(tmp_path)
    assert list(tmp_path.iterdir()) == []


class Started(Exception):
    pass


class Stop(Reporter):
    """Ends a run before its first step, and says how many are done."""

    def start(self, steps, done):
        raise Started(done)


def test_an_empty_folder_of_a_run_s_state_is_a_run_of_no_step_and_one_process_has_it(checkpoint, tmp_path, monkeypatch):
    files = {name: write_csv(tmp_path / f"{name}.csv", rows) for name, rows in (("train", 8), ("validation", 4))}
    task, output = task_from_files(**files), tmp_path / "output"
    model = set_trainable(load_backbone(checkpoint), "head")
    wordpiece = load_tokenizer(model, max_length=16)
    (output / ".resume").mkdir(parents=True)
    for _ in range(2):  # the second finds the first one's state
        with pytest.raises(Started) as started:
            fit(model, task, wordpiece, output=output, epochs=1, learning_rate=1e-3, reporter=Stop(), resume=True)
        assert started.value.args == (0,)
        assert (output / ".resume" / "state.safetensors").exists()
    before, handle = content(output), os.open(output, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)  # as a run in another process has it
    run = functools.partial(fit, model, task, wordpiece, output, epochs=1, learning_rate=1e-3, reporter=Stop())
    model.classifier.bias.assign([5.0, 7.0])  # the state has others
    again = functools.partial(run, resume=True)
    for write in (run, again, functools.partial(disk.clear, output), functools.partial(save_adapter, model, output)):
        with monkeypatch.context() as patch:
            patch.setattr(atomic.only_writer.__wrapped__, "__kwdefaults__", {"wait": 0.1})
            is_refused("is being written by another process", write)
    assert content(output) == before and list(model.classifier.bias.numpy()) == [5.0, 7.0]
    threading.Timer(0.3, os.close, [handle]).start()
    with atomic.only_writer(output), pytest.raises(Started):  # the first waits, and has it for what follows
        run()


def test_pretraining_seeds_a_study_and_a_search_have_their_folder_to_themselves(checkpoint, one_block, tmp_path):
    files = {name: write_csv(tmp_path / f"{name}.csv", 4) for name in ("train", "validation")}
    experiment = Experiment(
        str(one_block), task_from_files(**files), "default", TrainingSettings(epochs=1, learning_rate=1e-3)
    )
    model, output = load_backbone(checkpoint, head="masked-lm"), tmp_path / "output"
    wordpiece, settings = load_tokenizer(model, max_length=16), dict(steps=1, save_every=1, learning_rate=1e-3)
    study = SimpleNamespace(name="sharing", packages=(), check_inputs=lambda: None)
    output.mkdir()
    handle = os.open(output, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)  # as a run in another process has it
    for run in (
        lambda: pretraining.pretrain(model, None, wordpiece, output=output, adapter=None, **settings),
        lambda: experiment.run_seeds(output, 2),
        lambda: lab.run(study, output),
        lambda: AdapterTuner.search(SimpleNamespace(is_worker=False, project_dir=str(output))),
    ):
        is_refused("is being written by another process", run)
    assert list(output.iterdir()) == []
    os.close(handle)


def test_an_export_that_was_killed_right_after_its_end_leaves_nothing_for_good(tmp_path):
    make(tmp_path, "1/saved_model.pb", f"{TEMPORARY}/", "mine/a.txt")
    is_refused("1 is there already", export.check_version_directory, tmp_path / "1")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "mine"]


def test_the_variables_of_an_export_have_one_order():
    # Of Keras 3 several variables have one name.
    a, b, c, other = (tf.Variable(float(number), name=name) for number, name in enumerate("abcc"))

    def read(*found):
        functions = (
            SimpleNamespace(get_concrete_function=lambda each=each: SimpleNamespace(variables=each)) for each in found
        )
        return [id(variable) for variable in export.module_of(dict(zip("fg", functions))).read]

    assert read((c, a, other), (b, c)) == read((other, b), (c, a)) and read((b, a))[0] == id(a)


# Imports what a training needs, computes nothing, and forks a child for each line that it reads, which gets `kill -9`
# after so many seconds. It answers with the child's status, 9 of one that was killed.
FORKS = """
import json, os, signal, sys, time
import matplotlib.figure, sklearn.feature_extraction.text, sklearn.linear_model, tensorflow_text
import tf_adapters.cli.report, tf_adapters.cli.progress
from tf_adapters.cli.main import main
from tf_adapters.models.door import door_called

door_called("transformers")

for line in sys.stdin:
    words, seconds = json.loads(line)
    child = os.fork()
    if child == 0:
        try:
            os.dup2(2, 1)
            os._exit(main(words))
        finally:
            os._exit(70)
    ended, deadline = 0, time.monotonic() + seconds
    while not ended and time.monotonic() < deadline:
        time.sleep(0.005)
        ended, status = os.waitpid(child, os.WNOHANG)
    if not ended:
        os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
    print(os.waitstatus_to_exitcode(status) % 256 if os.WIFEXITED(status) else os.WTERMSIG(status), flush=True)
"""


@pytest.fixture
def run_for(tmp_path):
    """Runs a command in a child that is killed after some seconds: `run_for(words, seconds)` is its status, or 9."""
    with open(tmp_path / "said", "wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-c", FORKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True
        )

    def run(words, seconds):
        process.stdin.write(json.dumps([list(map(str, words)), seconds]) + "\n")
        process.stdin.flush()
        return int(process.stdout.readline() or (tmp_path / "said").read_text()[-2000:])

    yield run
    process.kill()
    process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("most", [3, pytest.param(20, marks=pytest.mark.nightly)])
def test_kills_at_random_moments_leave_what_is_whole_and_goes_on_to_the_same_bytes(run_for, tmp_path, most):
    """`kill -9` of the command from outside; each time it goes on, and may be killed again, until its end."""
    write_checkpoint(tmp_path / "encoder", num_hidden_layers=1)
    words = ["train", f"--model={tmp_path / 'encoder'}", "--max-length=16", "--trainable=head", "--batch-size=8"]
    for name, rows in (("train", 32), ("validation", 8)):
        words.append(f"--{name}={write_csv(tmp_path / f'{name}.csv', rows)}")
    words += ["--epochs=2", "--checkpoint-seconds=0"]
    assert run_for(["--version"], 300) == 0  # the imports
    started = time.monotonic()
    assert run_for([*words, f"--output={tmp_path / 'whole'}"], 300) == 0
    seconds, moments, kills, runs = time.monotonic() - started, random.Random(0), 0, 0
    while kills < most:
        output, runs, of_run, status = tmp_path / f"killed {runs}", runs + 1, 0, 9
        while status == 9:
            goes_on = ["--resume"] if (output / ".resume").exists() else []
            # The tenth time nothing ends it.
            limit = 300 if of_run == 9 else moments.uniform(0.2, 1.0) * seconds
            status = run_for([*words, *goes_on, f"--output={output}"], limit)
            of_run += status == 9
            if (output / "tf_adapters.json").exists():
                read_adapter(output)
                if not (output / ".resume").exists():
                    break  # it was over, but for its plot
        assert status in (0, 9), (tmp_path / "said").read_text()[-2000:]
        kills += of_run
        found, whole = content(output), content(tmp_path / "whole")
        if status == 9:
            whole.pop("learning-curve.png"), found.pop("learning-curve.png", None)
        assert found == whole
