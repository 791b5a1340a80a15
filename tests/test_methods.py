"""What each method does in an encoder: what it drops, how it merges and is fused. tests/test_table.py
has what all share, and tests/test_layers.py what their layers compute."""

import json

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import is_refused, randomize, tiny_inputs, tiny_model
from tests.families import family_inputs, family_model
from tests.table import PFEIFFER
from tf_adapters import (
    AdapterBank,
    AdapterConfig,
    LoraConfig,
    add_adapters,
    load_adapter,
    merge_adapter,
    parameter_counts,
    remove_adapters,
    save_adapter,
    set_active,
    set_trainable,
)
from tf_adapters.config import DENSE_PLACES
from tf_adapters.methods import DoraConfig, FusionConfig, IA3Config, config_from_dict
from tf_adapters.models import backbone_digest, cast_frozen
from tf_adapters.models.injection import merged
from tf_adapters.models.state import state_of
from tf_adapters.saving import fuse_adapters
from tf_adapters.serving.export import _stored_as

LORA = LoraConfig(rank=3, alpha=6, targets=DENSE_PLACES)
INPUTS = tiny_inputs()


def numbers(seed, *shape):
    return tf.constant(np.random.default_rng(seed).standard_normal(shape), tf.float32)


def move_layers(model, name="default", seed=0):
    """Give each of an adapter's layers other values, and no other weight of the model."""
    for number, layer in enumerate(state_of(model).adapters[name].layers.values()):
        randomize(layer, seed + number)
    return model


def trained(config, **changes):
    """A tiny model whose adapter is not at its start."""
    return move_layers(add_adapters(tiny_model(**changes), config, seed=0), seed=1)


@pytest.mark.parametrize("fast", [False, True])
def test_random_drop_leaves_out_the_lowest_blocks_of_a_step_and_none_in_inference(fast):
    model = tiny_model(num_hidden_layers=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    expected, seen = [], []
    add_adapters(model, AdapterConfig(bottleneck_size=5, init_stddev=0.3, random_drop=1), seed=0, fast=fast)
    for lowest in range(2):
        set_active(model, "default", blocks=range(lowest, 2))
        expected.append(model(INPUTS, training=False).logits.numpy())
    set_active(model, "default")
    step = tf.function(lambda: model(INPUTS, training=True).logits)
    for _ in range(20):
        logits = step().numpy()
        seen += [lowest for lowest in range(2) if np.allclose(logits, expected[lowest], atol=1e-6)]
    assert len(seen) == 20 and set(seen) == {0, 1}
    np.testing.assert_allclose(model(INPUTS, training=False).logits, expected[0], atol=1e-6 if fast else 0)


# Merging


@pytest.mark.parametrize(
    "config, fast",
    [(LORA, False), (LoraConfig(rank=2), True), (DoraConfig(rank=2), False), (IA3Config(blocks=(1,)), False)],
    ids=["lora", "narrow", "dora", "ia3"],
)
def test_a_merged_model_is_a_plain_one_that_computes_the_same(config, fast):
    # Of a family's model no bias is zero.
    model, inputs = family_model("bert", num_hidden_layers=2), family_inputs("bert")
    model.config.id2label, state_of(model).source = {0: "ham", 1: "spam"}, "here"
    plain, names, digest = model(inputs).logits, [weight.name for weight in model.weights], backbone_digest(model)
    # LayerNorms and head are others too.
    randomize(add_adapters(model, config, seed=0, fast=fast), scale=0.2)
    expected = model(inputs).logits
    assert not np.allclose(expected, plain, atol=1e-3)
    assert merge_adapter(model) is model and state_of(model).source is None
    np.testing.assert_allclose(model(inputs).logits, expected, atol=1e-5)
    assert [weight.name for weight in model.weights] == names and not state_of(model).adapters
    block = model.bert.encoder.layer[0]
    assert [type(one).__name__ for one in (block, block.attention.dense_output)] == ["TFBertLayer", "TFBertSelfOutput"]
    assert backbone_digest(model) != digest and model.config.id2label == {0: "ham", 1: "spam"}


def test_while_a_graph_is_traced_the_weights_hold_the_update_and_other_graphs_compute_as_before():
    def products(function):
        operations = [node.type for node in function.get_concrete_function().graph.get_operations()]
        return sum(name in ("MatMul", "Einsum", "BatchMatMulV2") for name in operations)

    model = trained(LORA, num_hidden_layers=1, hidden_size=16)
    graph = tf.function(lambda: model(INPUTS).logits)
    expected, weights = graph().numpy(), [variable.numpy() for variable in model.weights]
    count = len(_stored_as(model, "bfloat16"))
    with merged(model):
        assert len(_stored_as(model, "bfloat16")) == count  # those in whose place others are read are left out
        assert np.array_equal(graph(), expected)
        function = tf.function(lambda: model(INPUTS).logits)
        np.testing.assert_allclose(function(), expected, atol=1e-5)
        assert products(function) < products(graph)
        assert all(np.array_equal(variable, before) for variable, before in zip(model.weights, weights))
    assert np.array_equal(graph(), expected)


def test_what_cannot_be_merged_is_named(float32_policy):
    model = tiny_model(num_hidden_layers=1)
    is_refused("no adapter to merge", merge_adapter, model)
    is_refused("method 'bottleneck' is no update", merge_adapter, add_adapters(model, PFEIFFER))
    add_adapters(model, LORA, name="second")
    is_refused("other adapters \\('default'\\)", merge_adapter, model)
    float32_policy("mixed_bfloat16")
    cast = cast_frozen(set_trainable(trained(LORA, num_hidden_layers=1), "adapters"))
    is_refused("merge_adapter\\(model\\) needs the encoder's float32 weights", merge_adapter, cast)


# Fusion


@pytest.fixture(scope="module")
def saved_adapters(tmp_path_factory):
    folder, model = tmp_path_factory.mktemp("fused"), tiny_model()
    for number, name in enumerate(("news", "mail")):
        set_trainable(move_layers(add_adapters(model, PFEIFFER, seed=0), seed=10 * number), "adapters")
        save_adapter(model, folder / name)
        remove_adapters(model)
    return {name: folder / name for name in ("news", "mail")}


def test_saved_adapters_are_fused_trained_and_saved_together(saved_adapters, tmp_path):
    model = tiny_model(num_labels=3)
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
    for variable in model.trainable_variables:
        variable.assign_add(0.1 * numbers(0, *variable.shape))
    save_adapter(model, tmp_path / "fused")
    other = tiny_model(num_labels=3)
    load_adapter(other, tmp_path / "fused")
    np.testing.assert_array_equal(other(INPUTS).logits, model(INPUTS).logits)


def test_what_cannot_be_fused_is_named(saved_adapters, tmp_path):
    model = tiny_model()
    is_refused("at least two", fuse_adapters, model, {"news": saved_adapters["news"]})
    config = AdapterConfig(4, train_layer_norm="none")
    save_adapter(set_trainable(add_adapters(model, config, name="houlsby"), "adapters"), tmp_path / "houlsby")
    set_trainable(model, "layer-norm")
    state_of(model).sites[0, "ffn"].LayerNorm.gamma.assign_add(numbers(0, 32))
    save_adapter(model, tmp_path / "norms")
    remove_adapters(model)
    for name, message in {
        "houlsby": "'news' has placement='ffn', and 'houlsby' 'both'",
        "norms": "came with LayerNorms or weights of the encoder",
    }.items():
        is_refused(message, fuse_adapters, model, {**saved_adapters, name: tmp_path / name})


def test_values_that_are_none_are_named():
    for make, message in (
        (lambda: LoraConfig(rank=0), "rank=0 must be an integer of at least 1"),
        (lambda: LoraConfig(targets=("q",)), "targets=.*'q'.* must be some of 'query', 'key'"),
        (lambda: IA3Config(blocks=()), "blocks=\\(\\) must hold at least one index"),
        (lambda: config_from_dict({"method": "vera"}), "method='vera' is unknown: .*'lora'"),
        (lambda: config_from_dict({"method": "lora", "r": 8}), "Unknown adapter config key 'r'"),
        (lambda: FusionConfig({"a.b": PFEIFFER, "c": PFEIFFER}), "the name 'a.b' must have no '.'"),
        (lambda: AdapterConfig(insertion="serial"), "insertion='serial'"),
        (lambda: AdapterConfig(scaling=0), "scaling=0"),
    ):
        is_refused(message, make)


# The command line


def without_size(arguments, *options):
    """The arguments of a short training, for a recipe that has no size."""
    return [*(one for one in arguments if not one.startswith(("--adapter-size", "--epochs"))), *options]


@pytest.mark.slow
def test_the_command_trains_low_rank_updates_and_exports_them_merged(cli, train_arguments, tmp_path):
    recipe = "--recipe hu-2022 --rank 2 --targets query,output --epochs=1".split()
    done = cli(*without_size(train_arguments, *recipe), "--output", tmp_path / "saved")
    assert done.status == 0, done.err
    saved = json.loads((tmp_path / "saved" / "tf_adapters.json").read_text())["adapter"]
    assert {"method": "lora", "rank": 2, "alpha": 2.0, "targets": ["query", "output"]}.items() <= saved.items()
    predicted = cli("predict", tmp_path / "saved", "--input", "-", stdin=b"a great film\na dull plot\n")
    expected = [list(row["probabilities"].values()) for row in predicted.rows()]
    assert cli("export", tmp_path / "saved", "--output", tmp_path / "film" / "1").status == 0
    served = tf.saved_model.load(str(tmp_path / "film" / "1"))
    names = [variable.name for variable in served.read]
    assert names and not any("/query/a" in name or "/output/b" in name for name in names)
    answers = served.signatures["serving_default"](text=tf.constant(["a great film", "a dull plot"]))
    np.testing.assert_allclose(answers["probabilities"], expected, atol=1e-5)
    bank = AdapterBank(train_arguments[1].partition("=")[2])
    bank.add("a", tmp_path / "saved")
    answers = bank.answer(["a great film", "a dull plot"], "a")
    np.testing.assert_allclose(answers["probabilities"], expected, atol=1e-5)


def test_options_that_a_method_has_not_are_named(refused, train_arguments, tmp_path):
    arguments = without_size(train_arguments, "--epochs=2", "--output", tmp_path / "x")
    for options, message in {
        "--recipe hu-2022 --adapter-size 4": "--bottleneck-size is no setting of the method of --recipe hu-2022 (lora)",
        "--recipe hu-2022 --targets q,v": "--targets ('q', 'v') must be some of 'query'",
        "--fuse one": "--fuse needs two directories or more",
        "--fuse one --fuse two --rank 2": "--rank is of new adapters, and --fuse takes trained ones",
        f"--fuse {tmp_path}/one --fuse {tmp_path}/two": "one: there is no such directory",
    }.items():
        refused(*arguments, *options.split(), says=message)
