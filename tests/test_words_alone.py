"""The baselines that need no encoder, which `train` shows beside its score."""

import dataclasses
import shlex

import numpy as np
import pytest
import tensorflow as tf

from tf_adapters.cli.report import warnings
from tf_adapters.kinds import get_kind
from tf_adapters.tasks.metrics import METRICS
from tf_adapters.tasks.rows import Rows, Task
from tf_adapters.tasks.words import WordRows
from tf_adapters.training.experiment import HeldOut, without_training
from tf_adapters.training.settings import TrainingSettings

TEXTS = ["a good film", "a bad film", "good and bad", "that film"] * 10


def task_of(kind, labels, names, metric, texts=TEXTS):
    rows = Rows(tf.constant(texts), labels=np.asarray(labels))
    return Task("mine", kind, names, metric, train=rows, validation=rows, test=rows)


@pytest.mark.parametrize(
    ("kind", "labels", "names", "metric"),
    [
        ("classification", np.array([1, 0, 0, 1] * 10, np.int32), ("no", "yes", "never"), "accuracy"),
        ("classification", np.zeros(40, np.int32), ("no", "yes"), "accuracy"),
        ("multi-label", np.array([[1, 0, 1], [0, 1, 1], [1, 1, 1], [0, 0, 1]] * 10, np.float32), "gbx", "micro-f1"),
        ("regression", np.array([2.0, -2.0, 0.5, 0.0] * 10, np.float32), (), "pearson-spearman"),
    ],
)
def test_words_that_decide_are_found(kind, labels, names, metric):
    task = task_of(kind, labels, tuple(names), metric)
    of_kind = get_kind(kind)
    what, outputs = of_kind.words_alone(task, task.test)
    assert ("ridge" in what) == (kind == "regression") and len(outputs) == 40
    assert of_kind.score(metric, task.test, outputs)[METRICS[metric].primary] > 0.99


def test_a_word_has_its_usual_label_and_a_new_one_the_most_frequent():
    words = tf.ragged.constant([["the", "film", "runs"], ["a", "runs"], ["the", "runs", "runs"]])
    labels = tf.ragged.constant([[0, 1, 2], [0, 1], [0, 2, 2]], dtype=tf.int32)
    names = ("DET", "NOUN", "VERB")
    train = WordRows(words, labels, names)
    right = tf.ragged.constant([[0, 2], [0, 0, 1]], dtype=tf.int32)
    new = WordRows(tf.ragged.constant([["the", "runs"], ["zebra", "a", "film"]]), right, names)
    task = Task("mine", "token-classification", names, "accuracy", train=train, validation=train)
    _, outputs = get_kind("token-classification").words_alone(task, new)
    # "runs" is a verb in three of four places; the labels tie at three, the first counts.
    assert [row.argmax(-1).tolist() for row in outputs] == [[0, 2], [0, 0, 1]]


def test_what_a_reader_should_know_is_said():
    task = task_of("classification", [0] * 30 + [1] * 8 + [2] * 2, ("a", "b", "c"), "accuracy")
    kind = get_kind("classification")
    others = without_training(kind, task, task.test)
    assert others["one constant answer"] == 0.75
    assert set(others) == {"one constant answer", "TF-IDF and logistic regression"}
    always = np.tile([1.0, 0.0, 0.0], (40, 1))
    held_out = HeldOut("test", task.test, always, kind.score("accuracy", task.test, always))
    settings = TrainingSettings(epochs=1, learning_rate=1e-3)
    said = " ".join(warnings(kind, task, held_out, others, settings))
    assert "no better than one constant answer" in said
    assert "Never predicted, though test rows have them (how many): b (8), c (2). --class-weights balanced and" in said
    balanced = dataclasses.replace(settings, class_weights="balanced")
    assert "c (2). More --epochs may help." in warnings(kind, task, held_out, {}, balanced)[-1]
    held_out = HeldOut("test", task.test, np.eye(3)[task.test.labels], {"accuracy": 1.0, "f1": 1.0})
    assert warnings(kind, task, held_out, {"one constant answer": 0.75}, settings) == []
    of_f1 = task_of("classification", task.test.labels, ("a", "b"), "f1")
    assert warnings(kind, of_f1, held_out, {}, settings) == ["F1 is of the label b, the second of the two."]


def test_the_truth_is_said_as_predictions_are():
    texts = task_of("multi-label", np.array([[1, 0], [1, 1], [0, 0], [0, 1]] * 10, np.float32), ("a", "b"), "micro-f1")
    assert [get_kind("multi-label").truth(texts.test, row, ("a", "b")) for row in range(3)] == ["a", "a|b", "(none)"]
    words = WordRows(
        tf.ragged.constant([["the", "film"]]), tf.ragged.constant([[2, 0]], dtype=tf.int32), ("N", "O", "D")
    )
    assert get_kind("token-classification").truth(words, 0, ("N", "O", "D")) == "the/D film/N"


def test_the_command_to_try_is_of_the_rows():
    command = get_kind("classification").example_command
    (_, text, *_) = shlex.split(command("DIR", Rows(tf.constant(["it's " + "very " * 40 + "good"]))))
    assert text.startswith("it's very") and len(text) <= 80
    assert shlex.split(command("DIR", Rows(tf.constant(["字" * 200]))))[1] == "字" * 80
    words = shlex.split(command("DIR", Rows(tf.constant(['say "no"']), tf.constant(["it's"]))))
    assert words[1] == '{"text": "say \\"no\\"", "text_pair": "it\'s"}' and "--text-pair-column" in words


def test_texts_without_words_have_no_baseline():
    task = task_of("classification", [0, 1, 0, 1] * 10, ("a", "b"), "accuracy", texts=["!", "?", ".", ","] * 10)
    assert get_kind("classification").words_alone(task, task.test) is None
