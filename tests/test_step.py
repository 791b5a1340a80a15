"""The changes of a training step, by themselves and together."""

import contextlib
import functools

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import randomize, tiny_inputs, tiny_model
from tests.families import family_inputs, family_model
from tf_adapters import AdapterConfig, add_adapters, set_trainable
from tf_adapters._keras import keras
from tf_adapters.kinds import get_kind
from tf_adapters.kinds.masked_lm import MaskedLanguageModelling
from tf_adapters.layers.dropout import SeededDropout
from tf_adapters.methods import FusionConfig
from tf_adapters.training.settings import TrainingSettings
from tf_adapters.training.step import (
    Change,
    GradientAccumulation,
    GradientCheckpointing,
    Mixout,
    PartsAtOnce,
    Trained,
    TrainingStep,
    seed_dropout,
)
from tf_adapters.training.strategies import Alone

ROWS = 7
INPUTS, LABELS = tiny_inputs(ROWS), np.array([0, 1, 1, 0, 1, 1, 1])
WORDS = np.where(np.arange(10) < np.array([[9], [1], [3], [10], [2], [5], [4]]), 1, -1)
SPANS = np.array([[number, number + 1, 10] for number in range(ROWS)])
CONFIG = AdapterConfig(4, train_layer_norm="none")
# The values begin at the identity, where the regularisation has no gradient: `randomize` takes them elsewhere.
FUSION = FusionConfig({name: AdapterConfig(4) for name in ("one", "other")}, value_regularization=0.1)


def accumulation(model, parts=3, kind="classification"):
    return GradientAccumulation(parts, get_kind(kind).loss_weight)


def stepped(*makers, kind="classification", targets=LABELS, config=CONFIG, fast=False):
    """What one step of plain gradient descent changes in the weights that train, by their names, the running loss, and
    Keras' own; each maker gives a `Change` of the model."""
    kind = get_kind(kind)
    model = tiny_model(kind.head, num_hidden_layers=1, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    set_trainable(randomize(add_adapters(model, config, seed=0, fast=fast)))
    before = [variable.numpy() for variable in model.trainable_variables]
    step = TrainingStep(model, [make(model) for make in makers]) if makers else model
    step.compile(keras.optimizers.SGD(0.5), **kind.losses())
    batch = (INPUTS, kind.targets(tf.constant(targets, tf.int32)))
    logs = step.fit(tf.data.Dataset.from_tensors(batch), verbose=0).history
    changed = {
        # Keras numbers the models.
        variable.name.partition("/")[2]: variable.numpy() - value
        for value, variable in zip(before, model.trainable_variables)
    }
    return changed, kind.running_loss({name: values[0] for name, values in logs.items()}), logs["loss"][0]


def at_once(model, parts=3, kind="classification"):
    return PartsAtOnce(parts, get_kind(kind).loss_weight, seed_dropout(model, 0))


def assert_same_step(found, expected, atol=2e-6):
    assert found[0].keys() == expected[0].keys() and any(np.abs(one).max() > 1e-3 for one in expected[0].values())
    for name, change in expected[0].items():
        np.testing.assert_allclose(found[0][name], change, atol=atol, err_msg=name)
    assert found[1] == pytest.approx(expected[1], rel=1e-5)


@pytest.fixture(scope="module")
def plain():
    return stepped()


@pytest.mark.parametrize(
    "makers",
    [
        (accumulation, GradientCheckpointing),
        (functools.partial(at_once, parts=ROWS + 2),),
        pytest.param((GradientCheckpointing, accumulation), marks=pytest.mark.nightly),
    ],
)
def test_a_whole_step_in_parts_and_with_checkpoints_is_the_plain_one(makers, plain):
    found = stepped(*makers)
    assert_same_step(found, plain)
    assert found[2] == pytest.approx(plain[2], rel=1e-5)


@pytest.mark.nightly
@pytest.mark.parametrize("way", [accumulation, at_once])
@pytest.mark.parametrize("parts", [3, 20])
@pytest.mark.parametrize("kind, targets", [("token-classification", WORDS), ("question-answering", SPANS)])
def test_a_step_in_parts_is_that_of_the_whole_batch_where_rows_have_unequally_many_words(kind, targets, parts, way):
    task = dict(kind=kind, targets=targets)
    assert_same_step(stepped(lambda model: way(model, parts, kind), **task), stepped(**task))


def test_parts_at_once_have_dropout_masks_of_their_own_and_the_same_ones_again():
    dropout, batch = SeededDropout(0.5, seed=3), tf.ones([6, 64])

    class Twice:
        """A step whose outputs are the masks of a layer that is called twice."""

        def differentiate(self, inputs, targets, share, counts):
            return [], tf.concat([dropout(inputs, training=True) for _ in range(2)], 1)

        def count(self, targets, outputs):
            self.masks = tf.reshape(outputs, [-1, 64]).numpy()

    before, found = dropout.generator.state.numpy(), []
    for _ in range(2):
        dropout.generator.reset(before)
        PartsAtOnce(3, get_kind("classification").loss_weight, [dropout]).gradients(
            step := Twice(), None, batch, batch, None
        )
        found.append(step.masks)
    assert len(np.unique(found[0], axis=0)) == 12 and (found[0] == found[1]).all()


@pytest.mark.parametrize(
    "expected, fields, others",
    [
        ([PartsAtOnce], {}, {}),
        ([GradientAccumulation], {"accumulate": 2}, {}),
        ([GradientCheckpointing], {"checkpoint_gradients": True}, {}),
        ([Mixout], {"mixout": 0.9, "dropout": 0.0}, {}),
        ([], {"jit_compile": True}, {}),
        ([], {}, {"mode": "full"}),
        ([], {}, {"random_drop": 1}),
        ([], {}, {"kind": MaskedLanguageModelling()}),
        ([], {}, {"workers": type("Several", (Alone,), {})()}),
    ],
)
def test_a_run_computes_parts_at_once_unless_something_stands_against_it(expected, fields, others, monkeypatch):
    monkeypatch.setattr("tf_adapters.training.parts.AT_ONCE", 2)
    kind = others.get("kind", get_kind("classification"))
    model = add_adapters(tiny_model(kind.head), AdapterConfig(4, random_drop=others.get("random_drop", 0)), seed=0)
    set_trainable(model, others.get("mode", "adapters"))
    settings = TrainingSettings(epochs=1, learning_rate=1e-3, **fields)
    trained = Trained(model, kind, None, None, settings, others.get("workers", Alone()))
    assert [type(change) for change in trained.keras_model.changes] == expected


def test_a_change_of_ones_own_has_every_moment_of_the_step(plain):
    seen = []

    class Doubled(Change):
        @contextlib.contextmanager
        def computing(self, training):
            seen.append(training)
            yield

        def gradients(self, step, compute, inputs, targets, share):
            return [2 * gradient for gradient in compute(inputs, targets, share)]

    found = stepped(lambda model: Doubled())
    assert seen and all(seen)
    assert_same_step(found, ({name: 2 * change for name, change in plain[0].items()}, plain[1]))


def test_the_regularisation_of_weights_counts_once_for_all_parts():
    whole = stepped(config=FUSION)
    for way in (accumulation, at_once):
        in_parts = stepped(way, config=FUSION)
        for name, change in whole[0].items():
            np.testing.assert_allclose(in_parts[0][name], change, atol=2e-6, err_msg=name)


@pytest.mark.slow
def test_a_weight_that_nothing_reads_stays_as_it_is_and_does_not_decay():
    """In transformers ALBERT's head of masked words has a bias that it does not add."""
    kind, inputs = MaskedLanguageModelling(), family_inputs("albert")
    targets = tf.where(inputs["attention_mask"] > 0, inputs["input_ids"], -1)
    changes = []
    for parts in (1, 3):
        model = set_trainable(family_model("albert", "masked-lm", num_hidden_layers=1), "head")
        before = [variable.numpy() for variable in model.trainable_variables]
        trained = kind.trained(model, jit_compile=False)
        trained = trained if parts == 1 else TrainingStep(trained, [GradientAccumulation(parts, kind.loss_weight)])
        trained.compile(keras.optimizers.SGD(0.5, weight_decay=0.1), **kind.losses())
        trained.fit(tf.data.Dataset.from_tensors(({**inputs, "targets": targets}, targets)), verbose=0)
        changes.append([variable.numpy() - old for variable, old in zip(model.trainable_variables, before)])
    unread = [variable.name.endswith("predictions/bias:0") for variable in model.trainable_variables]
    assert sum(unread) == 1
    for is_unread, one, other in zip(unread, *changes):
        assert np.any(one) != is_unread and np.any(other) != is_unread
        np.testing.assert_allclose(other, one, atol=2e-6)


@pytest.mark.nightly
def test_the_graph_holds_one_part():
    model = tiny_model()
    set_trainable(add_adapters(model, AdapterConfig(4), seed=0))
    counts = []
    for parts in (2, 7):
        trained = TrainingStep(model, [accumulation(model, parts)])
        trained.compile(keras.optimizers.SGD(0.5), **get_kind("classification").losses())
        step = tf.function(lambda trained=trained: trained.train_step((INPUTS, tf.constant(LABELS))))
        library = step.get_concrete_function().graph.as_graph_def().library
        counts.append(sum(len(each.node_def) for each in library.function))
    assert counts[0] == counts[1]
