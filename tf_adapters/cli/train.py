"""`tf-adapters train`."""

import functools
import os
import pathlib
import time
from typing import List, Optional

from tf_adapters.cli.command import option
from tf_adapters.cli.data import DEFAULT_TASK, DataOptions
from tf_adapters.cli.directories import check_folder, local, name_of
from tf_adapters.cli.options import AdapterOptions, DoorOptions, MaxLength, Model, RunOptions, listed, refuse
from tf_adapters.cli.quiet import has_bfloat16, share_cores, start, terminal
from tf_adapters.errors import NAME, InputError
from tf_adapters.methods import config_from_dict
from tf_adapters.paths import find_here
from tf_adapters.recipes import RECIPES, get_recipe
from tf_adapters.saving.settings import SETTINGS_FILE, read_settings
from tf_adapters.training.disk import RESUME_FOLDER, SEEDS_FILE
from tf_adapters.training.settings import (
    STRATEGIES,
    Cluster,
    TrainingSettings,
    check_door,
    computes_parts,
    for_one_device,
    read_cluster,
)

_adapter = functools.partial(option, panel="Adapter")
_run = functools.partial(option, panel="Run")


def train(
    *,
    model: Model = "minilm",
    output: option(
        Optional[pathlib.Path], "Adapter directory to write. Default for the embedded task: `adapters/rotten-tomatoes`."
    ) = None,
    data: DataOptions,
    max_length: MaxLength = None,
    recipe: _adapter(
        str,
        f"`default`, or a paper's complete setting: {listed(RECIPES)}. Those that end in `-full` or `-layer-norm` are "
        "what the papers compare with. Every option below without a default overrides a part of it. The default one "
        "trains LayerNorms too, which AdapterHub's files cannot hold: for `convert` to them take `pfeiffer-2021`, or "
        "`--train-layer-norm none`.",
    ) = "default",
    trainable: _adapter(
        Optional[str],
        "What trains: `adapters`, or without adapters `full`, `top-N` (the N uppermost blocks), `layer-norm`, `bias` "
        "(BitFit) or `head`. Default: the recipe's.",
    ) = None,
    adapter: AdapterOptions,
    fuse: _adapter(
        Optional[List[pathlib.Path]],
        "AdapterFusion: learn to combine the adapters of this directory (or `owner/name` on the HuggingFace hub) and "
        "others, which stay as they are; give it twice or more. They must have been trained without LayerNorms "
        "(`--recipe pfeiffer-2021`). The paper's rate is 5e-5, for 10 epochs.",
    ) = None,
    from_pretrained_adapter: _adapter(
        Optional[pathlib.Path],
        "Go on with the adapter of this directory (or `owner/name` on the HuggingFace hub): one that `pretrain` wrote, "
        "its `step-N` among them, or of another task. What it has and what trains are as there; the head is new.",
    ) = None,
    run: RunOptions,
    seeds: _run(
        int, "Train with this many seeds from `--seed` on, report mean and spread, and keep the best by validation."
    ) = 1,
    strategy: _run(
        Optional[str],
        "Train on several devices, each with its rows of a batch, so that `--batch-size` is that of all together: "
        "`mirrored` takes all GPUs of this machine, with `--door keras-hub` on JAX; `multi-worker` several machines "
        "with one `--output`, where the same command runs on each, and only `TF_CONFIG` says which of them it is: "
        '`TF_CONFIG=\'{"cluster": {"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]}, "task": {"type": "worker", '
        '"index": 0}}\' tf-adapters train --strategy multi-worker ...` on the first, with the index 1 on the second. '
        "The first writes the output.",
        values=STRATEGIES,
    ) = None,
    where: DoorOptions,
    resume: _run(bool, "Go on with an interrupted run, with the same options.", "--resume") = False,
    overwrite: _run(
        bool, "Replace the adapter in the output directory, once the first epoch is done.", "--overwrite"
    ) = False,
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
    output = output or data.usual_output("adapters")
    given, door = run.given(), where.choose(run.fast)
    check_door(given, door)
    if strategy == "multi-worker" and door != "transformers":
        raise InputError("--strategy multi-worker is of --door transformers: leave one of them out.")
    recipe = get_recipe(recipe)
    fused = _fused(fuse, adapter)
    pretrained = None
    if from_pretrained_adapter is not None:
        from_pretrained_adapter = local(from_pretrained_adapter)
        pretrained = _pretrained(from_pretrained_adapter, output, recipe, trainable, adapter, fused)
        trainable = pretrained["trainable"]
    trainable = trainable or recipe.trainable
    adapter.refuse_without(trainable, fast=run.fast, fuse=NAME if fused else None)
    config = adapter.changed(recipe)
    if pretrained and pretrained["adapter"] is not None:
        config = config_from_dict(pretrained["adapter"])
    settings = TrainingSettings.of_recipe(recipe, trainable, **given)
    cluster = _check_strategy(strategy, given, seeds, adapter)
    if cluster.chief:
        _check_output(output, resume, overwrite, seeds)
    find_here(model)
    data.peek()

    console = terminal()
    waiting = f" and waiting for the {cluster.workers - 1} other workers" if cluster.workers > 1 else ""
    shares = strategy is None and computes_parts(settings, trainable, config.random_drop)
    usual = (model, data.task, trainable, door, strategy) == ("minilm", DEFAULT_TASK, "adapters", "transformers", None)
    make = functools.partial(_make_strategy, strategy, door)
    first, precision = share_cores if shares else make, run.precision or "float32"
    strategy = start(console, door=door, precision=precision, first=first, waiting=waiting)
    if run.precision is None and usual and run.fast is not False and has_bfloat16():
        precision = "mixed_bfloat16"  # in less time; that the score is the same was measured for this task
    from tf_adapters.cli.progress import Runner
    from tf_adapters.training.experiment import Experiment

    experiment = Experiment(
        model, functools.partial(data.sampled, data.read(console)), recipe, settings, adapter=config,
        trainable=trainable, max_length=max_length, precision=precision, fast=run.fast, fused=fused,
        pretrained=from_pretrained_adapter, strategy=strategy, door=door,
    )  # fmt: skip
    Runner(console, experiment, cluster, seeds, started, overwrite).run(output, resume)


def _fused(directories, adapter):
    """The directories of --fuse by their names."""
    if not directories:
        return {}
    refuse(adapter.given(), "is of new adapters, and --fuse takes trained ones: leave one of them out")
    folders = [local(directory) for directory in directories]
    fused = {name_of(*pair).replace(".", "-"): pair[1] for pair in zip(directories, folders)}
    if len(fused) < max(2, len(directories)):
        raise InputError(
            "--fuse needs two directories or more, each with a name of its own: --fuse adapters/mnli --fuse "
            "adapters/qqp."
        )
    return fused


def _pretrained(directory, output, recipe, trainable, adapter, fused):
    """The settings of --from-pretrained-adapter."""
    why = f"is of new adapters, and --from-pretrained-adapter {directory} has its own: leave one of them out"
    refuse(adapter.given() | {"fuse": NAME if fused else None}, why)
    settings = read_settings(directory)
    trained = settings["trainable"]
    if trainable not in (None, trained):
        raise InputError(
            f"--trainable {trainable}: {directory} was trained as {trained!r}, and goes on so; leave it out, or give "
            "that."
        )
    if recipe.trainable not in ("adapters", trained):
        raise InputError(
            f"--recipe {recipe.name} trains {recipe.trainable!r}, and {directory} was trained as {trained!r} and goes "
            "on so: leave one of them out."
        )
    if output.resolve() == directory.resolve():
        raise InputError(
            f"--output {output} is the directory of --from-pretrained-adapter: give another, so that both are kept."
        )
    return settings


def _check_strategy(name, given, seeds, adapter):
    """The `Cluster` of --strategy, one worker without; InputError for what cannot be together with it."""
    if name is None:
        return Cluster()
    alone = for_one_device(given) | {"random_drop": adapter.random_drop or None}
    alone["seeds"] = NAME if seeds > 1 and name == "multi-worker" else None
    refuse(alone, f"cannot be together with --strategy {name}: leave one of them out")
    return read_cluster(os.environ) if name == "multi-worker" else Cluster()


def _make_strategy(name, door):
    """The strategy of the first door; the second's Keras has it to itself."""
    if name is None:
        return None
    if door == "transformers":
        from tf_adapters.training.strategies import make_strategy

        return make_strategy(name)
    from tf_adapters.training.step_keras3 import spread_over_devices

    return spread_over_devices()


def _check_output(output, resume, overwrite, seeds):
    of_one = (output / RESUME_FOLDER).is_dir()
    of_several = (output / SEEDS_FILE).exists() or any(output.glob(f".seed-*/{RESUME_FOLDER}"))
    check_folder(
        output, resume, overwrite, marker=SETTINGS_FILE, what="an adapter", unfinished=of_one or of_several,
        leftovers=any(output.glob(".seed-*")),
    )  # fmt: skip
    if resume and not (of_several if seeds > 1 else of_one):
        held = "several seeds: give the same --seeds" if of_several else "one seed: leave out --seeds"
        raise InputError(f"--resume: {output} holds an interrupted run of {held}.")
