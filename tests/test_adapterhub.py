"""AdapterHub's and PEFT's directories in both directions: what one computes, what is written of it, and its head.

The files in tests/adapterhub were written by `adapters` 1.3.0 and PEFT 0.21.2 (`python -m benchmarks adapterhub_torch
fixtures`).
"""

import json
import math
import os
import pathlib
import shutil
import zipfile

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

from tests.cases import nightly_but
from tests.conftest import is_refused, randomize, tiny_model
from tests.families import family_model
from tests.table import PFEIFFER
from tf_adapters import AdapterConfig, InputError, LoraConfig, add_adapters, load_backbone, remove_adapters
from tf_adapters.adapterhub import bottleneck, export_adapter, import_adapter, lora
from tf_adapters.adapterhub.bridge import describe_head
from tf_adapters.adapterhub.description import read_description, read_head_description
from tf_adapters.adapterhub.torch_files import read_torch_file
from tf_adapters.config import DENSE_PLACES
from tf_adapters.methods import FusionConfig, IA3Config
from tf_adapters.models.state import state_of

FILES = pathlib.Path(__file__).parent / "adapterhub"
BERT = FILES / "bert"
IN_BOTH = tuple(place for place in DENSE_PLACES if place != "attention_output")
# Directory -> the method's config, as much of it as is asserted.
ADAPTERS = {
    "double_seq_bn": dict(insertion="sequential", placement="both", activation="swish"),
    "seq_bn": dict(insertion="after-norm", placement="ffn", activation="relu"),
    "par_bn": dict(insertion="parallel", placement="ffn", activation="relu", scaling=4.0),
    "scaled_par_bn": dict(insertion="parallel", placement="ffn", activation="relu", scaling="learned"),
    "norm_before": dict(insertion="sequential", placement="both", activation="gelu", inner_norm="before"),
    "lora": LoraConfig(rank=3, alpha=6, targets=IN_BOTH).to_dict(),
    "lora_values": LoraConfig(rank=4, alpha=5, targets="value", blocks=(0, 2), dropout=0.1).to_dict(),
}
# Directory -> the model that reads its head, and the dense layers of the static head that computes the same, if any.
HEADS = {
    "token-classification": (dict(head="token-classification", num_labels=3), ["classifier"]),
    "tagging": (dict(head="token-classification", num_labels=3), ["classifier"]),
    "question-answering": (dict(head="question-answering"), ["qa_outputs"]),
    "flexible-questions": (dict(head="question-answering"), ["qa_outputs"]),
    "multiple-choice": (dict(head="multiple-choice"), ["classifier"]),
    "on-pooler": (dict(num_labels=3), ["classifier"]),
    "two-on-pooler": (dict(num_labels=3, head_layers=2), None),
    "three-layers": (dict(num_labels=3, head_layers=2), None),
    "../bert-flexible": (dict(num_labels=3), None),  # its dense layer takes the pooler's place
}
PEFTS = {
    # The suffix output.dense is of the dense layer behind the attention too.
    "peft": dict(rank=3, alpha=6.0, targets=DENSE_PLACES, dropout=0.1),
    "peft-pattern": dict(rank=4, alpha=6 * math.sqrt(4), targets=("query", "value")),
    "peft-pooler": dict(rank=2, alpha=8.0, targets=DENSE_PLACES, blocks=(0, 2)),
}
PREFIX = "base_model.model."  # of PEFT's names
ROW = {"input_ids": tf.constant([[5, 6, 7]])}


def new_model(**arguments):
    return load_backbone(BERT / "model", **{"num_labels": 3, **arguments})


@pytest.fixture
def model():
    return new_model()


def check(model, directory, logits=True):
    """A model computes what the directory's writer did, in PyTorch."""
    with np.load(BERT / "inputs.npz") as arrays:
        inputs = {name: arrays[name] for name in arrays.files}
    if type(model).__name__.endswith("ForMultipleChoice"):  # each row beside the one before it
        inputs = {name: np.stack([value, np.roll(value, 1, axis=0)], axis=1) for name, value in inputs.items()}
    outputs = model({name: tf.constant(value) for name, value in inputs.items()}, output_hidden_states=True)
    real = inputs["attention_mask"].reshape(-1, 9) == 1
    with np.load(directory / "expected.npz") as expected:
        np.testing.assert_allclose(outputs.hidden_states[-1].numpy()[real], expected["hidden_states"], atol=1e-5)
        if logits:
            spans = "start_logits" in outputs
            found = np.stack([outputs.start_logits, outputs.end_logits], -1) if spans else outputs.logits.numpy()
            np.testing.assert_allclose(found[real] if found.ndim == 3 else found, expected["logits"], atol=1e-5)


def weights(directory, name="adapter"):
    path = directory / f"{name}.safetensors"
    return load_file(path) if path.exists() else read_torch_file(directory / f"pytorch_{name}.bin")


def described(directory, name="adapter_config"):
    return json.loads((directory / f"{name}.json").read_text())


def same(content):
    return content


def changed(tmp_path, source, *, settings=same, arrays=same):
    """A copy of a directory with other settings or weights, as functions of those that it has."""
    directory = shutil.copytree(BERT / source, tmp_path / "changed")
    kind = source.partition("-")[0]
    path = directory / ("adapter_fusion_config.json" if kind == "fusion" else "adapter_config.json")
    path.write_text(json.dumps(settings(json.loads(path.read_text()))))
    names = {"fusion": "model_adapter_fusion", "peft": "adapter_model"}
    path = directory / f"{names.get(kind, 'adapter')}.safetensors"
    if arrays is not same:
        save_file(arrays(load_file(path)), path)
    return directory


def keys(**values):
    return {"settings": lambda content: {**content, **values}}


def equal(found, expected):
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_array_equal(found[key], value, err_msg=key)


def adapted(config, model=None):
    """A model whose adapter is far from its start."""
    model = add_adapters(tiny_model() if model is None else model, config, seed=0)
    for number, layer in enumerate(state_of(model).adapters["default"].layers.values()):
        randomize(layer, number)
    return model


def config_of(model, name="default"):
    return state_of(model).adapters[name].config


# What PyTorch wrote


@pytest.mark.parametrize("name", ADAPTERS)
def test_an_adapter_computes_what_it_did_in_pytorch_and_goes_back_as_the_file_that_it_was(model, name, tmp_path):
    settings = import_adapter(model, BERT / name)
    assert settings["name"] == name and list(state_of(model).adapters) == [name]
    assert ADAPTERS[name].items() <= config_of(model, name).to_dict().items()
    check(model, BERT / name)
    export_adapter(model, tmp_path)
    for file in ("adapter", "model_head"):
        equal(weights(tmp_path, file), weights(BERT / name, file))
    written, original = described(tmp_path), described(BERT / name)
    assert written.keys() == original.keys() and written["config"].keys() == original["config"].keys()
    different = {key for key in original["config"] if written["config"][key] != original["config"][key]}
    assert different <= (set() if "lora" in name else {"reduction_factor", "init_weights"})
    if "lora" not in name:
        assert int(32 // written["config"]["reduction_factor"]) == int(32 // original["config"]["reduction_factor"])


def test_the_first_versions_files_are_read_as_they_were_meant(model, tmp_path):
    # Names, gelu for its approximation, PyTorch's old format.
    import_adapter(model, FILES / "bert-v1", head=False)
    assert config_of(model, "v1").activation == "gelu_tanh"
    assert not zipfile.is_zipfile(FILES / "bert-v1" / "pytorch_adapter.bin")
    check(model, FILES / "bert-v1", logits=False)

    def invertible(found):
        return {**found, "bert.invertible_lang_adapters.x.F.0.weight": np.zeros((2, 2), np.float32)}

    # An invertible adapter lies beside every task's.
    import_adapter(model, changed(tmp_path, "double_seq_bn", arrays=invertible))


@pytest.mark.parametrize("name", HEADS)
def test_a_head_computes_what_it_did_in_pytorch_and_goes_back(name, tmp_path):
    directory, (arguments, static) = BERT / name, HEADS[name]
    head = read_head_description(directory)
    assert head.head == arguments.get("head", "classification")
    assert head.head_layers == arguments.get("head_layers", 1)
    assert len(head.labels) == (3 if name == "multiple-choice" else arguments.get("num_labels", 2))
    model = load_backbone(BERT / "model", **arguments)
    import_adapter(model, directory)
    check(model, directory)
    export_adapter(model, tmp_path)
    expected = weights(directory, "model_head")
    written, original = described(tmp_path, "head_config"), described(directory, "head_config")
    if static is not None:
        # A flexible head goes back as the static one that both of PyTorch's models read.
        expected = {key.replace(f"heads.{name}.1", static[0]): value for key, value in expected.items()}
        assert written["config"] is None and written["model_class"] == type(model).__name__.removeprefix("TF")
    elif "/" not in name:
        assert all(written[key] == original[key] for key in ("config", "model_class", "name"))
    equal(weights(tmp_path, "model_head"), expected)
    other = load_backbone(BERT / "model", **arguments)
    import_adapter(other, tmp_path)
    check(other, directory)


@pytest.mark.parametrize("name, adapters", [("fusion", ["first", "second"]), ("fusion-both", ["one", "two", "three"])])
def test_a_fusion_computes_what_it_did_in_pytorch_and_goes_back_with_its_adapters(model, name, adapters, tmp_path):
    settings = import_adapter(model, BERT / name)
    assert settings["adapter_names"] == adapters and list(state_of(model).adapters) == ["-".join(adapters)]
    config = config_of(model, "-".join(adapters))
    assert list(config.adapters) == adapters and config.value_regularization == 0.01
    assert config.blocks == ((0, 2) if name == "fusion" else None)
    check(model, BERT / name)
    export_adapter(model, tmp_path)
    found, expected = (weights(folder, "model_adapter_fusion") for folder in (tmp_path, BERT / name))
    # Theirs has one in the block without adapters too, and the bias of keys, which changes nothing.
    expected = {key: value for key, value in expected.items() if name == "fusion-both" or ".layer.1." not in key}
    biases = [key for key in expected if key.endswith(".key.bias")]
    assert biases and all(np.any(expected[key]) and not np.any(found[key]) for key in biases)
    equal({**found, **{key: expected[key] for key in biases}}, expected)
    for adapter in adapters:
        equal(weights(tmp_path / adapter), weights(BERT / name / adapter))
        assert read_description(tmp_path / adapter)[1]["name"] == adapter
    written, original = (read_description(folder)[1] for folder in (tmp_path, BERT / name))
    assert written.keys() == original.keys()
    assert all(written[key] == original[key] for key in ("config", "adapter_names", "name"))
    other = new_model()
    import_adapter(other, tmp_path)
    np.testing.assert_array_equal(other(ROW).logits, model(ROW).logits)


@pytest.mark.parametrize("name", PEFTS)
def test_pefts_lora_computes_what_it_did_in_pytorch(model, name, tmp_path):
    assert import_adapter(model, BERT / name)["peft_type"] == "LORA"
    assert config_of(model) == LoraConfig(**PEFTS[name])
    check(model, BERT / name)
    assert bool(state_of(model).newly_initialized) == (name == "peft-pooler")
    if name == "peft-pooler":
        assert not state_of(remove_adapters(model)).newly_initialized  # nor trains it with the next adapter's head
    if name == "peft-pattern":  # has no place that `adapters` lacks, and no head
        assert describe_head(BERT / name) is None
        export_adapter(model, tmp_path)
        other = new_model()
        import_adapter(other, tmp_path)
        check(other, BERT / name)


# What is written here, and read again


CLASSIFIERS = {
    "albert": ["classifier"],
    "deberta-v2": ["pooler.dense", "classifier"],
    "distilbert": ["pre_classifier", "classifier"],
    **dict.fromkeys(("electra", "roberta", "xlm-roberta"), ["classifier.dense", "classifier.out_proj"]),
}
# Head -> the flexible one that computes the same, and its dense layers' names in a family.
FLEXIBLE = {
    "classification": ("multilabel_classification", CLASSIFIERS.get),
    "token-classification": ("tagging", lambda family: ["classifier"]),
    "question-answering": ("question_answering", lambda family: ["qa_outputs"]),
}
# Each family once.
QUICK = [(family, "classification") for family in ("albert", "deberta-v2", "roberta", "xlm-roberta")]
QUICK += [("distilbert", "question-answering"), ("electra", "token-classification")]


def make_flexible(directory, layers, **settings):
    """Turn the static head in a directory into a flexible one."""
    numbers = {name: 1 + 3 * index for index, name in enumerate(layers)}
    renamed = {}
    for key, value in weights(directory, "model_head").items():
        layer, _, part = key.rpartition(".")
        renamed[f"heads.flex.{numbers[layer]}.{part}"] = value
    save_file(renamed, directory / "model_head.safetensors")
    content = described(directory, "head_config")
    content |= {"name": "flex", "config": {"layers": len(layers), "label2id": content["label2id"], **settings}}
    (directory / "head_config.json").write_text(json.dumps(content))


@pytest.mark.parametrize(
    "family, head", nightly_but(QUICK, [(family, head) for family in CLASSIFIERS for head in FLEXIBLE])
)
def test_adapters_and_heads_of_every_family_have_pytorchs_names_and_come_back(family, head, tmp_path):
    config = AdapterConfig(5, placement="ffn", insertion="after-norm", train_layer_norm="none", init_stddev=0.3)
    model, (kind, layers_of) = family_model(family, head), FLEXIBLE[head]
    randomize(add_adapters(model, config, seed=0))
    export_adapter(model, tmp_path)
    layers = layers_of(family)
    assert set(weights(tmp_path, "model_head")) == {
        f"{layer}.{part}" for layer in layers for part in ("weight", "bias")
    }
    activation = {"deberta-v2": "gelu", "distilbert": "relu", "electra": "gelu"}.get(family, "tanh")
    on_pooler = (family, head) == ("albert", "classification")
    for flexible in (False, True):
        if flexible:
            make_flexible(tmp_path, layers, head_type=kind, activation_function=activation, use_pooler=on_pooler)
        other = family_model(family, head)
        for weight in state_of(other).head_variables(other):
            weight.assign(tf.zeros_like(weight))
        assert import_adapter(other, tmp_path)["model_type"] == family
        np.testing.assert_array_equal(other(ROW)[0], model(ROW)[0])


def test_shared_adapters_are_written_for_each_of_their_places(tmp_path):
    config = AdapterConfig(5, sharing="layer", train_layer_norm="none", init_stddev=0.3)
    model = randomize(add_adapters(tiny_model(), config, seed=0))
    export_adapter(model, tmp_path, name="mine")
    arrays = weights(tmp_path)
    assert len(arrays) == 4 * 2 * 4
    prefix, last = "bert.encoder.layer.1", "adapters.mine.adapter_up.weight"
    np.testing.assert_array_equal(arrays[f"{prefix}.output.{last}"], arrays[f"{prefix}.attention.output.{last}"])
    other = tiny_model()
    import_adapter(other, tmp_path)
    np.testing.assert_allclose(other(ROW).logits, model(ROW).logits, atol=1e-6)


def test_every_size_is_written_as_a_factor_that_gives_it_back():
    for hidden in (128, 256, 312, 384, 512, 768, 1024):
        for size in range(1, hidden + 1):
            factor = bottleneck.config_for_hub(AdapterConfig(size), hidden, 2)["reduction_factor"]
            assert int(hidden // factor) == size


@pytest.mark.parametrize(
    "config",
    [
        AdapterConfig(5, activation="gelu_tanh", blocks=(1, 2), scaling=2.0, train_layer_norm="none"),
        AdapterConfig(5, insertion="after-norm", dropout=0.1, train_layer_norm="none"),
        AdapterConfig(5, inner_norm="after", placement="attention", train_layer_norm="none"),
        LoraConfig(rank=4, alpha=2.5, targets=("intermediate", "output"), blocks=(1, 3), dropout=0.2),
    ],
    ids=str,
)
def test_settings_come_back(config):
    if config.is_bottleneck:
        theirs = {"version": "adapters.1.3.0", "config": bottleneck.config_for_hub(config, 32, 4)}
        assert bottleneck.config_from_hub(theirs, 5, 4, "x") == config
    else:
        theirs = {"version": "adapters.1.3.0", "config": lora.config_for_hub(config, 4)}
        assert lora.config_from_hub(theirs, 4, "x") == config


def test_loras_of_versions_that_left_the_scale_out_are_read_as_they_were_trained():
    scales = {"adapters.0.2.2": 8, "adapters.1.0.1": 8, "adapters.1.1.0": 16, "adapters.1.10.0": 16, None: 16}
    for version, alpha in scales.items():
        settings = {"version": version, "config": {"architecture": "lora", "r": 8, "alpha": 16}}
        assert lora.config_from_hub(settings, 2, "x").alpha == alpha


# What cannot be exported


@pytest.mark.parametrize(
    "config, message",
    [
        (AdapterConfig(5, hidden_layers=2), "hidden_layers=2"),
        (AdapterConfig(5, interaction="multiply"), "interaction='multiply'"),
        (AdapterConfig(5, activation="softsign"), "activation='softsign'"),
        (AdapterConfig(5, activation="elu"), "activation='elu'"),
        (LoraConfig(targets=("query", "attention_output")), "targets=.* it.* LoRA has no place at 'attention_output'"),
        (IA3Config(), r"method 'ia3' cannot be exported to AdapterHub: \(IA\)\^3 .*before its activation"),
        (FusionConfig({"a": PFEIFFER, "b/c": PFEIFFER}), "must be names of letters"),
        (
            FusionConfig(dict.fromkeys("ab", AdapterConfig(5, inner_norm="after", train_layer_norm="none"))),
            "'a' has inner_norm='after'",
        ),
    ],
    ids=str,
)
def test_what_cannot_be_said_there_is_not_exported(config, message, tmp_path):
    is_refused(message, export_adapter, adapted(config), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_trained_layer_norms_families_and_heads_without_a_like_are_not_exported(tmp_path, monkeypatch):
    def refused(model, message):
        is_refused(message, export_adapter, model, tmp_path)
        return model

    def failing(*arguments, **options):
        raise InputError("no space")

    model = refused(tiny_model(), "no adapter to export")
    add_adapters(model, AdapterConfig(5), seed=0)
    state_of(model).layer_norm_variables(model)[0].assign_add(tf.ones([32]))
    refused(model, "LayerNorms were trained")
    words = add_adapters(tiny_model("masked-lm"), AdapterConfig(5))
    refused(words, r"head of a TFBertForMaskedLM cannot be exported: pass head=False")
    for file in ("adapter_config.json", "head_config.json"):
        (tmp_path / file).write_text("an earlier one")
    with monkeypatch.context() as patched:
        patched.setattr("tf_adapters.adapterhub.bridge.write_safetensors", failing)
        is_refused("no space", export_adapter, words, tmp_path, head=False)
    assert (tmp_path / "adapter_config.json").read_text() == "an earlier one"
    with monkeypatch.context() as patched:
        replace = os.replace
        patched.setattr(os, "replace", lambda old, new: failing() if new.parent == tmp_path else replace(old, new))
        is_refused("no space", export_adapter, words, tmp_path, head=False)
    assert not (tmp_path / "adapter_config.json").exists(), "an earlier description stands beside other weights"
    for earlier in ("head_config.json", "pytorch_adapter.bin"):
        (tmp_path / earlier).write_text("an earlier one")
    export_adapter(words, tmp_path, head=False)
    assert not {"head_config.json", "pytorch_adapter.bin"} & set(os.listdir(tmp_path))
    (tmp_path / "tf_adapters.json").write_text("{}")
    is_refused("is a directory of this package, whose weights", export_adapter, words, tmp_path, head=False)
    (tmp_path / "tf_adapters.json").unlink()
    choices = tiny_model("multiple-choice")
    state_of(choices).train_pooler(choices)
    refused(add_adapters(choices, AdapterConfig(5)), "has a pooler of its own")
    refused(add_adapters(family_model("camembert"), AdapterConfig(5)), "no adapters for camembert")
    refused(add_adapters(family_model("albert"), AdapterConfig(5)), "reads the attention's input")


# Fusions and their adapters


def test_fused_adapters_are_found_beside_the_fusion_or_where_they_are_said_to_be(model, tmp_path):
    fusion, elsewhere = tmp_path / "first,second", tmp_path / "elsewhere"
    # As AdapterTrainer leaves them.
    shutil.copytree(BERT / "fusion", fusion)
    for name in ("first", "second"):
        shutil.move(fusion / name, tmp_path / name)
    import_adapter(model, fusion)
    check(model, BERT / "fusion")
    shutil.move(tmp_path / "first", elsewhere)
    other = new_model()
    is_refused("'first', which is neither in it nor beside it: put its directory there", import_adapter, other, fusion)
    with pytest.raises(InputError, match="must name the directories of 'first', 'second'"):
        import_adapter(other, fusion, adapters={"first": elsewhere})
    import_adapter(other, fusion, adapters={"first": elsewhere, "second": tmp_path / "second"})
    check(other, BERT / "fusion")


# LoRA of PEFT


DENSES = ("attention.self.query", "attention.self.key", "attention.self.value", "intermediate.dense", "output.dense")
FULL_NAMES = [
    f"bert.encoder.layer.{block}.{dense}" for block in range(3) for dense in (*DENSES, "attention.output.dense")
]


@pytest.mark.parametrize("targets", ["all-linear", r"bert\.encoder\..*\.(query|key|value|dense)", FULL_NAMES])
def test_ways_to_name_the_layers_are_read_as_peft_reads_them(model, targets, tmp_path):
    import_adapter(model, changed(tmp_path, "peft", **keys(target_modules=targets, exclude_modules=["pooler.dense"])))
    check(model, BERT / "peft")


def test_a_file_of_the_bare_encoder_fits_a_model_with_a_head(model, tmp_path):
    def bare(found):
        return {key.replace(".bert.", "."): value for key, value in found.items() if "classifier" not in key}

    targets = r"encoder\..*\.(query|key|value|dense)"  # PEFT's pattern is of the whole name
    import_adapter(model, changed(tmp_path, "peft", **keys(target_modules=targets), arrays=bare))
    check(model, BERT / "peft", logits=False)


def test_the_encoders_own_pooler_stays_under_a_head_of_peft_and_a_lost_one_is_refused(tmp_path):
    shutil.copytree(BERT / "model", tmp_path / "encoder")
    file = tmp_path / "encoder" / "model.safetensors"
    arrays, head = load_file(file), weights(BERT / "peft", "adapter_model")
    kernel, bias = (next(name for name in arrays if f"pooler.dense.{part}" in name) for part in ("weight", "bias"))
    # As it was initialised, a pooler counts as a part of the head here, and not to PEFT.
    save_file(arrays | {bias: np.zeros_like(arrays[bias])}, file, {"format": "pt"})
    model = load_backbone(tmp_path / "encoder", num_labels=3)
    assert state_of(model).newly_initialized
    import_adapter(model, BERT / "peft")
    np.testing.assert_array_equal(model.classifier.kernel, head[f"{PREFIX}classifier.weight"].T)
    np.testing.assert_array_equal(model.bert.pooler.dense.kernel, arrays[kernel].T)
    del arrays[kernel], arrays[bias]
    save_file(arrays, file, {"format": "pt"})
    with pytest.warns(UserWarning, match="no pooler weights"):
        model = load_backbone(tmp_path / "encoder", num_labels=3)
    is_refused("has no pooler, and neither has .*encoder: .*; pass head=False", import_adapter, model, BERT / "peft")
    is_refused("lacks 'bert.pooler.dense.bias', which this model's head has", import_adapter, model, BERT / "on-pooler")
    import_adapter(model, BERT / "peft", head=False)


# The command line


@pytest.mark.slow
def test_the_command_converts_in_both_directions_and_says_what_it_lacks(cli, tmp_path):
    encoder = shutil.copytree(BERT / "model", tmp_path / "encoder")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"w{number}" for number in range(56))]
    (encoder / "vocab.txt").write_text("\n".join(words) + "\n")
    (tmp_path / "choices.jsonl").write_text(json.dumps({"text": "w1 w2", "choices": ["w3", "w4", "w5"]}))
    several = shutil.copytree(BERT / "on-pooler", tmp_path / "several")
    head = described(several, "head_config")
    head["config"] |= {"head_type": "multilabel_classification", "label2id": {"x": 0, "y": 1, "z": 2}}
    (several / "head_config.json").write_text(json.dumps(head))

    def convert(source, output, *options, status=0, says=""):
        outcome = cli("convert", source, "--output", tmp_path / output, *options)
        assert outcome.status == status and says in outcome.err, outcome.err
        return tmp_path / output

    of_encoder = "--model", encoder
    ours = convert(BERT / "multiple-choice", "ours", *of_encoder, "--max-length", 32)
    (row,) = cli("predict", ours, "--input", tmp_path / "choices.jsonl").rows()
    assert "choice" in row
    theirs = convert(ours, "theirs")
    model = load_backbone(BERT / "model", **HEADS["multiple-choice"][0])
    import_adapter(model, theirs)
    check(model, BERT / "multiple-choice")
    (row,) = cli("predict", convert(several, "labels", *of_encoder), "--input", "-", stdin=b"w1\n").rows()
    assert row["labels"] == [label for label in "xyz" if row["probabilities"][label] > 0.5]
    convert(several, "labels", *of_encoder, status=2, says="is there already")
    convert(BERT / "seq_bn", "x", status=2, says="does not name its encoder: give --model")
    too_long = "--max-length", 10**6
    convert(BERT / "seq_bn", "x", *of_encoder, *too_long, status=2, says="--max-length 1000000 is beyond the")
    convert(convert(BERT / "peft", "peft", *of_encoder), "x", status=2, says="no place at 'attention_output'")
    assert not (tmp_path / "x").exists()
