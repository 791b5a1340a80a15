"""A directory brings back all that trained, is refused where it does not fit, and is whole after every kill."""

import concurrent.futures
import json
import os
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.cases import nightly_but
from tests.conftest import encoder_of, is_refused, move_what_trains, tiny_inputs, tiny_model, write_checkpoint
from tests.runs import Killed, content
from tf_adapters import (
    AdapterConfig,
    add_adapters,
    load_backbone,
    load_tokenizer,
    predict,
    remove_adapters,
    set_trainable,
)
from tf_adapters.methods import config_from_dict
from tf_adapters.models import adapter_names
from tf_adapters.recipes import RECIPES, get_recipe
from tf_adapters.saving import settings as files
from tf_adapters.saving.directory import copy_adapter, load_adapter, load_trained, read_adapter, save_adapter

INPUTS = tiny_inputs()


def trained(directory, mode="adapters", config=None, **options):
    model = load_backbone(directory, **options)
    if mode == "adapters":
        add_adapters(model, config or AdapterConfig(bottleneck_size=4, train_layer_norm="all"), seed=0)
    return move_what_trains(set_trainable(model, mode), scale=0.1)


def settings_of(directory):
    return json.loads((directory / "tf_adapters.json").read_text())


checkpoint = encoder_of(3)  # a directory's parts are the same in every block


@pytest.fixture(scope="module")
def kept(checkpoint, tmp_path_factory):
    """A trained model and its directory, which no test changes."""
    model = trained(checkpoint)
    return model, save_adapter(model, tmp_path_factory.mktemp("kept") / "a")


@pytest.fixture
def saved(kept, tmp_path):
    """A copy of the trained directory, to be damaged."""
    return shutil.copytree(kept[1], tmp_path / "a")


OF_ADAPTERS = [name for name, recipe in sorted(RECIPES.items()) if recipe.trainable == "adapters"]


@pytest.mark.parametrize("recipe", nightly_but(["report-unshared"], OF_ADAPTERS))
def test_loading_into_a_fresh_backbone_gives_bit_equal_logits(checkpoint, tmp_path, recipe):
    recipe, labels = get_recipe(recipe), ["b", "a"]
    model = trained(checkpoint, config=recipe.adapter, head_layers=recipe.head_layers, labels=labels)
    save_adapter(model, tmp_path, recipe=recipe.name)
    fresh, settings = load_trained(tmp_path)
    assert np.array_equal(fresh(INPUTS).logits, model(INPUTS).logits)
    assert settings["recipe"] == recipe.name and config_from_dict(settings["adapter"]) == recipe.adapter
    head = {"type": "classification", "layers": recipe.head_layers, "num_labels": 2, "labels": labels, "pooler": False}
    assert settings["head"] == head


@pytest.mark.parametrize("mode", nightly_but(["full", "top-1"], ["full", "top-1", "layer-norm", "bias", "head"]))
def test_everything_that_trained_is_saved(checkpoint, tmp_path, mode):
    model = trained(checkpoint, mode)
    save_adapter(model, tmp_path)
    settings = settings_of(tmp_path)
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
    norms = [f"{place}.LayerNorm.{part}" for place in ("attention.output", "output") for part in ("weight", "bias")]
    expected |= {f"backbone.encoder.layer.{block}.{norm}" for block in range(4) for norm in norms}
    expected |= {"head.classifier.weight", "head.classifier.bias"}
    arrays = load_file(tmp_path / "adapter.safetensors")
    assert set(arrays) == expected and arrays["layers.0-2.down.kernel"].shape == (32, 4)


def test_directory_of_another_encoder_is_refused(kept, tmp_path):
    for change, message in (
        ({"seed": 1}, "trained on another encoder.*the shape is the same"),
        ({"num_hidden_layers": 2}, "num_hidden_layers=3.*num_hidden_layers=2"),
        ({"hidden_act": "gelu_new"}, "encoder of these weights with .*its answers would be others"),
        ({"layer_norm_eps": 1e-5}, "encoder of these weights with .*its answers would be others"),
        ({"num_attention_heads": 4}, "with num_attention_heads=2, and this model computes with num_attention_heads=4"),
    ):
        write_checkpoint(tmp_path / "other", **{"num_hidden_layers": 3, **change})
        model = load_backbone(tmp_path / "other")
        is_refused(message, load_adapter, model, kept[1])
        assert adapter_names(model) == []


def test_activation_has_one_name_however_transformers_calls_it(tmp_path):
    write_checkpoint(tmp_path / "encoder", hidden_act="gelu_new", num_hidden_layers=2)
    save_adapter(trained(tmp_path / "encoder"), tmp_path / "a")
    assert settings_of(tmp_path / "a")["backbone"]["activation"] == "gelu_tanh"
    write_checkpoint(tmp_path / "other", hidden_act="gelu_fast", num_hidden_layers=2)
    load_adapter(load_backbone(tmp_path / "other"), tmp_path / "a")


def test_directory_of_a_version_that_kept_no_activation_loads(kept, saved):
    settings = settings_of(saved)
    for name in ("activation", "layer_norm_eps", "num_attention_heads"):
        del settings["backbone"][name]
    (saved / "tf_adapters.json").write_text(json.dumps(settings))
    assert np.array_equal(load_trained(saved)[0](INPUTS).logits, kept[0](INPUTS).logits)


def test_head_of_another_shape_is_the_adapters_own_unless_left_out(checkpoint, kept, tmp_path):
    model = load_backbone(checkpoint, num_labels=5)
    load_adapter(model, kept[1])
    assert adapter_names(model) == ["default"] and model.config.num_labels == 2
    remove_adapters(model)
    assert model.config.num_labels == 5
    # It is nobody's own without an adapter, and not of one that is there.
    save_adapter(trained(checkpoint, "head"), tmp_path / "head")
    is_refused("head for 2 labels.*head=False", load_adapter, model, tmp_path / "head")
    load_adapter(model, kept[1], head=False)
    is_refused("head for 2 labels.*head=False", load_adapter, model, kept[1])
    assert adapter_names(model) == ["default"] and model.config.num_labels == 5


def test_a_pooler_that_is_untrained_is_part_of_the_saved_head_and_the_card_says_so(tmp_path):
    write_checkpoint(tmp_path / "bert", num_hidden_layers=1, zero=("pooler.dense.bias",))
    model = trained(tmp_path / "bert")
    model.bert.pooler.dense.kernel.assign(model.bert.pooler.dense.kernel + 1.0)
    save_adapter(model, tmp_path / "a")
    card = (tmp_path / "a" / "README.md").read_text()
    assert all(words in card for words in ("Trained parameters", "with the encoder's pooler", "tf-adapters predict"))
    fresh, settings = load_trained(tmp_path / "a")
    assert settings["head"]["pooler"] and not settings["backbone"]["weights_saved"]
    assert np.array_equal(fresh(INPUTS).logits, model(INPUTS).logits)


def test_adapter_of_the_same_name_takes_the_weights_only_if_its_config_is_equal(checkpoint, kept):
    twin = add_adapters(load_backbone(checkpoint), AdapterConfig(bottleneck_size=4, train_layer_norm="all"), seed=9)
    load_adapter(twin, kept[1])
    assert np.array_equal(twin(INPUTS).logits, kept[0](INPUTS).logits)
    remove_adapters(twin)
    is_refused("another config", load_adapter, add_adapters(twin, AdapterConfig(bottleneck_size=5)), kept[1])


def test_an_adapter_of_the_same_name_loses_the_layer_norms_that_the_directory_does_not_have(checkpoint, tmp_path):
    config = AdapterConfig(bottleneck_size=4, train_layer_norm="all", init_stddev=0.3)
    fresh = set_trainable(add_adapters(load_backbone(checkpoint), config, seed=5), "head")
    save_adapter(fresh, tmp_path)
    assert not [key for key in read_adapter(tmp_path)[1] if "LayerNorm" in key]
    model = trained(checkpoint, config=config)
    load_adapter(model, tmp_path)
    assert np.array_equal(model(INPUTS).logits, fresh(INPUTS).logits)


def edit(**changes):
    return lambda folder: (folder / "tf_adapters.json").write_text(json.dumps({**settings_of(folder), **changes}))


def cut(name, keep=None):
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:keep])


@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda folder: (folder / "tf_adapters.json").rename(folder / "adapter_config.json"), "AdapterHub or PEFT"),
        (cut("tf_adapters.json", 1), "is damaged"),
        (edit(backbone=None), "is damaged: 'backbone' is None"),
        (edit(text={"max_length": "128"}), "is damaged: 'text.max_length' is '128'"),
        (edit(task={"kind": []}), r"is damaged: 'task.kind' is \[\]"),
        (edit(format_version=2), "format_version 2.*upgrade"),
        (cut("adapter.safetensors", -8), "missing, truncated"),
    ],
)
def test_damaged_directory_is_named(saved, damage, message):
    damage(saved)
    is_refused(message, load_trained, saved)


def test_what_cannot_be_saved_is_named_and_nothing_is_lost(kept, tmp_path):
    is_refused("call set_trainable", save_adapter, add_adapters(tiny_model(num_hidden_layers=1)), tmp_path)
    model, long = kept[0], load_tokenizer(kept[0]).with_max_length(999)
    for message, about in (
        ("'task.kind' is None", {"task": {"kind": None}}),
        ("'task.kind' is 'multi_label', and the head is for classification", {"task": {"kind": "multi_label"}}),
        ("'task.kind' is 'regression', and the head is for .* with 2 outputs", {"task": {"kind": "regression"}}),
        ("task=.* is nothing that JSON can hold", {"task": {"name": "\ud800"}}),
        ("text='words' must be a tokenizer of this package", {"text": "words"}),
        ("max_length=999 is beyond the 64 positions", {"text": long}),
    ):
        is_refused(message, save_adapter, model, tmp_path / "new", **about)
    is_refused("max_length=999 is beyond the 64 positions", predict, model, ["a"], tokenizer=long)
    assert not (tmp_path / "new").exists()
    file = tmp_path / "file"
    file.write_text("mine")
    is_refused("is a file", save_adapter, model, file)
    is_refused("cannot be written", save_adapter, model, file / "below")
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
        (["tf_adapters.json"], 1),
        # The JSON is the commit; the last kill comes before what the first one kept from happening.
        (["adapter.safetensors"], 2),
        *((["adapter.safetensors", file], 2) for file in FILES[1:]),
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


def test_what_is_read_is_of_one_save(numbered, tmp_path, monkeypatch):
    for number in (1, 2):
        save_adapter(numbered(number), tmp_path / str(number))
    hashed = files.sha256_of

    def sha256_of(path):
        found = hashed(path)
        monkeypatch.setattr(files, "sha256_of", hashed)
        copy_adapter(tmp_path / "2", tmp_path / "1")  # between the check and the reading
        return found

    monkeypatch.setattr(files, "sha256_of", sha256_of)
    settings, arrays = read_adapter(tmp_path / "1")
    assert settings == files.read_settings(tmp_path / "1") and arrays["head.classifier.bias"][0] == 2


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


def test_a_save_that_fails_leaves_the_old_adapter_and_none_of_the_new_one(numbered, tmp_path, monkeypatch):
    save_adapter(numbered(1), tmp_path)
    before = content(tmp_path)
    fails = OSError(28, "No space left on device")
    monkeypatch.setattr(os, "replace", raising("tf_adapters.json", fails))
    is_refused("tf_adapters.json cannot be written: No space left on device", save_adapter, numbered(2), tmp_path)
    after = content(tmp_path)
    assert set(after) == set(before) and after["tf_adapters.json"] == before["tf_adapters.json"]
    assert after["adapter.safetensors"] == before["adapter.safetensors"]
