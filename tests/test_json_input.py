"""JSON of others: whatever is wrong with it, down to the type or the size of one value, is one sentence, wherever it is
read."""

import importlib.util
import json
import pathlib

import pytest

import tf_adapters
from tf_adapters import AdapterConfig, InputError, load_backbone
from tf_adapters.adapterhub import bottleneck, lora
from tf_adapters.adapterhub.description import read_description, read_head_description
from tf_adapters.config import check_activation
from tf_adapters.methods import config_from_dict
from tf_adapters.models.transformers.loading import read_config
from tf_adapters.models.weight_files import open_weights
from tf_adapters.paths import MOST_LEVELS, parse_json, read_json
from tf_adapters.saving.settings import read_settings
from tf_adapters.tasks.files import read_chunks
from tf_adapters.tasks.own_files import get_reader
from tf_adapters.text import ByteLevelBpe, WordPiece
from tf_adapters.training.settings import read_cluster


def refusal(read, *arguments):
    """What is said of a call, in a sentence of bearable length."""
    with pytest.raises(InputError) as error:
        read(*arguments)
    assert len(str(error.value)) < 1000
    return str(error.value)


def nested(levels):
    return '{"a":' * levels + "1" + "}" * levels


def test_as_many_levels_as_are_allowed_are_read():
    assert parse_json(nested(MOST_LEVELS)) == json.loads(nested(MOST_LEVELS))
    assert parse_json("[" * MOST_LEVELS + "]" * MOST_LEVELS) and parse_json("3") == 3
    for text in (nested(MOST_LEVELS + 1), nested(2000), "[" * 200_000, "1" * 5000, "{", '"\\ud8'):
        with pytest.raises(ValueError):
            parse_json(text)


# Where JSON of others is read: the file, and what reads it of a folder.
INDEX = "model.safetensors.index.json"
READERS = {
    "adapter directory": ("tf_adapters.json", read_settings),
    "encoder": ("config.json", read_config),
    "shards": (INDEX, lambda folder: open_weights(folder, [INDEX]).__enter__()),
    "AdapterHub": ("adapter_config.json", read_description),
    "head of AdapterHub": ("head_config.json", read_head_description),
    "WordPiece": ("tokenizer.json", WordPiece.from_directory),
    "BPE": ("tokenizer.json", ByteLevelBpe.from_directory),
    "JSON lines": ("rows.jsonl", lambda folder: list(read_chunks(folder / "rows.jsonl"))),
    "SQuAD": ("rows.json", lambda folder: get_reader("question-answering").read(folder / "rows.json")),
    "configuration of adapters": ("a", lambda folder: AdapterConfig.from_json((folder / "a").read_text("latin-1"))),
    "cluster": ("a", lambda folder: read_cluster({"TF_CONFIG": (folder / "a").read_text("latin-1")})),
}


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_says_in_a_sentence_what_is_wrong(reader, tmp_path):
    file, read = READERS[reader]
    numbers = '{"a": ' + "9" * 5000 + "}"
    for content in (nested(2000), nested(200), "[" * 100_000, "{", "[]", "3", "\xff{}", numbers):
        (tmp_path / file).write_bytes(content.encode("latin-1"))
        refusal(read, tmp_path)


def test_half_of_a_surrogate_pair_is_refused_and_a_whole_one_is_a_character(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(r'{"a": "\ud83d\ude42"}')
    assert read_json(path) == {"a": "\U0001f642"}
    for text in (r'{"a": "\ud83d"}', r'{"\uDE42": 1}', r'{"a": [{"b": ["x\ud800"]}]}'):
        path.write_text(text)
        assert "a.json is not JSON" in refusal(read_json, path)
    (tmp_path / "config.json").mkdir()
    assert "config.json cannot be read" in refusal(read_json, tmp_path / "config.json")


def test_the_package_reads_json_in_one_place():
    package = pathlib.Path(tf_adapters.__file__).parent
    own = ("json.loads(json.dumps(", "json.loads(self._sum(")  # what this package itself has just written
    found = [
        f"{path.name}: {line.strip()}"
        for path in package.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if path.name != "paths.py" and "json.load" in line and not any(part in line for part in own)
    ]
    assert not found


# Values of a wrong type, or beyond what float32 or a tensor holds

WRONG = [[], [[]], {}, "x", [None], "5", 10**400, float("inf"), float("nan"), [{"a": 1}]]
FIELDS = {
    "bottleneck": "bottleneck_size sharing placement activation init_stddev dropout insertion scaling hidden_layers "
    "inner_norm interaction random_drop train_layer_norm",
    "lora": "rank targets dropout train_layer_norm",
    "ia3": "train_layer_norm",
    "fusion": "adapters value_regularization",
}
# Of AdapterHub's descriptions, and what else their readers are given.
THEIRS = {
    "leave_out dropout mh_adapter output_adapter ln_before ln_after original_ln_before is_parallel scaling "
    "non_linearity residual_before_ln phm_layer use_gating stochastic_depth": (
        bottleneck.config_from_hub, 4, 4, "here",
    ),
    "leave_out dropout attn_matrices selfattn_lora intermediate_lora output_lora r alpha vera_d": (
        lora.config_from_hub, 4, "here",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("method", "field"), [(of, field) for of in FIELDS for field in FIELDS[of].split()])
def test_a_field_of_a_wrong_type_is_named(method, field):
    for value in [*WRONG, None]:
        refusal(config_from_dict, {"method": method, field: value})


@pytest.mark.parametrize(("read", "name"), [(read, name) for names, read in THEIRS.items() for name in names.split()])
def test_a_setting_of_adapterhub_of_a_wrong_type_is_named(read, name):
    for value in WRONG[1:]:
        refusal(read[0], {"version": "adapters.1.3.0", "config": {name: value}}, *read[1:])


def test_values_that_are_none_are_named():
    for value in WRONG[1:-1] + [[10**400, 10**400], 3]:
        build = lambda value=value: config_from_dict({"method": "ia3", "blocks": value}).sites(4)  # noqa: E731
        assert "blocks=" in refusal(build)
    for value in [*WRONG, None, 3, True]:
        assert refusal(config_from_dict, {"method": value}).startswith("method=")
    for field in ({"bottleneck_size": 2**31}, {"rank": 10**400, "method": "lora"}, {"hidden_layers": 2**63}):
        assert "must be an integer of at most " in refusal(config_from_dict, {"method": "bottleneck", **field})
    for value in (1e39, -1e39, 10**400, float("nan")):
        assert "scaling=" in refusal(lambda value=value: AdapterConfig(scaling=value))
    for value in (None, 3, object(), ["minilm"]):
        for door in (None, "keras-hub") if importlib.util.find_spec("keras_hub") else (None,):
            said = refusal(lambda door=door, value=value: load_backbone(value, door=door))
            assert said.startswith("source=") and "must be a directory, an alias or an id" in said
    for name in ("get", "deserialize", "serialize", "", "no such"):
        assert "is unknown: Keras has " in refusal(check_activation, name)


BPE = {"type": "BPE", "vocab": {"a": 0}, "merges": []}
ROBERTA = {"type": "RobertaProcessing", "cls": ["a", 0], "sep": ["a", 0]}
TOKENIZERS = {
    ByteLevelBpe: {"model": BPE, "pre_tokenizer": {"type": "ByteLevel"}, "post_processor": ROBERTA},
    WordPiece: {
        "model": {"vocab": {"[UNK]": 0, "[PAD]": 1, "a": 2}}, "normalizer": {"type": "BertNormalizer"},
        "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": {**ROBERTA, "type": "BertProcessing"},
    },
}  # fmt: skip
BROKEN = {
    ByteLevelBpe: [
        *({"added_tokens": value} for value in (3, ["x"], [{}], [{"content": [], "id": 0}])),
        *({"post_processor": {"type": "RobertaProcessing", **value}} for value in ({}, {"cls": 3, "sep": []})),
        *({"model": {**BPE, "vocab": value}} for value in ({"a": "0"}, {"a": True})),
        *({"model": {**BPE, "merges": value}} for value in ([3], [["a"] * 9000], [[1, 2]])),
    ],
    WordPiece: [
        *({"model": {"vocab": value}} for value in ({"a": "0"}, {"a": [0]}, {"a": 0, "b": "1"})),
        {"model": {"vocab": {"[UNK]": 0}, "unk_token": []}},
    ],
}


@pytest.mark.parametrize("read", TOKENIZERS)
def test_a_tokenizers_entry_of_a_wrong_type_is_named(read, tmp_path):
    for changes in [*({name: value} for name in TOKENIZERS[read] for value in ("x", [1], 3)), *BROKEN[read]]:
        (tmp_path / "tokenizer.json").write_text(json.dumps({**TOKENIZERS[read], **changes}))
        refusal(read.from_directory, tmp_path)
    if read is ByteLevelBpe:
        (tmp_path / "tokenizer.json").unlink()
        (tmp_path / "vocab.json").write_text("{}")
        (tmp_path / "merges.txt").write_bytes(b"\xff")
        assert "merges.txt is not UTF-8 text" in refusal(read.from_directory, tmp_path)
