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
from tf_adapters.cli.output import check_folder
from tf_adapters.cli.run_options import RunOptions
from tf_adapters.cli.terminal import terminal
from tf_adapters.cli.trained import local, name_of
from tf_adapters.errors import InputError
from tf_adapters.recipes import RECIPES, check_recipe
from tf_adapters.saving.layout import SETTINGS_FILE
from tf_adapters.training.disk import RESUME_FOLDER, SEEDS_FILE
from tf_adapters.training.settings import check_door


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
            help=f"`default`, or a paper's complete setting: {options.listed(RECIPES)}. Those that end in `-full` or "
            "`-layer-norm` are what the papers compare with. Every option below without a default overrides a part of "
            "it. The default one trains LayerNorms too, which AdapterHub's files cannot hold: for `convert` to them "
            "take `pfeiffer-2021`, or `--train-layer-norm none`."
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
            help="AdapterFusion: learn to combine the adapters of this directory (or `owner/name` on the HuggingFace "
            "hub) and others, which stay as they are; give it twice or more. They must have been trained without "
            "LayerNorms (`--recipe pfeiffer-2021`). The paper's rate is 5e-5, for 10 epochs."
        ),
    ] = None,
    from_pretrained_adapter: Annotated[
        Optional[pathlib.Path],
        _adapter(
            help="Go on with the adapter of this directory (or `owner/name` on the HuggingFace hub): one that "
            "`pretrain` wrote, its `step-N` among them, or of another task. What it has and what trains are as there; "
            "the head is new."
        ),
    ] = None,
    run: RunOptions,
    seeds: Annotated[
        int,
        _run(
            help="Train with this many seeds from `--seed` on, report mean and spread, and keep the best by validation."
        ),
    ] = 1,
    strategy: Annotated[
        Optional[str],
        _run(
            help="Train on several devices, each with its rows of a batch, so that `--batch-size` is that of all "
            "together: `mirrored` takes all GPUs of this machine; "
            "`multi-worker` several machines with one `--output`, where the same command runs on each, and only "
            "`TF_CONFIG` says which of them it is: "
            '`TF_CONFIG=\'{"cluster": {"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]}, "task": {"type": "worker", '
            '"index": 0}}\' '
            "tf-adapters train --strategy multi-worker ...` on the first, with the index 1 on the second. The first "
            "writes the output."
        ),
    ] = None,
    door: options.Door = None,
    backend: options.Backend = None,
    resume: Annotated[bool, _run("--resume", help="Go on with an interrupted run, with the same options.")] = False,
    overwrite: Annotated[
        bool, _run("--overwrite", help="Replace the adapter in the output directory, once the first epoch is done.")
    ] = False,
):
    """Train a task on a frozen encoder, and save a small adapter directory.

    Without options: sentiment of the embedded Rotten Tomatoes sentences on MiniLM, in a few minutes on two cores.

    Your own data: `tf-adapters train --train train.csv --validation dev.csv --text-column text --label-column label
    --output adapters/mine`

    On Keras 3 and JAX: `tf-adapters train --door keras-hub --backend jax`

    GLUE on BERT: `tf-adapters train --model bert-base-uncased --task glue/sst2 --output adapters/sst2`

    A run that was interrupted goes on with the same command and `--resume`.
    """
    started = time.monotonic()
    data.check()
    if output is None:
        output = data.usual_output("adapters")
    given = run.given()
    door = options.check_door(door, backend, run.fast)
    check_door(given, door)
    if strategy is not None and door != "transformers":
        raise InputError(f"--strategy {strategy} is of --door transformers: leave one of them out.")
    adapter.check()
    fused = _fused(fuse, adapter)
    if from_pretrained_adapter is not None:
        from_pretrained_adapter = local(from_pretrained_adapter)
    pretrained = _pretrained(from_pretrained_adapter, trainable, adapter, fused)
    if pretrained and output.resolve() == from_pretrained_adapter.resolve():
        raise InputError(
            f"--output {output} is the directory of --from-pretrained-adapter: give another, so that both are kept."
        )
    trainable = trainable or (pretrained and pretrained["trainable"])
    cluster = _check_strategy(strategy, given, seeds, adapter)
    if trainable is not None and not pretrained:
        _check_adapters(trainable, run, adapter, fused)
    if cluster.chief:
        _check_output(output, resume, overwrite, seeds)
    options.check_model(model)
    check_recipe(recipe)
    data.peek()

    from tf_adapters.cli.quiet import import_tensorflow

    console = terminal()
    waiting = f" and waiting for the {cluster.workers - 1} other workers" if cluster.workers > 1 else ""
    with console.status(f"Loading TensorFlow{waiting} ..."):
        strategy = import_tensorflow(functools.partial(_make_strategy, strategy), door)
    options.use_precision(run.precision, console, door)
    from tf_adapters.cli.runs import Runner, run_once, run_seeds
    from tf_adapters.methods import config_from_dict
    from tf_adapters.recipes import get_recipe
    from tf_adapters.training.experiment import Experiment
    from tf_adapters.training.settings import TrainingSettings

    recipe = get_recipe(recipe)
    if pretrained and recipe.trainable not in ("adapters", pretrained["trainable"]):
        raise InputError(
            f"--recipe {recipe.name} trains {recipe.trainable!r}, and {from_pretrained_adapter} was trained as "
            f"{pretrained['trainable']!r} and goes on so: leave one of them out."
        )
    trainable = trainable or recipe.trainable
    _check_adapters(trainable, run, adapter, fused)
    config = adapter.changed(recipe)
    if pretrained and pretrained["adapter"] is not None:
        config = config_from_dict(pretrained["adapter"])
    settings = TrainingSettings.of_recipe(recipe, trainable, **given)
    experiment = Experiment(
        model, functools.partial(data.sampled, data.read(console)), recipe, settings, adapter=config,
        trainable=trainable,
        max_length=max_length, precision=run.precision, fast=run.fast, fused=fused, pretrained=from_pretrained_adapter,
        strategy=strategy, door=door,
    )  # fmt: skip
    runner = Runner(console, experiment, cluster)
    if seeds == 1:
        run_once(runner, output, resume=resume, started=started)
    else:
        run_seeds(runner, output, seeds, resume=resume, started=started)


def _fused(directories, adapter):
    """The directories of --fuse by their names."""
    if not directories:
        return {}
    for option in adapter.given():
        raise InputError(f"{option} is of new adapters, and --fuse takes trained ones: leave one of them out.")
    folders = [local(directory) for directory in directories]
    fused = {name_of(*pair).replace(".", "-"): pair[1] for pair in zip(directories, folders)}
    if len(fused) < max(2, len(directories)):
        raise InputError(
            "--fuse needs two directories or more, each with a name of its own: --fuse adapters/mnli --fuse "
            "adapters/qqp."
        )
    return fused


def _pretrained(directory, trainable, adapter, fused):
    """The settings of --from-pretrained-adapter, or None without it."""
    from tf_adapters.saving.settings import read_settings

    if directory is None:
        return None
    for option in [*adapter.given(), *(["--fuse"] if fused else [])]:
        raise InputError(
            f"{option} is of new adapters, and --from-pretrained-adapter {directory} has its own: leave one of them "
            "out."
        )
    settings = read_settings(directory)
    if trainable not in (None, settings["trainable"]):
        raise InputError(
            f"--trainable {trainable}: {directory} was trained as {settings['trainable']!r}, and goes on so; leave it "
            "out, or give that."
        )
    return settings


def _check_adapters(trainable, run, adapter, fused):
    """Raise InputError for options of adapters where none train."""
    if trainable == "adapters":
        return
    given = {"--fast": run.fast or None, "--fuse": fused or None} | adapter.given()
    for option, value in given.items():
        if value is not None:
            raise InputError(
                f"{option} is for adapters, and --trainable {trainable} trains none: leave one of them out."
            )


def _check_strategy(name, given, seeds, adapter):
    """The `Cluster` of --strategy, one worker without; InputError for what cannot be together with it."""
    from tf_adapters.training.cluster import STRATEGIES, Cluster, read_cluster
    from tf_adapters.training.settings import for_one_device, option_of

    if name is None:
        return Cluster()
    if name not in STRATEGIES:
        raise InputError(f"--strategy {name} is unknown: use one of {', '.join(STRATEGIES)}.")
    alone = [option_of(field) for field in for_one_device(given)]
    alone += ["--random-drop"] if adapter.random_drop else []
    alone += ["--xla"] if given["jit_compile"] else []
    alone += ["--seeds"] if seeds > 1 and name == "multi-worker" else []
    for option in alone:
        raise InputError(f"{option} cannot be together with --strategy {name}: leave one of them out.")
    return read_cluster(os.environ) if name == "multi-worker" else Cluster()


def _make_strategy(name):
    from tf_adapters.training.strategies import make_strategy

    return None if name is None else make_strategy(name)


def _check_output(output, resume, overwrite, seeds):
    of_one = (output / RESUME_FOLDER).is_dir()
    of_several = (output / SEEDS_FILE).exists() or any(output.glob(f".seed-*/{RESUME_FOLDER}"))
    check_folder(
        output, marker=SETTINGS_FILE, what="an adapter", resume=resume, overwrite=overwrite,
        unfinished=of_one or of_several,
        finished=(output / SETTINGS_FILE).exists(), leftovers=any(output.glob(".seed-*")),
    )  # fmt: skip
    if resume and not (of_several if seeds > 1 else of_one):
        held = "several seeds: give the same --seeds" if of_several else "one seed: leave out --seeds"
        raise InputError(f"--resume: {output} holds an interrupted run of {held}.")
