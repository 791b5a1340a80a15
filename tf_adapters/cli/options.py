"""Options that several commands share, as dataclasses; those of a training and of an adapter are the fields of its
settings and of its config."""

import dataclasses
import functools
import os
import pathlib
import sys
from typing import Optional

from tf_adapters.cli.command import option, with_options_of
from tf_adapters.errors import NAME, InputError
from tf_adapters.methods.bottleneck import AdapterConfig
from tf_adapters.methods.lora import LoraConfig
from tf_adapters.ranges import BACKENDS, PRECISIONS, choice
from tf_adapters.recipes import changed_adapter
from tf_adapters.training.settings import TrainingSettings, check_packages, check_together, choices

AdapterHelp = "Adapter directory, or `owner/name` or `owner/name@revision` of one on the HuggingFace hub."
DATA_DIR = "Folder with the task's files, or with prepared TensorFlow Datasets; nothing is downloaded if it holds them."

DataDir = option(Optional[pathlib.Path], DATA_DIR, panel="Data")
MaxLength = option(
    Optional[int], "Tokens kept of a text (of a pair), special tokens included. Without a recipe 128.", panel="Data"
)
Model = option(
    str,
    "Pretrained encoder: `minilm`, a directory, or an id on the HuggingFace hub; with `--door keras-hub` also a preset "
    "of KerasHub.",
)
Overwrite = option(bool, "Replace an output file that is there.", "--overwrite")
Source = option(Optional[str], "Pretrained encoder, if it is not where the directory says.")

_speed = functools.partial(choice, panel="Memory and speed")


@dataclasses.dataclass
class SpeedOptions:
    """How a model computes."""

    precision: str = _speed("float32", "`float32`, `mixed_bfloat16` or `mixed_float16`.", values=PRECISIONS)
    fast: bool = _speed(
        False,
        "Compute the encoder's blocks by fused operations: the same up to rounding in less time, after some seconds of "
        "compiling; with `--precision mixed_bfloat16` about twice as fast on CPUs that have it.",
    )


@dataclasses.dataclass
class ScoringOptions(SpeedOptions):
    """How a trained model computes."""

    model: Optional[str] = choice(None, "Pretrained encoder, if it is not where the directory says.", panel=None)
    batch_size: int = choice(32, "Rows per batch.", panel=None)


@dataclasses.dataclass
class DoorOptions:
    """Whose models compute, and on what."""

    door: Optional[str] = choice(
        None,
        "Whose models compute: `transformers`, on Keras 2 and TensorFlow, or `keras-hub`, on Keras 3. A directory goes "
        "through both. Default: the first of the two that is installed.",
        panel="Run",
    )
    backend: Optional[str] = choice(
        None,
        "With `--door keras-hub`: what Keras 3 runs on, `tensorflow`, `jax` or `torch`. Default: what Keras is "
        "configured for, usually `tensorflow`.",
        values=BACKENDS,
        panel="Run",
    )

    def choose(self, fast=False, writes_graphs=False):
        """The door, before any Keras is imported; the process's Keras 3 runs on `backend` then.

        Raises:
            InputError: there is none such, its packages are not installed, or the options do not go together.
        """
        from tf_adapters.models.door import choose_door

        door, backend = choose_door(self.door, self.backend), self.backend
        chosen = backend or os.environ.get("KERAS_BACKEND", "tensorflow")
        if door == "keras-hub" and chosen != "tensorflow":
            refuse({"fast": fast}, f"is of --backend tensorflow, and not of {chosen}: leave one of them out")
            if writes_graphs:
                raise InputError(
                    f"Exports are graphs of TensorFlow, and Keras is on {chosen}: give --backend tensorflow, which "
                    "reads what any other trained."
                )
        if backend is None:
            return door
        if door != "keras-hub":
            raise InputError(f"--backend {backend} is of --door keras-hub: add that, or leave it out.")
        os.environ["KERAS_BACKEND"] = backend
        loaded = sys.modules.get("keras")
        if loaded is not None and loaded.backend.backend() != backend:
            raise InputError(
                f"--backend {backend}: this process has Keras on {loaded.backend.backend()} already; start another."
            )
        return door


@with_options_of(AdapterConfig, LoraConfig)
class AdapterOptions:
    """What of a recipe's adapter is changed."""

    def given(self):
        """The options that were given, without their values, as of `refuse`."""
        return {field.name: NAME for field in dataclasses.fields(self) if getattr(self, field.name) is not None}

    def refuse_without(self, trainable, **others):
        """Raise InputError for what only adapters have, these options and `others`, where they do not train."""
        if trainable != "adapters":
            why = f"is for adapters, and --trainable {trainable} trains none: leave one of them out"
            refuse(self.given() | others, why)

    def changed(self, recipe):
        """The recipe's adapter with the values that were given."""
        recipe.check_labels()
        known, given = {field.name for field in dataclasses.fields(recipe.adapter)}, self.given()
        names = {field.name: field.metadata["field"] for field in dataclasses.fields(self) if field.name in given}
        why = f"is no setting of the method of --recipe {recipe.name} ({recipe.adapter.method}): leave it out"
        refuse({option: NAME for option, name in names.items() if name not in known}, why)
        return changed_adapter(recipe, {name: getattr(self, option) for option, name in names.items()})


class _Training:
    def given(self):
        """The values by the names of `TrainingSettings`, without those that a recipe is to decide.

        Raises:
            InputError: some exclude each other.
        """
        names = {field.metadata.get("field"): field.name for field in dataclasses.fields(self)}
        values = {name: getattr(self, names[name]) for name in names if name in choices()}
        check_together(values)
        check_packages(values)
        return {name: value for name, value in values.items() if not (choices()[name].of_recipe and value is None)}


_OF_PYTHON = (
    *("steps", "keep_periods", "recipe"),
    # A recipe decides them.
    *("warmup_fraction", "epsilon", "bias_correction", "decay_from_start"),
)


@with_options_of(TrainingSettings, without=_OF_PYTHON)
class RunOptions(_Training):
    """How a task is trained."""

    precision: Optional[str] = _speed(
        None,
        "`float32`, `mixed_bfloat16` or `mixed_float16`. Default: `float32`; for adapters on the embedded task "
        "`mixed_bfloat16`, where the processor has it.",
        values=PRECISIONS,
    )
    fast: Optional[bool] = _speed(
        None,
        "Compute the encoder's blocks by fused operations: the same up to rounding in less time, after some seconds of "
        "compiling; with `--precision mixed_bfloat16` about twice as fast on CPUs that have it. Default: for adapters "
        "on one CPU, for 100 steps or more.",
    )


@with_options_of(
    TrainingSettings,
    SpeedOptions,
    # Steps are options of the command's own, and hidden words are not labels.
    without=(
        *_OF_PYTHON,
        *("period", "epochs", "mixout", "patience", "cache_frozen"),
        *("label_smoothing", "class_weights", "tune_thresholds"),
    ),
    helps={
        "batch_size": "Texts per step. Default: 32, or a recipe of pretraining's.",
        "dropout": "Dropout of the encoder and the head. Default: 0, or a recipe of pretraining's.",
        "learning_rate": "Peak of the schedule, which rises over the first tenth of the steps and falls to 0. Default: "
        "1e-3, of `full` 1e-4, or a recipe of pretraining's.",
    },
)
class PretrainOptions(_Training):
    """How hidden words are learned."""


def refuse(values, why):
    """Raise InputError for the first of some options that was given: `values` by the names of parameters, of which None
    and False are none, and `NAME` is one that is not shown."""
    for name, value in values.items():
        if value is not None and value is not False:
            raise InputError(f"{{{name}}} {why}.", **{name: value})


def listed(registry):
    """The names in a registry, all but the default, for a help text."""
    return ", ".join(f"`{name}`" for name in registry if name != "default")
