"""Runs a study into its folder: what has been measured, and what goes on after a kill."""

import contextlib
import csv
import hashlib
import importlib.util
import io
import json
import math
import os
import re
import time

from tf_adapters._installation import versions
from tf_adapters.errors import NAME, DivergedError, InputError
from tf_adapters.paths import finite, parse_json, read_json, to_path
from tf_adapters.ranges import choices_of
from tf_adapters.saving.atomic import holds_files, only_writer, reason, remove_file, remove_folder, write_text
from tf_adapters.studies.figure import SUMMARY_FILE, write_figure
from tf_adapters.studies.rows import LOADED
from tf_adapters.training.disk import RESUME_FOLDER, read_log, refuse_other

STUDY_FILE = "study.json"
VALUES_FILE = "values.jsonl"
TABLE_FILE = "values.csv"
RUNS_FOLDER = "runs"
MODELS_FOLDER = "models"
LAST_FILE = "last-scores.json"  # of a run, while it is at work


def run(study, output, *, resume=False, overwrite=False, observer=None):
    """Measure what is missing of a study, and write its values, summary and figure.

    Args:
        study: such as `Ablation(directories=("adapters/cola",))`.
        output: path of the study's folder: `values.csv` has each value, `summary.json` what they come to, `NAME.png`
            and `NAME.svg` the figure.
        resume: bool, go on with what the folder holds; more seeds, tasks or rates than before are added to it.
        overwrite: bool, replace the study that the folder holds, once nothing speaks against this one.
        observer: `Observer` or None.

    Returns: the summary, a dict.

    Raises:
        InputError: the folder holds another study, or other files, or another process writes to it; options do not fit
            what is there.
        Stopped: a signal came; `resume` goes on.

    Example:
    >>> from tf_adapters.studies import Ablation
    >>> summary = run(Ablation(directories=("adapters/film",), input="test.csv"), "studies/ablation")
    """
    for package in ("matplotlib", *study.packages):
        if importlib.util.find_spec(package) is None:
            raise InputError(f"The study {study.name} needs the package {package}: run `pip install {package}`.")
    output = to_path(output)
    begun = (output / STUDY_FILE).exists()
    if begun and not (resume or overwrite):
        raise InputError("{output} holds a study: go on with it by {resume}, or give another folder.",
                         output=output, resume=NAME)  # fmt: skip
    if not begun and holds_files(output):
        raise InputError("{output} holds other files than a study: give another folder.", output=output)
    LOADED.clear()  # the files may be others by now
    study.check_inputs()
    with only_writer(output, wait=0):
        if begun and overwrite:
            clear(output, study.name)
        lab = Lab(output, study, resume=resume, observer=observer)
        try:
            study.measure(lab)
        except InputError:
            if not (begun and resume) and not lab.values:
                # Refused before there is anything to go on with: the folder is free again.
                clear(output)
                with contextlib.suppress(OSError):
                    output.rmdir()
            raise
        return lab.finish()


def clear(folder, name=None):
    """Take a study that has just begun out of its folder, or with its name all that it has written."""
    for part in (RUNS_FOLDER, MODELS_FOLDER):
        remove_folder(folder / part)
    written = () if name is None else (VALUES_FILE, TABLE_FILE, SUMMARY_FILE, f"{name}.png", f"{name}.svg")
    for part in (STUDY_FILE, *written):
        remove_file(folder / part)


class Observer:
    """Hears of a study's progress; subclass what is of interest."""

    def value(self, number, total, text, left):
        """Value `number` of `total` (None if that is not known) is measured next: `text` says which, `left` is an
        estimate of the seconds that all take from now, or None."""

    def training(self, epochs, period=None):
        """The `Reporter` of a run that is about to train, or None; it is measured each epoch, or every `period`
        steps."""

    def counting(self, description, total, unit):
        """A context that gives a function to call with what is done since its last call."""
        return contextlib.nullcontext(lambda count: None)


class Stopped(Exception):
    """A signal ended a run; what is measured is kept, and the run goes on where it stopped."""


class Lab:
    """Keeps what a study measures, each value in one stroke, and trains; arguments as of `run`.

    Raises:
        InputError: the folder holds another study, or one with other options.

    Attributes:
        total: int, how many values there will be, so that progress can be told; None if that is not known.
        values: list of dicts, those that there are.
    """

    def __init__(self, folder, study, *, resume=False, observer=None):
        self.folder, self.study, self.observer = to_path(folder), study, observer or Observer()
        self.values, self.number, self.total = [], 0, None
        self.seconds, self.measured = 0.0, 0
        settings = study.settings()
        path = self.folder / STUDY_FILE
        if resume and path.exists():
            held = read_json(path, "start anew with {overwrite}", overwrite=NAME)
            fixed = {name: settings[name] for name, about in choices_of(type(study)).items() if not about.extends}
            before = {"study": held.get("study"), **held["settings"]}
            refuse_other(self.folder, "values", before, {"study": study.name, **fixed})
            self.values = read_values(self.folder)
        write_text(path, json.dumps({"study": study.name, "settings": settings}, indent=1) + "\n")

    def find(self, identity):
        """The newest value with this identity, a dict of what identifies it and what was measured, or None."""
        for value in reversed(self.values):
            if all(value.get(name) == wanted for name, wanted in identity.items()):
                return value
        return None

    def value(self, identity, measure, about=None):
        """What identifies a value beside what was measured: kept from before, or measured now and kept.

        Args:
            identity: dict for JSON.
            measure: function of nothing that returns a dict for JSON; numbers that are not finite become None.
            about: dict for JSON of what is measured, without which a value from before is none; or None.
        """
        self.number += 1
        found, about = self.find(identity), about or {}
        if found is not None and about.items() <= found.items():
            return found
        left = None
        if self.measured and self.total is not None:
            left = self.seconds / self.measured * (self.total - self.number + 1)
        self.observer.value(self.number, self.total, describe(identity), left)
        started = time.monotonic()
        line = json.dumps(finite({**identity, **about, **measure()}), allow_nan=False)
        path = self.folder / VALUES_FILE
        try:
            with open(path, "a", encoding="utf-8") as file:
                file.write(line + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise InputError(f"{path} cannot be written: {reason(error)}.") from None
        self.values.append(parse_json(line))
        self.seconds += time.monotonic() - started
        self.measured += 1
        return self.values[-1]

    def train(self, identity, experiment, *, seed=None, scored=(), keep=False):
        """Train, and score rows by the best epoch and by the last; a dict for `value`.

        Args:
            identity: dict, which names the run's folder.
            experiment: `Experiment`.
            seed: as of `Experiment.build`.
            scored: dict from a name to labelled `Rows`.
            keep: bool, whether the adapter directory stays, as `model_of(identity)`.

        Returns: dict with `scores` and `last_scores` (by the names of the rows, None where training diverged, with a
            `failure`), `validation` (of each epoch), `best_epoch`, `trained_parameters`, `trained_pooler` (how many of
            them are the pooler's) and `seconds`.
        """
        import gc

        from tf_adapters._keras import keras
        from tf_adapters.models.trainable import parameter_counts
        from tf_adapters.training.run import Reporter

        folder = self.folder / RUNS_FOLDER / slug(identity)
        going_on = (folder / RESUME_FOLDER).is_dir()
        if not going_on:
            remove_folder(folder)
        keras.backend.clear_session()
        gc.collect()  # the model of the run before
        model, tokenizer = experiment.build(seed)
        about = {"trained_parameters": parameter_counts(model).trainable, "trained_pooler": pooler_parameters(model)}

        def score():
            return {name: experiment.score_rows(model, tokenizer, rows, seed=seed) for name, rows in scored.items()}

        reporter = self.observer.training(experiment.settings.epochs, experiment.settings.period) or Reporter()
        last, scored = LastEpoch(reporter, score, folder / LAST_FILE), dict(scored)
        try:
            about_run = {"resume": going_on, "reporter": last, "keep_state": True}
            result = experiment.train(model, tokenizer, folder, seed=seed, **about_run)
        except DivergedError as error:
            # A rate that is too high is a finding, not the end of the study.
            remove_folder(folder)
            return {"scores": None, "failure": str(error).partition(". ")[0] + ".", **about}
        except InputError as error:
            if "period" not in error.values:
                raise
            template = error.template.replace("{period}", "{every}")  # as the studies call it
            raise InputError(template, every=error.values["period"]) from None
        if result.interrupted:
            raise Stopped
        log, scores, prefix = read_log(folder), score(), "validation_"
        if result.best_epoch == len(log):
            last.scores = scores
        elif last.scores is None:
            # Killed between the last epoch and its scores: there is nothing left to score.
            remove_folder(folder)
            return self.train(identity, experiment, seed=seed, scored=scored, keep=keep)
        if keep:
            kept = self.model_of(identity)
            remove_folder(kept)
            remove_folder(folder / RESUME_FOLDER)
            remove_file(folder / LAST_FILE)
            try:
                kept.parent.mkdir(parents=True, exist_ok=True)
                os.replace(folder, kept)
            except OSError as error:
                raise InputError(f"{kept} cannot be written: {reason(error)}.") from None
        else:
            remove_folder(folder)
        return {
            "scores": scores,
            "last_scores": last.scores,
            "validation": [
                {name[len(prefix) :]: value for name, value in row.items() if name.startswith(prefix)} for row in log
            ],
            "training_loss": [row["training_loss"] for row in log],
            "best_epoch": result.best_epoch,
            "seconds": round(result.seconds, 1),
            **about,
        }

    def model_of(self, identity):
        """The adapter directory that `train` kept."""
        return self.folder / MODELS_FOLDER / slug(identity)

    def finish(self):
        """Write the table, the summary and the figure of what is measured; the summary, a dict."""
        remove_folder(self.folder / RUNS_FOLDER)
        if not any((self.folder / MODELS_FOLDER).glob("*")):
            remove_folder(self.folder / MODELS_FOLDER)
        write_table(self.folder / TABLE_FILE, self.values)
        summary = self.study.summarise(self.values)
        document = {
            "study": self.study.name, "figures": self.study.figures, "settings": self.study.settings(),
            "changed": self.study.changes(), "summary": summary, "values": len(self.values), "versions": versions(),
        }  # fmt: skip
        write_text(self.folder / SUMMARY_FILE, json.dumps(finite(document), indent=1, allow_nan=False) + "\n")
        write_figure(self.study, summary, self.folder)
        return summary


class LastEpoch:
    """A run's `reporter` that keeps what `score()` gives after the last epoch, in a JSON file for the run that goes on,
    unless that is the best one, whose model `fit` returns."""

    def __init__(self, reporter, score, file):
        self.reporter, self.score, self.file = reporter, score, file
        self.scores = read_json(file, "start anew with {overwrite}", overwrite=NAME) if file.exists() else None

    def __getattr__(self, name):
        return getattr(self.reporter, name)

    def start(self, steps, done):
        self.steps = steps
        self.reporter.start(steps, done)

    def step(self, done, numbers):
        self.done = done
        self.reporter.step(done, numbers)

    def epoch(self, epoch, numbers, best):
        if self.done == self.steps and not best:
            self.scores = self.score()
            write_text(self.file, json.dumps(self.scores))
        self.reporter.epoch(epoch, numbers, best)


def pooler_parameters(model):
    """How many parameters of the encoder's pooler train, an int."""
    from tf_adapters.models.state import state_of

    pooler = state_of(model).family.pooler(model)
    trains = {id(variable) for variable in model.trainable_variables}
    weights = pooler.weights if pooler is not None else ()
    return sum(math.prod(variable.shape) for variable in weights if id(variable) in trains)


def describe(identity):
    """What identifies a value, in words."""
    words = []
    for name, value in identity.items():
        if name in ("measured", "task", "arm"):
            words += [] if value in ("run", *words) else [str(value)]
        else:
            words.append(f"{name.replace('_', ' ')} {f'{value:g}' if isinstance(value, float) else value}")
    return ", ".join(words)


def slug(identity):
    """A name for a folder, of what identifies a value."""
    text = json.dumps(identity, sort_keys=True)
    words = re.sub(r"[^A-Za-z0-9.]+", "-", "-".join(map(str, identity.values()))).strip("-.")[:60]
    return f"{words}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def read_values(folder):
    """The measured values of a folder, a list of dicts; a line that a killed writer left half is cut off."""
    path = to_path(folder) / VALUES_FILE
    if not path.exists():
        return []
    text = path.read_bytes()
    complete = text[: text.rfind(b"\n") + 1]
    if complete != text:
        os.truncate(path, len(complete))
    try:
        return [parse_json(line) for line in complete.decode().splitlines()]
    except ValueError:
        raise InputError(f"{path} is damaged: start anew with {{overwrite}}.", overwrite=NAME) from None


def write_table(path, values):
    """Write values as CSV, a column for each number and word; lists and dicts within are flattened by their names."""
    rows = [dict(_flat(value)) for value in values]
    names = dict.fromkeys(name for row in rows for name in row)
    text = io.StringIO()
    writer = csv.DictWriter(text, names, restval="")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())


def _flat(value, prefix=""):
    for name, part in value.items() if isinstance(value, dict) else enumerate(value, start=1):
        name = f"{prefix}{name}"
        if isinstance(part, (dict, list)):
            yield from _flat(part, f"{name}.")
        else:
            yield name, part
