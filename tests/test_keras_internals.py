"""What Keras and its like keep to themselves: what no other test would miss of it, and no other file that touches it.

Tests of what stands on these functions try the others: freezing, optimizers, exports, strategies, storage.
"""

import ast
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from tf_adapters import _keras_internals as internals
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
    traced_once,
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
    """Dense and sparse gradients, against Keras' own update of ten operations."""
    kind = keras.optimizers.AdamW if settings else keras.optimizers.Adam
    start = np.random.default_rng(0).normal(size=(5, 3)).astype("float32")
    rows = np.array([3, 1, 3])
    gradients = np.random.default_rng(1).normal(size=(4, 5, 3)).astype("float32")
    ends = []
    for made in (kind, one_pass(kind)):
        variables = [tf.Variable(start), tf.Variable(start)]
        optimizer = made(0.01, **settings)
        optimizer.build(variables)
        for gradient in gradients:
            sparse = tf.IndexedSlices(tf.constant(gradient[:3]), tf.constant(rows), tf.constant([5, 3]))
            optimizer.apply_gradients(zip([tf.constant(gradient), sparse], variables))
        ends.append([variable.numpy() for variable in [*variables, *optimizer.variables[1:]]])
    assert len(ends[0]) == len(ends[1]) >= 6
    for one, other in zip(*ends):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)
    assert np.abs(ends[0][1] - start).max() > 0.01

    assert type(keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))) is kind


def test_functions_that_are_traced_once_each_are_not_warned_of(caplog):
    logger = tf.get_logger()
    kept, logger.propagate = logger.propagate, True
    caplog.set_level("WARNING", logger=logger.name)  # the command line raises it

    def plain(inputs):
        return inputs + 1

    try:
        for _ in range(8):
            tf.function(plain)(tf.constant(1))
        assert "retracing" in caplog.text
        caplog.clear()
        for _ in range(8):
            traced_once(tf.function(plain))(tf.constant(1))
        assert "retracing" not in caplog.text
    finally:
        logger.propagate = kept


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


# Nothing else touches it


def is_own_object(node):
    """Whether an expression is `self`, `cls` or `super()`."""
    name = node.func if isinstance(node, ast.Call) else node
    return isinstance(name, ast.Name) and name.id in ("self", "cls", "super")


def defined(tree):
    """The names that a file defines: functions, classes, what is assigned, and attributes of `self`."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            names |= {node.id} if isinstance(node, ast.Name) else {node.attr} if is_own_object(node.value) else set()
        elif isinstance(node, ast.Assign) and any(ast.unparse(target) == "__slots__" for target in node.targets):
            names |= {part.value for part in ast.walk(node.value) if isinstance(part, ast.Constant)}
    return names


def named(node):
    """The names that a part of a file uses, each with the object whose name it is, or None; `python` and `src`, which
    are private in all but name, with an underscore."""
    if isinstance(node, ast.Attribute):
        yield node.attr, node.value
    elif isinstance(node, ast.Subscript) and is_vars(node.value):
        yield getattr(node.slice, "value", None), node.value.args[0]
    elif isinstance(node, ast.Call):
        yield from ((word.arg, ast.Name("self")) for word in node.keywords)
        if isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr", "setattr", "delattr"):
            yield from ((getattr(argument, "value", None), node.args[0]) for argument in node.args[1:2])
        elif isinstance(node.func, ast.Attribute) and is_vars(node.func.value) and node.args:
            yield getattr(node.args[0], "value", None), node.func.value.args[0]
    elif isinstance(node, (ast.Import, ast.ImportFrom)) and not getattr(node, "level", 0):
        start = [node.module] if isinstance(node, ast.ImportFrom) else []
        for path in [".".join([*start, alias.name]) for alias in node.names]:
            if not path.startswith("tf_adapters"):
                yield from ((f"_{name}" if name in ("python", "src") else name, None) for name in path.split("."))


def is_vars(node):
    """Whether an expression is `vars(something)`."""
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "vars" and node.args != []


def touched_in(package):
    """What of other libraries' own the files of a package touch, as `file:line what`.

    Of `self`, and of arguments, every private name that the package defines is its own, and of any other object those
    that the same file defines; so is a name that begins with the package's.
    """
    trees = {path: ast.parse(path.read_text()) for path in sorted(package.rglob("*.py"))}
    everywhere, found = set().union(*map(defined, trees.values())), []
    for path, tree in trees.items():
        here = defined(tree)
        for node in ast.walk(tree) if path.name not in ("_keras_internals.py", "_keras3_internals.py") else ():
            for name, owner in named(node):
                known = everywhere if owner is not None and is_own_object(owner) else here
                private = isinstance(name, str) and name.startswith("_") and name.strip("_") != ""
                if private and (not name.startswith("__") or name == "__internal__"):
                    if name not in known and not name.startswith("_tf_adapters"):
                        found.append(f"{path}:{node.lineno} {name}")
    return found


def test_what_others_keep_to_themselves_is_touched_in_one_file():
    found = touched_in(pathlib.Path(internals.__file__).parent)
    assert not found, "put these behind a function of _keras_internals.py:\n" + "\n".join(found)


BAD = """
import keras_tuner.src.config
from tensorflow.python.framework import ops
from tf_keras.src import backend
from transformers import _lazy
layer._trainable_weights.clear()
getattr(variable, "_variable", variable)
vars(model)["_compiled"] = vars(model).pop("_other")
cached_file(name, _raise=False)
base = tf.__internal__.tracking
self._get_noise_shape()
other._kept
"""
GOOD = """
import tf_adapters._keras
from tf_adapters.models import _names

_table = 1

class Layer:
    __slots__ = ("_slot",)
    _field: int = 0

    def _method(self):
        self._kept = self._field, self._slot, self._method(), super()._method(), model._tf_adapters
        return other._kept, Layer._method, _table, getattr(self, "_kept"), self.__dict__, numpy.float32
"""


def test_the_search_for_it_names_file_and_line(tmp_path):
    (tmp_path / "good.py").write_text(GOOD)
    assert touched_in(tmp_path) == []
    bad = tmp_path / "folder" / "bad.py"
    bad.parent.mkdir()
    bad.write_text(BAD)
    expected = [
        "2 _src", "3 _python", "4 _src", "5 _lazy", "6 _trainable_weights", "7 _variable", "8 _compiled", "8 _other",
        "9 _raise", "10 __internal__", "11 _get_noise_shape", "12 _kept",
    ]  # fmt: skip
    assert sorted(touched_in(tmp_path)) == sorted(f"{bad}:{line}" for line in expected)


def test_each_function_says_why_it_is_needed():
    for node in ast.parse(pathlib.Path(internals.__file__).read_text()).body:
        assert not isinstance(node, ast.FunctionDef) or ast.get_docstring(node), node.name
