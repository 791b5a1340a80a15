"""`tf-adapters train`."""

import dataclasses
import functools
import math
import pathlib
import time
from typing import Annotated, List, Optional

import typer

from tf_adapters.cli import options
from tf_adapters.cli.data import DataOptions
from tf_adapters.cli.output import check_writable
from tf_adapters.cli.terminal import terminal
from tf_adapters.errors import InputError


def _adapter(*names, **settings):
    return typer.Option(*names, rich_help_panel="Adapter", **settings)


def _run(*names, **settings):
    return typer.Option(*names, rich_help_panel="Run", **settings)


def train(
    model: Annotated[
        str, typer.Option(help="Pretrained encoder: `minilm`, a directory, or an id on the HuggingFace hub.")
    ] = "minilm",
    output: Annotated[
        Optional[pathlib.Path],
        typer.Option(help="Adapter directory to write. Default for the embedded task: `adapters/rotten-tomatoes`."),
    ] = None,
    task: options.TrainedTask = None,
    data_dir: options.DataDir = None,
    train_file: options.TrainFile = None,
    validation: options.ValidationFile = None,
    test: options.TestFile = None,
    text_column: options.TextColumn = None,
    text_pair_column: options.TextPairColumn = None,
    label_column: options.LabelColumn = None,
    label_separator: options.LabelSeparator = "|",
    format: options.Format = None,
    kind: options.Kind = None,
    metric: options.TrainedMetric = None,
    max_train_rows: options.MaxTrainRows = None,
    low_resource: options.LowResource = None,
    skip_bad_rows: options.SkipBadRows = False,
    max_length: options.MaxLength = None,
    recipe: Annotated[
        str,
        _adapter(
            help="`default`, or a paper's complete setting: `houlsby-2019`, `houlsby-code-2019`, `report-per-layer`, "
            "`report-unshared`, `report-3-shared`, `he-2021`, `han-2021`, `pfeiffer-2021`, `hu-2022` (LoRA), `liu-2022` ((IA)^3); and what papers "
            "compare with: `houlsby-2019-full`, `houlsby-2019-layer-norm`, `he-2021-full`, `han-2021-full`. Every option below without "
            "a default overrides a part of it.",
        ),
    ] = "default",
    trainable: Annotated[
        Optional[str],
        _adapter(
            help="What trains: `adapters`, or without adapters `full`, `top-N` (the N uppermost blocks), "
            "`layer-norm`, `bias` (BitFit) or `head`. Default: the recipe's."
        ),
    ] = None,
    adapter_size: Annotated[
        Optional[int], _adapter(help="Units of the bottleneck; 8 to 256 are usual. Without a recipe 64.")
    ] = None,
    sharing: Annotated[
        Optional[str],
        _adapter(help="`none`: two adapters per block; `layer`: one; a number n: one for n consecutive blocks."),
    ] = None,
    placement: Annotated[Optional[str], _adapter(help="After `attention`, after the `ffn`, or `both`.")] = None,
    blocks: Annotated[
        Optional[str], _adapter(help="Blocks with adapters, from 0 at the bottom: `5-11` or `0,2,4`. Default: all.")
    ] = None,
    activation: Annotated[Optional[str], _adapter(help="gelu, gelu_tanh, swish, relu, tanh, ...")] = None,
    init_stddev: Annotated[
        Optional[float], _adapter(help="Standard deviation of the adapters' initial weights. Without a recipe 0.03.")
    ] = None,
    adapter_dropout: Annotated[Optional[float], _adapter(help="Dropout inside the adapters.")] = None,
    insertion: Annotated[
        Optional[str],
        _adapter(help="`sequential`: behind the sub-layer; `after-norm`: Pfeiffer's, which uses the LayerNorm twice; `parallel` to it."),
    ] = None,
    scaling: Annotated[Optional[str], _adapter(help="Factor on the adapter's output, or `learned`. He et al. (2022) have 4 with `parallel`.")] = None,
    hidden_layers: Annotated[Optional[int], _adapter(help="Layers between the adapter's two projections.")] = None,
    inner_norm: Annotated[Optional[str], _adapter(help="A LayerNorm inside the adapter: `none`, `before` or `after` its projections.")] = None,
    interaction: Annotated[Optional[str], _adapter(help="`add` the adapter's output to the sub-layer's, or `multiply` by it.")] = None,
    random_drop: Annotated[
        Optional[int], _adapter(help="AdapterDrop: in each step leave out the adapters of the lowest 0 to this many blocks.")
    ] = None,
    rank: Annotated[Optional[int], _adapter(help="Rank of LoRA's updates, with `--recipe hu-2022`.")] = None,
    alpha: Annotated[Optional[float], _adapter(help="LoRA's scale times its rank.")] = None,
    targets: Annotated[
        Optional[str],
        _adapter(help="What LoRA updates: of `query,key,value,attention_output,intermediate,output`."),
    ] = None,
    fuse: Annotated[
        Optional[List[pathlib.Path]],
        _adapter(
            help="AdapterFusion: learn to combine the adapters of this directory and others, which stay as they are; give it twice or "
            "more. They must have been trained without LayerNorms (`--recipe pfeiffer-2021`). The paper's rate is 5e-5, for 10 epochs."
        ),
    ] = None,
    train_layer_norm: Annotated[
        Optional[str], _adapter(help="LayerNorms that train with the adapters: `none`, of the `adapted` blocks, `encoder` or `all`.")
    ] = None,
    epochs: Annotated[Optional[int], _run(help="Passes over the training rows. Without a recipe 3.")] = None,
    learning_rate: Annotated[
        Optional[float],
        _run(
            help="Peak of the schedule, which rises over the first tenth of the steps and falls to 0. 1e-4 to 3e-3 "
            "are usual for adapters, 2e-5 to 1e-4 for `full` and `top-N`, which have 5e-5 if none is given. Without a "
            "recipe 1e-3."
        ),
    ] = None,
    batch_size: Annotated[Optional[int], _run(help="Rows per step. Without a recipe 32.")] = None,
    dropout: Annotated[
        Optional[float],
        _run(
            help="Dropout of the encoder and the head, in place of the encoder's own (BERT's is 0.1), which the papers' "
            "recipes leave. Adapters have `--adapter-dropout`. Without a recipe 0."
        ),
    ] = None,
    weight_decay: Annotated[
        float, _run(help="AdamW's decay of the matrices that train, times the learning rate; 0.01 is usual for `full`.")
    ] = 0.0,
    clip_norm: Annotated[
        Optional[float], _run(help="Greatest norm of the gradient; 1 is usual. A rate that makes a run collapse may do with it.")
    ] = None,
    mixout: Annotated[
        float,
        _run(help="Mixout: probability with which an entry of a matrix is the pretrained one in a step. He et al. (2021) have 0.9, with `--dropout 0`."),
    ] = 0.0,
    accumulate: Annotated[int, _run(help="Compute each step's rows in this many parts, to take less memory; the result is the same.")] = 1,
    patience: Annotated[
        Optional[int], _run(help="Stop after this many epochs without a better validation result. Default: all epochs.")
    ] = None,
    seed: Annotated[int, _run(help="Decides every random choice.")] = 0,
    seeds: Annotated[
        int,
        _run(help="Train with this many seeds from `--seed` on, report mean and spread, and keep the best by validation."),
    ] = 1,
    precision: options.Precision = "float32",
    xla: Annotated[bool, _run("--xla", help="Compile the step with XLA, once per padded length.")] = False,
    fast: options.Fast = False,
    cache_frozen: Annotated[
        bool,
        _run(
            "--cache-frozen",
            help="Compute the outputs of the lower blocks that never change once for all epochs, and keep them on disk while "
            "training. For `--blocks 3-5 --train-layer-norm adapted` (AdapterDrop), `--trainable top-N` or `head`, with "
            "`--dropout 0`.",
        ),
    ] = False,
    resume: Annotated[bool, _run("--resume", help="Go on with an interrupted run, with the same options.")] = False,
    overwrite: Annotated[
        bool,
        _run("--overwrite", help="Replace the adapter in the output directory, once the first epoch is done."),
    ] = False,
    checkpoint_seconds: Annotated[
        float, _run("--checkpoint-seconds", help="Seconds between two saved states of the run.")
    ] = 30.0,
    tensorboard: Annotated[
        bool, _run("--tensorboard", help="Write TensorBoard logs to `tensorboard/` in the output directory.")
    ] = False,
):
    """Train a task on a frozen encoder, and save a small adapter directory.

    Without options: sentiment of the embedded Rotten Tomatoes sentences on MiniLM, in a few minutes on two cores.

    Your own data: `tf-adapters train --train train.csv --validation dev.csv --text-column text --label-column label
    --output adapters/mine`

    GLUE on BERT: `tf-adapters train --model bert-base-uncased --task glue/sst2 --output adapters/sst2`

    A run that was interrupted goes on with the same command and `--resume`.
    """
    started = time.monotonic()
    chosen = DataOptions(
        task, data_dir, train_file, validation, test, text_column, text_pair_column, label_column, label_separator, format, kind,
        metric, max_train_rows, low_resource, skip_bad_rows,
    )  # fmt: skip
    chosen.check()
    if output is None:
        output = chosen.usual_output("adapters")
    settings = {
        "trainable": trainable,
        "epochs": epochs,
        "learning_rate": learning_rate,
        "batch_size": batch_size,
        "dropout": dropout,
        "weight_decay": weight_decay,
        "clip_norm": clip_norm,
        "mixout": mixout,
        "accumulate": accumulate,
        "patience": patience,
        "max_length": max_length,
        "seed": seed,
        "precision": precision,
        "xla": xla,
        "fast": fast,
        "cache_frozen": cache_frozen,
        "tensorboard": tensorboard,
        "checkpoint_seconds": checkpoint_seconds,
    }
    adapter_options = {
        "--adapter-size": ("bottleneck_size", adapter_size),
        "--sharing": ("sharing", options.number_or_word(sharing)),
        "--placement": ("placement", placement),
        "--blocks": ("blocks", _parse_blocks(blocks)),
        "--activation": ("activation", activation),
        "--init-stddev": ("init_stddev", init_stddev),
        "--adapter-dropout": ("dropout", adapter_dropout),
        "--insertion": ("insertion", insertion),
        "--scaling": ("scaling", options.float_or_word(scaling)),
        "--hidden-layers": ("hidden_layers", hidden_layers),
        "--inner-norm": ("inner_norm", inner_norm),
        "--interaction": ("interaction", interaction),
        "--random-drop": ("random_drop", random_drop),
        "--rank": ("rank", rank),
        "--alpha": ("alpha", alpha),
        "--targets": ("targets", None if targets is None else tuple(part.strip() for part in targets.split(","))),
        "--train-layer-norm": ("train_layer_norm", train_layer_norm),
    }
    fused = _fused(fuse, adapter_options)
    _check_run_options(settings, seeds)
    if trainable is not None:
        _check_adapters(trainable, settings, adapter_options, fused)
    _check_output(output, resume, overwrite, seeds)
    chosen.peek()

    from tf_adapters.cli.quiet import import_tensorflow

    console = terminal()
    with console.status("Loading TensorFlow ..."):
        import_tensorflow()
    options.use_precision(precision, console)
    from tf_adapters.cli.runs import Runner, run_once, run_seeds
    from tf_adapters.recipes import get_recipe, usual_settings
    from tf_adapters.training.kinds import get_kind

    recipe = get_recipe(recipe)
    settings["trainable"] = trainable = trainable or recipe.trainable
    _check_adapters(trainable, settings, adapter_options, fused)
    adapter = _changed(recipe, adapter_options)
    settings.update({name: value for name, value in usual_settings(recipe, trainable).items() if settings[name] is None})
    data = chosen.read(console)
    if settings["max_length"] is None:
        settings["max_length"] = get_kind(data.kind).max_length or recipe.max_length

    runner = Runner(console, model, recipe, adapter, settings, functools.partial(chosen.sampled, data), fused)
    (run_once if seeds == 1 else run_seeds)(runner, output, seeds=seeds, resume=resume, started=started)


def _changed(recipe, adapter_options):
    """The recipe's adapter with the values of the options that were given."""
    from tf_adapters.recipes import changed_adapter

    fields = {field.name for field in dataclasses.fields(recipe.adapter)}
    changes = {}
    for option, (field, value) in adapter_options.items():
        if value is not None and field not in fields:
            raise InputError(f"{option} is no setting of the method of --recipe {recipe.name} ({recipe.adapter.method}): leave it out.")
        if value is not None:
            changes[field] = value
    return changed_adapter(recipe, changes)


def _fused(directories, adapter_options):
    """The directories of --fuse by their names."""
    if not directories:
        return {}
    for option, (_, value) in adapter_options.items():
        if value is not None:
            raise InputError(f"{option} is of new adapters, and --fuse takes trained ones: leave one of them out.")
    fused = {directory.resolve().name.replace(".", "-"): directory for directory in directories}
    if len(fused) < max(2, len(directories)):
        raise InputError("--fuse needs two directories or more, each with a name of its own: --fuse adapters/mnli --fuse adapters/qqp.")
    return fused


def _check_adapters(trainable, settings, adapter_options, fused):
    """Raise InputError for options of adapters where none train."""
    if trainable == "adapters":
        return
    given = {"--fast": settings["fast"] or None, "--fuse": fused or None} | {option: value for option, (_, value) in adapter_options.items()}
    for option, value in given.items():
        if value is not None:
            raise InputError(f"{option} is for adapters, and --trainable {trainable} trains none: leave one of them out.")


def _check_run_options(settings, seeds):
    for name in ("epochs", "batch_size", "max_length"):
        options.check_positive(f"--{name.replace('_', '-')}", settings[name])
    for name in ("patience", "accumulate"):
        options.check_positive(f"--{name}", settings[name])
    options.check_positive("--seeds", seeds)
    rate = settings["learning_rate"]
    if rate is not None and not 0 < rate < math.inf:
        raise InputError(f"--learning-rate {rate} must be a number above 0, such as 1e-3.")
    if not 0 <= settings["weight_decay"] < math.inf:
        raise InputError(f"--weight-decay {settings['weight_decay']} must be a number of at least 0, such as 0.01.")
    if settings["clip_norm"] is not None and not 0 < settings["clip_norm"] < math.inf:
        raise InputError(f"--clip-norm {settings['clip_norm']} must be a number above 0, such as 1.")
    if not 0 <= settings["mixout"] < 1:
        raise InputError(f"--mixout {settings['mixout']} must be at least 0 and below 1.")
    if settings["dropout"] is not None and not 0 <= settings["dropout"] < 1:
        raise InputError(f"--dropout {settings['dropout']} must be at least 0 and below 1.")
    if not 0 <= settings["seed"] < 2**32:
        raise InputError(f"--seed {settings['seed']} must lie between 0 and {2**32 - 1}.")
    options.check_precision(settings["precision"])


def _parse_blocks(text):
    if text is None:
        return None
    blocks = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        last = last if dash else first
        # Four digits: a typing error must not fill the memory.
        if not all(number.isdecimal() and len(number) <= 4 for number in (first, last)) or int(first) > int(last):
            raise InputError(f"--blocks {text} must look like 5-11 or 0,2,4.")
        blocks += range(int(first), int(last) + 1)
    return tuple(blocks)


def _check_output(output, resume, overwrite, seeds):
    from tf_adapters.saving.layout import SETTINGS_FILE
    from tf_adapters.training.layout import RESUME_FOLDER, SEEDS_FILE

    if output.exists() and not output.is_dir():
        raise InputError(f"--output {output} is a file: give a directory.")
    check_writable(output / SETTINGS_FILE)
    of_one = (output / RESUME_FOLDER).is_dir()
    of_several = (output / SEEDS_FILE).exists() or any(output.glob(f".seed-*/{RESUME_FOLDER}"))
    unfinished = of_one or of_several
    if resume:
        if overwrite:
            raise InputError("--resume and --overwrite exclude each other: give one of them.")
        if not unfinished:
            raise InputError(f"--resume: {output} holds no interrupted run; start one without --resume.")
        if not (of_several if seeds > 1 else of_one):
            held = "several seeds: give the same --seeds" if of_several else "one seed: leave out --seeds"
            raise InputError(f"--resume: {output} holds an interrupted run of {held}.")
    elif output.is_dir() and any(output.iterdir()):
        if not overwrite:
            advice = (
                "go on with it by --resume, or replace it by --overwrite" if unfinished else "replace it by --overwrite"
            )
            raise InputError(f"--output {output} is not empty: {advice}, or give another directory.")
        if not unfinished and not (output / SETTINGS_FILE).exists():
            raise InputError(
                f"--overwrite: {output} holds other files than an adapter; remove them yourself, or give another "
                "directory."
            )
