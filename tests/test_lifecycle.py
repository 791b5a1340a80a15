"""What is done to a model happens as a whole or changes nothing, and what acts is one thing at every moment."""

import _thread
import gc
import hashlib
import json
import shutil
import threading

import numpy as np
import pytest
import tensorflow as tf
import transformers
from safetensors.numpy import load_file, save_file

from tests.cases import nightly_but
from tests.conftest import tiny_config, tiny_inputs, tiny_model, write_checkpoint
from tests.interrupts import check_interruptions
from tests.whole import assert_same, outputs, picture, train
from tf_adapters import (
    AdapterConfig,
    InputError,
    LoraConfig,
    active_adapter,
    adapter_names,
    add_adapters,
    backbone_digest,
    cast_frozen,
    disable_adapters,
    freeze,
    fuse_adapters,
    load_adapter,
    load_backbone,
    load_pretrained_adapter,
    load_trained,
    merge_adapter,
    remove_adapters,
    save_adapter,
    set_active,
    set_trainable,
)
from tf_adapters.config import MethodConfig
from tf_adapters.methods.lora import LoraLayer
from tf_adapters.models.state import state_of
from tf_adapters.models.transformers.bert import TFBertAdapterLayer, TFBertAdapterOutput, TFBertAdapterSelfOutput

STRONG = AdapterConfig(bottleneck_size=4, init_stddev=0.5, train_layer_norm="all")
INPUTS = tiny_inputs()


def two_trained(**settings):
    """A model with the trained adapters "a" and "b", of which "a" acts, and what each and the plain encoder
    computes."""
    model = tiny_model(num_hidden_layers=2)
    computed = {None: outputs(model)}
    for seed, name in enumerate("ab"):
        add_adapters(model, STRONG, name=name, seed=seed, **settings)
        set_trainable(model, "adapters")
        computed[name] = outputs(train(model, seed=seed))
    set_active(model, "a")
    # Fast blocks compute a single adapter in other parts.
    np.testing.assert_allclose(outputs(model), computed["a"], atol=2e-5 if settings else 0)
    return model, computed


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoder") / "two-blocks"
    write_checkpoint(folder, num_hidden_layers=2)
    return folder


def saved(model, name, folder):
    """The directory of an adapter that was saved outside of any context."""
    set_active(model, name)
    return save_adapter(set_trainable(model, "adapters"), folder / name)


@pytest.fixture(scope="module")
def pair():
    """What `two_trained` makes; a test leaves it as it found it."""
    return two_trained()


@pytest.fixture(scope="module")
def directories(pair, tmp_path_factory):
    """Of "a" and "b", and of "plain", which has no LayerNorms of its own."""
    (model, computed), folder = pair, tmp_path_factory.mktemp("saved")
    paths = {name: saved(model, name, folder) for name in "ab"}
    set_active(model, "a")
    plain = add_adapters(tiny_model(num_hidden_layers=2), AdapterConfig(4, train_layer_norm="none"), name="plain")
    return {**paths, "plain": saved(plain, "plain", folder)}, computed


def test_names_and_layers_are_transformers_own_and_come_back():
    model = tiny_model(num_hidden_layers=2)
    blocks, names = list(model.bert.encoder.layer), [weight.name for weight in model.weights]
    outputs_of = [block.attention.dense_output for block in blocks]
    add_adapters(model, STRONG)
    block = model.bert.encoder.layer[1]
    assert isinstance(block, TFBertAdapterLayer) and isinstance(block, type(blocks[1]))
    assert isinstance(block.attention.dense_output, TFBertAdapterSelfOutput)
    assert isinstance(block.bert_output, TFBertAdapterOutput) and block.attention is blocks[1].attention
    assert block.bert_output.dense.kernel is blocks[1].bert_output.dense.kernel
    assert sorted(w.name for w in model.weights if not w.name.startswith("adapters/")) == sorted(names)
    remove_adapters(model)
    assert [weight.name for weight in model.weights] == names
    assert all(map(lambda one, other: one is other, model.bert.encoder.layer, blocks))
    assert all(block.attention.dense_output is output for block, output in zip(blocks, outputs_of))
    assert adapter_names(model) == [] and active_adapter(model) is None
    with pytest.raises(InputError, match="no adapters to remove"):
        remove_adapters(model)


@pytest.mark.parametrize("xla", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_several_named_adapters_switch_after_tracing(pair, xla):
    model, computed = pair
    traced = tf.function(lambda: model(INPUTS).logits, jit_compile=True)
    compute = traced if xla else lambda: model.predict(dict(INPUTS), verbose=0).logits
    for name in "bab":
        set_active(model, name)
        np.testing.assert_allclose(compute(), computed[name], atol=1e-5)
        with pytest.raises(RuntimeError), disable_adapters(model):
            np.testing.assert_allclose(compute(), outputs(model), atol=1e-5)
            raise RuntimeError
        assert np.array_equal(outputs(model), computed[name])
    set_active(model, "a")


def test_one_seed_gives_the_same_adapters_and_no_two_weights_alike():
    def kernels(seed):
        model = add_adapters(tiny_model(num_hidden_layers=2), AdapterConfig(bottleneck_size=32), seed=seed)
        adapter = [weight for weight in model.weights if weight.name.startswith("adapters/")]
        return [weight.numpy() for weight in adapter if weight.name.endswith("kernel:0")]

    one = kernels(1)
    assert all(np.array_equal(a, b) for a, b in zip(one, kernels(1)))
    assert len({kernel.tobytes() for kernel in one + kernels(2)}) == 16


def test_the_digest_ignores_adapters_and_head_and_sees_every_encoder_weight():
    model = tiny_model(num_hidden_layers=1)
    digest = backbone_digest(model)
    assert backbone_digest(add_adapters(model, STRONG)) == digest
    assert backbone_digest(tiny_model("none", num_hidden_layers=1)) == digest
    other = tiny_model(num_hidden_layers=1)
    word = other.bert.embeddings.weight
    word.scatter_nd_update([[3, 0]], [np.nextafter(word[3, 0], np.float32(1))])
    assert backbone_digest(other) != digest


def test_mistakes_are_named():
    model = add_adapters(tiny_model(num_hidden_layers=1), STRONG)
    for name, config, message in (
        ("default", STRONG, "name='default'.*already"),
        ("x y", STRONG, "name='x y'"),
        ("deep", AdapterConfig(blocks=(9,)), "the encoder has 1 blocks"),
        ("n", 64, "config=64 must be an AdapterConfig"),
    ):
        with pytest.raises(InputError, match=message):
            add_adapters(model, config, name=name)
    assert adapter_names(model) == ["default"]
    with pytest.raises(InputError, match="no weights yet"):
        add_adapters(transformers.TFBertForSequenceClassification(tiny_config()))
    with pytest.raises(InputError, match="not a transformers TensorFlow model"):
        add_adapters(tf.Module())


@pytest.mark.slow
def test_a_graph_of_fast_blocks_older_than_a_removal_computes_what_the_model_does():
    """Of plain ones the state machine tries it."""
    model, computed = two_trained(fast=True)
    both = tf.function(lambda: model(INPUTS).logits)
    for name in "ab":
        set_active(model, name)
        np.testing.assert_allclose(both(), computed[name], atol=2e-5)
    set_active(model, "a")
    remove_adapters(model, name="a")
    gc.collect()
    np.testing.assert_allclose(both(), computed["b"], atol=2e-5)
    add_adapters(model, STRONG, name="a", seed=7)
    assert np.isnan(both()).all()  # another "a" than it knew
    set_active(model, "b")
    np.testing.assert_allclose(both(), computed["b"], atol=2e-5)
    remove_adapters(model)
    gc.collect()
    np.testing.assert_allclose(both(), computed[None], atol=2e-5)
    add_adapters(model, STRONG, name="a", seed=8)
    assert np.isnan(both()).all()


def hostile(change, source, folder):
    """A copy of a directory with changed settings or arrays."""
    copy = shutil.copytree(source, folder / "hostile")
    settings, arrays = json.loads((copy / "tf_adapters.json").read_text()), load_file(copy / "adapter.safetensors")
    change(settings, arrays)
    save_file(arrays, copy / "adapter.safetensors")
    settings["weights"]["sha256"] = hashlib.sha256((copy / "adapter.safetensors").read_bytes()).hexdigest()
    (copy / "tf_adapters.json").write_text(json.dumps(settings))
    return copy


def first(arrays, start):
    return next(key for key in sorted(arrays) if key.startswith(start))


HOSTILE = {
    "an array of another shape": (
        lambda settings, arrays: arrays.update({first(arrays, "backbone."): np.zeros((5,), np.float32)}),
        "has shape",
    ),
    "an array too many": (
        lambda settings, arrays: arrays.update({"backbone.none": np.zeros((5,), np.float32)}),
        "no weight",
    ),
    "an adapter without one weight": (lambda settings, arrays: arrays.pop(first(arrays, "layer")), "config asks for"),
    "NaN in an adapter": (lambda settings, arrays: arrays[first(arrays, "layer")].fill(np.nan), "NaN or infinity"),
    "infinity in the head": (lambda settings, arrays: arrays[first(arrays, "head")].fill(np.inf), "NaN or infinity"),
    "a size beyond all memory": (
        lambda settings, arrays: settings["adapter"].update(bottleneck_size=60000),
        "config asks for",
    ),
    "a head of another size": (lambda settings, arrays: arrays.pop(first(arrays, "head")), "head"),
    "a pooler of its own": (lambda settings, arrays: settings["head"].update(pooler=True), "head"),
    "blocks that there are not": (lambda settings, arrays: settings["adapter"].update(blocks=[9]), "blocks"),
}


@pytest.fixture(scope="module")
def refusing():
    """A model that refuses what it is given, with adapters or without, and its picture from before the first time."""
    models = set_trainable(two_trained()[0], "top-1"), set_trainable(tiny_model(num_hidden_layers=2), "layer-norm")
    return [(model, picture(model)) for model in models]


@pytest.mark.parametrize(
    "what, name",
    nightly_but(
        [(what, ("a", "b", "new")[number % 3]) for number, what in enumerate(HOSTILE)],
        [(what, name) for what in HOSTILE for name in ("a", "b", "new")],
    ),
)
def test_a_directory_that_is_refused_changes_nothing(refusing, directories, tmp_path, what, name):
    change, message = HOSTILE[what]
    copy = hostile(change, directories[0]["b"], tmp_path)
    for model, before in refusing:
        with pytest.raises(InputError, match=message):
            load_adapter(model, copy, name=name)
        assert_same(before, picture(model))


def test_an_adapter_too_large_for_memory_is_refused_and_nothing_stays(directories, monkeypatch):
    model, build, built = tiny_model(num_hidden_layers=2), LoraLayer.build, []

    def full(layer, shape):
        built.append(layer)
        if len(built) > 2:
            raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating a tensor")
        build(layer, shape)

    monkeypatch.setattr(LoraLayer, "build", full)
    before = picture(model)
    with pytest.raises(InputError, match="rank=65536.*do not fit into memory.*OOM"):
        add_adapters(model, LoraConfig(rank=65536))
    assert_same(before, picture(model))
    load_adapter(model, directories[0]["a"])
    assert np.array_equal(outputs(model), directories[1]["a"])


#: What is interrupted: the adapters that the model has, and the operation.
OPERATIONS = {
    "add": ("ab", lambda model, paths: add_adapters(model, STRONG, name="new", seed=1)),
    "add LoRA": ("ab", lambda model, paths: add_adapters(model, LoraConfig(rank=2), name="new", seed=1)),
    "load": ("ab", lambda model, paths: load_adapter(model, paths["b"], name="new")),
    "load again": ("ab", lambda model, paths: load_adapter(model, paths["b"], name="a")),
    "remove one": ("ab", lambda model, paths: remove_adapters(model, name="a")),
    "remove all": ("ab", lambda model, paths: remove_adapters(model)),
    "set_active": ("ab", lambda model, paths: set_active(model, "b", blocks=[1])),
    "set_trainable": ("ab", lambda model, paths: set_trainable(model, "full")),
    "freeze": ("ab", lambda model, paths: freeze(model)),
    "add to none": (None, lambda model, paths: add_adapters(model, STRONG, seed=1)),
    "load into none": (None, lambda model, paths: load_adapter(model, paths["b"])),
    "fuse": (None, lambda model, paths: fuse_adapters(model, {"a": paths["plain"], "b": paths["plain"]}, seed=1)),
    "merge": (LoraConfig(rank=2), lambda model, paths: merge_adapter(model)),
    "cast": (STRONG, lambda model, paths: cast_frozen(model)),
}


@pytest.mark.parametrize("step", [pytest.param(13, marks=pytest.mark.nightly), 71])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_that_is_interrupted_anywhere_changes_nothing(directories, operation, step, float32_policy):
    adapters, act = OPERATIONS[operation]
    if operation == "cast":
        float32_policy("mixed_bfloat16")
    model = two_trained()[0] if adapters == "ab" else tiny_model(num_hidden_layers=2)
    if isinstance(adapters, MethodConfig):
        train(add_adapters(model, adapters, seed=0))
    if adapters is not None:
        set_trainable(model, "adapters")
    check_interruptions(model, lambda: act(model, directories[0]), step)


def test_leaving_the_context_is_not_interrupted_halfway(pair):
    model, computed = pair
    for delay in np.linspace(0, 0.02, 9):
        timer = threading.Timer(delay, _thread.interrupt_main)
        try:
            with disable_adapters(model):
                timer.start()
            timer.join()
            for _ in range(10):
                pass
        except KeyboardInterrupt:
            pass
        timer.join()
        assert state_of(model).enabled and np.array_equal(outputs(model), computed["a"])


def trained_as(mode, checkpoint, folder, *, seed=0):
    """A directory of an encoder that was trained in a mode, and what it computes."""
    model = set_trainable(load_backbone(checkpoint), mode)
    random = np.random.default_rng(seed)
    for variable in model.trainable_variables:
        variable.assign_add(random.normal(0, 0.1, variable.shape).astype(np.float32))
    return save_adapter(model, folder / mode), outputs(model), model


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("mode", nightly_but(["layer-norm"], ["full", "layer-norm", "top-1", "bias"]))
def test_a_directory_is_not_loaded_into_an_encoder_that_another_one_changed(checkpoint, tmp_path, mode):
    changed, changed_outputs, _ = trained_as(mode, checkpoint, tmp_path)
    head, head_outputs, _ = trained_as("head", checkpoint, tmp_path, seed=1)
    model = load_backbone(checkpoint)
    load_adapter(model, changed)
    assert np.array_equal(outputs(model), changed_outputs)
    before = picture(model)
    with pytest.raises(InputError, match="were changed since.*load the encoder again"):
        load_adapter(model, head)
    assert_same(before, picture(model))
    load_adapter(model, changed)  # which brings all that was changed
    assert np.array_equal(outputs(load_trained(head, backbone=checkpoint)[0]), head_outputs)


@pytest.mark.parametrize("mode", nightly_but(["full"], ["full", "layer-norm", "top-1", "bias"]))
def test_what_is_trained_on_a_changed_encoder_is_saved_with_the_changes(checkpoint, tmp_path, mode):
    _, _, model = trained_as(mode, checkpoint, tmp_path)
    add_adapters(model, STRONG, seed=0)
    train(set_trainable(model, "adapters"))
    adapter = save_adapter(model, tmp_path / "adapter")
    assert np.array_equal(outputs(load_trained(adapter)[0]), outputs(model))
    _, _, model = trained_as(mode, checkpoint, tmp_path)
    head = save_adapter(set_trainable(model, "head"), tmp_path / "head")
    assert np.array_equal(outputs(load_trained(head)[0]), outputs(model))


def test_label_names_that_contradict_the_models_are_refused(checkpoint, tmp_path):
    model = load_backbone(checkpoint, labels=["ham", "spam"])
    add_adapters(model, STRONG, seed=0)
    directory = save_adapter(set_trainable(model, "adapters"), tmp_path / "mail")
    other = load_backbone(checkpoint, labels=["spam", "ham"])
    before = picture(other)
    with pytest.raises(InputError, match=r"labels \['ham', 'spam'\].*the model's has the labels \['spam', 'ham'\]"):
        load_adapter(other, directory)
    assert_same(before, picture(other))
    load_adapter(other, directory, head=False)
    assert other.config.id2label == {0: "spam", 1: "ham"}


def test_label_names_go_with_the_head_of_the_adapter_that_acts(checkpoint, tmp_path):
    for labels in (["ham", "spam"], ["good", "bad"]):
        model = add_adapters(load_backbone(checkpoint, labels=labels), STRONG, seed=0)
        save_adapter(set_trainable(model, "adapters"), tmp_path / labels[0])
    model = load_backbone(checkpoint)
    for name in ("ham", "good"):
        load_adapter(model, tmp_path / name, name=name)
    assert model.config.id2label == {0: "good", 1: "bad"} and model.config.label2id == {"good": 0, "bad": 1}
    set_active(model, "ham")
    assert model.config.id2label == {0: "ham", 1: "spam"}
    with disable_adapters(model):
        assert model.config.id2label == {0: "ham", 1: "spam"}
    remove_adapters(model)
    assert model.config.id2label == {0: "LABEL_0", 1: "LABEL_1"}


def test_what_training_went_on_from_goes_with_the_adapter(checkpoint, tmp_path):
    model = add_adapters(load_backbone(checkpoint), STRONG, seed=0)
    first_directory = save_adapter(set_trainable(model, "adapters"), tmp_path / "first")
    model = load_backbone(checkpoint)
    load_pretrained_adapter(model, first_directory)
    second = save_adapter(set_trainable(model, "adapters"), tmp_path / "second")
    origin = json.loads((second / "tf_adapters.json").read_text())["pretrained_adapter"]
    assert origin["directory"] == str(first_directory)
    remove_adapters(model)
    add_adapters(model, STRONG, seed=1)
    third = save_adapter(set_trainable(model, "adapters"), tmp_path / "third")
    assert json.loads((third / "tf_adapters.json").read_text())["pretrained_adapter"] is None
    load_adapter(model, second)
    fourth = save_adapter(model, tmp_path / "fourth")
    settings = json.loads((fourth / "tf_adapters.json").read_text())
    assert settings.pop("pretrained_adapter") == origin
    # A directory of an older version brings none.
    (fourth / "tf_adapters.json").write_text(json.dumps(settings))
    load_adapter(model, fourth)
    assert state_of(model).pretrained_adapter is None


def test_values_that_are_none_are_refused_and_change_nothing(pair, tmp_path):
    model, _ = pair
    before = picture(model)
    for name in (["a"], None, 3):
        with pytest.raises(InputError, match="no such adapter"):
            set_active(model, name)
    for blocks in (1, "1", [[1]], [7], [None]):
        with pytest.raises(InputError, match="blocks=.* must be a list of some of"):
            set_active(model, "a", blocks=blocks)
    assert_same(before, picture(model))
    set_trainable(model, "adapters")
    for metrics in ({"accuracy": float("nan")}, {"accuracy": {1, 2}}, {3 + 4j: 1}):
        with pytest.raises(InputError, match="metrics=.*JSON"):
            save_adapter(model, tmp_path / "saved", metrics=metrics)
        assert not (tmp_path / "saved").exists()
    with pytest.raises(InputError, match="directory=None"):
        save_adapter(model, None)
