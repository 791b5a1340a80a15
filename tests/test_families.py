"""Every family with every variant of adapter does what BERT's do; tests/families.py makes the models."""

import json

import numpy as np
import pytest
import tensorflow as tf

from tests.cases import nightly_but
from tests.conftest import VOCABULARY, randomize
from tests.families import FAMILIES, family_inputs, family_model, write_family_checkpoint
from tests.test_variants import VARIANTS
from tf_adapters import (
    AdapterConfig,
    FusionConfig,
    IA3Config,
    LoraConfig,
    add_adapters,
    load_adapter,
    load_backbone,
    load_tokenizer,
    remove_adapters,
    save_adapter,
    set_trainable,
)  # fmt: skip
from tf_adapters._keras import keras
from tf_adapters.config import DENSE_PLACES
from tf_adapters.errors import InputError
from tf_adapters.models.state import state_of
from tf_adapters.models.transformers.family import get_family
from tf_adapters.models.transformers.names import pytorch_name

CONFIGS = {
    "houlsby": AdapterConfig(bottleneck_size=4),
    **{variant: AdapterConfig(bottleneck_size=4, **fields) for variant, fields in VARIANTS.items()},
    "lora": LoraConfig(rank=4, targets=DENSE_PLACES),
    "ia3": IA3Config(),
    "fusion": FusionConfig({name: AdapterConfig(4, **VARIANTS["pfeiffer"]) for name in ("one", "two")}),
}
STARTS_AS_IT_WAS = ("lora", "ia3")
# RoBERTa under other names, and BERT, which has tests of its own; the whole product takes minutes.
ALIKE = ("bert", "camembert", "xlm-roberta")


EVERY = [(family, variant) for family in FAMILIES for variant in CONFIGS]
EACH = nightly_but(["distilbert", "roberta"], FAMILIES)
TRAINED = nightly_but([("albert", "pfeiffer"), ("distilbert", "lora"), ("roberta", "scaled")], EVERY)
COMPILED = nightly_but([("distilbert", "houlsby")], EVERY)
_HEADS = [(family, head) for family in FAMILIES for head in get_family(family).heads]
HEADS = nightly_but(
    [
        (family, head)
        for family, head in _HEADS
        if family == "distilbert" or (family not in ALIKE and head in ("classification", "masked-lm"))
    ],
    _HEADS,
)
FAST = [family for family in FAMILIES if get_family(family).fast_block_class is not None]


def logits_of(model, inputs, training=False):
    outputs = model(inputs, training=training)
    return outputs[0]


def zero_updates(model):
    """Adapters that add nothing: what is between them and the sum is zero."""
    for layer in {id(layer): layer for layer in state_of(model).adapters["default"].layers.values()}.values():
        for part, weight in layer.parts.items():
            if ".up." in f".{part}" or part in ("norm.beta", "b"):
                weight.assign(tf.zeros_like(weight))
            elif part == "scale":
                weight.assign(tf.ones_like(weight))


@pytest.mark.parametrize("family, head", HEADS)
def test_adapters_that_add_nothing_leave_every_head_bit_equal_and_go_without_a_trace(family, head, record_property):
    record_property("checks", "zero update bit-equal")
    model = family_model(family, head)
    inputs = family_inputs(family, choices=2 if head == "multiple-choice" else None)
    before = logits_of(model, inputs)
    add_adapters(model, AdapterConfig(bottleneck_size=4, init_stddev=0.3), seed=0)
    assert not np.allclose(logits_of(model, inputs), before, rtol=0, atol=1e-6)
    zero_updates(model)
    np.testing.assert_array_equal(logits_of(model, inputs), before)
    record_property("checks", "removal restores")
    set_trainable(model, "adapters")
    remove_adapters(model)
    np.testing.assert_array_equal(logits_of(model, inputs), before)
    assert all(variable.trainable for variable in model.trainable_variables) and len(model.trainable_variables) == len(
        model.weights
    )


@pytest.mark.parametrize("family, variant", TRAINED)
def test_every_variant_starts_near_the_identity_trains_alone_and_is_saved(family, variant, tmp_path, record_property):
    record_property("checks", "bounded start")
    model, inputs = family_model(family), family_inputs(family)
    before = logits_of(model, inputs)
    config = CONFIGS[variant]
    add_adapters(model, config, seed=0)
    change = np.abs(logits_of(model, inputs) - before).max()
    # A LayerNorm behind the up-projection makes its output large whatever the weights are.
    assert (change == 0) == (variant in STARTS_AS_IT_WAS) and change < (0.5 if variant == "norm-after" else 0.02)
    for weight in state_of(model).adapter_variables():
        weight.assign_add(tf.random.stateless_normal(weight.shape, (0, 1), stddev=0.1))
    assert np.abs(logits_of(model, inputs) - before).max() > 1e-6
    record_property("checks", "zero update bit-equal")
    zero_updates(model)
    np.testing.assert_array_equal(logits_of(model, inputs), before)
    record_property("checks", "frozen bit-equal after fit")
    set_trainable(model, "adapters")
    names = trained_names(model)
    frozen = {
        variable.name: variable.numpy() for variable in model.non_trainable_variables if variable.dtype.is_floating
    }
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-2), loss, run_eagerly=True)
    labels = tf.constant([0, 1, 1])
    model.fit(tf.data.Dataset.from_tensors((inputs, labels)).repeat(3), verbose=0)
    for variable in model.non_trainable_variables:
        if variable.name in frozen and "gate" not in variable.name:
            np.testing.assert_array_equal(variable, frozen[variable.name], err_msg=variable.name)
    record_property("checks", "exact trainable names")
    assert names == expected_names(model, config)
    record_property("checks", "saved and loaded bit-equal")
    save_adapter(model, tmp_path / "saved")
    other = family_model(family)
    load_adapter(other, tmp_path / "saved")
    np.testing.assert_array_equal(logits_of(other, inputs), logits_of(model, inputs))


def trained_names(model):
    return {pytorch_name(variable.name, variable.shape)[0] for variable in model.trainable_variables}


def expected_names(model, config):
    """What ought to train: the adapters' weights, the LayerNorms that the config names, the head."""
    state = state_of(model)
    learned = [weight for layer in state.adapters["default"].layers.values() for weight in layer.learned]
    adapters = {pytorch_name(weight.name, weight.shape)[0] for weight in learned}
    parts = len(set(config.sites(len(state.family.blocks(model))).values())) * len(
        next(iter(state.adapters["default"].layers.values())).learned
    )
    assert len(adapters) == parts
    prefix = model.base_model_prefix + "."
    norms = set()
    if config.train_layer_norm in ("encoder", "all"):
        norms = {
            name
            for name in (pytorch_name(variable.name, variable.shape)[0] for variable in model.weights)
            if name.startswith(prefix) and "norm" in name.lower().rsplit(".", 2)[1] and "embeddings" not in name
        } - {prefix + f"encoder.{part}LayerNorm.{which}" for part in ("", "conv.") for which in ("weight", "bias")}
        assert len(norms) == 4 * len(state.family.blocks(model))
    if config.train_layer_norm == "all":
        norms |= {f"{prefix}embeddings.LayerNorm.{which}" for which in ("weight", "bias")}
    head = {pytorch_name(weight.name, weight.shape)[0] for weight in model.weights if not inside(model, weight)}
    fresh = {
        pytorch_name(weight.name, weight.shape)[0] for layer in state.newly_initialized for weight in layer.weights
    }
    return adapters | norms | head | fresh


def inside(model, weight):
    return any(weight is other for other in state_of(model).family.main_layer(model).weights)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_block_of_its_own_for_every_depth_or_one_for_all(family):
    model = family_model(family)
    depth = len(state_of(model).family.blocks(model))
    assert depth == (1 if family == "albert" else 3) == get_family(family).depth(model.config)
    add_adapters(model, AdapterConfig(bottleneck_size=4), seed=0)
    assert len(state_of(model).adapters["default"].layers) == 2 * depth


def test_alberts_adapter_acts_at_every_depth_of_its_block():
    one, three = (family_model("albert", num_hidden_layers=depth) for depth in (1, 3))
    for model in (one, three):
        add_adapters(model, AdapterConfig(bottleneck_size=4, init_stddev=0.3), seed=0)
    calls = []
    layer = state_of(three).adapters["default"].layers["layer.0.ffn"]
    call = layer.call
    layer.call = lambda *arguments, **options: (calls.append(1), call(*arguments, **options))[1]
    logits_of(three, family_inputs("albert"))
    assert len(calls) == 3
    with pytest.raises(InputError, match="the encoder has 1 blocks"):
        add_adapters(three, AdapterConfig(blocks=(2,)), name="upper")


@pytest.mark.parametrize("family", FAMILIES)
def test_parameters_follow_from_the_configuration(family):
    model = family_model(family)
    main, wanted = get_family(family).main_layer(model), get_family(family).parameters(model.config)
    assert sum(int(tf.size(variable)) for variable in main.weights) == wanted["total"]
    norms = state_of(model).layer_norm_variables(model, "all")
    assert sum(int(tf.size(variable)) for variable in norms) == wanted["layer_norm"]["all"]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("bare", [False, True])
def test_checkpoints_in_pytorchs_names_are_read(family, bare, tmp_path):
    model = family_model(family, seed=3)
    write_family_checkpoint(model, tmp_path, bare=bare)
    loaded = load_backbone(tmp_path, num_labels=2)
    assert type(loaded) is type(model)
    main, other = (get_family(family).main_layer(each) for each in (model, loaded))
    for one, two in zip(main.weights, other.weights):
        np.testing.assert_array_equal(one, two, err_msg=one.name)
    assert state_of(model).digest(model) == state_of(loaded).digest(loaded)


def with_strong_adapter(family, variant):
    model = family_model(family)
    add_adapters(model, CONFIGS[variant], seed=0)
    for number, weight in enumerate(state_of(model).adapter_variables()):
        weight.assign_add(tf.random.stateless_normal(weight.shape, (0, number), stddev=0.1))
    return model


@pytest.mark.nightly
@pytest.mark.parametrize("family, variant", COMPILED)
def test_every_variant_is_compiled_and_served_computes_in_bfloat16_and_goes_without_a_trace(
    family, variant, tmp_path, float32_policy, record_property
):
    record_property("checks", "XLA")
    model, inputs = with_strong_adapter(family, variant), family_inputs(family)
    expected = logits_of(model, inputs)
    compiled = tf.function(lambda inputs: logits_of(model, inputs), jit_compile=True)
    np.testing.assert_allclose(compiled(inputs), expected, atol=1e-5)
    record_property("checks", "SavedModel")
    specs = {name: tf.TensorSpec([None, None], tf.int32, name=name) for name in inputs}
    module = tf.Module()
    module.model = model
    module.answer = tf.function(lambda inputs: logits_of(model, inputs), input_signature=[specs])
    tf.saved_model.save(module, str(tmp_path / "1"))
    loaded = tf.saved_model.load(str(tmp_path / "1"))
    np.testing.assert_allclose(loaded.answer(inputs), expected, atol=1e-5)
    shorter = {name: value[:2, :5] for name, value in inputs.items()}
    np.testing.assert_allclose(loaded.answer(shorter), logits_of(model, shorter), atol=1e-5)
    record_property("checks", "removal restores")
    remove_adapters(model)
    np.testing.assert_array_equal(logits_of(model, inputs), logits_of(family_model(family), inputs))
    record_property("checks", "mixed precision")
    float32_policy("mixed_bfloat16")
    model = with_strong_adapter(family, variant)
    set_trainable(model, "adapters")
    logits = logits_of(model, inputs)
    assert logits.dtype == tf.float32
    # Eight significant bits, over three blocks.
    np.testing.assert_allclose(logits, expected, atol=0.05)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(logits_of(model, inputs, training=True) ** 2)
    gradients = tape.gradient(loss, model.trainable_variables)
    assert all(gradient is not None and np.isfinite(gradient).all() for gradient in gradients)


@pytest.mark.parametrize("family", FAST)
def test_fast_blocks_compute_the_same(family):
    inputs, logits = family_inputs(family), []
    for fast in (False, True):
        model = family_model(family)
        add_adapters(model, AdapterConfig(bottleneck_size=4, init_stddev=0.3), seed=0, fast=fast)
        logits.append(logits_of(randomize(model), inputs))
    np.testing.assert_allclose(*logits, atol=1e-5)


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - set(FAST)))
def test_families_without_fast_blocks_say_so_and_stay_usable(family, record_property):
    model, inputs = family_model(family), family_inputs(family)
    before = logits_of(model, inputs)
    with pytest.raises(InputError, match=f"fast=True: {family} has no fast blocks") as refusal:
        add_adapters(model, AdapterConfig(bottleneck_size=4), seed=0, fast=True)
    record_property("refused", str(refusal.value))
    np.testing.assert_array_equal(logits_of(model, inputs), before)
    add_adapters(model, AdapterConfig(bottleneck_size=4), seed=0)
    assert len(state_of(model).adapters) == 1


@pytest.mark.nightly
@pytest.mark.parametrize("family", ["distilbert", "electra", "mpnet"])
def test_the_commands_train_predict_and_export_families_with_berts_vocabulary(family, cli, sentences, tmp_path):
    write_family_checkpoint(family_model(family), tmp_path / "encoder", bare=True)
    others = {"[CLS]": "<s>", "[PAD]": "<pad>", "[SEP]": "</s>"} if family == "mpnet" else {}
    (tmp_path / "encoder" / "vocab.txt").write_text("\n".join(others.get(token, token) for token in VOCABULARY) + "\n")
    given = [
        "--train",
        sentences / "train.csv",
        "--validation",
        sentences / "validation.csv",
        "--epochs",
        "1",
        "--max-length",
        "32",
    ]
    trained = cli("train", "--model", tmp_path / "encoder", *given, "--output", tmp_path / "adapters")
    assert trained.status == 0, trained.err
    predicted = cli("predict", tmp_path / "adapters", "--input", "-", stdin=b"a great film\na dull plot\n")
    expected = [list(json.loads(line)["probabilities"].values()) for line in predicted.out.splitlines()]
    assert cli("export", tmp_path / "adapters", "--output", tmp_path / "film" / "1").status == 0
    signature = tf.saved_model.load(str(tmp_path / "film" / "1")).signatures["serving_default"]
    np.testing.assert_allclose(
        signature(text=tf.constant(["a great film", "a dull plot"]))["probabilities"], expected, atol=1e-5
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_texts_of_every_family_are_cut_by_a_tokenizer_that_says_which_files_it_lacks(family, tmp_path):
    write_family_checkpoint(family_model(family), tmp_path)
    with pytest.raises(InputError, match="holds no "):
        load_tokenizer(load_backbone(tmp_path))


def test_an_unknown_family_is_named():
    with pytest.raises(InputError, match="model_type='gpt2' is not supported: .*albert, bert, camembert"):
        get_family("gpt2")
