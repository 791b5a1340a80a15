"""What the layers of methods compute, in each Keras, against formulas in NumPy; tests/test_fused.py has the operations
of fast blocks."""

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import is_refused, randomize
from tests.encoder_in_numpy import gelu, softmax
from tests.runs import said_by
from tf_adapters.config import ACTIVATIONS as NAMES
from tf_adapters.config import MethodConfig
from tf_adapters.layers.ops import keras2
from tf_adapters.methods import AdapterLayer, config_from_dict
from tf_adapters.methods.dora import DoraLayer
from tf_adapters.methods.fusion import FusionLayer
from tf_adapters.methods.lora import LoraLayer

keras = pytest.importorskip("keras", minversion="3", reason="needs Keras 3")
keras3 = pytest.importorskip("tf_adapters.layers.ops.keras3")
SIZE, INNER = 12, 20
# A unit normal that is cut at two standard deviations has this one.
TRUNCATED = 0.8796
SMALL = {"bottleneck_size": 4}
# A place, and the config that has a layer there.
CASES = {
    "plain": ("ffn", SMALL),
    "tanh": ("ffn", {**SMALL, "activation": "gelu_tanh"}),
    "deep": ("ffn", {**SMALL, "hidden_layers": 3, "inner_norm": "before"}),
    "norm after": ("ffn", {**SMALL, "inner_norm": "after", "activation": "relu"}),
    "scaled": ("ffn", {**SMALL, "scaling": 4.0}),
    "learned": ("ffn", {**SMALL, "scaling": "learned", "interaction": "multiply"}),
    "lora": ("query", {"method": "lora", "rank": 3, "alpha": 5}),
    "dora": ("intermediate", {"method": "dora", "rank": 3, "alpha": 5, "targets": ["intermediate"]}),
    "ia3 outputs": ("key", {"method": "ia3"}),
    "ia3 inputs": ("output", {"method": "ia3"}),
    "fusion": ("ffn", {"method": "fusion", "adapters": {name: SMALL for name in "ab"}}),
}
SHAPES = {"intermediate": (SIZE, INNER), "output": (INNER, SIZE)}
ACTIVATIONS = {
    "gelu": gelu,
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    **dict.fromkeys(("swish", "silu"), lambda x: x / (1 + np.exp(-x))),
    "hard_sigmoid": lambda x: np.clip(0.2 * x + 0.5, 0, 1),
}


def numbers(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def update(config, weights, read):
    """What a bottleneck adapter adds to hidden states."""

    def norm(rows):
        centred = rows - rows.mean(-1, keepdims=True)
        return (
            centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * weights["norm.gamma"]
            + weights["norm.beta"]
        )

    rows = norm(read) if config.inner_norm == "before" else read
    for name in ("down", *(f"hidden_{number}" for number in range(1, config.hidden_layers))):
        rows = ACTIVATIONS[config.activation](rows @ weights[f"{name}.kernel"] + weights[f"{name}.bias"])
    rows = rows @ weights["up.kernel"] + weights["up.bias"]
    rows = rows * (weights["learned.scaling"] if config.scaling == "learned" else config.scaling)
    return norm(rows) if config.inner_norm == "after" else rows


def of_fusion(weights, states, read):
    config = config_from_dict(SMALL)
    adapters = (
        {part: weights[f"adapters.{name}.{part}"] for part in ("down.kernel", "down.bias", "up.kernel", "up.bias")}
        for name in "ab"
    )
    updates = np.stack([update(config, adapter, read) for adapter in adapters], -2)
    query = read @ weights["query.kernel"] + weights["query.bias"]
    shares = softmax(np.einsum("blad,bld->bla", updates @ weights["key.kernel"], query))
    return states + np.einsum("bla,blad->bld", shares, updates @ weights["value.kernel"])


def kernel_and_bias(config, weights, kernel, bias):
    """A dense layer's with a method's update, and what the inputs are multiplied by."""
    if config.method == "ia3":
        scale = weights["scale"]
        return (kernel * scale, bias * scale) if len(scale) == kernel.shape[1] else (kernel * scale[:, None], bias)
    whole = kernel + config.alpha / config.rank * weights["a"] @ weights["b"]
    if config.method == "dora":
        whole *= weights["magnitude"] * np.sqrt((kernel**2).sum(0) / (whole**2).sum(0))
    return whole, bias


class Case:
    """The layer of each Keras with the same weights, none of them zero, and what it is given."""

    def __init__(self, name):
        place, values = CASES[name]
        self.place, self.config, self.shape = place, config_from_dict(values), SHAPES.get(place, (SIZE, SIZE))
        random = np.random.default_rng(0)
        self.layers = [self.layer(ops) for ops in (keras2, keras3)]
        assert list(self.layers[0].parts) == list(self.layers[1].parts) and self.layers[0].parts
        for part, weight in self.layers[0].parts.items():
            value = random.normal(0.5 if part in ("scale", "magnitude") else 0, 0.5, weight.shape)
            for layer in self.layers:
                layer.parts[part].assign(value)
        self.weights = {part: weight.numpy().astype(np.float64) for part, weight in self.layers[0].parts.items()}
        self.states = numbers(1, 2, 5, self.shape[0])
        if place == "ffn":
            # What is read is small, so that a LayerNorm's epsilon is seen.
            self.read = 0.02 * numbers(2, 2, 5, SIZE)
            self.others = [{"inputs": tf.constant(self.read)}, {"inputs": self.read}]
            self.without = self.states
            return
        self.dense = numbers(3, *self.shape) * 0.3, numbers(4, self.shape[1]) * 0.3
        self.others = []
        for ops in (keras2, keras3):
            layer = ops.keras.layers.Dense(self.shape[1])
            layer.build((None, None, self.shape[0]))
            layer.set_weights(self.dense)
            self.others.append({"dense": layer})
        self.without = self.states @ self.dense[0] + self.dense[1]

    def layer(self, ops, dtype="float32"):
        layer = self.config.layer(self.place, self.shape, ops=ops, seed=0, name="default", dtype=dtype)
        layer.build((None, None, self.shape[0]))
        return layer

    def expected(self):
        if self.place != "ffn":
            kernel, bias = kernel_and_bias(self.config, self.weights, *self.dense)
            return self.states @ kernel + bias
        if self.config.method == "fusion":
            return of_fusion(self.weights, self.states, self.read)
        change = update(self.config, self.weights, self.read)
        return self.states + (self.states * change if self.config.interaction == "multiply" else change)


@pytest.fixture(scope="module", params=CASES)
def case(request):
    return Case(request.param)


def test_each_keras_computes_the_formula_with_the_gate_open_half_open_and_closed(case):
    expected = case.expected()
    for gate in (None, 1.0, 0.5, 0.0):
        gates, share = ({}, 1.0) if gate is None else ({"gate": np.float32(gate)}, gate)
        ours = case.layers[0](tf.constant(case.states), **case.others[0], **gates).numpy()
        theirs = keras.ops.convert_to_numpy(case.layers[1](case.states, **case.others[1], **gates))
        for found in (ours, theirs):
            np.testing.assert_allclose(
                found, (1 - share) * case.without + share * expected, rtol=1e-5, atol=1e-5, err_msg=f"gate {gate}"
            )
        if gate == 0.0:
            dense = case.others[0].get("dense", lambda states: states)
            np.testing.assert_array_equal(ours, dense(tf.constant(case.states)))
        elif gate is None:
            open_gate = ours
        elif gate == 1.0 and case.config.method == "bottleneck":
            np.testing.assert_array_equal(ours, open_gate)
    layer = case.layers[1]
    frozen = {id(weight) for part, weight in layer.parts.items() if part.startswith("adapters.")}
    assert {id(weight) for weight in layer.learned} == {id(weight) for weight in layer.weights} - frozen
    if case.place == "ffn":
        is_refused("cannot be merged", case.layers[0].merged, None, None)
    else:
        kernel, bias = case.layers[0].merged(*case.dense)
        np.testing.assert_allclose(case.states @ kernel + bias, expected, rtol=1e-5, atol=1e-5)


def test_activations_are_the_same_in_each_keras():
    x = np.linspace(-4, 4, 41, dtype=np.float32).reshape(1, -1)
    for name in NAMES:
        ours = keras2.activation(name)(tf.constant(x))
        theirs = keras.ops.convert_to_numpy(keras3.activation(name)(x))
        np.testing.assert_allclose(theirs, ours, atol=2e-6, err_msg=name)
        if name in ACTIVATIONS:
            np.testing.assert_allclose(ours, ACTIVATIONS[name](x), atol=2e-6, err_msg=name)


def test_configurations_need_no_keras():
    code = (
        "import sys; from tf_adapters.methods import config_from_dict; "
        "from tf_adapters.recipes import get_recipe, RECIPES; "
        f"[config_from_dict(values) for values in {[values for _, values in CASES.values()]!r}]; "
        "[get_recipe(name) for name in RECIPES]; "
        "sys.exit(any(name in sys.modules for name in ('tensorflow', 'tf_keras', 'keras', 'transformers')))"
    )
    said_by(code)
    assert issubclass(type(config_from_dict(SMALL)), MethodConfig)


# How they start


@pytest.mark.parametrize("distribution", ["truncated", "normal"])
def test_kernels_are_drawn_from_their_distribution(distribution):
    layer = AdapterLayer(256, hidden_layers=2, init_stddev=1e-2, init_distribution=distribution, seed=3)
    layer.build((None, 512))
    truncated = distribution == "truncated"
    share = TRUNCATED if truncated else 1.0
    for kernel in (layer.down_kernel.numpy(), layer.up_kernel.numpy()):
        assert kernel.std() == pytest.approx(share * 1e-2, rel=0.01)
        # Of 131,072 draws the greatest is beyond four standard deviations.
        greatest = np.abs(kernel).max()
        assert 1.98e-2 < greatest <= 2e-2 if truncated else greatest > 4e-2
    # Between the projections the signal keeps its size.
    assert layer.hidden_1_kernel.numpy().std() == pytest.approx(share / 16, rel=0.02)
    assert not layer.down_bias.numpy().any() and not layer.up_bias.numpy().any()
    assert not np.array_equal(layer.down_kernel.numpy().ravel(), layer.up_kernel.numpy().ravel())


def test_loras_first_matrix_is_uniform_as_in_the_published_code():
    wide = LoraLayer(5, rank=2000, alpha=1.0, seed=0)
    wide.build((None, 8))
    # Within 1 / sqrt(8): the standard deviation is that over sqrt(3).
    assert abs(wide.a.numpy()).max() <= 8**-0.5 and not wide.b.numpy().any()
    np.testing.assert_allclose(wide.a.numpy().std(), 8**-0.5 / 3**0.5, rtol=0.02)


def test_fusion_starts_with_the_identity_for_values_and_is_held_near_it():
    layer = FusionLayer({name: AdapterLayer(4, seed=0) for name in "ab"}, value_regularization=0.5, seed=0)
    layer(numbers(0, 2, 8))
    np.testing.assert_allclose(layer.value_kernel, np.eye(8), atol=1.1e-6)
    layer.value_kernel.assign(3.0 * np.eye(8))
    (loss,) = layer.losses
    np.testing.assert_allclose(loss, 0.5 * 8 * 4.0)
    layer.trainable = False
    assert not sum(layer.losses)
    assert not FusionLayer({"a": AdapterLayer(4), "b": AdapterLayer(4)}, value_regularization=0).losses


# How they train


def test_the_gradient_of_dora_takes_the_norm_as_a_constant():
    dense, layer, x = keras2.keras.layers.Dense(4), DoraLayer(4, rank=2, alpha=6), tf.constant(numbers(1, 3, 5))
    for one in (dense, layer):
        one.build((None, 5))
    for number, weight in enumerate(layer.weights):
        weight.assign(1 + 0.5 * numbers(number, *weight.shape))
    norms = tf.norm(dense.kernel + 3 * tf.matmul(layer.a, layer.b), axis=0).numpy()
    with tf.GradientTape(persistent=True) as tape:
        loss = tf.reduce_sum(layer(x, dense) ** 2)
        direction = dense.kernel + 3 * tf.matmul(layer.a, layer.b)
        whole = layer.magnitude * tf.norm(dense.kernel, axis=0) / norms * direction
        expected = tf.reduce_sum((tf.matmul(x, whole) + dense.bias) ** 2)
    for weight in layer.weights:
        np.testing.assert_allclose(tape.gradient(loss, weight), tape.gradient(expected, weight), rtol=1e-4, atol=1e-4)


def test_a_column_of_zeros_stays_one_under_dora():
    dense, layer, x = keras2.keras.layers.Dense(4), DoraLayer(4, rank=2, alpha=6), tf.constant(numbers(1, 3, 5))
    for one in (dense, layer):
        one.build((None, 5))
    pruned = numbers(0, 5, 4) * [0, 1, 1, 1]
    dense.set_weights([pruned, numbers(2, 4)])
    for weight in ("as made", "trained"):
        if weight == "trained":
            randomize(layer)
        with tf.GradientTape() as tape:
            outputs = layer(x, dense)
        np.testing.assert_allclose(outputs[:, 0], np.full(3, dense.bias[0]), rtol=1e-6)
        assert all(np.isfinite(gradient).all() for gradient in tape.gradient(outputs, layer.weights))
        kernel, bias = layer.merged(pruned, dense.bias.numpy())
        np.testing.assert_allclose(outputs, x @ kernel + bias, rtol=1e-5, atol=1e-5)


def test_dropout_is_of_the_update_in_training_alone():
    plain, layer = AdapterLayer(4, seed=0), AdapterLayer(4, dropout=0.5, seed=0)
    for one in (plain, layer):
        one.build((None, 16))
        randomize(one)
    x = tf.constant(numbers(1, 30, 16))
    assert np.array_equal(layer(x), plain(x)) and np.array_equal(layer(x, training=False), plain(x))
    dropped, change = layer(x, training=True) - x, plain(x) - x
    kept = np.abs(dropped.numpy()) > 1e-6
    # 480 draws: five standard deviations are 0.114.
    assert abs(kept.mean() - 0.5) < 0.114
    np.testing.assert_allclose(dropped.numpy()[kept], 2 * change.numpy()[kept], atol=1e-5)


def test_the_adapter_is_a_keras_layer():
    """It stands in a functional model, trains in half precision with float32 weights, and comes back from its
    configuration."""
    inputs = keras2.keras.Input((6, 8))
    about = {"init_distribution": "normal", "activation": "swish", "dtype": "mixed_bfloat16"}  # not the usual policy
    layer = AdapterLayer(2, dropout=0.1, seed=4, name="a", **about)
    model = keras2.keras.Model(inputs, keras2.keras.layers.Dense(1, dtype="float32")(layer(inputs)))
    model.compile("adam", "mse", run_eagerly=True)
    losses = [model.train_on_batch(np.ones((4, 6, 8), np.float32), np.ones((4, 6, 1), np.float32)) for _ in range(2)]
    assert losses[1] < losses[0] and all(weight.dtype == tf.float32 for weight in model.trainable_weights)
    one, twin = (AdapterLayer.from_config(layer.get_config()) for _ in range(2))
    assert twin.get_config() == layer.get_config()
    for each in (one, twin):
        each.build((None, 8))
    for first, second in zip(one.weights, twin.weights):
        np.testing.assert_array_equal(first, second)


def test_bad_arguments_are_named():
    is_refused("init_distribution='uniform' is unknown", AdapterLayer, 4, init_distribution="uniform")
    is_refused("known hidden size", AdapterLayer(4).build, (None, None))
