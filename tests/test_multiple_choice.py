"""Texts with several choices: files, batches, training, answers and the served graph."""

import json

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import VOCABULARY, is_refused
from tf_adapters import evaluate, load_backbone, load_trained, predict, task_from_files
from tf_adapters.kinds import get_kind
from tf_adapters.tasks.files import BadRows
from tf_adapters.tasks.own_files import READERS
from tf_adapters.text import WordPiece
from tf_adapters.text.batching import training_batches

KIND, CHOICES = get_kind("multiple-choice"), READERS["multiple-choice"]
NAMES = ("input_ids", "attention_mask")


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def learnable(count, seed):
    """The right one of three choices is "good"."""
    random = np.random.default_rng(seed)
    for _ in range(count):
        label = int(random.integers(3))
        choices = ["a bad plot", "an awful dull film", "not fun"]
        choices[label] = "good"
        yield {
            "text": " ".join(random.choice(["the", "film", "movie", "is", "was"], int(random.integers(1, 6)))),
            "choices": choices,
            "label": label,
        }


SHAPES = [
    {"text": "the film", "choices": ["is good", "is bad"], "label": 1},
    {"ctx": "the film", "endings": ["is good", "is bad"], "label": "1", "split": "x"},
    {"sent1": "the film", "sent2": "is", "ending0": "good", "ending1": "bad", "label": 1},
]


@pytest.mark.parametrize("row", SHAPES)
def test_rows_of_each_shape_are_the_same(row, tmp_path):
    rows, labels = CHOICES.read(write(tmp_path / "rows.jsonl", [row, row]))
    assert labels == () and rows.text.numpy().tolist() == [b"the film"] * 2 and rows.labels.tolist() == [1, 1]
    assert rows.choices.numpy().tolist() == [[b"is good", b"is bad"]] * 2
    (chunk,) = CHOICES.chunks(tmp_path / "rows.jsonl")
    assert chunk.labels is None and chunk.rows().choices.shape == (2, 2)
    assert rows.digest() == CHOICES.read(write(tmp_path / "first.jsonl", [SHAPES[0]] * 2))[0].digest() != chunk.digest()


def test_a_row_that_cannot_be_used_is_named_or_left_out(tmp_path):
    for changes, message in (
        ({"label": 2}, "line 2: the label is 2; give the place of the right choice, from 0 to 1"),
        ({"label": True}, "the label is True"),
        ({"label": "A"}, "the label is 'A'"),
        ({"choices": ["one"]}, "has 1 choices; give 2 to 100"),
        ({"choices": "good"}, "has no list of choices under 'choices'"),
        ({"choices": ["a", "b", "c"]}, "has 3 choices where the rows before have 2"),
        ({"choices": ["a", 3]}, "is 3, which is not a string"),
        ({"text": ""}, "column 'text' is empty"),
    ):
        path = write(tmp_path / "rows.jsonl", [SHAPES[0], {**SHAPES[0], **changes}, SHAPES[0]])
        is_refused(message, CHOICES.read, path)
        left_out = BadRows()
        assert len(CHOICES.read(path, bad_rows=left_out)[0]) == 2 and left_out.count == 1


def test_files_that_are_none_of_choices_are_named(tmp_path):
    (tmp_path / "rows.csv").write_text("text,label\na,0\n")
    other = write(tmp_path / "other.jsonl", [{"q": "the film", "options": ["good", "bad"], "answer": 0}])
    keys = {"text_column": "q", "text_pair_column": "options"}
    assert CHOICES.read(other, **keys, label_column="answer")[0].labels.tolist() == [0]
    for path, options, message in (
        (tmp_path / "rows.csv", {}, "are read from JSON lines"),
        (other, {}, "has no key 'text'; name the text's by text_column"),
    ):
        is_refused(message, CHOICES.read, path, **options)


def test_a_batch_has_each_choice_behind_its_text_in_one_of_few_lengths(tmp_path):
    rows, _ = CHOICES.read(write(tmp_path / "rows.jsonl", learnable(5, seed=0)))
    tokenizer = WordPiece(VOCABULARY, max_length=23)
    examples = KIND.examples(rows, tokenizer)
    (batch,) = training_batches(examples, KIND.padder(tokenizer, examples), batch_size=5, epochs=1, seed=0)
    texts = [text.decode() for text in rows.text.numpy()]
    expected = []
    for text, choices, label in zip(texts, rows.choices.numpy(), rows.labels.tolist()):
        encoded = tokenizer([text] * 3, [choice.decode() for choice in choices])
        tokens = [row[mask == 1].tolist() for row, mask in zip(*(encoded[name].numpy() for name in NAMES))]
        expected.append((label, tokens))
    for lengths, width in ((None, None), ((5, 23), 23), ((17, 23), 17)):
        inputs, labels = KIND.batch(*batch, None, tokenizer, *([] if lengths is None else [lengths]))
        ids, masks = (inputs[name].numpy() for name in NAMES)
        assert ids.shape[:2] == (5, 3) and ids.shape[2] in ([width] if width else range(24))
        seen = [
            (label, [row[mask == 1].tolist() for row, mask in zip(*each)])
            for label, *each in zip(labels.numpy().tolist(), ids, masks)
        ]
        assert sorted(seen) == sorted(expected)


@pytest.mark.slow
def test_it_learns_is_saved_answers_and_is_served(one_block, cli, tmp_path):
    train = write(tmp_path / "train.jsonl", learnable(300, seed=300))
    held_out = write(tmp_path / "validation.jsonl", learnable(60, seed=60))
    run = [f"--model={one_block}", f"--train={train}", f"--validation={held_out}", "--kind=multiple-choice"]
    run += ["--batch-size=16", "--max-length=16"]
    refused = cli("train", *run, f"--output={tmp_path / 'b'}", *"--cache-frozen --dropout 0 --trainable head".split())
    assert refused.status == 2 and "--cache-frozen is not for tasks of the kind 'multiple-choice'" in refused.err
    outcome = cli("train", *run, f"--output={tmp_path / 'a'}", "--epochs=3", "--learning-rate=1e-2", "--adapter-size=8")
    assert outcome.status == 0, outcome.err
    rows = task_from_files(train=train, validation=held_out, kind="multiple-choice").validation
    accuracy = evaluate(tmp_path / "a", rows)["accuracy"]
    assert accuracy > 0.8
    outcome = cli("evaluate", tmp_path / "a", "--input", held_out, "--output", tmp_path / "numbers.json")
    assert json.loads((tmp_path / "numbers.json").read_text())["metrics"] == {"accuracy": accuracy}, outcome.err
    answers = cli("predict", tmp_path / "a", "--input", held_out).rows()
    texts = [text.decode() for text in rows.text.numpy()]
    choices = [[choice.decode() for choice in each] for each in rows.choices.numpy()]
    assert predict(tmp_path / "a", texts, choices) == answers and predict(tmp_path / "a", [], []) == []
    assert np.mean([answer["choice"] == label for answer, label in zip(answers, rows.labels)]) == accuracy
    assert all(answer["answer"] == each[answer["choice"]] for each, answer in zip(choices, answers))
    # The model itself takes all choices of a row at once.
    model, _ = load_trained(tmp_path / "a")
    tokenizer = WordPiece.from_directory(one_block, max_length=16)
    inputs = {name: tensor[tf.newaxis] for name, tensor in tokenizer(texts[:1] * 3, choices[0]).items()}
    np.testing.assert_allclose(tf.nn.softmax(model(inputs).logits[0]), answers[0]["probabilities"], atol=1e-5)
    assert cli("export", tmp_path / "a", "--output", tmp_path / "served" / "1").status == 0
    served = tf.saved_model.load(str(tmp_path / "served" / "1")).signatures["serving_default"]
    answer = served(text=tf.constant(texts), choices=tf.constant(choices))
    assert answer["choice"].numpy().tolist() == [each["choice"] for each in answers]
    np.testing.assert_allclose(answer["probabilities"], [each["probabilities"] for each in answers], atol=1e-5)
    assert [text.decode() for text in answer["answer"].numpy()] == [each["answer"] for each in answers]
    broken = served(text=tf.constant(texts[:2]), choices=tf.constant([[b"\xff", b"a", b"b"], [b"a", b"b", b"c"]]))
    assert b"UTF-8" in broken["error"].numpy()[0] and broken["error"].numpy()[1] == b""
    assert served(text=tf.constant([], tf.string), choices=tf.zeros([0, 3], tf.string))["choice"].shape == (0,)


def test_texts_and_choices_from_python_are_checked(one_block):
    model = load_backbone(one_block, head="multiple-choice")
    assert len(predict(model, ["the film"], [["is good", "is bad"]])) == 1
    for choices, message in (
        (None, "give a list of the choices of each text"),
        (["good"], "number 0 is 'good'; give a list of 2 texts"),
    ):
        is_refused(message, predict, model, ["the film"], choices)
