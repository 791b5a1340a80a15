"""A run of `fit`: counts steps, validates, keeps the best epoch, saves its state and survives being killed."""

import array
import contextlib
import csv
import dataclasses
import functools
import io
import math
import os
import signal
import threading
import time
from typing import Dict

import numpy as np
import tensorflow as tf

from tf_adapters.errors import NAME, DivergedError, InputError
from tf_adapters.models.state import state_of
from tf_adapters.saving.atomic import reason, remove_folder
from tf_adapters.saving.directory import load_adapter, save_adapter
from tf_adapters.saving.settings import SETTINGS_FILE
from tf_adapters.tasks.metrics import METRICS
from tf_adapters.text.batching import training_batches
from tf_adapters.training import strategies
from tf_adapters.training.disk import (
    LOG_FILE,
    RESUME_FOLDER,
    STATE_FILE,
    TENSORBOARD,
    ResumeFile,
    read_info,
    refuse_other,
)


@dataclasses.dataclass(frozen=True)
class FitResult:
    """What `fit` returns.

    Attributes:
        best_epoch: int, from 1; 0 if none was finished.
        metrics: dict of the best epoch's validation numbers.
        steps: int, steps done, those before a resume included.
        seconds: float, wall time of this process's part.
        compile_seconds: float, what its long steps took beyond the median one: about the time of tracing and compiling.
        interrupted: True if it stopped at a signal; resume goes on, and gives the model the best epoch's weights.
        stopped_early: True if `patience` ended it.
    """

    best_epoch: int
    metrics: Dict[str, float]
    steps: int
    seconds: float
    compile_seconds: float
    interrupted: bool
    stopped_early: bool = False


class Reporter:
    """Hears of a run's progress; subclass what is of interest."""

    def caching(self, done, total):
        """With `cache_frozen`: the frozen blocks' outputs for `done` of `total` examples are stored, before `start`."""

    def start(self, steps, done):
        """Training begins: `steps` in all, `done` of them before a resume."""

    def note(self, text):
        """Something that the user should know: about the training examples, before `start`, or what an epoch's end
        changed."""

    def step(self, done, numbers):
        """A step is done; `numbers` are the epoch's training means so far."""

    def epoch(self, epoch, numbers, best):
        """An epoch (from 1) was validated; `best` tells whether it is the best so far."""

    def finish(self):
        """Training ends, for whatever reason."""


# Not a metric of any kind, so that no metric is called so.
_LOSS = "mean loss"


def seconds_of_long_steps(step_seconds):
    """Seconds beyond the median of the steps that took more than five times as long, a float.

    A step of a new shape is traced and, with XLA or fast blocks, compiled; steps of usual shapes differ by less.
    """
    if not len(step_seconds):
        return 0.0
    seconds = np.asarray(step_seconds, np.float64)
    median = np.median(seconds)
    return float((seconds[seconds > 5 * median] - median).sum())


class Run:
    """One call of `fit`: counts steps, validates, keeps the best, saves the state.

    Keras tells it of steps and epochs by the methods `on_...`, which are those of a callback of either Keras.
    """

    def __init__(self, *, trained, task, output, steps, steps_per_epoch, passes, compared, variables, reporter):
        self.trained, self.keras_model, self.whole = trained, trained.keras_model, trained.model
        self.workers, self.settings, self.kind = trained.workers, trained.settings, trained.kind
        self.task, self.tokenizer, self.output = task, trained.tokenizer, output
        self.steps, self.steps_per_epoch, self.passes = steps, steps_per_epoch, passes
        self.compared, self.reporter = compared, reporter
        variables = variables | {"metric": self.workers.per_replica(variables["metric"])}
        self.file = ResumeFile(output / RESUME_FOLDER / STATE_FILE, variables, writes=self.workers.chief)
        self.running = variables["metric"]
        self.running_values = None
        self.scorer = self.kind.scorer(
            self.whole,
            self.tokenizer,
            batch_size=self.settings.batch_size,
            lengths=trained.lengths(self.tokenizer),
            jit_compile=self.settings.jit_compile,
        )
        self.done = 0
        self.step_started, self.step_seconds = 0.0, array.array("f")
        self.log_bytes = 0
        self.best = {"value": None, "epoch": 0, "metrics": {}}
        self.thresholds = None  # of the latest validation
        self.saved_at = time.monotonic()
        self.asked = threading.Event()  # by a signal to this process
        self.writer = None
        if self.settings.tensorboard and self.workers.chief:
            with _writing(output / TENSORBOARD):
                self.writer = tf.summary.create_file_writer(str(output / TENSORBOARD))

    def restore(self):
        if self.file.path.parent.is_dir() and not self.file.path.exists():
            return  # killed before its first state
        info = read_info(self.file.path)
        refuse_other(self.output, "a run", info["settings"], self.compared)
        self.file.restore()
        self.done, self.log_bytes, self.best = info["done"], info["log_bytes"], info["best"]
        begun = bool(self.done % self.steps_per_epoch)
        # fit() resets the metrics that it knows before an epoch starts; those of a begun one are put back right after.
        self.running_values = [variable.numpy() * begun for variable in self.running]
        if self.workers.chief and (self.output / LOG_FILE).exists():
            with _writing(self.output / LOG_FILE):
                os.truncate(self.output / LOG_FILE, self.log_bytes)

    def train(self):
        """Train to the end; a `FitResult`."""
        settings, examples, started = self.settings, self.trained.examples, time.monotonic()
        if not self.done:
            if self.workers.chief:
                for path in self.output.glob(f"step-*/{SETTINGS_FILE}"):  # of a run before
                    remove_folder(path.parent)
            self.save()
        inputs_of, states, padder = None, None, self.kind.padder(self.tokenizer, examples)
        try:
            with _stop_at_signals(self.asked):
                if self.trained.depth and self.done < self.steps and not self._out_of_patience():
                    states = self._store_states()
                    inputs_of = states.inputs
                self.reporter.start(self.steps, self.done)
                while self.done < self.steps and not self._stops() and not self._out_of_patience():
                    epoch, offset = divmod(self.done, self.steps_per_epoch)
                    batches = training_batches(
                        examples,
                        padder,
                        batch_size=settings.batch_size,
                        epochs=self.passes,
                        seed=settings.seed,
                        start_step=self.done,
                        lengths=self.trained.lengths(padder),
                        multiple_of=self.compared["padded_to"],
                        drop_remainder=settings.jit_compile,
                        inputs_of=inputs_of,
                    )
                    batches = batches.enumerate(self.done).map(functools.partial(self._batch, settings.seed))
                    with self.trained.compiling_ahead(batches):
                        # The rest of a begun epoch first: fit() counts the same steps for each epoch.
                        self.keras_model.fit(
                            self.trained.batches(self.workers.batches(batches, self.kind.loss_weight)),
                            initial_epoch=epoch,
                            epochs=epoch + 1 if offset else self.steps // self.steps_per_epoch,
                            steps_per_epoch=(self.steps_per_epoch - offset) * self.trained.parts,
                            callbacks=[self.trained.callback(self)],
                            verbose=0,
                            shuffle=False,  # which Keras 3 is asked for otherwise, and warns that it does not
                        )
        except _Stopped:
            pass  # while the frozen blocks were computed
        finally:
            self.reporter.finish()
            self.trained.end()
            if states is not None:
                states.close()
        stopped_early = self.done < self.steps and self._out_of_patience()
        # Where a signal came while the last epoch was validated, what follows training is for the one who resumes.
        interrupted = self._stops() or (self.done < self.steps and not stopped_early)
        stopped_early = stopped_early and not interrupted
        if not interrupted:
            self._finish()
        return FitResult(
            best_epoch=self.best["epoch"],
            metrics=dict(self.best["metrics"]),
            steps=self.done,
            seconds=time.monotonic() - started,
            compile_seconds=seconds_of_long_steps(self.step_seconds),
            interrupted=interrupted,
            stopped_early=stopped_early,
        )

    @tf.autograph.experimental.do_not_convert
    def _batch(self, seed, step, batch):
        # Negative: other numbers than those that shuffle.
        seed, lengths = tf.stack([tf.constant(seed, tf.int64), -1 - step]), self.trained.lengths(self.tokenizer)
        inputs, targets = self.kind.batch(*batch, seed, self.tokenizer, lengths)
        return state_of(self.whole).family.inputs(inputs), targets

    def _stops(self):
        return self.workers.any(self.asked.is_set())

    def _out_of_patience(self):
        epochs, rest = divmod(self.done, self.steps_per_epoch)
        patience = self.settings.patience
        return patience is not None and rest == 0 and epochs - self.best["epoch"] >= patience

    def _store_states(self):
        from tf_adapters.training.frozen_blocks import StoredStates

        def progress(done):
            self.reporter.caching(done, len(self.trained.examples))
            if self.asked.is_set():
                raise _Stopped

        depth, folder, rows = self.trained.depth, self.output / RESUME_FOLDER, self.settings.batch_size
        states = StoredStates(
            self.whole, depth, self.trained.examples, self.tokenizer, folder, batch_size=rows, progress=progress
        )
        self.reporter.note(
            f"Outputs of the {depth} frozen lower blocks: {states.tokens:,} tokens, {states.bytes / 1e6:,.0f} MB on "
            "disk"
        )
        return states

    def save(self):
        """Write the state of the run."""
        self.trained.sync()
        self.file.save({"settings": self.compared, "done": self.done, "log_bytes": self.log_bytes, "best": self.best})
        self.saved_at = time.monotonic()

    def remove_state(self):
        """Remove the state of the run, which cannot be resumed then."""
        if self.workers.chief:
            remove_folder(self.output / RESUME_FOLDER)

    def on_epoch_begin(self, epoch, logs=None):
        if self.running_values is not None:
            for variable, value in zip(self.running, self.running_values):
                variable.assign(value)
            self.running_values = None

    def on_train_batch_begin(self, batch, logs=None):
        self.step_started = time.monotonic()

    def on_train_batch_end(self, batch, logs=None):
        self.step_seconds.append(time.monotonic() - self.step_started)
        self.done += 1
        self.reporter.step(self.done, {"loss": self.kind.running_loss(logs)})
        if self.done % self.steps_per_epoch == 0:
            return  # on_epoch_end saves
        alone = self.workers.processes == 1
        if alone:
            due = time.monotonic() - self.saved_at >= self.settings.checkpoint_seconds
        else:
            due = self.done % strategies.STEPS_TO_AGREE == 0  # for clocks differ
        stops = (alone or due) and self._stops()
        if stops or due:
            self.save()
        if stops:
            self.keras_model.stop_training = True

    def on_epoch_end(self, epoch, logs=None):
        if self.done != (epoch + 1) * self.steps_per_epoch:
            return  # stopped within the epoch
        loss = float(self.kind.running_loss(logs))
        if not math.isfinite(loss):
            raise self._diverged(f"The training loss of epoch {epoch + 1} is {loss}")
        validation = self.task.validation
        numbers = self.workers.from_chief(lambda: self._validate(validation))
        validation_loss = numbers.pop(_LOSS, None)
        self._check_finite(numbers)
        value = numbers[METRICS[self.task.metric].primary]
        better = not math.isnan(value) and (self.best["value"] is None or value > self.best["value"])
        if better:
            self.best = {"value": value, "epoch": epoch + 1, "metrics": numbers}
            if self.thresholds is not None:
                self.best["tuned"] = int(np.count_nonzero(self.thresholds))
            self._save_adapter(self.output, numbers)
        if self.settings.keep_periods:
            self._save_adapter(self.output / f"step-{self.done}", numbers)
        row = {"epoch": epoch + 1, "step": self.done, "training_loss": loss}
        row.update({f"validation_{name}": number for name, number in numbers.items()})
        row |= {} if validation_loss is None else {"validation_loss": validation_loss}
        if self.workers.chief:
            self._log(row)
        self.save()
        self.reporter.epoch(epoch + 1, {"loss": loss, **numbers}, better)
        if self._stops() or self._out_of_patience():
            self.keras_model.stop_training = True

    def _validate(self, rows):
        """The metric's numbers, and the mean loss as `_LOSS` where the kind has one."""
        outputs = self.kind.unbounded(self.scorer, rows)
        loss = self.kind.loss(rows, outputs, state_of(self.whole).door.ops)
        outputs = self.kind.bounded(rows, outputs)
        if self.settings.tune_thresholds:
            # As they will be decided, or the first epochs would seem best in which nothing is predicted.
            self.thresholds = self.kind.thresholds(self.task.metric, rows, outputs)
            outputs = outputs - self.thresholds
        return self.kind.score(self.task.metric, rows, outputs) | ({} if loss is None else {_LOSS: loss})

    def _check_finite(self, numbers):
        """Raise DivergedError for numbers that no adapter directory can hold. NaN is allowed where it is not kept: the
        correlation of outputs that are all the same is no number."""
        for name, number in numbers.items():
            if math.isinf(number) or (math.isnan(number) and self.settings.keep_periods):
                raise self._diverged(f"The validation {name.replace('_', ' ')} after step {self.done} is {number}")

    def _diverged(self, what):
        epoch = self.best["epoch"]
        kept = f"the best before, of epoch {epoch}, is kept in" if epoch else "nothing was saved to"
        return DivergedError(
            f"{what}: training diverged. Try a lower {{learning_rate}}; {kept} {self.output}.", learning_rate=NAME
        )

    def _save_adapter(self, directory, numbers):
        if not self.workers.chief:
            return
        with self._decided():
            save_adapter(
                self.whole,
                directory,
                text=self.tokenizer,
                recipe=self.settings.recipe,
                task={
                    "name": self.task.name,
                    "kind": self.task.kind,
                    "metric": self.task.metric,
                    "source": self.task.source,
                    **self.kind.about(self.task.train),
                    **({"reading": self.task.reading} if self.task.reading else {}),
                },
                metrics={f"validation {name}": number for name, number in numbers.items()},
                training=self.settings.of("kept")
                | {name: self.compared[name] for name in ("precision", "training_rows")}
                | ({"period": self.settings.period} if self.settings.epochs and self.settings.period else {})
                | ({"step": self.done} if self.settings.keep_periods else {}),
            )

    @contextlib.contextmanager
    def _decided(self):
        """While an adapter is saved, the thresholds of the labels are in the head's bias."""
        if self.thresholds is None or not self.thresholds.any():
            yield
            return
        state = state_of(self.whole)
        bias = state.output_bias(self.whole)
        trained = state.door.read(bias)
        try:
            bias.assign(np.asarray(trained) - self.thresholds)
            yield
        finally:
            bias.assign(trained)

    def _log(self, row):
        text, columns = io.StringIO(), list(row)
        if self.log_bytes:
            # A run that was begun by an older version has the columns of that one.
            with open(self.output / LOG_FILE, newline="") as file:
                columns = next(csv.reader(file))
        writer = csv.DictWriter(text, columns, extrasaction="ignore")
        if not self.log_bytes:
            writer.writeheader()
        writer.writerow(row)
        with _writing(self.output / LOG_FILE), open(self.output / LOG_FILE, "r+b" if self.log_bytes else "wb") as file:
            file.seek(self.log_bytes)
            file.write(text.getvalue().encode())
        self.log_bytes += len(text.getvalue().encode())
        if self.writer is not None:
            with _writing(self.output / TENSORBOARD):
                with self.writer.as_default():
                    for name, number in row.items():
                        tf.summary.scalar(name, number, step=self.done)
                self.writer.flush()

    def _finish(self):
        if not self.best["epoch"]:
            raise DivergedError(
                f"The validation metric was not a number in any epoch, so nothing was saved to {self.output}: "
                "training diverged; try a lower {learning_rate}.",
                learning_rate=NAME,
            )
        state = state_of(self.whole)
        load_adapter(self.whole, self.output, name=state.active or "default")
        if self.settings.tune_thresholds:
            self.reporter.note(f"Thresholds of {self.best['tuned']} labels were tuned on the validation rows.")


@contextlib.contextmanager
def _writing(path):
    """Let what the operating system, or TensorFlow, says of a file that cannot be written be an InputError."""
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        raise InputError(f"{path} cannot be written: {reason(error)}.") from None


class _Stopped(Exception):
    """A signal came."""


@contextlib.contextmanager
def _stop_at_signals(event):
    """Sets an event at the first SIGINT or SIGTERM; a second one acts as usual."""
    previous = {}

    def handle(number, frame):
        event.set()
        signal.signal(number, previous[number])

    if threading.current_thread() is threading.main_thread():
        previous.update((number, signal.signal(number, handle)) for number in (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
