"""Descriptions of adapters that somebody else wrote: a value of a wrong type, or beyond what float32 or a tensor holds,
is named."""

import importlib.util
import json

import pytest

from tf_adapters import AdapterConfig, ByteLevelBpe, InputError, WordPiece, load_backbone
from tf_adapters.activations import check_activation
from tf_adapters.adapterhub import bottleneck, lora
from tf_adapters.adapterhub.description import HeadDescription
from tf_adapters.methods import config_from_dict
from tf_adapters.methods.lora import LoraConfig

WRONG = [[], [[]], {}, "x", [None], "5", 10**400, float("inf"), float("nan"), [{"a": 1}]]
HUGE = [2**31, 2**63, 10**400]
FIELDS = {
    "bottleneck": [
        "bottleneck_size",
        "sharing",
        "placement",
        "activation",
        "init_stddev",
        "dropout",
        "insertion",
        "scaling",
        "hidden_layers",
    ]
    + ["inner_norm", "interaction", "random_drop", "train_layer_norm"],
    "lora": ["rank", "targets", "dropout", "train_layer_norm"],
    "ia3": ["train_layer_norm"],
    "fusion": ["adapters", "value_regularization"],
}


@pytest.mark.parametrize(
    ("method", "field"), [(method, field) for method, fields in FIELDS.items() for field in fields]
)
def test_a_field_of_a_wrong_type_is_named(method, field):
    for value in [*WRONG, None]:
        with pytest.raises(InputError) as refusal:
            config_from_dict({"method": method, field: value})
        assert len(str(refusal.value)) < 1000


@pytest.mark.parametrize("value", WRONG[1:-1] + [[10**400, 10**400], 3])
def test_blocks_of_a_wrong_type_are_named(value):
    with pytest.raises(InputError, match="blocks="):
        config_from_dict({"method": "ia3", "blocks": value}).sites(4)


@pytest.mark.parametrize("value", [*WRONG, None, 3, True])
def test_a_method_that_is_none_is_named(value):
    with pytest.raises(InputError, match="^method=.* is unknown"):
        config_from_dict({"method": value})


@pytest.mark.parametrize("value", HUGE)
def test_what_no_tensor_can_have_is_refused_before_one_is_made(value):
    for make in (
        lambda: AdapterConfig(value),
        lambda: LoraConfig(rank=value),
        lambda: AdapterConfig(hidden_layers=value),
    ):
        with pytest.raises(InputError, match=r"must be an integer of at most (65536|256)\."):
            make()


@pytest.mark.parametrize("value", [1e39, -1e39, 10**400, float("nan")])
def test_what_float32_does_not_hold_is_refused(value):
    for make in (
        lambda: LoraConfig(alpha=value),
        lambda: AdapterConfig(scaling=value),
        lambda: AdapterConfig(init_stddev=value),
    ):
        with pytest.raises(InputError, match="(alpha|scaling|init_stddev)="):
            make()


@pytest.mark.parametrize("value", [None, 3, object(), ["minilm"]])
def test_an_encoder_that_is_none_is_named(value):
    for door in (None, "keras-hub") if importlib.util.find_spec("keras_hub") else (None,):
        with pytest.raises(InputError, match="^source=.* must be a directory, an alias or an id"):
            load_backbone(value, door=door)


@pytest.mark.parametrize("name", ["get", "deserialize", "serialize", "", "no such"])
def test_what_is_no_activation_is_refused(name):
    with pytest.raises(InputError, match="activation=.* is unknown: Keras has .*relu"):
        check_activation(name)


THEIRS = {
    bottleneck.config_from_hub: [
        "leave_out",
        "dropout",
        "mh_adapter",
        "output_adapter",
        "ln_before",
        "ln_after",
        "original_ln_before",
    ]
    + ["is_parallel", "scaling", "non_linearity", "residual_before_ln", "phm_layer", "use_gating", "stochastic_depth"],
    lora.config_from_hub: [
        "leave_out",
        "dropout",
        "attn_matrices",
        "selfattn_lora",
        "intermediate_lora",
        "output_lora",
        "r",
        "alpha",
        "vera_d",
    ],
}


@pytest.mark.parametrize(("read", "name"), [(read, name) for read, names in THEIRS.items() for name in names])
def test_a_setting_of_adapterhub_of_a_wrong_type_is_named(read, name):
    arguments = (4, 4, "here") if read is bottleneck.config_from_hub else (4, "here")
    for value in WRONG[1:]:
        if name == "non_linearity" and isinstance(value, str) and value == "linear":
            continue
        with pytest.raises(InputError) as refusal:
            read({"version": "adapters.1.3.0", "config": {name: value}}, *arguments)
        assert len(str(refusal.value)) < 1000


def test_a_version_of_many_digits_is_read_as_none():
    found = lora.config_from_hub({"version": "adapters.1." + "9" * 5000, "config": {"r": 8, "alpha": 16}}, 4, "here")
    assert found.alpha == 16


@pytest.mark.parametrize("number", [float("inf"), [], {}, None, "x", 10**400])
def test_numbers_of_labels_that_are_none_are_refused(number):
    described = HeadDescription("here", "classification", None, None, {"a": number, "b": 1})
    if number == 10**400:
        assert described.labels == ["b", "a"]
        return
    with pytest.raises(InputError, match="here does not name the labels"):
        described.labels


TOKENIZER = {
    "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "pre_tokenizer": {"type": "ByteLevel"},
    "post_processor": {"type": "RobertaProcessing", "cls": ["a", 0], "sep": ["a", 0]},
}  # fmt: skip
WORDPIECE = {
    "model": {"vocab": {"[UNK]": 0}},
    "normalizer": {"type": "BertNormalizer"},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
}


@pytest.mark.parametrize(
    ("read", "changes"),
    [(ByteLevelBpe, {name: value}) for name in ("model", "pre_tokenizer", "post_processor") for value in ("x", [1], 3)]
    + [(WordPiece, {name: value}) for name in ("model", "normalizer", "pre_tokenizer") for value in ("x", [1], 3)]
    + [(ByteLevelBpe, {"added_tokens": value}) for value in (3, ["x"], [{}], [{"content": [], "id": 0}])]
    + [
        (ByteLevelBpe, {"post_processor": {"type": "RobertaProcessing", **value}})
        for value in ({}, {"cls": 3, "sep": []}, {"cls": [[]], "sep": ["a"]})
    ]
    + [
        (ByteLevelBpe, {"model": {**TOKENIZER["model"], "vocab": vocabulary}})
        for vocabulary in ({"a": "0"}, {"a": [0]}, {"a": True}, {"a": None})
    ]
    + [
        (ByteLevelBpe, {"model": {**TOKENIZER["model"], "merges": merges}})
        for merges in ([], [3], [[[], []]], [["a"] * 9000], [[1, 2]])
    ]
    + [(WordPiece, {"model": {"vocab": vocabulary}}) for vocabulary in ({"a": "0"}, {"a": [0]}, {"a": 0, "b": "1"})]
    + [
        (WordPiece, {"model": {**WORDPIECE["model"], "unk_token": []}}),
        (WordPiece, {"normalizer": {"type": ["x"] * 9000}}),
    ],
    ids=str,
)
def test_a_tokenizers_entry_of_a_wrong_type_is_named(read, changes, tmp_path):
    (tmp_path / "tokenizer.json").write_text(
        json.dumps({**(TOKENIZER if read is ByteLevelBpe else WORDPIECE), **changes})
    )
    with pytest.raises(InputError) as refusal:
        read.from_directory(tmp_path)
    assert len(str(refusal.value)) < 1000


def test_merges_that_are_no_text_are_named(tmp_path):
    (tmp_path / "vocab.json").write_text("{}")
    (tmp_path / "merges.txt").write_bytes(b"\xff")
    with pytest.raises(InputError, match="merges.txt is not UTF-8 text"):
        ByteLevelBpe.from_directory(tmp_path)
