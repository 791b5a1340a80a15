"""What a run of training says while it is at work, on a terminal as a bar, elsewhere as a line now and then; and what
`tf-adapters train` does with an experiment, of one seed or several."""

import contextlib
import math
import time

import typer

from tf_adapters import load_adapter, parameter_counts
from tf_adapters.cli.directories import going_on
from tf_adapters.cli.quiet import SECONDS_BETWEEN_LINES, bar, counting, has_bfloat16
from tf_adapters.cli.report import predict_held_out, show_report, show_seeds
from tf_adapters.models.state import state_of
from tf_adapters.saving.atomic import only_writer
from tf_adapters.training.disk import RESUME_FOLDER, SEEDS_FILE, discard_seeds
from tf_adapters.training.experiment import Observer
from tf_adapters.training.run import FitResult, Reporter

MOST_LABELS = 12


class TrainingProgress(Reporter):
    """Shows a run on a Rich console, one that is measured after each of some `epochs`, or every `period` steps; where
    both are None it is measured once."""

    def __init__(self, console, epochs, description="training", *, period=None):
        self.console = console
        self.epochs, self.period = epochs, period
        self.description = description
        self.progress = None
        self.task = None
        self.steps, self.usual = 0, 0.0
        self.printed = time.monotonic()

    def caching(self, done, total):
        if self.console.is_terminal:
            if self.progress is None:
                self._open("caching", "examples", total)
            self.progress.update(self.task, completed=done)
            if done == total:
                self.finish()
        elif time.monotonic() - self.printed >= SECONDS_BETWEEN_LINES:
            self.printed = time.monotonic()
            self.console.print(f"caching {done:,} of {total:,} examples")

    def start(self, steps, done):
        self.steps = steps
        self.printed = time.monotonic()
        if done:
            self.console.print(f"Resuming after step {done} of {steps}.")
        if self.console.is_terminal:
            self._open(self.description, "steps", steps, done, since=time.monotonic(), usual=self.usual)

    def note(self, text):
        self.console.print(text)

    def step(self, done, numbers):
        note = f"loss {numbers['loss']:.4f}"
        if self.progress is not None:
            now, fields = time.monotonic(), self.progress.tasks[0].fields
            if fields["since"] is not None:
                # The shortest of late, which is no step that compiled.
                self.usual = min(now - fields["since"], 2 * self.usual or math.inf)
            validates = done % (self.period or self.steps // (self.epochs or 1)) == 0
            self.progress.update(
                self.task, completed=done, note="validation" if validates else note, since=None if validates else now,
                usual=self.usual,
            )  # fmt: skip
        elif time.monotonic() - self.printed >= SECONDS_BETWEEN_LINES:
            self.printed = time.monotonic()
            self.console.print(f"step {done}/{self.steps}  {note}")

    def epoch(self, epoch, numbers, best):
        values = "  ".join(
            f"{'training' if name == 'loss' else 'validation'} {name.replace('_', ' ')} {value:.4f}"
            for name, value in numbers.items()
        )
        if self.epochs is not None and self.period is None:
            place = f"epoch {epoch}/{self.epochs}"
        else:
            place = f"step {epoch * self.period if self.period else self.steps}/{self.steps}"
        what = "" if self.description.strip() == "training" else f"{self.description}: "
        self.console.print(f"{what}{place}  {values}" + ("  best so far" if best else ""))
        if self.progress is not None:  # the validation is over
            self.progress.update(self.task, note="", since=time.monotonic())

    def finish(self):
        if self.progress is not None:
            self.progress.stop()
            self.progress = None

    def _open(self, description, unit, total, done=0, **fields):
        self.progress = bar(self.console, description, unit)
        self.task = self.progress.add_task("", total=total, completed=done, note="", **fields)
        self.progress.start()


class Runner(Observer):
    """Runs an `Experiment` with so many seeds, as one process of a `Cluster`, and says what it does; `started` is
    `time.monotonic` of the command's start, and `overwrite` whether it had --overwrite."""

    def __init__(self, console, experiment, cluster, seeds, started, overwrite=False):
        self.console, self.experiment, self.cluster, self.seeds = console, experiment, cluster, seeds
        self.settings, self.started, self.advice = experiment.settings, started, going_on(overwrite)
        self.trained = False  # whether anything of this run is in its output

    def run(self, output, resume):
        """Train and report; exits with status 130 if interrupted."""
        self.trained = resume
        try:
            self._run(output, resume)
        except KeyboardInterrupt:
            if not (self.trained and any((output / name).exists() for name in (RESUME_FOLDER, SEEDS_FILE))):
                raise
            self.console.print(f"Stopped; what was trained is saved. {self.advice}")
            raise typer.Exit(130) from None

    def _run(self, output, resume):
        result = self._run_seeds(output, resume) if self.seeds > 1 else self._run_once(output, resume)
        if result is None:
            self.console.print(f"Worker {self.cluster.number} is done; worker 0 writes {output} and reports.")
            return
        model, tokenizer, task, result, runs = result
        held_out = predict_held_out(self.console, model, task, tokenizer, self.settings.batch_size)
        seconds = time.monotonic() - self.started
        show_report(self.console, model, task, output, result, seconds, self.settings, held_out)
        if runs is not None:
            show_seeds(self.console, runs)

    def _run_once(self, output, resume):
        if not resume and self.cluster.chief and output.is_dir():
            with only_writer(output, wait=0):
                discard_seeds(output)
        task = self.experiment.task_of()
        model, tokenizer = self._build()
        self.fast = state_of(model).fast
        self._announce(task, model)
        about = {"resume": resume, "reporter": self.reporter(), "keep_state": True}
        result = self.experiment.train(model, tokenizer, output, **about)
        self._report_end(result)
        return (model, tokenizer, task, result, None) if self.cluster.chief else None

    def _run_seeds(self, output, resume):
        runs = self.experiment.run_seeds(output, self.seeds, resume=resume, observer=self)
        best = runs.best()
        model, tokenizer = self._build(best["seed"])
        load_adapter(model, output)
        result = FitResult(
            best_epoch=best["best_epoch"], metrics={runs.metric: best["validation"]}, steps=0,
            seconds=sum(run["seconds"] for run in runs.runs), compile_seconds=0.0, interrupted=False,
        )  # fmt: skip
        return model, tokenizer, self.experiment.task_of(best["seed"]), result, runs

    def _build(self, seed=None):
        with self.console.status(f"Loading {self.experiment.source} ..."):
            return self.experiment.build(seed)

    # As of Observer, for several seeds.

    def begin(self, seed, task, model):
        number, self.fast = seed - self.settings.seed, state_of(model).fast
        if number == 0:
            self._announce(task, model)
        self.console.print(f"Seed {seed}, {number + 1} of {self.seeds}:")

    def reporter(self, seed=None):
        if not self.cluster.chief:
            return None
        return TrainingProgress(self.console, self.settings.epochs, period=self.settings.period)

    @contextlib.contextmanager
    def progress(self, seed):
        with counting(self.console, "scoring") as advance:
            yield advance

    def end(self, seed, result):
        if result is None:
            self.console.print(f"Seed {seed}: done before.")
        else:
            self._report_end(result)

    def _report_end(self, result):
        """Say how a run ended; exits with status 130 if it was interrupted."""
        self.trained = True
        stopped = f"Stopped after step {result.steps}"
        if result.interrupted:
            self.console.print(f"{stopped}; the state is saved. {self.advice}")
            raise typer.Exit(130)
        if result.stopped_early:
            self.console.print(f"{stopped}: {self.settings.patience} epochs without a better validation result.")
        if self.settings.jit_compile or self.fast:
            self.console.print(
                f"Tracing and compiling took about {result.compile_seconds:.0f} s of {result.seconds:.0f} s."
            )

    def _announce(self, task, model):
        """Say what will be trained on what."""
        settings, experiment, counts = self.settings, self.experiment, parameter_counts(model)
        self.console.print(
            f"Task {task.name}: {len(task.train):,} training, {len(task.validation):,} validation"
            + (f", {len(task.test):,} test rows" if task.test is not None else " rows")
            + (f", labels {', '.join(task.labels[:MOST_LABELS])}" if task.labels else f", {task.kind}")
            + (f" and {len(task.labels) - MOST_LABELS} more" if len(task.labels) > MOST_LABELS else "")
        )
        self.console.print(
            f"Training {counts.trainable:,} of {counts.total:,} parameters ({counts.share:.2%}) on {experiment.source}"
        )
        self.console.print(
            f"{settings.epochs} epoch{'s'[: settings.epochs > 1]} in batches of {settings.batch_size}, peak learning "
            f"rate {settings.learning_rate:g}"
        )
        if self.fast or experiment.precision != "float32":
            blocks = "fast" if self.fast else "plain"
            self.console.print(f"Computing in {experiment.precision}, with {blocks} blocks")
        if self.fast and experiment.precision == "float32" and has_bfloat16():
            self.console.print(
                "This processor has bfloat16: --precision mixed_bfloat16 takes less time, and rounds more"
            )
        if experiment.door != "transformers":
            self.console.print(f"Through {experiment.door}, on {experiment.backend}")
        if experiment.devices > 1:
            workers = f" of {self.cluster.workers} workers" if self.cluster.workers > 1 else ""
            self.console.print(f"On {experiment.devices} devices{workers}")
