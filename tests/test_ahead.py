"""What fast blocks need for a shape is compiled before a step needs it."""

import contextlib
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import programs_compiled, tiny_inputs
from tests.families import family_model
from tests.test_fit import SETTINGS, new_model
from tf_adapters import AdapterConfig, LoraConfig, add_adapters, fit, set_trainable
from tf_adapters._keras import keras
from tf_adapters.kinds import get_kind
from tf_adapters.models.transformers.family import get_family
from tf_adapters.training import trained
from tf_adapters.training.parts import compiling_ahead
from tf_adapters.training.step import PartsAtOnce, TrainingStep, seed_dropout


@pytest.mark.parametrize(
    "family, head, config, rows",
    [
        ("bert", "classification", AdapterConfig(4, blocks=[1], dropout=0.1), 26),
        pytest.param("roberta", "token-classification", LoraConfig(2), 28, marks=pytest.mark.nightly),
        pytest.param("bert", "classification", AdapterConfig(4), 30, marks=pytest.mark.nightly),
    ],
)
def test_a_step_compiles_nothing_for_a_shape_that_was_rehearsed(family, head, config, rows):
    kind, model = get_kind(head), family_model(family, head)
    set_trainable(add_adapters(model, config, seed=0, fast=True))
    dropouts = seed_dropout(model, 0)
    at_once = PartsAtOnce(2, kind.loss_weight, dropouts)
    step = TrainingStep(model, [at_once])
    step.compile(keras.optimizers.SGD(0.0), **kind.losses())
    # Of numbers of rows that no other test has: a program is compiled once in a process.
    inputs = get_family(family).inputs(tiny_inputs(rows))
    before = [dropout.generator.state.numpy() for dropout in dropouts]
    targets = np.zeros(rows if head == "classification" else (rows, 10), np.int32)
    rehearse = at_once.rehearsal(model)
    assert programs_compiled(lambda: rehearse(tf.constant(rows // 2), tf.constant(10))) > 0
    assert np.array_equal(before, [dropout.generator.state.numpy() for dropout in dropouts])
    batches = tf.data.Dataset.from_tensors((inputs, kind.targets(tf.constant(targets))))
    assert programs_compiled(lambda: step.fit(batches, verbose=0)) == 0
    assert not np.array_equal(before, [dropout.generator.state.numpy() for dropout in dropouts])


def test_shapes_of_parts_are_rehearsed_once_each_until_the_context_ends():
    seen, ended = [], threading.Event()

    def batches():
        for shape in ((7, 3), (7, 3), (2, 4), (4, 2, 5)):
            yield {"input_ids": tf.zeros(shape, tf.int32)}, None
        ended.set()

    with compiling_ahead(lambda *shape: seen.append(tuple(map(int, shape))), batches(), 3):
        assert ended.wait(60)
    # Rows of several choices are rows of the encoder; a part without a row is given one.
    assert seen == [(2, 3), (3, 3), (1, 4), (2, 5), (4, 5)]

    def fails(*shape):
        ended.set()
        raise ValueError(shape)

    ended.clear()
    many = (({"input_ids": tf.zeros([1, length], tf.int32)}, None) for length in range(1, 900))
    with compiling_ahead(fails, many, 1):
        assert ended.wait(60)
    ended.clear()
    with compiling_ahead(lambda *shape: ended.set() or time.sleep(0.1), many, 1):
        assert ended.wait(60)
    assert next(many)[0]["input_ids"].shape[1] < 100


@pytest.mark.parametrize("fast", [True, False])
def test_a_run_of_fast_blocks_compiles_ahead_for_its_own_batches(
    fast, one_block, task, wordpiece, tmp_path, monkeypatch
):
    monkeypatch.setattr("tf_adapters.training.parts.AT_ONCE", 2)
    looked_at, trained_on = [], []

    @contextlib.contextmanager
    def recorded(rehearse, batches, parts):
        assert parts == 2 and len(rehearse(tf.constant(2), tf.constant(3)))
        looked_at.extend(inputs["input_ids"].shape for inputs, _ in batches)
        yield

    class Recorded(PartsAtOnce):
        def gradients(self, step, compute, inputs, *others):
            tf.py_function(lambda ids: trained_on.append(ids.shape), [inputs["input_ids"]], [])
            return super().gradients(step, compute, inputs, *others)

    monkeypatch.setattr(trained, "compiling_ahead", recorded)
    monkeypatch.setattr("tf_adapters.training.step.PartsAtOnce", Recorded)
    fit(new_model(one_block, fast=fast), task, wordpiece, output=tmp_path / "a", **{**SETTINGS, "epochs": 1})
    assert len(trained_on) == 10
    assert looked_at == (trained_on if fast else [])
