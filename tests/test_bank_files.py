"""Versions of a bank: each is whole, holds what the bank holds and nothing else, and appears when it is complete."""

import errno
import json
import os
import shlex
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest
import tensorflow as tf

from tests.test_bank import TEXTS, alone, save_tasks
from tf_adapters import AdapterBank, InputError, export_bank
from tf_adapters.serving import export, versions


@pytest.fixture(scope="module")
def directories(checkpoint, tmp_path_factory):
    return save_tasks(checkpoint, tmp_path_factory.mktemp("adapters"))


def ask(version, task):
    """What a version answers to all texts by a task, logits."""
    signature = tf.saved_model.load(str(version)).signatures["serving_default"]
    found = signature(text=tf.constant(TEXTS), task=tf.fill([len(TEXTS)], task))
    assert found["error"].numpy().tolist() == [b""] * len(TEXTS)
    return found["logits"].numpy()


def size_of(version):
    return sum(path.stat().st_size for path in version.glob("variables/variables.data-*"))


@pytest.mark.slow
def test_a_version_holds_the_tasks_that_are_there_and_outlives_the_others(checkpoint, directories, tmp_path):
    bank = AdapterBank(str(checkpoint)).add("gone", directories / "pooler").add("film", directories / "shared")
    first = export_bank(bank, tmp_path / "1")
    # Rows are used in another order than that of the tasks, and some are free.
    bank.remove("gone").replace("film", directories / "film").add("own", directories / "pooler")
    bank.add("passing", directories / "film").add("three", directories / "three").remove("passing")
    second = export_bank(bank, tmp_path / "2")
    third = export_bank(bank, tmp_path / "3", storage="bfloat16")
    assert size_of(third) < 0.7 * size_of(second)
    shutil.rmtree(first)
    for name, directory in (("film", "film"), ("own", "pooler"), ("three", "three")):
        found = ask(second, name)
        np.testing.assert_array_equal(found, bank.answer(TEXTS, name)["logits"])
        np.testing.assert_allclose(found[:, :2], alone(directories, directory), atol=2e-6)
    fresh = AdapterBank(str(checkpoint)).add("film", directories / "film").add("pooler", directories / "pooler")
    fresh.add("three", directories / "three")
    # Names that TensorFlow numbers differ; a task has more.
    assert abs(size_of(export_bank(fresh, tmp_path / "4")) - size_of(second)) < 1000


@pytest.mark.slow
def test_the_bank_answers_while_a_version_is_written_and_a_full_disk_leaves_none(
    checkpoint, directories, monkeypatch, tmp_path
):
    bank, during, write = AdapterBank(str(checkpoint)).add("film", directories / "film"), [], export.write_version
    before = bank.answer(TEXTS, "film")["logits"].numpy()

    def ask_too(*arguments, **options):
        thread = threading.Thread(target=lambda: during.append(bank.answer(TEXTS, "film")["logits"].numpy()))
        thread.start()
        thread.join(60)
        return write(*arguments, **options)

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(export, "write_version", ask_too)
    with monkeypatch.context() as patch:
        patch.setattr(versions, "write_requests", full)
        with pytest.raises(InputError, match="9 cannot be written: No space left on device"):
            export_bank(bank, tmp_path / "all" / "9")
    assert not list((tmp_path / "all").iterdir())
    np.testing.assert_array_equal(during[0], before)


@pytest.mark.slow
def test_the_command_writes_a_bank_and_its_hint_needs_nothing_of_ours(cli, directories, tmp_path):
    film, upper, output = directories / "film", directories / "upper", tmp_path / "all" / "1"
    done = cli("export", "--adapters", film, f"words={upper}", "--output", output)
    assert done.status == 0, done.err
    python, _, code = shlex.split(done.out.split("Try it:\n")[1])
    code += "; import sys; assert not {'tf_adapters', 'transformers', 'tf_keras', 'safetensors'} & set(sys.modules)"
    plain = {name: value for name, value in os.environ.items() if name != "TF_USE_LEGACY_KERAS"}
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, env=plain)
    assert python == "python" and shown.returncode == 0 and "'label'" in shown.stdout, shown.stderr[-2000:]
    about = json.loads((output / "assets.extra" / "tf_adapters.json").read_text())
    assert list(about["tasks"]) == ["film", "words"]
    last = ("--output", tmp_path / "3")
    for arguments, message in (
        ((film, upper, *last), "give --adapters"),
        (("--adapters", film, film, *last), "are both called 'film'"),
        (("--adapters", film, "--output", output), "is there already"),
        (("--adapters", film, *last, "--adapter-storage", "int4"), "--adapter-storage int4 is unknown"),
        (("--adapters", tmp_path / "nowhere", *last), "nowhere: there is no such directory"),
        (("--adapters", tmp_path / "lr=0.1", *last), "lr=0.1: there is no such directory, and none called 0.1"),
        ((film, *last, "--adapter-storage", "float16"), "--adapter-storage is for --adapters"),
    ):
        done = cli("export", *arguments)
        assert done.status == 2 and message in done.err and "Traceback" not in done.err, done.err
