"""LoRA and AdapterFusion of `adapters`, and LoRA of PEFT.

The files in tests/adapterhub were written by `adapters` 1.3.0 and PEFT 0.21.2 (`python -m benchmarks
adapterhub_torch fixtures`).
"""

import json
import math
import shutil

import numpy as np
import pytest
import safetensors.tensorflow
import tensorflow as tf
from safetensors.numpy import load_file, save_file

from tests.cases import nightly_but
from tests.conftest import randomize, tiny_model
from tests.families import family_inputs, family_model
from tests.table import PFEIFFER
from tests.test_adapterhub import FILES, check
from tests.test_adapterhub_refused import DENSES, FULL_NAMES, as_it_was, changed, keys
from tf_adapters import AdapterConfig, FusionConfig, IA3Config, InputError, LoraConfig, add_adapters, load_backbone
from tf_adapters.adapterhub import export_adapter, import_adapter
from tf_adapters.adapterhub.bridge import describe_head
from tf_adapters.adapterhub.description import read_description
from tf_adapters.adapterhub.lora import config_for_hub, config_from_hub
from tf_adapters.adapterhub.torch_files import read_torch_file
from tf_adapters.config import DENSE_PLACES
from tf_adapters.models.state import state_of

BERT = FILES / "bert"
IN_BOTH = tuple(place for place in DENSE_PLACES if place != "attention_output")


@pytest.fixture
def model():
    return load_backbone(BERT / "model", num_labels=3)


def weights(directory, tensors="adapter", pickled="pytorch_adapter"):
    path = directory / f"{tensors}.safetensors"
    return load_file(path) if path.exists() else read_torch_file(directory / f"{pickled}.bin")


def equal(found, expected):
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_array_equal(found[key], value, err_msg=key)


def adapted(config, model=None):
    """A model whose adapter is far from its start."""
    model = tiny_model() if model is None else model
    add_adapters(model, config, seed=0)
    for number, layer in enumerate(state_of(model).adapters["default"].layers.values()):
        randomize(layer, number)
    return model


# LoRA of `adapters`


@pytest.mark.parametrize(
    "name, config",
    [
        ("lora", LoraConfig(rank=3, alpha=6, targets=IN_BOTH)),
        ("lora_values", LoraConfig(rank=4, alpha=5, targets="value", blocks=(0, 2), dropout=0.1)),
    ],
)
def test_lora_computes_what_it_did_in_pytorch_and_goes_back_as_the_file_that_it_was(model, name, config, tmp_path):
    import_adapter(model, BERT / name)
    assert state_of(model).adapters[name].config == config
    check(model, BERT / name)
    export_adapter(model, tmp_path)
    equal(weights(tmp_path), weights(BERT / name))
    equal(weights(tmp_path, "model_head"), weights(BERT / name, "model_head", "pytorch_model_head"))
    written, original = (json.loads((folder / "adapter_config.json").read_text()) for folder in (tmp_path, BERT / name))
    assert written["config"] == original["config"] and written.keys() == original.keys()


@pytest.mark.parametrize(
    "family", nightly_but(["distilbert"], ["distilbert", "albert", "deberta-v2", "electra", "roberta", "xlm-roberta"])
)
def test_lora_of_every_family_comes_back_bit_for_bit(family, tmp_path):
    model, inputs = adapted(LoraConfig(rank=2, alpha=3, targets=IN_BOTH), family_model(family)), family_inputs(family)
    export_adapter(model, tmp_path)
    names = {key.rpartition(".")[0] for key in load_file(tmp_path / "adapter.safetensors")}
    assert all(name.startswith(model.base_model_prefix + ".") and name.endswith(".loras.default") for name in names)
    other = family_model(family)
    import_adapter(other, tmp_path)
    assert state_of(other).adapters["default"].config == state_of(model).adapters["default"].config
    np.testing.assert_array_equal(other(inputs).logits, model(inputs).logits)
    assert not np.allclose(family_model(family)(inputs).logits, model(inputs).logits, atol=1e-5)


def test_the_names_of_lora_are_pytorchs(tmp_path):
    export_adapter(adapted(LoraConfig(targets=IN_BOTH)), tmp_path, name="mine")
    expected = {
        f"bert.encoder.layer.{block}.{dense}.loras.mine.lora_{part}"
        for block in range(4)
        for dense in DENSES
        for part in "AB"
    }
    arrays = load_file(tmp_path / "adapter.safetensors")
    assert set(arrays) == expected
    assert arrays["bert.encoder.layer.0.output.dense.loras.mine.lora_A"].shape == (8, 64)
    assert arrays["bert.encoder.layer.0.output.dense.loras.mine.lora_B"].shape == (32, 8)


@pytest.mark.parametrize(
    "config",
    [
        LoraConfig(),
        LoraConfig(rank=4, alpha=2.5, targets="key", dropout=0.2),
        LoraConfig(targets=("intermediate", "output"), blocks=(1, 3)),
    ],
    ids=str,
)
def test_settings_of_lora_come_back(config):
    assert config_from_hub({"version": "adapters.1.3.0", "config": config_for_hub(config, 4)}, 4, "x") == config


@pytest.mark.parametrize(
    "version, alpha",
    [("adapters.0.2.2", 8), ("adapters.1.0.1", 8), ("adapters.1.1.0", 16), ("adapters.1.10.0", 16), (None, 16)],
)
def test_files_of_versions_that_left_the_scale_out_are_read_as_they_were_trained(version, alpha):
    settings = {"version": version, "config": {"architecture": "lora", "r": 8, "alpha": 16}}
    assert config_from_hub(settings, 2, "x").alpha == alpha


@pytest.mark.parametrize("source, file", [("lora", "adapter.safetensors"), ("peft-pattern", "adapter_model.bin")])
def test_truncated_weights_are_named(model, source, file, tmp_path):
    directory = changed(tmp_path, source)
    (directory / file).write_bytes((directory / file).read_bytes()[:-300])
    with pytest.raises(InputError, match="no complete checkpoint|not a complete safetensors file|truncated"):
        import_adapter(model, directory)
    assert as_it_was(model)


@pytest.mark.parametrize(
    "config, message",
    [
        (
            LoraConfig(targets=("query", "attention_output")),
            "targets=.* cannot be exported to AdapterHub: its LoRA has no place at 'attention_output'",
        ),
        (IA3Config(), r"method 'ia3' cannot be exported to AdapterHub: \(IA\)\^3 .*before its activation"),
    ],
    ids=["lora", "ia3"],
)
def test_methods_without_a_like_there_are_not_exported(config, message, tmp_path):
    with pytest.raises(InputError, match=message):
        export_adapter(adapted(config), tmp_path / "out")
    assert not (tmp_path / "out").exists()


# AdapterFusion


@pytest.mark.parametrize("name, adapters", [("fusion", ["first", "second"]), ("fusion-both", ["one", "two", "three"])])
def test_a_fusion_computes_what_it_did_in_pytorch_and_goes_back_with_its_adapters(model, name, adapters, tmp_path):
    settings = import_adapter(model, BERT / name)
    assert settings["adapter_names"] == adapters and list(state_of(model).adapters) == ["-".join(adapters)]
    config = state_of(model).adapters["-".join(adapters)].config
    assert list(config.adapters) == adapters and config.value_regularization == 0.01
    assert config.blocks == ((0, 2) if name == "fusion" else None)
    check(model, BERT / name)
    export_adapter(model, tmp_path)
    files = "model_adapter_fusion", "pytorch_model_adapter_fusion"
    found, expected = weights(tmp_path, *files), weights(BERT / name, *files)
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
    other = load_backbone(BERT / "model", num_labels=3)
    import_adapter(other, tmp_path)
    inputs = {"input_ids": tf.constant([[5, 6, 7]])}
    np.testing.assert_array_equal(other(inputs).logits, model(inputs).logits)


def test_a_bias_of_keys_is_passed_over(model, tmp_path):
    def shift(found):
        for key in found:
            if key.endswith(".key.bias"):
                found[key] = found[key] + 3.0

    import_adapter(model, changed(tmp_path, "fusion", arrays=shift))
    check(model, BERT / "fusion")


@pytest.mark.parametrize("family", ["bert", "distilbert"])
def test_a_fusion_comes_back_bit_for_bit(family, tmp_path):
    config = FusionConfig(
        {"a": PFEIFFER, "b": AdapterConfig.from_dict({**PFEIFFER.to_dict(), "bottleneck_size": 6})},
        value_regularization=0.0,
    )
    model, inputs = adapted(config, family_model(family)), family_inputs(family)
    export_adapter(model, tmp_path)
    other = family_model(family)
    import_adapter(other, tmp_path, name="again")
    found = state_of(other).adapters["again"].config
    assert found.value_regularization == 0 and [adapter.bottleneck_size for adapter in found.adapters.values()] == [
        4,
        6,
    ]
    np.testing.assert_array_equal(other(inputs).logits, model(inputs).logits)


def test_fused_adapters_are_found_beside_the_fusion_or_where_they_are_said_to_be(model, tmp_path):
    # As AdapterTrainer leaves them.
    shutil.copytree(BERT / "fusion", tmp_path / "first,second")
    for name in ("first", "second"):
        shutil.move(tmp_path / "first,second" / name, tmp_path / name)
    import_adapter(model, tmp_path / "first,second")
    check(model, BERT / "fusion")
    shutil.move(tmp_path / "first", tmp_path / "elsewhere")
    other = load_backbone(BERT / "model", num_labels=3)
    with pytest.raises(
        InputError, match="the adapter 'first', which is neither in it nor beside it: put its directory there"
    ):
        import_adapter(other, tmp_path / "first,second")
    with pytest.raises(InputError, match="must name the directories of 'first', 'second'"):
        import_adapter(other, tmp_path / "first,second", adapters={"first": tmp_path / "elsewhere"})
    assert as_it_was(other)
    import_adapter(
        other, tmp_path / "first,second", adapters={"first": tmp_path / "elsewhere", "second": tmp_path / "second"}
    )
    check(other, BERT / "fusion")


def test_weights_of_a_fusion_whose_name_only_begins_the_same_are_passed_over(model, tmp_path):
    def another(found):
        found |= {key.replace("first,second", "first,second,third"): value + 1.0 for key, value in found.items()}

    import_adapter(model, changed(tmp_path, "fusion", arrays=another))
    check(model, BERT / "fusion")


def test_adapters_that_are_fused_otherwise_there_are_refused_in_both_directions(model, tmp_path):
    for values, message in (
        (dict(ln_after=True), "inner_norm='after'"),
        (dict(is_parallel=True), "'first' has insertion='parallel'"),
    ):
        directory = tmp_path / message
        shutil.copytree(BERT / "fusion", directory)
        for name in ("first", "second"):
            content = json.loads((directory / name / "adapter_config.json").read_text())
            content["config"].update(values)
            (directory / name / "adapter_config.json").write_text(json.dumps(content))
            arrays = load_file(directory / name / "adapter.safetensors")
            if "ln_after" in values:
                prefixes = {key.rpartition("adapter_up")[0] for key in arrays if "adapter_up" in key}
                arrays |= {
                    f"{prefix}adapter_norm_after.{part}": np.ones(32, np.float32)
                    for prefix in prefixes
                    for part in ("weight", "bias")
                }
                save_file(arrays, directory / name / "adapter.safetensors")
        with pytest.raises(InputError, match=message):
            import_adapter(model, directory)
    assert as_it_was(model)
    for changes in (dict(inner_norm="after"), dict(insertion="parallel")):
        config = AdapterConfig.from_dict({**PFEIFFER.to_dict(), **changes})
        with pytest.raises(InputError, match=f"{next(iter(changes))}='{next(iter(changes.values()))}'"):
            export_adapter(adapted(FusionConfig({"a": config, "b": config})), tmp_path / "out")
    with pytest.raises(InputError, match="must be names of letters"):
        export_adapter(adapted(FusionConfig({"a": PFEIFFER, "b/c": PFEIFFER})), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_is_fused_are_bottleneck_adapters_and_a_directory_is_of_one_kind(model, tmp_path):
    with pytest.raises(InputError, match="lora holds lora: bottleneck adapters are fused"):
        import_adapter(model, BERT / "fusion", adapters={"first": BERT / "lora", "second": BERT / "fusion" / "second"})
    with pytest.raises(InputError, match="are what a fusion is of"):
        import_adapter(model, BERT / "lora", adapters={"first": BERT / "lora"})
    shutil.copytree(BERT / "fusion", tmp_path / "mixed")
    shutil.copy(BERT / "lora" / "adapter_config.json", tmp_path / "mixed")
    with pytest.raises(InputError, match="holds an adapter and a fusion: put each into a directory of its own"):
        import_adapter(model, tmp_path / "mixed")
    assert as_it_was(model)


# LoRA of PEFT


PEFTS = {
    # The suffix output.dense is of the dense layer behind the attention too.
    "peft": dict(rank=3, alpha=6.0, targets=DENSE_PLACES, dropout=0.1),
    "peft-pattern": dict(rank=4, alpha=6 * math.sqrt(4), targets=("query", "value")),
    "peft-pooler": dict(rank=2, alpha=8.0, targets=DENSE_PLACES, blocks=(0, 2)),
}


@pytest.mark.parametrize("name", PEFTS)
def test_pefts_lora_computes_what_it_did_in_pytorch(model, name):
    settings = import_adapter(model, BERT / name)
    assert settings["peft_type"] == "LORA"
    assert state_of(model).adapters["default"].config == LoraConfig(**PEFTS[name])
    check(model, BERT / name)
    assert bool(state_of(model).newly_initialized) == (name == "peft-pooler")


def test_what_came_from_peft_goes_to_adapters(model, tmp_path):
    import_adapter(model, BERT / "peft-pattern")
    export_adapter(model, tmp_path)
    other = load_backbone(BERT / "model", num_labels=3)
    import_adapter(other, tmp_path)
    check(other, BERT / "peft-pattern")


@pytest.mark.parametrize("family", ["camembert", "mpnet", "distilbert"])
def test_pefts_directories_are_read_into_families_that_adapters_lacks_too(family, tmp_path):
    # Every dense layer of every block under PyTorch's names, by hand.
    parts = {
        "camembert": (
            "roberta.encoder.layer",
            ("attention.self.query", "attention.output.dense", "intermediate.dense", "output.dense"),
        ),
        "mpnet": (
            "mpnet.encoder.layer",
            ("attention.attn.q", "attention.attn.o", "intermediate.dense", "output.dense"),
        ),
        "distilbert": (
            "distilbert.transformer.layer",
            ("attention.q_lin", "attention.out_lin", "ffn.lin1", "ffn.lin2"),
        ),
    }
    (prefix, denses), random = parts[family], np.random.default_rng(0)
    arrays, (inner, outer) = {}, ((48, 32), (32, 48))
    for block in range(3):
        for dense, (outputs, inputs) in zip(denses, ((32, 32), (32, 32), inner, outer)):
            arrays[f"base_model.model.{prefix}.{block}.{dense}.lora_A.weight"] = random.normal(size=(2, inputs)).astype(
                np.float32
            )
            arrays[f"base_model.model.{prefix}.{block}.{dense}.lora_B.weight"] = random.normal(
                size=(outputs, 2)
            ).astype(np.float32)
    save_file(arrays, tmp_path / "adapter_model.safetensors")
    (tmp_path / "adapter_config.json").write_text(
        json.dumps({"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": list(denses)})
    )
    model = family_model(family)
    import_adapter(model, tmp_path)
    adapter = state_of(model).adapters["default"]
    assert adapter.config == LoraConfig(
        rank=2, alpha=4, targets=("query", "attention_output", "intermediate", "output")
    )
    np.testing.assert_array_equal(
        adapter.layers["layer.1.output"].b, arrays[f"base_model.model.{prefix}.1.{denses[3]}.lora_B.weight"].T
    )


@pytest.mark.parametrize("pattern", [r"(\w+\.?)+!", r"(.*.*)*x", r"((a?){30}){30}.*!"])
@pytest.mark.parametrize("key", ["target_modules", "exclude_modules"])
def test_a_pattern_that_would_backtrack_for_ever_takes_no_time(model, key, pattern, tmp_path):
    settings = {"target_modules": ["query"], **{key: pattern}}
    with pytest.raises(InputError, match="names no dense layer|leaves out"):
        import_adapter(model, changed(tmp_path, "peft", **keys(**settings)))


@pytest.mark.parametrize("targets", ["all-linear", r"bert\.encoder\..*\.(query|key|value|dense)", FULL_NAMES])
def test_ways_to_name_the_layers_are_read_as_peft_reads_them(model, targets, tmp_path):
    import_adapter(model, changed(tmp_path, "peft", **keys(target_modules=targets, exclude_modules=["pooler.dense"])))
    check(model, BERT / "peft")


def test_a_file_of_the_bare_encoder_fits_a_model_with_a_head(model, tmp_path):
    directory = tmp_path / "bare"
    shutil.copytree(BERT / "peft", directory)
    arrays = {
        key.replace(".model.bert.", ".model."): value
        for key, value in load_file(directory / "adapter_model.safetensors").items()
    }
    save_file(
        {key: value for key, value in arrays.items() if "classifier" not in key},
        directory / "adapter_model.safetensors",
    )
    content = json.loads((directory / "adapter_config.json").read_text())
    content["target_modules"] = [name.removeprefix("bert.") for name in FULL_NAMES]
    (directory / "adapter_config.json").write_text(json.dumps(content))
    import_adapter(model, directory)
    check(model, BERT / "peft", logits=False)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_weights_in_half_precision_are_read(model, dtype, tmp_path):
    directory = changed(tmp_path, "peft")
    arrays = {key: tf.cast(value, dtype) for key, value in load_file(directory / "adapter_model.safetensors").items()}
    safetensors.tensorflow.save_file(arrays, str(directory / "adapter_model.safetensors"))
    import_adapter(model, directory)
    key = "base_model.model.bert.encoder.layer.0.attention.self.query.lora_A.weight"
    found = state_of(model).adapters["default"].layers["layer.0.query"].a
    np.testing.assert_array_equal(found, tf.transpose(tf.cast(arrays[key], tf.float32)))


PREFIX = "base_model.model."


def test_the_encoders_own_pooler_stays_under_a_head_of_peft_and_a_lost_one_is_refused(tmp_path):
    shutil.copytree(BERT / "model", tmp_path / "encoder")
    file = tmp_path / "encoder" / "model.safetensors"
    arrays, head = load_file(file), load_file(BERT / "peft" / "adapter_model.safetensors")
    kernel, bias = (
        next(name for name in arrays if name.endswith(f"pooler.dense.{part}")) for part in ("weight", "bias")
    )
    # As it was initialised, a pooler counts as a part of the head here, and not to PEFT.
    save_file(arrays | {bias: np.zeros_like(arrays[bias])}, file, {"format": "pt"})
    model = load_backbone(tmp_path / "encoder", num_labels=3)
    assert state_of(model).newly_initialized
    import_adapter(model, BERT / "peft")
    np.testing.assert_array_equal(model.classifier.kernel, head[PREFIX + "classifier.weight"].T)
    np.testing.assert_array_equal(model.bert.pooler.dense.kernel, arrays[kernel].T)
    del arrays[kernel], arrays[bias]
    save_file(arrays, file, {"format": "pt"})
    with pytest.warns(UserWarning, match="no pooler"):
        model = load_backbone(tmp_path / "encoder", num_labels=3)
    with pytest.raises(InputError, match="has no pooler, and neither has .*encoder: .*; pass head=False"):
        import_adapter(model, BERT / "peft")
    import_adapter(model, BERT / "peft", head=False)


def test_lora_in_the_pooler_is_refused(model):
    with pytest.raises(InputError, match="'bert.pooler.dense.lora_A.weight', for which this model has no place"):
        import_adapter(model, BERT / "peft-all-linear")
    assert as_it_was(model)


def test_a_name_that_cannot_be_used_leaves_the_pooler_to_the_encoder(model):
    with pytest.raises(InputError, match="must consist of letters"):
        import_adapter(model, BERT / "peft-pooler", name="a b")
    assert as_it_was(model)


def test_a_second_adapter_that_does_not_fit_leaves_the_first_as_it_is(model):
    import_adapter(model, BERT / "peft", name="lora")
    before = model({"input_ids": tf.constant([[5, 6, 7]])}).logits
    with pytest.raises(InputError, match="already has an adapter of that name"):
        import_adapter(model, BERT / "lora")
    with pytest.raises(InputError, match="fits a model without adapters alone"):
        import_adapter(model, BERT / "peft-pooler", name="second")
    assert list(state_of(model).adapters) == ["lora"]
    np.testing.assert_array_equal(model({"input_ids": tf.constant([[5, 6, 7]])}).logits, before)


def test_pefts_head_is_described_by_its_task_and_its_weights(tmp_path):
    described = describe_head(BERT / "peft")
    assert (described.head, described.labels, described.head_layers) == (
        "classification",
        ["LABEL_0", "LABEL_1", "LABEL_2"],
        1,
    )
    assert describe_head(BERT / "peft-pattern") is None
    with pytest.raises(InputError, match="does not say for what task: pass head=False"):
        describe_head(changed(tmp_path, "peft", **keys(task_type=None)))


# The command line


@pytest.mark.nightly
def test_the_command_converts_lora_fusion_and_pefts_directories(cli, tmp_path):
    encoder = tmp_path / "encoder"
    shutil.copytree(BERT / "model", encoder)
    (encoder / "vocab.txt").write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"w{number}" for number in range(56))]) + "\n"
    )
    for name in ("lora", "fusion", "peft-pattern"):
        ours, theirs = tmp_path / f"ours-{name}", tmp_path / f"theirs-{name}"
        outcome = cli("convert", BERT / name, "--model", encoder, "--output", ours)
        assert outcome.status == 0, outcome.err
        predicted = cli("predict", ours, "--input", "-", stdin=b"w1 w2 w3\n")
        assert predicted.status == 0, predicted.err
        outcome = cli("convert", ours, "--output", theirs)
        assert outcome.status == 0, outcome.err
        model = load_backbone(BERT / "model", num_labels=3)
        has_head = name != "peft-pattern"
        import_adapter(model, theirs, head=has_head)
        check(model, BERT / name, logits=has_head)
    assert cli("convert", BERT / "peft", "--model", encoder, "--output", tmp_path / "ours-peft").status == 0
    predicted = cli("predict", tmp_path / "ours-peft", "--input", "-", stdin=b"w1 w2 w3\n")
    assert set(json.loads(predicted.out)["probabilities"]) == {"LABEL_0", "LABEL_1", "LABEL_2"}, predicted.err
    behind = cli("convert", tmp_path / "ours-peft", "--output", tmp_path / "x")
    assert behind.status == 2 and "no place at 'attention_output'" in behind.err
    nameless = cli("convert", BERT / "peft", "--output", tmp_path / "x")
    assert nameless.status == 2 and "does not name its encoder: give --model" in nameless.err
    linear = cli("convert", BERT / "peft-all-linear", "--model", encoder, "--output", tmp_path / "x")
    assert linear.status == 2 and "bert.pooler.dense.lora_A.weight" in linear.err
