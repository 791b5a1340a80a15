"""LoRA, (IA)^3 and AdapterFusion: what each computes, merges, trains and saves."""

import json

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import randomize, tiny_inputs, tiny_model
from tests.families import family_inputs, family_model
from tests.test_variants import numbers
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

PFEIFFER = AdapterConfig(
    bottleneck_size=4,
    insertion="after-norm",
    placement="ffn",
    activation="relu",
    init_stddev=0.3,
    train_layer_norm="none",
)
LORA = LoraConfig(rank=3, alpha=6, targets=DENSE_PLACES)


def trained(config, seed=1, **changes):
    """A tiny model whose adapter is not at its start."""
    model = tiny_model(**changes)
    add_adapters(model, config, seed=0)
    for number, layer in enumerate(state_of(model).adapters["default"].layers.values()):
        randomize(layer, seed + number)
    return model


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


@pytest.mark.parametrize("config", [LORA, LoraConfig(rank=2), IA3Config(), IA3Config(blocks=(1, 3))], ids=str)
@pytest.mark.parametrize("fast", [False, True])
def test_a_merged_model_is_a_plain_one_that_computes_the_same(config, fast):
    # Of a family's model no bias is zero.
    model, inputs = family_model("bert", num_hidden_layers=4), family_inputs("bert")
    plain = model(inputs).logits
    names, digest = [weight.name for weight in model.weights], backbone_digest(model)
    add_adapters(model, config, seed=0, fast=fast)
    for number, layer in enumerate(state_of(model).adapters["default"].layers.values()):
        randomize(layer, number)
    model.classifier.kernel.assign(model.classifier.kernel * 2.0)
    expected = model(inputs).logits
    assert not np.allclose(expected, plain, atol=1e-3)
    assert merge_adapter(model) is model
    np.testing.assert_allclose(model(inputs).logits, expected, atol=2e-6)
    assert [weight.name for weight in model.weights] == names and not state_of(model).adapters
    assert type(model.bert.encoder.layer[0]).__name__ == "TFBertLayer"
    assert backbone_digest(model) != digest


@pytest.mark.nightly
def test_while_a_graph_is_traced_the_weights_may_hold_the_update_and_come_back_bit_for_bit():
    model, inputs = trained(LORA), tiny_inputs()
    before = {weight.name: weight.numpy() for weight in model.weights}
    expected = model(inputs).logits
    with merged(model):
        function = tf.function(lambda: model(inputs).logits)
        operations = [node.type for node in function.get_concrete_function().graph.get_operations()]
        np.testing.assert_allclose(function(), expected, atol=2e-6)
    other = tiny_model()
    plain = tf.function(lambda: other(inputs).logits).get_concrete_function().graph.get_operations()
    assert operations.count("MatMul") == [node.type for node in plain].count("MatMul")
    for weight in model.weights:
        np.testing.assert_array_equal(weight, before[weight.name])
    np.testing.assert_array_equal(model(inputs).logits, expected)


def test_what_cannot_be_merged_is_named(float32_policy):
    with pytest.raises(InputError, match="no adapter to merge"):
        merge_adapter(tiny_model())
    with pytest.raises(InputError, match="method 'bottleneck' is no update"):
        merge_adapter(trained(PFEIFFER))
    several = trained(LORA)
    add_adapters(several, LORA, name="second")
    with pytest.raises(InputError, match="other adapters \\('default'\\)"):
        merge_adapter(several)
    float32_policy("mixed_bfloat16")
    from tf_adapters import cast_frozen

    cast = trained(LORA)
    set_trainable(cast, "adapters")
    cast_frozen(cast)
    with pytest.raises(InputError, match="merge_adapter\\(model\\) needs the encoder's float32 weights"):
        merge_adapter(cast)


@pytest.mark.parametrize("config", [LORA, IA3Config(train_layer_norm="encoder")], ids=["lora", "ia3"])
def test_methods_train_alone_are_saved_and_counted(config, tmp_path):
    model, inputs = trained(config), tiny_inputs()
    set_trainable(model, "adapters")
    state = state_of(model)
    own = {weight.name for weight in state.adapter_variables()}
    norms = {weight.name for weight in state.layer_norm_variables(model, config.train_layer_norm)}
    head = {f"{model.name}/classifier/{part}:0" for part in ("kernel", "bias")}
    assert {variable.name for variable in model.trainable_variables} == own | norms | head
    assert parameter_counts(model).adapter == config.parameters(4, 32, 64)
    save_adapter(model, tmp_path / "saved")
    saved = json.loads((tmp_path / "saved" / "tf_adapters.json").read_text())["adapter"]
    assert saved["method"] == config.method and config_from_dict(saved) == config
    other = tiny_model()
    load_adapter(other, tmp_path / "saved")
    np.testing.assert_array_equal(other(inputs).logits, model(inputs).logits)


@pytest.mark.slow
@pytest.mark.parametrize("fast", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_methods_and_adapters_on_one_model_are_switched_after_tracing(fast):
    model, inputs = tiny_model(), tiny_inputs()
    names, plain = [weight.name for weight in model.weights], model(inputs).logits
    configs = {
        "bottleneck": AdapterConfig(4, init_stddev=0.3),
        "lora": LORA,
        "ia3": IA3Config(),
        "narrow": LoraConfig(2),
    }
    for name, config in configs.items():
        add_adapters(model, config, name=name, seed=0, fast=fast)
        for number, layer in enumerate(state_of(model).adapters[name].layers.values()):
            randomize(layer, number)
    traced = tf.function(lambda: model(inputs).logits)
    for name, config in configs.items():
        set_active(model, name)
        np.testing.assert_allclose(traced(), trained(config, seed=0)(inputs).logits, atol=2e-6)
    with disable_adapters(model):
        np.testing.assert_allclose(traced(), plain, atol=2e-6)
    assert traced.experimental_get_tracing_count() == 1
    remove_adapters(model)
    assert [weight.name for weight in model.weights] == names
    np.testing.assert_array_equal(model(inputs).logits, plain)


def test_fast_blocks_compute_lora_by_one_more_product(monkeypatch):
    inputs, logits, gradients = tiny_inputs(), [], []
    for fast in (False, True):
        model = tiny_model(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        add_adapters(model, LoraConfig(3, alpha=6), seed=0, fast=fast)
        for number, layer in enumerate(state_of(model).adapters["default"].layers.values()):
            randomize(layer, number)
        set_trainable(model, "adapters")
        if fast:
            slow = type(model.bert.encoder.layer[0].attention.self_attention).__mro__[2]
            monkeypatch.setattr(
                slow, "call", lambda *arguments, **options: pytest.fail("the plain attention was computed")
            )
        with tf.GradientTape() as tape:
            logits.append(model(inputs, training=True).logits)
            loss = tf.reduce_sum(logits[-1] ** 2)
        gradients.append(tape.gradient(loss, model.trainable_variables))
    np.testing.assert_allclose(*logits, atol=1e-5)
    for one, other in zip(*gradients):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.fixture(scope="module")
def saved_adapters(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fused")
    for number, name in enumerate(("news", "mail")):
        model = trained(PFEIFFER, seed=10 * number)
        set_trainable(model, "adapters")
        save_adapter(model, folder / name)
    return {name: folder / name for name in ("news", "mail")}


@pytest.mark.slow
def test_saved_adapters_are_fused_trained_and_saved_together(saved_adapters, tmp_path):
    model, inputs = tiny_model(num_labels=3), tiny_inputs()
    fuse_adapters(model, saved_adapters, seed=0)
    state = state_of(model)
    layer = state.adapters["fusion"].layers["layer.2.ffn"]
    alone = tiny_model()
    load_adapter(alone, saved_adapters["mail"])
    np.testing.assert_array_equal(
        layer.adapters["mail"].down_kernel, state_of(alone).adapters["default"].layers["layer.2.ffn"].down_kernel
    )
    set_trainable(model, "adapters")
    names = {
        variable.name.split("/", 3)[-1]
        for variable in model.trainable_variables
        if variable.name.startswith("adapters/")
    }
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
    with pytest.raises(InputError, match="at least two"):
        fuse_adapters(tiny_model(), {"news": saved_adapters["news"]})
    model = trained(AdapterConfig(4, train_layer_norm="none"))
    set_trainable(model, "adapters")
    save_adapter(model, tmp_path / "houlsby")
    with pytest.raises(InputError, match="'news' has placement='ffn', and 'houlsby' 'both'"):
        fuse_adapters(tiny_model(), {**saved_adapters, "houlsby": tmp_path / "houlsby"})
    set_trainable(model, "layer-norm")
    state_of(model).sites[0, "ffn"].LayerNorm.gamma.assign_add(numbers(0, 32))
    save_adapter(model, tmp_path / "norms")
    with pytest.raises(InputError, match="came with LayerNorms or weights of the encoder"):
        fuse_adapters(tiny_model(), {**saved_adapters, "norms": tmp_path / "norms"})
    model = trained(LORA)
    set_trainable(model, "adapters")
    save_adapter(model, tmp_path / "lora")
    with pytest.raises(InputError, match="holds lora: bottleneck adapters are fused"):
        fuse_adapters(tiny_model(), {**saved_adapters, "lora": tmp_path / "lora"})


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
    ],
)
def test_values_that_are_none_are_named(make, message):
    with pytest.raises(InputError, match=message):
        make()


# The command line


@pytest.mark.slow
def test_the_command_trains_lora_and_exports_it_merged(cli, train_arguments, tmp_path):
    arguments = [argument for argument in train_arguments if not argument.startswith(("--adapter-size", "--epochs"))]
    options = [
        "--recipe",
        "hu-2022",
        "--rank",
        "2",
        "--targets",
        "query,output",
        "--epochs",
        "1",
        "--output",
        tmp_path / "saved",
    ]
    trained = cli(*arguments, *options)
    assert trained.status == 0, trained.err
    adapter = json.loads((tmp_path / "saved" / "tf_adapters.json").read_text())["adapter"]
    assert (adapter["method"], adapter["rank"], adapter["alpha"], adapter["targets"]) == (
        "lora",
        2,
        2.0,
        ["query", "output"],
    )
    predicted = cli("predict", tmp_path / "saved", "--input", "-", stdin=b"a great film\na dull plot\n")
    expected = [list(json.loads(line)["probabilities"].values()) for line in predicted.out.splitlines()]
    assert cli("export", tmp_path / "saved", "--output", tmp_path / "film" / "1").status == 0
    served = tf.saved_model.load(str(tmp_path / "film" / "1"))
    names = [variable.name for variable in served.read]
    assert names and not any("/query/a" in name or "/output/b" in name for name in names)
    answers = served.signatures["serving_default"](text=tf.constant(["a great film", "a dull plot"]))
    np.testing.assert_allclose(answers["probabilities"], expected, atol=1e-5)


@pytest.mark.nightly
def test_the_command_fuses_adapters_that_were_trained(cli, train_arguments, tmp_path):
    arguments = [
        argument for argument in train_arguments if not argument.startswith(("--adapter-size", "--epochs"))
    ] + ["--epochs", "1"]
    for name in ("one", "two"):
        trained = cli(
            *arguments,
            "--recipe",
            "pfeiffer-2021",
            "--adapter-size",
            "4",
            "--seed",
            str(len(name)),
            "--output",
            tmp_path / name,
        )
        assert trained.status == 0, trained.err
    fused = cli(*arguments, "--fuse", tmp_path / "one", "--fuse", tmp_path / "two", "--output", tmp_path / "both")
    assert fused.status == 0, fused.err
    settings = json.loads((tmp_path / "both" / "tf_adapters.json").read_text())
    assert settings["adapter"]["method"] == "fusion" and set(settings["adapter"]["adapters"]) == {"one", "two"}
    assert settings["parameters"]["adapter"] == 2 * (3 * 32 + 1) * 32
    assert cli("predict", tmp_path / "both", "--input", "-", stdin=b"a great film\n").status == 0


def test_options_that_a_method_has_not_are_named(cli, train_arguments, tmp_path):
    arguments = [argument for argument in train_arguments if not argument.startswith("--adapter-size")] + [
        "--output",
        tmp_path / "x",
    ]
    for options, message in (
        (
            ["--recipe", "hu-2022", "--adapter-size", "4"],
            "--adapter-size is no setting of the method of --recipe hu-2022 (lora)",
        ),
        (["--rank", "4"], "--rank is no setting of the method of --recipe default (bottleneck)"),
        (["--recipe", "hu-2022", "--rank", "0"], "--rank 0 must be an integer of at least 1"),
        (["--recipe", "hu-2022", "--targets", "q,v"], "--targets ('q', 'v') must be some of 'query'"),
        (["--insertion", "serial"], "--insertion serial is unknown: use one of 'sequential'"),
        (["--fuse", "one"], "--fuse needs two directories or more"),
        (["--fuse", "one", "--fuse", "two", "--rank", "2"], "--rank is of new adapters, and --fuse takes trained ones"),
        (["--fuse", tmp_path / "one", "--fuse", tmp_path / "two"], "one: there is no such directory"),
    ):
        refused = cli(*arguments, *options)
        assert refused.status == 2 and message in refused.err, refused.err
        assert not (tmp_path / "x").exists()


@pytest.mark.nightly
def test_variants_are_options_of_the_command(cli, train_arguments, tmp_path):
    options = "--insertion parallel --scaling 4 --hidden-layers 2 --inner-norm before --placement ffn --random-drop 1"
    assert cli(*train_arguments, *options.split(), "--epochs", 1, "--output", tmp_path / "saved").status == 0
    adapter = json.loads((tmp_path / "saved" / "tf_adapters.json").read_text())["adapter"]
    expected = {"insertion": "parallel", "scaling": 4.0, "hidden_layers": 2, "inner_norm": "before", "random_drop": 1}
    assert {name: adapter[name] for name in expected} == expected


@pytest.mark.parametrize("fast", [False, True])
def test_while_updates_are_merged_for_a_trace_other_graphs_compute_as_before(fast):
    model, inputs = tiny_model(num_hidden_layers=2), tiny_inputs()
    add_adapters(model, LoraConfig(rank=2), seed=0, fast=fast)
    randomize(model)
    graph = tf.function(lambda: model(inputs).logits)
    expected, weights = graph().numpy(), [variable.numpy() for variable in model.weights]
    with merged(model):
        assert np.array_equal(graph(), expected)
        np.testing.assert_allclose(tf.function(lambda: model(inputs).logits)(), expected, atol=1e-5)
        assert all(np.array_equal(variable, before) for variable, before in zip(model.weights, weights))
    assert np.array_equal(graph(), expected)
