"""The second door: KerasHub's backbones on Keras 3, beside the first one in one process.

On another backend: `KERAS_BACKEND=jax python -m pytest tests/test_keras_hub.py`.
"""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

keras = pytest.importorskip("keras", minversion="3.10", reason="needs the extra `keras-hub`")
keras_hub = pytest.importorskip("keras_hub", reason="needs the extra `keras-hub`")

import tf_adapters  # noqa: E402
from tests.conftest import VOCABULARY  # noqa: E402
from tests.families import FAMILIES as SIZES  # noqa: E402
from tf_adapters import AdapterConfig, InputError, LoraConfig  # noqa: E402
from tf_adapters.methods import DoraConfig, FusionConfig, IA3Config  # noqa: E402
from tf_adapters.models import frozen_digest  # noqa: E402
from tf_adapters.models.injection import active_adapter, adapter_names  # noqa: E402
from tf_adapters.models.keras_hub import door  # noqa: E402
from tf_adapters.models.keras_hub.family import MODEL_TYPES, get_family  # noqa: E402
from tf_adapters.models.keras_hub.loading import load_backbone  # noqa: E402
from tf_adapters.models.state import state_of  # noqa: E402

FAMILIES = ("albert", "bert", "camembert", "distilbert", "electra", "roberta", "xlm-roberta")
CLASSIFIERS = tuple(family for family in FAMILIES if family != "electra")  # KerasHub has no head for it
SMALL = {"bottleneck_size": 4}
MODES = ("full", "top-1", "layer-norm", "bias", "head", "adapters")
CONFIGS = {
    "houlsby": AdapterConfig(**SMALL),
    "one a block": AdapterConfig(**SMALL, sharing="layer", activation="tanh", train_layer_norm="none"),
    "shared": AdapterConfig(**SMALL, sharing=2, train_layer_norm="encoder"),
    "upper": AdapterConfig(**SMALL, blocks=(1, 2), placement="ffn", train_layer_norm="adapted"),
    "after norm": AdapterConfig(**SMALL, insertion="after-norm", placement="ffn"),
    "parallel": AdapterConfig(**SMALL, insertion="parallel", scaling=4.0),
    "deep": AdapterConfig(**SMALL, hidden_layers=2, inner_norm="before", scaling="learned"),
    "multiply": AdapterConfig(**SMALL, interaction="multiply", inner_norm="after"),
    "dropped": AdapterConfig(**SMALL, random_drop=2, dropout=0.1),
    "lora": LoraConfig(rank=2, targets=("query", "key", "value", "attention_output", "intermediate", "output")),
    "dora": DoraConfig(rank=2, targets=("value", "attention_output", "intermediate")),
    "ia3": IA3Config(),
    "fusion": FusionConfig(adapters={"a": AdapterConfig(**SMALL), "b": AdapterConfig(bottleneck_size=3)}),
}


def write_checkpoint(family, directory, **changes):
    """A tiny encoder with random weights, every bias included, as transformers would write it."""
    usual = {"type_vocab_size": 2, "hidden_act": "gelu", "activation": "gelu"}
    config = {**usual, **SIZES[family], **changes, "model_type": family}
    (directory / "config.json").write_text(json.dumps(config))
    if family not in MODEL_TYPES:
        return directory
    described, random = get_family(MODEL_TYPES[family]), np.random.default_rng(0)
    backbone = described.backbone(**described.arguments(config))
    described.prepare(backbone, config)
    arrays = {}
    for variable, name, transposed in described.names(backbone):
        shape = door.shape(variable)[::-1] if transposed else door.shape(variable)
        scale = random.normal(0, 0.05, shape).astype("float32")
        arrays[name] = scale + 1 if name.endswith("LayerNorm.weight") or "layer_norm.weight" in name else scale
    save_file(arrays, str(directory / "model.safetensors"))
    return directory


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """Function of a family that returns the directory of a tiny encoder."""
    made = {}

    def get(family):
        if family not in made:
            made[family] = write_checkpoint(family, tmp_path_factory.mktemp(family))
        return made[family]

    return get


def first(checkpoint, **settings):
    """A model of the first door."""
    pytest.importorskip("tf_keras", reason="needs the first door")
    return tf_adapters.load_backbone(str(checkpoint), door="transformers", **settings)


def inputs(family):
    """The same three rows of nine tokens for each door, the first padded."""
    random, pad = np.random.default_rng(0), SIZES[family].get("pad_token_id", 0)
    ids, mask = random.integers(5, len(VOCABULARY), (3, 9)).astype("int32"), np.ones((3, 9), "int32")
    ids[0, 5:], mask[0, 5:] = pad, 0
    ours = {"input_ids": ids, "attention_mask": mask}
    if family not in ("distilbert", "roberta", "xlm-roberta", "camembert"):
        ours["token_type_ids"] = np.zeros((3, 9), "int32")
    theirs = {"token_ids": ids, "padding_mask": mask, "segment_ids": np.zeros((3, 9), "int32")}
    return ours, theirs


def answers(model, family):
    """Logits of either door, or of the second one's backbone the hidden states."""
    ours, theirs = inputs(family)
    if not isinstance(model, keras.Model):
        return model(ours, training=False).logits.numpy()
    outputs = model.predict({name: theirs[name] for name in model.input}, verbose=0)
    return outputs["sequence_output"] if isinstance(outputs, dict) else outputs


def fill(model, seed=0):
    """Values as after training: every weight of the acting adapter, its LayerNorms and the head is another."""
    random, state = np.random.default_rng(seed), state_of(model)
    state.origin(model)
    adapter = state.adapters[state.active]
    variables = [weight for layer in adapter.layers.values() for weight in layer.weights]
    variables += state.head_variables(model)
    if adapter.config.train_layer_norm != "none":
        variables += state.layer_norm_variables(model, adapter.config.train_layer_norm, adapter.config.blocks)
    for variable in variables:
        variable.assign(
            np.asarray(state.door.read(variable)) + random.normal(0, 0.1, tuple(variable.shape)).astype("float32")
        )


def bits(model):
    return {weight.path: keras.ops.convert_to_numpy(weight).tobytes() for weight in model.weights}


def some(names, quick, slow=None):
    """The cases of a test, of which all but a few are slow, or if some of these are named, of the conformance."""
    marks = {name: pytest.mark.slow if slow is None or name in slow else pytest.mark.conformance for name in names}
    return [name if name in quick else pytest.param(name, marks=marks[name]) for name in names]


# What a checkpoint means


@pytest.mark.parametrize("family", some(FAMILIES, ("bert", "albert", "roberta")))
def test_an_encoder_is_the_first_doors(checkpoints, family):
    head = "classification" if family in CLASSIFIERS else "none"
    model, other = load_backbone(checkpoints(family), head=head), first(checkpoints(family))
    _, theirs = inputs(family)
    backbone = state_of(model).family.main_layer(model)
    hidden = backbone.predict({name: theirs[name] for name in backbone.input}, verbose=0)
    hidden = hidden["sequence_output"] if isinstance(hidden, dict) else hidden
    ours, _ = inputs(family)
    expected = state_of(other).family.main_layer(other)(ours, training=False)[0].numpy()
    real = theirs["padding_mask"].astype(bool)
    np.testing.assert_allclose(hidden[real], expected[real], atol=1e-5)
    assert tf_adapters.models.backbone_digest(model) == tf_adapters.models.backbone_digest(other)
    if family in CLASSIFIERS:
        assert tf_adapters.parameter_counts(model) == tf_adapters.parameter_counts(other)


@pytest.mark.parametrize("changes", [{"hidden_act": "gelu_new"}, {"hidden_act": "relu", "layer_norm_eps": 1e-3}])
def test_activation_and_epsilon_are_the_checkpoints(tmp_path, changes):
    write_checkpoint("bert", tmp_path, **changes)
    model, other = load_backbone(tmp_path), first(tmp_path)
    hidden = model.backbone.predict(inputs("bert")[1], verbose=0)["sequence_output"]
    expected = other.bert(inputs("bert")[0], training=False)[0].numpy()
    np.testing.assert_allclose(hidden[1:], expected[1:], atol=1e-5)


def test_adapter_does_not_go_to_a_backbone_that_computes_another_gelu(checkpoints, tmp_path):
    source = checkpoints("bert")
    model = load_backbone(source)
    tf_adapters.add_adapters(model, AdapterConfig(**SMALL), seed=0)
    fill(model)
    tf_adapters.save_adapter(tf_adapters.set_trainable(model), tmp_path)
    family = get_family("bert")
    plain = family.backbone(**family.arguments(json.loads((source / "config.json").read_text())))
    plain.set_weights(load_backbone(source, head="none").get_weights())
    assert tf_adapters.models.backbone_digest(plain) == tf_adapters.models.backbone_digest(model)
    own = keras_hub.models.BertTextClassifier(plain, num_classes=2)
    with pytest.raises(InputError, match="with activation='gelu', and this model computes with activation='gelu_tanh'"):
        tf_adapters.load_adapter(own, tmp_path)
    assert adapter_names(own) == []


# Through one door and out of the other


@pytest.mark.parametrize(
    ("family", "config"),
    [
        ("bert", "dora"),
        ("roberta", "houlsby"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                *(("bert", config) for config in ("houlsby", "fusion", "multiply", "ia3")),
                *((family, "houlsby") for family in CLASSIFIERS if family not in ("bert", "roberta")),
            )
        ),
        *(
            pytest.param("bert", config, marks=pytest.mark.conformance)
            for config in CONFIGS
            if config not in ("dora", "houlsby", "fusion", "multiply", "ia3")
        ),
    ],
)
def test_a_directory_goes_through_both_doors(checkpoints, tmp_path, family, config):
    ours, theirs = first(checkpoints(family), num_labels=3), load_backbone(checkpoints(family), num_labels=3)
    for number, (source, target) in enumerate([(ours, theirs), (theirs, ours)]):
        tf_adapters.add_adapters(source, CONFIGS[config], name=f"from{number}", seed=3)
        fill(source, seed=number)
        tf_adapters.set_trainable(source)
        tf_adapters.save_adapter(source, tmp_path / str(number))
        expected = answers(source, family)
        assert np.abs(expected).max() > 0.01
        tf_adapters.load_adapter(target, tmp_path / str(number), name=f"to{number}")
        np.testing.assert_allclose(answers(target, family), expected, atol=1e-5)
    assert tf_adapters.parameter_counts(ours) == tf_adapters.parameter_counts(theirs)
    written = [json.loads((tmp_path / name / "tf_adapters.json").read_text()) for name in "01"]
    assert written[0]["parameters"] == {**written[1]["parameters"], "total": written[0]["parameters"]["total"]}
    assert written[0]["backbone"]["sha256"] == written[1]["backbone"]["sha256"]


@pytest.mark.parametrize("door", ["transformers", "keras-hub"])
def test_a_whole_model_comes_back_through_the_door_that_is_named(checkpoints, tmp_path, door):
    if door == "transformers":
        pytest.importorskip("tf_keras", reason="needs the first door")
    model = tf_adapters.load_backbone(str(checkpoints("bert")), labels=["no", "yes"], door="keras-hub")
    tf_adapters.add_adapters(model, CONFIGS["houlsby"], seed=3)
    fill(model)
    tf_adapters.set_trainable(model)
    tf_adapters.save_adapter(model, tmp_path / "kept")
    again, settings = tf_adapters.load_trained(tmp_path / "kept", door=door)
    assert isinstance(again, keras.Model) == (door == "keras-hub") and settings["head"]["labels"] == ["no", "yes"]
    np.testing.assert_allclose(answers(again, "bert"), answers(model, "bert"), atol=1e-5)


def test_an_encoder_without_a_head_takes_the_adapter_alone(checkpoints, tmp_path):
    ours, theirs = first(checkpoints("electra"), head="none"), load_backbone(checkpoints("electra"), head="none")
    tf_adapters.add_adapters(ours, CONFIGS["houlsby"], seed=3)
    fill(ours)
    tf_adapters.set_trainable(ours)
    tf_adapters.save_adapter(ours, tmp_path / "kept")
    tf_adapters.load_adapter(theirs, tmp_path / "kept")
    expected = ours(inputs("electra")[0], training=False)[0].numpy()
    np.testing.assert_allclose(answers(theirs, "electra")[1:], expected[1:], atol=1e-5)


# The life of an adapter


@pytest.mark.parametrize("config", some(CONFIGS, ("houlsby", "lora"), ("after norm", "ia3", "fusion")))
def test_adapters_come_act_and_go(checkpoints, config):
    model = load_backbone(checkpoints("bert"))
    before, plain = bits(model), answers(model, "bert")
    kinds = [type(layer) for layer in model.backbone.transformer_layers]
    tf_adapters.add_adapters(model, CONFIGS[config], name="one", seed=1)
    fill(model, 1)
    one = answers(model, "bert")
    assert np.abs(one - plain).max() > 1e-3
    tf_adapters.add_adapters(model, AdapterConfig(bottleneck_size=3), name="two", seed=2)
    fill(model, 2)
    two = answers(model, "bert")
    tf_adapters.set_active(model, "one")
    np.testing.assert_allclose(answers(model, "bert"), one, atol=2e-6)
    tf_adapters.set_active(model, "two")
    np.testing.assert_allclose(answers(model, "bert"), two, atol=2e-6)
    with tf_adapters.disable_adapters(model):
        norms = {name: value for name, value in bits(model).items() if "layer_norm" in name}
        assert norms.items() <= before.items()
    np.testing.assert_allclose(answers(model, "bert"), two, atol=2e-6)
    tf_adapters.remove_adapters(model, name="two")
    assert (adapter_names(model), active_adapter(model)) == (["one"], "one")
    np.testing.assert_allclose(answers(model, "bert"), one, atol=2e-6)
    tf_adapters.remove_adapters(model)
    assert bits(model) == before
    assert [type(layer) for layer in model.backbone.transformer_layers] == kinds
    np.testing.assert_array_equal(answers(model, "bert"), plain)
    assert all(weight.trainable for weight in model.weights)


@pytest.mark.parametrize("family", some(CLASSIFIERS, ("bert",)))
def test_an_untrained_adapter_with_nothing_above_leaves_every_bit(checkpoints, family):
    model = load_backbone(checkpoints(family))
    plain = answers(model, family)
    tf_adapters.add_adapters(model, AdapterConfig(bottleneck_size=4))
    adapter = state_of(model).adapters["default"]
    for layer in adapter.layers.values():
        layer.up_kernel.assign(np.zeros(layer.up_kernel.shape))
    np.testing.assert_array_equal(answers(model, family), plain)


def test_a_graph_that_was_traced_follows_a_switch(checkpoints):
    model = load_backbone(checkpoints("bert"))
    tf_adapters.add_adapters(model, CONFIGS["houlsby"], name="one", seed=1)
    fill(model, 1)
    tf_adapters.add_adapters(model, CONFIGS["houlsby"], name="two", seed=2)
    fill(model, 2)
    two = answers(model, "bert")
    traced = model.predict_function
    tf_adapters.set_active(model, "one")
    one = answers(model, "bert")
    assert model.predict_function is traced and np.abs(one - two).max() > 1e-3
    tf_adapters.set_active(model, "one", blocks=[])
    with tf_adapters.disable_adapters(model):
        off = answers(model, "bert")
    assert model.predict_function is traced and np.abs(off - one).max() > 1e-3


def test_a_graph_without_the_adapter_that_acts_answers_nan(checkpoints):
    model = load_backbone(checkpoints("bert"))
    tf_adapters.add_adapters(model, CONFIGS["houlsby"], name="one", seed=1)
    acting = state_of(model).acting
    assert np.asarray(acting.guard()) == 1.0
    acting.number.assign(7)
    assert np.isnan(answers(model, "bert")).all()
    acting.number.assign(1)
    assert np.isfinite(answers(model, "bert")).all()


@pytest.mark.parametrize("config", ["houlsby", "lora"])
@pytest.mark.parametrize("moment", range(4))
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

    with monkeypatch.context() as patched:
        patched.setattr(door, "forget_traces" if moment < 2 else "build_layer", interrupt(
            door.forget_traces if moment < 2 else door.build_layer
        ))  # fmt: skip
        calls += [None] * (moment if moment < 2 else 0)
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


@pytest.mark.parametrize("config", some(CONFIGS, ("houlsby",), ("ia3", "dropped")))
def test_fit_trains_what_was_chosen_and_nothing_else(checkpoints, config):
    model = load_backbone(checkpoints("bert"))
    tf_adapters.add_adapters(model, CONFIGS[config], seed=1)
    tf_adapters.set_trainable(model)
    model.compile(
        optimizer=keras.optimizers.Adam(1e-2), loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    frozen, trained = frozen_digest(model), {weight.path for weight in model.trainable_weights}
    before = bits(model)
    losses = model.fit(inputs("bert")[1], np.array([0, 1, 1]), epochs=6, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    assert frozen_digest(model) == frozen
    changed = {name for name, value in bits(model).items() if before[name] != value}
    # Where nothing of a weight's gradient is left, as of keys' biases, it stays.
    assert changed - {name for name in changed if name.endswith("dropped_blocks")} <= trained and len(changed) > 5


@pytest.mark.parametrize("mode", some(MODES, ("bias", "adapters")))
def test_what_trains_is_what_trains_through_the_first_door(checkpoints, mode):
    named = []
    for model in (first(checkpoints("bert")), load_backbone(checkpoints("bert"))):
        tf_adapters.add_adapters(model, CONFIGS["shared"], seed=1)
        tf_adapters.set_trainable(model, mode)
        state = state_of(model)
        adapters = {id(weight) for weight in state.adapter_variables()}
        rest = [weight for weight in model.trainable_variables if id(weight) not in adapters]
        named.append((len(model.trainable_variables), sorted(state.door.named_weights(model, rest))))
        assert tf_adapters.parameter_counts(model).trainable > 0
    assert named[0] == named[1]


@pytest.mark.slow
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


@pytest.mark.slow
def test_the_head_computes_in_float32_under_mixed_precision(checkpoints):
    model = load_backbone(checkpoints("bert"), dtype="mixed_bfloat16")
    tf_adapters.add_adapters(model, CONFIGS["houlsby"], seed=1)
    tf_adapters.set_trainable(model)
    assert {layer.compute_dtype for layer in state_of(model).adapters["default"].layers.values()} == {"bfloat16"}
    assert answers(model, "bert").dtype == np.float32
    assert {weight.dtype for weight in model.weights if "active" not in weight.path} <= {"float32", "int32"}
    model.compile(
        optimizer=keras.optimizers.Adam(1e-2), loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    losses = model.fit(inputs("bert")[1], np.array([0, 1, 1]), epochs=5, verbose=0).history["loss"]
    assert losses[-1] < losses[0]


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


def small_backbone():
    return keras_hub.models.BertBackbone(
        vocabulary_size=50, num_layers=2, num_heads=2, hidden_dim=16, intermediate_dim=24, max_sequence_length=20
    )


def test_kerashubs_own_backbone_takes_adapters():
    backbone = small_backbone()
    model = keras_hub.models.BertTextClassifier(backbone, num_classes=2)
    tf_adapters.add_adapters(model, CONFIGS["houlsby"])
    tf_adapters.set_trainable(model)
    assert tf_adapters.parameter_counts(model).adapter == 4 * AdapterConfig(**SMALL).parameters_per_adapter(16)


# Files of Keras


LOAD = """
import json, sys
import numpy as np
import keras
from tf_adapters.models import load_keras_file
import tf_adapters
from tf_adapters.models.state import state_of
from tests.test_keras_hub import answers

model = load_keras_file(sys.argv[1])
one = answers(model, sys.argv[2])
tf_adapters.set_active(model, "two")
two = answers(model, sys.argv[2])
tf_adapters.set_active(model, "one")
with tf_adapters.disable_adapters(model):
    plain = answers(model, sys.argv[2])
tf_adapters.save_adapter(model, sys.argv[3] + "/one")
tf_adapters.remove_adapters(model)
np.savez(sys.argv[3] + "/found.npz", one=one, two=two, plain=plain, removed=answers(model, sys.argv[2]))
"""


@pytest.mark.parametrize(
    "family",
    [
        pytest.param(name, marks=pytest.mark.slow if name in ("bert", "roberta") else pytest.mark.conformance)
        for name in CLASSIFIERS
    ],
)
def test_a_keras_file_has_all_adapters_and_the_encoder_without_them(checkpoints, tmp_path, family):
    import os
    import pathlib
    import subprocess
    import sys

    model = load_backbone(checkpoints(family), labels=["no", "yes", "perhaps"])
    plain = answers(model, family)
    tf_adapters.add_adapters(model, CONFIGS["houlsby"], name="two", seed=2)
    fill(model, 2)
    two = answers(model, family)
    tf_adapters.add_adapters(model, CONFIGS["lora"], name="one", seed=1)
    fill(model, 1)
    tf_adapters.set_trainable(model)
    one = answers(model, family)
    with tf_adapters.disable_adapters(model):
        off = answers(model, family)
    tf_adapters.save_adapter(model, tmp_path / "one-before")
    model.save(tmp_path / "all.keras")
    words = [sys.executable, "-W", "ignore", "-c", LOAD, tmp_path / "all.keras", family, tmp_path]
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[1])}
    done = subprocess.run([str(word) for word in words], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = np.load(tmp_path / "found.npz")
    for name, value in {"one": one, "two": two, "plain": off, "removed": plain}.items():
        np.testing.assert_allclose(found[name], value, atol=2e-6, err_msg=name)
    about = [json.loads((tmp_path / name / "tf_adapters.json").read_text()) for name in ("one-before", "one")]
    assert about[0]["backbone"]["sha256"] == about[1]["backbone"]["sha256"]
    assert about[0]["weights"] == about[1]["weights"] and about[1]["head"]["labels"] == ["no", "yes", "perhaps"]


@pytest.mark.slow
def test_a_keras_file_of_a_model_that_trains_goes_on(tmp_path):
    from tf_adapters.models import load_keras_file

    write_checkpoint("bert", tmp_path, hidden_dropout_prob=0.0)
    model = load_backbone(tmp_path)
    tf_adapters.set_trainable(tf_adapters.add_adapters(model, CONFIGS["houlsby"], seed=1))
    fill(model)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.Adam(1e-2), loss=loss, metrics=[], jit_compile=False)
    data = inputs("bert")[1], np.array([0, 1, 1])
    model.train_on_batch(*data)
    expected = answers(model, "bert")
    model.save(tmp_path / "all.keras")
    again = load_keras_file(tmp_path / "all.keras")
    assert bits(again) == bits(model) and type(again).__name__ == "BertTextClassifier"
    assert [weight.path for weight in again.trainable_weights] == [weight.path for weight in model.trainable_weights]
    np.testing.assert_array_equal(answers(again, "bert"), expected)
    assert frozen_digest(again) == frozen_digest(model)
    assert tf_adapters.backbone_digest(again) == tf_adapters.backbone_digest(model)
    for one in (model, again):
        one.train_on_batch(*data)
    for one, other in zip(model.trainable_weights, again.trainable_weights):
        np.testing.assert_allclose(np.array(one), np.array(other), atol=1e-6, err_msg=one.path)
    with pytest.raises(NotImplementedError, match="belong to the BertTextClassifier around it"):
        keras.models.clone_model(again)  # which copies a model layer by layer


def test_an_encoder_of_a_checkpoint_keeps_its_own_numbers_in_a_keras_file(tmp_path):
    write_checkpoint("roberta", tmp_path, hidden_act="relu", layer_norm_eps=1e-3)
    model = load_backbone(tmp_path)
    model.save(tmp_path / "plain.keras")
    again = keras.saving.load_model(tmp_path / "plain.keras")
    np.testing.assert_array_equal(answers(again, "roberta"), answers(model, "roberta"))


def test_what_keras_files_cannot_hold_is_refused_and_leaves_no_file(checkpoints, tmp_path):
    model = load_backbone(checkpoints("bert"))
    tf_adapters.set_trainable(tf_adapters.add_adapters(model, CONFIGS["houlsby"], seed=1))
    with pytest.raises(NotImplementedError, match="belong to the BertTextClassifier around it: save that"):
        model.backbone.save(tmp_path / "whole.keras")
    with tf_adapters.disable_adapters(model), pytest.raises(NotImplementedError, match="inside disable_adapters"):
        model.save(tmp_path / "whole.keras")
    for one in (model, model.backbone):
        with pytest.raises(NotImplementedError, match="A preset of KerasHub has no place"):
            one.save_to_preset(str(tmp_path / "preset"))
    tf_adapters.models.cast_frozen(model, "int8")
    with pytest.raises(NotImplementedError, match="after cast_frozen"):
        model.save(tmp_path / "whole.keras")
    assert not list(tmp_path.iterdir())


def test_kerashubs_own_backbone_can_be_saved_again_when_its_adapters_are_gone(tmp_path):
    backbone = small_backbone()
    tf_adapters.add_adapters(backbone, CONFIGS["houlsby"])
    adapted = type(backbone)
    tf_adapters.remove_adapters(backbone)
    assert type(backbone) is not adapted
    backbone.save(tmp_path / "whole.keras")
    again = keras.saving.load_model(tmp_path / "whole.keras")
    assert bits(again) == bits(backbone)


def test_weights_of_all_adapters_come_back(checkpoints, tmp_path):
    model, other = load_backbone(checkpoints("bert")), load_backbone(checkpoints("bert"))
    for each in (model, other):
        tf_adapters.add_adapters(each, CONFIGS["shared"], seed=1)
    fill(model)
    model.save_weights(tmp_path / "all.weights.h5")
    other.load_weights(tmp_path / "all.weights.h5")
    np.testing.assert_array_equal(answers(other, "bert"), answers(model, "bert"))


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="KerasHub's positions need a length on JAX")
@pytest.mark.slow
def test_an_exported_model_answers_the_same(checkpoints, tmp_path):
    import tensorflow as tf

    model = load_backbone(checkpoints("bert"))
    tf_adapters.add_adapters(model, CONFIGS["houlsby"], seed=1)
    fill(model)
    expected = answers(model, "bert")
    model.export(tmp_path / "1", verbose=False)
    served = tf.saved_model.load(tmp_path / "1")
    given = {name: tf.constant(value, tf.float32) for name, value in inputs("bert")[1].items()}
    wanted = served.signatures["serving_default"].structured_input_signature[1]
    (outputs,) = served.signatures["serving_default"](
        **{name: tf.cast(value, wanted[name].dtype) for name, value in given.items()}
    ).values()
    np.testing.assert_allclose(outputs.numpy(), expected, atol=1e-6)


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
    with pytest.raises(InputError, match="fast=True: models of KerasHub have no fast blocks"):
        tf_adapters.add_adapters(model, fast=True)
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
    with pytest.raises(InputError, match="head='classification': electra of this door has 'none'"):
        load_backbone(checkpoints("electra"))
    with pytest.raises(InputError, match="must have one backbone of KerasHub inside"):
        tf_adapters.add_adapters(keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)]))
    backbone = keras_hub.models.GPT2Backbone(
        vocabulary_size=50, num_layers=1, num_heads=2, hidden_dim=16, intermediate_dim=24, max_sequence_length=20
    )
    with pytest.raises(InputError, match="GPT2Backbone' is not supported: tf_adapters has adapters for AlbertBackbone"):
        tf_adapters.add_adapters(backbone)


# Beside Keras' own changes of a model


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


@pytest.mark.slow
def test_adapters_train_on_eight_bits(checkpoints):
    model = load_backbone(checkpoints("bert"))
    tf_adapters.set_trainable(tf_adapters.add_adapters(model, CONFIGS["houlsby"], seed=1))
    tf_adapters.models.cast_frozen(model, "int8")
    frozen = frozen_digest(model)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.Adam(1e-2), loss=loss)
    losses = model.fit(inputs("bert")[1], np.array([0, 1, 1]), epochs=6, verbose=0).history["loss"]
    assert losses[-1] < losses[0] and frozen_digest(model) == frozen


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
