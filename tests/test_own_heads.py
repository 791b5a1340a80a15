"""Adapters whose heads have other numbers of labels, or are of another kind, on one model."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from tests.cases import nightly_but
from tests.conftest import is_refused, randomize, tiny_inputs
from tests.conftest import tiny_model as deep_model
from tests.families import family_model
from tests.interrupts import check_interruptions
from tf_adapters import (
    AdapterConfig,
    LoraConfig,
    add_adapters,
    disable_adapters,
    load_adapter,
    load_backbone,
    merge_adapter,
    predict,
    remove_adapters,
    save_adapter,
    set_active,
    set_trainable,
)
from tf_adapters.models.state import state_of

SMALL = AdapterConfig(4, init_stddev=0.3)
HEADS = {
    "two": {},
    "three": {"labels": ["bad", "fair", "good"]},
    "words": {"head": "token-classification", "num_labels": 5},
    "spans": {"head": "question-answering"},
    "choices": {"head": "multiple-choice", "num_labels": 1},
}
#: What a head computes does not depend on the depth.
tiny_model = functools.partial(deep_model, num_hidden_layers=1)
KINDS = {name: arguments.get("head", "classification") for name, arguments in HEADS.items()}


def inputs_for(name):
    inputs = tiny_inputs()
    if name == "choices":
        inputs = {key: tf.stack([value, value[::-1]], 1) for key, value in inputs.items()}
    return {key: value for key, value in inputs.items() if key != "token_type_ids"}


def computed(model, name):
    """The active head's numbers, `(values, ...)`, for the inputs that it takes."""
    outputs = model(inputs_for(name))
    found = [outputs[key] for key in ("logits", "start_logits", "end_logits") if key in outputs]
    return np.stack([value.numpy() for value in found])


def with_heads(model, names=HEADS, config=SMALL):
    """A model with an adapter of each name, none of whose biases is zero, and what each computes."""
    expected = {}
    for number, name in enumerate(names):
        add_adapters(model, config, name=name, seed=number, **HEADS[name])
        randomize(model, number)
        expected[name] = computed(model, name)
    return model, expected


@pytest.fixture(scope="module")
def several():
    return with_heads(tiny_model())


def test_each_adapter_has_its_head_in_any_order_of_switching(several):
    model, expected = several
    for name in [*HEADS, *reversed(HEADS), "three", "words", "three"]:
        set_active(model, name)
        np.testing.assert_array_equal(computed(model, name), expected[name])
        assert model.config.num_labels == model.num_labels == len(model.config.id2label)
        assert state_of(model).family.head_of(model) == KINDS[name]
    set_active(model, "three")
    assert list(model.config.id2label.values()) == ["bad", "fair", "good"] and model.config.label2id["good"] == 2
    assert [expected[name].shape for name in HEADS] == [(1, 3, 2), (1, 3, 3), (1, 3, 10, 5), (2, 3, 10), (1, 3, 2)]
    assert len(state_of(model).heads) == len(HEADS)


@pytest.mark.slow
def test_fast_blocks_compute_every_token_for_a_head_that_reads_them():
    model = add_adapters(tiny_model(), SMALL, name="first", seed=0, fast=True)
    plain = add_adapters(tiny_model(), SMALL, name="first", seed=0)
    for name in ("three", "words", "spans", "three"):
        for each in (model, plain):
            if name not in state_of(each).adapters:
                add_adapters(each, SMALL, name=name, seed=1, **HEADS[name])
                randomize(each, 1)
            set_active(each, name)
        np.testing.assert_allclose(computed(model, name), computed(plain, name), atol=1e-5)


@pytest.mark.slow
def test_texts_are_answered_under_the_labels_of_the_adapter_that_acts(checkpoint):
    model = load_backbone(checkpoint)
    add_adapters(model, SMALL, name="film", seed=0, labels=["bad", "fair", "good"])
    randomize(model)
    add_adapters(model, SMALL, name="tags", seed=1, head="token-classification", labels=["O", "B-FILM"])
    randomize(model, 1)
    (words,) = predict(model, [["a", "good", "film"]])
    assert len(words["labels"]) == 3 and set(words["labels"]) <= {"O", "B-FILM"}
    set_active(model, "film")
    (answer,) = predict(model, ["a good film"])
    assert answer["label"] in ("bad", "fair", "good") and list(answer["probabilities"]) == ["bad", "fair", "good"]


@pytest.mark.parametrize(
    "family", nightly_but(["bert"], ["bert", "albert", "deberta-v2", "distilbert", "electra", "mpnet", "roberta"])
)
def test_a_saved_adapter_of_each_head_is_what_a_model_of_its_own_computes(family, tmp_path):
    model, expected = with_heads(family_model(family), ("two", "three", "words", "spans"))
    together = family_model(family)
    encoder = {variable.name.partition("/")[2]: variable for variable in together.weights}
    for name in expected:
        set_active(model, name)
        save_adapter(set_trainable(model, "adapters"), tmp_path / name)
        alone = family_model(family, KINDS[name], num_labels={"three": 3, "words": 5}.get(name, 2))
        for variable in alone.weights:
            same = encoder.get(variable.name.partition("/")[2], variable)
            variable.assign(same if same.shape == variable.shape else variable)
        load_adapter(alone, tmp_path / name)
        np.testing.assert_allclose(computed(alone, name), expected[name], atol=1e-6)
    for name in reversed(expected):
        load_adapter(together, tmp_path / name, name=name)
    for name in expected:
        set_active(together, name)
        np.testing.assert_array_equal(computed(together, name), expected[name])


def test_a_graph_follows_heads_of_its_shape_and_is_nan_under_others():
    model, expected = with_heads(tiny_model(), ("two", "three"))
    add_adapters(model, SMALL, name="again", seed=9, num_labels=3)
    randomize(model, 9)
    expected["again"] = computed(model, "again")
    traced = tf.function(lambda inputs: model(inputs).logits)
    inputs = inputs_for("three")
    for name in ("again", "three", "again"):
        set_active(model, name)
        np.testing.assert_allclose(traced(inputs), expected[name][0], atol=1e-6)
    assert traced.experimental_get_tracing_count() == 1
    with disable_adapters(model):
        head = model.classifier(model.bert(inputs).pooler_output)
        np.testing.assert_allclose(traced(inputs), head, atol=1e-6)
    set_active(model, "two")
    assert np.isnan(traced(inputs)).all() and not np.isnan(computed(model, "two")).any()
    with disable_adapters(model):
        assert np.isnan(traced(inputs)).all()
    remove_adapters(model)
    assert np.isnan(traced(inputs)).all()


OPERATIONS = {
    "add": lambda model: add_adapters(model, SMALL, name="new", seed=5, head="token-classification", num_labels=4),
    "another kind": lambda model: set_active(model, "spans"),
    "remove all": remove_adapters,
}


@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_is_interrupted_anywhere_leaves_the_model_as_it_was(operation):
    model, _ = with_heads(tiny_model(), ("two", "three", "spans", "words"))
    set_trainable(model, "adapters")
    check_interruptions(model, lambda: OPERATIONS[operation](model), 17)


def test_the_last_adapter_takes_its_head_along():
    model = tiny_model()
    plain, before = computed(model, "two"), (type(model), model.classifier, [v.name for v in model.weights])
    _, expected = with_heads(model, ("three", "spans"))
    remove_adapters(model, name="spans")
    np.testing.assert_array_equal(computed(model, "three"), expected["three"])
    remove_adapters(model)
    np.testing.assert_array_equal(computed(model, "two"), plain)
    assert (type(model), model.classifier, [v.name for v in model.weights]) == before and model.num_labels == 2
    assert model.config.id2label == {0: "LABEL_0", 1: "LABEL_1"}
    add_adapters(model, SMALL, name="later", seed=1)
    assert computed(model, "two").shape == plain.shape and not np.isnan(computed(model, "two")).any()


def test_an_adapter_is_merged_with_its_head():
    model, expected = with_heads(tiny_model(), ("words",), LoraConfig(rank=2))
    labels, inputs = dict(model.config.id2label), inputs_for("words")
    merge_adapter(model)
    np.testing.assert_allclose(computed(model, "words"), expected["words"], atol=1e-5)
    assert model.config.id2label == labels and not state_of(model).adapters
    model.config.id2label = labels = dict(enumerate("abcde"))
    traced = tf.function(lambda: model(inputs).logits)
    add_adapters(model, LoraConfig(rank=2), name="next", seed=3, head="token-classification")
    np.testing.assert_allclose(computed(model, "words"), expected["words"], atol=1e-5)
    assert not np.isnan(traced()).any() and model.config.id2label == labels


def test_new_heads_follow_from_the_seed():
    kernels = []
    for seed in (1, 1, 2):
        kernels.append(add_adapters(tiny_model(seed=seed), SMALL, seed=seed, num_labels=3).classifier.kernel.numpy())
    np.testing.assert_array_equal(kernels[0], kernels[1])
    assert not np.array_equal(kernels[0], kernels[2]) and 0.01 < kernels[0].std() < 0.03


def test_a_head_that_waits_or_came_later_does_not_train_before_it_is_chosen():
    model, _ = with_heads(tiny_model(), ("three", "two"))
    assert model.classifier.trainable
    set_trainable(model, "adapters")
    chosen = {id(variable) for variable in model.trainable_variables}
    set_active(model, "three")
    assert not any(layer.trainable for layer in state_of(model).head.layers.values())
    set_active(model, "two")
    add_adapters(model, SMALL, name="later", seed=1, num_labels=4)
    assert not model.classifier.trainable and {id(v) for v in model.trainable_variables} < chosen
    set_trainable(model, "adapters")
    assert model.classifier.trainable


def test_heads_that_cannot_stand_there_are_named_and_nothing_changes():
    for head, arguments, message in (
        ("classification", {"head": "masked-lm"}, "an adapter may bring one of classification"),
        ("classification", {"num_labels": 10**12}, "num_labels=1000000000000 must be .*at most 1,048,576"),
        ("classification", {"head": "token-classification", "head_layers": 2}, "2 for head='classification'"),
        ("token-classification", {"head": "classification"}, "was loaded without it: load the encoder with head="),
    ):
        model = tiny_model(head)
        before = type(model), [variable.name for variable in model.weights]
        is_refused(message, add_adapters, model, SMALL, seed=0, **arguments)
        assert (type(model), [variable.name for variable in model.weights]) == before and not state_of(model).adapters
