"""Frozen weights kept in half precision compute the same, take half the memory, and refuse what needs them whole."""

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import tiny_inputs, tiny_model
from tf_adapters import (
    AdapterConfig,
    InputError,
    add_adapters,
    backbone_digest,
    cast_frozen,
    load_adapter,
    parameter_counts,
    remove_adapters,
    save_adapter,
    set_trainable,
)
from tf_adapters._keras import keras

INPUTS = tiny_inputs(batch=4, length=12)
LABELS = tf.constant([0, 1, 1, 0])


@pytest.fixture(params=["mixed_bfloat16", "mixed_float16"])
def half(request, float32_policy):
    float32_policy(request.param)
    return request.param.removeprefix("mixed_")


def adapted(mode="adapters", fast=False, head="classification"):
    model = tiny_model(head)
    add_adapters(model, AdapterConfig(bottleneck_size=8, init_stddev=0.3, train_layer_norm="all"), seed=1, fast=fast)
    return set_trainable(model, mode)


@pytest.mark.parametrize("head", ["classification", "masked-lm"])
def test_plain_blocks_compute_bit_for_bit_the_same(half, head):
    model = adapted(head=head)
    before, counts, digest = model(INPUTS).logits.numpy(), parameter_counts(model), backbone_digest(model)
    names = [variable.name for variable in model.weights]
    cast_frozen(model)
    assert np.array_equal(model(INPUTS).logits, before)
    assert parameter_counts(model) == counts and backbone_digest(model) == digest
    assert [variable.name for variable in model.weights] == names


def test_only_frozen_matrices_change_their_dtype(half):
    model = cast_frozen(adapted())
    trains = {variable.ref() for variable in model.trainable_variables}
    main = {variable.ref() for variable in model.bert.weights}
    for variable in model.weights:
        is_cast = variable.ref() in main - trains and variable.shape.rank == 2
        assert variable.dtype == (half if is_cast else "float32"), variable.name
    again = list(model.weights)
    assert all(a is b for a, b in zip(cast_frozen(model).weights, again))


def test_nothing_keeps_the_float32_values_alive(half):
    import gc
    import weakref

    model = adapted(fast=True)
    kernels = [
        weakref.ref(kernel)
        for kernel in (model.bert.encoder.layer[0].intermediate.dense.kernel, model.bert.embeddings.weight,
                       model.bert.embeddings.position_embeddings, model.bert.encoder.layer[1].bert_output.dense.kernel)
    ]  # fmt: skip
    cast_frozen(model)
    gc.collect()
    assert [kernel() for kernel in kernels] == [None] * 4


def test_training_and_saving_go_on(half, tmp_path):
    model = cast_frozen(adapted(fast=True))
    frozen = [variable.numpy() for variable in model.non_trainable_variables]
    model.compile(optimizer=keras.optimizers.Adam(1e-2), loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    before = [variable.numpy() for variable in model.trainable_variables]
    model.fit(INPUTS, LABELS, epochs=2, verbose=0)
    assert all(np.any(old != new) for old, new in zip(before, model.trainable_variables))
    assert all(np.array_equal(old, new) for old, new in zip(frozen, model.non_trainable_variables))
    save_adapter(model, tmp_path / "adapter")
    other = tiny_model()
    load_adapter(other, tmp_path / "adapter", fast=True)
    other.trainable = False
    np.testing.assert_array_equal(cast_frozen(other)(INPUTS).logits, model(INPUTS).logits)


def test_what_needs_the_float32_values_is_refused(half):
    model = cast_frozen(adapted())
    before = model(INPUTS).logits.numpy()
    with pytest.raises(InputError, match="remove_adapters.*cast_frozen.*load the model again"):
        remove_adapters(model)
    for mode in ("full", "top-1"):
        with pytest.raises(InputError, match=f"mode='{mode}'.*cast_frozen"):
            set_trainable(model, mode)
    assert np.array_equal(model(INPUTS).logits, before)
    set_trainable(model, "head")
    add_adapters(model, name="second", seed=2)
    remove_adapters(model, name="second")


def test_weights_that_train_stay_in_float32(half):
    model = cast_frozen(adapted("full"))
    assert {variable.dtype for variable in model.weights} == {tf.float32}
    remove_adapters(model)


def test_float32_models_are_left_alone():
    model = adapted()
    cast_frozen(model)
    assert {variable.dtype for variable in model.weights} == {tf.float32}
    remove_adapters(model)


def test_a_processor_without_bfloat16_is_told_what_the_precision_costs(tmp_path):
    from tf_adapters.cli.processor import precision_note

    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("flags\t\t: fpu avx2 avx512f avx512_vnni\n")
    new.write_text("flags\t\t: fpu avx2 avx512f avx512_bf16\n")
    note = precision_note("mixed_bfloat16", old)
    assert "no bfloat16 instructions" in note and "twice as long" in note
    assert precision_note("float32", old) is None
    assert precision_note("mixed_bfloat16", new) is None
    assert precision_note("mixed_bfloat16", tmp_path / "not Linux") is None
