"""A checkpoint and an adapter directory through each door, beside the first one in one process."""

import dataclasses
import inspect
import json
import pathlib
import re

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

keras = pytest.importorskip("keras", minversion="3.10", reason="needs the extra `keras-hub`")
keras_hub = pytest.importorskip("keras_hub", reason="needs the extra `keras-hub`")

import tf_adapters  # noqa: E402
from tests.cases import nightly_but  # noqa: E402
from tests.conftest import VOCABULARY  # noqa: E402
from tests.keras_hub_models import (  # noqa: E402
    CLASSIFIERS,
    CONFIGS,
    FAMILIES,
    SMALL,
    answers,
    fill,
    first,
    hidden_states,
    inputs,
    write_checkpoint,
)
from tf_adapters import AdapterConfig, InputError, models  # noqa: E402
from tf_adapters.models.injection import adapter_names  # noqa: E402
from tf_adapters.models.keras_hub import door  # noqa: E402
from tf_adapters.models.keras_hub.families import FAMILIES as DESCRIBED  # noqa: E402
from tf_adapters.models.keras_hub.loading import load_backbone  # noqa: E402
from tf_adapters.models.state import state_of  # noqa: E402


def test_each_door_has_what_the_text_of_doors_says_and_nothing_else_is_asked_of_one():
    pytest.importorskip("tf_keras", reason="needs the first door")
    entries = re.findall(r"^    (\S.*?)(?:  .*)?$", models.door.__doc__, re.MULTILINE)
    described = dict(re.findall(r"(\w+)(\([^)]*\))?", ", ".join(entries)))
    for one in map(models.door.door_called, models.loading.DOORS):
        for name, signature in described.items():
            found = getattr(one, name)
            assert not signature or str(inspect.signature(found)) == signature, (one.NAME, name)
    package = pathlib.Path(tf_adapters.__file__).parent
    source = "".join(path.read_text() for path in package.rglob("*.py"))
    assert set(re.findall(r"[\w)]\.door\.(\w+)\(", source)) <= set(described)


# What a checkpoint means


@pytest.mark.parametrize("family", nightly_but(["bert", "albert", "roberta", "deberta-v2"], FAMILIES))
def test_an_encoder_is_the_first_doors(checkpoints, family):
    head = "classification" if family in CLASSIFIERS else "none"
    model, other = load_backbone(checkpoints(family), head=head), first(checkpoints(family))
    np.testing.assert_allclose(hidden_states(model, family), hidden_states(other, family), atol=1e-5)
    assert tf_adapters.models.backbone_digest(model) == tf_adapters.models.backbone_digest(other)
    assert state_of(model).door.computes(model) == state_of(other).door.computes(other)
    if family in CLASSIFIERS:
        assert tf_adapters.parameter_counts(model) == tf_adapters.parameter_counts(other)


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("bert", {"hidden_act": "gelu_new"}),
        ("bert", {"hidden_act": "relu", "layer_norm_eps": 1e-3}),
        pytest.param("deberta-v2", {"hidden_act": "relu", "layer_norm_eps": 1e-3}, marks=pytest.mark.nightly),
    ],
)
def test_activation_and_epsilon_are_the_checkpoints(tmp_path, family, changes):
    write_checkpoint(family, tmp_path, **changes)
    model, other = load_backbone(tmp_path), first(tmp_path)
    np.testing.assert_allclose(hidden_states(model, family), hidden_states(other, family), atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*has no pooler weights")
@pytest.mark.parametrize(
    ("family", "head", "changes"),
    [
        ("roberta", "masked-lm", {"hidden_act": "relu"}),
        *(
            pytest.param(family, head, changes, marks=pytest.mark.nightly)
            for family, head, changes in (
                ("bert", "classification", {}),
                ("deberta-v2", "classification", {}),
                ("roberta", "multiple-choice", {}),
                ("electra", "multiple-choice", {"summary_activation": "tanh"}),
                ("deberta-v2", "multiple-choice", {"pooler_hidden_act": "tanh"}),
                ("bert", "masked-lm", {"hidden_act": "relu", "layer_norm_eps": 1e-2}),
                ("albert", "masked-lm", {}),
                ("distilbert", "masked-lm", {"hidden_act": "relu", "activation": "relu"}),
            )
        ),
        *(
            pytest.param(family, "masked-lm", {}, marks=pytest.mark.nightly)
            for family in ("camembert", "deberta-v2", "xlm-roberta")
        ),
    ],
)
def test_a_pretrained_head_is_the_first_doors(tmp_path, family, head, changes):
    random, arrays = np.random.default_rng(1), {}
    model = load_backbone(write_checkpoint(family, tmp_path, **changes), head=head, num_labels=3)
    assert not state_of(model).pretrained_head
    for variable, name, transposed in state_of(model).family.names(model):
        value = door.array(variable)
        if not name.startswith(state_of(model).family.prefix_name):
            value = random.normal(0, 0.3, value.shape).astype("float32")
        arrays[name] = np.ascontiguousarray(value.T if transposed else value)
    save_file(arrays, str(tmp_path / "model.safetensors"))
    model, other = load_backbone(tmp_path, head=head, num_labels=3), first(tmp_path, head=head, num_labels=3)
    expected = answers(other, family)
    assert np.ptp(expected) > 0.01 and state_of(model).pretrained_head
    np.testing.assert_allclose(answers(model, family), expected, atol=1e-5)


@pytest.mark.nightly
def test_debertas_head_drops_as_its_config_says(tmp_path):
    write_checkpoint("deberta-v2", tmp_path, hidden_dropout_prob=0.15)
    plain = load_backbone(tmp_path)
    write_checkpoint("deberta-v2", tmp_path, hidden_dropout_prob=0.15, pooler_dropout=0.25, cls_dropout=0.15)
    told = load_backbone(tmp_path)
    assert [(one.pooled_dropout.rate, one.output_dropout.rate) for one in (plain, told)] == [(0.0, 0.15), (0.25, 0.15)]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("family", "changes", "rates"),
    [
        ("bert", {"hidden_dropout_prob": 0.15, "classifier_dropout": 0.3}, [0.15]),
        ("roberta", {"hidden_dropout_prob": 0.15, "classifier_dropout": 0.3}, [0.0, 0.15]),
        ("distilbert", {"dropout": 0.15, "seq_classif_dropout": 0.3}, [0.0, 0.3]),
        ("deberta-v2", {"hidden_dropout_prob": 0.15, "pooler_dropout": 0.3}, [0.3, 0.15]),
        ("electra", {"hidden_dropout_prob": 0.15, "summary_last_dropout": 0.3}, [0.0, 0.3]),
    ],
)
def test_a_head_of_multiple_choice_drops_where_transformers_does(tmp_path, family, changes, rates):
    model = load_backbone(write_checkpoint(family, tmp_path, **changes), head="multiple-choice")
    for each in (model, type(model).from_config(model.get_config())):
        assert [layer.rate for layer in each.layers if isinstance(layer, keras.layers.Dropout)] == rates


@pytest.mark.nightly
def test_relative_positions_are_the_first_doors_in_long_texts(tmp_path):
    # With the buckets of DeBERTa-v3, whose last ones hold several distances.
    write_checkpoint("deberta-v2", tmp_path, position_buckets=256, max_position_embeddings=512)
    model, other = load_backbone(tmp_path, head="none"), first(tmp_path, head="none")
    ids = np.random.default_rng(0).integers(5, len(VOCABULARY), (1, 512)).astype("int32")
    found = model.predict({"token_ids": ids, "padding_mask": np.ones_like(ids)}, verbose=0)
    np.testing.assert_allclose(found, other({"input_ids": ids}, training=False)[0].numpy(), atol=1e-5)


def test_adapter_does_not_go_to_a_backbone_that_computes_another_gelu(checkpoints, tmp_path):
    source = checkpoints("bert")
    model = load_backbone(source)
    tf_adapters.add_adapters(model, AdapterConfig(**SMALL), seed=0)
    fill(model)
    tf_adapters.save_adapter(tf_adapters.set_trainable(model), tmp_path)
    family = DESCRIBED["bert"]
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
    nightly_but(
        [("bert", "dora"), ("roberta", "houlsby")],
        [
            *(("bert", config) for config in CONFIGS),
            *((family, "houlsby") for family in CLASSIFIERS if family != "bert"),
        ],
    ),
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


def test_a_file_of_another_runtime_is_the_first_doors(checkpoints, tmp_path):
    pytest.importorskip("tf_keras", reason="needs the first door")
    from tf_adapters.serving.convert import export_file

    model = tf_adapters.load_backbone(str(checkpoints("bert")), door="keras-hub")
    with pytest.raises(InputError, match="export_file takes models of transformers, and .* go on with load_trained"):
        export_file(model, tmp_path / "a.onnx", format="onnx")


@pytest.mark.nightly
def test_alberts_head_of_masked_words_stays_in_its_door(checkpoints, tmp_path):
    source = checkpoints("albert")
    models = load_backbone(source, head="masked-lm"), first(source, head="masked-lm")
    for model, other in (models, models[::-1]):
        name = f"of {type(model).__name__}"
        tf_adapters.add_adapters(model, CONFIGS["houlsby"], seed=1)
        fill(model)
        tf_adapters.save_adapter(tf_adapters.set_trainable(model), tmp_path / name)
        before = adapter_names(other)
        with pytest.raises(InputError, match="the model's is another; .* or pass head=False"):
            tf_adapters.load_adapter(other, tmp_path / name, name="again")
        assert adapter_names(other) == before


def test_an_encoder_without_a_head_takes_the_adapter_alone(checkpoints, tmp_path):
    ours, theirs = first(checkpoints("electra"), head="none"), load_backbone(checkpoints("electra"), head="none")
    tf_adapters.add_adapters(ours, CONFIGS["houlsby"], seed=3)
    fill(ours)
    tf_adapters.set_trainable(ours)
    tf_adapters.save_adapter(ours, tmp_path / "kept")
    tf_adapters.load_adapter(theirs, tmp_path / "kept")
    expected = ours(inputs("electra")[0], training=False)[0].numpy()
    np.testing.assert_allclose(answers(theirs, "electra")[1:], expected[1:], atol=1e-5)


@pytest.mark.parametrize("head", ["token-classification", "question-answering"])
@pytest.mark.parametrize("family", nightly_but(["bert"], FAMILIES))
def test_heads_on_every_token_are_the_first_doors(checkpoints, tmp_path, family, head):
    settings = {"head": head, "num_labels": 2}
    model, other = load_backbone(checkpoints(family), **settings), first(checkpoints(family), **settings)
    tf_adapters.add_adapters(model, CONFIGS["houlsby"], seed=1)
    fill(model)
    tf_adapters.set_trainable(model)
    tf_adapters.save_adapter(model, tmp_path / "kept")
    tf_adapters.load_adapter(other, tmp_path / "kept")
    assert tf_adapters.models.backbone_digest(model) == tf_adapters.models.backbone_digest(other)
    ours, theirs = inputs(family)
    found = model.predict({name: theirs[name] for name in model.input}, verbose=0)
    expected = other(ours, training=False)
    found, expected = (
        [outputs[name] for name in ("start_logits", "end_logits")] if head == "question-answering" else [outputs]
        for outputs in (found, expected if head == "question-answering" else expected.logits)
    )
    real = theirs["padding_mask"].astype(bool)
    for one, another in zip(found, expected):
        assert np.abs(one[real]).max() > 0.01
        np.testing.assert_allclose(one[real], another.numpy()[real], atol=1e-5)
    with pytest.raises(InputError, match=r"has the head's shape \(none, 2 labels\)"):
        tf_adapters.load_adapter(load_backbone(checkpoints(family), head="none"), tmp_path / "kept")


def with_a_pooler(checkpoint, directory, trained):
    """A RoBERTa whose file has its pooler, which transformers reads for a head of multiple choice."""
    random, shape = np.random.default_rng(5), {"weight": (32, 32), "bias": (32,)}
    arrays = {
        f"roberta.pooler.dense.{name}": random.normal(0, 0.1 if trained or name == "weight" else 0.0, size)
        for name, size in shape.items()
    }
    arrays = {name: value.astype("float32") for name, value in arrays.items()}
    save_file({**load_file(checkpoint / "model.safetensors"), **arrays}, str(directory / "model.safetensors"))
    (directory / "config.json").write_bytes((checkpoint / "config.json").read_bytes())
    return directory


def check_both_ways(checkpoint, directory, family, head):
    """A head goes through both doors, and what trains and is saved is that of the first; its weights' names."""
    # Of neither head does the number of labels decide a weight.
    ours, theirs = first(checkpoint, head=head, num_labels=1), load_backbone(checkpoint, head=head, num_labels=2)
    for number, (source, target) in enumerate([(ours, theirs), (theirs, ours)]):
        tf_adapters.add_adapters(source, CONFIGS["houlsby"], name=f"from{number}", seed=3)
        fill(source, seed=number)
        tf_adapters.set_trainable(source)
        tf_adapters.save_adapter(source, directory / str(number))
        expected = answers(source, family)
        assert expected.shape[:2] == (3, 3) and np.ptp(expected) > 0.01
        tf_adapters.load_adapter(target, directory / str(number), name=f"to{number}")
        np.testing.assert_allclose(answers(target, family), expected, atol=1e-5)
    counts = [dataclasses.asdict(tf_adapters.parameter_counts(model)) for model in (ours, theirs)]
    if (family, head) in (("electra", "multiple-choice"), ("bert", "masked-lm")):
        counts[1]["total"] -= 32 * 33  # KerasHub's backbone has a pooler that nothing reads
    assert counts[0] == counts[1]
    heads = [
        sorted(state_of(model).door.named_weights(model, state_of(model).head_variables(model)))
        for model in (ours, theirs)
    ]
    assert heads[0] == heads[1]
    digests = [tf_adapters.models.backbone_digest(model) for model in (ours, theirs)]
    assert digests[0] == digests[1]
    return heads[0]


@pytest.mark.filterwarnings("ignore:.*has no pooler weights")
@pytest.mark.parametrize("family", nightly_but(["bert"], FAMILIES))
def test_a_head_of_multiple_choice_goes_through_both_doors(checkpoints, tmp_path, family):
    check_both_ways(checkpoints(family), tmp_path, family, "multiple-choice")


# transformers' head of ALBERT has one weight more, which nothing reads.
MASKED = tuple(family for family in CLASSIFIERS if family != "albert")


@pytest.mark.parametrize("family", nightly_but(["bert"], MASKED))
def test_a_head_of_masked_words_goes_through_both_doors(checkpoints, tmp_path, family):
    assert len(check_both_ways(checkpoints(family), tmp_path, family, "masked-lm")) == 5
    again, settings = tf_adapters.load_trained(tmp_path / "0", door="keras-hub")
    assert settings["head"] == {**settings["head"], "type": "masked-lm", "num_labels": 1, "labels": None}
    np.testing.assert_allclose(answers(again, family), answers(first_trained(tmp_path / "0"), family), atol=1e-5)


def first_trained(directory):
    return tf_adapters.load_trained(directory, door="transformers")[0]


@pytest.mark.nightly
@pytest.mark.parametrize("trained", [True, False])
def test_choices_stand_on_the_pooler_that_a_roberta_has(checkpoints, tmp_path, trained):
    source = with_a_pooler(checkpoints("roberta"), tmp_path, trained)
    head = check_both_ways(source, tmp_path, "roberta", "multiple-choice")
    assert (head == ["classifier.bias", "classifier.weight"]) is trained and len(head) == (2 if trained else 4)
