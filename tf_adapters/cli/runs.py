"""An experiment, with one seed or several, as `tf-adapters train` runs and reports it."""

import contextlib
import time

import typer

from tf_adapters import load_adapter, parameter_counts
from tf_adapters.cli.progress import TrainingProgress, counting
from tf_adapters.cli.report import predict_held_out, show_report, show_seeds
from tf_adapters.training.disk import discard_seeds
from tf_adapters.training.experiment import Observer
from tf_adapters.training.run import FitResult


class Runner:
    """Runs an experiment and says what it does.

    Args:
        console: Rich console.
        experiment: `Experiment`.
        cluster: the `Cluster` that this process is one of, or None for a process of its own.
    """

    def __init__(self, console, experiment, cluster=None):
        self.console, self.experiment, self.settings, self.cluster = console, experiment, experiment.settings, cluster
        self.chief = cluster is None or cluster.chief

    def build(self, seed=None, *, backbone=None):
        """As `Experiment.build`."""
        with self.console.status(f"Loading {self.experiment.source} ..."):
            return self.experiment.build(seed, backbone=backbone)

    def train(self, model, tokenizer, output, *, seed=None, resume=False):
        """Train into `output`; the result, a `FitResult`. Exits with status 130 if interrupted."""
        result = self.experiment.train(model, tokenizer, output, seed=seed, resume=resume, reporter=self.reporter())
        self.report_end(result)
        return result

    def reporter(self):
        """What shows a run of `fit`."""
        if not self.chief:
            return None
        return TrainingProgress(self.console, self.settings.epochs, period=self.settings.period)

    def report_end(self, result):
        """Say how a run ended; exits with status 130 if it was interrupted."""
        if result.interrupted:
            self.console.print(
                f"Stopped after step {result.steps}; the state is saved. Go on with the same command and --resume."
            )
            raise typer.Exit(130)
        if result.stopped_early:
            self.console.print(
                f"Stopped after step {result.steps}: {self.settings.patience} epochs without a better validation "
                "result."
            )
        if self.settings.jit_compile or self.experiment.fast:
            self.console.print(
                f"Tracing and compiling took about {result.compile_seconds:.0f} s of {result.seconds:.0f} s."
            )

    def announce(self, task, counts):
        """Say what will be trained on what."""
        self.console.print(
            f"Task {task.name}: {len(task.train):,} training, {len(task.validation):,} validation"
            + (f", {len(task.test):,} test rows" if task.test is not None else " rows")
            + (f", labels {_listed(task.labels)}" if task.labels else f", {task.kind}")
        )
        settings, experiment = self.settings, self.experiment
        self.console.print(
            f"Training {counts.trainable:,} of {counts.total:,} parameters ({counts.share:.2%}) on {experiment.source}"
        )
        self.console.print(
            f"{settings.epochs} epochs in batches of {settings.batch_size}, peak learning rate "
            f"{settings.learning_rate:g}"
        )
        if experiment.door != "transformers":
            self.console.print(f"Through {experiment.door}, on {experiment.backend}")
        if experiment.strategy is not None:
            workers = (
                f" of {self.cluster.workers} workers" if self.cluster is not None and self.cluster.workers > 1 else ""
            )
            self.console.print(f"On {experiment.strategy.num_replicas_in_sync} devices{workers}")


class _Shown(Observer):
    """Shows the seeds of an experiment."""

    def __init__(self, runner, seeds):
        self.runner, self.console, self.seeds, self.first = runner, runner.console, seeds, runner.settings.seed

    def begin(self, seed, task, model):
        if seed == self.first:
            self.runner.announce(task, parameter_counts(model))
        self.console.print(f"Seed {seed}, {seed - self.first + 1} of {self.seeds}:")

    def reporter(self, seed):
        return self.runner.reporter()

    @contextlib.contextmanager
    def progress(self, seed):
        with counting(self.console, "scoring") as advance:
            yield advance

    def end(self, seed, result):
        if result is None:
            self.console.print(f"Seed {seed}: done before.")
        else:
            self.runner.report_end(result)


def run_once(runner, output, *, resume, started):
    """Train with the one seed, and report."""
    if not resume and runner.chief:
        discard_seeds(output)
    task = runner.experiment.task_of()
    model, tokenizer = runner.build()
    counts = parameter_counts(model)
    runner.announce(task, counts)
    result = runner.train(model, tokenizer, output, resume=resume)
    if not runner.chief:
        runner.console.print(f"Worker {runner.cluster.number} is done; worker 0 writes {output} and reports.")
        return
    held_out = predict_held_out(runner.console, model, task, tokenizer, runner.settings.batch_size)
    show_report(
        runner.console, model, task, output, result, counts, time.monotonic() - started, runner.settings, held_out
    )


def run_seeds(runner, output, seeds, *, resume, started):
    """Train with each seed that is not done, keep the best by validation, and report means and spread."""
    runs = runner.experiment.run_seeds(output, seeds, resume=resume, observer=_Shown(runner, seeds))
    best = runs.best()
    task = runner.experiment.task_of(best["seed"])
    model, tokenizer = runner.build(best["seed"])
    counts = parameter_counts(model)
    load_adapter(model, output)
    held_out = predict_held_out(runner.console, model, task, tokenizer, runner.settings.batch_size)
    result = FitResult(
        best_epoch=best["best_epoch"], metrics={runs.metric: best["validation"]}, steps=0,
        seconds=sum(run["seconds"] for run in runs.runs),
        compile_seconds=0.0, interrupted=False,
    )  # fmt: skip
    show_report(
        runner.console, model, task, output, result, counts, time.monotonic() - started, runner.settings, held_out
    )
    show_seeds(runner.console, runs)


def _listed(labels, most=12):
    return ", ".join(labels[:most]) + (f" and {len(labels) - most} more" if len(labels) > most else "")
