"""JSON of others: whatever is wrong with it is one sentence, wherever it is read."""

import json
import pathlib

import pytest

import tf_adapters
from tests.conftest import tiny_config
from tf_adapters.adapterhub.description import read_description, read_head_description
from tf_adapters.errors import InputError
from tf_adapters.json_input import MOST_LEVELS, parse_json, read_json
from tf_adapters.methods.bottleneck import AdapterConfig
from tf_adapters.models.transformers.loading import read_config
from tf_adapters.models.weight_files import open_weights
from tf_adapters.saving.settings import read_settings
from tf_adapters.tasks.files import read_chunks
from tf_adapters.tasks.spans import QUESTIONS
from tf_adapters.text.byte_bpe import ByteLevelBpe
from tf_adapters.text.wordpiece import WordPiece
from tf_adapters.training.cluster import read_cluster


def nested(levels):
    return '{"a":' * levels + "1" + "}" * levels


def test_as_many_levels_as_are_allowed_are_read():
    assert parse_json(nested(MOST_LEVELS)) == json.loads(nested(MOST_LEVELS))
    assert parse_json("[" * MOST_LEVELS + "]" * MOST_LEVELS) and parse_json("3") == 3


@pytest.mark.parametrize("text", [nested(MOST_LEVELS + 1), nested(2000), "[" * 200_000, "1" * 5000, "{", '"\\ud8'])
def test_what_cannot_be_read_is_a_value_error(text):
    with pytest.raises(ValueError):
        parse_json(text)


# Where JSON of others is read: the file, and what reads it of a folder.
READERS = {
    "adapter directory": ("tf_adapters.json", read_settings),
    "encoder": ("config.json", read_config),
    "shards": (
        "model.safetensors.index.json",
        lambda folder: open_weights(folder, ["model.safetensors.index.json"]).__enter__(),
    ),
    "AdapterHub": ("adapter_config.json", read_description),
    "head of AdapterHub": ("head_config.json", read_head_description),
    "WordPiece": ("tokenizer.json", WordPiece.from_directory),
    "BPE": ("tokenizer.json", ByteLevelBpe.from_directory),
    "JSON lines": ("rows.jsonl", lambda folder: list(read_chunks(folder / "rows.jsonl"))),
    "SQuAD": ("rows.json", lambda folder: QUESTIONS.read(folder / "rows.json")),
    "configuration of adapters": (
        "config",
        lambda folder: AdapterConfig.from_json((folder / "config").read_text(encoding="latin-1")),
    ),
    "cluster": (
        "tf_config",
        lambda folder: read_cluster({"TF_CONFIG": (folder / "tf_config").read_text(encoding="latin-1")}),
    ),
}


@pytest.mark.parametrize(
    "content",
    [nested(2000), nested(200), "[" * 100_000, "{", "[]", "3", b"\xff{}", '{"a": ' + "9" * 5000 + "}"],
    ids=range(8),
)
@pytest.mark.parametrize("reader", READERS)
def test_every_reader_says_in_a_sentence_what_is_wrong(reader, content, tmp_path):
    file, read = READERS[reader]
    (tmp_path / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError) as refusal:
        read(tmp_path)
    assert len(str(refusal.value)) < 1000


def test_half_of_a_surrogate_pair_is_refused_and_a_whole_one_is_a_character(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(r'{"a": "\ud83d\ude42"}')
    assert read_json(path) == {"a": "\U0001f642"}
    for text in (r'{"a": "\ud83d"}', r'{"\uDE42": 1}', r'{"a": [{"b": ["x\ud800"]}]}'):
        path.write_text(text)
        with pytest.raises(InputError, match="a.json is not JSON .*surrogates not allowed"):
            read_json(path)


def test_a_folder_in_a_files_place_is_named(tmp_path):
    (tmp_path / "config.json").mkdir()
    with pytest.raises(InputError, match="config.json cannot be read"):
        read_json(tmp_path / "config.json")


def test_a_configuration_nested_too_deep_is_refused_in_a_command(cli, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(tiny_config().to_dict())[:-1] + ', "more": ' + nested(2000) + "}")
    (tmp_path / "rows.csv").write_text("text,label\na,b\nc,d\n")
    rows = [f"--{name}={tmp_path / 'rows.csv'}" for name in ("train", "validation")]
    done = cli("train", f"--model={tmp_path}", *rows, f"--output={tmp_path / 'out'}")
    assert done.status == 2 and "nested more than" in done.err and "Traceback" not in done.err


def test_the_package_reads_json_in_one_place():
    package = pathlib.Path(tf_adapters.__file__).parent
    own = ("json.loads(json.dumps(", "json.loads(self._sum(")  # what this package itself has just written
    found = [
        f"{path.name}: {line.strip()}"
        for path in package.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if path.name != "json_input.py" and "json.load" in line and not any(part in line for part in own)
    ]
    assert not found
