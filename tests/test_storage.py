"""Frozen weights kept in half precision compute the same, take half the memory, and refuse what needs them whole."""

import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import is_refused, randomize, tiny_inputs, tiny_model
from tf_adapters import (
    AdapterConfig,
    add_adapters,
    load_adapter,
    load_backbone,
    parameter_counts,
    remove_adapters,
    save_adapter,
    set_trainable,
)
from tf_adapters._keras import keras
from tf_adapters.models import backbone_digest, cast_frozen, change_head, freeze

INPUTS = tiny_inputs(batch=4, length=12)
LABELS = tf.constant([0, 1, 1, 0])


@pytest.fixture(params=["mixed_bfloat16", pytest.param("mixed_float16", marks=pytest.mark.nightly)])
def half(request, float32_policy):
    float32_policy(request.param)
    return request.param.removeprefix("mixed_")


def adapted(mode="adapters", fast=False, head="classification"):
    model = tiny_model(head, num_hidden_layers=2)
    add_adapters(model, AdapterConfig(bottleneck_size=8, init_stddev=0.3, train_layer_norm="all"), seed=1, fast=fast)
    return set_trainable(randomize(model, scale=0.1), mode)


@pytest.mark.parametrize("head", ["classification", "masked-lm"])
def test_frozen_matrices_alone_change_their_dtype_and_plain_blocks_compute_the_same_bits(half, head):
    model = adapted(head=head)
    before, counts, digest = model(INPUTS).logits.numpy(), parameter_counts(model), backbone_digest(model)
    names = [variable.name for variable in model.weights]
    cast_frozen(model)
    assert np.array_equal(model(INPUTS).logits, before)
    assert parameter_counts(model) == counts and backbone_digest(model) == digest
    assert [variable.name for variable in model.weights] == names
    trains = {variable.ref() for variable in model.trainable_variables}
    # A head that reads the words' embeddings wants their layer as it is.
    frozen = {variable.ref() for variable in model.bert.weights} - trains
    tied = {variable.ref() for variable in model.bert.embeddings.weights} if head == "masked-lm" else set()
    for variable in model.weights:
        is_cast = variable.ref() in frozen - tied and variable.shape.rank == 2
        assert variable.dtype == (half if is_cast else "float32"), variable.name
    weights = list(model.weights)
    assert all(one is other for one, other in zip(cast_frozen(model).weights, weights))


def test_fast_blocks_compute_the_same_and_nothing_keeps_the_float32_values_alive(half):
    model = adapted(fast=True)
    before = model(INPUTS).logits.numpy()
    kernels = [
        weakref.ref(kernel)
        for kernel in (model.bert.encoder.layer[0].intermediate.dense.kernel, model.bert.embeddings.weight,
                       model.bert.embeddings.position_embeddings, model.bert.encoder.layer[1].bert_output.dense.kernel)
    ]  # fmt: skip
    cast_frozen(model)
    gc.collect()
    assert [kernel() for kernel in kernels] == [None] * 4
    np.testing.assert_array_equal(model(INPUTS).logits, before)


@pytest.mark.slow
def test_training_and_saving_go_on(half, tmp_path):
    model = cast_frozen(adapted(fast=True))
    frozen = [variable.numpy() for variable in model.non_trainable_variables]
    model.compile(
        optimizer=keras.optimizers.Adam(1e-2), loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    before = [variable.numpy() for variable in model.trainable_variables]
    model.fit(INPUTS, LABELS, epochs=2, verbose=0)
    assert all(np.any(old != new) for old, new in zip(before, model.trainable_variables))
    assert all(np.array_equal(old, new) for old, new in zip(frozen, model.non_trainable_variables))
    save_adapter(model, tmp_path / "adapter")
    other = tiny_model(num_hidden_layers=2)
    load_adapter(other, tmp_path / "adapter", fast=True)
    np.testing.assert_array_equal(cast_frozen(freeze(other))(INPUTS).logits, model(INPUTS).logits)


def test_what_needs_the_float32_values_is_refused(half):
    model = cast_frozen(adapted())
    before = model(INPUTS).logits.numpy()
    is_refused("remove_adapters.*cast_frozen.*load the model again", remove_adapters, model)
    is_refused("mode='full'.*cast_frozen", set_trainable, model, "full")
    assert np.array_equal(model(INPUTS).logits, before)
    set_trainable(model, "head")
    add_adapters(model, name="second", seed=2)
    remove_adapters(model, name="second")


def test_a_file_of_weights_comes_back_or_is_refused(half, tmp_path):
    model, other = cast_frozen(adapted()), cast_frozen(adapted())
    randomize(other, scale=0.1)
    if half == "bfloat16":
        is_refused("save_weights: .*bfloat16.*leave .h5 out", model.save_weights, tmp_path / "all.weights.h5")
    file = str(tmp_path / ("all" if half == "bfloat16" else "all.weights.h5"))
    model.save_weights(file)
    other.load_weights(file)
    assert np.array_equal(other(INPUTS).logits, model(INPUTS).logits)


def test_another_model_on_the_encoder_knows_that_it_was_cast(half, checkpoint, tmp_path):
    model = load_backbone(checkpoint)
    other, known = change_head(model, num_labels=3), change_head(model, num_labels=3)
    digest = backbone_digest(known)
    cast_frozen(freeze(model))
    for operation in (backbone_digest, add_adapters, change_head, lambda one: set_trainable(one, "full")):
        is_refused("needs the encoder's float32 weights.*load the model again", operation, other)
    is_refused("change_head needs the encoder's float32 weights", change_head, known, num_labels=2)
    assert backbone_digest(known) == backbone_digest(model) == digest
    # A file of another encoder would leave nobody knowing which one it is.
    changed = load_backbone(checkpoint)
    for variable in cast_frozen(freeze(changed)).bert.encoder.weights:
        variable.assign(variable * 1.5)
    changed.save_weights(tmp_path / "all")
    before = model(INPUTS).logits.numpy()
    is_refused("load_weights of another encoder needs", model.load_weights, tmp_path / "all")
    assert np.array_equal(model(INPUTS).logits, before)


def test_adapters_that_came_after_the_cast_go_again(half):
    model = cast_frozen(freeze(tiny_model(num_hidden_layers=1)))
    before = model(INPUTS).logits.numpy()
    add_adapters(model, AdapterConfig(init_stddev=0.3), seed=1)
    assert not np.array_equal(model(INPUTS).logits, before)
    remove_adapters(model)
    assert np.array_equal(model(INPUTS).logits, before)


def test_what_is_not_chosen_yet_or_trains_or_has_no_policy_of_halves_stays_in_float32(float32_policy):
    models = [adapted()]
    float32_policy("mixed_bfloat16")
    is_refused("set_trainable.*freeze", cast_frozen, tiny_model(num_hidden_layers=1))
    is_refused("set_trainable", save_adapter, freeze(adapted()), "nowhere")
    for model in (*models, adapted("full")):
        cast_frozen(model)
        assert {variable.dtype for variable in model.weights} == {tf.float32}
        remove_adapters(model)


def test_a_processor_without_bfloat16_is_told_what_the_precision_costs(tmp_path, monkeypatch):
    from tf_adapters.cli.quiet import has_bfloat16, precision_note

    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [])
    assert has_bfloat16(tmp_path / "no Linux") is None
    (tmp_path / "old").write_text("flags\t\t: fpu avx2 avx512f avx512_vnni\n")
    (tmp_path / "new").write_text("flags\t\t: fpu avx2 avx512f avx512_bf16\n")
    assert "no bfloat16 instructions" in precision_note("mixed_bfloat16", tmp_path / "old")
    assert precision_note("mixed_bfloat16", tmp_path / "new") is None
    assert has_bfloat16(tmp_path / "new") and has_bfloat16(tmp_path / "old") is False
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["GPU:0"])
    assert has_bfloat16(tmp_path / "new") is None
