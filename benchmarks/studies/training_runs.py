"""Whole trainings as measurements: one run, and the file that finished runs are kept in."""

import contextlib
import dataclasses
import gc
import json
import os
import pathlib
import tempfile
import time

from benchmarks.result import git_state, installed_versions


class Runs:
    """The finished runs of a folder, which the first one makes: `runs.jsonl`, one line each, only ever added to."""

    def __init__(self, folder):
        self.path = pathlib.Path(folder) / "runs.jsonl"
        self.runs = []
        if not self.path.exists():
            return
        text = self.path.read_bytes()
        complete = text[: text.rfind(b"\n") + 1]
        if complete != text:
            # A killed command left half a line; the next one must not continue it.
            os.truncate(self.path, len(complete))
        self.runs = [json.loads(line) for line in complete.decode().splitlines()]

    def find(self, settings, identity):
        """The newest finished run with these settings and this method, learning rate, dropout and seed, or None.

        A name that a run does not have counts as None: options come with the years.
        """
        for run in reversed(self.runs):
            if run["settings"] == settings and all(run.get(name) == value for name, value in identity.items()):
                return run
        return None

    def add(self, run):
        """Append one finished run."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(run) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.runs.append(run)


def held_out_of_train(task, rows, validation_rows, seed):
    """The task with a validation split drawn by the seed from its training rows, its own validation rows to report on,
    and a function of a number that returns as many further rows of the training split."""
    import numpy as np

    used = rows + validation_rows
    order = np.random.RandomState(seed).permutation(len(task.train))
    train, validation = task.train.take(order[:rows]), task.train.take(order[rows:used])
    held_out = dataclasses.replace(task, train=train, validation=validation, test=None)
    return held_out, task.validation, lambda count: task.train.take(order[used : used + count])


def make_run(settings, model_source):
    """A function that trains and scores once; loads TensorFlow now.

    Returns: function of a `Task`, a dict of labelled rows to score by name, "adapters" or "full" ("fast": adapters with
        fast blocks, "unsorted": adapters on random batches), seed, learning rate, dropout (None: the encoder's own),
        init_stddev (None: 0.01), precision (None: that of the settings), config (a `MethodConfig` in place of those of
        the settings) and `log`; it returns a dict for JSON: `scores` (by the names of the rows; None with a `failure`
        if training diverged), validation numbers, parameters, seconds, versions.
    """
    import tf_adapters
    from tf_adapters._keras import keras
    from tf_adapters.errors import DivergedError
    from tf_adapters.kinds import get_kind
    from tf_adapters.kinds.kind import Scorer
    from tf_adapters.tasks.metrics import METRICS

    versions = installed_versions("tensorflow", "tf-keras", "transformers", "numpy", "tf_adapters")
    git = git_state()  # now: a commit during the study does not change the code that runs

    def run(task, scored, method, seed, *, learning_rate, dropout=None, init_stddev=None, precision=None, config=None,
            log):  # fmt: skip
        started = time.monotonic()
        keras.backend.clear_session()
        if config is None and method != "full":
            config = tf_adapters.AdapterConfig(
                bottleneck_size=settings["bottleneck"], train_layer_norm=settings["train_layer_norm"],
                init_stddev=0.01 if init_stddev is None else init_stddev,
            )  # fmt: skip
        given = {"epochs": settings["epochs"], "batch_size": settings["batch_size"], "learning_rate": learning_rate}
        experiment = tf_adapters.Experiment(
            model_source, task, settings=tf_adapters.TrainingSettings(**given, dropout=dropout, seed=seed),
            adapter=config, trainable="full" if method == "full" else "adapters", max_length=settings["max_length"],
            precision=precision or settings["precision"], fast=method == "fast",
        )  # fmt: skip
        model, tokenizer = experiment.build()
        about = {"trained_parameters": tf_adapters.parameter_counts(model).trainable, "versions": versions, "git": git}
        epochs = _reporter(METRICS[task.metric].primary, log)
        with tempfile.TemporaryDirectory() as folder, _windows(method == "unsorted"):
            try:
                result = experiment.train(model, tokenizer, f"{folder}/run", reporter=epochs)
            except DivergedError:
                # A rate that is too high is a finding about the grid, not the end of the study.
                return {"scores": None, "failure": f"training diverged after {len(epochs.values)} epochs", **about}
        if result.interrupted:
            raise KeyboardInterrupt
        kind = get_kind(task.kind)
        scorer = Scorer(model, tokenizer, batch_size=settings["batch_size"])
        scores = {name: kind.score(task.metric, rows, kind.predict(scorer, rows)) for name, rows in scored.items()}
        del model, scorer
        gc.collect()
        return {
            "scores": scores, "best_epoch": result.best_epoch, "validation_best": max(epochs.values),
            "validation_accuracies": epochs.values, "seconds": round(time.monotonic() - started, 1),
            "training_seconds": round(result.seconds, 1), **about,
        }  # fmt: skip

    return run


@contextlib.contextmanager
def _windows(unsorted):
    """While it lasts, rows are sorted by length within windows as usual, or within one batch, which is not at all."""
    from tf_adapters.text import batching

    usual = batching._MOST_BATCHES_IN_A_WINDOW
    try:
        batching._MOST_BATCHES_IN_A_WINDOW = 1 if unsorted else usual
        yield
    finally:
        batching._MOST_BATCHES_IN_A_WINDOW = usual


def _reporter(metric, log):
    """A `Reporter` that keeps each epoch's validation number, and shows that a run advances."""
    from tf_adapters.training.run import Reporter

    class Collector(Reporter):
        def __init__(self):
            self.values = []

        def start(self, steps, done):
            self.steps, self.shown = steps, time.monotonic()

        def step(self, done, numbers):
            if time.monotonic() - self.shown > 20:
                self.shown = time.monotonic()
                log(f"  step {done}/{self.steps}, loss {numbers['loss']:.3f}")

        def epoch(self, epoch, numbers, best):
            self.values.append(numbers[metric])
            log(f"  epoch {epoch}: validation {100 * numbers[metric]:.2f} %")

    return Collector()
