"""Graphs of earlier trainings are freed, and gradients of those that are held still work."""

import gc
import weakref

import pytest
import tensorflow as tf
from tensorflow.python.framework import ops

from tests.strategy_runs import make_task
from tf_adapters import AdapterConfig, add_adapters, fit, load_backbone, load_tokenizer, set_trainable
from tf_adapters.models.transformers.graphs import hold_gradients_weakly


@tf.custom_gradient
def power(x):
    """x squared, with a gradient of its own: 5 x."""
    return x * x, lambda upstream: 5.0 * x * upstream


def of_loop(x):
    return tf.while_loop(lambda step, value: step < 2, lambda step, value: (step + 1, power(value)), (0, x))[1]


def registered():
    gc.collect()
    return {name for name in ops.gradient_registry.list() if name.startswith("CustomGradient-")}


def test_a_gradient_is_there_as_long_as_its_function():
    hold_gradients_weakly()
    before = registered()
    function = tf.function(lambda x: of_loop(x))
    graph = weakref.ref(function.get_concrete_function(tf.TensorSpec([])).graph)
    for _ in range(2):  # the second time all are held weakly
        hold_gradients_weakly()
        assert registered() - before
    x = tf.constant(3.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    # From outside, which looks the gradient up in the registry.
    assert tape.gradient(y, x) == 675.0
    del function, tape, y
    left = registered()
    assert graph() is None and left <= before


@tf.custom_gradient
def reverse(x):
    """x, with a gradient that needs nothing of the graph: -5."""
    return tf.identity(x), lambda upstream: -5.0 * upstream


@pytest.mark.parametrize("body, expected", [(reverse, -5.0), (tf.grad_pass_through(tf.round), 1.0)])
def test_a_gradient_that_works_in_copies_of_its_graph_outlives_it(body, expected):
    function = tf.function(lambda x: body(x), autograph=False)
    concrete = function.get_concrete_function(tf.TensorSpec([]))
    definition, names = concrete.graph.as_graph_def(), (concrete.inputs[0].name, concrete.outputs[0].name)
    hold_gradients_weakly()
    del function, concrete
    gc.collect()
    copy = tf.compat.v1.wrap_function(lambda: tf.compat.v1.import_graph_def(definition, name=""), []).prune(*names)
    x = tf.constant(3.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = copy(x)
    assert tape.gradient(y, x) == expected


def test_a_gradient_is_saved_with_its_function_and_works_when_it_is_loaded(tmp_path):
    module = tf.Module()
    module.power = tf.function(lambda x: power(x), input_signature=[tf.TensorSpec([])])
    module.power.get_concrete_function()
    hold_gradients_weakly()
    tf.saved_model.save(module, tmp_path, options=tf.saved_model.SaveOptions(experimental_custom_gradients=True))
    loaded = tf.saved_model.load(tmp_path)
    hold_gradients_weakly()
    x = tf.constant(3.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = loaded.power(x)
    assert tape.gradient(y, x) == 15.0


@pytest.mark.nightly
@pytest.mark.parametrize("fast", [False, True])
def test_trainings_in_a_row_leave_no_graphs(checkpoint, tmp_path, fast):
    task = make_task("classification")

    def train(name):
        model = load_backbone(checkpoint, labels=["a", "b"])
        set_trainable(add_adapters(model, AdapterConfig(4), seed=0, fast=fast))
        settings = dict(epochs=1, batch_size=32, learning_rate=1e-3)
        fit(model, task, load_tokenizer(model, max_length=16), output=tmp_path / name, **settings)
        return weakref.ref(model)

    def graphs():
        gc.collect()
        return sum(isinstance(thing, ops.Graph) for thing in gc.get_objects())

    train("first")
    hold_gradients_weakly()
    before, names = graphs(), registered()
    models = [train("second"), train("third")]
    assert graphs() <= before and registered() <= names
    assert all(model() is None for model in models)
