"""Damaged and hostile files of every format: each is read, or refused in one sentence, and changes nothing."""

import gzip
import hashlib
import json
import pathlib
import shutil

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from tests.conftest import is_refused
from tests.golden.cases import encoder
from tests.tokenizers import from_directory, theirs
from tf_adapters import AdapterConfig, add_adapters, load_adapter, load_backbone, set_trainable
from tf_adapters.adapterhub import import_adapter
from tf_adapters.adapterhub.torch_files import read_torch_file
from tf_adapters.errors import InputError
from tf_adapters.models.state import state_of
from tf_adapters.models.transformers.loading import WEIGHT_FILES, read_config
from tf_adapters.models.weight_files import open_weights
from tf_adapters.saving.settings import WEIGHTS_FILE
from tf_adapters.tasks.files import BadRows
from tf_adapters.tasks.own_files import get_reader, rows_from_file

FOLDER = pathlib.Path(__file__).parent
#: How many files a test damages: some in the default set, many at night.
CASES = pytest.mark.parametrize(
    "cases", [pytest.param(10, id="few"), pytest.param(500, id="many", marks=pytest.mark.nightly)]
)

# What is done to a file

PIECES = (b"\0", b"\xff", b"\xef\xbb\xbf", b"\n", b"\r", b'"', b",", b"\t", b"{", b"[" * 200, b"PK\3\4", b"\x80\x02")
VALUES = (
    *(None, True, -1, 0, 7, 2**31, 2**63, 2**64, -0.5, 1e39, float("nan"), float("inf"), 10**400),
    *("", "x", "../x", "/etc/passwd", "a/b", "a\0b", "\ud800", "(a+)+$", "(", "a" * 5000),
    *([], {}, [None], [[1]], [2**62, 2**62], ["x"], {"": 1}, {"a": []}, [1] * 1000),
)


@st.composite
def changed_bytes(draw, content):
    """Some places of a file cut out, filled with others' bytes, or the file cut there."""
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(content)))
        other = draw(st.sampled_from(PIECES) | st.binary(max_size=8) | st.just(content[start : start + 40]))
        left = content[start + draw(st.integers(0, 40)) :] if draw(st.integers(0, 4)) else b""
        content = content[:start] + other + left
    return content


@st.composite
def changed_json(draw, content):
    """A value of JSON at any depth left out, named otherwise, or exchanged for another one."""
    value = json.loads(content)
    for _ in range(draw(st.integers(1, 2))):
        holder, key, inner = None, None, value
        while isinstance(inner, (dict, list)) and inner and (holder is None or draw(st.integers(0, 3))):
            key = draw(st.sampled_from(sorted(inner) if isinstance(inner, dict) else range(len(inner))))
            holder, inner = inner, inner[key]
        what = draw(st.sampled_from(["exchange", "exchange", "leave out", "rename"]))
        if holder is None:
            value = draw(st.sampled_from(VALUES))
        elif what == "leave out":
            del holder[key]
        elif what == "rename" and isinstance(holder, dict):
            holder[key + draw(st.sampled_from(".x0\0"))] = holder.pop(key)
        else:
            holder[key] = json.loads(json.dumps(draw(st.sampled_from(VALUES))))
    return json.dumps(value).encode()


@st.composite
def changed_safetensors(draw, content):
    """The header changed as JSON, its length, or a number that is none put in."""
    length = int.from_bytes(content[:8], "little")
    header, numbers = content[8 : 8 + length], content[8 + length :]
    what = draw(st.sampled_from(["header", "header", "length", "number"]))
    if what == "header":
        header = draw(changed_json(header))
        length = len(header)
    elif what == "length":
        length = draw(st.sampled_from([0, 1, length - 1, length + 1, 2**31, 2**63, 2**64 - 1]))
    else:
        place = 4 * draw(st.integers(0, len(numbers) // 4 - 1))
        number = draw(st.sampled_from([np.nan, np.inf, -np.inf, 3e38, 0.0]))
        numbers = numbers[:place] + np.float32(number).tobytes() + numbers[place + 4 :]
    return length.to_bytes(8, "little") + header + numbers


def changed_file(path):
    """A strategy of other content for a file."""
    content = path.read_bytes()
    known = {".json": changed_json, ".safetensors": changed_safetensors}.get(path.suffix)
    return st.one_of(changed_bytes(content), *([known(content)] * 3 if known else []))


def check(cases, folder, bases, read, prepared=lambda draw, target: None):
    """Damage files of whole folders, and read them: so many cases, in a folder to work in, of `bases`, which must be
    read; `prepared(draw, folder)` is called once a file is damaged."""
    target = folder / "given"

    def copy(base):
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(base, target)

    @hypothesis.settings(max_examples=cases, derandomize=True, deadline=None, database=None)
    @hypothesis.given(st.data())
    def check_one(data):
        copy(data.draw(st.sampled_from(bases)))
        path = data.draw(st.sampled_from(sorted(path for path in target.rglob("*.*") if path.suffix != ".npz")))
        path.write_bytes(data.draw(changed_file(path)))
        prepared(data.draw, target)
        before = {path: path.is_dir() or path.read_bytes() for path in folder.rglob("*")}
        try:
            read(target)
        except InputError as error:
            assert str(error) and "\n" not in str(error) and len(str(error)) < 2000
        assert {path: path.is_dir() or path.read_bytes() for path in folder.rglob("*")} == before

    for base in bases:
        copy(base)
        read(target)
    check_one()


def written(folder, files):
    """A folder of these files."""
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


# Rows

TABLE = 'text,label\nthe film was good,good\n"a, ""b""",bad\nc,good\n'
WORDS = "# sent_id = 1\n" + "".join(
    f"{n}\t{word}\t_\t{tag}" + "\t_" * 6 + "\n" for n, (word, tag) in enumerate((("the", "DET"), ("film", "NOUN")), 1)
)
QUESTION = {"id": "a", "question": "what?", "answers": [{"text": "film", "answer_start": 4}]}
SQUAD = {"version": "1.1", "data": [{"title": "t", "paragraphs": [{"context": "the film", "qas": [QUESTION]}]}]}
ROWS = {
    "rows.csv": ("classification", TABLE),
    "rows.tsv": ("classification", 'text\tlabel\nthe film was good\tgood\na "b\tbad\nc\tgood\n'),
    "rows.jsonl": ("classification", "".join(f'{{"text": "text {n}", "label": {n % 2}}}\n' for n in range(5))),
    "rows.csv.gz": ("regression", gzip.compress(b"text,label\na,0.5\nb,2\n", mtime=0)),
    "rows.conllu": ("token-classification", WORDS + "\n"),
    "rows.json": ("question-answering", json.dumps(SQUAD)),
}
# How a file is said to be written: as usual, or otherwise.
DIALECTS = {
    "encoding": [None, *"utf-16 utf-16-be utf-32 shift_jis gb18030 utf-7 iso2022_jp hz cp037".split()],
    "header": ["first", "none"],
    "delimiter": [None, "tab"],
}


@CASES
@pytest.mark.parametrize("name", ROWS)
def test_files_of_rows(tmp_path, name, cases):
    (kind, content), how = ROWS[name], {}

    def say(draw, folder):
        how.update({word: draw(st.sampled_from([usual] * 3 + others)) for word, (usual, *others) in DIALECTS.items()})

    def read(folder):
        assert len(rows_from_file(folder / name, kind=kind, labels=None, **how))
        for chunk in get_reader(kind).chunks(folder / name, bad_rows=BadRows(), **how):
            chunk.rows()
            assert all(text.strip() and "\0" not in text for text in getattr(chunk, "text", ()))

    check(4 * cases, tmp_path, [written(tmp_path / "whole", {name: content})], read, say)


# Adapters


def seen(model):
    """All weights of a model, and what acts and trains."""
    state, trains = state_of(model), [variable.name for variable in model.trainable_variables]
    weights = [(variable.name, variable.numpy().tobytes()) for variable in model.weights]
    return weights, trains, sorted(state.adapters), state.active, state.trainable, type(model)


class Loaded:
    """Loads into a model that has a trained adapter already; a refusal leaves every bit of it, and what is loaded is
    finite."""

    def __init__(self, source, load):
        self.source, self.load, self.model = source, load, None

    def __call__(self, folder):
        if self.model is None:
            self.model = add_adapters(load_backbone(self.source, num_labels=3), AdapterConfig(2), name="first", seed=0)
            self.before = seen(set_trainable(self.model, "adapters"))
        model, self.model = self.model, None  # another one is made if it is changed
        try:
            self.load(model, folder)
        except InputError:
            assert seen(model) == self.before
            self.model = model
            raise
        assert all(np.isfinite(variable.numpy()).all() for variable in model.weights)


def signed(draw, folder):
    """Write the digest of changed weights into the settings, so that they are looked into."""
    path = folder / "tf_adapters.json"
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
        settings["weights"]["sha256"] = hashlib.sha256((folder / WEIGHTS_FILE).read_bytes()).hexdigest()
        path.write_text(json.dumps(settings))
    except (ValueError, TypeError, KeyError):
        pass


def copy_of(name, folder):
    golden, ignore = FOLDER / "golden" / "transformers" / name, shutil.ignore_patterns("*.npy")
    return shutil.copytree(golden, folder, ignore=ignore, dirs_exist_ok=True)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    return Loaded(encoder(tmp_path_factory.mktemp("encoder")), load_adapter)


@CASES
def test_adapter_directories(loaded, tmp_path, cases):
    bases = [copy_of(name, tmp_path / "whole" / name) for name in ("shared", "lora", "ia3", "fusion")]
    check(cases, tmp_path, bases, loaded, signed)


def of_size(size):
    return lambda settings, arrays: settings["adapter"].update(bottleneck_size=size)


def put(key, value):
    return lambda settings, arrays: arrays.update({key: np.asarray(value, np.float32)})


@pytest.mark.parametrize(
    "change, message",
    [
        # Seen in what is read.
        (put("head.classifier.bias", [1, np.nan, 1]), "bias holds NaN or infinity"),
        (lambda settings, arrays: arrays.pop("layers.0-1.up.kernel"), "holds 51 numbers for an adapter whose .* 87"),
        (of_size(60_000), "holds 87 numbers for an adapter whose config asks for"),
        (lambda settings, arrays: settings["head"].update(pooler=True), "head"),
        (lambda settings, arrays: arrays.pop("head.classifier.bias"), "head"),
        # Seen when the model has the adapter already, whose head or weights fit nothing.
        (put("head.classifier.bias", [1, 1, 1, 1]), "has a head for 3 labels"),
        (put("layers.0-1.up.kernel", np.zeros((12, 3))), "up.kernel has shape .12, 3., and the model's is .3, 12."),
        (put("backbone.encoder.layer.7.output.LayerNorm.bias", [1]), "for which the model has no weight"),
    ],
    ids=["nan", "lacking", "size", "pooler", "no head", "head", "shape", "unknown"],
)
def test_what_is_wrong_with_a_whole_directory_is_found_and_changes_nothing(loaded, change, message, tmp_path):
    copy_of("shared", tmp_path)
    settings, arrays = json.loads((tmp_path / "tf_adapters.json").read_text()), load_file(tmp_path / WEIGHTS_FILE)
    change(settings, arrays)
    save_file(arrays, tmp_path / WEIGHTS_FILE)
    (tmp_path / "tf_adapters.json").write_text(json.dumps(settings))
    signed(None, tmp_path)
    is_refused(message, loaded, tmp_path)


@CASES
@pytest.mark.parametrize("names", ["double_seq_bn norm_before fusion", "lora lora_values peft peft-pattern"])
def test_directories_of_adapterhub_and_peft(tmp_path, names, cases):
    bert = FOLDER / "adapterhub" / "bert"
    check(cases, tmp_path, [bert / name for name in names.split()], Loaded(bert / "model", import_adapter))


@CASES
def test_files_of_pytorch(tmp_path, cases):
    """No pickle of these runs anything: tests/test_torch_files.py."""
    bases = []
    for number, path in enumerate(sorted((FOLDER / "adapterhub").rglob("pytorch_adapter.bin"))):
        bases.append(written(tmp_path / "whole" / str(number), {path.name: path.read_bytes()}))
    check(4 * cases, tmp_path, bases, lambda folder: read_torch_file(folder / "pytorch_adapter.bin"))


# Encoders


@CASES
def test_encoders(tmp_path, cases):
    whole = encoder(tmp_path / "whole" / "one")
    shards = tmp_path / "whole" / "shards"
    shutil.copytree(whole, shards)
    arrays = load_file(shards / "model.safetensors")
    (shards / "model.safetensors").unlink()
    places = {name: f"model-0000{1 + number % 2}-of-00002.safetensors" for number, name in enumerate(sorted(arrays))}
    for file in set(places.values()):
        save_file({name: arrays[name] for name in places if places[name] == file}, shards / file)
    (shards / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))

    def read(folder):
        read_config(folder)
        with open_weights(folder, WEIGHT_FILES) as found:
            for name in found:
                found.shape(name)
                found.read(name)

    check(4 * cases, tmp_path, [whole, shards], read)


# Tokenizers

# Of a family's files as HuggingFace saves them: those of each folder.
TOKENIZERS = {
    "bert": ("vocab.txt tokenizer_config.json", "tokenizer.json"),
    "roberta": ("vocab.json merges.txt tokenizer_config.json", "tokenizer.json"),
    "xlm-roberta": ("sentencepiece.bpe.model", "tokenizer.json"),
}


@CASES
@pytest.mark.parametrize("family", TOKENIZERS)
def test_tokenizers(tmp_path, tmp_path_factory, family, cases):
    saved, bases = tmp_path_factory.mktemp(family), []
    theirs(family).save_pretrained(saved)
    for number, names in enumerate(TOKENIZERS[family]):
        files = {name: (saved / name).read_bytes() for name in names.split()}
        bases.append(written(tmp_path / "whole" / str(number), files))
    texts = ["the film was good", "", "\u00e9t\u00e9 \u4e2d\u6587 a\u0301 \U0001f642", "x" * 200]

    def read(folder):
        tokenizer = from_directory(family, folder)
        tokenizer(texts)
        tokenizer.tokenize_with_offsets(texts)

    check(cases, tmp_path, bases, read)
