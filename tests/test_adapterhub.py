"""AdapterHub's checkpoints. The files in tests/adapterhub were written by `adapters` 1.3.0 (benchmarks/adapterhub_torch.py fixtures)."""

import json
import os
import pathlib
import pickle
import shutil
import zipfile

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

from tests.conftest import tiny_model
from tests.families import family_model
from tf_adapters import AdapterConfig, InputError, add_adapters, load_backbone
from tf_adapters.adapterhub import export_adapter, import_adapter
from tf_adapters.adapterhub.settings import config_for_hub, config_from_hub
from tf_adapters.adapterhub.torch_files import read_torch_file
from tf_adapters.models.state import state_of

FILES = pathlib.Path(__file__).parent / "adapterhub"
PRESETS = ("double_seq_bn", "seq_bn", "par_bn", "scaled_par_bn", "norm_before")
EXPECTED = {
    "double_seq_bn": dict(insertion="sequential", placement="both", activation="swish"),
    "seq_bn": dict(insertion="after-norm", placement="ffn", activation="relu"),
    "par_bn": dict(insertion="parallel", placement="ffn", activation="relu", scaling=4.0),
    "scaled_par_bn": dict(insertion="parallel", placement="ffn", activation="relu", scaling="learned"),
    "norm_before": dict(insertion="sequential", placement="both", activation="gelu", inner_norm="before"),
}


@pytest.fixture
def model():
    return load_backbone(FILES / "bert" / "model", num_labels=3)


def check(model, directory, logits=True):
    with np.load(FILES / "bert" / "inputs.npz") as arrays:
        inputs = {name: tf.constant(arrays[name]) for name in arrays.files}
    outputs = model(inputs, output_hidden_states=True)
    with np.load(directory / "expected.npz") as expected:
        states = outputs.hidden_states[-1].numpy()[inputs["attention_mask"].numpy() == 1]
        np.testing.assert_allclose(states, expected["hidden_states"], atol=1e-5)
        if logits:
            np.testing.assert_allclose(outputs.logits, expected["logits"], atol=1e-5)


@pytest.mark.parametrize("preset", PRESETS)
def test_an_imported_adapter_computes_what_it_did_in_pytorch(model, preset):
    settings = import_adapter(model, FILES / "bert" / preset)
    assert settings["name"] == preset and list(state_of(model).adapters) == [preset]
    config = state_of(model).adapters[preset].config
    assert {name: getattr(config, name) for name in EXPECTED[preset]} == EXPECTED[preset]
    check(model, FILES / "bert" / preset)


@pytest.mark.parametrize("preset", PRESETS)
def test_an_exported_adapter_is_the_file_that_it_came_from(model, preset, tmp_path):
    import_adapter(model, FILES / "bert" / preset)
    export_adapter(model, tmp_path / "out")
    theirs = FILES / "bert" / preset
    for ours, stems in (("adapter", ("adapter", "pytorch_adapter")), ("model_head", ("model_head", "pytorch_model_head"))):
        found = load_file(tmp_path / "out" / f"{ours}.safetensors")
        path = theirs / f"{stems[0]}.safetensors"
        expected = load_file(path) if path.exists() else read_torch_file(theirs / f"{stems[1]}.bin")
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            np.testing.assert_array_equal(found[key], value, err_msg=key)
    written, original = (json.loads((folder / "adapter_config.json").read_text()) for folder in (tmp_path / "out", theirs))
    assert written.keys() == original.keys() and written["config"].keys() == original["config"].keys()
    different = {key for key in original["config"] if written["config"][key] != original["config"][key]}
    assert different <= {"reduction_factor", "init_weights"}
    assert int(32 // written["config"]["reduction_factor"]) == int(32 // original["config"]["reduction_factor"])


def test_the_first_versions_files_are_read_as_they_were_meant(model):
    # Names, gelu for its approximation, the invertible adapter of every task's file, PyTorch's old format.
    import_adapter(model, FILES / "bert-v1", head=False)
    assert state_of(model).adapters["v1"].config.activation == "gelu_tanh"
    assert not zipfile.is_zipfile(FILES / "bert-v1" / "pytorch_adapter.bin")
    check(model, FILES / "bert-v1", logits=False)


def test_a_flexible_heads_dense_layer_takes_the_poolers_place(model, tmp_path):
    import_adapter(model, FILES / "bert-flexible")
    check(model, FILES / "bert-flexible")
    export_adapter(model, tmp_path)
    found, expected = (load_file(folder / "model_head.safetensors") for folder in (tmp_path, FILES / "bert-flexible"))
    assert found.keys() == expected.keys() and all(np.array_equal(found[key], expected[key]) for key in found)
    other = load_backbone(FILES / "bert" / "model", num_labels=3)
    import_adapter(other, tmp_path)
    check(other, FILES / "bert-flexible")


@pytest.mark.parametrize("hidden", [128, 256, 312, 384, 512, 768, 1024])
def test_every_size_is_written_as_a_factor_that_gives_it_back(hidden):
    wrong = [m for m in range(1, hidden + 1) if int(hidden // config_for_hub(AdapterConfig(bottleneck_size=m), hidden, 2)["reduction_factor"]) != m]
    assert wrong == []


@pytest.mark.parametrize(
    "ours",
    [
        dict(activation="gelu_tanh", blocks=(1, 2)), dict(insertion="after-norm", dropout=0.1), dict(insertion="parallel", scaling="learned"),
        dict(inner_norm="after", placement="attention"), dict(activation="tanh", scaling=2.0),
    ],
)  # fmt: skip
def test_settings_come_back(ours):
    config = AdapterConfig(bottleneck_size=5, train_layer_norm="none", **ours)
    settings = {"version": "adapters.1.3.0", "config": config_for_hub(config, 32, 4)}
    assert config_from_hub(settings, 5, 4, "x") == config


def test_shared_adapters_are_written_for_each_of_their_places(tmp_path):
    model = tiny_model()
    add_adapters(model, AdapterConfig(bottleneck_size=5, sharing="layer", train_layer_norm="none", init_stddev=0.3), seed=0)
    inputs = {"input_ids": tf.constant([[5, 6, 7]])}
    expected = model(inputs).logits
    export_adapter(model, tmp_path)
    arrays = load_file(tmp_path / "adapter.safetensors")
    assert len(arrays) == 4 * 2 * 4
    np.testing.assert_array_equal(*(arrays[f"bert.encoder.layer.1.{place}.adapters.default.adapter_up.weight"] for place in ("output", "attention.output")))
    other = tiny_model()
    import_adapter(other, tmp_path)
    np.testing.assert_allclose(other(inputs).logits, expected, atol=1e-6)


@pytest.mark.parametrize("family", ["albert", "deberta-v2", "distilbert", "electra", "roberta", "xlm-roberta"])
def test_families_come_back_from_their_own_files(family, tmp_path):
    config = AdapterConfig(bottleneck_size=5, placement="ffn", insertion="after-norm", train_layer_norm="none", init_stddev=0.3)
    model, inputs = family_model(family), {"input_ids": tf.constant([[5, 6, 7]])}
    add_adapters(model, config, seed=0)
    export_adapter(model, tmp_path)
    other = family_model(family)
    settings = import_adapter(other, tmp_path)
    assert settings["model_type"] == family
    np.testing.assert_allclose(other(inputs).logits, model(inputs).logits, atol=1e-6)


@pytest.mark.parametrize(
    "config, message",
    [
        (dict(hidden_layers=2), "hidden_layers=2"), (dict(interaction="multiply"), "interaction='multiply'"),
        (dict(activation="softsign"), "activation='softsign'"),
    ],
)  # fmt: skip
def test_what_cannot_be_said_there_is_not_exported(config, message, tmp_path):
    model = tiny_model()
    add_adapters(model, AdapterConfig(bottleneck_size=5, **config), seed=0)
    with pytest.raises(InputError, match=message):
        export_adapter(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_trained_layer_norms_families_and_heads_without_a_like_are_refused(tmp_path):
    model = tiny_model()
    with pytest.raises(InputError, match="no adapter to export"):
        export_adapter(model, tmp_path)
    add_adapters(model, AdapterConfig(bottleneck_size=5), seed=0)
    state_of(model).layer_norm_variables(model)[0].assign_add(tf.ones([32]))
    with pytest.raises(InputError, match="LayerNorms were trained"):
        export_adapter(model, tmp_path)
    words = tiny_model("token-classification")
    add_adapters(words, AdapterConfig(bottleneck_size=5), seed=0)
    with pytest.raises(InputError, match="pass head=False"):
        export_adapter(words, tmp_path)
    export_adapter(words, tmp_path, head=False)
    camembert = family_model("camembert")
    add_adapters(camembert, AdapterConfig(bottleneck_size=5), seed=0)
    with pytest.raises(InputError, match="no adapters for camembert"):
        export_adapter(camembert, tmp_path)
    albert = family_model("albert")
    add_adapters(albert, AdapterConfig(bottleneck_size=5), seed=0)
    with pytest.raises(InputError, match="reads the attention's input"):
        export_adapter(albert, tmp_path)


def changed(tmp_path, preset="double_seq_bn", settings=None, arrays=None):
    """A copy of a directory with other settings or weights."""
    directory = tmp_path / "changed"
    shutil.copytree(FILES / "bert" / preset, directory)
    content = json.loads((directory / "adapter_config.json").read_text())
    if settings is not None:
        settings(content)
        (directory / "adapter_config.json").write_text(json.dumps(content))
    if arrays is not None:
        weights = load_file(directory / "adapter.safetensors")
        arrays(weights)
        save_file(weights, directory / "adapter.safetensors")
    return directory


def config_change(**values):
    return lambda content: content["config"].update(values)


@pytest.mark.parametrize(
    "settings, message",
    [
        (config_change(use_gating=True), "use_gating=True"), (config_change(phm_layer=True), "phm_layer=True"),
        (config_change(residual_before_ln=False), "residual_before_ln=False"), (config_change(scaling="channel"), "scaling='channel'"),
        (config_change(ln_before=True, ln_after=True), "second LayerNorm"), (config_change(non_linearity="leakyrelu"), "non_linearity='leakyrelu'"),
        (config_change(inv_adapter="nice"), "inv_adapter='nice'"), (config_change(architecture="lora"), "architecture 'lora'"),
        (config_change(leave_out=[0]), "which adapter_config.json leaves out"),
        (lambda content: content.update(hidden_size=768), "hidden_size=768, and this model has hidden_size=32"),
        (lambda content: content.update(model_type="roberta"), "model_type='roberta'"),
        (lambda content: content.update(peft_type="LORA"), "is PEFT's"), (lambda content: content.update(name="another"), "for which this model has no place"),
    ],
)  # fmt: skip
def test_what_has_no_like_here_is_named_and_the_model_stays(model, settings, message, tmp_path):
    with pytest.raises(InputError, match=message):
        import_adapter(model, changed(tmp_path, settings=settings))
    assert not state_of(model).adapters


def cut(weights):
    key = "bert.encoder.layer.1.output.adapters.double_seq_bn.adapter_up.weight"
    weights[key] = weights[key][:, :-1].copy()


@pytest.mark.parametrize(
    "arrays, message",
    [
        (cut, r"up.kernel of block 1 \(ffn\) is \(7, 32\), and must be \(8, 32\)"),
        (lambda weights: weights.pop("bert.encoder.layer.0.output.adapters.double_seq_bn.adapter_up.bias"), r"up.bias of block 0 \(ffn\) is missing"),
        (lambda weights: weights.update({"bert.encoder.layer.9.output.adapters.double_seq_bn.adapter_up.bias": np.zeros(32, np.float32)}), "for which this model has no place"),
        (lambda weights: weights.update({"bert.encoder.layer.0.output.adapters.double_seq_bn.gate.weight": np.zeros(32, np.float32)}), "'gate.weight' in an adapter"),
    ],
)  # fmt: skip
def test_weights_that_do_not_fit_are_named(model, arrays, message, tmp_path):
    with pytest.raises(InputError, match=message):
        import_adapter(model, changed(tmp_path, arrays=arrays))
    assert not state_of(model).adapters


def test_directories_that_are_none_and_heads_of_another_size(model, tmp_path):
    with pytest.raises(InputError, match="has no adapter_config.json"):
        import_adapter(model, tmp_path)
    two = load_backbone(FILES / "bert" / "model", num_labels=2)
    with pytest.raises(InputError, match="load the encoder with as many labels, or pass head=False"):
        import_adapter(two, FILES / "bert" / "seq_bn")
    assert not state_of(two).adapters
    import_adapter(two, FILES / "bert" / "seq_bn", head=False, name="mine")
    assert list(state_of(two).adapters) == ["mine"]


def test_a_damaged_description_of_a_head_is_named(model, tmp_path):
    directory = changed(tmp_path)
    (directory / "head_config.json").write_text("{")
    with pytest.raises(InputError, match="head_config.json is not JSON.*pass head=False"):
        import_adapter(model, directory)
    assert not state_of(model).adapters


class Malicious:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


@pytest.mark.parametrize("legacy", [False, True])
def test_a_pickle_that_would_write_a_file_runs_nothing(model, legacy, tmp_path):
    trace = tmp_path / "trace"
    attack = pickle.dumps({"x": Malicious(str(trace))}, protocol=2)
    pickle.loads(attack)["x"].close()  # it would
    assert trace.exists()
    os.remove(trace)
    directory = changed(tmp_path)
    (directory / "adapter.safetensors").unlink()
    path = directory / "pytorch_adapter.bin"
    if legacy:
        path.write_bytes(b"".join(pickle.dumps(part, protocol=2) for part in (0x1950A86A20F9469CFC6C, 1001, {})) + attack)
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("archive/data.pkl", attack)
    with pytest.raises(InputError, match="which no tensor needs; nothing of it was run"):
        import_adapter(model, directory)
    assert not trace.exists()


@pytest.mark.parametrize("keep", [0, 10, 200, 2000, -100])
@pytest.mark.parametrize("source", ["bert-v1", "bert/norm_before"])
def test_truncated_files_are_named(source, keep, tmp_path):
    content = (FILES / source / "pytorch_adapter.bin").read_bytes()
    path = tmp_path / "pytorch_adapter.bin"
    path.write_bytes(content[:keep])
    with pytest.raises(InputError, match="no complete checkpoint of PyTorch's|truncated|damaged"):
        read_torch_file(path)


@pytest.mark.slow
def test_the_command_converts_in_both_directions(cli, tmp_path):
    encoder = tmp_path / "encoder"
    shutil.copytree(FILES / "bert" / "model", encoder)
    (encoder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"w{number}" for number in range(56))]) + "\n")
    for source in (FILES / "bert" / "seq_bn", FILES / "bert-flexible"):
        ours, theirs = tmp_path / f"ours-{source.name}", tmp_path / f"theirs-{source.name}"
        outcome = cli("convert", source, "--model", encoder, "--output", ours)
        assert outcome.status == 0, outcome.err
        predicted = cli("predict", ours, "--input", "-", stdin=b"w1 w2 w3\n")
        assert predicted.status == 0 and set(json.loads(predicted.out)["probabilities"]) == {"LABEL_0", "LABEL_1", "LABEL_2"}, predicted.err
        outcome = cli("convert", ours, "--output", theirs)
        assert outcome.status == 0, outcome.err
        for file in ("adapter.safetensors", "model_head.safetensors"):
            found, expected = ([*load_file(folder / file).values()] for folder in (theirs, source))
            assert sorted(value.tobytes() for value in found) == sorted(value.tobytes() for value in expected)
    again = cli("convert", source, "--model", encoder, "--output", ours)
    assert again.status == 2 and "is there already" in again.err
    nameless = cli("convert", FILES / "bert" / "seq_bn", "--output", tmp_path / "x")
    assert nameless.status == 2 and "does not name its encoder: give --model" in nameless.err
    nothing = cli("convert", tmp_path / "nowhere", "--output", tmp_path / "x")
    assert nothing.status == 2 and "no such directory" in nothing.err
