"""`tf-adapters train`."""

import functools
import os
import pathlib
import time
from typing import Annotated, List, Optional

import typer

from tf_adapters.cli import options
from tf_adapters.cli.adapter import AdapterOptions
from tf_adapters.cli.data import DataOptions
from tf_adapters.cli.grouped import grouped
from tf_adapters.cli.output import check_writable
from tf_adapters.cli.terminal import terminal
from tf_adapters.errors import InputError


def _adapter(*names, **settings):
    return typer.Option(*names, rich_help_panel="Adapter", **settings)


def _run(*names, **settings):
    return typer.Option(*names, rich_help_panel="Run", **settings)


@grouped
def train(
    *,
    model: Annotated[
        str, typer.Option(help="Pretrained encoder: `minilm`, a directory, or an id on the HuggingFace hub.")
    ] = "minilm",
    output: Annotated[
        Optional[pathlib.Path],
        typer.Option(help="Adapter directory to write. Default for the embedded task: `adapters/rotten-tomatoes`."),
    ] = None,
    data: DataOptions,
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
    adapter: AdapterOptions,
    fuse: Annotated[
        Optional[List[pathlib.Path]],
        _adapter(
            help="AdapterFusion: learn to combine the adapters of this directory and others, which stay as they are; give it twice or "
            "more. They must have been trained without LayerNorms (`--recipe pfeiffer-2021`). The paper's rate is 5e-5, for 10 epochs."
        ),
    ] = None,
    from_pretrained_adapter: Annotated[
        Optional[pathlib.Path],
        _adapter(
            help="Go on with the adapter of this directory: one that `pretrain` wrote, its `step-N` among them, or of another task. What it "
            "has and what trains are as there; the head is new."
        ),
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
    freeze_adapters: Annotated[
        Optional[float],
        _run(
            help="SAFE: stop training each adapter that changes the representation at its place by less than this (1 - CKA, from 0 to 1), "
            "so that steps get shorter and smaller. For bottleneck adapters; `train` prints what each freezing found."
        ),
    ] = None,
    freeze_epochs: Annotated[
        Optional[str],
        _run(help="With `--freeze-adapters`: the epochs between which its threshold rises from 0, such as `1-5`. Default: a tenth to half."),
    ] = None,
    accumulate: Annotated[int, _run(help="Compute each step's rows in this many parts, to take less memory; the result is the same.")] = 1,
    gradient_checkpointing: Annotated[
        bool,
        _run(
            "--gradient-checkpointing",
            help="Compute each block once more in the backward pass instead of keeping what its gradient needs: less memory, longer "
            "steps, the same result but for rounding.",
        ),
    ] = False,
    patience: Annotated[
        Optional[int], _run(help="Stop after this many epochs without a better validation result. Default: all epochs.")
    ] = None,
    seed: Annotated[int, _run(help="Decides every random choice.")] = 0,
    seeds: Annotated[
        int,
        _run(help="Train with this many seeds from `--seed` on, report mean and spread, and keep the best by validation."),
    ] = 1,
    strategy: Annotated[
        Optional[str],
        _run(
            help="Train on several devices, each with its rows of a batch, so that `--batch-size` is that of all together: `mirrored` takes "
            "all GPUs of this machine; `tpu` a TPU, with `--xla` (never tried); `multi-worker` several machines, where the same command "
            "runs on each, and only `TF_CONFIG` says which of them it is: "
            "`TF_CONFIG='{\"cluster\": {\"worker\": [\"10.0.0.1:2222\", \"10.0.0.2:2222\"]}, \"task\": {\"type\": \"worker\", \"index\": 0}}' "
            "tf-adapters train --strategy multi-worker ...` on the first, with the index 1 on the second. The first writes the output."
        ),
    ] = None,
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
    data.check()
    if output is None:
        output = data.usual_output("adapters")
    settings = {
        "trainable": trainable,
        "epochs": epochs,
        "learning_rate": learning_rate,
        "batch_size": batch_size,
        "dropout": dropout,
        "weight_decay": weight_decay,
        "clip_norm": clip_norm,
        "mixout": mixout,
        "freeze_adapters": freeze_adapters,
        "freeze_epochs": _parse_epochs(freeze_epochs),
        "accumulate": accumulate,
        "gradient_checkpointing": gradient_checkpointing,
        "patience": patience,
        "max_length": max_length,
        "seed": seed,
        "precision": precision,
        "xla": xla,
        "fast": fast,
        "cache_frozen": cache_frozen,
        "tensorboard": tensorboard,
        "checkpoint_seconds": checkpoint_seconds,
        "strategy": strategy,
    }
    adapter.check()
    fused = _fused(fuse, adapter)
    pretrained = _pretrained(from_pretrained_adapter, trainable, adapter, fused)
    trainable = trainable or (pretrained and pretrained["trainable"])
    _check_run_options(settings, seeds)
    cluster = _check_strategy(settings, seeds, adapter)
    if trainable is not None and not pretrained:
        _check_adapters(trainable, settings, adapter, fused)
    if cluster.chief:
        _check_output(output, resume, overwrite, seeds)
    data.peek()

    from tf_adapters.cli.quiet import import_tensorflow

    console = terminal()
    waiting = f" and waiting for the {cluster.workers - 1} other workers" if cluster.workers > 1 else ""
    with console.status(f"Loading TensorFlow{waiting} ..."):
        strategy = import_tensorflow(functools.partial(_make_strategy, strategy))
    options.use_precision(precision, console)
    from tf_adapters.cli.runs import Runner, run_once, run_seeds
    from tf_adapters.methods import config_from_dict
    from tf_adapters.recipes import get_recipe, usual_settings
    from tf_adapters.training.kinds import get_kind

    recipe = get_recipe(recipe)
    settings["trainable"] = trainable = trainable or recipe.trainable
    _check_adapters(trainable, settings, adapter, fused)
    config = adapter.changed(recipe)
    if pretrained and pretrained["adapter"] is not None:
        config = config_from_dict(pretrained["adapter"])
    settings.update({name: value for name, value in usual_settings(recipe, trainable).items() if settings[name] is None})
    whole = data.read(console)
    if settings["max_length"] is None:
        settings["max_length"] = get_kind(whole.kind).max_length or recipe.max_length

    runner = Runner(
        console, model, recipe, config, settings, functools.partial(data.sampled, whole), fused=fused, pretrained=from_pretrained_adapter,
        strategy=strategy, cluster=cluster,
    )  # fmt: skip
    (run_once if seeds == 1 else run_seeds)(runner, output, seeds=seeds, resume=resume, started=started)


def _fused(directories, adapter):
    """The directories of --fuse by their names."""
    if not directories:
        return {}
    for option in adapter.given():
        raise InputError(f"{option} is of new adapters, and --fuse takes trained ones: leave one of them out.")
    fused = {directory.resolve().name.replace(".", "-"): directory for directory in directories}
    if len(fused) < max(2, len(directories)):
        raise InputError("--fuse needs two directories or more, each with a name of its own: --fuse adapters/mnli --fuse adapters/qqp.")
    return fused


def _pretrained(directory, trainable, adapter, fused):
    """The settings of --from-pretrained-adapter, or None without it."""
    from tf_adapters.saving.settings import read_settings

    if directory is None:
        return None
    for option in [*adapter.given(), *(["--fuse"] if fused else [])]:
        raise InputError(f"{option} is of new adapters, and --from-pretrained-adapter {directory} has its own: leave one of them out.")
    settings = read_settings(directory)
    if trainable not in (None, settings["trainable"]):
        raise InputError(
            f"--trainable {trainable}: {directory} was trained as {settings['trainable']!r}, and goes on so; leave it out, or give that."
        )
    return settings


def _check_adapters(trainable, settings, adapter, fused):
    """Raise InputError for options of adapters where none train."""
    if trainable == "adapters":
        return
    given = {"--fast": settings["fast"] or None, "--fuse": fused or None, "--freeze-adapters": settings["freeze_adapters"]} | adapter.given()
    for option, value in given.items():
        if value is not None:
            raise InputError(f"{option} is for adapters, and --trainable {trainable} trains none: leave one of them out.")


def _check_strategy(settings, seeds, adapter):
    """The `Cluster` of --strategy, one worker without; InputError for what cannot be together with it."""
    from tf_adapters.training.cluster import Cluster, STRATEGIES, read_cluster

    name = settings["strategy"]
    if name is None:
        return Cluster(workers=1, number=0)
    if name not in STRATEGIES:
        raise InputError(f"--strategy {name} is unknown: use one of {', '.join(STRATEGIES)}.")
    alone = {"--cache-frozen": settings["cache_frozen"], "--accumulate": settings["accumulate"] > 1, "--mixout": settings["mixout"]}
    alone |= {"--random-drop": adapter.random_drop, "--freeze-adapters": settings["freeze_adapters"]}
    alone["--xla"] = settings["xla"] and name != "tpu"
    alone["--seeds"] = seeds > 1 and name == "multi-worker"
    for option, given in alone.items():
        if given:
            raise InputError(f"{option} cannot be together with --strategy {name}: leave one of them out.")
    if name == "tpu" and not settings["xla"]:
        raise InputError("--strategy tpu needs --xla: a TPU compiles each shape of a batch, and with it they are few.")
    return read_cluster(os.environ) if name == "multi-worker" else Cluster(workers=1, number=0)


def _make_strategy(name):
    from tf_adapters.training.strategies import make_strategy

    return None if name is None else make_strategy(name)


def _check_run_options(settings, seeds):
    for name in ("epochs", "batch_size", "max_length"):
        options.check_positive(f"--{name.replace('_', '-')}", settings[name])
    for name in ("patience", "accumulate"):
        options.check_positive(f"--{name}", settings[name])
    options.check_positive("--seeds", seeds)
    if not 0 <= settings["mixout"] < 1:
        raise InputError(f"--mixout {settings['mixout']} must be at least 0 and below 1.")
    if settings["freeze_adapters"] is not None and not 0 < settings["freeze_adapters"] <= 1:
        raise InputError(f"--freeze-adapters {settings['freeze_adapters']} must be above 0 and at most 1, such as 0.01.")
    if settings["freeze_epochs"] is not None and settings["freeze_adapters"] is None:
        raise InputError("--freeze-epochs says when --freeze-adapters freezes: give both, or neither.")
    if settings["mixout"] and settings["gradient_checkpointing"]:
        raise InputError("--mixout and --gradient-checkpointing exclude each other: leave one of them out.")
    options.check_training(settings)
    if not 0 <= settings["seed"] < 2**32:
        raise InputError(f"--seed {settings['seed']} must lie between 0 and {2**32 - 1}.")
    options.check_precision(settings["precision"])


def _parse_epochs(text):
    if text is None:
        return None
    first, _, last = text.partition("-")
    if not (first.isdecimal() and last.isdecimal() and int(first) < int(last)):
        raise InputError(f"--freeze-epochs {text} must be two numbers of epochs, the first below the last, such as 1-5.")
    return int(first), int(last)


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
