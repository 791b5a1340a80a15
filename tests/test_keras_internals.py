"""What Keras and its like keep to themselves: each function on real objects, and no other file that touches it."""

import ast
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tf_adapters import _keras_internals as internals
from tf_adapters._keras import keras
from tf_adapters._keras_internals import (
    AutoTrackable,
    change_class,
    compute_in,
    exchange_variable,
    go_on_with,
    in_order_made,
    layers_of,
    loss_scale_variables,
    one_pass,
    own_weights,
    reference_counts,
    registered_gradients,
    replace_layer,
    sentencepiece_operations,
    set_own_weights,
    set_trainable_alone,
    strategy_made_under,
    traced_once,
    train_what_is_chosen,
    uncast,
    without_tracebacks,
    writes_saved_model,
)

PACKAGE = pathlib.Path(internals.__file__).parent


class Pair(keras.layers.Layer):
    """Two dense layers and a bias of its own."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.first, self.second = keras.layers.Dense(2), keras.layers.Dense(2)
        self.own = self.add_weight(name="own", shape=[2], initializer="zeros")
        self.first.build((None, 2))
        self.second.build((None, 2))
        self.built = True

    def call(self, inputs):
        return self.second(self.first(inputs)) + self.own


def built_dense(**settings):
    dense = keras.layers.Dense(2, **settings)
    dense.build((None, 2))
    return dense


def are(found, *expected):
    """Whether a list has just these objects, in this order."""
    return list(map(id, found)) == list(map(id, expected))


# A layer and its layers


def test_a_trackable_object_of_a_layer_is_saved_and_is_no_weight(tmp_path):
    layer = keras.layers.Layer()
    layer.part = AutoTrackable()
    layer.part.number = tf.Variable(3)
    assert layer.weights == []
    path = tf.train.Checkpoint(layer).write(str(tmp_path / "checkpoint"))
    assert any("number" in name for name, _ in tf.train.list_variables(path))


def test_layers_are_those_of_submodules():
    model = keras.Sequential([Pair(), keras.Sequential([built_dense()])])
    model.compile(metrics=["accuracy"])
    found = list(layers_of(model))
    assert found[0] is model and len(found) == 6
    assert {id(layer) for layer in found[1:]} == {id(layer) for layer in model.submodules}


def test_a_layer_is_replaced_in_its_place():
    pair, new = Pair(), built_dense()
    second = pair.second
    replace_layer(pair, "first", new)
    assert pair.first is new and are(pair.weights, pair.own, *new.weights, *second.weights)


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


# A layer's own weights and whether they train


def test_own_weights_are_those_of_the_layer_alone_and_some_of_them_train():
    pair, dense = Pair(), built_dense()
    trains, others = own_weights(pair)
    assert are(trains, pair.own) and others == []
    pair.trainable = False
    assert are(own_weights(pair)[0], pair.own)  # it would train
    set_own_weights(dense, [dense.bias], [dense.kernel])
    assert are(dense.trainable_weights, dense.bias) and are(dense.non_trainable_weights, dense.kernel)
    assert own_weights(dense) == (dense.trainable_weights, dense.non_trainable_weights)


def test_trainable_is_set_for_a_layer_without_those_inside():
    pair = Pair()
    set_trainable_alone(pair, False)
    assert not pair.trainable and pair.first.trainable and pair.trainable_weights == []
    set_trainable_alone(pair, True)
    assert len(pair.trainable_weights) == 5


def test_variables_come_in_the_order_in_which_they_were_made():
    dense, other = built_dense(), tf.Variable(0.0)
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


# Precision


def test_a_layer_that_was_made_already_computes_in_another_precision():
    dense = built_dense(dtype="mixed_bfloat16")
    assert dense(tf.ones((1, 2))).dtype == tf.bfloat16
    compute_in(dense, keras.mixed_precision.Policy("float32"))
    assert dense(tf.ones((1, 2))).dtype == tf.float32 and dense.dtype_policy.name == "float32"


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


# Training


def test_an_optimizer_goes_on_with_other_variables_and_keeps_the_moments():
    a, b, c = (tf.Variable(1.0, name=name) for name in "abc")
    optimizer = keras.optimizers.SGD(0.5, momentum=0.5)
    optimizer.apply_gradients([(tf.constant(1.0), a), (tf.constant(1.0), b)])
    go_on_with(optimizer, [b, c])
    optimizer.apply_gradients([(tf.constant(1.0), b), (tf.constant(1.0), c)])
    # The first steps are 0.5, the second 0.5 and half of the one before.
    assert [float(variable) for variable in (a, b, c)] == [0.5, -0.25, 0.5]


def test_a_compiled_model_trains_what_was_chosen_later():
    inputs, labels = np.ones((4, 2), np.float32), np.zeros((4, 2), np.float32)
    model = keras.Sequential([built_dense()])
    model.build((None, 2))
    model.trainable = False
    model.compile(optimizer="sgd", loss="mse")
    before = model.get_weights()
    model.trainable = True
    model.fit(inputs, labels, verbose=0)
    assert all(map(np.array_equal, before, model.get_weights()))
    train_what_is_chosen(model)
    model.train_function = None
    model.fit(inputs, labels, verbose=0)
    assert not any(map(np.array_equal, before, model.get_weights()))


def test_it_is_known_under_which_strategy_a_model_was_made():
    strategy, plain = tf.distribute.OneDeviceStrategy("/cpu:0"), keras.Sequential()
    with strategy.scope():
        assert strategy_made_under(keras.Sequential()) is strategy and strategy_made_under(plain) is None
    assert strategy_made_under(object()) is None


def test_a_registered_gradient_can_be_found_and_removed():
    def register():
        tf.RegisterGradient("OfThisTest")(lambda operation, upstream: upstream)

    register()
    with pytest.raises(KeyError, match="OfThisTest"):
        register()
    del registered_gradients()["OfThisTest"]
    register()


# Files and operations


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


@pytest.mark.slow
def test_a_file_that_a_repository_lacks_is_none_and_one_that_it_has_a_path(tmp_path):
    folder = tmp_path / "models--someone--tiny"
    snapshot = folder / "snapshots" / "0123abc"
    for path, content in ((snapshot / "config.json", "{}"), (folder / "refs" / "main", "0123abc")):
        path.parent.mkdir(parents=True)
        path.write_text(content)
    script = (
        "from tf_adapters._keras_internals import file_on_hub\n"
        "for name in ('config.json', 'vocab.txt'): print(file_on_hub('someone/tiny', name, None))\n"
    )
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path), "HF_HOME": str(tmp_path)}
    result = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert result.stdout.splitlines() == [str(snapshot / "config.json"), "None"], result.stderr


def test_sentencepiece_operations_cut_a_text():
    from tf_adapters.text.sentencepiece_files import NORMAL, UNKNOWN, Model, Piece

    pieces = [Piece("<unk>", 0.0, UNKNOWN), Piece("\u2581a", -1.0, NORMAL), Piece("b", -2.0, NORMAL)]
    operations = sentencepiece_operations()
    resource = operations.sentencepiece_op(model=Model(tuple(pieces), b"").encoded(), shared_name="of this test")
    ids, _ = operations.sentencepiece_tokenize_op(resource, ["ab", "a"], 0, 1.0, False, False, False, out_type=tf.int32)
    assert ids.numpy().tolist() == [1, 2, 1]


# keras-tuner


def test_a_trial_that_fails_prints_no_traceback(tmp_path, capsys):
    keras_tuner = pytest.importorskip("keras_tuner")
    space = keras_tuner.HyperParameters()
    space.Int("size", 1, 3)
    objective = keras_tuner.Objective("score", "max")

    class Failing(keras_tuner.Tuner):
        def run_trial(self, trial, **settings):
            raise keras_tuner.errors.FailedTrialError("it diverged")

    def search(name):
        oracle = keras_tuner.oracles.GridSearchOracle(objective=objective, max_trials=1, hyperparameters=space)
        tuner = Failing(oracle=oracle, directory=tmp_path, project_name=name)
        tuner.search(verbose=0)
        (trial,) = tuner.oracle.trials.values()
        assert "it diverged" in trial.message
        return capsys.readouterr().err

    with without_tracebacks():
        assert "Traceback" not in search("quiet")
    assert "Traceback" in search("loud")


# Nothing else touches it


def is_private(name):
    return name.startswith("_") and not name.startswith("__") and name.strip("_") != ""


class Definitions(ast.NodeVisitor):
    """The names that a file defines: functions, classes, what modules and classes assign, and attributes of `self`."""

    def __init__(self, tree):
        self.names = set()
        self.visit(tree)

    def visit_body(self, node):
        for statement in node.body:
            for target in getattr(statement, "targets", [getattr(statement, "target", None)]):
                self.names |= {part.id for part in ast.walk(target) if isinstance(part, ast.Name)} if target else set()
        self.names |= {getattr(node, "name", "")}
        self.generic_visit(node)

    visit_Module = visit_ClassDef = visit_body

    def visit_FunctionDef(self, node):
        self.names.add(node.name)
        self.generic_visit(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Attribute(self, node):
        if isinstance(node.ctx, ast.Store) and is_own_object(node.value):
            self.names.add(node.attr)
        self.generic_visit(node)

    def visit_Assign(self, node):
        if any(isinstance(target, ast.Name) and target.id == "__slots__" for target in node.targets):
            self.names |= {part.value for part in ast.walk(node.value) if isinstance(part, ast.Constant)}
        self.generic_visit(node)


def is_own_object(node):
    """Whether an expression is `self`, `cls` or `super()`."""
    name = node.func if isinstance(node, ast.Call) else node
    return isinstance(name, ast.Name) and name.id in ("self", "cls", "super")


def touched(path, defined):
    """What of other libraries' own a file touches, as `file:line what`.

    Of `self` every private name that the package defines is its own, and of any other object those that the same file
    defines; so is a name that begins with the package's.

    Args:
        defined: set of the names that the package defines.
    """
    tree = ast.parse(path.read_text())
    here = Definitions(tree).names

    def is_others(name, owner):
        own = name.startswith("_tf_adapters") or name in (defined if is_own_object(owner) else here)
        return is_private(name) and not own

    found = []
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Attribute) and (is_others(node.attr, node.value) or node.attr == "__internal__"):
            names = [node.attr]
        elif isinstance(node, (ast.Import, ast.ImportFrom)) and not getattr(node, "level", 0):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module]
            parts = [part for module in modules if module.split(".")[0] != "tf_adapters" for part in module.split(".")]
            parts += [alias.name for alias in node.names if parts]
            names = [part for part in parts if is_private(part) or part in ("python", "src", "__internal__")]
        elif isinstance(node, ast.Call):
            arguments = [word.arg for word in node.keywords if word.arg]
            names = [name for name in arguments if is_private(name) and name not in defined]
            if isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr", "setattr", "delattr"):
                names += [name for argument in node.args[1:2] for name in texts(argument, node.args[0], is_others)]
            elif isinstance(node.func, ast.Attribute) and is_vars(node.func.value) and node.args:
                names += texts(node.args[0], node.func.value.args[0], is_others)
        elif isinstance(node, ast.Subscript) and is_vars(node.value):
            names = texts(node.slice, node.value.args[0], is_others)
        found += [f"{path}:{node.lineno} {name}" for name in names]
    return found


def is_vars(node):
    """Whether an expression is `vars(something)`."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "vars" and node.args != []


def texts(node, owner, is_others):
    name = node.value if isinstance(node, ast.Constant) else None
    return [name] if isinstance(name, str) and is_others(name, owner) else []


def touched_in(package):
    files = sorted(package.rglob("*.py"))
    defined = set().union(*(Definitions(ast.parse(path.read_text())).names for path in files))
    return [
        line
        for path in files
        if path.name not in ("_keras_internals.py", "_keras3_internals.py")
        for line in touched(path, defined)
    ]


def test_what_others_keep_to_themselves_is_touched_in_one_file():
    found = touched_in(PACKAGE)
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
        "2 src", "3 python", "4 src", "5 _lazy", "6 _trainable_weights", "7 _variable", "8 _compiled", "8 _other",
        "9 _raise", "10 __internal__", "11 _get_noise_shape", "12 _kept",
    ]  # fmt: skip
    assert sorted(touched_in(tmp_path)) == sorted(f"{bad}:{line}" for line in expected)


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


def test_a_saved_model_of_keras_is_told_from_tensorflows(tmp_path):
    told = []

    class Told(AutoTrackable):
        def _trackable_children(self, *arguments, **settings):
            told.append(writes_saved_model())
            return super()._trackable_children(*arguments, **settings)

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.told = Told()
    tf.saved_model.save(model, tmp_path / "plain")
    assert told and not any(told)
    model.save(tmp_path / "keras")
    assert any(told)


def test_each_function_is_tried_here_and_says_why_it_is_needed():
    tree, here = ast.parse(pathlib.Path(internals.__file__).read_text()), pathlib.Path(__file__).read_text()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            assert here.count(node.name) > 1, node.name
            assert ast.get_docstring(node), node.name
