"""Two orders of label names meet: both are named, and nothing is put into another order."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import is_refused, randomize, write_checkpoint
from tests.runs import KillAt, Killed
from tests.whole import assert_same, picture
from tf_adapters import (
    AdapterConfig,
    InputError,
    add_adapters,
    evaluate,
    fit,
    load_adapter,
    load_backbone,
    predict,
    remove_adapters,
    save_adapter,
    set_trainable,
)
from tf_adapters.adapterhub import export_adapter, import_adapter
from tf_adapters.models.state import state_of
from tf_adapters.serving.convert import export_file
from tf_adapters.serving.export import export_saved_model
from tf_adapters.tasks import Rows, Task
from tf_adapters.tasks.labels import check_label_names
from tf_adapters.tasks.words import WordRows
from tf_adapters.text import WordPiece

LABELS, OTHER = ["bad", "good"], ["good", "bad"]
CONFIG = AdapterConfig(4, init_stddev=0.3, train_layer_norm="none")
SHORT = dict(epochs=1, learning_rate=1e-2, batch_size=8)
BOTH = r"labels \['bad', 'good'\].*labels \['good', 'bad'\]"
CLASSES = np.arange(16, dtype=np.int32) % 2
LABELS_OF = {"classification": CLASSES, "multi-label": np.eye(2, dtype=np.float32)[CLASSES], "regression": CLASSES / 1}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    directory = tmp_path_factory.mktemp("encoder") / "one-block"
    write_checkpoint(directory, num_hidden_layers=1)
    return directory


@pytest.fixture(scope="module")
def wordpiece(encoder):
    return WordPiece.from_directory(encoder, max_length=8)


@pytest.mark.parametrize("acts", [False, True])
@pytest.mark.parametrize("door", ["transformers", "keras-hub"])
def test_each_label_keeps_its_output_in_an_adapters_own_order(encoder, door, acts):
    if door == "keras-hub":
        pytest.importorskip("keras_hub")
    model = load_backbone(encoder, labels=LABELS, door=door)
    state, random = state_of(model), np.random.default_rng(0)
    for variable in state.head_variables(model):
        variable.assign(random.normal(size=variable.shape))
    ids = tf.constant([[2, 5, 6, 3], [2, 7, 8, 3]])
    inputs = {"input_ids": ids, "attention_mask": tf.ones_like(ids), "token_type_ids": tf.zeros_like(ids)}
    before = state.door.forward(model)(inputs)
    if acts:
        randomize(add_adapters(model, CONFIG, name="other", seed=0))
    add_adapters(model, AdapterConfig(4, init_stddev=0.0), labels=OTHER, seed=0)
    np.testing.assert_allclose(state.door.forward(model)(inputs), before[:, ::-1], atol=1e-5)
    assert state.label_names(model, state.owner) == OTHER
    remove_adapters(model)
    np.testing.assert_allclose(state.door.forward(model)(inputs), before, atol=1e-5)


def rows_of(kind):
    texts = tf.constant(["a good film", "a bad film"] * 8)
    if kind == "token-classification":
        words = tf.RaggedTensor.from_row_lengths(texts, [2] * 8)
        return WordRows(words, words.with_values(tf.constant(CLASSES)), tuple(LABELS))
    return Rows(texts, labels=LABELS_OF[kind].astype(np.int32 if kind == "classification" else np.float32))


def task_of(kind="classification", metric="accuracy", **changes):
    rows, named = rows_of(kind), kind != "regression"
    return Task("made", kind, tuple(LABELS) if named else (), metric, rows, dataclasses.replace(rows), **changes)


def model_of(encoder, kind="classification", door=None, mode="adapters", **head):
    model = load_backbone(encoder, head=kind if kind == "token-classification" else "classification", door=door, **head)
    add_adapters(model, CONFIG, seed=0)
    randomize(model, 1) if door is None else None
    return set_trainable(model, mode)


CASES = {
    ("classification", "permuted", None): (dict(labels=OTHER), BOTH),
    ("classification", "three", None): (dict(num_labels=3), r"\['bad', 'good'\].*3 outputs"),
    ("classification", "one", None): (dict(num_labels=1), r"\['bad', 'good'\].*1 output without"),
    ("classification", "permuted", "keras-hub"): (dict(labels=OTHER), BOTH),
    ("multi-label", "permuted", None): (dict(labels=OTHER), BOTH),
    ("token-classification", "permuted", None): (dict(labels=OTHER), BOTH),
    ("regression", "classes", None): (dict(labels=LABELS), r"1 output without names.*\['bad', 'good'\]"),
}


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.nightly if case[2] else ()) for case in CASES], ids=str
)
def test_a_task_of_other_labels_than_the_models_is_not_trained_nor_scored(case, encoder, wordpiece, tmp_path):
    head, message = CASES[case]
    kind, _, door = case
    model, task = model_of(encoder, kind, door, **head), task_of(kind)
    before = picture(model) if door is None else None
    is_refused(message, fit, model, task, wordpiece, tmp_path / "run", **SHORT)
    if before:
        assert_same(before, picture(model))
    assert not (tmp_path / "run").exists()
    of_model = None if kind == "token-classification" else kind
    with pytest.raises(InputError, match=message if kind != "regression" else "1 output"):
        evaluate(model, task.validation, tokenizer=wordpiece, kind=of_model)


def test_a_fit_names_the_labels_that_nothing_named_and_a_resume_compares_them(encoder, wordpiece, tmp_path):
    task, run = task_of(), tmp_path / "run"
    with pytest.raises(Killed):
        fit(model_of(encoder), task, wordpiece, run, **SHORT, reporter=KillAt(1))
    rows = {split: dataclasses.replace(getattr(task, split), label_names=()) for split in ("train", "validation")}
    fewer = dataclasses.replace(task.validation, label_names=()).take(np.arange(8))
    ranged = {split: dataclasses.replace(rows[split], value_range=(0.0, 1.0)) for split in rows}
    model = model_of(encoder)
    for changes, message in (
        (dict(labels=tuple(OTHER), **rows), r"label_names \(\['bad', 'good'\], now \['good', 'bad'\]\)"),
        (dict(metric="accuracy-f1"), "metric"),
        (dict(validation=fewer), "validation_data"),
        (ranged, "value_range"),
    ):
        with pytest.raises(InputError, match=f"another {message}"):
            fit(model, dataclasses.replace(task, **changes), wordpiece, run, **SHORT, resume=True)
    fit(model, task, wordpiece, run, **SHORT, resume=True)
    assert list(model.config.id2label.values()) == LABELS
    assert evaluate(run, task.validation) == evaluate(model, task.validation, tokenizer=wordpiece)
    permuted = dataclasses.replace(task, labels=tuple(OTHER), **rows).validation
    is_refused(r"rows.*\['good', 'bad'\].*\['bad', 'good'\]", evaluate, run, permuted)
    for wrong, message in ((rows_of("multi-label"), "multi-label"), (rows_of("regression"), "regression")):
        is_refused(f"rows are for {message}, and the model answers classification", evaluate, run, wrong)


def test_splits_of_one_task_have_one_order():
    task = task_of()
    is_refused(BOTH, dataclasses.replace, task, labels=tuple(OTHER))


def test_a_head_is_imported_and_loaded_with_its_label_names_or_not_at_all(encoder, wordpiece, tmp_path):
    exported = model_of(encoder, labels=OTHER)
    expected = predict(exported, ["a good film"], tokenizer=wordpiece)
    places = {import_adapter: export_adapter(exported, tmp_path / "hub")}
    places[load_adapter] = save_adapter(exported, tmp_path / "own")
    for take, directory in places.items():
        model = load_backbone(encoder, labels=LABELS)
        before = picture(model)
        is_refused(r"labels \['good', 'bad'\].*labels \['bad', 'good'\]", take, model, directory)
        assert_same(before, picture(model))
        take(model, directory, head=False)
        model = load_backbone(encoder)
        take(model, directory)
        assert predict(model, ["a good film"], tokenizer=wordpiece) == expected
    own = add_adapters(load_backbone(encoder), CONFIG, seed=0, labels=LABELS)
    is_refused(r"labels \['good', 'bad'\].*labels \['bad', 'good'\]", load_adapter, own, places[load_adapter])


def test_a_number_is_not_made_of_two_outputs(encoder, wordpiece, tmp_path):
    model, task = model_of(encoder, num_labels=2), {"kind": "regression"}
    for answer in (
        lambda: predict(model, ["a good film"], tokenizer=wordpiece, kind="regression"),
        lambda: export_saved_model(model, tmp_path / "1", text=wordpiece, task=task),
        lambda: export_file(model, tmp_path / "model.tflite", format="litert", task=task),
    ):
        is_refused("regression.*1 output without names.*2 outputs without names", answer)


def test_names_that_transformers_gives_count_by_their_number():
    for names, known in ((["a", "b"], ["a", "b"]), (["a", "b"], 2), (["LABEL_0", "LABEL_1"], ["a", "b"])):
        check_label_names("One", names, "the other", known, "mend it")
        check_label_names("One", known, "the other", names, "mend it")
    for names, known in ((["LABEL_1", "LABEL_0"], 2), (["a", "b"], ["a", "B"]), (["a", "b"], 3), (1, 2)):
        for pair in ((names, known), (known, names)):
            with pytest.raises(InputError):
                check_label_names("One", pair[0], "the other", pair[1], "mend it")
