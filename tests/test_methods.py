"""What each method computes, where it reads, how it merges and is fused; tests/test_table.py has what all share."""

import json

import numpy as np
import pytest
import tensorflow as tf

from tests.cases import nightly_but
from tests.conftest import randomize, tiny_inputs, tiny_model
from tests.families import family_inputs, family_model
from tests.table import METHODS, PFEIFFER
from tf_adapters import (
    AdapterConfig,
    FusionConfig,
    IA3Config,
    LoraConfig,
    add_adapters,
    backbone_digest,
    disable_adapters,
    fuse_adapters,
    load_adapter,
    merge_adapter,
    parameter_counts,
    remove_adapters,
    save_adapter,
    set_active,
    set_trainable,
)  # fmt: skip
from tf_adapters._keras import keras
from tf_adapters.config import DENSE_PLACES
from tf_adapters.errors import InputError
from tf_adapters.methods import config_from_dict
from tf_adapters.methods.bottleneck import AdapterLayer
from tf_adapters.methods.fusion import FusionLayer
from tf_adapters.methods.ia3 import IA3Layer
from tf_adapters.methods.lora import LoraLayer
from tf_adapters.models.state import state_of
from tf_adapters.models.transformers.merging import merged

LORA = LoraConfig(rank=3, alpha=6, targets=DENSE_PLACES)
STRONG = AdapterConfig(bottleneck_size=5, init_stddev=0.3)


def numbers(seed, *shape):
    return tf.constant(np.random.default_rng(seed).standard_normal(shape), tf.float32)


def move_layers(model, name="default", seed=0):
    """Give each of an adapter's layers other values, and no other weight of the model."""
    for number, layer in enumerate(state_of(model).adapters[name].layers.values()):
        randomize(layer, seed + number)
    return model


def trained(config, seed=1, **changes):
    """A tiny model whose adapter is not at its start."""
    return move_layers(add_adapters(tiny_model(**changes), config, seed=0), seed=seed)


def read_adapter_settings(directory):
    return json.loads((directory / "tf_adapters.json").read_text())["adapter"]


# Layers


def test_lora_adds_a_product_of_two_narrow_matrices():
    dense, layer = keras.layers.Dense(5), LoraLayer(5, rank=2, alpha=6.0, seed=0)
    x = numbers(0, 2, 3, 8)
    np.testing.assert_array_equal(layer(x, dense), dense(x))
    randomize(layer)
    expected = dense(x) + 3.0 * (x.numpy() @ layer.a.numpy() @ layer.b.numpy())
    np.testing.assert_allclose(layer(x, dense), expected, atol=1e-5)
    np.testing.assert_array_equal(layer(x, dense, gate=0.0), dense(x))
    wide = LoraLayer(5, rank=2000, alpha=1.0, seed=0)
    wide(x, dense)
    # Uniform within 1 / sqrt(8): the standard deviation is that over sqrt(3).
    assert abs(wide.a.numpy()).max() <= 8**-0.5
    np.testing.assert_allclose(wide.a.numpy().std(), 8**-0.5 / 3**0.5, rtol=0.02)


def test_loras_dropout_is_on_what_it_reads_while_training():
    dense, layer = keras.layers.Dense(5), LoraLayer(5, rank=2, alpha=2.0, dropout=0.5, seed=0)
    x = numbers(0, 40, 8)
    layer(x, dense)
    randomize(layer)
    np.testing.assert_array_equal(layer(x, dense), layer(x, dense))
    update = (layer(x, dense, training=True) - dense(x)).numpy()
    assert not np.allclose(update, (layer(x, dense) - dense(x)).numpy(), atol=1e-3)


@pytest.mark.parametrize("side", ["inputs", "outputs"])
def test_ia3_scales_what_goes_in_or_comes_out(side):
    dense = keras.layers.Dense(5)
    x = numbers(0, 2, 3, 8)
    plain = dense(x)
    layer = IA3Layer(8 if side == "inputs" else 5, side=side)
    np.testing.assert_array_equal(layer(x, dense), plain)
    randomize(layer)
    expected = dense(x * layer.scale) if side == "inputs" else plain * layer.scale
    np.testing.assert_array_equal(layer(x, dense), expected)
    np.testing.assert_array_equal(layer(x, dense, gate=0.0), plain)


def test_fusion_attends_over_what_the_adapters_add():
    parts = {name: AdapterLayer(4, activation="relu", init_stddev=0.5, seed=seed) for seed, name in enumerate("ab")}
    layer = FusionLayer(parts, seed=0)
    h, x = numbers(0, 2, 3, 8), numbers(1, 2, 3, 8)
    layer(h, x)
    for weight in layer.learned:
        weight.assign(weight + 0.3 * numbers(2, *weight.shape))
    updates = np.stack([(adapter(h, inputs=x) - h).numpy() for adapter in parts.values()], -2)
    weights = {name: value.numpy() for name, value in layer.parts.items()}
    query = x.numpy() @ weights["query.kernel"] + weights["query.bias"]
    keys = updates @ weights["key.kernel"] + 0.7  # of a bias the softmax knows nothing
    scores = np.einsum("blad,bld->bla", keys, query)
    shares = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    expected = h + np.einsum("bla,blad->bld", shares, updates @ weights["value.kernel"])
    np.testing.assert_allclose(layer(h, x), expected, atol=1e-5)
    np.testing.assert_array_equal(layer(h, x, gate=0.0), h)


def test_fusion_starts_with_the_identity_for_values_and_is_held_near_it():
    layer = FusionLayer({name: AdapterLayer(4, seed=0) for name in "ab"}, value_regularization=0.5, seed=0)
    layer(numbers(0, 2, 8))
    np.testing.assert_allclose(layer.value_kernel, np.eye(8), atol=1.1e-6)
    layer.value_kernel.assign(3.0 * np.eye(8))
    (loss,) = layer.losses
    np.testing.assert_allclose(loss, 0.5 * 8 * 4.0)
    assert not FusionLayer({"a": AdapterLayer(4), "b": AdapterLayer(4)}, value_regularization=0).losses


def test_several_layers_stand_between_the_projections():
    layer = AdapterLayer(5, hidden_layers=3, activation="tanh", seed=0)
    x = numbers(0, 4, 8)
    layer(x)
    randomize(layer)
    inner = np.tanh(x.numpy() @ layer.down_kernel.numpy() + layer.down_bias.numpy())
    for number in (1, 2):
        kernel, bias = (getattr(layer, f"hidden_{number}_{part}").numpy() for part in ("kernel", "bias"))
        assert kernel.shape == (5, 5)
        inner = np.tanh(inner @ kernel + bias)
    np.testing.assert_allclose(layer(x), x + inner @ layer.up_kernel.numpy() + layer.up_bias.numpy(), atol=1e-5)


@pytest.mark.parametrize("where", ["before", "after"])
def test_the_inner_layer_norm_has_pytorchs_epsilon_and_starts_as_none(where):
    layer = AdapterLayer(5, inner_norm=where, activation="relu", init_stddev=0.3, seed=0)
    x = numbers(1, 4, 8) * 1e-2  # small, so that the epsilon is seen
    layer(x)
    randomize(layer)

    def normalised(x):
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
        return x * layer.norm_gamma.numpy() + layer.norm_beta.numpy()

    update = normalised(x.numpy()) if where == "before" else x.numpy()
    update = np.maximum(update @ layer.down_kernel.numpy() + layer.down_bias.numpy(), 0)
    update = update @ layer.up_kernel.numpy() + layer.up_bias.numpy()
    np.testing.assert_allclose(layer(x), x + (normalised(update) if where == "after" else update), atol=1e-5)


@pytest.mark.parametrize("scaling", [4.0, "learned"])
def test_scaling_and_multiplication(scaling):
    x, read = numbers(2, 4, 8), numbers(3, 4, 8)
    plain = AdapterLayer(5, init_stddev=0.3, seed=0)
    update = (plain(x, inputs=read) - x).numpy()
    scaled = AdapterLayer(5, init_stddev=0.3, seed=0, scaling=scaling)
    scaled(x)
    if scaling == "learned":
        np.testing.assert_array_equal(scaled(x, inputs=read), plain(x, inputs=read))
        scaled.learned_scaling.assign(4.0)
    np.testing.assert_allclose(scaled(x, inputs=read), x + 4.0 * update, atol=1e-5)
    product = AdapterLayer(5, init_stddev=0.3, seed=0, interaction="multiply")
    np.testing.assert_allclose(product(x, inputs=read), x * (1 + update), atol=1e-5)


@pytest.mark.parametrize("gate", [0.0, 1.0])
@pytest.mark.parametrize(
    "variant", [{}, dict(inner_norm="after"), dict(scaling=4.0), dict(interaction="multiply"), dict(hidden_layers=2)]
)
def test_the_gate_is_identity_or_adapter_bit_for_bit(variant, gate):
    layer = AdapterLayer(5, init_stddev=0.3, seed=0, **variant)
    x = numbers(4, 4, 8)
    layer(x)
    randomize(layer)
    np.testing.assert_array_equal(layer(x, gate=tf.constant(gate)), layer(x) if gate else x)


# In an encoder


def test_what_each_insertion_reads():
    model = tiny_model(num_hidden_layers=1)
    hidden, residual = numbers(5, 2, 3, 64), numbers(6, 2, 3, 32)
    for insertion in ("sequential", "after-norm", "parallel"):
        add_adapters(model, AdapterConfig(bottleneck_size=4, insertion=insertion, init_stddev=0.3), seed=0)
        site = state_of(model).sites[0, "ffn"]
        found = site(hidden, residual)
        y = site.dense(hidden)
        read = {"sequential": y, "after-norm": site.LayerNorm(y + residual), "parallel": residual}[insertion]
        expected = site.LayerNorm(y + (site.adapters["default"](read) - read) + residual)
        np.testing.assert_allclose(found, expected, atol=2e-6)
        remove_adapters(model)


def test_adapters_of_chosen_blocks_act_in_graphs_already_traced():
    model, inputs = tiny_model(num_hidden_layers=2), tiny_inputs()
    plain = model(inputs).logits
    add_adapters(model, STRONG, seed=0)
    traced = tf.function(lambda: model(inputs).logits)
    everywhere = traced()
    set_active(model, "default", blocks=[1])
    upper = add_adapters(tiny_model(num_hidden_layers=2), AdapterConfig(5, init_stddev=0.3, blocks=(1,)), seed=0)
    np.testing.assert_allclose(traced(), upper(inputs).logits, atol=1e-6)
    assert traced.experimental_get_tracing_count() == 1
    set_active(model, "default", blocks=[])
    np.testing.assert_allclose(traced(), plain, atol=1e-6)
    set_active(model, "default")
    np.testing.assert_array_equal(traced(), everywhere)
    message = r"blocks=\[1, 2\] must be a list of some of \[0, 1\], the blocks in which the adapter 'default' stands"
    with pytest.raises(InputError, match=message):
        set_active(model, "default", blocks=[1, 2])


@pytest.mark.parametrize("fast", [False, True])
def test_random_drop_leaves_out_the_lowest_blocks_of_a_step_and_none_in_inference(fast):
    model = tiny_model(num_hidden_layers=3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    inputs, expected, seen = tiny_inputs(), [], []
    add_adapters(model, AdapterConfig(bottleneck_size=5, init_stddev=0.3, random_drop=2), seed=0, fast=fast)
    for lowest in range(3):
        set_active(model, "default", blocks=range(lowest, 3))
        expected.append(model(inputs, training=False).logits.numpy())
    set_active(model, "default")
    step = tf.function(lambda: model(inputs, training=True).logits)
    for _ in range(40):
        logits = step().numpy()
        seen += [lowest for lowest in range(3) if np.allclose(logits, expected[lowest], atol=1e-6)]
    assert len(seen) == 40 and set(seen) == {0, 1, 2}
    np.testing.assert_allclose(model(inputs, training=False).logits, expected[0], atol=1e-6 if fast else 0)


@pytest.mark.nightly
def test_the_drops_of_two_runs_of_one_seed_are_the_same():
    from tf_adapters.training.step import seed_dropout

    runs = []
    for _ in range(2):
        model = add_adapters(tiny_model(), AdapterConfig(bottleneck_size=5, random_drop=3), seed=0)
        layers = seed_dropout(model, 7)
        drop = state_of(model).sites[0, "attention"].switch.drops["default"]
        runs.append([int((model(tiny_inputs(), training=True), drop.number)[1]) for _ in range(8)])
        # The state is among those that a run saves.
        source = state_of(model).sites[0, "attention"].drop_seeds_default
        assert any(layer is source for layer in layers)
    assert runs[0] == runs[1] and len(set(runs[0])) > 1


@pytest.mark.slow
@pytest.mark.parametrize("fast", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_methods_and_variants_on_one_model_are_switched_after_tracing(fast):
    configs = {"lora": LORA, "ia3": IA3Config(), "narrow": LoraConfig(2), "pfeiffer": PFEIFFER}
    configs |= {name: METHODS[name] for name in ("houlsby", "parallel", "deep")}
    model, other, inputs = tiny_model(), tiny_model(), tiny_inputs()
    names, plain = [weight.name for weight in model.weights], model(inputs).logits
    for name, config in configs.items():
        move_layers(add_adapters(model, config, name=name, seed=0, fast=fast), name)
    traced = tf.function(lambda: model(inputs).logits)
    for name, config in configs.items():
        set_active(model, name)
        alone = move_layers(add_adapters(other, config, seed=0))(inputs).logits
        np.testing.assert_allclose(traced(), alone, atol=1e-5 if fast else 2e-6)
        remove_adapters(other)
    with disable_adapters(model):
        np.testing.assert_allclose(traced(), plain, atol=2e-6)
    assert traced.experimental_get_tracing_count() == 1
    remove_adapters(model)
    assert [weight.name for weight in model.weights] == names
    np.testing.assert_array_equal(model(inputs).logits, plain)


def test_fast_blocks_compute_lora_by_one_more_product(monkeypatch):
    inputs, logits, gradients = tiny_inputs(), [], []
    for fast in (False, True):
        model = tiny_model(num_hidden_layers=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        move_layers(add_adapters(model, LoraConfig(3, alpha=6), seed=0, fast=fast))
        set_trainable(model, "adapters")
        if fast:
            slow = type(model.bert.encoder.layer[0].attention.self_attention).__mro__[2]
            monkeypatch.setattr(slow, "call", lambda *given, **options: pytest.fail("the plain attention was computed"))
        with tf.GradientTape() as tape:
            logits.append(model(inputs, training=True).logits)
            loss = tf.reduce_sum(logits[-1] ** 2)
        gradients.append(tape.gradient(loss, model.trainable_variables))
    np.testing.assert_allclose(*logits, atol=1e-5)
    for one, other in zip(*gradients):
        np.testing.assert_allclose(one, other, atol=1e-5)


# Merging


_MERGED = {"lora": LORA, "narrow": LoraConfig(rank=2), "ia3": IA3Config(), "upper ia3": IA3Config(blocks=(1, 3))}


@pytest.mark.parametrize(
    "config, fast",
    nightly_but(
        [("lora", False), ("narrow", True), ("ia3", False)],
        [(config, fast) for config in _MERGED for fast in (False, True)],
    ),
)
def test_a_merged_model_is_a_plain_one_that_computes_the_same(config, fast):
    # Of a family's model no bias is zero.
    model, inputs = family_model("bert", num_hidden_layers=4), family_inputs("bert")
    plain = model(inputs).logits
    names, digest = [weight.name for weight in model.weights], backbone_digest(model)
    move_layers(add_adapters(model, _MERGED[config], seed=0, fast=fast))
    model.classifier.kernel.assign(model.classifier.kernel * 2.0)
    expected = model(inputs).logits
    assert not np.allclose(expected, plain, atol=1e-3)
    assert merge_adapter(model) is model
    np.testing.assert_allclose(model(inputs).logits, expected, atol=2e-6)
    assert [weight.name for weight in model.weights] == names and not state_of(model).adapters
    assert type(model.bert.encoder.layer[0]).__name__ == "TFBertLayer"
    assert backbone_digest(model) != digest


@pytest.mark.parametrize("fast", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_while_a_graph_is_traced_the_weights_hold_the_update_and_other_graphs_compute_as_before(fast):
    changes, inputs = {"num_hidden_layers": 1, "hidden_size": 16}, tiny_inputs()

    def products(function):
        operations = [node.type for node in function.get_concrete_function().graph.get_operations()]
        return sum(name in ("MatMul", "Einsum", "BatchMatMulV2") for name in operations)

    model = trained(LORA, **changes)
    if fast:
        remove_adapters(model)
        move_layers(add_adapters(model, LORA, seed=0, fast=True))
    graph = tf.function(lambda: model(inputs).logits)
    expected, weights = graph().numpy(), [variable.numpy() for variable in model.weights]
    with merged(model):
        assert np.array_equal(graph(), expected)
        function = tf.function(lambda: model(inputs).logits)
        np.testing.assert_allclose(function(), expected, atol=1e-5)
        assert products(function) < products(graph)
        assert all(np.array_equal(variable, before) for variable, before in zip(model.weights, weights))
    assert np.array_equal(graph(), expected)


def test_what_cannot_be_merged_is_named(float32_policy):
    from tf_adapters import cast_frozen

    model = tiny_model(num_hidden_layers=1)
    with pytest.raises(InputError, match="no adapter to merge"):
        merge_adapter(model)
    with pytest.raises(InputError, match="method 'bottleneck' is no update"):
        merge_adapter(add_adapters(model, PFEIFFER))
    remove_adapters(model)
    for name in ("default", "second"):
        add_adapters(model, LORA, name=name)
    with pytest.raises(InputError, match="other adapters \\('default'\\)"):
        merge_adapter(model)
    float32_policy("mixed_bfloat16")
    cast = set_trainable(trained(LORA, num_hidden_layers=1), "adapters")
    cast_frozen(cast)
    with pytest.raises(InputError, match="merge_adapter\\(model\\) needs the encoder's float32 weights"):
        merge_adapter(cast)


# Fusion


@pytest.fixture(scope="module")
def saved_adapters(tmp_path_factory):
    folder, model = tmp_path_factory.mktemp("fused"), tiny_model()
    for number, name in enumerate(("news", "mail")):
        set_trainable(move_layers(add_adapters(model, PFEIFFER, seed=0), seed=10 * number), "adapters")
        save_adapter(model, folder / name)
        remove_adapters(model)
    return {name: folder / name for name in ("news", "mail")}


@pytest.mark.slow
def test_saved_adapters_are_fused_trained_and_saved_together(saved_adapters, tmp_path):
    model, inputs = tiny_model(num_labels=3), tiny_inputs()
    fuse_adapters(model, saved_adapters, seed=0)
    layer, alone = state_of(model).adapters["fusion"].layers["layer.2.ffn"], tiny_model()
    load_adapter(alone, saved_adapters["mail"])
    kept = state_of(alone).adapters["default"].layers["layer.2.ffn"].down_kernel
    np.testing.assert_array_equal(layer.adapters["mail"].down_kernel, kept)
    set_trainable(model, "adapters")
    found = [variable.name for variable in model.trainable_variables if variable.name.startswith("adapters/")]
    names = {name.split("/", 3)[-1] for name in found}
    assert names == {"query/kernel:0", "query/bias:0", "key/kernel:0", "value/kernel:0"}, names
    assert parameter_counts(model).adapter == FusionConfig({"a": PFEIFFER, "b": PFEIFFER}).parameters(4, 32)
    frozen = {name: weight.numpy() for name, weight in layer.parts.items() if name.startswith("adapters.")}
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-2), loss, run_eagerly=True)
    before = model(inputs).logits
    model.fit(tf.data.Dataset.from_tensors((inputs, tf.constant([0, 1, 2]))).repeat(3), verbose=0)
    assert not np.allclose(model(inputs).logits, before, atol=1e-3)
    for name, value in frozen.items():
        np.testing.assert_array_equal(layer.parts[name], value)
    save_adapter(model, tmp_path / "fused")
    other = tiny_model(num_labels=3)
    load_adapter(other, tmp_path / "fused")
    np.testing.assert_array_equal(other(inputs).logits, model(inputs).logits)


def test_what_cannot_be_fused_is_named(saved_adapters, tmp_path):
    model = tiny_model()
    with pytest.raises(InputError, match="at least two"):
        fuse_adapters(model, {"news": saved_adapters["news"]})
    for name, config in (("lora", LORA), ("houlsby", AdapterConfig(4, train_layer_norm="none"))):
        save_adapter(set_trainable(add_adapters(model, config, name=name), "adapters"), tmp_path / name)
    set_trainable(model, "layer-norm")
    state_of(model).sites[0, "ffn"].LayerNorm.gamma.assign_add(numbers(0, 32))
    save_adapter(model, tmp_path / "norms")
    remove_adapters(model)
    for name, message in {
        "houlsby": "'news' has placement='ffn', and 'houlsby' 'both'",
        "norms": "came with LayerNorms or weights of the encoder",
        "lora": "holds lora: bottleneck adapters are fused",
    }.items():
        with pytest.raises(InputError, match=message):
            fuse_adapters(model, {**saved_adapters, name: tmp_path / name})


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: LoraConfig(rank=0), "rank=0 must be an integer of at least 1"),
        (lambda: LoraConfig(alpha=-1), "alpha=-1 must be a number above 0"),
        (lambda: LoraConfig(targets=("q",)), "targets=.*'q'.* must be some of 'query', 'key'"),
        (lambda: LoraConfig(dropout=1.0), "dropout=1.0 must be a number of at least 0 and below 1"),
        (lambda: LoraConfig(train_layer_norm="some"), "train_layer_norm='some'"),
        (lambda: IA3Config(blocks=()), "blocks=\\(\\) must hold at least one index"),
        (lambda: config_from_dict({"method": "vera"}), "method='vera' is unknown: .*'lora'"),
        (lambda: config_from_dict({"method": "lora", "r": 8}), "Unknown adapter config key 'r'"),
        (lambda: FusionConfig({"a.b": PFEIFFER, "c": PFEIFFER}), "the name 'a.b' must have no '.'"),
        (lambda: AdapterConfig(insertion="serial"), "insertion='serial'"),
        (lambda: AdapterConfig(scaling=0), "scaling=0"),
        (lambda: AdapterConfig(scaling="fixed"), "scaling='fixed'"),
        (lambda: AdapterConfig(hidden_layers=0), "hidden_layers=0"),
        (lambda: AdapterConfig(inner_norm="both"), "inner_norm='both'"),
        (lambda: AdapterConfig(interaction="divide"), "interaction='divide'"),
        (lambda: AdapterConfig(random_drop=-1), "random_drop=-1"),
    ],
)
def test_values_that_are_none_are_named(make, message):
    with pytest.raises(InputError, match=message):
        make()


# The command line


def without_size(arguments, *options):
    """The arguments of a short training, for a recipe that has no size."""
    return [*(one for one in arguments if not one.startswith(("--adapter-size", "--epochs"))), *options]


@pytest.mark.slow
def test_the_command_trains_lora_and_exports_it_merged(cli, train_arguments, tmp_path):
    options = "--recipe hu-2022 --rank 2 --targets query,output --epochs 1".split()
    done = cli(*without_size(train_arguments, *options), "--output", tmp_path / "saved")
    assert done.status == 0, done.err
    expected = {"method": "lora", "rank": 2, "alpha": 2.0, "targets": ["query", "output"]}
    assert expected.items() <= read_adapter_settings(tmp_path / "saved").items()
    predicted = cli("predict", tmp_path / "saved", "--input", "-", stdin=b"a great film\na dull plot\n")
    expected = [list(row["probabilities"].values()) for row in predicted.rows()]
    assert cli("export", tmp_path / "saved", "--output", tmp_path / "film" / "1").status == 0
    served = tf.saved_model.load(str(tmp_path / "film" / "1"))
    names = [variable.name for variable in served.read]
    assert names and not any("/query/a" in name or "/output/b" in name for name in names)
    answers = served.signatures["serving_default"](text=tf.constant(["a great film", "a dull plot"]))
    np.testing.assert_allclose(answers["probabilities"], expected, atol=1e-5)


@pytest.mark.nightly
def test_the_command_fuses_adapters_that_were_trained(cli, train_arguments, tmp_path):
    arguments = without_size(train_arguments, "--epochs=1")
    for seed, name in enumerate(("one", "two")):
        options = f"--recipe pfeiffer-2021 --adapter-size 4 --seed {seed}".split()
        assert cli(*arguments, *options, "--output", tmp_path / name).status == 0
    fused = cli(*arguments, "--fuse", tmp_path / "one", "--fuse", tmp_path / "two", "--output", tmp_path / "both")
    assert fused.status == 0, fused.err
    settings = json.loads((tmp_path / "both" / "tf_adapters.json").read_text())
    assert settings["adapter"]["method"] == "fusion" and set(settings["adapter"]["adapters"]) == {"one", "two"}
    assert settings["parameters"]["adapter"] == 2 * (3 * 32 + 1) * 32
    assert cli("predict", tmp_path / "both", "--input", "-", stdin=b"a great film\n").status == 0


@pytest.mark.nightly
def test_variants_are_options_of_the_command(cli, train_arguments, tmp_path):
    options = "--insertion parallel --scaling 4 --hidden-layers 2 --inner-norm before --placement ffn --random-drop 1"
    assert cli(*train_arguments, *options.split(), "--epochs", 1, "--output", tmp_path / "saved").status == 0
    expected = {"insertion": "parallel", "scaling": 4.0, "hidden_layers": 2, "inner_norm": "before", "random_drop": 1}
    assert expected.items() <= read_adapter_settings(tmp_path / "saved").items()


def test_options_that_a_method_has_not_are_named(cli, train_arguments, tmp_path):
    arguments = without_size(train_arguments, "--epochs=2", "--output", tmp_path / "x")
    for options, message in {
        "--recipe hu-2022 --adapter-size 4": "--bottleneck-size is no setting of the method of --recipe hu-2022 (lora)",
        "--rank 4": "--rank is no setting of the method of --recipe default (bottleneck)",
        "--recipe hu-2022 --rank 0": "--rank 0 must be an integer of at least 1",
        "--recipe hu-2022 --targets q,v": "--targets ('q', 'v') must be some of 'query'",
        "--insertion serial": "--insertion serial is unknown: use one of sequential",
        "--fuse one": "--fuse needs two directories or more",
        "--fuse one --fuse two --rank 2": "--rank is of new adapters, and --fuse takes trained ones",
        f"--fuse {tmp_path}/one --fuse {tmp_path}/two": "one: there is no such directory",
    }.items():
        refused = cli(*arguments, *options.split())
        assert refused.status == 2 and message in refused.err, refused.err
        assert not (tmp_path / "x").exists()
