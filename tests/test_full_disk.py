"""A disk that is full or read-only: one sentence, and what was there before stays as it was."""

import builtins
import contextlib
import errno
import io
import os
from unittest import mock

import pytest
import tensorflow as tf

from tests.cases import nightly_but
from tests.conftest import write_csv
from tf_adapters import AdapterConfig, add_adapters, fit, load_backbone, load_tokenizer, save_adapter, set_trainable
from tf_adapters._keras import keras
from tf_adapters.adapterhub import export_adapter
from tf_adapters.errors import InputError
from tf_adapters.tasks import task_from_files
from tf_adapters.training.disk import SEEDS_FILE, discard_seeds
from tf_adapters.training.run import Reporter

FULL, READ_ONLY = errno.ENOSPC, errno.EROFS
REASONS = {FULL: "No space left on device", READ_ONLY: "Read-only file system"}
EITHER = pytest.mark.parametrize("code", nightly_but([FULL], [FULL, READ_ONLY]), ids=["full", "read-only"])


@contextlib.contextmanager
def failing(folder, code):
    """Let Python write nothing below a folder: of a full disk files may still be removed, of a read-only one nothing
    changes."""
    folder = os.path.realpath(folder)

    def refusing(function, *, writes=lambda *arguments: True):
        def call(path, *arguments, **settings):
            inside = not isinstance(path, int) and os.path.realpath(path).startswith(folder + os.sep)
            if inside and writes(*arguments, *settings.values()):
                raise OSError(code, os.strerror(code), os.fspath(path))
            return function(path, *arguments, **settings)

        return call

    names = ("mkdir",) if code == FULL else ("mkdir", "replace", "rename", "unlink", "rmdir", "truncate")
    patches = [(os, name, refusing(getattr(os, name))) for name in names]
    by_flags = refusing(os.open, writes=lambda flags, *rest: flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
    by_mode = refusing(io.open, writes=lambda mode="r", *rest: set(str(mode)) & set("wxa+"))
    patches += [(os, "open", by_flags), (builtins, "open", by_mode), (io, "open", by_mode)]
    with contextlib.ExitStack() as stack:
        for patch in patches:
            stack.enter_context(mock.patch.object(*patch))
        yield


def tree(folder):
    """All paths below a folder with their bytes, None for folders."""
    paths = sorted(folder.rglob("*"))
    return {str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes() for path in paths}


def refused(outcome, code):
    """A command came to one line, which says what the disk said."""
    assert outcome.status == 2 and outcome.err.startswith("error: ") and outcome.err.count("\n") == 1, outcome.err
    assert f"cannot be written: {REASONS[code]}." in outcome.err


COMMANDS = {
    "predict": (["predict", "--input={rows}", "--overwrite"], "--output=labels.jsonl"),
    "evaluate": (["evaluate", "--input={rows}", "--overwrite"], "--output=numbers.json"),
    "plot": (["evaluate", "--input={rows}", "--overwrite"], "--plot=matrix.png"),
    "export": (["export"], "--output=2"),
    "bank": (["export", "--adapters"], "--output=2"),
}


@EITHER
@pytest.mark.parametrize("command", COMMANDS)
def test_what_was_written_before_stays(cli, adapter_directory, sentences, tmp_path, monkeypatch, command, code):
    (tmp_path / "1").mkdir()
    for name in ("labels.jsonl", "numbers.json", "matrix.png", "1/saved_model.pb"):
        (tmp_path / name).write_text("old")
    before, (words, output) = tree(tmp_path), COMMANDS[command]
    monkeypatch.chdir(tmp_path)
    words = [word.format(rows=sentences / "test.csv") for word in words]
    with failing(tmp_path, code):
        refused(cli(words[0], adapter_directory, *words[1:], output), code)
    assert tree(tmp_path) == before


@EITHER
def test_what_was_converted_before_stays(cli, checkpoint, tmp_path, code):
    model = add_adapters(load_backbone(checkpoint), AdapterConfig(2, train_layer_norm="none"))
    save_adapter(set_trainable(model), tmp_path / "ours", task={"kind": "classification"})
    export_adapter(model, tmp_path / "theirs")
    before = tree(tmp_path / "theirs")
    with failing(tmp_path / "theirs", code):
        refused(cli("convert", tmp_path / "ours", "--overwrite", f"--output={tmp_path / 'theirs'}"), code)
    assert tree(tmp_path / "theirs") == before


def test_what_tensorflow_says_of_a_disk_is_one_line(cli, adapter_directory, tmp_path, monkeypatch):
    def save(*arguments, **settings):
        raise tf.errors.ResourceExhaustedError(None, None, "/a/b; No space left on device\nand where.")

    monkeypatch.setattr(tf.saved_model, "save", save)
    outcome = cli("export", adapter_directory, f"--output={tmp_path / '1'}")
    assert outcome.err == f"error: {tmp_path / '1'} cannot be written: /a/b; No space left on device.\n"
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def run(checkpoint, tmp_path_factory):
    """Trains the head of an encoder on a few rows."""
    folder = tmp_path_factory.mktemp("rows")
    task = task_from_files(train=write_csv(folder / "train.csv", 8), validation=write_csv(folder / "validation.csv", 4))

    def train(output, **settings):
        keras.utils.set_random_seed(0)
        model = set_trainable(load_backbone(checkpoint), "head")
        settings = {"epochs": 2, "learning_rate": 1e-3, "batch_size": 4, **settings}
        return fit(model, task, load_tokenizer(model, max_length=16), output=output, **settings)

    return train


class Fail(Reporter):
    """From a step on nothing can be written."""

    def __init__(self, number, stack, folder, code):
        self.number, self.stack, self.folder, self.code = number, stack, folder, code

    def step(self, done, numbers):
        if done == self.number:
            self.stack.enter_context(failing(self.folder, self.code))


@pytest.mark.slow
@EITHER
def test_a_run_stops_with_a_sentence_and_goes_on_when_there_is_room_again(run, tmp_path, code):
    run(tmp_path / "whole")
    for number in (1, 4):  # within an epoch, and before the end
        output = tmp_path / f"stopped-{number}"
        says = pytest.raises(InputError, match=f"cannot be (written|removed): {REASONS[code]}")
        with contextlib.ExitStack() as stack, says:
            run(output, reporter=Fail(number, stack, output, code), checkpoint_seconds=0)
        run(output, resume=True)
        assert tree(output) == tree(tmp_path / "whole")


def test_a_list_of_seeds_that_cannot_be_removed_is_named(tmp_path):
    (tmp_path / SEEDS_FILE).write_text("{}")
    says = pytest.raises(InputError, match=f"{SEEDS_FILE} cannot be removed: Read-only file system")
    with failing(tmp_path, READ_ONLY), says:
        discard_seeds(tmp_path)
    discard_seeds(tmp_path)
    assert list(tmp_path.iterdir()) == []
