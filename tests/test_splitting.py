"""Parts of the rows: those set aside of the one file that there is, samples, and the low-resource protocol."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.cases import refused
from tf_adapters import task_from_files
from tf_adapters.tasks.rows import Rows, Task, low_resource, sample_rows, set_aside
from tf_adapters.tasks.spans import SpanRows


def rows_of(labels):
    return Rows(tf.constant([f"text {number}" for number in range(len(labels))]), labels=np.asarray(labels))


def test_every_row_is_in_one_part_and_each_class_keeps_its_share():
    labels = np.repeat([0, 1, 2, 3], [700, 200, 97, 3]).astype(np.int32)[np.random.default_rng(0).permutation(1000)]
    parts = set_aside(rows_of(labels), "classification", {"validation": 0.1, "test": 0.2}, seed=0)
    assert {name: len(chosen) for name, chosen in parts.items()} == {"train": 700, "validation": 100, "test": 200}
    assert sorted(np.concatenate(list(parts.values())).tolist()) == list(range(1000))
    for name, share in (("validation", 0.1), ("test", 0.2)):
        found = np.bincount(labels[parts[name]], minlength=4)
        assert np.all(np.abs(found - share * np.bincount(labels)) <= 1.5), (name, found)
    # A class of one row is trained on.
    rare = np.append(labels, 4)
    for seed in range(20):
        assert 1000 in set_aside(rows_of(rare), "classification", {"validation": 0.3}, seed=seed)["train"]


def test_the_seed_decides_and_numbers_are_spread_evenly():
    values = np.random.default_rng(1).normal(size=500).astype(np.float32)
    first, again, other = (
        set_aside(rows_of(values), "regression", {"test": 0.2}, seed=seed)["test"] for seed in (3, 3, 4)
    )
    assert first.tolist() == again.tolist() != other.tolist()
    # Of 100 rows drawn alike from each part of the order, the quantiles are the whole's.
    assert np.bincount(np.argsort(np.argsort(values))[first] // 100).tolist() == [20] * 5


def test_questions_about_one_context_stay_together():
    context_of = np.repeat(np.arange(40), np.random.default_rng(2).integers(1, 9, 40)).astype(np.int32)
    names = np.array([f"q{number}" for number in range(len(context_of))], object)
    rows = SpanRows(names, names, np.array([f"c{number}" for number in range(40)], object), context_of)
    parts = set_aside(rows, "question-answering", {"validation": 0.25, "test": 0.1}, seed=0)
    contexts = {name: set(context_of[chosen]) for name, chosen in parts.items()}
    assert len(contexts["validation"]) == 10 and len(contexts["test"]) == 4 and len(contexts["train"]) == 26
    assert sum(map(len, parts.values())) == len(names) and not contexts["train"] & contexts["validation"]


def test_shares_that_cannot_be_are_refused():
    for shares, message in (
        ({"validation": 0}, "validation=0 must be a share between 0 and 1"),
        ({"validation": 0.5, "test": 0.5}, "leave no rows to train on"),
        ({"validation": 0.01}, "10 rows are too few to set a share of 0.01 aside"),
    ):
        with refused(message):
            set_aside(rows_of(np.zeros(10, np.int32)), "classification", shares, seed=0)


@pytest.fixture
def one_file(tmp_path):
    lines = [f"text number {number},{'abc'[number % 3]}" for number in range(60)]
    path = tmp_path / "rows.csv"
    path.write_text("text,label\n" + "\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(
    ("given", "sizes"),
    [({}, (48, 6, 6)), ({"validation": 0.25}, (45, 15, None)), ({"validation": "file", "test": 0.1}, (54, 60, 6))],
)
def test_a_task_of_one_file_has_rows_to_choose_by(one_file, given, sizes):
    given = {split: one_file if value == "file" else value for split, value in given.items()}
    task = task_from_files(train=one_file, **given)
    assert (len(task.train), len(task.validation), task.test and len(task.test)) == sizes
    assert "set aside of rows.csv by seed 0" in task.source


def test_it_is_said_what_is_set_aside_and_what_cannot_be(refused, one_file, tmp_path):
    source = task_from_files(train=one_file).source
    assert "validation a share of 0.1 set aside of rows.csv by seed 0 (6 rows)" in source
    for wrong, message in (
        ("--validation=1.5", "--validation 1.5 must be a file, or a share of the training rows such as 0.1"),
        ("--test=0.001", "--test 0.001: 60 rows are too few"),
    ):
        refused("train", "--model=none", f"--train={one_file}", f"--output={tmp_path / 'b'}", wrong, says=message)


def numbered(count, start=0):
    """Rows whose texts, second texts and labels are one number."""
    numbers = np.arange(start, start + count, dtype=np.int32)
    text = tf.constant([f"{number}" for number in numbers])
    return Rows(text, text, numbers)


def numbers_of(rows):
    """The rows' numbers, which their texts are too."""
    for texts in (rows.text, rows.text_pair):
        assert [int(text) for text in texts.numpy()] == rows.labels.tolist()
    return rows.labels.tolist()


def test_sampled_rows_keep_their_order_and_their_labels_and_depend_on_the_seed_alone():
    rows = numbered(100)
    assert numbers_of(sample_rows(rows, count=5, seed=3)) == [6, 64, 67, 93, 96]  # RandomState's permutation, sorted
    assert numbers_of(sample_rows(rows, count=5, seed=4)) != [6, 64, 67, 93, 96]
    assert sample_rows(rows, count=100, seed=3) is rows


def many(count):
    return Task("t", "classification", ("a", "b"), "accuracy", numbered(count), numbered(7, 90000), source="Rows.")


def test_low_resource_draws_training_and_validation_rows_by_the_seed():
    task = low_resource(many(3000), count=500, seed=3)
    drawn = np.random.RandomState(3).permutation(3000)
    assert numbers_of(task.train) == sorted(drawn[:500].tolist())
    assert numbers_of(task.train)[:3] == [0, 3, 5]  # pinned: the same rows for ever
    assert numbers_of(task.validation) == sorted(drawn[500:1500].tolist())
    assert numbers_of(task.test) == list(range(90000, 90007))
    assert task.source == (
        "Rows. Low-resource protocol of He et al. 2021: 500 of 3,000 training rows drawn by seed 3 without "
        "stratification, another 1,000 of the rest as validation, the original validation split as test."
    )


def test_rows_that_cannot_be_drawn_and_labels_that_are_not_there_are_named():
    assert len(low_resource(many(1500), count=500, seed=0).validation) == 1000  # all rows
    unlabelled = dataclasses.replace(many(3000), validation=Rows(text=tf.constant(["a"])))
    for task, count, message in (
        (many(1500), 501, "has 1,500 training rows, too few for 501 to train on and 1,000 to validate: draw 500 or"),
        (many(1000), 1, "Task 't' has 1,000 training rows, and 1,000 of them would validate: it is too small"),
        (unlabelled, 1, "Task 't' has no validation labels"),
    ):
        with refused(message):
            low_resource(task, count=count, seed=0)
