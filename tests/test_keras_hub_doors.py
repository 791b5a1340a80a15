"""A checkpoint and an adapter directory through each door, beside the first one in one process."""

import dataclasses
import inspect
import json
import pathlib
import re

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import tf_adapters
from tests.cases import nightly_but
from tests.conftest import VOCABULARY
from tests.keras_hub_models import (
    FAMILIES,
    OF_MASKED_WORDS,
    adapted,
    answers,
    array,
    first,
    hidden_states,
    inputs,
    keras,
    keras_hub,
    needs_first,
    write_checkpoint,
)
from tf_adapters import InputError, models
from tf_adapters.models.injection import adapter_names
from tf_adapters.models.keras_hub import door
from tf_adapters.models.keras_hub.families import FAMILIES as DESCRIBED
from tf_adapters.models.keras_hub.loading import load_backbone
from tf_adapters.models.state import state_of

pytestmark = pytest.mark.filterwarnings("ignore:.*has no pooler weights")


def test_each_door_has_what_the_text_of_doors_says_and_nothing_else_is_asked_of_one():
    needs_first()
    entries = re.findall(r"^    (\S.*?)(?:  .*)?$", models.door.__doc__, re.MULTILINE)
    described = dict(re.findall(r"(\w+)(\([^)]*\))?", ", ".join(entries)))
    for one in map(models.door.door_called, models.door.DOORS):
        for name, signature in described.items():
            found = getattr(one, name)
            assert not signature or str(inspect.signature(found)) == signature, (one.NAME, name)
    source = "".join(path.read_text() for path in pathlib.Path(tf_adapters.__file__).parent.rglob("*.py"))
    assert set(re.findall(r"[\w)]\.door\.(\w+)\(", source)) <= set(described)


# What a checkpoint means


@pytest.mark.parametrize("family", ["bert", "albert", "roberta", "deberta-v2"])
def test_an_encoder_is_the_first_doors(checkpoints, family):
    model, other = load_backbone(checkpoints(family)), first(checkpoints(family))
    np.testing.assert_allclose(hidden_states(model, family), hidden_states(other, family), atol=1e-5)
    assert tf_adapters.models.backbone_digest(model) == tf_adapters.models.backbone_digest(other)
    assert state_of(model).door.computes(model) == state_of(other).door.computes(other)
    assert tf_adapters.parameter_counts(model) == tf_adapters.parameter_counts(other)


RELU = {"hidden_act": "relu", "activation": "relu", "layer_norm_eps": 1e-3}


@pytest.mark.parametrize(
    "family, changes",
    [("bert", {"hidden_act": "gelu_new"}), ("bert", RELU), pytest.param("deberta-v2", RELU, marks=pytest.mark.nightly)],
    ids=str,
)
def test_activation_and_epsilon_are_the_checkpoints(tmp_path, family, changes):
    write_checkpoint(family, tmp_path, **changes)
    model, other = load_backbone(tmp_path), first(tmp_path)
    np.testing.assert_allclose(hidden_states(model, family), hidden_states(other, family), atol=1e-5)


PRETRAINED = {
    **{(family, "masked-lm"): {} for family in OF_MASKED_WORDS},
    ("roberta", "masked-lm"): {"hidden_act": "relu"},
    ("bert", "masked-lm"): {"hidden_act": "relu", "layer_norm_eps": 1e-2},
    ("distilbert", "masked-lm"): RELU,
    ("bert", "classification"): {},
    ("deberta-v2", "classification"): {},
    ("electra", "classification"): {},
    ("roberta", "multiple-choice"): {},
    ("electra", "multiple-choice"): {"summary_activation": "tanh"},
    ("deberta-v2", "multiple-choice"): {"pooler_hidden_act": "tanh"},
}


@pytest.mark.parametrize(
    "family, head", nightly_but([("roberta", "masked-lm"), ("electra", "classification")], PRETRAINED)
)
def test_a_pretrained_head_is_the_first_doors(tmp_path, family, head):
    random, arrays = np.random.default_rng(1), {}
    model = load_backbone(write_checkpoint(family, tmp_path, **PRETRAINED[family, head]), head=head, num_labels=3)
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
    if head.endswith("classification"):
        # Names that the checkpoint gives its outputs stay with them, in whatever order they are asked for.
        config = json.loads((tmp_path / "config.json").read_text())
        (tmp_path / "config.json").write_text(json.dumps({**config, "id2label": dict(enumerate("abc"))}))
        for load in (load_backbone, first):
            named = load(tmp_path, head=head, labels=["c", "a", "b"])
            np.testing.assert_allclose(answers(named, family), expected[..., [2, 0, 1]], atol=1e-5)
        model = load_backbone(tmp_path, head=head, num_labels=3)
        assert door.config_of(model).id2label == {0: "a", 1: "b", 2: "c"}


@pytest.mark.nightly
@pytest.mark.parametrize(
    "family, head, changes, rates",
    [
        ("deberta-v2", "classification", {}, [0.0, 0.15]),
        ("deberta-v2", "classification", {"pooler_dropout": 0.25, "cls_dropout": 0.15}, [0.25, 0.15]),
        ("bert", "multiple-choice", {"classifier_dropout": 0.3}, [0.15]),
        ("roberta", "multiple-choice", {"classifier_dropout": 0.3}, [0.0, 0.15]),
        ("distilbert", "multiple-choice", {"dropout": 0.15, "seq_classif_dropout": 0.3}, [0.0, 0.3]),
        ("deberta-v2", "multiple-choice", {"pooler_dropout": 0.3}, [0.3, 0.15]),
        ("electra", "multiple-choice", {"summary_last_dropout": 0.3}, [0.0, 0.3]),
        ("electra", "classification", {}, [0.15, 0.15]),
    ],
)
def test_a_head_drops_where_transformers_does(tmp_path, family, head, changes, rates):
    model = load_backbone(write_checkpoint(family, tmp_path, hidden_dropout_prob=0.15, **changes), head=head)
    for each in (model, type(model).from_config(model.get_config())):
        assert [layer.rate for layer in each.layers if isinstance(layer, keras.layers.Dropout)] == rates


@pytest.mark.nightly
def test_relative_positions_are_the_first_doors_in_long_texts(tmp_path):
    # With the buckets of DeBERTa-v3, whose last ones hold several distances.
    write_checkpoint("deberta-v2", tmp_path, position_buckets=256, max_position_embeddings=512)
    model, other = load_backbone(tmp_path, head="none"), first(tmp_path, head="none")
    ids = np.random.default_rng(0).integers(5, len(VOCABULARY), (1, 512)).astype("int32")
    found = array(model({"token_ids": ids, "padding_mask": np.ones_like(ids)}))
    np.testing.assert_allclose(found, other({"input_ids": ids}, training=False)[0].numpy(), atol=1e-5)


def test_adapter_does_not_go_to_a_backbone_that_computes_another_gelu(checkpoints, tmp_path):
    source, family = checkpoints("bert"), DESCRIBED["bert"]
    model = tf_adapters.set_trainable(adapted(load_backbone(source)))
    tf_adapters.save_adapter(model, tmp_path)
    plain = family.backbone(**family.arguments(json.loads((source / "config.json").read_text())))
    plain.set_weights(load_backbone(source, head="none").get_weights())
    assert tf_adapters.models.backbone_digest(plain) == tf_adapters.models.backbone_digest(model)
    own = keras_hub.models.BertTextClassifier(plain, num_classes=2)
    with pytest.raises(InputError, match="with activation='gelu', and this model computes with activation='gelu_tanh'"):
        tf_adapters.load_adapter(own, tmp_path)
    assert adapter_names(own) == []


# Through one door and out of the other


def compared(model, family, head):
    """What both doors compute alike: answers, where there is no padding if every token has one."""
    mask = inputs(family)[1]["padding_mask"].astype(bool)
    places = {"question-answering": np.tile(mask, 2), "token-classification": mask}
    return answers(model, family)[places.get(head, slice(None))]


def check_both_ways(checkpoint, directory, family, head, config="houlsby"):
    """An adapter and its head go through both doors; what trains and is saved is that of the first. Returns the names
    of the head's weights."""
    # Of multiple choice and masked words the number of labels decides no weight.
    numbers = (1, 2) if head in ("multiple-choice", "masked-lm") else (2 if head == "question-answering" else 3,) * 2
    ours, theirs = (
        load(checkpoint, head=head, num_labels=number) for load, number in zip((first, load_backbone), numbers)
    )
    for number, (source, target) in enumerate([(ours, theirs), (theirs, ours)]):
        tf_adapters.set_trainable(adapted(source, config, seed=number, name=f"from{number}"))
        tf_adapters.save_adapter(source, directory / str(number))
        expected = compared(source, family, head)
        assert np.ptp(expected) > 0.01
        tf_adapters.load_adapter(target, directory / str(number), name=f"to{number}")
        np.testing.assert_allclose(compared(target, family, head), expected, atol=1e-5)
    # KerasHub's backbone may have a pooler that nothing reads.
    counts = [dataclasses.replace(tf_adapters.parameter_counts(model), total=0) for model in (ours, theirs)]
    assert counts[0] == counts[1]
    heads, digests = [], []
    for model in (ours, theirs):
        state = state_of(model)
        heads.append(sorted(state.door.named_weights(model, state.head_variables(model))))
        digests.append(tf_adapters.models.backbone_digest(model))
    assert heads[0] == heads[1] and digests[0] == digests[1]
    return heads[0]


HEADS = ("token-classification", "question-answering", "multiple-choice")
# Of the head that tests/test_table.py has there is one case of each shape.
BOTH_WAYS = [
    ("bert", "classification", "dora"),
    *((family, "classification", "houlsby") for family in ("electra", "roberta")),
    *((family, head, "houlsby") for family in FAMILIES for head in HEADS),
    # transformers' head of ALBERT has one weight more, which nothing reads.
    *((family, "masked-lm", "houlsby") for family in OF_MASKED_WORDS if family != "albert"),
]
QUICK = [*BOTH_WAYS[:3], *(("bert", head, "houlsby") for head in (*HEADS, "masked-lm"))]


@pytest.mark.parametrize("family, head, config", nightly_but(QUICK, BOTH_WAYS))
def test_a_directory_goes_through_both_doors(checkpoints, tmp_path, family, head, config):
    names = check_both_ways(checkpoints(family), tmp_path, family, head, config)
    assert head != "masked-lm" or len(names) == 5


@pytest.mark.parametrize("head, labels", [("classification", ["no", "yes"]), ("masked-lm", None)])
def test_a_whole_model_comes_back_through_the_door_that_is_named(checkpoints, tmp_path, head, labels):
    model = tf_adapters.set_trainable(adapted(load_backbone(checkpoints("bert"), head=head, labels=labels)))
    tf_adapters.save_adapter(model, tmp_path / "kept")
    with pytest.raises(InputError, match=r"has the head's shape \(none, 2|the model's is another"):
        tf_adapters.load_adapter(load_backbone(checkpoints("bert"), head="none"), tmp_path / "kept")
    for name in ("keras-hub", "transformers"):
        if name == "transformers":
            needs_first()
        again, settings = tf_adapters.load_trained(tmp_path / "kept", door=name)
        assert isinstance(again, keras.Model) == (name == "keras-hub")
        assert settings["head"] == {**settings["head"], "type": head, "labels": labels}
        np.testing.assert_allclose(answers(again, "bert"), answers(model, "bert"), atol=1e-5)


@pytest.mark.nightly
@pytest.mark.parametrize("trained", [True, False])
def test_choices_stand_on_the_pooler_that_a_roberta_has(checkpoints, tmp_path, trained):
    """The file of a RoBERTa may have a pooler, which transformers reads for a head of multiple choice."""
    source, random = checkpoints("roberta"), np.random.default_rng(5)
    arrays = load_file(source / "model.safetensors")
    for name, shape in {"weight": (32, 32), "bias": (32,)}.items():
        value = random.normal(0, 0.1 if trained or name == "weight" else 0.0, shape)
        arrays[f"roberta.pooler.dense.{name}"] = value.astype("float32")
    save_file(arrays, str(tmp_path / "model.safetensors"))
    (tmp_path / "config.json").write_bytes((source / "config.json").read_bytes())
    head = check_both_ways(tmp_path, tmp_path, "roberta", "multiple-choice")
    assert (head == ["classifier.bias", "classifier.weight"]) is trained and len(head) == (2 if trained else 4)
