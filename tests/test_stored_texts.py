"""Rows of large files, whose texts stay on disk."""

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import VOCABULARY, write_csv
from tf_adapters import WordPiece
from tf_adapters.tasks import files
from tf_adapters.tasks.own_files import rows_from_file
from tf_adapters.tasks.rows import sample_rows
from tf_adapters.tasks.stored_texts import StoredTexts
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
