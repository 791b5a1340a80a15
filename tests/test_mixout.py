"""Mixout: its arithmetic, and what it leaves alone; that a run with it resumes is in tests/test_dropout.py."""

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import is_refused, tiny_inputs, tiny_model
from tf_adapters import AdapterConfig, add_adapters, set_trainable
from tf_adapters.models.state import state_of
from tf_adapters.training import step as step_module
from tf_adapters.training.step import Mixout, TrainingStep

INPUTS = tiny_inputs()


def trained(mode, shift=0.1, fast=False):
    """A model, its Mixout, and the model with every weight that trains moved away from the beginning."""
    model = tiny_model(num_hidden_layers=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    if mode == "adapters":
        add_adapters(model, AdapterConfig(4, init_stddev=0.3), seed=0, fast=fast)
    set_trainable(model, mode)
    mixout = Mixout(model, 0.75, seed=1)
    begun = {id(variable): variable.numpy() for variable in model.trainable_variables}
    for variable in model.trainable_variables:
        variable.assign_add(tf.fill(variable.shape, shift))
    return model, mixout, begun


@pytest.mark.parametrize("mode, fast", [("full", False), ("adapters", True)])
def test_an_entry_is_that_of_the_beginning_or_four_times_as_far_from_it(mode, fast, monkeypatch):
    model, mixout, begun = trained(mode, fast=fast)
    head = {id(variable) for variable in state_of(model).head_variables(model)}
    matrices = [
        variable for variable in model.trainable_variables
        if variable.shape.rank == 2 and id(variable) not in head and "embeddings" not in variable.name
    ]  # fmt: skip
    assert len(mixout.dropouts) == len(matrices) > 5
    differences, replaced = [], step_module.replaced

    def record(changes):
        for layer, attribute, value in changes:
            differences.append((value - begun[id(vars(layer)[attribute])]).numpy().ravel())
        return replaced(changes)

    monkeypatch.setattr(step_module, "replaced", record)
    TrainingStep(model, [mixout])(INPUTS, training=True)
    assert len(differences) == len(matrices)
    differences = np.concatenate(differences)
    # 0.1 / (1 - 0.75) with the probability 1/4.
    assert np.all(np.isclose(differences, 0, atol=1e-5) | np.isclose(differences, 0.4, atol=1e-5))
    assert 0.2 < np.mean(differences > 0.2) < 0.3


def test_inference_and_an_unmoved_model_are_as_without():
    model, mixout, _ = trained("full")
    np.testing.assert_array_equal(TrainingStep(model, [mixout])(INPUTS, training=False), model(INPUTS).logits)
    model, mixout, _ = trained("full", shift=0.0)
    values = [variable.numpy() for variable in model.weights]
    np.testing.assert_allclose(TrainingStep(model, [mixout])(INPUTS, training=True), model(INPUTS).logits, atol=1e-6)
    assert all(np.array_equal(variable, value) for variable, value in zip(model.weights, values))


def test_masks_are_float32_under_mixed_precision(monkeypatch, float32_policy):
    float32_policy("mixed_bfloat16")
    model, mixout, _ = trained("adapters", shift=1e-4, fast=True)
    drawn, real = [], type(mixout.dropouts[0]).call

    def call(self, moved, training=None):
        drawn.append((moved, real(self, moved, training)))
        return drawn[-1][1]

    monkeypatch.setattr(type(mixout.dropouts[0]), "call", call)
    outputs = TrainingStep(model, [mixout])(INPUTS, training=True)
    assert outputs.dtype == tf.float32 and np.all(np.isfinite(outputs))
    mixed = [(moved, kept) for moved, kept in drawn if moved.shape.rank == 2]
    assert len(mixed) == len(mixout.dropouts)
    for moved, kept in mixed:
        assert moved.dtype == kept.dtype == tf.float32
        assert np.all(np.isclose(kept, 0) | np.isclose(kept, 4 * moved, rtol=1e-6))


def test_gradients_reach_the_weights_themselves():
    model, mixout, _ = trained("adapters")
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(TrainingStep(model, [mixout])(INPUTS, training=True) ** 2)
    gradients = tape.gradient(loss, model.trainable_variables)
    assert all(gradient is not None for gradient in gradients)
    kernel = next(index for index, variable in enumerate(model.trainable_variables) if "down/kernel" in variable.name)
    # Where the mask is 0 the weight itself had no part.
    assert 0.6 < np.mean(gradients[kernel].numpy() == 0) < 0.9


def test_what_cannot_be_mixed_is_named():
    model = set_trainable(tiny_model(), "head")
    is_refused("mixout=0.9: no matrix of the encoder or of adapters trains", Mixout, model, 0.9, seed=0)
    is_refused("mixout=1.0 must be a number of at least 0 and below 1", Mixout, model, 1.0, seed=0)
