"""Dropout of every family: its rate, its masks from the run's seed, and what a resumed run makes of it and of what
else a step draws."""

import numpy as np
import pytest
import tensorflow as tf

from tests.cases import nightly_but
from tests.conftest import is_refused
from tests.families import FAMILIES, family_inputs, family_model
from tests.runs import KillAt, Killed, content
from tf_adapters import AdapterConfig, add_adapters, fit, remove_adapters, set_trainable, task_from_files
from tf_adapters.layers.dropout import SeededDropout
from tf_adapters.models.state import state_of
from tf_adapters.text import WordPiece
from tf_adapters.training.frozen_blocks import frozen_depth
from tf_adapters.training.run import Reporter
from tf_adapters.training.step import seed_dropout

# DeBERTa's is a class of its own, the others' is Keras'.
EVERY_FAMILY = nightly_but(["deberta-v2"], FAMILIES)


def one_block(family):
    return family_model(family, num_hidden_layers=1)


def logits_of(model, family, training):
    return model(family_inputs(family), training=training)[0].numpy()


@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_no_dropout_is_left_out_and_its_rate_is_overridden_and_comes_back(family):
    model = one_block(family)
    built_with = [rate for *_, rate in state_of(model).family.dropout_layers(model)]
    assert set(built_with) <= {0.0, 0.1, 0.2} and 0.1 in built_with
    for rate in (0.0, 0.5):
        assert [layer.rate for layer in seed_dropout(model, 1, rate=rate)] == [rate] * len(built_with)
        dropouts = [layer for layer in model.submodules if "dropout" in type(layer).__name__.lower()]
        assert dropouts and all(isinstance(layer, SeededDropout) for layer in dropouts)
        assert np.array_equal(logits_of(model, family, True), logits_of(model, family, False)) == (rate == 0)
    assert [layer.rate for layer in seed_dropout(model, 1)] == built_with


def test_debertas_embeddings_are_dropped_at_the_rate_that_was_asked_for():
    model = family_model("deberta-v2", hidden_size=256)
    ids = tf.ones((8, 32), tf.int32)
    for rate in (0.1, 0.7):
        seed_dropout(model, 1, rate=rate)
        kept = model.deberta.embeddings(input_ids=ids, training=True).numpy() != 0
        # Of 65,536 entries the share has a standard deviation below 0.002.
        assert 1 - kept.mean() == pytest.approx(rate, abs=0.01)


@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_masks_follow_from_the_seed_alone(family):
    def steps(seed, tensorflows):
        model = one_block(family)
        seed_dropout(model, seed)
        tf.random.set_seed(tensorflows)
        return [logits_of(model, family, True) for _ in range(2)]

    one, again, other = steps(1, 5), steps(1, 6), steps(2, 5)
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one[0], one[1]) and not np.array_equal(one[0], other[0])


@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_removal_of_the_adapters_restores_the_layers_that_dropped(family):
    model = family_model(family)
    before = state_of(model).family.dropout_layers(model)
    add_adapters(model, AdapterConfig(4, dropout=0.2), seed=0)
    assert 0.2 in [layer.rate for layer in seed_dropout(model, 1, rate=0.0)]
    remove_adapters(model)
    after = state_of(model).family.dropout_layers(model)
    assert len(after) == len(before) and all(
        one[2] is other[2] and one[3] == other[3] for one, other in zip(before, after)
    )


def test_debertas_dropout_stands_against_stored_outputs_of_frozen_blocks():
    model = set_trainable(family_model("deberta-v2"), "top-1")
    is_refused("the embedding layer has dropout.*--dropout 0", frozen_depth, model)
    # Of the blocks alone too.
    set_trainable(model := family_model("deberta-v2", hidden_dropout_prob=0.0), "top-1")
    is_refused("block 0 has dropout.*--dropout 0", frozen_depth, model)
    seed_dropout(model, 0, rate=0.0)
    assert frozen_depth(model) == 2


UPPER = AdapterConfig(4, blocks=(1,), train_layer_norm="adapted")
CHECKPOINTED = {"dropout": 0.3, "checkpoint_gradients": True}
#: Family, adapter and settings of runs that draw or keep something of their own, what of it a run that goes on may not
#: change, and how that is called.
RUNS = {
    **{family: (family, AdapterConfig(4), {"dropout": 0.3}, {}, "") for family in FAMILIES},
    "checkpointed": ("deberta-v2", AdapterConfig(4), CHECKPOINTED, {"dropout": 0.2}, "dropout"),
    "in parts": (
        "bert", AdapterConfig(4, dropout=0.1), {"accumulate": 2, **CHECKPOINTED}, {"checkpoint_gradients": False},
        "checkpoint_gradients",
    ),
    "mixout": ("bert", AdapterConfig(4), {"dropout": 0.0, "mixout": 0.5}, {"mixout": 0.6}, "mixout"),
    "cached": ("bert", UPPER, {"dropout": 0.0, "cache_frozen": True}, {"cache_frozen": False}, "cached_blocks"),
}  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize("what", RUNS)
def test_a_killed_run_ends_bit_equal(what, checkpoint, sentences, tmp_path):
    family, config, settings, others, called = RUNS[what]
    task = task_from_files(**{split: sentences / f"{split}.csv" for split in ("train", "validation")})
    wordpiece = WordPiece.from_directory(checkpoint, max_length=16)

    class Begin(Reporter):
        def start(self, steps, done):
            self.done = done

    def run(output, **arguments):
        model = family_model(family, num_hidden_layers=2 if config is UPPER else 1)
        set_trainable(add_adapters(model, config, seed=0))
        usual = dict(epochs=1, learning_rate=3e-3, batch_size=16, seed=3)
        return fit(model, task, wordpiece, output=tmp_path / output, **{**usual, **settings, **arguments})

    run("whole")
    with pytest.raises(Killed):
        run("killed", reporter=KillAt(8), checkpoint_seconds=0)
    if others:
        is_refused(f"another {called}", run, "killed", resume=True, **others)
    begin = Begin()
    run("killed", resume=True, reporter=begin)
    assert begin.done > 0 and content(tmp_path / "killed") == content(tmp_path / "whole")


@pytest.mark.parametrize("fused", [False, True])
def test_masks_follow_from_the_seed_and_the_state_that_a_checkpoint_keeps(fused):
    x = tf.ones((5, 10, 40))
    one, other = (SeededDropout(0.3, seed=5, fused=fused) for _ in range(2))
    first, second = one(x, training=True).numpy(), one(x, training=True)
    assert np.array_equal(first, other(x, training=True)) and not np.array_equal(first, second)
    state = other.generator.state.numpy()
    for _ in range(2):
        assert np.array_equal(other(x, training=True), second)
        other.generator.state.assign(state)
    assert np.array_equal(one(x, training=False), x)
    # 2,000 draws at rate 0.3: five standard deviations are 0.051.
    assert abs(np.mean(first == 0) - 0.3) < 0.051
    np.testing.assert_allclose(first[first != 0], 1 / 0.7, rtol=1e-6)


def test_in_a_fast_model_programs_drop_what_the_embeddings_make_and_the_gradient_is_dropped_alike():
    model = family_model("bert", num_hidden_layers=1)
    add_adapters(model, AdapterConfig(bottleneck_size=4), fast=True)
    seed_dropout(model, 1, rate=0.4)
    drop, x = model.bert.embeddings.dropout, tf.random.stateless_normal((4, 6, 32), (1, 2))

    @tf.function
    def dropped(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            outputs = drop(x, training=True)
        return outputs, tape.gradient(outputs, x)

    outputs, gradient = dropped(x)
    assert set(np.unique(gradient)) == {0.0, np.float32(1 / 0.6)}
    np.testing.assert_allclose(outputs, x * gradient, rtol=1e-6)
    operations = dropped.get_concrete_function(x).graph.get_operations()
    assert "StatelessRandomUniformV2" not in {operation.type for operation in operations}


def test_a_mask_of_a_given_shape_is_shared_where_the_shape_has_a_one():
    dropout = SeededDropout(0.5, noise_shape=(None, 1, 8), seed=0)
    dropped = tf.function(
        lambda inputs: dropout(inputs, training=True), input_signature=[tf.TensorSpec((None, None, 8))]
    )
    outputs = dropped(tf.ones((16, 3, 8))).numpy()
    assert (outputs == outputs[:, :1]).all() and set(outputs.ravel()) == {0.0, 2.0}
    assert len({row.tobytes() for row in outputs}) > 8
