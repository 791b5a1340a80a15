"""Rows that are set aside of the one file that there is."""

import numpy as np
import pytest
import tensorflow as tf

from tf_adapters import InputError, task_from_files
from tf_adapters.tasks.rows import Rows
from tf_adapters.tasks.splitting import set_aside


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
    ranks = np.argsort(np.argsort(values))[first]
    assert np.bincount(ranks // 100).tolist() == [20] * 5


def test_questions_about_one_context_stay_together():
    from tf_adapters.tasks.spans import SpanRows

    context_of = np.repeat(np.arange(40), np.random.default_rng(2).integers(1, 9, 40)).astype(np.int32)
    count = len(context_of)
    names = np.array([f"q{number}" for number in range(count)], object)
    rows = SpanRows(names, names, np.array([f"c{number}" for number in range(40)], object), context_of)
    parts = set_aside(rows, "question-answering", {"validation": 0.25, "test": 0.1}, seed=0)
    contexts = {name: set(context_of[chosen]) for name, chosen in parts.items()}
    assert len(contexts["validation"]) == 10 and len(contexts["test"]) == 4 and len(contexts["train"]) == 26
    assert sum(map(len, parts.values())) == count and not contexts["train"] & contexts["validation"]


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ({"validation": 0}, "validation=0 must be a share between 0 and 1"),
        ({"validation": 0.5, "test": 0.5}, "leave no rows to train on"),
        ({"validation": 0.01}, "10 rows are too few to set a share of 0.01 aside"),
    ],
)
def test_shares_that_cannot_be_are_refused(shares, message):
    with pytest.raises(InputError) as refused:
        set_aside(rows_of(np.zeros(10, np.int32)), "classification", shares, seed=0)
    assert message in str(refused.value)


@pytest.fixture
def one_file(tmp_path):
    lines = [f"text number {number},{'abc'[number % 3]}" for number in range(60)]
    path = tmp_path / "rows.csv"
    path.write_text("text,label\n" + "\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        ({}, (48, 6, 6)),
        ({"validation": 0.25}, (45, 15, None)),
        ({"test": 0.25}, (39, 6, 15)),
        ({"validation": "file"}, (60, 60, None)),
        ({"validation": "file", "test": 0.1}, (54, 60, 6)),
    ],
)
def test_a_task_of_one_file_has_rows_to_choose_by(one_file, given, sizes):
    given = {split: one_file if value == "file" else value for split, value in given.items()}
    task = task_from_files(train=one_file, **given)
    assert (len(task.train), len(task.validation), task.test and len(task.test)) == sizes
    assert ("set aside of rows.csv by seed 0" in task.source) == (given != {"validation": one_file})


@pytest.mark.slow
def test_the_command_splits_the_one_file_and_keeps_what_it_did(cli, checkpoint, one_file, tmp_path):
    import json

    words = ["train", f"--model={checkpoint}", f"--train={one_file}", "--max-length=16", "--epochs=1"]
    outcome = cli(*words, f"--output={tmp_path / 'a'}")
    assert outcome.status == 0, outcome.err
    assert "48 training, 6 validation, 6 test rows" in outcome.out
    settings = json.loads((tmp_path / "a" / "tf_adapters.json").read_text())
    assert "validation a share of 0.1 set aside of rows.csv by seed 0 (6 rows)" in settings["task"]["source"]
    for wrong, message in (
        ("--validation=1.5", "--validation 1.5 must be a file, or a share of the training rows such as 0.1"),
        ("--test=0.001", "--test 0.001: 60 rows are too few"),
        ("--validation=none.csv", "none.csv does not exist"),
    ):
        outcome = cli(*words, f"--output={tmp_path / 'b'}", wrong)
        assert outcome.status == 2 and message in outcome.err and outcome.err.count("\n") == 1, outcome.err
