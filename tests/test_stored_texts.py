"""Rows of large files, whose texts stay on disk."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

import tf_adapters
from tests.conftest import VOCABULARY, write_csv
from tf_adapters import WordPiece
from tf_adapters.tasks import files
from tf_adapters.tasks.own_files import rows_from_file
from tf_adapters.tasks.rows import sample_rows
from tf_adapters.tasks.stored_texts import StoredCells, StoredNumbers, StoredTexts
from tf_adapters.text import batching
from tf_adapters.text.batching import training_batches


def stored(*texts):
    found = StoredTexts()
    found.extend(texts[:2])
    found.extend(texts[2:])
    return found


def test_texts_come_back_in_any_order_and_repeatedly():
    texts = stored("one", "", "zwölf", "日本")
    assert len(texts) == 4 and texts.shape == (4,)
    assert [text.decode() for text in texts[np.array([3, 0, 2, 1, 0])]] == ["日本", "one", "zwölf", "", "one"]
    assert texts.take(np.array([2, 0]))[[1, 0]].tolist() == [b"one", "zwölf".encode()]
    assert len(StoredTexts()) == 0 and stored("", "")[[0]].tolist() == [b""]


def test_texts_are_gathered_in_a_graph():
    texts = stored("one", "two", "three")
    dataset = tf.data.Dataset.from_tensors(tf.constant([2, 0], tf.int64)).map(texts.gather)
    (gathered,) = dataset
    assert gathered.numpy().tolist() == [b"three", b"one"]


def test_numbers_come_back_by_index_slice_and_in_turn():
    numbers = StoredNumbers(np.float32, row=(2,))
    numbers.extend([[1, 2], [3, 4]])
    numbers.extend(np.array([[5, 6]]))
    assert len(numbers) == 3 and numbers[np.array([2, 0])].tolist() == [[5, 6], [1, 2]]
    assert numbers[1:].tolist() == list(numbers)[1:] == [[3, 4], [5, 6]]
    assert numbers.array().sum(0).tolist() == [9, 12] and len(StoredNumbers(np.int64)) == 0


def test_label_cells_keep_their_type_on_disk():
    cells = StoredCells()
    given = ["a", 1, 2.5, True, None, ["x", "ü"], ""]
    cells.extend(given)
    assert len(cells) == 7 and list(cells) == list(cells) == given


@pytest.mark.parametrize(
    "kind, cells, labels",
    [
        ("classification", ["b", "a", "b"], ("a", "b")),
        ("regression", ["1.5", "2", "-1"], ()),
        ("multi-label", ["a|b", "", "b"], ("a", "b")),
    ],
)
def test_labels_of_a_large_file_are_read_from_disk_and_equal_those_in_memory(
    tmp_path, monkeypatch, kind, cells, labels
):
    path = tmp_path / "a.tsv"
    # More rows than a chunk has.
    path.write_text("text\tlabel\n" + "".join(f"row {row}\t{cells[row % 3]}\n" for row in range(20_000)))
    expected = rows_from_file(path, kind=kind, labels=labels).labels
    monkeypatch.setattr(files, "MOST_BYTES_IN_MEMORY", 100)
    found = rows_from_file(path, kind=kind, labels=labels).labels
    assert found.dtype == expected.dtype and np.array_equal(found, expected)
    assert not found.flags.owndata and not found.flags.writeable  # a view of the file


@pytest.mark.parametrize("most", [100, 10**9])
def test_unusable_labels_are_left_out_on_disk_too(tmp_path, monkeypatch, most):
    monkeypatch.setattr(files, "MOST_BYTES_IN_MEMORY", most)
    path = tmp_path / "a.csv"
    path.write_text("text,label\none,a\ntwo,\nthree,b\nfour,c\n")
    bad = files.BadRows()
    rows = rows_from_file(path, kind="classification", labels=("a", "b"), bad_rows=bad)
    assert bad.count == 2 and rows.labels.tolist() == [0, 1]
    assert rows.texts([0, 1])[0].numpy().tolist() == [b"one", b"three"]
    path.write_text("text,label\none,\n")
    with pytest.raises(tf_adapters.InputError, match="no usable row; the first problem: .*line 2: the label is empty"):
        rows_from_file(path, kind="classification", labels=("a", "b"), bad_rows=files.BadRows())


@pytest.fixture
def both(tmp_path, monkeypatch):
    """The rows of one file, in memory and on disk."""
    path = write_csv(tmp_path / "a.csv", 300)
    reading = {"kind": "classification", "labels": ("negative", "positive")}
    in_memory = rows_from_file(path, **reading)
    monkeypatch.setattr(files, "MOST_BYTES_IN_MEMORY", 100)
    on_disk = rows_from_file(path, **reading)
    assert isinstance(on_disk.text, StoredTexts) and not isinstance(in_memory.text, StoredTexts)
    return in_memory, on_disk


def test_rows_on_disk_have_the_digest_the_labels_and_the_samples_of_those_in_memory(both):
    in_memory, on_disk = both
    assert on_disk.digest() == in_memory.digest() and len(on_disk) == 300
    chosen = [sample_rows(rows, count=20, seed=1) for rows in both]
    assert chosen[0].texts(np.arange(20))[0].numpy().tolist() == chosen[1].texts(np.arange(20))[0].numpy().tolist()
    assert np.array_equal(chosen[0].labels, chosen[1].labels)


def test_training_batches_of_rows_on_disk_are_those_in_memory(both):
    wordpiece = WordPiece(VOCABULARY, max_length=16)
    batches = [list(training_batches(rows, wordpiece, batch_size=8, epochs=1, seed=3)) for rows in both]
    assert len(batches[0]) == len(batches[1]) == 38
    for (inputs, labels), (same_inputs, same_labels) in zip(*batches):
        assert np.array_equal(inputs["input_ids"], same_inputs["input_ids"])
        assert np.array_equal(labels, same_labels)


@pytest.mark.nightly
def test_many_rows_are_shuffled_without_a_permutation_in_memory(both, monkeypatch):
    wordpiece = WordPiece(VOCABULARY, max_length=16)
    monkeypatch.setattr(batching, "_MOST_ROWS_IN_MEMORY", 100)

    def seen(rows, seed=3, epochs=2, start_step=0):
        batches = training_batches(
            dataclasses.replace(rows, labels=np.arange(300, dtype=np.int32)), wordpiece, batch_size=8, epochs=epochs,
            seed=seed, start_step=start_step,
        )  # fmt: skip
        return [labels.numpy().tolist() for _, labels in batches]

    batches = seen(both[1])
    epochs = [sum(batches[:38], []), sum(batches[38:], [])]
    assert all(sorted(epoch) == list(range(300)) for epoch in epochs) and epochs[0] != epochs[1]
    assert seen(both[0]) == batches and seen(both[1], start_step=45) == batches[45:]
    assert all(seen(both[1], seed=seed, epochs=1) != batches[:38] for seed in (4, 3 + 2**31, 3 + 2**32))
