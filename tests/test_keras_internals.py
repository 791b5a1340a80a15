"""What Keras and its like keep to themselves, where no other test would miss it. ruff.toml has other files leave it be.

Tests of what stands on these functions try the others: freezing, optimizers, exports, strategies, storage.
"""

import numpy as np
import pytest
import tensorflow as tf

from tf_adapters._keras import keras
from tf_adapters._keras_internals import (
    change_class,
    exchange_variable,
    go_on_with,
    in_order_made,
    loss_scale_variables,
    one_pass,
    reference_counts,
    set_own_weights,
    uncast,
)


class Pair(keras.layers.Layer):
    """Two dense layers and a bias of its own."""

    def __init__(self):
        super().__init__()
        self.first, self.second = keras.layers.Dense(2), keras.layers.Dense(2)
        self.own = self.add_weight(name="own", shape=[2], initializer="zeros")
        self.first.build((None, 2))
        self.second.build((None, 2))
        self.built = True


def are(found, *expected):
    """Whether a list has just these objects, in this order."""
    return list(map(id, found)) == list(map(id, expected))


def test_a_model_of_another_class_is_called_with_that_ones_arguments():
    class Plain(keras.Model):
        def call(self, inputs):
            return inputs

    class Louder(keras.Model):
        def call(self, inputs, mask=None, times=2, training=False):
            return inputs * times + (1 if training else 0)

    model = Plain()
    assert float(model(tf.constant(3.0))) == 3
    change_class(model, Louder)
    assert float(model(tf.constant(3.0))) == 6 and float(model(tf.constant(3.0), training=True)) == 7
    with keras.backend.learning_phase_scope(1):
        assert float(model(tf.constant(3.0))) == 7  # an argument that only Louder has is filled in by Keras
    change_class(model, Plain)
    assert float(model(tf.constant(3.0))) == 3


def test_a_layer_whose_count_was_put_back_can_be_removed():
    pair = Pair()
    held, counts = dict(vars(pair)), dict(reference_counts(pair))
    layers = list(vars(pair)["_self_tracked_trackables"])
    del pair.first
    # As a transaction does.
    vars(pair).update(held, _self_tracked_trackables=layers)
    reference_counts(pair).clear()
    reference_counts(pair).update(counts)
    assert len(pair.weights) == 5
    del pair.first
    assert are(pair.weights, pair.own, *pair.second.weights)


def test_variables_come_in_the_order_in_which_they_were_made():
    dense, other = Pair().first, tf.Variable(0.0)
    assert are(in_order_made(dense, [other, dense.bias, dense.kernel]), dense.kernel, dense.bias, other)


def test_a_variable_is_exchanged_among_the_weights_and_in_checkpoints(tmp_path):
    class Table(keras.layers.Layer):
        def build(self, input_shape):
            # As transformers' embeddings: the weight is not called as the attribute is.
            self.table = self.add_weight(name="embeddings", shape=[2])
            self.other = self.add_weight(name="other", shape=[2])

    layer = Table()
    layer.build(None)
    set_own_weights(layer, [], [layer.table, layer.other])
    table = tf.Variable(tf.cast(layer.table, tf.bfloat16))
    exchange_variable(layer, "table", table)
    assert layer.table is table and are(layer.weights, table, layer.other) and layer.trainable_weights == []
    path = tf.train.Checkpoint(layer).write(str(tmp_path / "checkpoint"))
    names = [name for name, _ in tf.train.list_variables(path) if "VARIABLE" in name]
    assert sorted(str(tf.train.load_variable(path, name).dtype) for name in names) == ["bfloat16", "float32"]


def test_a_loss_scale_goes_from_one_optimizer_to_another():
    def scaled(scale, **settings):
        return keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD(), initial_scale=scale, **settings)

    first, second = scaled(64), scaled(8)
    first.dynamic_counter.assign(5)
    assert not set(map(id, loss_scale_variables(first))) & set(map(id, first.variables))
    for variable, value in zip(loss_scale_variables(second), loss_scale_variables(first)):
        variable.assign(value)
    assert float(second.loss_scale) == 64 and int(second.dynamic_counter) == 5
    assert loss_scale_variables(scaled(8, dynamic=False)) == loss_scale_variables(keras.optimizers.SGD()) == []


@pytest.mark.parametrize("settings", [{}, {"weight_decay": 0.1, "global_clipnorm": 0.5, "epsilon": 1e-6}])
def test_one_pass_is_keras_adam(settings):
    """Dense and sparse gradients, against Keras' own update of ten operations, to which rows that occur twice are given
    as one."""
    kind = keras.optimizers.AdamW if settings else keras.optimizers.Adam
    start = np.random.default_rng(0).normal(size=(5, 3)).astype("float32")
    gradients = np.random.default_rng(1).normal(size=(4, 5, 3)).astype("float32")
    ends = []
    for made in (kind, one_pass(kind)):
        variables = [tf.Variable(start), tf.Variable(start)]
        optimizer = made(0.01, **settings)
        optimizer.build(variables)
        for gradient in gradients:
            rows, values = [3, 1, 3], gradient[:3]
            if made is kind:
                rows, values = [3, 1], np.stack([gradient[0] + gradient[2], gradient[1]])
            sparse = tf.IndexedSlices(tf.constant(values), tf.constant(rows), tf.constant([5, 3]))
            optimizer.apply_gradients(zip([tf.constant(gradient), sparse], variables))
        ends.append([variable.numpy() for variable in [*variables, *optimizer.variables[1:]]])
    assert len(ends[0]) == len(ends[1]) >= 6
    for one, other in zip(*ends):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)
    assert np.abs(ends[0][1] - start).max() > 0.01

    assert type(keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))) is kind


def test_a_variable_is_read_uncast_within_a_layers_call():
    class Reader(keras.layers.Layer):
        def build(self, input_shape):
            # bfloat16 rounds it to 1.
            self.number = self.add_weight(name="number", initializer=keras.initializers.Constant(1 + 2**-12))

        def call(self, inputs):
            return uncast(self.number), tf.convert_to_tensor(self.number)

    own, publicly = Reader(dtype="mixed_bfloat16")(tf.ones(1))
    assert own.dtype == tf.float32 and float(own) == 1 + 2**-12
    assert publicly.dtype == tf.bfloat16
    assert float(uncast(tf.Variable(3.0))) == 3  # which Keras made not


def test_an_optimizer_goes_on_with_other_variables_and_keeps_the_moments():
    a, b, c = (tf.Variable(1.0, name=name) for name in "abc")
    optimizer = keras.optimizers.SGD(0.5, momentum=0.5)
    optimizer.apply_gradients([(tf.constant(1.0), a), (tf.constant(1.0), b)])
    go_on_with(optimizer, [b, c])
    optimizer.apply_gradients([(tf.constant(1.0), b), (tf.constant(1.0), c)])
    # The first steps are 0.5, the second 0.5 and half of the one before.
    assert [float(variable) for variable in (a, b, c)] == [0.5, -0.25, 0.5]


def test_nadam_goes_on_with_the_same_variables_as_if_nothing_had_been():
    ended = []
    for again in (False, True):
        variable, optimizer = tf.Variable(1.0), keras.optimizers.Nadam(0.1)
        for number in range(21):
            if again and number == 20:
                go_on_with(optimizer, [variable])
            optimizer.apply_gradients([(tf.constant(1.0 + number % 3), variable)])
        ended.append(float(variable))
    assert ended[0] == ended[1]
