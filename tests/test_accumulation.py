"""A step in parts is the step of the whole batch."""

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import randomize, tiny_inputs, tiny_model
from tests.families import family_inputs, family_model
from tf_adapters import AdapterConfig, FusionConfig, add_adapters, set_trainable
from tf_adapters._keras import keras
from tf_adapters.kinds import get_kind
from tf_adapters.kinds.masked_lm import MaskedLanguageModelling
from tf_adapters.training.step import GradientAccumulation, TrainingStep

ROWS = 7
INPUTS = tiny_inputs(ROWS)


# The values begin at the identity, where the regularisation has no gradient: `randomize` takes them elsewhere.
FUSION = FusionConfig({name: AdapterConfig(4) for name in ("one", "other")}, value_regularization=0.1)


def stepped(parts, kind, head, targets, fast=False, config=AdapterConfig(4)):
    """What one step of plain gradient descent changes in the weights that train, and the running loss."""
    kind = get_kind(kind)
    model = tiny_model(head, num_labels=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    set_trainable(randomize(add_adapters(model, config, seed=0, fast=fast)))
    before = [variable.numpy() for variable in model.trainable_variables]
    trained = model if parts == 1 else TrainingStep(model, [GradientAccumulation(parts, kind.loss_weight)])
    trained.compile(keras.optimizers.SGD(0.5), **kind.losses())
    logs = trained.fit(tf.data.Dataset.from_tensors((INPUTS, kind.targets(targets))), verbose=0).history
    changes = [variable.numpy() - old for variable, old in zip(model.trainable_variables, before)]
    return changes, kind.running_loss({name: values[0] for name, values in logs.items()})


WORDS = np.where(np.arange(10) < np.array([[9], [1], [3], [10], [2], [5], [4]]), 1, -1)
SPANS = np.array([[number, number + 1, 10] for number in range(ROWS)])


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind, head, targets",
    [
        ("classification", "classification", np.array([0, 1, 1, 0, 1, 1, 1])),
        # Rows with unequally many words: the mean is over words.
        pytest.param("token-classification", "token-classification", WORDS, marks=pytest.mark.nightly),
        pytest.param("question-answering", "question-answering", SPANS, marks=pytest.mark.nightly),
    ],
)
@pytest.mark.parametrize("parts", [3, pytest.param(20, marks=pytest.mark.nightly)])
def test_a_step_in_parts_is_that_of_the_whole_batch(kind, head, targets, parts):
    targets = tf.constant(targets, tf.int32)
    whole, in_parts = stepped(1, kind, head, targets), stepped(parts, kind, head, targets)
    assert any(np.abs(one).max() > 1e-3 for one in whole[0])
    for one, other in zip(whole[0], in_parts[0]):
        np.testing.assert_allclose(one, other, atol=2e-6)
    np.testing.assert_allclose(whole[1], in_parts[1], rtol=1e-5)


@pytest.mark.slow
def test_the_regularisation_of_weights_counts_once_for_all_parts():
    targets = tf.constant([0, 1, 1, 0, 1, 1, 1])
    whole, in_parts = (
        stepped(parts, "classification", "classification", targets, config=FUSION)[0] for parts in (1, 3)
    )
    for one, other in zip(whole, in_parts):
        np.testing.assert_allclose(one, other, atol=2e-6)


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
def test_fast_blocks_and_float16_with_its_scaled_loss_do_it_too(float32_policy):
    targets = tf.constant([0, 1, 1, 0, 1, 1, 1])
    whole, in_parts = (stepped(parts, "classification", "classification", targets, fast=True)[0] for parts in (1, 4))
    for one, other in zip(whole, in_parts):
        np.testing.assert_allclose(one, other, atol=2e-6)
    float32_policy("mixed_float16")
    for one, other in zip(whole, stepped(4, "classification", "classification", targets)[0]):
        np.testing.assert_allclose(one, other, atol=5e-3)


@pytest.mark.nightly
def test_the_graph_holds_one_part():
    model = tiny_model()
    set_trainable(add_adapters(model, AdapterConfig(4), seed=0))
    targets = tf.constant([0, 1, 1, 0, 1, 1, 1])
    counts = []
    for parts in (2, 7):
        trained = TrainingStep(model, [GradientAccumulation(parts, get_kind("classification").loss_weight)])
        trained.compile(keras.optimizers.SGD(0.5), **get_kind("classification").losses())
        function = tf.function(lambda trained=trained: trained.train_step((INPUTS, targets))).get_concrete_function()
        counts.append(sum(len(each.node_def) for each in function.graph.as_graph_def().library.function))
    assert counts[0] == counts[1]
