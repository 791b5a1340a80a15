"""A directory brings back all that trained, is refused where it does not fit, and is whole after every kill."""

import concurrent.futures
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.cases import nightly_but
from tests.conftest import tiny_inputs, tiny_model, write_checkpoint
from tests.runs import Killed
from tf_adapters import (
    AdapterConfig,
    InputError,
    adapter_names,
    add_adapters,
    disable_adapters,
    get_recipe,
    load_adapter,
    load_backbone,
    load_trained,
    remove_adapters,
    save_adapter,
    set_active,
    set_trainable,
)
from tf_adapters.methods import config_from_dict
from tf_adapters.recipes import RECIPES
from tf_adapters.saving.directory import copy_adapter, read_adapter

INPUTS = tiny_inputs()
BERT_BASE = dict(
    vocab_size=30522, hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072,
    max_position_embeddings=512,
)  # fmt: skip


def move(model, seed=0):
    """Give what trains other values, as training would."""
    random = np.random.default_rng(seed)
    for variable in model.trainable_variables:
        variable.assign_add(random.normal(0, 0.1, variable.shape).astype(np.float32))
    return model


def trained(directory, mode="adapters", config=None, **options):
    model = load_backbone(directory, **options)
    if mode == "adapters":
        add_adapters(model, config or AdapterConfig(bottleneck_size=4, train_layer_norm="all"), seed=0)
    return move(set_trainable(model, mode))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """An encoder of three blocks: a directory's parts are the same in every block."""
    folder = tmp_path_factory.mktemp("encoder") / "three-blocks"
    write_checkpoint(folder, num_hidden_layers=3)
    return folder


@pytest.fixture(scope="module")
def kept(checkpoint, tmp_path_factory):
    """A trained model and its directory, which no test changes."""
    model = trained(checkpoint)
    return model, save_adapter(model, tmp_path_factory.mktemp("kept") / "a")


@pytest.fixture
def saved(kept, tmp_path):
    """A copy of the trained directory, to be damaged."""
    return shutil.copytree(kept[1], tmp_path / "a")


@pytest.mark.parametrize(
    "recipe",
    nightly_but(
        ["report-unshared", "report-3-shared", "hu-2022"],
        [name for name, recipe in sorted(RECIPES.items()) if recipe.trainable == "adapters"],
    ),
)  # fmt: skip
def test_loading_into_a_fresh_backbone_gives_bit_equal_logits(checkpoint, tmp_path, recipe):
    recipe = get_recipe(recipe)
    model = trained(checkpoint, config=recipe.adapter, head_layers=recipe.head_layers, num_labels=2)
    save_adapter(model, tmp_path / "a", recipe=recipe.name)
    fresh, settings = load_trained(tmp_path / "a")
    assert np.array_equal(fresh(INPUTS).logits, model(INPUTS).logits)
    assert settings["recipe"] == recipe.name
    assert config_from_dict(settings["adapter"]) == recipe.adapter


@pytest.mark.parametrize("mode", nightly_but(["full", "top-1"], ["full", "top-1", "layer-norm", "bias", "head"]))
def test_everything_that_trained_is_saved(checkpoint, tmp_path, mode):
    model = trained(checkpoint, mode)
    save_adapter(model, tmp_path)
    settings = json.loads((tmp_path / "tf_adapters.json").read_text())
    assert settings["backbone"]["weights_saved"] == (mode in ("full", "top-1", "bias"))
    assert settings["trainable"] == mode
    fresh, _ = load_trained(tmp_path)
    assert np.array_equal(fresh(INPUTS).logits, model(INPUTS).logits)


def test_exact_keys_of_the_saved_file(tmp_path):
    write_checkpoint(tmp_path / "encoder")
    model = trained(tmp_path / "encoder", config=AdapterConfig(4, sharing=3, train_layer_norm="encoder"))
    save_adapter(model, tmp_path)
    parts = [f"{part}.{weight}" for part in ("down", "up") for weight in ("kernel", "bias")]
    expected = {f"{key}.{part}" for key in ("layers.0-2", "layers.3-3") for part in parts}
    expected |= {
        f"backbone.encoder.layer.{block}.{place}.LayerNorm.{weight}"
        for block in range(4)
        for place in ("attention.output", "output")
        for weight in ("weight", "bias")
    }
    expected |= {"head.classifier.weight", "head.classifier.bias"}
    arrays = load_file(tmp_path / "adapter.safetensors")
    assert set(arrays) == expected
    assert arrays["layers.0-2.down.kernel"].shape == (32, 4)
    remove_adapters(model)
    add_adapters(model, AdapterConfig(4, train_layer_norm="none"))
    save_adapter(set_trainable(model, "adapters"), tmp_path)
    assert {key for key in load_file(tmp_path / "adapter.safetensors") if key.startswith("layer")} == {
        f"layer.{block}.{place}.{part}" for block in range(4) for place in ("attention", "ffn") for part in parts
    }


def test_saved_directory_holds_no_backbone_weights_and_is_small(kept):
    assert sorted(path.name for path in kept[1].iterdir()) == ["README.md", "adapter.safetensors", "tf_adapters.json"]
    card = (kept[1] / "README.md").read_text()
    assert "Trained parameters" in card and "tf-adapters predict" in card


@pytest.mark.nightly
def test_houlsby_2019_on_bert_base_is_under_ten_megabytes(tmp_path):
    model = add_adapters(tiny_model(**BERT_BASE), get_recipe("houlsby-2019").adapter)
    save_adapter(set_trainable(model, "adapters"), tmp_path)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 10_000_000


def test_several_directories_on_one_backbone_keep_their_own_predictions(checkpoint, tmp_path):
    model, expected = load_backbone(checkpoint), {}
    plain = model(INPUTS, output_hidden_states=True).hidden_states[-1].numpy()
    for index, name in enumerate(("one", "two")):
        add_adapters(model, AdapterConfig(4 + index, init_stddev=0.5, train_layer_norm="all"), seed=0)
        save_adapter(move(set_trainable(model)), tmp_path / name)
        expected[name] = model(INPUTS).logits.numpy()
        remove_adapters(model)
    for name in expected:
        load_adapter(model, tmp_path / name, name=name)
    for name in ("one", "two", "one"):
        set_active(model, name)
        # The two-adapter graph chooses by a branch; the sums are the same.
        assert np.array_equal(model(INPUTS).logits, expected[name])
    with disable_adapters(model):
        assert np.array_equal(model(INPUTS, output_hidden_states=True).hidden_states[-1], plain)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"seed": 1}, "trained on another encoder.*its shape is the same"),
        ({"num_hidden_layers": 2}, "num_hidden_layers=3.*num_hidden_layers=2"),
        ({"hidden_act": "gelu_new"}, "encoder of these weights with .*its answers would be others"),
        ({"layer_norm_eps": 1e-5}, "encoder of these weights with .*its answers would be others"),
    ],
)
def test_directory_of_another_encoder_is_refused(kept, tmp_path, change, message):
    write_checkpoint(tmp_path / "other", **{"num_hidden_layers": 3, **change})
    model = load_backbone(tmp_path / "other")
    with pytest.raises(InputError, match=message):
        load_adapter(model, kept[1])
    assert adapter_names(model) == []
    with pytest.raises(InputError, match=message):
        load_trained(kept[1], backbone=tmp_path / "other")


def test_activation_has_one_name_however_transformers_calls_it(tmp_path):
    write_checkpoint(tmp_path / "encoder", hidden_act="gelu_new", num_hidden_layers=2)
    save_adapter(trained(tmp_path / "encoder"), tmp_path / "a")
    settings = json.loads((tmp_path / "a" / "tf_adapters.json").read_text())
    assert settings["backbone"]["activation"] == "gelu_tanh"
    write_checkpoint(tmp_path / "other", hidden_act="gelu_fast", num_hidden_layers=2)
    load_adapter(load_backbone(tmp_path / "other"), tmp_path / "a")


def test_directory_of_a_version_that_kept_no_activation_loads(kept, saved):
    settings = json.loads((saved / "tf_adapters.json").read_text())
    del settings["backbone"]["activation"], settings["backbone"]["layer_norm_eps"]
    (saved / "tf_adapters.json").write_text(json.dumps(settings))
    assert np.array_equal(load_trained(saved)[0](INPUTS).logits, kept[0](INPUTS).logits)


def test_head_of_another_shape_is_the_adapters_own_unless_left_out(checkpoint, kept):
    model = load_backbone(checkpoint, num_labels=5)
    load_adapter(model, kept[1])
    assert adapter_names(model) == ["default"] and model.config.num_labels == 2
    remove_adapters(model)
    assert model.config.num_labels == 5
    load_adapter(model, kept[1], head=False)
    assert adapter_names(model) == ["default"] and model.config.num_labels == 5


def test_another_head_for_an_adapter_that_is_there_or_for_none_is_refused(checkpoint, kept, tmp_path):
    save_adapter(move(set_trainable(load_backbone(checkpoint), "head")), tmp_path / "head")
    model = load_backbone(checkpoint, num_labels=5)
    with pytest.raises(InputError, match="head for 2 labels.*head=False"):
        load_adapter(model, tmp_path / "head")
    load_adapter(model, kept[1], head=False)
    with pytest.raises(InputError, match="head for 2 labels.*head=False"):
        load_adapter(model, kept[1])
    assert adapter_names(model) == ["default"] and model.config.num_labels == 5


def test_two_layer_head_is_rebuilt(checkpoint, tmp_path):
    model = load_backbone(checkpoint, head_layers=2, labels=["b", "a"])
    save_adapter(move(set_trainable(model, "head")), tmp_path)
    fresh, settings = load_trained(tmp_path)
    assert settings["head"] == {
        "type": "classification",
        "layers": 2,
        "num_labels": 2,
        "labels": ["b", "a"],
        "pooler": False,
    }
    assert np.array_equal(fresh(INPUTS).logits, model(INPUTS).logits)
    with pytest.raises(InputError, match="2 layer"):
        load_adapter(load_backbone(checkpoint), tmp_path)


def test_missing_pooler_is_part_of_the_saved_head(tmp_path):
    write_checkpoint(tmp_path / "bert", drop=("pooler",), num_hidden_layers=2)
    with pytest.warns(UserWarning):
        model = trained(tmp_path / "bert")
    save_adapter(model, tmp_path / "a")
    with pytest.warns(UserWarning):
        fresh, _ = load_trained(tmp_path / "a")
    assert np.array_equal(fresh(INPUTS).logits, model(INPUTS).logits)


def test_untrained_pooler_is_part_of_the_saved_head_and_the_card_says_so(tmp_path):
    write_checkpoint(tmp_path / "bert", zero=("pooler.dense.bias",), num_hidden_layers=2)
    model = trained(tmp_path / "bert")
    model.bert.pooler.dense.kernel.assign(model.bert.pooler.dense.kernel + 1.0)
    save_adapter(model, tmp_path / "a")
    assert "with the encoder's pooler" in (tmp_path / "a" / "README.md").read_text()
    fresh, settings = load_trained(tmp_path / "a")
    assert settings["head"]["pooler"] and not settings["backbone"]["weights_saved"]
    assert np.array_equal(fresh(INPUTS).logits, model(INPUTS).logits)


def test_full_fine_tuning_is_not_loaded_beside_other_adapters(checkpoint, tmp_path):
    save_adapter(trained(checkpoint, "full"), tmp_path)
    model = add_adapters(load_backbone(checkpoint), AdapterConfig(4), name="mine")
    with pytest.raises(InputError, match="a model of its own"):
        load_adapter(model, tmp_path)


def test_adapter_of_the_same_name_takes_the_weights_only_if_its_config_is_equal(checkpoint, kept):
    twin = add_adapters(load_backbone(checkpoint), AdapterConfig(bottleneck_size=4, train_layer_norm="all"), seed=9)
    load_adapter(twin, kept[1])
    assert np.array_equal(twin(INPUTS).logits, kept[0](INPUTS).logits)
    remove_adapters(twin)
    add_adapters(twin, AdapterConfig(bottleneck_size=5))
    with pytest.raises(InputError, match="another config"):
        load_adapter(twin, kept[1])


def test_an_adapter_of_the_same_name_loses_the_layer_norms_that_the_directory_does_not_have(checkpoint, tmp_path):
    config = AdapterConfig(bottleneck_size=4, train_layer_norm="all", init_stddev=0.3)
    fresh = set_trainable(add_adapters(load_backbone(checkpoint), config, seed=5), "head")
    save_adapter(fresh, tmp_path)
    assert not [key for key in read_adapter(tmp_path)[1] if "LayerNorm" in key]
    model = trained(checkpoint, config=config)
    load_adapter(model, tmp_path)
    assert np.array_equal(model(INPUTS).logits, fresh(INPUTS).logits)


def edit(directory, **changes):
    path = directory / "tf_adapters.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda d: (d / "tf_adapters.json").unlink(), "no adapter directory"),
        (
            lambda d: ((d / "tf_adapters.json").unlink(), (d / "adapter_config.json").write_text("{}")),
            "AdapterHub or PEFT",
        ),
        (lambda d: (d / "tf_adapters.json").write_text("{"), "is damaged"),
        (lambda d: (d / "tf_adapters.json").write_text("[]"), "is damaged"),
        (lambda d: edit(d, backbone=None), "is damaged: 'backbone' is None"),
        (lambda d: edit(d, weights={}), "is damaged: it lacks 'weights.sha256'"),
        (lambda d: edit(d, text={}), "is damaged: it lacks 'text.max_length'"),
        (lambda d: edit(d, text={"max_length": "128"}), "is damaged: 'text.max_length' is '128'"),
        (lambda d: edit(d, task={"kind": []}), r"is damaged: 'task.kind' is \[\]"),
        (lambda d: edit(d, task={"text_pairs": 1}), "is damaged: 'task.text_pairs' is 1"),
        (lambda d: edit(d, format_version=2), "format_version 2.*upgrade"),
        (lambda d: edit(d, adapter={"size": 3}), "Unknown adapter config key 'size'"),
        (lambda d: (d / "adapter.safetensors").unlink(), "missing, truncated"),
        (
            lambda d: (d / "adapter.safetensors").write_bytes((d / "adapter.safetensors").read_bytes()[:-8]),
            "missing, truncated",
        ),
    ],
)
def test_damaged_directory_is_named(saved, damage, message):
    damage(saved)
    with pytest.raises(InputError, match=message):
        load_trained(saved)


def test_what_cannot_be_saved_is_named_and_nothing_is_lost(kept, tmp_path):
    with pytest.raises(InputError, match="call set_trainable"):
        save_adapter(add_adapters(tiny_model(num_hidden_layers=1)), tmp_path)
    model = kept[0]
    with pytest.raises(InputError, match="'task.kind' is None"):
        save_adapter(model, tmp_path / "new", task={"kind": None})
    assert not (tmp_path / "new").exists()
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(InputError, match="is a file"):
        save_adapter(model, file)
    with pytest.raises(InputError, match="cannot be written"):
        save_adapter(model, file / "below")
    assert file.read_text() == "mine"


def raising(name, error):
    """`os.replace` that raises before it replaces a file of this name."""
    real = os.replace

    def replace(source, destination):
        if os.path.basename(destination) == name:
            raise error
        real(source, destination)

    return replace


def killed_before_replacing(monkeypatch, name, function, *arguments):
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", raising(name, Killed()))
        with pytest.raises(Killed):
            function(*arguments)


@pytest.fixture
def numbered(checkpoint):
    """`numbered(7)` is a model whose head has 7 for its biases, ready to be saved; always the same model."""
    model = set_trainable(add_adapters(load_backbone(checkpoint), AdapterConfig(4)), "adapters")

    def change(number):
        model.classifier.bias.assign(np.full(2, number, np.float32))
        return model

    return change


def number_of(directory):
    """The number of the model that a directory holds."""
    return float(read_adapter(directory)[1]["head.classifier.bias"][0])


FILES = ["README.md", "tf_adapters.json", "adapter.safetensors"]


@pytest.mark.parametrize(
    "kills, expected",
    [
        (["README.md"], 1),
        (["tf_adapters.json"], 1),
        # The JSON is the commit; the last kill comes before what the first one kept from happening.
        (["adapter.safetensors"], 2),
        *((["adapter.safetensors", file], 2) for file in FILES),
    ],
)
def test_kills_in_a_row_leave_the_old_or_the_new_adapter_whole(numbered, tmp_path, monkeypatch, kills, expected):
    save_adapter(numbered(1), tmp_path)
    for number, file in enumerate(kills, 2):
        killed_before_replacing(monkeypatch, file, save_adapter, numbered(number), tmp_path)
    assert number_of(tmp_path) == expected
    found = load_trained(tmp_path)[0](INPUTS).logits
    assert np.array_equal(found, numbered(expected)(INPUTS).logits)
    save_adapter(numbered(4), tmp_path)
    assert number_of(tmp_path) == 4 and sorted(path.name for path in tmp_path.iterdir()) == sorted(FILES)


def test_two_kills_in_a_row_of_copies_leave_an_adapter_whole(numbered, tmp_path, monkeypatch):
    for number in (1, 2, 3):
        save_adapter(numbered(number), tmp_path / str(number))
    copy_adapter(tmp_path / "1", tmp_path / "best")
    killed_before_replacing(monkeypatch, "adapter.safetensors", copy_adapter, tmp_path / "2", tmp_path / "best")
    killed_before_replacing(monkeypatch, "tf_adapters.json", copy_adapter, tmp_path / "3", tmp_path / "best")
    assert number_of(tmp_path / "best") == 2


def test_two_writers_of_a_directory_do_not_mix_what_they_write(numbered, tmp_path):
    for number in (1, 2):
        save_adapter(numbered(number), tmp_path / str(number))

    def copies(number):
        for _ in range(40):
            copy_adapter(tmp_path / str(number), tmp_path / "both")

    with concurrent.futures.ThreadPoolExecutor() as pool:
        for writer in [pool.submit(copies, number) for number in (1, 2)]:
            writer.result()
    assert number_of(tmp_path / "both") in (1, 2)
    assert sorted(path.name for path in (tmp_path / "both").iterdir()) == sorted(FILES)


@pytest.mark.parametrize("full", ["README.md", "tf_adapters.json"])
def test_a_save_that_fails_leaves_the_old_adapter_and_none_of_the_new_one(numbered, tmp_path, monkeypatch, full):
    save_adapter(numbered(1), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    fails = OSError(28, "No space left on device")
    monkeypatch.setattr(os, "replace", raising(full, fails))
    with pytest.raises(InputError, match=f"{full} cannot be written: No space left on device"):
        save_adapter(numbered(2), tmp_path)
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert set(after) == set(before) and after["tf_adapters.json"] == before["tf_adapters.json"]
    assert after["adapter.safetensors"] == before["adapter.safetensors"]


@pytest.mark.slow
def test_directory_loads_in_a_new_process(kept, tmp_path):
    model, directory = kept
    np.save(tmp_path / "ids.npy", INPUTS["input_ids"])
    script = (
        "import sys, numpy as np, tf_adapters\n"
        "model, _ = tf_adapters.load_trained(sys.argv[1])\n"
        "ids = np.load(sys.argv[2])\n"
        "np.save(sys.argv[3], model(dict(input_ids=ids)).logits)\n"
    )
    command = [sys.executable, "-c", script, directory, tmp_path / "ids.npy", tmp_path / "out.npy"]
    subprocess.run(command, check=True, timeout=300, capture_output=True)
    assert np.array_equal(np.load(tmp_path / "out.npy"), model({"input_ids": INPUTS["input_ids"]}).logits)
