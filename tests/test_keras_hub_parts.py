"""The second door on TensorFlow: a step in parts at once, and batches that are scored at once."""

import threading

import numpy as np
import pytest
import tensorflow as tf

from tests.cases import nightly_but
from tests.conftest import programs_compiled, randomize, tiny_inputs
from tests.keras_hub_models import BACKEND, array, checkpoint, keras
from tf_adapters import AdapterConfig, TrainingSettings, add_adapters, load_backbone, set_trainable
from tf_adapters.kinds import get_kind
from tf_adapters.kinds.kind import Scorer
from tf_adapters.kinds.masked_lm import MaskedLanguageModelling
from tf_adapters.layers.ops import keras3
from tf_adapters.methods import FusionConfig
from tf_adapters.models.keras_hub.door import Called, forward
from tf_adapters.models.state import state_of
from tf_adapters.text.tokenizer import load_tokenizer
from tf_adapters.training.step_keras3 import PartsAtOnce, Trained, TrainingStep, _seed_dropout
from tf_adapters.training.strategies import Alone

pytestmark = [
    pytest.mark.skipif(BACKEND != "tensorflow", reason="is of TensorFlow"),
    pytest.mark.filterwarnings("ignore:`shuffle=True` was passed:UserWarning"),
]
ROWS = 7
FUSION = FusionConfig({name: AdapterConfig(4) for name in ("one", "other")}, value_regularization=0.1)
TARGETS = {
    "classification": np.array([0, 1, 1, 0, 1, 1, 1]),
    "token-classification": np.where(np.arange(10) < np.array([[9], [1], [3], [10], [2], [5], [4]]), 1, -1),
    "question-answering": np.array([[number, number + 1, 10] for number in range(ROWS)]),
}


def new_model(head="classification", config=AdapterConfig(4), mode="adapters", directory=None, **settings):
    directory = directory or checkpoint("bert")
    keras.utils.set_random_seed(0)
    model = add_adapters(load_backbone(directory, head=head, door="keras-hub"), config, seed=0, **settings)
    return randomize(set_trainable(model, mode))


def stepped(parts, kind="classification", **settings):
    """What one step of plain gradient descent changes in the weights that train, and what Keras says of it."""
    kind = get_kind(kind)
    model = new_model(kind.head, **settings)
    seeds = _seed_dropout(model, 0, 0.0)
    at_once = PartsAtOnce(parts, kind.loss_weight, seeds) if parts > 1 else None
    step, before = TrainingStep(Called(model), [], at_once), [array(each) for each in model.trainable_variables]
    step.compile(keras.optimizers.SGD(0.5), jit_compile=False, **kind.losses(ops=keras3))
    targets = kind.targets(tf.constant(TARGETS[kind.name], tf.int32))
    batch = (state_of(model).family.inputs(tiny_inputs(ROWS)), targets)
    logs = step.fit(tf.data.Dataset.from_tensors(batch), verbose=0).history
    changed = [array(variable) - value for value, variable in zip(before, model.trainable_variables)]
    return changed, {name: values[0] for name, values in logs.items()}


#: In how many parts, what trains, and how.
STEPS = {
    "sentences": (3, {}), "more parts than rows": (ROWS + 2, {}), "fast": (3, {"fast": True}),
    "fusion": (3, {"config": FUSION}), "words": (3, {"kind": "token-classification"}),
    "questions": (3, {"kind": "question-answering"}),
}  # fmt: skip


@pytest.mark.parametrize("case", nightly_but(["more parts than rows", "questions"], STEPS))
def test_a_step_in_parts_at_once_is_that_of_the_whole_batch(case):
    parts, settings = STEPS[case]
    whole, found = stepped(1, **settings), stepped(parts, **settings)
    assert max(np.abs(change).max() for change in whole[0]) > 1e-3
    for change, expected in zip(found[0], whole[0]):
        np.testing.assert_allclose(change, expected, atol=2e-6)
    assert len(whole[1]) == (5 if case == "questions" else 2)
    assert found[1] == pytest.approx(whole[1], rel=1e-5)


def test_parts_have_dropout_masks_of_their_own_and_each_step_has_others():
    model, texts = new_model(config=AdapterConfig(4, dropout=0.5)), np.ones((6, 10), np.int32)
    seeds, kind, outputs = _seed_dropout(model, 0, 0.5), get_kind("classification"), []
    step = TrainingStep(Called(model), [], PartsAtOnce(3, kind.loss_weight, seeds))
    step.compile(keras.optimizers.SGD(0.0), jit_compile=False, **kind.losses(ops=keras3))
    step.compute_metrics = lambda inputs, targets, logits: outputs.append(logits) or {}
    batch = {name: tf.constant(texts * (name != "segment_ids")) for name in model.input}
    begun = [array(one.state) for one in seeds]
    for again in (False, False, True):
        for one, state in zip(seeds, begun if again else ()):
            one.state.assign(state)
        step.train_step((batch, tf.zeros(6, tf.int32)))
    first, second, repeated = map(array, outputs)
    assert len(np.unique(first[::2], axis=0)) == 3  # the same text in each part
    assert not np.isclose(first, second).any() and np.array_equal(first, repeated)


def test_a_step_compiles_nothing_for_a_shape_that_was_rehearsed():
    kind, model = get_kind("classification"), new_model(fast=True)
    seeds = _seed_dropout(model, 0, 0.1)
    at_once = PartsAtOnce(2, kind.loss_weight, seeds)
    step = TrainingStep(Called(model), [], at_once)
    step.compile(keras.optimizers.SGD(0.0), jit_compile=False, **kind.losses(ops=keras3))
    inputs, before = state_of(model).family.inputs(tiny_inputs(34)), [array(one.state) for one in seeds]
    rehearse = at_once.rehearsal(model)
    assert programs_compiled(lambda: rehearse(tf.constant(17), tf.constant(10))) > 0
    assert np.array_equal(before, [array(one.state) for one in seeds])
    batches = tf.data.Dataset.from_tensors((inputs, tf.zeros(34, tf.int32)))
    assert programs_compiled(lambda: step.fit(batches, verbose=0)) == 0
    assert not np.array_equal(before, [array(one.state) for one in seeds])


@pytest.mark.parametrize(
    "expected, fields, others",
    [
        (True, {}, {}),
        (False, {"accumulate": 2}, {}),
        (False, {}, {"mode": "full"}),
        (False, {}, {"kind": MaskedLanguageModelling()}),
    ],
)
def test_a_run_computes_parts_at_once_unless_something_stands_against_it(expected, fields, others, monkeypatch):
    monkeypatch.setattr("tf_adapters.training.parts.AT_ONCE", 2)
    kind = others.get("kind", get_kind("classification"))
    model = new_model(kind.head, AdapterConfig(4), others.get("mode", "adapters"))
    settings = TrainingSettings(epochs=1, learning_rate=1e-3, **fields)
    trained = Trained(model, kind, range(64), None, settings, Alone())
    assert (trained.keras_model.at_once is not None) == expected


def test_batches_that_threads_score_at_once_have_the_logits_of_each_alone(encoder, monkeypatch):
    model = new_model(directory=encoder)
    tokenizer = load_tokenizer(model)
    words = ("film", "good", "dull")
    encoded = tokenizer.encode(tf.constant([f"{words[row % 3]} the film " * (1 + row % 7) for row in range(64)]))
    alone = Scorer(model, tokenizer, batch_size=4)
    expected = [forward(model)(inputs)[: len(positions)] for positions, inputs in alone.inputs(encoded)]
    monkeypatch.setattr("tf_adapters.kinds.kind.AT_ONCE", 3)
    scorer, threads = Scorer(model, tokenizer, batch_size=4), set()
    compute = scorer.forward
    scorer.forward = lambda inputs: (threads.add(threading.get_ident()), compute(inputs))[1]
    found = [logits for _, logits in scorer.batches(encoded)]
    assert len(threads) > 2 and len(found) == 16
    np.testing.assert_allclose(np.concatenate(found), np.concatenate(expected), atol=1e-6)
