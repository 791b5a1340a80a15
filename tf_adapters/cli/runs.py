"""One training, or one for each of several seeds, as `tf-adapters train` runs them."""

import dataclasses
import pathlib
import shutil
import time
from typing import Callable, Dict, Optional

import typer

from tf_adapters import (
    add_adapters,
    cast_frozen,
    fit,
    fuse_adapters,
    load_adapter,
    load_pretrained_adapter,
    parameter_counts,
    set_trainable,
)
from tf_adapters._keras import keras
from tf_adapters.cli.progress import TrainingProgress
from tf_adapters.cli.report import predict_held_out, show_report, show_seeds
from tf_adapters.config import MethodConfig
from tf_adapters.errors import InputError
from tf_adapters.recipes import Recipe
from tf_adapters.saving.atomic import remove_folder
from tf_adapters.saving.settings import read_settings
from tf_adapters.tasks.metrics import METRICS
from tf_adapters.training.cluster import Cluster
from tf_adapters.training.run import FitResult
from tf_adapters.training.load_for_task import load_for_task
from tf_adapters.training.layout import RESUME_FOLDER
from tf_adapters.training.leftovers import discard_seeds
from tf_adapters.training.seeds import SeedRuns
from tf_adapters.training.strategies import scope_of


@dataclasses.dataclass(frozen=True)
class Runner:
    """Trains on a task; everything but the seed is fixed.

    Attributes:
        console: rich console.
        source: str, where the encoder comes from.
        recipe, adapter: what trains; the adapter's config may differ from the recipe's.
        settings: dict of the command's options, the first seed among them.
        task: function from a seed to the `Task` that it trains on.
        fused: adapter directories by name, whose adapters are fused in place of a new one, or empty.
        pretrained: directory whose adapter, or encoder, training goes on with, or None.
        strategy: `tf.distribute.Strategy` or None.
        cluster: the `Cluster` that this process is one of.
        cast: bool, whether frozen weights may be rounded to the precision, after which the encoder serves no other training.
    """

    console: object
    source: str
    recipe: Recipe
    adapter: MethodConfig
    settings: dict
    task: Callable
    fused: Dict[str, pathlib.Path] = dataclasses.field(default_factory=dict)
    pretrained: Optional[pathlib.Path] = None
    strategy: object = None
    cluster: Cluster = Cluster(workers=1, number=0)
    cast: bool = True

    def build(self, task, seed, *, backbone=None):
        """A fresh model that is ready to train, on the encoder of `backbone` if that is given, in the strategy's scope, and its tokenizer."""
        with scope_of(self.strategy):
            return self._build(task, seed, backbone)

    def _build(self, task, seed, backbone):
        settings = self.settings
        keras.mixed_precision.set_global_policy(settings["precision"])
        with self.console.status(f"Loading {self.source} ..."):
            model, wordpiece = load_for_task(
                self.source, task, max_length=settings["max_length"], head_layers=self.recipe.head_layers, seed=seed,
                backbone=backbone,
            )
        if self.fused:
            if settings["fast"]:
                raise InputError("--fast has no parts for fused adapters: leave it out.")
            fuse_adapters(model, self.fused, name="default", seed=seed)
        elif self.pretrained is not None:
            load_pretrained_adapter(model, self.pretrained, fast=settings["fast"] or None)
        elif settings["trainable"] == "adapters":
            add_adapters(model, self.adapter, seed=seed, fast=settings["fast"])
        set_trainable(model, settings["trainable"])
        if self.cast and self.cluster.workers == 1:
            # Variables are sent to the other workers when they are made, and TensorFlow's operation for it knows no bfloat16.
            cast_frozen(model)
        return model, wordpiece

    def train(self, task, model, wordpiece, seed, output, resume):
        """Train into `output`; the result, a `FitResult`. Exits with status 130 if interrupted."""
        settings = self.settings
        if not resume and self.cluster.chief:
            # Its files would be shown together with this run's; everything else is replaced in one stroke.
            shutil.rmtree(output / "tensorboard", ignore_errors=True)
        result = fit(
            model,
            task,
            wordpiece,
            output=output,
            epochs=settings["epochs"],
            learning_rate=settings["learning_rate"],
            batch_size=settings["batch_size"],
            warmup_fraction=self.recipe.warmup_fraction,
            dropout=settings["dropout"],
            weight_decay=settings["weight_decay"],
            clip_norm=settings["clip_norm"],
            mixout=settings["mixout"],
            freeze_adapters=settings["freeze_adapters"],
            freeze_epochs=settings["freeze_epochs"],
            accumulate=settings["accumulate"],
            checkpoint_gradients=settings["gradient_checkpointing"],
            patience=settings["patience"],
            seed=seed,
            jit_compile=settings["xla"],
            cache_frozen=settings["cache_frozen"],
            resume=resume,
            recipe=self.recipe.name,
            tensorboard=settings["tensorboard"],
            checkpoint_seconds=settings["checkpoint_seconds"],
            reporter=TrainingProgress(self.console, settings["epochs"]) if self.cluster.chief else None,
            strategy=self.strategy,
        )
        if result.interrupted:
            self.console.print(
                f"Stopped after step {result.steps}; the state is saved. Go on with the same command and --resume."
            )
            raise typer.Exit(130)
        if result.stopped_early:
            self.console.print(f"Stopped after step {result.steps}: {settings['patience']} epochs without a better validation result.")
        if settings["xla"] or settings["fast"]:
            self.console.print(f"Tracing and compiling took about {result.compile_seconds:.0f} s of {result.seconds:.0f} s.")
        return result

    def announce(self, task, counts):
        """Say what will be trained on what."""
        self.console.print(
            f"Task {task.name}: {len(task.train):,} training, {len(task.validation):,} validation"
            + (f", {len(task.test):,} test rows" if task.test is not None else " rows")
            + (f", labels {_listed(task.labels)}" if task.labels else f", {task.kind}")
        )
        self.console.print(
            f"Training {counts.trainable:,} of {counts.total:,} parameters ({counts.share:.2%}) on {self.source}"
        )
        settings = self.settings
        self.console.print(
            f"{settings['epochs']} epochs in batches of {settings['batch_size']}, peak learning rate "
            f"{settings['learning_rate']:g}"
        )
        if self.strategy is not None:
            workers = f" of {self.cluster.workers} workers" if self.cluster.workers > 1 else ""
            self.console.print(f"On {self.strategy.num_replicas_in_sync} devices{workers}")


def run_once(runner, output, *, seeds, resume, started):
    """Train with the one seed, and report."""
    if not resume and runner.cluster.chief:
        discard_seeds(output)
    seed = runner.settings["seed"]
    task = runner.task(seed)
    model, wordpiece = runner.build(task, seed)
    counts = parameter_counts(model)
    runner.announce(task, counts)
    result = runner.train(task, model, wordpiece, seed, output, resume)
    if not runner.cluster.chief:
        runner.console.print(f"Worker {runner.cluster.number} is done; worker 0 writes {output} and reports.")
        return
    held_out = predict_held_out(runner.console, model, task, wordpiece, runner.settings["batch_size"])
    show_report(
        runner.console, model, task, output, result, counts, time.monotonic() - started, runner.settings, held_out
    )


def run_seeds(runner, output, *, seeds, resume, started):
    """Train with each seed that is not done, keep the best by validation, and report means and spread."""
    settings, console = runner.settings, runner.console
    if not resume:
        remove_folder(output / RESUME_FOLDER)
    first = settings["seed"]
    runs = None
    for seed in range(first, first + seeds):
        task = runner.task(seed)
        if runs is None:
            metric = METRICS[task.metric].primary
            common = {"recipe": runner.recipe.name, "adapter": runner.adapter.to_dict(), "source": runner.source}
            common["fused"] = {name: str(directory) for name, directory in runner.fused.items()}
            common["pretrained"] = runner.pretrained and read_settings(runner.pretrained)["weights"]["sha256"]
            common.update({name: value for name, value in settings.items() if name not in ("checkpoint_seconds", "tensorboard")})
            runs = SeedRuns(output, metric=metric, settings={**common, "task": task.name, "seeds": seeds}, resume=resume)
        if runs.done(seed):
            console.print(f"Seed {seed}: done before.")
            continue
        keras.backend.clear_session()
        model, wordpiece = runner.build(task, seed)
        counts = parameter_counts(model)
        if seed == first:
            runner.announce(task, counts)
        console.print(f"Seed {seed}, {seed - first + 1} of {seeds}:")
        folder = runs.folder(seed)
        result = runner.train(task, model, wordpiece, seed, folder, resume and (folder / RESUME_FOLDER).is_dir())
        held_out = predict_held_out(console, model, task, wordpiece, settings["batch_size"])
        runs.add(
            seed,
            best_epoch=result.best_epoch,
            seconds=round(result.seconds, 1),
            validation=result.metrics[metric],
            test=held_out.numbers[metric] if held_out.split == "test" else None,
        )
    seed = runs.best()["seed"]
    task = runner.task(seed)
    model, wordpiece = runner.build(task, seed)
    counts = parameter_counts(model)
    load_adapter(model, runs.folder(seed))
    held_out = predict_held_out(console, model, task, wordpiece, settings["batch_size"])
    runs.finish()
    result = FitResult(
        best_epoch=runs.best()["best_epoch"],
        metrics={metric: runs.best()["validation"]},
        steps=0,
        seconds=sum(run["seconds"] for run in runs.runs),
        compile_seconds=0.0,
        interrupted=False,
    )
    show_report(console, model, task, output, result, counts, time.monotonic() - started, settings, held_out)
    show_seeds(console, runs)


def _listed(labels, most=12):
    return ", ".join(labels[:most]) + (f" and {len(labels) - most} more" if len(labels) > most else "")
