"""Files and folders that are either whole or not there, whatever becomes of their writer."""

import os
import signal
import stat
import subprocess
import sys

import numpy as np
import pytest
from safetensors import safe_open

from tf_adapters.errors import InputError
from tf_adapters.saving import atomic
from tf_adapters.saving.atomic import replacing, write_safetensors, write_text

# Writes half a file, says so, and waits.
WRITER = """
import sys, time
from tf_adapters.saving.atomic import folder_beside, replacing
with (replacing if sys.argv[2] == "file" else folder_beside)(sys.argv[1]) as temporary:
    (temporary if sys.argv[2] == "file" else temporary / "part").write_text("half")
    print("there", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def start_writer():
    """Starts a process that stays in the middle of writing; `start_writer(path, "file")` or `"folder"`."""
    processes = []

    def start(path, what):
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(path), what], stdout=subprocess.PIPE, text=True)
        processes.append(process)
        assert process.stdout.readline() == "there\n"
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def failing(error):
    def call(*arguments):
        raise error

    return call


@pytest.mark.parametrize("what", ["file", "folder"])
def test_what_a_killed_writer_left_goes_with_the_next_one_and_what_a_living_one_has_stays(tmp_path, start_writer, what):
    (tmp_path / ".0123abcd.tmp").write_text("of another program")
    killed = start_writer(tmp_path / "a.json", what)
    (of_killed,) = set(names(tmp_path)) - {".0123abcd.tmp"}
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert of_killed in names(tmp_path)
    living = start_writer(tmp_path / "b.json", what)
    (of_living,) = set(names(tmp_path)) - {".0123abcd.tmp"}
    assert of_living != of_killed
    write_text(tmp_path / "c.json", "{}")
    assert names(tmp_path) == sorted([of_living, ".0123abcd.tmp", "c.json"])
    living.send_signal(signal.SIGKILL)
    living.wait()
    write_text(tmp_path / "c.json", "{}")
    assert names(tmp_path) == [".0123abcd.tmp", "c.json"]


def test_a_writer_whose_file_was_taken_for_a_dead_one_s_before_it_was_locked_makes_another(tmp_path, monkeypatch):
    real, taken = atomic.fcntl.flock, []

    def flock(handle, operation):
        if not taken:
            (path,) = tmp_path.iterdir()
            taken.append(path)
            path.rmdir()
        return real(handle, operation)

    monkeypatch.setattr(atomic.fcntl, "flock", flock)
    with replacing(tmp_path / "a.json") as temporary:
        assert taken and temporary.parent != taken[0]
        temporary.write_text("{}")
    assert names(tmp_path) == ["a.json"] and (tmp_path / "a.json").read_text() == "{}"


def test_without_locks_files_are_written_and_nothing_is_taken_for_dead(tmp_path, monkeypatch, start_writer):
    start_writer(tmp_path / "a.json", "file")
    monkeypatch.setattr(atomic.fcntl, "flock", failing(OSError(38, "Function not implemented")))
    write_text(tmp_path / "b.json", "{}")
    assert len(names(tmp_path)) == 2 and (tmp_path / "b.json").read_text() == "{}"


def test_files_and_folders_have_the_mode_that_the_umask_says(tmp_path):
    for umask in (0o022, 0o002, 0o077):
        folder, before = tmp_path / oct(umask), os.umask(umask)
        try:
            write_text(folder / "a.json", "{}")
            write_safetensors(folder / "a.safetensors", {"a": np.zeros(2)})
            with atomic.folder_beside(folder / "folder") as temporary:
                temporary.rename(folder / "folder")
        finally:
            os.umask(before)
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
        file = 0o666 & ~umask
        assert modes == {"a.json": file, "a.safetensors": file, "folder": 0o777 & ~umask}


def test_a_file_of_weights_is_held_until_it_has_its_name(tmp_path, monkeypatch):
    # As another writer in the folder would, before the file is renamed.
    monkeypatch.setattr(atomic.os, "fsync", lambda handle: atomic.remove_dead(tmp_path))
    write_safetensors(tmp_path / "a.safetensors", {"a": np.ones(2)}, {"b": "c"})
    with safe_open(str(tmp_path / "a.safetensors"), framework="np") as file:
        assert file.metadata() == {"b": "c"} and file.get_tensor("a").tolist() == [1, 1]


def test_an_error_leaves_what_was_there_and_nothing_else(tmp_path):
    path = tmp_path / "a.json"
    write_text(path, "old")
    with pytest.raises(ZeroDivisionError), replacing(path) as temporary:
        temporary.write_text("new")
        1 / 0
    with pytest.raises(InputError, match="a.json cannot be written: No space left"), replacing(path):
        raise OSError(28, "No space left on device")
    assert names(tmp_path) == ["a.json"] and path.read_text() == "old"


def test_a_folder_goes_in_one_stroke_and_where_it_cannot_be_renamed_all_the_same(tmp_path, monkeypatch):
    def fill():
        (tmp_path / "run" / "deep").mkdir(parents=True)
        (tmp_path / "run" / "deep" / "file").write_text("1")

    fill()
    with monkeypatch.context() as patch:
        # As a kill would: nothing is removed.
        patch.setattr(atomic.shutil, "rmtree", lambda *arguments, **settings: None)
        atomic.remove_folder(tmp_path / "run")
    (left,) = names(tmp_path)
    assert atomic.is_temporary(left)
    write_text(tmp_path / "a.json", "{}")
    assert names(tmp_path) == ["a.json"]
    atomic.remove_folder(tmp_path / "run")  # is not there
    fill()
    monkeypatch.setattr(atomic.os, "rename", failing(OSError(18, "Invalid cross-device link")))
    atomic.remove_folder(tmp_path / "run")
    assert names(tmp_path) == ["a.json"]
