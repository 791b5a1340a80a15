"""Answers and numbers of a trained model from Python: those of the command line."""

import inspect
import json
import shutil

import numpy as np
import pytest

from tests.conftest import randomize, tiny_model
from tf_adapters import (
    AdapterConfig,
    InputError,
    add_adapters,
    evaluate,
    load_backbone,
    load_tokenizer,
    load_trained,
    predict,
    save_adapter,
    set_active,
    set_trainable,
    task_from_files,
)

TEXTS = ["a good film", "a bad , bad film", "film"]


def test_a_directory_and_its_model_answer_as_the_command(cli, adapter_directory, sentences, tmp_path):
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    outcome = cli("predict", adapter_directory, "--input", tmp_path / "texts.txt")
    done = []
    answers = predict(adapter_directory, TEXTS, progress=done.append)
    assert answers == [json.loads(line) for line in outcome.out.splitlines()] and sum(done) == 3
    options = ("--input", sentences / "test.csv", "--output", tmp_path / "numbers.json")
    assert cli("evaluate", adapter_directory, *options).status == 0
    numbers = json.loads((tmp_path / "numbers.json").read_text())["metrics"]
    model, _ = load_trained(adapter_directory)
    tokenizer = load_tokenizer(model, max_length=32)
    rows = task_from_files(train=sentences / "train.csv", validation=sentences / "test.csv").validation
    assert evaluate(model, rows, tokenizer=tokenizer) == numbers
    # A file is read as the training file was, whose columns have other names.
    kept = json.loads((adapter_directory / "tf_adapters.json").read_text())
    kept["task"]["reading"] = {"files": "table", "text_column": "body", "label_column": "mood"}
    shutil.copytree(adapter_directory, tmp_path / "other")
    (tmp_path / "other" / "tf_adapters.json").write_text(json.dumps(kept))
    text = (sentences / "test.csv").read_text().replace("text,label", "body,mood", 1)
    (tmp_path / "renamed.csv").write_text(text)
    assert evaluate(tmp_path / "other", tmp_path / "renamed.csv") == numbers
    kept["task"]["text_pairs"] = True
    (tmp_path / "other" / "tf_adapters.json").write_text(json.dumps(kept))
    with pytest.raises(InputError, match="was trained on pairs of texts"):
        evaluate(tmp_path / "other", tmp_path / "renamed.csv")
    with pytest.raises(InputError, match="The rows: .* was trained on pairs of texts"):
        evaluate(tmp_path / "other", rows)


def test_a_regression_is_known_by_its_one_output_and_scored_within_its_range(one_block, tmp_path):
    model = randomize(add_adapters(load_backbone(one_block, num_labels=1), AdapterConfig(4), seed=0))
    set_trainable(model)
    for name, task in {"plain": None, "ranged": {"kind": "regression", "value_range": [0, 1e-3]}}.items():
        save_adapter(model, tmp_path / name, text=load_tokenizer(model, max_length=32), task=task)
    plain, ranged = (predict(tmp_path / name, TEXTS) for name in ("plain", "ranged"))
    assert plain == predict(model, TEXTS) and ranged != plain
    rows = "".join(f"{text},{answer['value']}\n" for text, answer in zip(TEXTS, ranged)).replace(" , ", " ")
    (tmp_path / "rows.csv").write_text("text,label\n" + rows)
    numbers = evaluate(tmp_path / "ranged", tmp_path / "rows.csv", metric="pearson-spearman")
    assert numbers["mse"] < 1e-9
    held = task_from_files(train=tmp_path / "rows.csv", validation=tmp_path / "rows.csv", kind="regression").validation
    assert evaluate(tmp_path / "ranged", held, metric="pearson-spearman") == numbers


def test_answers_are_traced_without_autograph(one_block, monkeypatch):
    model, files = load_backbone(one_block), []
    call = model.classifier.call
    noted = lambda inputs: files.extend(frame.filename for frame in inspect.stack(0)) or call(inputs)  # noqa: E731
    monkeypatch.setattr(model.classifier, "call", noted)
    predict(model, TEXTS)
    assert files and not any("autograph_generated" in file for file in files)


def test_the_active_adapter_of_a_model_answers(one_block):
    model, found = load_backbone(one_block), {}
    for seed, name in enumerate(("a", "b")):
        config = AdapterConfig(4, init_stddev=0.5, train_layer_norm="none")
        found[name] = predict(randomize(add_adapters(model, config, name=name, seed=seed), seed), TEXTS)
    one, other = ([list(row["probabilities"].values()) for row in rows] for rows in found.values())
    assert not np.allclose(one, other)
    set_active(model, "a")
    assert predict(model, TEXTS) == found["a"]


def test_words_questions_and_values_are_answered(one_block, tmp_path):
    model = load_backbone(one_block, head="token-classification", labels=["A", "B"])
    answers = predict(model, ["a good film", ["a", "film"]])
    assert [len(row["labels"]) for row in answers] == [3, 2] and {
        label for row in answers for label in row["labels"]
    } <= {"A", "B"}
    model = load_backbone(one_block, head="question-answering")
    (answer,) = predict(model, ["what film"], ["a good film"])
    assert answer["answer"] in "a good film" and predict(model, [], []) == []
    model = load_backbone(one_block, num_labels=1)
    assert [list(row) for row in predict(model, TEXTS, TEXTS)] == [["value"]] * 3
    model = load_backbone(one_block, num_labels=3)
    assert set(predict(model, TEXTS[:1], kind="multi-label")[0]) == {"labels", "probabilities"}


def test_what_cannot_be_answered_is_named(adapter_directory, one_block, tmp_path):
    model, other = load_backbone(one_block), tmp_path / "a"
    save_adapter(set_trainable(add_adapters(load_backbone(one_block), AdapterConfig(2), seed=0)), other)
    for call, message in (
        (lambda: predict(model, "a film"), "give .text. for one"),
        (lambda: predict(model, ["a", 3]), "texts: number 1 is 3"),
        (lambda: predict(model, ["a", "\ud800"]), "texts: number 1 is '.ud800', which is not UTF-8"),
        (lambda: predict(adapter_directory, ["a"], ["b"]), "was trained on single texts"),
        (lambda: predict(adapter_directory, TEXTS, kind="regression"), "kind='regression' is of a model"),
        (lambda: evaluate(model, ["a"]), "have no labels to compare with"),
        (lambda: predict(tiny_model(), TEXTS), "was built without files"),
        (lambda: predict(other, TEXTS), "was saved without text settings"),
    ):
        with pytest.raises(InputError, match=message):
            call()
