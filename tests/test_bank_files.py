"""Versions of a bank: what is unchanged is linked, what is new is written, and each stands alone."""

import errno
import functools
import json
import os
import shutil
import threading

import numpy as np
import pytest
import tensorflow as tf

from tests.test_bank import PAIRS, TASKS, TEXTS, alone, save_task
from tf_adapters import AdapterBank, InputError, export_bank
from tf_adapters.serving import bank_files
from tf_adapters.serving.checkpoint_index import of_rows, read_index, rows_key, write_index

NAMES = ("film", "shared", "head", "three")


@pytest.fixture(scope="module")
def directories(checkpoint, tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapters")
    for seed, name in enumerate(NAMES):
        save_task(checkpoint, folder / name, *TASKS[name], seed=seed)
    for seed in (7, 8, 9):
        save_task(checkpoint, folder / f"film-{seed}", *TASKS["film"], seed=seed)
    save_task(checkpoint, folder / "pooler", *TASKS["film"], seed=6, pooler=True)
    return folder


@pytest.fixture
def export(checkpoint, directories, tmp_path):
    """Writes a version of a bank of some directories, each as its name or `name=directory`."""
    folder = tmp_path / "all"

    def write(version, *tasks, storage="float32"):
        bank = AdapterBank(str(checkpoint))
        for task in tasks:
            name, _, directory = task.partition("=")
            bank.add(name, directories / (directory or name))
        return export_bank(bank, folder / str(version), storage=storage)

    return write


def ask(version, *tasks):
    """What a version answers to all texts by each task, logits."""
    signature = tf.saved_model.load(str(version)).signatures["serving_default"]
    inputs = {"text": TEXTS * len(tasks), "task": [name for name in tasks for _ in TEXTS]}
    if "text_pair" in signature.structured_input_signature[1]:
        inputs["text_pair"] = PAIRS * len(tasks)
    found = signature(**{name: tf.constant(values) for name, values in inputs.items()})
    assert found["error"].numpy().tolist() == [b""] * len(TEXTS) * len(tasks)
    return found["logits"].numpy().reshape(len(tasks), len(TEXTS), -1)


def right(directories, version, *tasks):
    """Assert that a version answers as each task's own model."""
    named = {name: directory or name for name, _, directory in (task.partition("=") for task in tasks)}
    for directory, logits in zip(named.values(), ask(version, *named)):
        expected = of_directory(directories / directory)
        np.testing.assert_allclose(logits[:, : expected.shape[1]], expected, atol=2e-6)


@functools.cache
def of_directory(directory):
    return alone(directory.parent, directory.name, TEXTS, PAIRS)


def own_bytes(version):
    """Bytes of the data files that no other version has, but for the second, which every version has of its own."""
    files = sorted((version / "variables").glob("variables.data-*"))
    return sum(path.stat().st_size for number, path in enumerate(files) if number != 1 and path.stat().st_nlink == 1)


def bytes_of(directories, name):
    """About what a task takes in a version."""
    return (directories / name / "adapter.safetensors").stat().st_size


@pytest.mark.slow
def test_a_version_writes_what_is_new_alone(export, directories):
    first = export(1, "film", "shared", "head", "three")
    added = export(2, "film", "shared", "head", "three", "new=film-7")
    size = bytes_of(directories, "film")
    assert 0 < own_bytes(added) < 2 * size < own_bytes(first) + 10 * size
    replaced = export(3, "film=film-8", "shared", "head", "three", "new=film-7")
    assert 0 < own_bytes(replaced) < 2 * size
    right(directories, replaced, "film=film-8", "shared", "head", "three", "new=film-7")
    # Of another order, and with a name that the task had not.
    removed = export(4, "three", "renamed=film-8", "shared")
    assert own_bytes(removed) == 0
    for version in (first, added, replaced):
        shutil.rmtree(version)
    right(directories, removed, "three", "renamed=film-8", "shared")


@pytest.mark.nightly
def test_the_encoder_is_linked_and_a_copy_elsewhere_is_whole(export, directories, tmp_path):
    first, second = export(1, "film"), export(2, "film", "shared")
    encoders = [next((version / "variables").glob("variables.data-00000-*")) for version in (first, second)]
    assert os.path.samefile(*encoders)
    shutil.copytree(second, tmp_path / "copy" / "2")
    np.testing.assert_array_equal(ask(second, "film", "shared"), ask(tmp_path / "copy" / "2", "film", "shared"))
    # Weights kept in half the space are others.
    third = next((export(3, "film", "shared", storage="bfloat16") / "variables").glob("variables.data-00000-*"))
    assert not os.path.samefile(third, encoders[0])
    assert third.stat().st_size < 0.7 * encoders[0].stat().st_size
    # Tasks do not depend on how the encoder is kept.
    assert own_bytes(tmp_path / "all" / "3") == third.stat().st_size


@pytest.mark.nightly
def test_tasks_that_are_alike_are_written_once(export, directories):
    one, two = export(1, "film", "shared"), export(2, "film", "again=film", "shared", "thrice=film")
    assert own_bytes(two) == 0
    right(directories, two, "film", "again=film", "shared", "thrice=film")
    assert own_bytes(one) == 0  # all are linked from the second


@pytest.mark.nightly
def test_where_there_are_no_links_files_are_copied(export, directories, monkeypatch):
    first = export(1, "film", "shared")
    monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError(errno.EPERM, "no links")))
    second = export(2, "film", "shared", "head")
    assert all(path.stat().st_nlink == 1 for version in (first, second) for path in version.rglob("variables.data-*"))
    shutil.rmtree(first)
    right(directories, second, "film", "shared", "head")


@pytest.mark.nightly
def test_many_small_files_become_one_and_half_unused_ones_are_left(export, directories, monkeypatch):
    monkeypatch.setattr(bank_files, "_SMALL_FILES", 2)
    tasks, counts = ["film"], []
    for number, more in enumerate(("film-7", "film-8", "film-9"), start=1):
        version = export(number, *tasks)
        counts.append(len(list((version / "variables").glob("variables.data-*"))))
        tasks.append(more)
    version = export(4, *tasks)
    assert counts == [3, 4, 5] and len(list((version / "variables").glob("variables.data-*"))) == 3
    right(directories, version, *tasks)
    # Its file has four tasks. Half is still used by two, and less by one.
    assert own_bytes(export(5, "film", "film-7")) == 0
    last = export(6, "film")
    assert 0 < own_bytes(last) < 2 * bytes_of(directories, "film")
    right(directories, last, "film")


@pytest.mark.nightly
def test_a_large_bank_lies_in_files_that_are_written_one_after_the_other(export, directories, monkeypatch):
    monkeypatch.setattr(bank_files, "_FILE_BYTES", int(1.5 * bytes_of(directories, "film")))
    version = export(1, "film", "film-7", "film-8", "shared", "pooler")
    assert len(list((version / "variables").glob("variables.data-*"))) == 2 + 4
    right(directories, version, "film", "film-7", "film-8", "shared", "pooler")


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage",
    [
        "short",
        *(pytest.param(name, marks=pytest.mark.nightly) for name in ("index", "rows", "format", "foreign", "missing")),
    ],
)
def test_of_a_version_that_cannot_be_read_nothing_is_taken(export, directories, damage):
    first = export(1, "film", "shared")
    rows, index = first / "assets.extra" / "rows.json", first / "variables" / "variables.index"
    if damage == "index":
        index.write_bytes(index.read_bytes()[:-1])
    elif damage == "rows":
        rows.write_text("[]")
    elif damage == "format":
        rows.write_text(json.dumps({**json.loads(rows.read_text()), "format": 2}))
    elif damage == "short":
        last = sorted(first.glob("variables/variables.data-*"))[-1]
        last.write_bytes(last.read_bytes()[:-1])
    elif damage == "foreign":
        shutil.rmtree(first)
        tf.saved_model.save(tf.Module(), str(first))
    else:
        rows.unlink()
    second = export(2, "film", "shared")
    assert own_bytes(second) > bytes_of(directories, "film")
    right(directories, second, "film", "shared")


@pytest.mark.nightly
def test_a_full_disk_leaves_no_version_and_the_older_ones_whole(export, directories, monkeypatch, tmp_path):
    first = export(1, "film")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    for name in ("write_index", "_link_same"):
        with monkeypatch.context() as patch:
            patch.setattr(bank_files, name, full)
            with pytest.raises(InputError, match="9 cannot be written: No space left on device"):
                export(9, "film", "shared")
        assert sorted(path.name for path in (tmp_path / "all").iterdir()) == ["1"]
    right(directories, first, "film")


@pytest.mark.nightly
def test_the_bank_answers_as_before_while_a_version_is_written(checkpoint, directories, monkeypatch, tmp_path):
    # Its rows are others in the version.
    bank = AdapterBank(str(checkpoint)).add("gone", directories / "pooler").add("film", directories / "pooler")
    bank.remove("gone").replace("film", directories / "film").add("more", directories / "pooler").remove("film")
    bank.add("film", directories / "film")
    before, during = bank.answer(TEXTS, "film")["logits"].numpy(), []
    write = bank_files.BankLayout.write

    def ask_too(*arguments):
        thread = threading.Thread(target=lambda: during.append(bank.answer(TEXTS, "film")["logits"].numpy()))
        thread.start()
        thread.join()
        # A graph of the same thread that is traced now would be the version's; eager reads of another are the bank's.
        thread = threading.Thread(target=lambda: during.append(bank._slots.read_from is bank._slots.variable))
        thread.start()
        thread.join()
        during.append(bank._slots.read_from is bank._slots.variable)
        return write(*arguments)

    monkeypatch.setattr(bank_files.BankLayout, "write", ask_too)
    version = export_bank(bank, tmp_path / "1")
    np.testing.assert_array_equal(during[0], before)
    assert during[1:] == [True, False]
    assert bank._slots.read_from is bank._slots.variable
    np.testing.assert_array_equal(bank.answer(TEXTS, "film")["logits"], before)
    np.testing.assert_array_equal(ask(version, "film")[0], before)
    np.testing.assert_array_equal(ask(version, "more")[0], bank.answer(TEXTS, "more")["logits"])


def test_keys_of_rows_are_tensorflows(tmp_path):
    starts = [0, 1, 63, 64, 65, 8191, 8192, 2**20 - 1, 2**20, 2**27, 2**34 - 1, 2**34, 2**39]
    starts += [5 * 3**power for power in range(1, 23)]
    for tensor, rank, rest in (("rows/a", 2, " 2"), ("a/.ATTRIBUTES/VARIABLE_VALUE", 3, " 2 1"), ("x", 1, "")):
        prefix = str(tmp_path / f"rank-{rank}")
        tf.raw_ops.SaveV2(
            prefix=prefix, tensor_names=[tensor] * len(starts), tensors=[tf.zeros([2, 2, 1][:rank])] * len(starts),
            shape_and_slices=[f"{2**40}{rest} {start},2{':-' * (rank - 1)}" for start in starts],
        )  # fmt: skip
        index = read_index(f"{prefix}.index")
        assert set(index) == {tensor.encode(), *(rows_key(tensor, start, 2, rank) for start in starts)}


def test_tensorflow_reads_an_index_that_was_put_together(tmp_path):
    rows, vector = np.random.default_rng(0).normal(size=(10, 3, 4)).astype(np.float32), np.arange(5)
    prefix = str(tmp_path / "checkpoint")
    parts = {"a": rows[:1], "b": rows[1:7], "c": rows[7:], "v": vector}
    tf.raw_ops.SaveV2(
        prefix=prefix, tensor_names=list(parts), tensors=list(parts.values()), shape_and_slices=[""] * len(parts)
    )
    found = read_index(f"{prefix}.index")
    runs = [found[name] for name in (b"a", b"b", b"c")]
    many = {f"copy-{number:05d}".encode(): found[b"v"] for number in range(9_999)}
    entries = {b"v": found[b"v"], **many, **of_rows("rows", [10, 3, 4], runs[0].dtype, runs)}
    write_index(f"{prefix}.index", entries, 1)
    assert read_index(f"{prefix}.index") == entries
    reader = tf.train.load_checkpoint(prefix)
    np.testing.assert_array_equal(reader.get_tensor("rows"), rows)
    np.testing.assert_array_equal(reader.get_tensor("copy-04711"), vector)
    with pytest.raises(ValueError, match="7 rows of 10 are given"):
        of_rows("rows", [10, 3, 4], runs[0].dtype, runs[:2])
    for content in (b"", b"x" * 100):
        (tmp_path / "other.index").write_bytes(content)
        with pytest.raises(ValueError, match="is no index of a checkpoint"):
            read_index(tmp_path / "other.index")
