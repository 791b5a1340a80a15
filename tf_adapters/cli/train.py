"""`tf-adapters train`."""

import pathlib
import shutil
import time
from typing import Optional

import typer

from tf_adapters.errors import InputError

_DATA, _ADAPTER, _RUN = "Data", "Adapter", "Run"


def train(
    model: str = typer.Option("minilm", help="Pretrained encoder: `minilm`, a directory, or an id on the hub."),
    task: Optional[str] = typer.Option(
        None, help="Named task: `rotten-tomatoes` (the default), `glue/sst2`, any TensorFlow Datasets name.",
        rich_help_panel=_DATA,
    ),
    data_dir: Optional[pathlib.Path] = typer.Option(
        None, help="Folder with prepared TensorFlow Datasets; nothing is downloaded if it holds the task.",
        rich_help_panel=_DATA,
    ),
    train_file: Optional[pathlib.Path] = typer.Option(
        None, "--train", help="Your training rows: .csv, .tsv or .jsonl.", rich_help_panel=_DATA
    ),
    validation: Optional[pathlib.Path] = typer.Option(
        None, help="Your validation rows; the best epoch is chosen by them.", rich_help_panel=_DATA
    ),
    test: Optional[pathlib.Path] = typer.Option(
        None, help="Your test rows, scored once at the end.", rich_help_panel=_DATA
    ),
    text_column: Optional[str] = typer.Option(
        None, help="Column of the text. Default for files: `text`.", rich_help_panel=_DATA
    ),
    text_pair_column: Optional[str] = typer.Option(None, help="Column of a second text.", rich_help_panel=_DATA),
    label_column: Optional[str] = typer.Option(
        None, help="Column of the label. Default for files: `label`.", rich_help_panel=_DATA
    ),
    kind: str = typer.Option(
        "classification", help="For your files: `classification`, `regression` or `multi-label`.", rich_help_panel=_DATA
    ),
    label_separator: str = typer.Option("|", help="Between the labels of a multi-label cell.", rich_help_panel=_DATA),
    metric: Optional[str] = typer.Option(
        None, help="What chooses the best epoch of your files: accuracy, f1, macro-f1, matthews, ...",
        rich_help_panel=_DATA,
    ),
    max_train_rows: Optional[int] = typer.Option(
        None, help="Train on a sample of this many rows, drawn by the seed.", rich_help_panel=_DATA
    ),
    max_length: Optional[int] = typer.Option(
        None, help="Tokens kept of a text, special tokens included. Default: the recipe's.", rich_help_panel=_DATA
    ),
    output: Optional[pathlib.Path] = typer.Option(
        None, help="Adapter directory to write. Default for the embedded task: `adapters/rotten-tomatoes`."
    ),
    recipe: str = typer.Option(
        "default",
        help="`default`, or a paper's complete setting: `houlsby-2019`, `houlsby-code-2019`, `report-per-layer`, "
        "`report-unshared`, `report-3-shared`, `he-2021`, `han-2021`. The options below override it.",
        rich_help_panel=_ADAPTER,
    ),
    trainable: str = typer.Option(
        "adapters", help="What trains: `adapters`, `full`, `top-N`, `layer-norm` or `head`.", rich_help_panel=_ADAPTER
    ),
    adapter_size: Optional[int] = typer.Option(None, help="Units of the bottleneck.", rich_help_panel=_ADAPTER),
    sharing: Optional[str] = typer.Option(
        None, help="`none`: two adapters per block; `layer`: one; a number n: one for n consecutive blocks.",
        rich_help_panel=_ADAPTER,
    ),
    placement: Optional[str] = typer.Option(
        None, help="After `attention`, after the `ffn`, or `both`.", rich_help_panel=_ADAPTER
    ),
    blocks: Optional[str] = typer.Option(
        None, help="Blocks with adapters, from 0 at the bottom: `5-11` or `0,2,4`.", rich_help_panel=_ADAPTER
    ),
    activation: Optional[str] = typer.Option(None, help="gelu, gelu_tanh, swish, relu, tanh, ...", rich_help_panel=_ADAPTER),
    init_stddev: Optional[float] = typer.Option(
        None, help="Standard deviation of the adapters' initial weights.", rich_help_panel=_ADAPTER
    ),
    adapter_dropout: Optional[float] = typer.Option(None, help="Dropout inside the adapters.", rich_help_panel=_ADAPTER),
    train_layer_norm: Optional[str] = typer.Option(
        None, help="LayerNorms that train with the adapters: `none`, `encoder` or `all`.", rich_help_panel=_ADAPTER
    ),
    epochs: Optional[int] = typer.Option(None, help="Passes over the training rows.", rich_help_panel=_RUN),
    learning_rate: Optional[float] = typer.Option(
        None, help="Peak of the schedule. For `full` and `top-N`, 2e-5 to 1e-4 are usual.", rich_help_panel=_RUN
    ),
    batch_size: Optional[int] = typer.Option(None, help="Rows per step.", rich_help_panel=_RUN),
    seed: int = typer.Option(0, help="Decides every random choice.", rich_help_panel=_RUN),
    precision: str = typer.Option(
        "float32", help="`float32`, `mixed_bfloat16` or `mixed_float16`.", rich_help_panel=_RUN
    ),
    xla: bool = typer.Option(False, "--xla", help="Compile the step with XLA, once per padded length.", rich_help_panel=_RUN),
    resume: bool = typer.Option(False, "--resume", help="Go on with an interrupted run, with the same options.", rich_help_panel=_RUN),
    overwrite: bool = typer.Option(False, "--overwrite", help="Replace what the output directory holds.", rich_help_panel=_RUN),
    tensorboard: bool = typer.Option(False, "--tensorboard", help="Write TensorBoard logs beside log.csv.", rich_help_panel=_RUN),
):
    """Train a task on a frozen encoder, and save a small adapter directory.

    Without options: sentiment of the embedded Rotten Tomatoes sentences on MiniLM, in a few minutes on two cores.

    Your own data: `tf-adapters train --train train.csv --validation dev.csv --text-column text --label-column label
    --output adapters/mine`

    GLUE on BERT: `tf-adapters train --model bert-base-uncased --task glue/sst2 --output adapters/sst2`

    A run that was interrupted goes on with the same command and `--resume`.
    """
    started = time.monotonic()
    files = train_file is not None
    if not files and task is None:
        stray = {"--validation": validation, "--test": test, "--text-column": text_column, "--label-column": label_column}
        for option, value in stray.items():
            if value is not None:
                raise InputError(f"{option} {value}: add --train FILE, or --task NAME.")
        task = "rotten-tomatoes"
    if files and task is not None:
        raise InputError(f"--task {task} and --train {train_file} exclude each other: give one of them.")
    if files and validation is None:
        raise InputError("--train needs --validation FILE: the best epoch is chosen by rows that are not trained on.")
    if output is None:
        if task != "rotten-tomatoes":
            raise InputError("--output DIR is needed: where to write the adapter directory.")
        output = pathlib.Path("adapters/rotten-tomatoes")
    options = dict(locals())
    _check_precision(precision)
    _check_output(output, resume, overwrite)

    from rich.console import Console

    from tf_adapters.cli.quiet import import_tensorflow

    console = Console(highlight=False, soft_wrap=True)
    with console.status("Loading TensorFlow ..."):
        import_tensorflow()
    from tf_adapters import load_task, task_from_files
    from tf_adapters._keras import keras
    from tf_adapters.cli.report import show_report
    from tf_adapters.tasks.rows import sample_rows

    settings, adapter = _settings(recipe, options)
    keras.utils.set_random_seed(seed)
    if files:
        data = task_from_files(
            train=train_file,
            validation=validation,
            test=test,
            text_column=text_column or "text",
            text_pair_column=text_pair_column,
            label_column=label_column or "label",
            kind=kind,
            metric=metric,
            label_separator=label_separator,
        )
    else:
        if kind != "classification" or metric is not None or test is not None or validation is not None:
            raise InputError(f"--kind, --metric, --validation and --test belong to --train FILE; task {task!r} has its own.")
        data = load_task(
            task,
            data_dir=data_dir,
            text_column=text_column,
            text_pair_column=text_pair_column,
            label_column=label_column,
        )
    if max_train_rows is not None:
        import dataclasses

        data = dataclasses.replace(data, train=sample_rows(data.train, count=max_train_rows, seed=seed))
    _train(console, data, model, output, settings, adapter, started, show_report, resume)


def _train(console, data, source, output, settings, adapter, started, show_report, resume):
    from tf_adapters import (
        WordPiece,
        add_adapters,
        fit,
        load_backbone,
        parameter_counts,
        set_trainable,
    )
    from tf_adapters._keras import keras
    from tf_adapters.cli.progress import TrainingProgress
    from tf_adapters.models.state import state_of

    keras.mixed_precision.set_global_policy(settings["precision"])
    backbone = load_backbone(
        source,
        num_labels=max(1, len(data.labels)),
        labels=list(data.labels) or None,
        head_layers=settings["head_layers"],
    )
    positions = backbone.config.max_position_embeddings
    if settings["max_length"] > positions:
        raise InputError(f"--max-length {settings['max_length']} is beyond the model's {positions} positions.")
    wordpiece = WordPiece.from_directory(state_of(backbone).directory, max_length=settings["max_length"])
    if settings["trainable"] == "adapters":
        add_adapters(backbone, adapter, seed=settings["seed"])
    set_trainable(backbone, settings["trainable"])
    counts = parameter_counts(backbone)
    console.print(
        f"Task [bold]{data.name}[/]: {len(data.train):,} training, {len(data.validation):,} validation"
        + (f", {len(data.test):,} test rows" if data.test is not None else " rows")
        + (f", labels {', '.join(data.labels)}" if data.labels else ", regression")
    )
    console.print(f"Training {counts.trainable:,} of {counts.total:,} parameters ({counts.share:.2%}) on {source}")
    result = fit(
        backbone,
        data,
        wordpiece,
        output=output,
        epochs=settings["epochs"],
        learning_rate=settings["learning_rate"],
        batch_size=settings["batch_size"],
        warmup_fraction=settings["warmup_fraction"],
        seed=settings["seed"],
        jit_compile=settings["xla"],
        resume=resume,
        recipe=settings["recipe"],
        tensorboard=settings["tensorboard"],
        reporter=TrainingProgress(console, settings["epochs"]),
    )
    if result.interrupted:
        console.print(
            f"Stopped after step {result.steps}; the state is saved. Go on with the same command and --resume."
        )
        raise typer.Exit(130)
    show_report(console, backbone, data, wordpiece, output, result, counts, time.monotonic() - started, settings)


def _settings(recipe_name, options):
    """The recipe with the options that override it: a dict for the run, and the AdapterConfig."""
    import dataclasses

    from tf_adapters.recipes import get_recipe

    recipe = get_recipe(recipe_name)
    changes = {
        "bottleneck_size": options["adapter_size"],
        "sharing": _number_or_word(options["sharing"]),
        "placement": options["placement"],
        "blocks": _parse_blocks(options["blocks"]),
        "activation": options["activation"],
        "init_stddev": options["init_stddev"],
        "dropout": options["adapter_dropout"],
        "train_layer_norm": options["train_layer_norm"],
    }
    adapter = dataclasses.replace(recipe.adapter, **{name: value for name, value in changes.items() if value is not None})
    settings = {name: options[name] for name in ("trainable", "seed", "precision", "xla", "tensorboard")}
    for name in ("epochs", "learning_rate", "batch_size", "max_length"):
        settings[name] = getattr(recipe, name) if options[name] is None else options[name]
        if settings[name] <= 0:
            raise InputError(f"--{name.replace('_', '-')} {settings[name]} must be above 0.")
    settings["warmup_fraction"] = recipe.warmup_fraction
    settings["head_layers"] = recipe.head_layers
    settings["recipe"] = recipe.name
    return settings, adapter


def _number_or_word(value):
    return int(value) if value is not None and value.lstrip("-").isdigit() else value


def _parse_blocks(text):
    if text is None:
        return None
    blocks = []
    try:
        for part in text.split(","):
            first, dash, last = part.partition("-")
            blocks += range(int(first), int(last) + 1) if dash else [int(first)]
    except ValueError:
        raise InputError(f"--blocks {text} must look like 5-11 or 0,2,4.") from None
    return tuple(blocks)


def _check_precision(precision):
    known = ("float32", "mixed_bfloat16", "mixed_float16")
    if precision not in known:
        raise InputError(f"--precision {precision} is unknown: use one of {', '.join(known)}.")


def _check_output(output, resume, overwrite):
    from tf_adapters.training.layout import RESUME_FOLDER

    if output.exists() and not output.is_dir():
        raise InputError(f"--output {output} is a file: give a directory.")
    unfinished = (output / RESUME_FOLDER).is_dir()
    if resume:
        if overwrite:
            raise InputError("--resume and --overwrite exclude each other.")
        if not unfinished:
            raise InputError(f"--resume: {output} holds no interrupted run.")
    elif overwrite and output.exists():
        if any(output.iterdir()) and not unfinished and not (output / "tf_adapters.json").exists():
            raise InputError(f"--overwrite: {output} holds other files than an adapter; remove them yourself.")
        shutil.rmtree(output)
    elif output.is_dir() and any(output.iterdir()):
        advice = "go on with it by --resume, or replace it by --overwrite" if unfinished else "replace it by --overwrite"
        raise InputError(f"--output {output} is not empty: {advice}, or give another directory.")
