"""Each choice of a training is said once, and options, searches and resumed runs follow from it."""

import dataclasses
import inspect

import numpy as np
import pytest
import tensorflow as tf

from tf_adapters import AdapterConfig, InputError, LoraConfig, fit, get_recipe
from tf_adapters.cli.options import AdapterOptions, PretrainOptions, RunOptions
from tf_adapters.kinds import get_kind
from tf_adapters.ranges import choices_of
from tf_adapters.tasks.rows import Rows
from tf_adapters.training.settings import EXCLUSIONS, TrainingSettings, check_door, choices, option_of
from tf_adapters.tuning.spaces import DIMENSIONS

USUAL = {"epochs": 4, "learning_rate": 1e-3}
# A value of each field that is not its default.
GIVEN = {
    "epochs": 4, "steps": 20, "period": 10, "keep_periods": True, "learning_rate": 2e-3, "batch_size": 16,
    "accumulate": 2, "checkpoint_gradients": True, "warmup_fraction": 0.2, "dropout": 0.1, "weight_decay": 0.01,
    "clip_norm": 1.0, "epsilon": 1e-6, "bias_correction": False, "decay_from_start": True, "mixout": 0.5,
    "label_smoothing": 0.1, "class_weights": "balanced", "tune_thresholds": True, "patience": 2, "seed": 7,
    "jit_compile": True, "cache_frozen": True, "checkpoint_seconds": 1.0, "tensorboard": True, "recipe": "he-2021",
}  # fmt: skip


def test_every_field_comes_back_from_json():
    assert GIVEN.keys() == choices().keys()
    for name, value in GIVEN.items():
        others = {"steps": {"epochs": None, "period": 10}, "period": {"epochs": None, "steps": 20}}
        settings = TrainingSettings(**{**USUAL, **others.get(name, {}), name: value})
        assert getattr(settings, name) == value
        assert TrainingSettings.from_dict(settings.to_dict()) == dataclasses.replace(settings)
    with pytest.raises(InputError, match="label_smooothing is no field of TrainingSettings: use some of epochs, "):
        TrainingSettings.from_dict({**USUAL, "label_smooothing": 1})


def test_values_that_cannot_be_are_named():
    for given, message in (
        ({"steps": 2, "period": 2}, "give epochs, or steps and period"),
        ({"epochs": None, "steps": 5, "period": 2}, "steps=5 must be a multiple of period=2: give 6"),
        ({"mixout": float("nan")}, "mixout=nan must be"),
        ({"accumulate": 33}, "accumulate=33 is above the rows of a step, batch_size=32"),
    ):
        with pytest.raises(InputError, match=message):
            TrainingSettings(**{**USUAL, **given})


@pytest.mark.parametrize("exclusion", EXCLUSIONS, ids=lambda exclusion: f"{exclusion.first}-{exclusion.second}")
def test_what_excludes_each_other_is_refused_in_python_and_as_options(
    cli, train_arguments, tmp_path, monkeypatch, exclusion
):
    given = {name: GIVEN[name] for name in (exclusion.first, exclusion.second)}
    message = f"{exclusion.first}=.* and {exclusion.second}=.* exclude each other .{exclusion.why}"
    with pytest.raises(InputError, match=message):
        check_door(TrainingSettings(**{**USUAL, **given}).to_dict(), "transformers")
    monkeypatch.setattr(
        "tf_adapters.cli.quiet.import_tensorflow", lambda *arguments: pytest.fail("TensorFlow was loaded first")
    )
    words = [option_of(name) if value is True else f"{option_of(name)}={value}" for name, value in given.items()]
    outcome = cli(*train_arguments, *words, "--output", tmp_path / "out")
    first, second = (word.replace("=", " ") for word in words)
    assert outcome.status == 2 and f"error: {first} and {second} exclude each other" in outcome.err


def test_options_and_dimensions_are_the_fields():
    names = {field.name for field in dataclasses.fields(RunOptions)} - {"precision", "fast"}
    of_python = {"steps", "keep_periods", "recipe"}
    of_python |= {"warmup_fraction", "epsilon", "bias_correction", "decay_from_start"}
    assert names == {option_of(name)[2:].replace("-", "_") for name in choices() if name not in of_python}
    assert {field.name for field in dataclasses.fields(PretrainOptions)} - {"precision", "fast"} < names
    numbers = {name for name, value in GIVEN.items() if type(value) in (int, float, tuple) and name != "seed"}
    assert {name for name, choice in choices().items() if choice.unit} == numbers
    searched = {name for name, choice in choices().items() if choice.searched}
    assert searched <= DIMENSIONS.keys() and DIMENSIONS["learning_rate"].option == "--learning-rate"


def test_options_and_dimensions_of_an_adapter_are_the_fields_of_its_config():
    fields = {field.name: field.metadata["field"] for field in dataclasses.fields(AdapterOptions)}
    of_config = choices_of(AdapterConfig)
    assert list(of_config) == [field.name for field in dataclasses.fields(AdapterConfig)]
    assert list(fields.values()) == [*of_config, *choices_of(LoraConfig)]
    assert fields["adapter_dropout"] == DIMENSIONS["adapter_dropout"].field == "dropout"
    assert of_config["bottleneck_size"].options_of("bottleneck_size") == ["--bottleneck-size", "--adapter-size"]


def test_fit_takes_settings_or_their_fields_and_few_parameters():
    assert len(inspect.signature(fit).parameters) <= 10  # nine, and the fields of settings
    with pytest.raises(InputError, match="settings and epochs are given: leave one of them out"):
        fit(None, None, None, "out", TrainingSettings(**USUAL), epochs=3)
    with pytest.raises(InputError, match="settings={'epochs': 3} are no TrainingSettings"):
        fit(None, None, None, "out", {"epochs": 3})
    with pytest.raises(InputError, match="output=None"):
        fit(None, None, None, **USUAL)


def test_a_recipe_decides_what_is_not_given():
    recipe = get_recipe("hu-2022")
    settings = TrainingSettings.of_recipe(recipe, seed=3)
    found = settings.epochs, settings.learning_rate, settings.warmup_fraction, settings.recipe
    assert found == (60, 5e-4, 0.06, "hu-2022")
    assert TrainingSettings.of_recipe(recipe, "full", epochs=2).learning_rate == 5e-5
    assert TrainingSettings.of_recipe(recipe, steps=10, period=5).epochs is None


# Label smoothing


def test_smoothed_labels_by_hand():
    logits, targets = np.log([[0.7, 0.2, 0.1], [0.3, 0.3, 0.4]]).astype(np.float32), np.array([0, 2])
    smooth = np.array([[0.9 + 0.1 / 3, 0.1 / 3, 0.1 / 3], [0.1 / 3, 0.1 / 3, 0.9 + 0.1 / 3]])
    losses = get_kind("classification").losses(TrainingSettings(**USUAL, label_smoothing=0.1))
    assert np.allclose(losses["loss"](targets, logits), -(smooth * logits).sum(-1), rtol=1e-6)
    losses = get_kind("multi-label").losses(TrainingSettings(**USUAL, label_smoothing=0.1))
    binary, values = np.array([[1.0, 0.0]]), np.array([[0.3, -2.0]], np.float32)
    smooth, ones = np.array([[0.95, 0.05]]), 1 / (1 + np.exp(-values))
    assert np.allclose(
        losses["loss"](binary, values), -(smooth * np.log(ones) + (1 - smooth) * np.log(1 - ones)).mean(), rtol=1e-5
    )


def rows_of(labels):
    return Rows(tf.constant(["text"] * len(labels)), labels=np.asarray(labels))


def test_balanced_classes_by_hand():
    settings = TrainingSettings(**USUAL, class_weights="balanced")
    logits = np.log([[0.7, 0.2, 0.1], [0.3, 0.3, 0.4]]).astype(np.float32)
    # Of eight rows six, none and two: of two classes that there are, 8 / (2 * 6) and 8 / (2 * 2).
    losses = get_kind("classification").losses(settings, rows_of([0] * 6 + [2] * 2))
    expected = np.array([8 / 12 * -np.log(0.7), 8 / 4 * -np.log(0.4)])
    assert np.allclose(losses["loss"](np.array([0, 2]), logits), expected, rtol=1e-6)
    both = dataclasses.replace(settings, label_smoothing=0.1)
    smooth = np.array([[0.9 + 0.1 / 3, 0.1 / 3, 0.1 / 3], [0.1 / 3, 0.1 / 3, 0.9 + 0.1 / 3]])
    losses = get_kind("classification").losses(both, rows_of([0] * 6 + [2] * 2))
    assert np.allclose(losses["loss"](np.array([0, 2]), logits), [8 / 12, 2] * -(smooth * logits).sum(-1), rtol=1e-6)
    # The first label is there once in four rows, the second three times, the third never.
    has = np.array([[1, 1, 0], [0, 1, 0], [0, 1, 0], [0, 0, 0]], np.float32)
    losses = get_kind("multi-label").losses(settings, rows_of(has))
    values = np.array([[0.3, -2.0, 1.0]], np.float32)
    ones = 1 / (1 + np.exp(-values[0]))
    parts = [4 / 2 * -np.log(ones[0]), 4 / 2 * -np.log(1 - ones[1]), -np.log(1 - ones[2])]
    assert np.allclose(losses["loss"](np.array([[1.0, 0.0, 0.0]]), values), np.mean(parts), rtol=1e-5)


def test_settings_that_are_not_for_a_kind_are_named():
    for given, kind in (
        ({"class_weights": "balanced"}, "token-classification"),
        ({"label_smoothing": 0.1}, "token-classification"),
        ({"label_smoothing": 0.1}, "regression"),
        ({"tune_thresholds": True}, "classification"),
    ):
        ((name, value),) = given.items()
        with pytest.raises(InputError, match=f"{name}={value!r} is not for tasks of the kind '{kind}'"):
            TrainingSettings(**USUAL, **given).check_kind(get_kind(kind))
    TrainingSettings(**USUAL, tune_thresholds=True).check_kind(get_kind("multi-label"))
