"""Training batches depend on the seed and the step alone; padding is small and shapes are few."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import is_refused
from tf_adapters.tasks.rows import Rows
from tf_adapters.text.batching import (
    default_lengths,
    padding_multiple,
    sorted_batches,
    steps_per_epoch,
    training_batches,
)
from tf_adapters.text.wordpiece import WordPiece

# One word for each row, so that a batch tells which rows it holds.
ROW_WORDS = [f"row{number}" for number in range(1100)]
FIRST_ROW = 5


@pytest.fixture(scope="module")
def wordpiece():
    return WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "word"] + ROW_WORDS, max_length=40)


def some_rows(count, *, pair=False, longest=50, labels=None):
    generator = np.random.default_rng(count)
    texts = [f"{ROW_WORDS[row]} " + "word " * generator.integers(0, longest) for row in range(count)]
    pairs = tf.constant(["word " * generator.integers(0, 9) for _ in range(count)]) if pair else None
    return Rows(tf.constant(texts), pairs, np.arange(count, dtype=np.int32) if labels is None else labels)


def row_numbers(inputs):
    return (inputs["input_ids"][:, 1].numpy() - FIRST_ROW).tolist()


def lengths_of(inputs):
    return tf.reduce_sum(inputs["attention_mask"], axis=1).numpy()


def test_steps_per_epoch_counts_the_partial_batch_unless_dropped():
    for count, batch_size, whole, dropped in ((10, 4, 3, 2), (8, 4, 2, 2), (1, 1, 1, 1), (67349, 32, 2105, 2104)):
        assert steps_per_epoch(count, batch_size=batch_size) == whole
        assert steps_per_epoch(count, batch_size=batch_size, drop_remainder=True) == dropped
    assert steps_per_epoch(3, batch_size=4) == 1
    is_refused("batch_size=4 exceeds the 3 rows", steps_per_epoch, 3, batch_size=4, drop_remainder=True)


@pytest.mark.parametrize("count, batch_size", [(1, 8), (8, 4), (263, 5)])
def test_each_epoch_holds_each_row_once_and_only_its_last_batch_is_partial(wordpiece, count, batch_size):
    steps = steps_per_epoch(count, batch_size=batch_size)
    dataset = training_batches(some_rows(count), wordpiece, batch_size=batch_size, epochs=2, seed=3)
    assert int(dataset.cardinality()) == 2 * steps
    batches = list(dataset)
    assert len(batches) == 2 * steps
    for epoch in (batches[:steps], batches[steps:]):
        sizes = [len(labels) for _, labels in epoch]
        assert sizes[:-1] == [batch_size] * (steps - 1) and sizes[-1] == count - batch_size * (steps - 1)
        assert sorted(sum((row_numbers(inputs) for inputs, _ in epoch), [])) == list(range(count))
    for inputs, labels in batches:
        assert row_numbers(inputs) == labels.numpy().tolist()


@pytest.mark.parametrize("count, batch_size", [(8, 4), (100, 7)])
def test_with_drop_remainder_batches_are_full_and_the_dropped_rows_change(wordpiece, count, batch_size):
    steps, rows = count // batch_size, some_rows(count)
    batches = list(training_batches(rows, wordpiece, batch_size=batch_size, epochs=8, seed=3, drop_remainder=True))
    assert [len(labels) for _, labels in batches] == [batch_size] * (8 * steps)
    numbers = [row_numbers(inputs) for inputs, _ in batches]
    seen = [set(sum(numbers[first : first + steps], [])) for first in range(0, len(batches), steps)]
    assert all(len(epoch) == steps * batch_size for epoch in seen)
    if count % batch_size:
        assert set().union(*seen) == set(range(count))


def test_the_stream_from_step_k_is_the_tail_of_the_stream_from_0(wordpiece):
    def stream(start_step):
        settings = dict(batch_size=2, drop_remainder=True, epochs=3, seed=11, start_step=start_step)
        return list(training_batches(some_rows(43, pair=True), wordpiece, **settings))

    whole = stream(0)
    epoch = len(whole) // 3
    for start_step in (1, epoch + epoch // 2, len(whole)):
        for got, expected in zip(stream(start_step), whole[start_step:], strict=True):
            for one, other in zip(tf.nest.flatten(got), tf.nest.flatten(expected), strict=True):
                np.testing.assert_array_equal(one, other)


def test_rows_meet_different_rows_in_each_epoch(wordpiece):
    # 400 rows of equal length: with batches of 4, two given rows share one with probability 3/399.
    pairs = collections.Counter()
    for inputs, _ in training_batches(some_rows(400, longest=1), wordpiece, batch_size=4, epochs=5, seed=0):
        numbers = sorted(row_numbers(inputs))
        pairs.update((a, b) for place, a in enumerate(numbers) for b in numbers[place + 1 :])
    # 3000 draws among 79800 pairs: about 3000**2 / (2 * 79800) = 56 meet again.
    assert 30 < sum(count - 1 for count in pairs.values()) < 90


def test_batches_of_a_window_do_not_come_in_order_of_length(wordpiece):
    batches = training_batches(some_rows(1000), wordpiece, batch_size=5, epochs=2, seed=0)
    lengths = np.array([lengths_of(inputs).mean() for inputs, _ in batches])
    # Nor in the order of another window, of the same epoch or of the next.
    assert np.abs(np.corrcoef([np.arange(50), *lengths.reshape(-1, 50)])[np.triu_indices(9, 1)]).max() < 0.5


def test_padding_is_the_next_multiple_or_the_smallest_given_length_that_fits(wordpiece):
    rows = some_rows(200)
    choices = {3: (*range(3, 40, 3), 40), (8, 20, 48): (8, 20, 48)}
    for given, fit in choices.items():
        settings, widths = {"lengths": given} if isinstance(given, tuple) else {"multiple_of": given}, set()
        for inputs, _ in training_batches(rows, wordpiece, batch_size=4, epochs=1, seed=0, **settings):
            widths.add(inputs["input_ids"].shape[1])
            assert inputs["input_ids"].shape[1] == next(length for length in fit if length >= lengths_of(inputs).max())
    assert widths == {8, 20, 48}


def test_sorting_within_windows_halves_the_padding_of_random_batches(wordpiece):
    batches = list(training_batches(some_rows(1000), wordpiece, batch_size=10, epochs=1, seed=0))
    positions = sum(int(tf.size(inputs["input_ids"])) for inputs, _ in batches)
    tokens = sum(int(lengths_of(inputs).sum()) for inputs, _ in batches)
    # Lengths are even from 3 to 40 (and many of 40): sorted batches lose the rounding to 8, under a fifth.
    assert positions < 1.25 * tokens
    assert 1000 * 40 > 1.3 * tokens, "in random order nearly each batch of 10 has a row of 40"


def test_the_multiple_follows_from_what_a_new_shape_costs(monkeypatch):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [])
    assert [padding_multiple(), padding_multiple(fast=True), padding_multiple(fast=True, steps=5000)] == [2, 8, 4]
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["one"] if kind == "GPU" else [])
    assert padding_multiple() == 8


def test_pairs_reach_the_batches_with_their_types(wordpiece):
    rows = some_rows(30, pair=True)
    for inputs, labels in training_batches(rows, wordpiece, batch_size=4, epochs=1, seed=0):
        chosen = labels.numpy()
        expected = wordpiece(tf.gather(rows.text, chosen), tf.gather(rows.text_pair, chosen))
        for name in expected:
            np.testing.assert_array_equal(inputs[name], expected[name])
        assert int(tf.reduce_max(inputs["token_type_ids"])) == 1


def test_default_lengths_end_with_max_length_and_are_six_at_most():
    assert default_lengths(512) == (16, 32, 64, 128, 256, 512)
    assert default_lengths(100) == (16, 32, 64, 100)
    assert default_lengths(10) == (10,)
    assert default_lengths(4096) == (16, 32, 64, 128, 256, 4096)


@pytest.mark.parametrize("lengths", [None, (8, 16, 40)])
def test_sorted_batches_hold_each_row_once_in_order_of_length(wordpiece, lengths):
    for count in (0, 1, 9, 12):
        encoded = wordpiece.encode(some_rows(count).text if count else tf.constant([], tf.string))
        settings = dict(batch_size=4, tokenizer=wordpiece, lengths=lengths, fill=bool(lengths))
        seen, last = [], 0
        for positions, inputs in sorted_batches(encoded, **settings):
            assert positions.dtype == np.int64
            real = {name: tensor[: len(positions)] for name, tensor in inputs.items()}
            assert row_numbers(real) == positions.tolist()
            found = lengths_of(real)
            assert found[0] >= last and (np.diff(found) >= 0).all()
            last = found[-1]
            if lengths:
                assert inputs["input_ids"].shape[0] == 4 and inputs["input_ids"].shape[1] in lengths
                assert not inputs["attention_mask"][len(positions) :].numpy().any()
            else:
                assert inputs["input_ids"].shape == (len(positions), min(-(-last // 8) * 8, 40))
            assert len(positions) == 4 or not seen, "the shortest rows alone may leave a batch unfilled"
            seen += positions.tolist()
        assert sorted(seen) == list(range(count))


def test_what_cannot_be_trained_on_is_named(wordpiece):
    ten, two = some_rows(10), tf.constant(["a", "b"])
    for rows, changed, message in (
        (ten, {"batch_size": 0}, "batch_size=0"),
        (ten, {"seed": 2**63}, "seed=9223372036854775808"),
        (ten, {"start_step": 7}, "start_step=7 must be an integer from 0 to the 6 steps"),
        (ten, {"lengths": (8, 39)}, "max_length=40"),
        (ten, {"batch_size": 11, "drop_remainder": True}, "batch_size=11 exceeds"),
        (Rows(two), {}, "rows.labels is None"),
        (Rows(two, labels=np.zeros(3)), {}, "rows.labels has 3 entries for 2 rows"),
    ):
        is_refused(message, training_batches, rows, wordpiece, **{"batch_size": 4, "epochs": 2, "seed": 0, **changed})


def test_the_end_of_training_does_not_wait_for_the_thread_that_tunes_the_pipeline(wordpiece):
    dataset = training_batches(some_rows(20), wordpiece, batch_size=4, epochs=2, seed=0)
    # As Keras' fit is given it.
    assert dataset.enumerate().map(lambda step, batch: batch).options().autotune.enabled is False
