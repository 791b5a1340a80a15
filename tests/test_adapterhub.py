"""AdapterHub's checkpoints. The files in tests/adapterhub were written by `adapters` 1.3.0
(`python -m benchmarks adapterhub_torch fixtures`)."""

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

from tests.cases import nightly_but
from tests.conftest import randomize, tiny_model
from tests.families import family_model
from tf_adapters import AdapterConfig, InputError, add_adapters, load_backbone
from tf_adapters.adapterhub import export_adapter, import_adapter
from tf_adapters.adapterhub.bottleneck import config_for_hub, config_from_hub
from tf_adapters.adapterhub.description import read_head_description
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
        inputs = {name: arrays[name] for name in arrays.files}
    if type(model).__name__.endswith("ForMultipleChoice"):  # each row beside the one before it
        inputs = {name: np.stack([value, np.roll(value, 1, axis=0)], axis=1) for name, value in inputs.items()}
    outputs = model({name: tf.constant(value) for name, value in inputs.items()}, output_hidden_states=True)
    real = inputs["attention_mask"].reshape(-1, 9) == 1
    with np.load(directory / "expected.npz") as expected:
        np.testing.assert_allclose(outputs.hidden_states[-1].numpy()[real], expected["hidden_states"], atol=1e-5)
        if logits:
            found = (
                np.stack([outputs.start_logits, outputs.end_logits], -1)
                if "start_logits" in outputs
                else outputs.logits.numpy()
            )
            np.testing.assert_allclose(found[real] if found.ndim == 3 else found, expected["logits"], atol=1e-5)


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
    for ours, stems in (
        ("adapter", ("adapter", "pytorch_adapter")),
        ("model_head", ("model_head", "pytorch_model_head")),
    ):
        found = load_file(tmp_path / "out" / f"{ours}.safetensors")
        path = theirs / f"{stems[0]}.safetensors"
        expected = load_file(path) if path.exists() else read_torch_file(theirs / f"{stems[1]}.bin")
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            np.testing.assert_array_equal(found[key], value, err_msg=key)
    written, original = (
        json.loads((folder / "adapter_config.json").read_text()) for folder in (tmp_path / "out", theirs)
    )
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


# The model that reads each head, and the names of the dense layers of the static head that computes the same, if there
# is one.
HEADS = {
    "token-classification": (dict(head="token-classification", num_labels=3), ["classifier"]),
    "tagging": (dict(head="token-classification", num_labels=3), ["classifier"]),
    "question-answering": (dict(head="question-answering"), ["qa_outputs"]),
    "flexible-questions": (dict(head="question-answering"), ["qa_outputs"]),
    "multiple-choice": (dict(head="multiple-choice"), ["classifier"]),
    "on-pooler": (dict(num_labels=3), ["classifier"]),
    "two-on-pooler": (dict(num_labels=3, head_layers=2), None),
    "three-layers": (dict(num_labels=3, head_layers=2), None),
}


@pytest.mark.parametrize("name", HEADS)
def test_a_head_computes_what_it_did_in_pytorch_and_goes_back(name, tmp_path):
    directory, (arguments, static) = FILES / "bert" / name, HEADS[name]
    described = read_head_description(directory)
    assert described.head == arguments.get("head", "classification") and described.head_layers == arguments.get(
        "head_layers", 1
    )
    assert len(described.labels) == (3 if name == "multiple-choice" else arguments.get("num_labels", 2))
    model = load_backbone(FILES / "bert" / "model", **arguments)
    import_adapter(model, directory)
    check(model, directory)
    export_adapter(model, tmp_path)
    found, expected = (load_file(folder / "model_head.safetensors") for folder in (tmp_path, directory))
    written, original = (json.loads((folder / "head_config.json").read_text()) for folder in (tmp_path, directory))
    if static is not None:
        # A flexible head goes back as the static one that both of PyTorch's models read.
        expected = {key.replace(f"heads.{name}.1", static[0]): value for key, value in expected.items()}
        assert written["config"] is None and written["model_class"] == type(model).__name__.removeprefix("TF")
    else:
        assert all(written[key] == original[key] for key in ("config", "model_class", "name"))
    assert found.keys() == expected.keys() and all(np.array_equal(found[key], expected[key]) for key in found)
    other = load_backbone(FILES / "bert" / "model", **arguments)
    import_adapter(other, tmp_path)
    check(other, directory)


DENSE = {
    ("albert", "classification"): ["classifier"],
    ("deberta-v2", "classification"): ["pooler.dense", "classifier"],
    ("distilbert", "classification"): ["pre_classifier", "classifier"],
    **{
        (family, "classification"): ["classifier.dense", "classifier.out_proj"]
        for family in ("electra", "roberta", "xlm-roberta")
    },
    **{
        (family, head): [layer]
        for family in ("albert", "deberta-v2", "distilbert", "electra", "roberta", "xlm-roberta")
        for head, layer in (("token-classification", "classifier"), ("question-answering", "qa_outputs"))
    },
}
QUICK = (("roberta", "classification"), ("distilbert", "question-answering"))


def as_flexible(directory, layers, **settings):
    """Turn the static head in a directory into a flexible one."""
    weights = load_file(directory / "model_head.safetensors")
    numbers = {name: 1 + 3 * index for index, name in enumerate(layers)}
    renamed = {
        f"heads.flex.{numbers[key.rpartition('.')[0]]}.{key.rpartition('.')[2]}": value
        for key, value in weights.items()
    }
    save_file(renamed, directory / "model_head.safetensors")
    described = json.loads((directory / "head_config.json").read_text())
    described |= {"name": "flex", "config": {"layers": len(layers), "label2id": described["label2id"], **settings}}
    (directory / "head_config.json").write_text(json.dumps(described))


@pytest.mark.parametrize("family, head", nightly_but(QUICK, DENSE))
def test_heads_of_every_family_are_written_under_pytorchs_names_and_read_as_flexible_ones_too(family, head, tmp_path):
    config = AdapterConfig(bottleneck_size=5, placement="ffn", train_layer_norm="none", init_stddev=0.3)
    model, inputs = family_model(family, head), {"input_ids": tf.constant([[5, 6, 7]])}
    randomize(add_adapters(model, config, seed=0))
    export_adapter(model, tmp_path)
    wanted = {f"{layer}.{part}" for layer in DENSE[family, head] for part in ("weight", "bias")}
    assert set(load_file(tmp_path / "model_head.safetensors")) == wanted
    activation = {"deberta-v2": "gelu", "distilbert": "relu", "electra": "gelu"}.get(family, "tanh")
    kinds = {
        "classification": "multilabel_classification",
        "token-classification": "tagging",
        "question-answering": "question_answering",
    }
    for flexible in (False, True):
        if flexible:
            on_pooler = (family, head) == ("albert", "classification")
            as_flexible(
                tmp_path,
                DENSE[family, head],
                head_type=kinds[head],
                activation_function=activation,
                use_pooler=on_pooler,
            )
        other = family_model(family, head)
        for weight in state_of(other).head_variables(other):
            weight.assign(tf.zeros_like(weight))
        import_adapter(other, tmp_path)
        np.testing.assert_array_equal(other(inputs)[0], model(inputs)[0])


@pytest.mark.parametrize("hidden", [128, 256, 312, 384, 512, 768, 1024])
def test_every_size_is_written_as_a_factor_that_gives_it_back(hidden):
    wrong = [
        m
        for m in range(1, hidden + 1)
        if int(hidden // config_for_hub(AdapterConfig(bottleneck_size=m), hidden, 2)["reduction_factor"]) != m
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "ours",
    [
        dict(activation="gelu_tanh", blocks=(1, 2)),
        dict(insertion="after-norm", dropout=0.1),
        dict(insertion="parallel", scaling="learned"),
        dict(inner_norm="after", placement="attention"),
        dict(activation="tanh", scaling=2.0),
    ],
)
def test_settings_come_back(ours):
    config = AdapterConfig(bottleneck_size=5, train_layer_norm="none", **ours)
    settings = {"version": "adapters.1.3.0", "config": config_for_hub(config, 32, 4)}
    assert config_from_hub(settings, 5, 4, "x") == config


def test_shared_adapters_are_written_for_each_of_their_places(tmp_path):
    model = tiny_model()
    add_adapters(
        model, AdapterConfig(bottleneck_size=5, sharing="layer", train_layer_norm="none", init_stddev=0.3), seed=0
    )
    randomize(model)
    inputs = {"input_ids": tf.constant([[5, 6, 7]])}
    expected = model(inputs).logits
    export_adapter(model, tmp_path)
    arrays = load_file(tmp_path / "adapter.safetensors")
    assert len(arrays) == 4 * 2 * 4
    np.testing.assert_array_equal(
        *(
            arrays[f"bert.encoder.layer.1.{place}.adapters.default.adapter_up.weight"]
            for place in ("output", "attention.output")
        )
    )
    other = tiny_model()
    import_adapter(other, tmp_path)
    np.testing.assert_allclose(other(inputs).logits, expected, atol=1e-6)


@pytest.mark.parametrize("family", ["albert", "deberta-v2", "distilbert", "electra", "roberta", "xlm-roberta"])
def test_families_come_back_from_their_own_files(family, tmp_path):
    config = AdapterConfig(
        bottleneck_size=5, placement="ffn", insertion="after-norm", train_layer_norm="none", init_stddev=0.3
    )
    model, inputs = family_model(family), {"input_ids": tf.constant([[5, 6, 7]])}
    randomize(add_adapters(model, config, seed=0))
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
    words = tiny_model("masked-lm")
    add_adapters(words, AdapterConfig(bottleneck_size=5), seed=0)
    with pytest.raises(InputError, match=r"head of a TFBertForMaskedLM cannot be exported: pass head=False"):
        export_adapter(words, tmp_path)
    export_adapter(words, tmp_path, head=False)
    choices = tiny_model("multiple-choice")
    state_of(choices).train_pooler(choices)
    add_adapters(choices, AdapterConfig(bottleneck_size=5), seed=0)
    with pytest.raises(InputError, match="has a pooler of its own"):
        export_adapter(choices, tmp_path)
    camembert = family_model("camembert")
    add_adapters(camembert, AdapterConfig(bottleneck_size=5), seed=0)
    with pytest.raises(InputError, match="no adapters for camembert"):
        export_adapter(camembert, tmp_path)
    albert = family_model("albert")
    add_adapters(albert, AdapterConfig(bottleneck_size=5), seed=0)
    with pytest.raises(InputError, match="reads the attention's input"):
        export_adapter(albert, tmp_path)


def copied(tmp_path, name="double_seq_bn"):
    return shutil.copytree(FILES / "bert" / name, tmp_path / "copied")


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
    directory = copied(tmp_path)
    (directory / "head_config.json").write_text("{")
    with pytest.raises(InputError, match="head_config.json is not JSON.*pass head=False"):
        import_adapter(model, directory)
    assert not state_of(model).adapters


def flexible(**values):
    return lambda content: content["config"].update(values)


def described(**values):
    return lambda content: content.update(values)


@pytest.mark.parametrize(
    "name, change, message",
    [
        (
            "tagging",
            flexible(layers=2),
            "'tagging' of 2 layer.s. with tanh, and that of a TFBertForToken.* has 1 layer.s.: pass",
        ),
        (
            "on-pooler",
            flexible(use_pooler=False),
            "of 1 layer.s., and that of a TFBert.* has 2 .* with tanh or 1 layer.s. on the pooler",
        ),
        ("two-on-pooler", flexible(activation_function="relu"), "of 2 layer.s. with relu on the pooler"),
        (
            "tagging",
            flexible(head_type="dependency_parsing"),
            "flexible head 'dependency_parsing': classification, .* are read",
        ),
        (
            "question-answering",
            described(model_class="BertForMaskedLM"),
            "head of 'BertForMaskedLM': .*ForTokenClassification",
        ),
        (
            "question-answering",
            described(model_class="BertForTokenClassification"),
            "load the encoder with head='token-classification'",
        ),
        (
            "tagging",
            described(name="another"),
            "holds 'heads.tagging.1.bias', for which this model's head has no weight",
        ),
        ("tagging", described(config=[1]), "no description of a head"),
    ],
)
def test_heads_that_compute_something_else_are_refused(name, change, message, tmp_path):
    directory = tmp_path / "changed"
    shutil.copytree(FILES / "bert" / name, directory)
    content = json.loads((directory / "head_config.json").read_text())
    change(content)
    (directory / "head_config.json").write_text(json.dumps(content))
    model = load_backbone(FILES / "bert" / "model", **HEADS[name][0])
    with pytest.raises(InputError, match=message):
        import_adapter(model, directory)
    assert not state_of(model).adapters and not state_of(model).newly_initialized


def test_labels_are_in_the_order_of_their_numbers_and_missing_ones_are_named(tmp_path):
    described = json.loads((FILES / "bert" / "tagging" / "head_config.json").read_text())
    for label2id, expected in (({"b": 1, "c": "2", "a": 0}, ["a", "b", "c"]), (None, None), ({"a": "first"}, None)):
        described["config"]["label2id"] = label2id
        (tmp_path / "head_config.json").write_text(json.dumps(described))
        found = read_head_description(tmp_path)
        if expected is not None:
            assert found.labels == expected
            continue
        with pytest.raises(InputError, match="does not name the labels of the head .*pass head=False"):
            found.labels


def test_a_head_for_words_does_not_pass_for_one_for_sentences(model):
    # Its weights have the same names and shapes.
    with pytest.raises(
        InputError,
        match="for token-classification, and this model is a TFBertForSequenceClassification: load the encoder",
    ):
        import_adapter(model, FILES / "bert" / "token-classification")


def test_a_head_on_a_pooler_does_not_fit_an_encoder_without_one(tmp_path):
    encoder = tmp_path / "encoder"
    shutil.copytree(FILES / "bert" / "model", encoder)
    weights = {key: value for key, value in load_file(encoder / "model.safetensors").items() if "pooler" not in key}
    save_file(weights, encoder / "model.safetensors")
    with pytest.warns(UserWarning, match="no pooler weights"):
        model = load_backbone(encoder, num_labels=3)
    with pytest.raises(InputError, match="lacks 'bert.pooler.dense.bias', which this model's head has"):
        import_adapter(model, FILES / "bert" / "on-pooler")


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
    directory = copied(tmp_path)
    (directory / "adapter.safetensors").unlink()
    path = directory / "pytorch_adapter.bin"
    if legacy:
        path.write_bytes(
            b"".join(pickle.dumps(part, protocol=2) for part in (0x1950A86A20F9469CFC6C, 1001, {})) + attack
        )
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
    (encoder / "vocab.txt").write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"w{number}" for number in range(56))]) + "\n"
    )
    for source in (FILES / "bert" / "seq_bn", FILES / "bert-flexible"):
        ours, theirs = tmp_path / f"ours-{source.name}", tmp_path / f"theirs-{source.name}"
        outcome = cli("convert", source, "--model", encoder, "--output", ours)
        assert outcome.status == 0, outcome.err
        predicted = cli("predict", ours, "--input", "-", stdin=b"w1 w2 w3\n")
        assert predicted.status == 0 and set(json.loads(predicted.out)["probabilities"]) == {
            "LABEL_0",
            "LABEL_1",
            "LABEL_2",
        }, predicted.err
        outcome = cli("convert", ours, "--output", theirs)
        assert outcome.status == 0, outcome.err
        for file in ("adapter.safetensors", "model_head.safetensors"):
            found, expected = ([*load_file(folder / file).values()] for folder in (theirs, source))
            assert sorted(value.tobytes() for value in found) == sorted(value.tobytes() for value in expected)
    for name, file, shown in (("tagging", "words.txt", "labels"), ("question-answering", "questions.json", "answer")):
        (tmp_path / "words.txt").write_text("w1 w2 w3\n")
        paragraph = {"context": "w1 w2 w3", "qas": [{"id": "1", "question": "w4 w5"}]}
        (tmp_path / "questions.json").write_text(json.dumps({"data": [{"paragraphs": [paragraph]}]}))
        ours, theirs = tmp_path / f"ours-{name}", tmp_path / f"theirs-{name}"
        outcome = cli("convert", FILES / "bert" / name, "--model", encoder, "--output", ours, "--max-length", 32)
        assert outcome.status == 0, outcome.err
        predicted = cli("predict", ours, "--input", tmp_path / file)
        assert predicted.status == 0 and shown in json.loads(predicted.out), predicted.err
        assert cli("convert", ours, "--output", theirs).status == 0
        found, expected = (
            [*load_file(folder / "model_head.safetensors").values()] for folder in (theirs, FILES / "bert" / name)
        )
        assert sorted(value.tobytes() for value in found) == sorted(value.tobytes() for value in expected)
    several = copied(tmp_path, "on-pooler")
    head = json.loads((several / "head_config.json").read_text())
    head["config"] |= {"head_type": "multilabel_classification", "label2id": {"x": 0, "y": 1, "z": 2}}
    (several / "head_config.json").write_text(json.dumps(head))
    assert cli("convert", several, "--model", encoder, "--output", tmp_path / "several").status == 0
    predicted = json.loads(cli("predict", tmp_path / "several", "--input", "-", stdin=b"w1\n").out)
    assert set(predicted["labels"]) == {
        label for label, probability in predicted["probabilities"].items() if probability > 0.5
    }
    assert list(predicted["probabilities"]) == ["x", "y", "z"]
    assert (
        cli("convert", FILES / "bert" / "multiple-choice", "--model", encoder, "--output", tmp_path / "choices").status
        == 0
    )
    row = json.dumps({"text": "w1 w2", "choices": ["w3", "w4", "w5"]}).encode()
    (answer,) = map(
        json.loads,
        cli("predict", tmp_path / "choices", "--input", "-", "--format", "jsonl", stdin=row).out.splitlines(),
    )
    assert answer["answer"] == ["w3", "w4", "w5"][answer["choice"]] and abs(sum(answer["probabilities"]) - 1) < 1e-5
    again = cli("convert", source, "--model", encoder, "--output", ours)
    assert again.status == 2 and "is there already" in again.err
    long = cli("convert", source, "--model", encoder, "--output", tmp_path / "x", "--max-length", 10**6)
    assert long.status == 2 and "--max-length 1000000 is beyond the" in long.err and not (tmp_path / "x").exists()
    nameless = cli("convert", FILES / "bert" / "seq_bn", "--output", tmp_path / "x")
    assert nameless.status == 2 and "does not name its encoder: give --model" in nameless.err
    nothing = cli("convert", tmp_path / "nowhere", "--output", tmp_path / "x")
    assert nothing.status == 2 and "no such directory" in nothing.err
