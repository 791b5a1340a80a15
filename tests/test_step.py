"""The changes of a training step, together."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import randomize, tiny_inputs, tiny_model
from tf_adapters import AdapterConfig, add_adapters, set_trainable
from tf_adapters._keras import keras
from tf_adapters.kinds import get_kind
from tf_adapters.training.step import Change, GradientAccumulation, GradientCheckpointing, Mixout, TrainingStep

ROWS = 7
KIND = get_kind("classification")
MAKE = {"checkpointing": GradientCheckpointing, "accumulation": lambda model: GradientAccumulation(3, KIND.loss_weight)}


def stepped(changes, mixout=False):
    """What one step of plain gradient descent changes, by names."""
    model = tiny_model(num_labels=2, num_hidden_layers=1, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    set_trainable(randomize(add_adapters(model, AdapterConfig(4, train_layer_norm="none"), seed=0)))
    made = [Mixout(model, 0.5, seed=0)] if mixout else []
    step = TrainingStep(model, [*made, *(MAKE[name](model) for name in changes)])
    before = {variable.name: variable.numpy() for variable in model.trainable_variables}
    step.compile(keras.optimizers.SGD(0.5), **KIND.losses())
    data = tf.data.Dataset.from_tensors((tiny_inputs(ROWS), tf.constant([0, 1, 1, 0, 1, 1, 1])))
    history = step.fit(data, verbose=0).history
    # Keras numbers the models.
    changed = {
        name.partition("/")[2]: variable.numpy() - value
        for (name, value), variable in zip(before.items(), model.trainable_variables)
    }
    return changed, history["loss_mean"][0]


@pytest.fixture(scope="module")
def plain():
    return stepped([])


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [("accumulation", "checkpointing"), pytest.param(("checkpointing", "accumulation"), marks=pytest.mark.nightly)],
)
def test_changes_together_give_the_plain_step(changes, plain):
    found, loss = stepped(changes)
    assert loss == pytest.approx(plain[1], rel=1e-5)
    for name, change in plain[0].items():
        assert np.abs(change).max() > 1e-5
        np.testing.assert_allclose(found[name], change, atol=2e-6, err_msg=name)


def test_mixout_at_its_beginning_changes_no_loss_beside_the_others(plain):
    """An entry that is as it began is mixed with itself."""
    assert stepped(["accumulation"], mixout=True)[1] == pytest.approx(plain[1], rel=1e-5)


def test_a_change_of_ones_own_has_every_moment_of_the_step():
    seen = []

    class Doubled(Change):
        @contextlib.contextmanager
        def computing(self, training):
            seen.append(training)
            yield

        def gradients(self, step, compute, inputs, targets, share):
            return [2 * gradient for gradient in compute(inputs, targets, share)]

    MAKE["doubled"] = lambda model: Doubled()
    (once, _), (twice, _) = stepped([]), stepped(["doubled"])
    assert seen and all(seen)
    for name, change in once.items():
        np.testing.assert_allclose(twice[name], 2 * change, atol=1e-6)
