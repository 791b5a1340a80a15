"""The options that say how a task is trained, made of the fields of `TrainingSettings`."""

import dataclasses
from typing import Annotated, Optional, get_args

import typer

from tf_adapters.cli import options
from tf_adapters.training.settings import TrainingSettings, check_packages, check_together, choices, option_of


def _field(name, default, help):
    """The field of an options class for one of `TrainingSettings`."""
    kind = next(iter(get_args(TrainingSettings.__annotations__[name])), TrainingSettings.__annotations__[name])
    # A flag has no `--no-`.
    option = typer.Option(option_of(name), help=help, rich_help_panel=choices()[name].panel)
    return (
        _parameter(name),
        Annotated[Optional[kind] if default is None else kind, option],
        dataclasses.field(default=default),
    )


def _parameter(name):
    return option_of(name)[2:].replace("-", "_")


def run_options(class_name, *without, helps=None, **changed):
    """An options class for `grouped`.

    Args:
        class_name: str.
        without: names of fields of `TrainingSettings` that the command does not have.
        helps: dict of other help texts by the names of fields, or None.
        changed: other defaults by the names of fields; without one, what a recipe decides is None.

    Returns: a dataclass whose fields are named as the command's parameters.
    """
    chosen = {name: choice for name, choice in choices().items() if name not in without}
    fields = []
    for name, choice in chosen.items():
        default = None if choice.of_recipe else TrainingSettings.__dataclass_fields__[name].default
        fields.append(_field(name, changed.get(name, default), (helps or {}).get(name, choice.help)))
    fields += [
        ("precision", options.Precision, dataclasses.field(default="float32")),
        ("fast", options.Fast, dataclasses.field(default=False)),
    ]

    def given(self):
        values = {name: getattr(self, _parameter(name)) for name in chosen}
        check_together(values)
        check_packages(values)
        options.check_precision(self.precision)
        return {name: value for name, value in values.items() if not (choices()[name].of_recipe and value is None)}

    given.__doc__ = """The values by the names of `TrainingSettings`, without those that a recipe is to decide.

        Raises:
            InputError: some exclude each other.
        """
    return dataclasses.make_dataclass(
        class_name,
        fields,
        namespace={"given": given, "__doc__": "The options by the names of the command's parameters."},
    )


_OF_PYTHON = (
    *("steps", "keep_periods", "recipe"),
    # A recipe decides them.
    *("warmup_fraction", "epsilon", "bias_correction", "decay_from_start"),
)
RunOptions = run_options("RunOptions", *_OF_PYTHON)
# It counts steps, which are options of its own.
PretrainOptions = run_options(
    "PretrainOptions",
    *_OF_PYTHON,
    "period",
    "epochs",
    "mixout",
    "patience",
    "cache_frozen",
    # Hidden words are not labels.
    *("label_smoothing", "class_weights", "tune_thresholds"),
    helps={
        "batch_size": "Texts per step. Default: 32, or a recipe of pretraining's.",
        "dropout": "Dropout of the encoder and the head. Default: 0, or a recipe of pretraining's.",
        "learning_rate": "Peak of the schedule, which rises over the first tenth of the steps and falls to 0. Default: "
        "1e-3, of `full` 1e-4, or a recipe of pretraining's.",
    },
)
