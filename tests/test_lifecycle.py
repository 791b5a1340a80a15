"""What is done to a model happens as a whole or changes nothing, and what acts is one thing at every moment."""

import _thread
import gc
import json
import threading

import numpy as np
import pytest
import tensorflow as tf
import transformers

from tests.cases import nightly_but
from tests.conftest import encoder_of, is_refused, randomize, tiny_config, tiny_inputs, tiny_model
from tests.interrupts import check_interruptions
from tests.whole import assert_same, outputs, picture
from tf_adapters import (
    AdapterConfig,
    LoraConfig,
    add_adapters,
    disable_adapters,
    load_adapter,
    load_backbone,
    load_trained,
    merge_adapter,
    remove_adapters,
    save_adapter,
    set_active,
    set_trainable,
)
from tf_adapters.config import MethodConfig
from tf_adapters.methods.lora import LoraLayer
from tf_adapters.models import adapter_names, backbone_digest, cast_frozen, freeze
from tf_adapters.models.state import state_of
from tf_adapters.saving import fuse_adapters, load_pretrained_adapter

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
        computed[name] = outputs(randomize(model, seed=seed))
    set_active(model, "a")
    # Fast blocks compute a single adapter in other parts.
    np.testing.assert_allclose(outputs(model), computed["a"], atol=2e-5 if settings else 0)
    return model, computed


checkpoint = encoder_of(1)


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
        is_refused(message, add_adapters, model, config, name=name)
    assert adapter_names(model) == ["default"]
    is_refused("no weights yet", add_adapters, transformers.TFBertForSequenceClassification(tiny_config()))
    is_refused("not a transformers TensorFlow model", add_adapters, tf.Module())


@pytest.mark.slow
def test_a_graph_of_fast_blocks_older_than_a_removal_computes_what_the_model_does():
    """Of plain ones the state machine tries it."""
    model, computed = two_trained(fast=True)
    both = tf.function(lambda: model(INPUTS).logits)
    np.testing.assert_allclose(both(), computed["a"], atol=2e-5)
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


def test_an_adapter_too_large_for_memory_is_refused_and_nothing_stays(directories, monkeypatch):
    model, build, built = tiny_model(num_hidden_layers=2), LoraLayer.build, []

    def full(layer, shape):
        built.append(layer)
        if len(built) > 2:
            raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating a tensor")
        build(layer, shape)

    monkeypatch.setattr(LoraLayer, "build", full)
    before = picture(model)
    is_refused("rank=65536.*do not fit into memory.*OOM", add_adapters, model, LoraConfig(rank=65536))
    assert_same(before, picture(model))
    load_adapter(model, directories[0]["a"])
    assert np.array_equal(outputs(model), directories[1]["a"])


#: What is interrupted: the adapters that the model has, and the operation. The last ones begin like others.
OPERATIONS = {
    "add": ("ab", lambda model, paths: add_adapters(model, STRONG, name="new", seed=1)),
    "load into none": (None, lambda model, paths: load_adapter(model, paths["b"])),
    "load": ("ab", lambda model, paths: load_adapter(model, paths["b"], name="new")),
    "load again": ("ab", lambda model, paths: load_adapter(model, paths["b"], name="a")),
    "remove all": ("ab", lambda model, paths: remove_adapters(model)),
    "set_active": ("ab", lambda model, paths: set_active(model, "b", blocks=[1])),
    "set_trainable": ("ab", lambda model, paths: set_trainable(model, "full")),
    "merge": (LoraConfig(rank=2), lambda model, paths: merge_adapter(model)),
    "cast": (STRONG, lambda model, paths: cast_frozen(model)),
    "remove one": ("ab", lambda model, paths: remove_adapters(model, name="a")),
    "freeze": ("ab", lambda model, paths: freeze(model)),
    "fuse": (None, lambda model, paths: fuse_adapters(model, {"a": paths["plain"], "b": paths["plain"]}, seed=1)),
}


@pytest.mark.parametrize("step", [pytest.param(13, marks=pytest.mark.nightly), 71])
@pytest.mark.parametrize("operation", nightly_but(list(OPERATIONS)[:9], OPERATIONS))
def test_an_operation_that_is_interrupted_anywhere_changes_nothing(directories, operation, step, float32_policy):
    adapters, act = OPERATIONS[operation]
    if operation == "cast":
        float32_policy("mixed_bfloat16")
    model = two_trained()[0] if adapters == "ab" else tiny_model(num_hidden_layers=2)
    if isinstance(adapters, MethodConfig):
        randomize(add_adapters(model, adapters, seed=0))
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


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_is_trained_on_a_changed_encoder_is_saved_with_the_changes(checkpoint, tmp_path):
    for mode in ("adapters", "head"):
        model = set_trainable(load_backbone(checkpoint), "full")
        for variable in model.trainable_variables:
            variable.assign_add(tf.random.stateless_normal(variable.shape, [0, 0], stddev=0.1))
        if mode == "adapters":
            randomize(add_adapters(model, STRONG, seed=0))
        directory = save_adapter(set_trainable(model, mode), tmp_path / mode)
        assert np.array_equal(outputs(load_trained(directory)[0]), outputs(model))


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
    assert state_of(model).owner.pretrained is None


def test_values_that_are_none_are_refused_and_change_nothing(pair, tmp_path):
    model, _ = pair
    before = picture(model)
    for name in (["a"], None):
        is_refused("no such adapter", set_active, model, name)
    for blocks in (1, [[1]], [7]):
        is_refused("blocks=.* must be a list of some of", set_active, model, "a", blocks=blocks)
    assert_same(before, picture(model))
    set_trainable(model, "adapters")
    is_refused("metrics=.*JSON", save_adapter, model, tmp_path / "saved", metrics={"accuracy": float("nan")})
    assert not (tmp_path / "saved").exists()
    is_refused("directory=None", save_adapter, model, None)
