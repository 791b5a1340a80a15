"""Dropout of every family: its rate, its masks from the run's seed, and what a resumed run makes of it."""

import numpy as np
import pytest
import tensorflow as tf

from tests.cases import nightly_but
from tests.families import FAMILIES, family_inputs, family_model
from tests.runs import KillAt, Killed, content
from tf_adapters import (
    AdapterConfig,
    InputError,
    WordPiece,
    add_adapters,
    fit,
    remove_adapters,
    set_trainable,
    task_from_files,
)
from tf_adapters.layers.dropout import SeededDropout
from tf_adapters.models.state import state_of
from tf_adapters.training.frozen_blocks import frozen_depth
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
        layers = seed_dropout(model, 1, rate=rate)
        assert [layer.rate for layer in layers] == [rate] * len(built_with)
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
    with pytest.raises(InputError, match="the embedding layer has dropout.*--dropout 0"):
        frozen_depth(model)
    # Of the blocks alone too.
    set_trainable(model := family_model("deberta-v2", hidden_dropout_prob=0.0), "top-1")
    with pytest.raises(InputError, match="block 0 has dropout.*--dropout 0"):
        frozen_depth(model)
    seed_dropout(model, 0, rate=0.0)
    assert frozen_depth(model) == 2


@pytest.mark.nightly
@pytest.mark.parametrize("family, checkpoint_gradients", [*((name, False) for name in FAMILIES), ("deberta-v2", True)])
def test_a_killed_run_with_dropout_ends_bit_equal(family, checkpoint_gradients, checkpoint, sentences, tmp_path):
    task = task_from_files(**{split: sentences / f"{split}.csv" for split in ("train", "validation")})
    wordpiece = WordPiece.from_directory(checkpoint, max_length=16)

    def run(output, **arguments):
        model = set_trainable(add_adapters(one_block(family), AdapterConfig(4), seed=0))
        settings = dict(
            epochs=1, learning_rate=3e-3, batch_size=16, seed=3, dropout=0.3, checkpoint_gradients=checkpoint_gradients
        )
        return fit(model, task, wordpiece, output=tmp_path / output, **settings, **arguments)

    run("whole")
    with pytest.raises(Killed):
        run("killed", reporter=KillAt(8), checkpoint_seconds=0)
    run("killed", resume=True)
    assert content(tmp_path / "killed") == content(tmp_path / "whole")


def test_a_mask_of_a_given_shape_is_shared_where_the_shape_has_a_one():
    dropout = SeededDropout(0.5, noise_shape=(None, 1, 8), seed=0)
    dropped = tf.function(
        lambda inputs: dropout(inputs, training=True), input_signature=[tf.TensorSpec((None, None, 8))]
    )
    outputs = dropped(tf.ones((16, 3, 8))).numpy()
    assert (outputs == outputs[:, :1]).all() and set(outputs.ravel()) == {0.0, 2.0}
    assert len({row.tobytes() for row in outputs}) > 8
