"""An encoder's config.json and weights, which a stranger wrote."""

import json
import pathlib
import re
import socket

import h5py
import numpy as np
import pytest
from safetensors.numpy import save_file

import tf_adapters
from tests.conftest import tiny_config, tiny_inputs, write_checkpoint
from tests.families import FAMILIES
from tf_adapters import InputError, load_backbone
from tf_adapters.models.transformers.config_file import read_config
from tf_adapters.models.transformers.family import get_family
from tf_adapters.models.weight_files import open_weights, read_tensors

PROGRAM = "import pathlib\npathlib.Path({trace!r}).write_text('ran')\nclass Config: pass\nclass Model: pass\n"
# What chooses code, or where to fetch it: of CVE-2026-4372 and CVE-2026-5241, and of their kind.
HOSTILE = {
    "_attn_implementation_internal": "stranger/kernel",
    "_attn_implementation": "stranger/kernel",
    "attn_implementation": "stranger/kernel",
    "_experts_implementation_internal": "stranger/kernel",
    "use_kernels": True,
    "kernel_config": {"Linear": "stranger/kernel"},
    "trust_remote_code": True,
    "auto_map": {"AutoConfig": "program.Config", "TFAutoModel": "stranger/program--program.Model"},
    "custom_pipelines": {"classification": {"impl": "program.Model", "tf": ["Model"]}},
    "quantization_config": {"quant_method": "stranger"},
    "_name_or_path": "stranger/model",
    "_commit_hash": "main",
    "model_name": "stranger/model",
    "base_model_name_or_path": "stranger/model",
    "text_config": {"model_type": "stranger", "trust_remote_code": True, "auto_map": {"AutoConfig": "program.Config"}},
    "vision_config": {"trust_remote_code": True},
    "torch_dtype": "__import__('os')",
    "dtype": "eval",
    "tokenizer_class": "program.Model",
    "architectures": ["program.Model"],
    "transformers_version": "9",
    "name_or_path": "stranger/model",
    "keypoint_detector_config": {
        "model_type": "superpoint",
        "_name_or_path": "stranger/model",
        "trust_remote_code": True,
    },
    "get_text_config": 3,
    "to_dict": 5,
    "__class__": "program.Config",
    "output_attentions": True,
    "return_dict": False,
}


def edit_config(directory, **changes):
    path = pathlib.Path(directory) / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_configuration_that_names_code_to_fetch_and_run_reaches_nothing(tmp_path, monkeypatch):
    write_checkpoint(tmp_path)
    plain = load_backbone(tmp_path)
    trace = tmp_path / "trace"
    (tmp_path / "program.py").write_text(PROGRAM.format(trace=str(trace)))
    edit_config(tmp_path, **HOSTILE)

    def refuse(*arguments, **more):
        raise AssertionError(f"a network connection: {arguments}")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    model = load_backbone(tmp_path)
    assert vars(model.config) == vars(plain.config) and not trace.exists()
    np.testing.assert_array_equal(model(tiny_inputs()).logits.shape, plain(tiny_inputs()).logits.shape)


def test_what_transformers_5_writes_is_read(tmp_path):
    write_checkpoint(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for name in ("torch_dtype", "position_embedding_type", "use_cache"):
        config.pop(name, None)
    config |= {"dtype": "bfloat16", "rope_parameters": None, "transformers_version": "5.2.0", "is_decoder": False}
    (tmp_path / "config.json").write_text(json.dumps(config))
    arrays = read_tensors(tmp_path / "model.safetensors")
    save_file(arrays, tmp_path / "model.safetensors", {"format": "mlx"})
    word = load_backbone(tmp_path).bert.embeddings.weight
    np.testing.assert_array_equal(word, arrays["embeddings.word_embeddings.weight"])


@pytest.mark.parametrize("family", FAMILIES)
def test_every_key_that_describes_an_encoder_is_kept_and_no_other(family, tmp_path):
    described = get_family(family)
    config = described.config_class(**FAMILIES[family])
    (tmp_path / "config.json").write_text(json.dumps({**config.to_dict(), "model_type": family, **HOSTILE}))
    found = read_config(tmp_path)[1]
    assert {**found.to_dict(), "transformers_version": None} == {**config.to_dict(), "transformers_version": None}


def test_complete_names_of_labels_are_kept_and_others_are_not(tmp_path):
    write_checkpoint(tmp_path, id2label={0: "ham", 1: "spam"}, label2id={"ham": 0, "spam": 1})
    edit_config(tmp_path, num_labels=10**9, problem_type="x", label2id=[])  # which transformers would make or refuse
    config = read_config(tmp_path)[1]
    assert (
        config.id2label == {0: "ham", 1: "spam"} and config.label2id == {"ham": 0, "spam": 1} and config.num_labels == 2
    )
    for names in ({"0": 3}, {"0": "a", "7": "b"}, {"x": "a"}, [], "x", {}):
        edit_config(tmp_path, id2label=names)
        assert read_config(tmp_path)[1].id2label == {0: "LABEL_0", 1: "LABEL_1"}


@pytest.mark.parametrize("value", [[], "x", None, -5, 1.5, 2**31, 10**400, True, {}, [[1]]])
@pytest.mark.parametrize(
    "name", ["hidden_size", "num_hidden_layers", "vocab_size", "max_position_embeddings", "num_attention_heads"]
)
def test_a_size_of_a_wrong_type_is_named(name, value, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({**tiny_config().to_dict(), name: value}))
    with pytest.raises(InputError, match=f"config.json: {name}=.* must be an integer from 0"):
        read_config(tmp_path)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (dict(hidden_dropout_prob=1.5), "hidden_dropout_prob=1.5 must be a number of at least 0 and at most 1"),
        (dict(layer_norm_eps=-1), "layer_norm_eps=-1"),
        (dict(initializer_range=1e39), "initializer_range=1e.39"),
        (dict(hidden_act=3), "hidden_act=3 must be a text"),
        (dict(hidden_act="no such"), "no encoder that transformers can build"),
        (dict(num_attention_heads=3), "no encoder that transformers can build"),
        (dict(classifier_dropout={}), "classifier_dropout="),
        (dict(is_decoder=True), "is_decoder=True is not supported"),
        (dict(pruned_heads={"0": [1]}), "pruned_heads="),
        (dict(rope_parameters={"rope_type": "default"}), "rope_parameters=.* is not supported"),
        (dict(model_type=[]), r"model_type=\[\] is not supported"),
        (dict(position_embedding_type=[[]]), "position_embedding_type="),
        (dict(hidden_size=2**20), "lacks most weights"),
        (dict(num_hidden_layers=10**9), "lacks most weights"),
        (dict(vocab_size=2**31 - 1), "lacks most weights"),
        (dict(num_attention_heads=0), "no encoder that transformers can build"),
    ],
)
def test_what_is_no_encoder_is_refused_before_one_is_made(changes, says, tmp_path):
    write_checkpoint(tmp_path)
    edit_config(tmp_path, **changes)
    with pytest.raises(InputError, match=says):
        load_backbone(tmp_path)


def test_a_weight_of_many_dimensions_is_named(tmp_path):
    for shape in ((1,) * 9, (1,) * 65, (1,) * 400):
        header = json.dumps({"a": {"dtype": "F32", "shape": shape, "data_offsets": [0, 4]}}).encode()
        (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
        with pytest.raises(InputError, match=f"'a' has {len(shape)} dimensions"):
            open_weights(tmp_path, ["model.safetensors"]).__enter__()


def test_a_weight_that_is_there_twice_is_named(tmp_path):
    for shard in ("a", "b"):
        save_file({"weight": np.ones(2, np.float32)}, tmp_path / f"{shard}.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"weight": "a.safetensors", "other": "../../b.safetensors"}}))
    with pytest.raises(InputError, match="holds 'weight' twice"):
        open_weights(tmp_path, [index.name]).__enter__()


@pytest.mark.parametrize(
    "names", [None, {}, [], {"a": 3}, {"a": [[]]}, {"a": ""}, {"a": ".."}, {"a": "/etc"}, {"a": "no/such.safetensors"}]
)
def test_an_index_that_names_no_file_is_refused(names, tmp_path):
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    with pytest.raises(InputError):
        open_weights(tmp_path, ["model.safetensors.index.json"]).__enter__()


def test_numbers_of_h5_that_lie_in_another_file_are_not_read(tmp_path):
    (tmp_path / "secret").write_bytes(bytes(16))
    with h5py.File(tmp_path / "tf_model.h5", "w") as file:
        file.create_dataset("bert/a/kernel:0", (4,), "f4", external=[(str(tmp_path / "secret"), 0, 16)])
    with pytest.raises(InputError, match="is kept in another file, which is not read"):
        open_weights(tmp_path, ["tf_model.h5"]).__enter__()


@pytest.mark.parametrize(
    "content",
    [np.array([b"text"]), np.zeros(3, [("a", "f4"), ("b", "i4")]), h5py.Empty("f4")],
    ids=["texts", "pairs", "empty"],
)
def test_what_is_no_weight_in_h5_is_named(content, tmp_path):
    with h5py.File(tmp_path / "tf_model.h5", "w") as file:
        file.create_dataset("bert/a/kernel:0", data=content)
    with pytest.raises(InputError, match="'bert/a/kernel:0' is no weight of a layer"):
        open_weights(tmp_path, ["tf_model.h5"]).__enter__()


def test_the_package_calls_none_of_the_loaders_that_run_what_a_file_names():
    # SECURITY.md builds on it.
    package = pathlib.Path(tf_adapters.__file__).parent
    loaders = re.compile(
        r"\.from_pretrained\(|\bAuto(Config|Model|Tokenizer)|\bimport "
        r"pickle\b|\beval\(|\bexec\(|torch\.load|allow_pickle|\byaml\b"
    )
    found = [
        f"{path.name}: {line.strip()}"
        for path in package.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        # Whose unpickler can name five things: tests/test_torch_files.py.
        if loaders.search(line) and (path.name, line) != ("torch_files.py", "import pickle")
    ]
    assert not found


def test_all_tensors_of_a_file_are_read_or_none(tmp_path):
    path = tmp_path / "adapter.safetensors"
    save_file({"a": np.ones((2, 3), np.float16), "b": np.array(2.0)}, path)
    found = read_tensors(path)
    assert {name: (value.dtype, value.shape) for name, value in found.items()} == {
        "a": (np.float32, (2, 3)),
        "b": (np.float32, ()),
    }
    save_file({"a": np.ones(3, np.float32), "b": np.array([np.nan], np.float32)}, path)
    with pytest.raises(InputError, match="adapter.safetensors: b holds NaN"):
        read_tensors(path)
