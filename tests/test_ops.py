"""The layers of methods, written once: what they compute is the same in each Keras."""

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tf_adapters.activations import NAMES
from tf_adapters.config import MethodConfig
from tf_adapters.layers.ops import keras2
from tf_adapters.methods import config_from_dict

keras = pytest.importorskip("keras", minversion="3", reason="needs Keras 3")
keras3 = pytest.importorskip("tf_adapters.layers.ops.keras3")
SIZE, INNER = 12, 20
# A place, and the config that has a layer there.
CASES = {
    "plain": ("ffn", {"bottleneck_size": 4}),
    "tanh": ("ffn", {"bottleneck_size": 4, "activation": "gelu_tanh"}),
    "deep": ("ffn", {"bottleneck_size": 4, "hidden_layers": 3, "inner_norm": "before"}),
    "norm after": ("ffn", {"bottleneck_size": 4, "inner_norm": "after", "scaling": 4.0}),
    "learned": ("ffn", {"bottleneck_size": 4, "scaling": "learned", "interaction": "multiply"}),
    "lora": ("query", {"method": "lora", "rank": 3, "alpha": 5}),
    "dora": ("intermediate", {"method": "dora", "rank": 3, "alpha": 5, "targets": ["intermediate"]}),
    "ia3 outputs": ("key", {"method": "ia3"}),
    "ia3 inputs": ("output", {"method": "ia3"}),
    "fusion": ("ffn", {"method": "fusion", "adapters": {name: {"bottleneck_size": 4} for name in "ab"}}),
}
SHAPES = {"intermediate": (SIZE, INNER), "output": (INNER, SIZE)}


def layers(case):
    """The layer of each Keras with the same weights, none of them zero, and what it is called with besides."""
    place, values = CASES[case]
    config, shape = config_from_dict(values), SHAPES.get(place, (SIZE, SIZE))
    random = np.random.default_rng(0)
    made = [config.layer(place, shape, ops=ops, seed=0, name="default", dtype="float32") for ops in (keras2, keras3)]
    for layer in made:
        layer.build((None, None, shape[0]))
    assert list(made[0].parts) == list(made[1].parts) and list(made[0].parts)
    for part, weight in made[0].parts.items():
        value = random.normal(0.5 if part in ("scale", "magnitude") else 0, 0.5, weight.shape)
        for layer in made:
            layer.parts[part].assign(value)
    if place == "ffn":
        return made, shape, [{}, {}]
    dense = [ops.keras.layers.Dense(shape[1]) for ops in (keras2, keras3)]
    for layer in dense:
        layer.build((None, None, shape[0]))
    kernel, bias = random.normal(0, 0.3, shape), random.normal(0, 0.3, shape[1:])
    for layer in dense:
        layer.kernel.assign(kernel)
        layer.bias.assign(bias)
    return made, shape, [{"dense": layer} for layer in dense]


@pytest.mark.parametrize("case", CASES)
def test_each_keras_computes_the_same_with_the_gate_open_half_open_and_closed(case):
    (second, third), shape, others = layers(case)
    inputs = np.random.default_rng(1).normal(size=(2, 5, shape[0])).astype(np.float32)
    without = inputs if not others[0] else np.asarray(others[0]["dense"](inputs))
    for gate in (None, 1.0, 0.5, 0.0):
        gates = {} if gate is None else {"gate": np.float32(gate)}
        ours = np.asarray(second(tf.constant(inputs), **others[0], **gates))
        theirs = keras.ops.convert_to_numpy(third(inputs, **others[1], **gates))
        np.testing.assert_allclose(theirs, ours, rtol=1e-5, atol=2e-6)
        assert (np.abs(ours - without).max() < 1e-6) == (gate == 0.0)


@pytest.mark.parametrize("case", ["plain", "norm after", "fusion"])
def test_each_keras_computes_the_same_in_bfloat16(case):
    place, values = CASES[case]
    (second, third), shape, others = layers(case)
    made = []
    for ops, layer in ((keras2, second), (keras3, third)):
        half = config_from_dict(values).layer(
            place, (SIZE, SIZE), ops=ops, seed=0, name="half", dtype="mixed_bfloat16" if ops is keras3 else
            keras2.keras.mixed_precision.Policy("mixed_bfloat16"),
        )  # fmt: skip
        half.build((None, None, SIZE))
        for part, weight in half.parts.items():
            weight.assign(np.asarray(layer.parts[part]))
        made.append(half)
    inputs = np.random.default_rng(1).normal(size=(2, 5, SIZE)).astype(np.float32)
    narrow = tf.constant(inputs, tf.bfloat16)
    outputs = [layer(narrow) for layer in made]
    assert all("bfloat16" in str(output.dtype) for output in outputs)
    exact = np.asarray(second(tf.constant(inputs), **others[0]))
    for output in outputs:
        np.testing.assert_allclose(np.asarray(tf.cast(output, tf.float32)), exact, rtol=0.05, atol=0.15)


@pytest.mark.parametrize("name", NAMES)
def test_activations_are_the_same(name):
    inputs = np.linspace(-4, 4, 41, dtype=np.float32).reshape(1, -1)
    ours = np.asarray(keras2.activation(name)(tf.constant(inputs)))
    np.testing.assert_allclose(keras.ops.convert_to_numpy(keras3.activation(name)(inputs)), ours, atol=2e-6)


@pytest.mark.parametrize("case", CASES)
def test_a_layer_of_keras_3_trains_what_its_method_trains(case):
    (_, third), shape, others = layers(case)
    learned = {id(weight) for weight in third.learned}
    assert learned and learned <= {id(weight) for weight in third.weights}
    inputs = tf.random.stateless_normal((2, 5, shape[0]), (0, 1))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.square(third(inputs, **others[1])))
    gradients = tape.gradient(loss, [weight.value for weight in third.learned])
    assert all(gradient is not None and np.isfinite(gradient).all() for gradient in gradients)


def test_configurations_need_no_keras():
    code = (
        "import sys; from tf_adapters.methods import config_from_dict; "
        "from tf_adapters.recipes import get_recipe, RECIPES; "
        f"[config_from_dict(values) for values in {[values for _, values in CASES.values()]!r}]; "
        "[get_recipe(name) for name in RECIPES]; "
        "sys.exit(any(name in sys.modules for name in ('tensorflow', 'tf_keras', 'keras', 'transformers')))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    assert issubclass(type(config_from_dict(CASES["plain"][1])), MethodConfig)
