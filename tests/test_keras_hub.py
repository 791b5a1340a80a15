"""The second door's own: graphs, task models, refusals and Keras' changes. tests/test_table.py has what both share.

On another backend: `KERAS_BACKEND=jax python -m pytest tests/test_keras_hub.py`.
"""

import json
import re

import numpy as np
import pytest

keras = pytest.importorskip("keras", minversion="3.10", reason="needs the extra `keras-hub`")
keras_hub = pytest.importorskip("keras_hub", reason="needs the extra `keras-hub`")

import tf_adapters  # noqa: E402
from tests.cases import nightly_but  # noqa: E402
from tests.families import KERAS_HUB as SIZES  # noqa: E402
from tests.keras_hub_models import (  # noqa: E402
    CONFIGS,
    MODES,
    SMALL,
    answers,
    bits,
    fill,
    first,
    inputs,
    learn,
    small_backbone,
    words_to_guess,
    write_checkpoint,
)
from tf_adapters import AdapterConfig, InputError, LoraConfig  # noqa: E402
from tf_adapters._keras3_internals import layers_of  # noqa: E402
from tf_adapters.models import frozen_digest  # noqa: E402
from tf_adapters.models.injection import adapter_names  # noqa: E402
from tf_adapters.models.keras_hub import door  # noqa: E402
from tf_adapters.models.keras_hub.loading import load_backbone  # noqa: E402
from tf_adapters.models.state import state_of  # noqa: E402

# The life of an adapter


def test_a_backbone_that_keras_traced_by_itself_gets_the_adapters_of_its_model(checkpoints):
    model = load_backbone(checkpoints("bert"))
    plain = answers(model.backbone, "bert")
    tf_adapters.add_adapters(model, AdapterConfig(**SMALL, train_layer_norm="none"), seed=0)
    fill(model)
    adapted = answers(model.backbone, "bert")
    assert np.abs(adapted - plain).max() > 1e-3
    called = model.backbone({name: inputs("bert")[1][name] for name in model.input})["sequence_output"]
    np.testing.assert_allclose(adapted, keras.ops.convert_to_numpy(called), atol=2e-6)
    tf_adapters.remove_adapters(model)
    np.testing.assert_array_equal(answers(model.backbone, "bert"), plain)


def test_a_graph_that_was_traced_follows_a_switch_and_is_nan_for_an_adapter_that_it_lacks(checkpoints):
    model = load_backbone(checkpoints("bert"))
    for number, name in enumerate(("one", "two")):
        tf_adapters.add_adapters(model, CONFIGS["houlsby"], name=name, seed=number)
        fill(model, number)
    two = answers(model, "bert")
    traced, acting = model.predict_function, state_of(model).acting
    tf_adapters.set_active(model, "one")
    one = answers(model, "bert")
    assert model.predict_function is traced and np.abs(one - two).max() > 1e-3
    tf_adapters.set_active(model, "one", blocks=[])
    with tf_adapters.disable_adapters(model):
        off = answers(model, "bert")
    assert model.predict_function is traced and np.abs(off - one).max() > 1e-3
    assert np.asarray(acting.guard()) == 1.0
    acting.number.assign(7)
    assert np.isnan(answers(model, "bert")).all()
    acting.number.assign(1)
    assert np.isfinite(answers(model, "bert")).all()


@pytest.mark.parametrize(
    ("moment", "config"),
    nightly_but(
        [(1, "lora"), (3, "houlsby")], [(moment, config) for moment in range(4) for config in ("houlsby", "lora")]
    ),
)
def test_what_is_interrupted_has_not_happened(checkpoints, monkeypatch, config, moment):
    model = load_backbone(checkpoints("bert"))
    if moment % 2:
        tf_adapters.add_adapters(model, CONFIGS[config], name="one", seed=1)
        fill(model, 1)
    before, plain = bits(model), answers(model, "bert")
    flags = [(weight.path, weight.trainable) for weight in model.weights]
    calls = []

    def interrupt(function):
        def wrapped(*arguments, **settings):
            calls.append(function)
            if len(calls) > moment:
                raise KeyboardInterrupt
            return function(*arguments, **settings)

        return wrapped

    part = "forget_traces" if moment < 2 else "build_layer"
    calls += [None] * (moment if moment < 2 else 0)
    with monkeypatch.context() as patched:
        patched.setattr(door, part, interrupt(getattr(door, part)))
        with pytest.raises(KeyboardInterrupt):
            tf_adapters.add_adapters(model, CONFIGS[config], name="two", seed=2)
    assert bits(model) == before and flags == [(weight.path, weight.trainable) for weight in model.weights]
    assert adapter_names(model) == (["one"] if moment % 2 else [])
    model.predict_function = None
    np.testing.assert_array_equal(answers(model, "bert"), plain)
    tf_adapters.add_adapters(model, CONFIGS[config], name="two", seed=2)
    tf_adapters.remove_adapters(model)
    assert all(weight.trainable for weight in model.weights)


# Training


@pytest.mark.nightly
@pytest.mark.parametrize("family", ["bert", "deberta-v2"])
@pytest.mark.parametrize("config", ["random_drop", "dropout", "lora"])
def test_what_is_random_is_so_in_training_alone(tmp_path, family, config):
    write_checkpoint(family, tmp_path, hidden_dropout_prob=0.0)
    settings = {"random_drop": {"random_drop": 3}, "dropout": {"dropout": 0.5}}
    model = load_backbone(tmp_path)
    chosen = LoraConfig(rank=2, dropout=0.5) if config == "lora" else AdapterConfig(**SMALL, **settings[config])
    tf_adapters.add_adapters(model, chosen, seed=1)
    fill(model)
    given = {name: inputs(family)[1][name] for name in model.input}
    still, moving = (
        [keras.ops.convert_to_numpy(model(given, training=training)) for _ in range(8)] for training in (False, True)
    )
    assert all(np.array_equal(one, still[0]) for one in still)
    assert not all(np.array_equal(one, moving[0]) for one in moving)


@pytest.mark.nightly
@pytest.mark.parametrize("family", ["bert", "deberta-v2"])
def test_every_dropout_of_an_adapted_block_drops_in_training(checkpoints, family):
    model = load_backbone(checkpoints(family), head="none")
    tf_adapters.set_trainable(tf_adapters.add_adapters(model, CONFIGS["houlsby"], seed=1))
    fill(model)
    block = model.transformer_layers[0]
    sites = {id(one) for site in (block.attention_site, block.ffn_site) for one in layers_of(site)}
    drops = [one for one in layers_of(model) if isinstance(one, keras.layers.Dropout)]
    of_block = [one for one in layers_of(block) if one in drops and id(one) not in sites]
    assert len(of_block) == (4 if family == "deberta-v2" else 3)
    given = {name: inputs(family)[1][name] for name in model.input}
    for chosen in of_block:
        for drop in drops:
            drop.rate = 0.5 * (drop is chosen)
        moving = [keras.tree.flatten(model(given, training=True))[-1] for _ in range(2)]
        assert not np.array_equal(*map(keras.ops.convert_to_numpy, moving))


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
            assert tf_adapters.parameter_counts(model).trainable > 0
        assert named[0] == named[1]


@pytest.mark.nightly
def test_another_choice_keeps_the_moments_of_what_still_trains(checkpoints):
    model = load_backbone(checkpoints("bert"))
    tf_adapters.add_adapters(model, CONFIGS["houlsby"], seed=1)
    tf_adapters.set_trainable(model)
    model.compile(
        optimizer=keras.optimizers.Adam(1e-2), loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    model.fit(inputs("bert")[1], np.array([0, 1, 1]), epochs=2, verbose=0)
    kept = {
        id(one): np.array(keras.ops.convert_to_numpy(moment))
        for one, moment in zip(model.trainable_variables, model.optimizer._momentums)
    }
    tf_adapters.set_trainable(model, "head")
    assert len(model.optimizer._momentums) == len(model.trainable_variables) == 2
    for variable, moment in zip(model.trainable_variables, model.optimizer._momentums):
        assert np.abs(keras.ops.convert_to_numpy(moment)).max() > 0
        np.testing.assert_array_equal(keras.ops.convert_to_numpy(moment), kept[id(variable)])
    model.fit(inputs("bert")[1], np.array([0, 1, 1]), verbose=0)


def test_a_model_of_your_own_on_a_backbone(checkpoints):
    backbone = load_backbone(checkpoints("roberta"), head="none")
    hidden = backbone(backbone.input)
    model = keras.Model(backbone.input, keras.layers.Dense(5, name="words")(hidden))
    plain = answers(model, "roberta")
    tf_adapters.add_adapters(model, CONFIGS["houlsby"], seed=1)
    tf_adapters.set_trainable(model)
    fill(model)
    counts = tf_adapters.parameter_counts(model)
    assert counts.head == 5 * 33 and counts.backbone == 0 and counts.adapter > 0
    assert np.abs(answers(model, "roberta") - plain).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", nightly_but(["Bert"], ["Bert", "Roberta", "XLMRoberta", "DistilBert", "Albert", "DebertaV3"])
)
def test_kerashubs_own_model_of_masked_words_takes_adapters(tmp_path, kind):
    model = getattr(keras_hub.models, f"{kind}MaskedLM")(small_backbone(kind))
    given, words = words_to_guess(model)
    before, plain = bits(model), model.predict(given, verbose=0)
    tf_adapters.add_adapters(model, CONFIGS["houlsby"], name="one", seed=1)
    fill(model)
    tf_adapters.add_adapters(model, CONFIGS["lora"], name="two", seed=2)
    tf_adapters.set_active(model, "one")
    tf_adapters.set_trainable(model, head=False)
    counts = tf_adapters.parameter_counts(model)
    assert (counts.head, counts.backbone) == (0, 0) and counts.trainable == counts.adapter + counts.layer_norm
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.Adam(1e-2), loss=loss, weighted_metrics=[])
    frozen, kept = frozen_digest(model), bits(model)
    learn(model, given, words, sample_weight=np.ones(words.shape))
    assert frozen_digest(model) == frozen
    trained = {weight.path for weight in model.trainable_weights}
    assert {name for name, value in bits(model).items() if kept[name] != value} <= trained
    expected = model.predict(given, verbose=0)
    assert np.abs(expected - plain).max() > 1e-3
    tf_adapters.save_adapter(model, tmp_path / "one")
    saved = json.loads((tmp_path / "one" / "tf_adapters.json").read_text())["head"]
    assert saved["type"] == "masked-lm" and saved["num_labels"] == 2
    with tf_adapters.disable_adapters(model):
        assert np.abs(model.predict(given, verbose=0) - expected).max() > 1e-3
    with pytest.raises(InputError, match="knows no task yet"):
        tf_adapters.predict(model, ["a text"])
    tf_adapters.remove_adapters(model)
    assert bits(model) == before
    tf_adapters.load_adapter(model, tmp_path / "one", name="three")
    np.testing.assert_allclose(model.predict(given, verbose=0), expected, atol=2e-6)


@pytest.mark.parametrize("kind", ["Bert", pytest.param("DebertaV3", marks=pytest.mark.nightly)])
def test_kerashubs_own_backbone_takes_adapters(kind):
    backbone = small_backbone(kind)
    model = getattr(keras_hub.models, f"{kind}TextClassifier")(backbone, num_classes=2)
    tf_adapters.add_adapters(model, CONFIGS["houlsby"])
    tf_adapters.set_trainable(model)
    assert tf_adapters.parameter_counts(model).adapter == 4 * AdapterConfig(**SMALL).parameters_per_adapter(16)


def test_a_backbone_of_other_blocks_is_refused():
    backbone, other = small_backbone(), small_backbone("DebertaV3")
    vars(other)["transformer_layers"] = backbone.transformer_layers
    with pytest.raises(InputError, match="has blocks that are no DisentangledAttentionEncoder with its LayerNorms"):
        tf_adapters.add_adapters(other)
    backbone.transformer_layers[0].normalize_first = True
    with pytest.raises(InputError, match="has blocks that are no TransformerEncoder with its LayerNorms behind"):
        tf_adapters.add_adapters(backbone)


# Bad input


def test_what_is_made_for_transformers_alone_says_so(checkpoints):
    pytest.importorskip("tf_keras", reason="needs the first door")
    model = load_backbone(checkpoints("bert"))
    tf_adapters.add_adapters(model)
    functions = {
        "merge_adapter": tf_adapters.merge_adapter,
        "change_head": lambda model: tf_adapters.models.change_head(model, num_labels=3),
    }
    for name, function in functions.items():
        with pytest.raises(InputError, match=f"{name} takes models of transformers, and .* go on with load_trained"):
            function(model)


def test_what_cannot_be_is_a_sentence(checkpoints, tmp_path):
    model = load_backbone(checkpoints("bert"))
    with pytest.raises(InputError, match="an adapter for a model of KerasHub has the head's shape"):
        tf_adapters.add_adapters(model, num_labels=7)
    assert adapter_names(model) == []
    with pytest.raises(InputError, match="door='keras' is unknown: use 'transformers' or 'keras-hub'"):
        tf_adapters.load_backbone(str(checkpoints("bert")), door="keras")
    with pytest.raises(InputError, match="head_layers=2 is for door='transformers'"):
        tf_adapters.load_backbone(str(checkpoints("bert")), head_layers=2, door="keras-hub")
    with pytest.raises(InputError, match="fits|no such directory"):
        load_backbone(tmp_path / "nowhere")
    with pytest.raises(InputError, match="model_type='mpnet' has no backbone of this door"):
        load_backbone(checkpoints("mpnet"))
    with pytest.raises(
        InputError, match="head='classification': electra of this door has 'token-classification', .*'none'"
    ):
        load_backbone(checkpoints("electra"))
    with pytest.raises(InputError, match="must have one backbone of KerasHub inside"):
        tf_adapters.add_adapters(keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)]))
    backbone = keras_hub.models.GPT2Backbone(
        vocabulary_size=50, num_layers=1, num_heads=2, hidden_dim=16, intermediate_dim=24, max_sequence_length=20
    )
    with pytest.raises(InputError, match="GPT2Backbone' is not supported: tf_adapters has adapters for AlbertBackbone"):
        tf_adapters.add_adapters(backbone)


@pytest.mark.parametrize(
    ("name", "value", "computed"),
    [
        ("relative_attention", False, "DebertaV3Backbone computes True"),
        ("position_buckets", -1, "DebertaV3Backbone computes a number above 0"),
        ("max_relative_positions", 20, "DebertaV3Backbone computes -1 or 40"),
        ("pos_att_type", "c2p", "DebertaV3Backbone computes 'p2c|c2p'"),
        ("share_att_key", None, "DebertaV3Backbone computes True"),
        ("norm_rel_ebd", "none", "DebertaV3Backbone computes 'layer_norm'"),
        ("position_biased_input", True, "DebertaV3Backbone computes False"),
        ("type_vocab_size", 2, "DebertaV3Backbone computes 0"),
        ("conv_kernel_size", 3, "DebertaV3Backbone computes 0"),
        ("embedding_size", 16, "DebertaV3Backbone computes 32"),
        ("attention_head_size", 8, "DebertaV3Backbone computes 16"),
        ("pooler_hidden_act", "tanh", "DebertaV3TextClassifier computes 'gelu'"),
        ("pooler_hidden_size", 16, "DebertaV3TextClassifier computes 32"),
        ("cls_dropout", 0.5, "DebertaV3TextClassifier computes 0.1"),
    ],
)
def test_what_kerashubs_deberta_cannot_compute_is_refused(tmp_path, name, value, computed):
    config = {**SIZES["deberta-v2"], "model_type": "deberta-v2", name: value}
    (tmp_path / "config.json").write_text(json.dumps(config))
    sentence = f"config.json has {name}={value!r}, and KerasHub's {computed} alone: use door='transformers'"
    with pytest.raises(InputError, match=f"^{re.escape(sentence)}"):
        load_backbone(tmp_path)


@pytest.mark.parametrize(
    ("family", "name", "value", "what"),
    [
        ("deberta-v2", "pooler_hidden_size", 16, "this head computes 32"),
        ("electra", "summary_type", "last", "this head computes 'first'"),
        ("electra", "summary_use_proj", False, "this head computes True"),
        ("electra", "summary_activation", "snake", "this package computes elu, "),
    ],
)
def test_what_a_head_of_multiple_choice_cannot_compute_is_refused(tmp_path, family, name, value, what):
    config = {"type_vocab_size": 2, **SIZES[family], "model_type": family, name: value}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=f"^config.json has {name}={value!r}, and {what}.* alone: use door="):
        load_backbone(tmp_path, head="multiple-choice")


@pytest.mark.parametrize("name", ["share_att_key", "relative_attention", "position_biased_input", "norm_rel_ebd"])
def test_what_a_deberta_does_not_say_is_what_transformers_takes(tmp_path, name):
    config = {key: value for key, value in SIZES["deberta-v2"].items() if key != name}
    (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": "deberta-v2"}))
    with pytest.raises(InputError, match=f"^config.json has {name}="):
        load_backbone(tmp_path)


# Beside Keras' own changes of a model


@pytest.mark.slow
def test_frozen_kernels_go_into_eight_bits_and_the_adapter_goes_on(checkpoints, tmp_path):
    model = load_backbone(checkpoints("bert"))
    with pytest.raises(InputError, match="nothing is frozen"):
        tf_adapters.models.cast_frozen(model, "int8")
    tf_adapters.add_adapters(model, CONFIGS["houlsby"], seed=1)
    fill(model)
    tf_adapters.set_trainable(model)
    exact = answers(model, "bert")
    tf_adapters.save_adapter(model, tmp_path / "before")
    names = [weight.path for weight in model.trainable_weights]
    with pytest.raises(InputError, match="dtype=None must be 'int8'"):
        tf_adapters.models.cast_frozen(model)
    tf_adapters.models.cast_frozen(model, "int8")
    assert [weight.path for weight in model.trainable_weights] == names
    rounded = answers(model, "bert")
    assert 0 < np.abs(rounded - exact).max() < 0.05 * np.abs(exact).max()
    kernels = [weight for weight in model.backbone.weights if weight.path.endswith("kernel")]
    adapters = {id(weight) for weight in state_of(model).adapter_variables()}
    assert {weight.dtype for weight in kernels if id(weight) not in adapters} == {"int8"}
    tf_adapters.save_adapter(model, tmp_path / "after")
    before, after = ((tmp_path / name / "adapter.safetensors").read_bytes() for name in ("before", "after"))
    assert before == after
    for refused in (lambda: tf_adapters.set_trainable(model, "full"), lambda: tf_adapters.remove_adapters(model)):
        with pytest.raises(InputError, match="needs the encoder's float32 weights.*is int8 now"):
            refused()
    tf_adapters.add_adapters(model, AdapterConfig(bottleneck_size=3), name="two")
    tf_adapters.remove_adapters(model, name="two")
    np.testing.assert_allclose(answers(model, "bert"), rounded, atol=2e-6)
    again = load_backbone(checkpoints("bert"))
    tf_adapters.load_adapter(again, tmp_path / "after")
    np.testing.assert_array_equal(answers(again, "bert"), exact)
    # An encoder that was changed before is another one afterwards too.
    tf_adapters.freeze(again)
    changed = next(weight for weight in again.backbone.weights if weight.path.endswith("query/kernel"))
    changed.assign(changed * 1.5)
    tf_adapters.models.cast_frozen(again, "int8")
    with pytest.raises(InputError, match="changed since"):
        tf_adapters.load_adapter(again, tmp_path / "after", name="again")


@pytest.mark.nightly
def test_adapters_train_on_eight_bits(checkpoints):
    model = load_backbone(checkpoints("bert"))
    tf_adapters.set_trainable(tf_adapters.add_adapters(model, CONFIGS["houlsby"], seed=1))
    tf_adapters.models.cast_frozen(model, "int8")
    frozen = frozen_digest(model)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.Adam(1e-2), loss=loss)
    learn(model, inputs("bert")[1], np.array([0, 1, 1]))
    assert frozen_digest(model) == frozen


@pytest.mark.slow
def test_interrupted_rounding_has_not_happened(checkpoints, monkeypatch):
    model = load_backbone(checkpoints("bert"))
    tf_adapters.set_trainable(tf_adapters.add_adapters(model, CONFIGS["houlsby"], seed=1))
    before, plain, flags = bits(model), answers(model, "bert"), [weight.trainable for weight in model.weights]
    from tf_adapters.models.keras_hub import storage

    def interrupt(model):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(storage, "forget_traces", interrupt)
        with pytest.raises(KeyboardInterrupt):
            tf_adapters.models.cast_frozen(model, "int8")
    model.predict_function = None
    assert bits(model) == before and flags == [weight.trainable for weight in model.weights]
    np.testing.assert_array_equal(answers(model, "bert"), plain)
    tf_adapters.remove_adapters(model)


@pytest.mark.slow
def test_what_keras_would_change_is_refused_and_is_free_again_afterwards(checkpoints):
    model = load_backbone(checkpoints("bert"))
    tf_adapters.add_adapters(model, CONFIGS["houlsby"], seed=1)
    for one in (model, model.backbone):
        with pytest.raises(NotImplementedError, match="cast_frozen"):
            one.quantize("int8")
        with pytest.raises(NotImplementedError, match="LoraConfig"):
            one.enable_lora(4)
    tf_adapters.remove_adapters(model)
    model.backbone.enable_lora(2)
    with pytest.raises(InputError, match="has LoRA of Keras in"):
        tf_adapters.add_adapters(model, CONFIGS["houlsby"])
    other = load_backbone(checkpoints("bert"))
    other.quantize("int8")
    with pytest.raises(InputError, match="is quantized in"):
        tf_adapters.add_adapters(other, CONFIGS["houlsby"])
