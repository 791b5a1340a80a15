"""The second door's own: graphs, task models, refusals and Keras' changes. tests/test_table.py has what both share."""

import json
import re
import shutil

import numpy as np
import pytest

import tf_adapters
from tests.cases import nightly_but
from tests.conftest import is_refused
from tests.families import KERAS_HUB as SIZES
from tests.keras_hub_models import (
    BACKEND,
    CONFIGS,
    LABELS,
    PLACES,
    adapted,
    answers,
    array,
    bits,
    crossentropy,
    first,
    inputs,
    keras,
    keras_hub,
    learn,
    needs_first,
    predicted,
    small_backbone,
)
from tf_adapters import AdapterConfig
from tf_adapters._keras3_internals import go_on_with
from tf_adapters.models import frozen_digest
from tf_adapters.models.injection import adapter_names
from tf_adapters.models.keras_hub import door
from tf_adapters.models.keras_hub.loading import load_backbone
from tf_adapters.models.state import state_of

MODES = ("full", "top-1", "layer-norm", "bias", "head", "adapters")

# The life of an adapter


def test_a_backbone_that_keras_traced_by_itself_gets_the_adapters_of_its_model(checkpoints):
    model = load_backbone(checkpoints("bert"))
    plain = predicted(model.backbone, "bert")
    adapted(model, AdapterConfig(4, train_layer_norm="none"))
    found = predicted(model.backbone, "bert")
    assert np.abs(found - plain).max() > 1e-3
    np.testing.assert_allclose(found, answers(model.backbone, "bert"), atol=2e-6)
    tf_adapters.remove_adapters(model)
    np.testing.assert_array_equal(predicted(model.backbone, "bert"), plain)


def test_a_graph_that_was_traced_follows_a_switch_and_is_nan_for_an_adapter_that_it_lacks(checkpoints):
    model = load_backbone(checkpoints("bert"))
    for number, name in enumerate(("one", "two")):
        adapted(model, seed=number, name=name)
    two = predicted(model, "bert")
    traced, acting = model.predict_function, state_of(model).acting
    tf_adapters.set_active(model, "one")
    one = predicted(model, "bert")
    assert np.abs(one - two).max() > 1e-3
    tf_adapters.set_active(model, "one", blocks=[])
    with tf_adapters.disable_adapters(model):
        off = predicted(model, "bert")
    assert model.predict_function is traced and np.abs(off - one).max() > 1e-3
    assert np.asarray(acting.guard()) == 1.0
    acting.number.assign(7)
    assert np.isnan(predicted(model, "bert")).all()
    acting.number.assign(1)
    assert np.isfinite(predicted(model, "bert")).all()


@pytest.mark.parametrize("config", ["lora", "houlsby"])
@pytest.mark.parametrize("part, calls", [("forget_traces", 0), ("build_layer", 2)])
def test_what_is_interrupted_has_not_happened(checkpoints, monkeypatch, config, part, calls):
    model = load_backbone(checkpoints("bert"))
    if config == "houlsby":  # also a second adapter
        adapted(model, config, name="one")
    before, plain, names = bits(model), answers(model, "bert"), adapter_names(model)
    flags = [(weight.path, weight.trainable) for weight in model.weights]
    function, left = getattr(door, part), [None] * calls

    def interrupt(*arguments, **settings):
        if not left:
            raise KeyboardInterrupt
        left.pop()
        return function(*arguments, **settings)

    with monkeypatch.context() as patched:
        patched.setattr(door, part, interrupt)
        with pytest.raises(KeyboardInterrupt):
            tf_adapters.add_adapters(model, CONFIGS[config], name="two", seed=2)
    assert bits(model) == before and flags == [(weight.path, weight.trainable) for weight in model.weights]
    assert adapter_names(model) == names
    np.testing.assert_array_equal(answers(model, "bert"), plain)
    tf_adapters.add_adapters(model, CONFIGS[config], name="two", seed=2)
    tf_adapters.remove_adapters(model)
    assert all(weight.trainable for weight in model.weights)


# Training


def test_what_trains_is_what_trains_through_the_first_door(checkpoints):
    models = first(checkpoints("bert")), load_backbone(checkpoints("bert"))
    for model in models:
        tf_adapters.add_adapters(model, CONFIGS["shared"], seed=1)
    for mode in MODES:
        named = []
        for model in models:
            tf_adapters.set_trainable(model, mode)
            state = state_of(model)
            adapters = {id(weight) for weight in state.adapter_variables()}
            rest = [weight for weight in model.trainable_variables if id(weight) not in adapters]
            named.append((len(model.trainable_variables), sorted(state.door.named_weights(model, rest))))
        assert named[0] == named[1] and named[0][0] > 0


class Unfreeze(keras.callbacks.Callback):
    """Train the adapters too, from the second epoch on."""

    def on_epoch_end(self, epoch, logs=None):
        if epoch == 0:
            tf_adapters.set_trainable(self.model, "adapters")


def test_a_callback_changes_what_trains_between_the_epochs_of_fit_as_between_two(checkpoints):
    trained, directory = [], checkpoints("bert")
    for epochs in ((2,), (1, 1)):
        keras.utils.set_random_seed(0)
        model = tf_adapters.add_adapters(load_backbone(directory), CONFIGS["houlsby"], seed=1)
        tf_adapters.set_trainable(model, "head")
        model.compile(optimizer=keras.optimizers.Adam(1e-2), loss=crossentropy())
        for count in epochs:
            model.fit(inputs("bert")[1], LABELS, epochs=count, shuffle=False, verbose=0, callbacks=[Unfreeze()])
        trained.append([array(variable) for variable in model.trainable_variables])
    assert len(trained[0]) > 2
    for within, between in zip(*trained, strict=True):
        np.testing.assert_allclose(within, between, atol=1e-6)


@pytest.mark.nightly
def test_another_choice_keeps_the_moments_of_what_still_trains(checkpoints):
    model = tf_adapters.add_adapters(load_backbone(checkpoints("bert")), CONFIGS["houlsby"], seed=1)
    tf_adapters.set_trainable(model)
    learn(model, inputs("bert")[1], LABELS, epochs=2)
    kept = {
        id(one): np.array(keras.ops.convert_to_numpy(moment))
        for one, moment in zip(model.trainable_variables, model.optimizer._momentums)
    }
    tf_adapters.set_trainable(model, "head")
    assert len(model.optimizer._momentums) == len(model.trainable_variables) == 2
    for variable, moment in zip(model.trainable_variables, model.optimizer._momentums):
        assert np.abs(keras.ops.convert_to_numpy(moment)).max() > 0
        np.testing.assert_array_equal(keras.ops.convert_to_numpy(moment), kept[id(variable)])
    model.fit(inputs("bert")[1], LABELS, verbose=0)


@pytest.mark.skipif(BACKEND != "jax", reason="elsewhere variables keep their values during fit")
def test_between_the_batches_of_fit_on_jax_nothing_is_changed_or_saved(checkpoints, tmp_path):
    model = adapted(load_backbone(checkpoints("bert")), name="first")
    tf_adapters.set_trainable(adapted(model, name="second"))
    model.compile(optimizer=keras.optimizers.Adam(1e-2), loss=crossentropy())
    refused = []

    class Asks(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            is_refused("on_epoch_end", tf_adapters.set_active, model, "first")
            is_refused("on_epoch_end", tf_adapters.add_adapters, model, CONFIGS["houlsby"], name="third")
            is_refused("on_epoch_end", tf_adapters.save_adapter, model, tmp_path / "saved")
            refused.append((state_of(model).active, *state_of(model).adapters))

        def on_epoch_end(self, epoch, logs=None):
            tf_adapters.set_active(model, "first")

    model.fit(inputs("bert")[1], LABELS, batch_size=1, verbose=0, callbacks=[Asks()])
    assert refused == [("second", "first", "second")] * len(LABELS) and not (tmp_path / "saved").exists()
    assert state_of(model).active == "first"


@pytest.mark.parametrize("name", ["Nadam", "Muon"])
def test_an_optimizer_goes_on_with_the_same_variables_as_if_nothing_had_been(name):
    ended = []
    for again in (False, True):
        variables = [keras.Variable(np.ones(shape, "float32")) for shape in ((3, 2), 3)]
        optimizer = getattr(keras.optimizers, name)(0.1)
        for number in range(21):
            if again and number == 20:
                before = len(optimizer.variables)
                go_on_with(optimizer, variables)
                assert len(optimizer.variables) == before
            optimizer.apply([keras.ops.full(one.shape, 1.0 + number % 3) for one in variables], variables)
        ended.append([array(one) for one in variables])
    np.testing.assert_array_equal(ended[0][0], ended[1][0])
    np.testing.assert_array_equal(ended[0][1], ended[1][1])


@pytest.mark.skipif(BACKEND == "tensorflow", reason="there Keras knows variables by names that are given once")
def test_weight_decay_is_not_that_of_a_variable_that_is_gone():
    optimizer, still = keras.optimizers.AdamW(0.1, weight_decay=0.5), keras.ops.zeros(2)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    bias, kernel = (keras.Variable(np.ones(2, "float32"), name=name) for name in ("bias", "kernel"))
    optimizer.apply([still], [bias])
    known = optimizer._exclude_from_weight_decay_cache
    known[id(kernel)] = known.pop(id(bias))  # as where Python gives a new object the `id` of one that is gone
    go_on_with(optimizer, [kernel])
    optimizer.apply([still], [kernel])
    np.testing.assert_allclose(array(kernel), 0.95)
    np.testing.assert_array_equal(array(bias), 1)


def test_a_model_of_your_own_on_a_backbone(checkpoints):
    backbone = load_backbone(checkpoints("roberta"), head="none")
    model = keras.Model(backbone.input, keras.layers.Dense(5, name="words")(backbone(backbone.input)))
    plain = answers(model, "roberta")
    tf_adapters.set_trainable(adapted(model))
    counts = tf_adapters.parameter_counts(model)
    assert counts.head == 5 * 33 and counts.backbone == 0 and counts.adapter > 0
    assert np.abs(answers(model, "roberta") - plain).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", nightly_but(["Bert"], ["Bert", "Roberta", "XLMRoberta", "DistilBert", "Albert", "DebertaV3"])
)
def test_kerashubs_own_model_of_masked_words_takes_adapters(tmp_path, kind):
    model, random = getattr(keras_hub.models, f"{kind}MaskedLM")(small_backbone(kind)), np.random.default_rng(0)
    ids, words = (random.integers(1, 50, (4, count)).astype("int32") for count in (9, len(PLACES)))
    asked = {"padding_mask": np.ones_like(ids), "segment_ids": np.zeros_like(ids), "token_ids": ids}
    asked["mask_positions"] = np.tile(np.array(PLACES, "int32"), (4, 1))
    asked = {name: asked[name] for name in model.input}
    before, plain = bits(model), array(model(asked))
    tf_adapters.set_trainable(adapted(model), head=False)
    counts = tf_adapters.parameter_counts(model)
    assert (counts.head, counts.backbone) == (0, 0) and counts.trainable == counts.adapter + counts.layer_norm
    frozen, kept = frozen_digest(model), bits(model)
    learn(model, asked, words, sample_weight=np.ones(words.shape))
    assert frozen_digest(model) == frozen
    trained = {weight.path for weight in model.trainable_weights}
    assert {name for name, value in bits(model).items() if kept[name] != value} <= trained
    expected = array(model(asked))
    assert np.abs(expected - plain).max() > 1e-3
    tf_adapters.save_adapter(model, tmp_path / "one")
    saved = json.loads((tmp_path / "one" / "tf_adapters.json").read_text())["head"]
    assert saved["type"] == "masked-lm" and saved["num_labels"] == 2
    tf_adapters.remove_adapters(model)
    assert bits(model) == before
    tf_adapters.load_adapter(model, tmp_path / "one", name="again")
    np.testing.assert_allclose(array(model(asked)), expected, atol=2e-6)


# Bad input


def test_a_backbone_of_other_blocks_is_refused():
    backbone, other = small_backbone(), small_backbone("DebertaV3")
    vars(other)["transformer_layers"] = backbone.transformer_layers
    words = "has blocks that are no {} with its LayerNorms"
    is_refused(words.format("DisentangledAttentionEncoder"), tf_adapters.add_adapters, other)
    backbone.transformer_layers[0].normalize_first = True
    is_refused(words.format("TransformerEncoder"), tf_adapters.add_adapters, backbone)


def test_what_is_made_for_transformers_alone_says_so(checkpoints):
    needs_first()
    model = tf_adapters.add_adapters(load_backbone(checkpoints("bert")))
    for name, function in {
        "merge_adapter": tf_adapters.merge_adapter,
        "change_head": lambda model: tf_adapters.models.change_head(model, num_labels=3),
    }.items():
        is_refused(f"{name} takes models of transformers, and .* load the encoder by load_backbone", function, model)


def test_what_cannot_be_is_a_sentence(checkpoints, tmp_path):
    model = load_backbone(checkpoints("bert"))
    is_refused("an adapter for a model of KerasHub has the head's shape", tf_adapters.add_adapters, model, num_labels=7)
    assert adapter_names(model) == []
    for source, settings, message in (
        (checkpoints("bert"), {"door": "keras"}, "door='keras' is unknown: use 'transformers' or 'keras-hub'"),
        (checkpoints("bert"), {"head_layers": 2}, "head_layers=2 is for door='transformers'"),
        (tmp_path / "nowhere", {}, "fits|no such directory"),
        (checkpoints("mpnet"), {}, "model_type='mpnet' has no backbone of this door"),
        (checkpoints("electra"), {"head": "masked-lm"}, "electra of this door has 'classification', .*'none'"),
    ):
        is_refused(message, tf_adapters.load_backbone, str(source), **{"door": "keras-hub", **settings})
    ids = {name: keras.Input((None,), dtype="int32", name=name) for name in model.input}
    states = model.backbone(ids)["sequence_output"]
    pair = keras.Model(ids, [keras.layers.Dense(2)(states[:, 0]), keras.layers.Dense(3)(states[:, 0])])
    is_refused("must answer one tensor of logits", tf_adapters.add_adapters, pair)
    fewer = shutil.copytree(checkpoints("bert"), tmp_path / "fewer")
    about = json.loads((fewer / "config.json").read_text())
    (fewer / "config.json").write_text(json.dumps(about | {"num_hidden_layers": about["num_hidden_layers"] - 1}))
    is_refused(
        "16 encoder weights that config.json does not describe", tf_adapters.load_backbone, str(fewer), door="keras-hub"
    )
    dense = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    is_refused("must have one backbone of KerasHub inside", tf_adapters.add_adapters, dense)
    words = "GPT2Backbone' is not supported: tf_adapters has adapters for AlbertBackbone"
    is_refused(words, tf_adapters.add_adapters, small_backbone("GPT2"))


#: Settings that KerasHub's classes, or the heads of this package, cannot compute, and what they compute in their place.
REFUSED = {
    ("deberta-v2", "classification", "KerasHub's DebertaV3Backbone computes "): {
        "relative_attention": (False, "True"),
        "position_buckets": (-1, "a number above 0"),
        "max_relative_positions": (20, "-1 or 40"),
        "pos_att_type": ("c2p", "'p2c|c2p'"),
        "share_att_key": (None, "True"),
        "norm_rel_ebd": ("none", "'layer_norm'"),
        "position_biased_input": (True, "False"),
        "type_vocab_size": (2, "0"),
        "conv_kernel_size": (3, "0"),
        "embedding_size": (16, "32"),
        "attention_head_size": (8, "16"),
    },
    ("deberta-v2", "classification", "KerasHub's DebertaV3TextClassifier computes "): {
        "pooler_hidden_act": ("tanh", "'gelu'"),
        "pooler_hidden_size": (16, "32"),
        "cls_dropout": (0.5, "0.1"),
    },
    ("deberta-v2", "multiple-choice", "this head computes "): {"pooler_hidden_size": (16, "32")},
    ("electra", "multiple-choice", "this head computes "): {
        "summary_type": ("last", "'first'"),
        "summary_use_proj": (False, "True"),
    },
    ("electra", "multiple-choice", "this package computes "): {"summary_activation": ("snake", "elu, ")},
}


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_what_a_class_or_head_cannot_compute_is_refused(tmp_path, case):
    family, head, who = case
    for name, (value, computed) in REFUSED[case].items():
        config = {"type_vocab_size": 2, **SIZES[family], "model_type": family, name: value}
        (tmp_path / "config.json").write_text(json.dumps(config))
        sentence = re.escape(f"config.json has {name}={value!r}, and {who}{computed}")
        is_refused(f"^{sentence}.* alone: use door=", load_backbone, tmp_path, head=head)


def test_what_a_deberta_does_not_say_is_what_transformers_takes(tmp_path):
    for name in ("share_att_key", "relative_attention", "position_biased_input", "norm_rel_ebd"):
        config = {key: value for key, value in SIZES["deberta-v2"].items() if key != name}
        (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": "deberta-v2"}))
        is_refused(f"^config.json has {name}=", load_backbone, tmp_path)


@pytest.mark.slow
def test_what_keras_would_change_is_refused_and_is_free_again_afterwards(checkpoints):
    model = tf_adapters.add_adapters(load_backbone(checkpoints("bert")), CONFIGS["houlsby"], seed=1)
    for one in (model, model.backbone):
        with pytest.raises(NotImplementedError, match="cast_frozen"):
            one.quantize("int8")
        with pytest.raises(NotImplementedError, match="LoraConfig"):
            one.enable_lora(4)
    tf_adapters.remove_adapters(model)
    model.backbone.enable_lora(2)
    is_refused("has LoRA of Keras in", tf_adapters.add_adapters, model, CONFIGS["houlsby"])
    other = load_backbone(checkpoints("bert"))
    other.quantize("int8")
    is_refused("is quantized in", tf_adapters.add_adapters, other, CONFIGS["houlsby"])
