"""Paths that users give, and files that are there and cannot be read."""

import importlib
import os
import pathlib
import shutil
import tempfile

import pytest

import tf_adapters
from tests.conftest import is_refused, randomize
from tf_adapters.adapterhub.torch_files import read_torch_file
from tf_adapters.errors import InputError
from tf_adapters.models.weight_files import H5File, read_tensors
from tf_adapters.paths import read_json, to_path
from tf_adapters.saving.settings import SETTINGS_FILE, read_settings, sha256_of
from tf_adapters.serving.convert import export_file
from tf_adapters.text import ByteLevelBpe, SentencePiece, WordPiece
from tf_adapters.training.disk import read_info


@pytest.fixture
def home(tmp_path, monkeypatch, train_arguments, adapter_directory):
    """A user's folder with an encoder, an adapter and rows; the working directory is another one, and stays empty."""
    home = tmp_path / "home"
    (tmp_path / "here").mkdir()
    shutil.copytree(adapter_directory, home / "adapter")
    (home / "encoder").symlink_to(train_arguments[1].partition("=")[2])
    (home / "rows.csv").write_text("text,label\n" + "good film,positive\nbad film,negative\n" * 6)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(tmp_path / "here")
    yield home
    assert not list(pathlib.Path().iterdir())


def test_python_reads_and_writes_in_the_users_folder(home, monkeypatch):
    model = tf_adapters.load_backbone("~/encoder", num_labels=2)
    tf_adapters.add_adapters(model, tf_adapters.AdapterConfig(bottleneck_size=2))
    tf_adapters.set_trainable(randomize(model), "adapters")
    tokenizer = WordPiece.from_directory("~/encoder", max_length=8)
    tf_adapters.save_adapter(model, "~/mine", text=tokenizer, task={"kind": "classification"})
    tf_adapters.load_adapter(model, pathlib.Path("~/mine"), name="again")
    rows = tf_adapters.task_from_files(train="~/rows.csv", validation="~/rows.csv", test=0.2)
    assert len(rows.validation) == 12 and sorted(path.name for path in (home / "mine").iterdir())[-1] == SETTINGS_FILE
    # What is there already is named where it is, before much is computed.
    (home / "serving" / "1").mkdir(parents=True)
    (home / "film.onnx").touch()
    bank = tf_adapters.AdapterBank("~/encoder").add("mine", "~/mine")

    def begun(model, task, tokenizer, output, *arguments):
        raise InputError(f"would write {output}")

    monkeypatch.setattr(importlib.import_module("tf_adapters.training.fit"), "_begun", begun)
    for write in (
        lambda: tf_adapters.fit(model, rows, tokenizer, output="~/trained", epochs=1, learning_rate=1e-3),
        lambda: tf_adapters.export_saved_model(model, "~/serving/1", text=tokenizer),
        lambda: tf_adapters.export_bank(bank, "~/serving/1"),
        lambda: export_file(model, "~/film.onnx", format="litert"),
    ):
        is_refused(str(home), write)
    assert to_path("~") == home and to_path("a/~/b") == pathlib.Path("a/~/b")


def test_commands_read_and_write_in_the_users_folder(home, cli):
    outcome = cli("predict", "~/adapter", "--input=~/rows.csv", "--model=~/encoder", "--output=~/labels.jsonl")
    assert outcome.status == 0 and len((home / "labels.jsonl").read_text().splitlines()) == 12, outcome.err
    # Every file of answers and of a run is for whom the umask lets in.
    umask = os.umask(0)
    os.umask(umask)
    for path in (home / "labels.jsonl", home / "adapter", *(home / "adapter").rglob("*")):
        assert path.stat().st_mode & 0o777 == (0o777 if path.is_dir() else 0o666) & ~umask, path
    (home / "1").mkdir()
    outcome = cli("export", "~/adapter", "--model=~/encoder", "--output=~/1")
    assert outcome.status == 2 and f"{home / '1'} is there already" in outcome.err


@pytest.fixture
def locked():
    """`locked(names)`: a folder to enter, with files (`name`) and folders (`name/`) that the user may not read."""
    folder, user = pathlib.Path(tempfile.mkdtemp()), os.geteuid()
    folder.chmod(0o755)

    def make(*names):
        for name in names:
            (folder / name).mkdir() if name.endswith("/") else (folder / name).write_bytes(b"{}")
            (folder / name).chmod(0)
        if user == 0:
            os.seteuid(65534)  # nothing is locked for root
        return folder

    yield make
    os.seteuid(user)
    shutil.rmtree(folder)


READERS = {
    "config.json": read_json,
    "model.safetensors": read_tensors,
    "tf_model.h5": H5File,
    "pytorch_adapter.bin": read_torch_file,
    "adapter.safetensors": sha256_of,
    "state.safetensors": read_info,
    "vocab.txt": lambda path: WordPiece.from_directory(path.parent),
    "tokenizer.json": lambda path: ByteLevelBpe.from_directory(path.parent),
    "spm.model": lambda path: SentencePiece.from_directory(path.parent, layout="deberta-v2"),
    "tf_adapters.json": lambda path: read_settings(path.parent),
}


@pytest.mark.parametrize("name", READERS)
def test_a_file_that_may_not_be_read_is_named_with_the_reason(locked, name):
    path = locked(name) / name
    with pytest.raises(InputError, match=f"{name}'? cannot be read: Permission denied"):
        READERS[name](path)


def test_a_folder_that_may_not_be_entered_is_a_sentence_at_the_command_line(locked, cli):
    folder = locked("adapter/")
    is_refused("adapter/tf_adapters.json cannot be read: Permission denied", read_settings, folder / "adapter")
    outcome = cli("info", str(folder / "adapter"))
    assert outcome.status == 2 and outcome.err.startswith("error: ") and outcome.err.count("\n") == 1
    assert "adapter/tf_adapters.json cannot be used: Permission denied" in outcome.err
