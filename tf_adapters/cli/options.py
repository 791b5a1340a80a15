"""Options that several commands share."""

import importlib.util
import os
import pathlib
import sys
from typing import Annotated, Optional

import typer

from tf_adapters.errors import InputError
from tf_adapters.ranges import RANGES, check_seeds, checked
from tf_adapters.tasks.lines import DELIMITERS
from tf_adapters.tasks.readers import READERS


def _files_of_kinds():
    """What the files of each kind of task are, in words."""
    kinds = {}
    for kind, reader in READERS.items():
        kinds.setdefault(reader.files, []).append(f"`{kind}`")
    return "; ".join(f"{', '.join(names)} ({files})" for files, names in kinds.items())


AdapterHelp = "Adapter directory, or `owner/name` or `owner/name@revision` of one on the HuggingFace hub."
BatchSize = Annotated[int, typer.Option(help="Rows per batch.")]
DataDir = Annotated[
    Optional[pathlib.Path],
    typer.Option(
        help="Folder with the task's files, or with prepared TensorFlow Datasets; nothing is downloaded if it holds "
        "them.",
        rich_help_panel="Data",
    ),
]
Delimiter = Annotated[
    Optional[str],
    typer.Option(
        help=f"Between the columns of CSV, where it is neither the comma nor the semicolon of the first line: a "
        f"character, or {', '.join(f'`{name}`' for name in DELIMITERS)}.",
        rich_help_panel="Data",
    ),
]
Encoding = Annotated[
    Optional[str],
    typer.Option(
        help="Encoding of your files, such as `cp1252` or `latin-1`. Default: UTF-8, and UTF-16 that begins with its "
        "mark.",
        rich_help_panel="Data",
    ),
]
Header = Annotated[
    Optional[str],
    typer.Option(
        help="`none` where the first line of CSV or TSV is a row: columns are then named by number from 1. Default: "
        "`first`, it has the columns' names.",
        metavar="first|none",
        rich_help_panel="Data",
    ),
]
Format = Annotated[
    Optional[str],
    typer.Option(
        help="`csv`, `tsv`, `jsonl` or `txt`, for words `conllu`, `columns` or `txt`, for questions `squad`, where the "
        "name of your file does not say which.",
        rich_help_panel="Data",
    ),
]
LabelColumn = Annotated[
    Optional[str],
    typer.Option(
        help="Column of the label. Default for files: `label`; of words CoNLL-U's UPOS or the last column.",
        rich_help_panel="Data",
    ),
]
Kind = Annotated[
    Optional[str],
    typer.Option(
        help=f"What your labels are, and what your files hold: {_files_of_kinds()}. Default: `classification`.",
        rich_help_panel="Data",
    ),
]
LabelSeparator = Annotated[str, typer.Option(help="Between the labels of a multi-label cell.", rich_help_panel="Data")]
LowResource = Annotated[
    Optional[int],
    typer.Option(
        help="The low-resource protocol of He et al. (2021): train on this many rows (1000 or 5000), validate on 1,000 "
        "of the others, test on the original validation rows; drawn by the seed.",
        rich_help_panel="Data",
    ),
]
MaxLength = Annotated[
    Optional[int],
    typer.Option(
        help="Tokens kept of a text (of a pair), special tokens included. Without a recipe 128.", rich_help_panel="Data"
    ),
]
MaxTrainRows = Annotated[
    Optional[int], typer.Option(help="Train on a sample of this many rows, drawn by the seed.", rich_help_panel="Data")
]
PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")
Fast = Annotated[
    bool,
    typer.Option(
        "--fast",
        help="Compute the encoder's blocks by fused operations: the same up to rounding in less time, after some "
        "seconds of compiling; with `--precision mixed_bfloat16` about twice as fast on CPUs that have it.",
        rich_help_panel="Memory and speed",
    ),
]
Precision = Annotated[
    str, typer.Option(help="`float32`, `mixed_bfloat16` or `mixed_float16`.", rich_help_panel="Memory and speed")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an output file that is there.")]
SkipBadRows = Annotated[
    bool,
    typer.Option(
        "--skip-bad-rows",
        help="Leave out rows of your files that cannot be used (fields, quotes, JSON, labels), and count them.",
        rich_help_panel="Data",
    ),
]
Door = Annotated[
    Optional[str],
    typer.Option(
        help="Whose models compute: `transformers`, on Keras 2 and TensorFlow, or `keras-hub`, on Keras 3. A directory "
        "goes through both. Default: the first of the two that is installed.",
        rich_help_panel="Run",
    ),
]
Backend = Annotated[
    Optional[str],
    typer.Option(
        help="With `--door keras-hub`: what Keras 3 runs on, `tensorflow`, `jax` or `torch`. Default: what Keras is "
        "configured for, usually `tensorflow`.",
        rich_help_panel="Run",
    ),
]
Source = Annotated[Optional[str], typer.Option(help="Pretrained encoder, if it is not where the directory says.")]
TestFile = Annotated[
    Optional[str],
    typer.Option(
        help="Your test rows, scored once at the end: a file, or a share of the training rows, such as `0.1`.",
        metavar="FILE|SHARE",
        rich_help_panel="Data",
    ),
]
TextColumn = Annotated[
    Optional[str],
    typer.Option(
        help="Column of the text. Default for files: `text`; of words CoNLL-U's FORM or the first column, of questions "
        "`question`.",
        rich_help_panel="Data",
    ),
]
TextPairColumn = Annotated[
    Optional[str],
    typer.Option(
        help="Column of a second text, for pairs of sentences; of questions `context`.", rich_help_panel="Data"
    ),
]

TrainFile = Annotated[
    Optional[pathlib.Path],
    typer.Option(
        "--train", help="Your training rows, in place of a task: .csv, .tsv or .jsonl.", rich_help_panel="Data"
    ),
]
TrainedMetric = Annotated[
    Optional[str],
    typer.Option(
        "--metric",
        help="What chooses the best epoch, in place of the task's own: accuracy, f1, macro-f1, matthews, spearman, ...",
        rich_help_panel="Data",
    ),
]
ValidationSplit = Annotated[
    Optional[str],
    typer.Option(
        "--validation-split",
        help="Split of `--task` whose rows choose the best epoch, such as `validation_mismatched` of `glue/mnli`.",
        rich_help_panel="Data",
    ),
]
TrainedTask = Annotated[
    Optional[str],
    typer.Option(
        help="Named task: `rotten-tomatoes` (the default), `glue/sst2`, any TensorFlow Datasets name.",
        rich_help_panel="Data",
    ),
]
ValidationFile = Annotated[
    Optional[str],
    typer.Option(
        help="Your validation rows, by which the best epoch is chosen: a file, or a share of the training rows, such "
        "as `0.1`. Without it a tenth, and without `--test` too another tenth for that: the same rows in every "
        "run, with each label's share.",
        metavar="FILE|SHARE",
        rich_help_panel="Data",
    ),
]

# Parameters of commands that the Python functions, and so `RANGES`, call otherwise.
SETTINGS = {
    "adapter_dropout": "dropout", "adapter_size": "bottleneck_size", "low_resource": "count", "mask_rate": "rate",
    "max_train_rows": "count", "validate_every": "period",
}  # fmt: skip


def listed(registry):
    """The names in a registry, all but the default, for a help text."""
    return ", ".join(f"`{name}`" for name in registry if name != "default")


def check_numbers(arguments):
    """Raise InputError for a number that a command's parameter of this name cannot have; needs no TensorFlow."""
    for name, value in arguments.items():
        setting = SETTINGS.get(name, name)
        if value is not None and setting in RANGES:
            checked(setting, value, shown=f"--{name.replace('_', '-')} {value}")
    if {"seed", "seeds"} <= arguments.keys():
        check_seeds(arguments["seed"], arguments["seeds"])


def check_model(source):
    """Raise InputError if it can be known without TensorFlow that there is no such encoder here."""
    from tf_adapters.models.loading import find_here

    find_here(source)


def dialect_given(**values):
    """Those of `--encoding`, `--header` and `--delimiter` that were given, as keywords of Python's functions."""
    return {name: value for name, value in values.items() if value is not None}


def check_precision(precision):
    """Raise InputError unless `--precision` names one of `PRECISIONS`."""
    if precision not in PRECISIONS:
        raise InputError(f"--precision {precision} is unknown: use one of {', '.join(PRECISIONS)}.")


_BACKENDS = ("tensorflow", "jax", "torch")


def check_door(door, backend, fast=False):
    """The door of `--door`, before any Keras is imported; the process's Keras 3 runs on `--backend` then.

    Raises:
        InputError: there is none such, its packages are not installed, or the options do not go together.
    """
    from tf_adapters.models.loading import choose_door

    door = choose_door(door)
    chosen = backend or os.environ.get("KERAS_BACKEND", "tensorflow")
    if fast and door == "keras-hub" and chosen != "tensorflow":
        raise InputError(f"--fast is of --backend tensorflow, and not of {chosen}: leave one of them out.")
    if backend is not None:
        if door != "keras-hub":
            raise InputError(f"--backend {backend} is of --door keras-hub: add that, or leave it out.")
        if backend not in _BACKENDS:
            raise InputError(f"--backend {backend} is unknown: use one of {', '.join(_BACKENDS)}.")
        if importlib.util.find_spec(backend) is None:
            raise InputError(f"--backend {backend} is not installed: run `pip install {backend}`.")
        os.environ["KERAS_BACKEND"] = backend
        loaded = sys.modules.get("keras")
        if loaded is not None and loaded.backend.backend() != backend:
            raise InputError(
                f"--backend {backend}: this process has Keras on {loaded.backend.backend()} already; start another."
            )
    return door


def use_precision(precision, console, door="transformers"):
    """Build the models that follow in this precision, and say so if the processor makes it costly."""
    from tf_adapters.cli.processor import precision_note
    from tf_adapters.models.door import door_called

    note = precision_note(precision)
    if note:
        console.print(note)
    door_called(door).ops.keras.mixed_precision.set_global_policy(precision)


def number_or_word(value):
    """An option that is an integer or a name."""
    try:
        return None if value is None else int(value)
    except ValueError:
        return value


def float_or_word(value):
    """An option that is a number or a name."""
    try:
        return None if value is None else float(value)
    except ValueError:
        return value
