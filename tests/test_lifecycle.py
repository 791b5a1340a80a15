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
from safetensors.numpy import load_file, save_file

from tests.cases import nightly_but
from tests.conftest import tiny_inputs, tiny_model, write_checkpoint
from tests.interrupts import check_interruptions
from tests.whole import assert_same, outputs, picture, train
from tf_adapters import (
    AdapterConfig,
    IA3Config,
    InputError,
    LoraConfig,
    active_adapter,
    add_adapters,
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
def _kept():
    return []


@pytest.fixture
def pair(_kept):
    """What `two_trained` makes, made once: a test leaves the two adapters, and none of their values is another."""
    _kept[:] = _kept or two_trained()
    model, computed = _kept
    adapters = dict(state_of(model).adapters)
    yield model, computed
    if state_of(model).adapters != adapters or not state_of(model).enabled:
        _kept.clear()
        return
    set_active(model, "a")
    assert np.array_equal(outputs(model), computed["a"])


@pytest.fixture(scope="module")
def directories(tmp_path_factory):
    model, computed = two_trained()
    folder = tmp_path_factory.mktemp("saved")
    return {name: saved(model, name, folder) for name in "ab"}, computed


def train_norm(model, paths):
    norm = model.bert.encoder.layer[0].bert_output.LayerNorm
    norm.beta.assign_add(tf.ones_like(norm.beta))


#: What is done while all adapters are disabled, and the adapters that act afterwards as before.
INSIDE = {
    "another is chosen": (lambda model, paths: set_active(model, "b"), "bab"),
    "one is loaded again": (lambda model, paths: load_adapter(model, paths["b"], name="b"), "bab"),
    "another is loaded": (lambda model, paths: load_adapter(model, paths["b"], name="c"), "ab"),
    "one is added": (lambda model, paths: add_adapters(model, STRONG, name="c", seed=3), "ab"),
    "one is removed": (lambda model, paths: remove_adapters(model, name="a"), "b"),
    "all are removed": (lambda model, paths: remove_adapters(model), ""),
    "LayerNorms train": (train_norm, "bab"),
}


@pytest.mark.parametrize("what", INSIDE)
def test_what_is_done_while_adapters_are_disabled_is_done_to_a_plain_encoder_and_no_adapter_changes(directories, what):
    act, left = INSIDE[what]
    model, computed = two_trained()
    norms = state_of(model).layer_norm_variables(model)
    with disable_adapters(model):
        plain = [norm.numpy() for norm in norms]
        act(model, directories[0])
        assert not left or state_of(model).acting_name is None
        if what == "LayerNorms train":
            plain = [norm.numpy() for norm in norms]
        assert all(np.array_equal(norm, before) for norm, before in zip(norms, plain))
    for name in left:
        set_active(model, name)
        assert np.array_equal(outputs(model), computed[name])
    if left:
        remove_adapters(model)
    # LayerNorms that train while adapters are disabled are the encoder's own.
    assert all(np.array_equal(norm, before) for norm, before in zip(norms, plain))
    assert what == "LayerNorms train" or np.array_equal(outputs(model), computed[None])


def test_an_adapter_that_is_added_to_none_while_all_are_disabled_acts_afterwards():
    model = tiny_model(num_hidden_layers=2)
    plain = outputs(model)
    with disable_adapters(model):
        train(add_adapters(model, STRONG, seed=0))
        # The head was trained; no adapter acts, whose LayerNorms the encoder has not.
        assert state_of(model).acting_name is None
    assert not np.array_equal(outputs(model), plain)


def test_contexts_that_disable_adapters_may_be_nested_and_left_in_any_order(pair):
    model, computed = pair
    norms = state_of(model).layer_norm_variables(model)
    trained = [norm.numpy() for norm in norms]
    first, second = disable_adapters(model), disable_adapters(model)
    first.__enter__(), second.__enter__()
    plain = [norm.numpy() for norm in norms]
    first.__exit__(None, None, None)
    assert all(np.array_equal(norm, before) for norm, before in zip(norms, plain)) and not state_of(model).enabled
    second.__exit__(None, None, None)
    assert all(np.array_equal(norm, before) for norm, before in zip(norms, trained))
    assert np.array_equal(outputs(model), computed["a"])


@pytest.mark.slow
@pytest.mark.parametrize("fast", [False, True])
def test_a_graph_older_than_a_removal_computes_what_the_model_does(fast):
    model, computed = two_trained(fast=fast)
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


@pytest.mark.parametrize(
    "config",
    [AdapterConfig(4, blocks=(1,), init_stddev=0.5), pytest.param(LoraConfig(rank=2), marks=pytest.mark.nightly)],
)
def test_a_graph_does_not_answer_for_an_adapter_that_stands_where_it_knew_none(config):
    model = tiny_model(num_hidden_layers=2)
    add_adapters(model, AdapterConfig(4, blocks=(0,), init_stddev=0.5), name="old", seed=0)
    old = outputs(train(model))
    graph = tf.function(lambda: model(INPUTS).logits)
    np.testing.assert_allclose(graph(), old, atol=2e-5)
    train(add_adapters(model, config, name="new", seed=1))
    assert np.isnan(graph()).all()
    with disable_adapters(model):
        np.testing.assert_allclose(graph(), outputs(model), atol=2e-5)
    set_active(model, "old")
    np.testing.assert_allclose(graph(), old, atol=2e-5)


def test_adding_and_choosing_and_removing_change_nothing_of_what_was_chosen_to_train(pair):
    model, _ = pair
    set_trainable(model, "adapters")
    chosen = {variable.name for variable in model.trainable_variables}
    add_adapters(model, STRONG, name="c", seed=3)
    set_active(model, "b")
    remove_adapters(model, name="c")
    assert {variable.name for variable in model.trainable_variables} == chosen


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
    """A model that refuses what it is given, and its picture from before the first time."""
    model = set_trainable(two_trained()[0], "top-1")
    return model, picture(model)


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
    model, before = refusing
    with pytest.raises(InputError, match=message):
        load_adapter(model, copy, name=name)
    assert_same(before, picture(model))


def test_a_refused_directory_leaves_a_model_without_adapters_as_it_was(directories, tmp_path):
    copy = hostile(HOSTILE["a head of another size"][0], directories[0]["b"], tmp_path)
    settings = json.loads((copy / "tf_adapters.json").read_text())
    settings["head"]["pooler"] = True
    (copy / "tf_adapters.json").write_text(json.dumps(settings))
    model = set_trainable(tiny_model(num_hidden_layers=2), "layer-norm")
    before = picture(model)
    with pytest.raises(InputError, match="head"):
        load_adapter(model, copy)
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


@pytest.fixture(scope="module")
def plain_directory(tmp_path_factory):
    model = tiny_model(num_hidden_layers=2)
    add_adapters(model, AdapterConfig(4, init_stddev=0.5, train_layer_norm="none"), seed=0)
    return save_adapter(set_trainable(model, "adapters"), tmp_path_factory.mktemp("plain") / "plain")


@pytest.mark.parametrize("step", [pytest.param(13, marks=pytest.mark.nightly), 43])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_that_is_interrupted_anywhere_changes_nothing(
    directories, plain_directory, operation, step, float32_policy
):
    adapters, act = OPERATIONS[operation]
    if operation == "cast":
        float32_policy("mixed_bfloat16")
    model = two_trained()[0] if adapters == "ab" else tiny_model(num_hidden_layers=2)
    if isinstance(adapters, MethodConfig):
        train(add_adapters(model, adapters, seed=0))
    if adapters is not None:
        set_trainable(model, "adapters")
    check_interruptions(model, lambda: act(model, {**directories[0], "plain": plain_directory}), step)


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


def test_layer_norms_that_do_not_train_any_more_are_saved(checkpoint, tmp_path):
    model = load_backbone(checkpoint)
    train(set_trainable(add_adapters(model, STRONG, seed=0), "adapters"))
    set_trainable(model, "head")
    assert np.array_equal(outputs(load_trained(save_adapter(model, tmp_path / "saved"))[0]), outputs(model))


def test_an_adapter_that_is_loaded_again_loses_what_it_had_learned_since(checkpoint, tmp_path):
    model = load_backbone(checkpoint)
    add_adapters(model, AdapterConfig(4, init_stddev=0.5, train_layer_norm="none"), seed=0)
    directory = save_adapter(set_trainable(model, "adapters"), tmp_path / "saved")
    expected = outputs(model)
    train(model)  # its LayerNorms too
    load_adapter(model, directory)
    assert np.array_equal(outputs(model), expected)


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
    assert json.loads((fourth / "tf_adapters.json").read_text())["pretrained_adapter"] == origin


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


@pytest.mark.parametrize("config", [LoraConfig(rank=2), IA3Config()])
def test_merging_keeps_the_adapters_layer_norms_head_and_label_names(checkpoint, config):
    model = train(add_adapters(load_backbone(checkpoint, labels=["ham", "spam"]), config, seed=0), scale=0.1)
    expected = outputs(model)
    merge_adapter(model)
    np.testing.assert_allclose(outputs(model), expected, atol=1e-5)
    assert active_adapter(model) is None and model.config.id2label == {0: "ham", 1: "spam"}
