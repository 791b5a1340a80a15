"""What a run leaves in its output directory: the names, its state, left-overs, and the list of several seeds.

Nothing here loads TensorFlow.
"""

import csv
import json
import os
import pathlib
import re
import shutil

import numpy as np

from tf_adapters.errors import NAME, InputError
from tf_adapters.paths import check_readable, parse_json, read_json, to_path
from tf_adapters.saving.atomic import (
    only_writer,
    remove_dead,
    remove_file,
    remove_folder,
    replacing,
    write_safetensors,
    write_text,
)
from tf_adapters.saving.settings import SETTINGS_FILE
from tf_adapters.tasks.analysis import summary_of_seeds

RESUME_FOLDER = ".resume"
STATE_FILE = "state.safetensors"  # in that folder
LOG_FILE = "log.csv"
TENSORBOARD = "tensorboard"  # a folder
SEEDS_FILE = "seeds.json"
HEAD_FOLDER = "head"


class ResumeFile:
    """Saves and restores every variable that a training step reads or changes, a dict from a group's name to its list.

    The lists are the same, in the same order, in the run that saves and in the one that restores. Of several processes
    the one that `writes` does; the others read their variables with it.
    """

    def __init__(self, path, variables, *, writes=True):
        self.path, self.writes = pathlib.Path(path), writes
        self._variables = {
            f"{group}.{index}": variable
            for group, members in variables.items()
            for index, variable in enumerate(members)
        }

    def save(self, info):
        """Write the variables and `info`, a dict that JSON can hold."""
        arrays = {name: np.asarray(variable.numpy()) for name, variable in self._variables.items()}
        if self.writes:
            write_safetensors(self.path, arrays, metadata={"info": json.dumps(info)})

    def restore(self):
        """Assign the variables; the `info` of the run that saved. InputError as `read_info`, or if the file belongs to
        a run with other variables."""
        from safetensors.numpy import load_file

        info = read_info(self.path)
        arrays = load_file(self.path)
        if {name: array.shape for name, array in arrays.items()} != {
            name: tuple(variable.shape) for name, variable in self._variables.items()
        }:
            raise InputError(f"{self.path} belongs to another run: start anew with {{overwrite}}.", overwrite=NAME)
        for name, variable in self._variables.items():
            variable.assign(arrays[name])
        return info


def read_log(output):
    """The rows of a run's `log.csv`, dicts of floats; none if there is no such file."""
    if not (output / LOG_FILE).exists():
        return []
    with open(output / LOG_FILE, newline="", encoding="utf-8") as file:
        return [{name: float(value) for name, value in row.items() if value} for row in csv.DictReader(file)]


def refuse_other(output, held, before, now):
    """Raise InputError if what is there (`held`: "a run", "a search") was made with other settings than what is to go
    on with it, of which those count that both have."""
    for name, value in json.loads(json.dumps(now)).items():
        known = before.get(name, value)
        if known != value:
            raise InputError(
                f"{output} holds {held} with another {name} ({known!r}, now {value!r}): resume with the same "
                "arguments, or start anew with {overwrite}.",
                overwrite=NAME,
            )


def read_info(path):
    """The `info` of a saved run, without its variables; InputError if there is no such file, or it is damaged."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="np") as file:
            return parse_json(file.metadata()["info"])
    except FileNotFoundError:
        if os.path.exists(path):
            check_readable(path)
        raise InputError(f"{path}: there is no run to resume; start it without {{resume}}.", resume=NAME) from None
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is damaged ({error}): start anew with {{overwrite}}.", overwrite=NAME) from None


def discard_seeds(output):
    """Remove the list and the folders of an interrupted run of several seeds, if there is one."""
    # The list first: folders without it are left-overs, the list without its folders would be a broken run.
    remove_file(output / SEEDS_FILE)
    for folder in output.glob(".seed-*"):
        if re.fullmatch(r"\.seed-\d+", folder.name):
            remove_folder(folder)


def remove_leftovers(output):
    """Remove what a run that ended was about to remove when it was killed."""
    remove_dead(output)
    if not (output / SEEDS_FILE).exists():
        discard_seeds(output)


def clear(output):
    """Remove all that is in a directory; killed meanwhile, `is_to_be_cleared` says so."""
    marker = output / RESUME_FOLDER
    try:
        with only_writer(output, wait=0):
            remove_folder(marker)
            marker.mkdir(parents=True)
            # What says that there is an adapter first, and each folder in one stroke: what is left is whole.
            for path in sorted(output.iterdir(), key=lambda path: path.name != SETTINGS_FILE):
                if path != marker:
                    _remove(path)
            marker.rmdir()
    except OSError as error:
        raise InputError(f"{output} cannot be cleared: {error.strerror}.") from None


def is_to_be_cleared(output):
    """Whether a run's folder is there without its state: it was killed while what was there before was removed, or
    right before its first step."""
    return (output / RESUME_FOLDER).is_dir() and not (output / RESUME_FOLDER / STATE_FILE).exists()


def _remove(path):
    remove_folder(path) if path.is_dir() and not path.is_symlink() else path.unlink()


class SeedRuns:
    """Results of the seeds that are done, in `output/seeds.json`, and the folders of the seeds.

    Each seed trains in a folder of its own below `output`, so that a run that was killed
    goes on with the seed at work; `finish` keeps the best one's adapter.

    Args:
        output: path of the adapter directory to be.
        metric: str, the number that is compared, such as "accuracy".
        settings: dict for JSON, what all seeds have in common.
        resume: bool, go on with what is there.

    Raises:
        InputError: what is there was made with other settings.
    """

    def __init__(self, output, *, metric, settings, resume):
        self.output = to_path(output)
        self.metric = metric
        self.settings = json.loads(json.dumps(settings))
        self.path = self.output / SEEDS_FILE
        self.runs = []
        if resume and self.path.exists():
            content = read_json(self.path, "start anew with {overwrite}", overwrite=NAME)
            refuse_other(self.output, "seeds of a run", content["settings"], self.settings)
            self.runs = content["runs"]
            return
        if not resume:
            discard_seeds(self.output)
            remove_folder(self.output / TENSORBOARD)
        # Before the first seed's folder, which is a left-over without it.
        self._write()

    def folder(self, seed):
        """Where a seed trains."""
        return self.output / f".seed-{seed}"

    def done(self, seed):
        """Whether a seed has its result."""
        return any(run["seed"] == seed for run in self.runs)

    def add(self, seed, *, best_epoch, seconds, validation, test):
        """Keep the result of a seed; `validation` and `test` (or None) are values of the metric."""
        run = {"seed": seed, "best_epoch": best_epoch, "seconds": seconds, "validation": validation}
        self.runs.append(run if test is None else {**run, "test": test})
        self._write()

    def best(self):
        """The run with the best validation, of equal ones the first."""
        return max(self.runs, key=lambda run: run["validation"])

    def summary(self):
        """Dict from "validation" and "test" (if every run has it) to mean, sd, sem and n."""
        splits = [split for split in ("validation", "test") if all(split in run for run in self.runs)]
        return {split: summary_of_seeds([run[split] for run in self.runs]) for split in splits}

    def finish(self):
        """Make the best seed's adapter the directory's content, with all results; the other seeds' go."""
        from tf_adapters.saving.directory import copy_adapter

        content = {"metric": self.metric, "runs": self.runs, "summary": self.summary()}
        best = self.folder(self.best()["seed"])
        copy_adapter(best, self.output, seeds=content)
        with replacing(self.output / LOG_FILE) as temporary:
            shutil.copyfile(best / LOG_FILE, temporary)
        if (best / TENSORBOARD).is_dir():
            remove_folder(self.output / TENSORBOARD)
            os.replace(best / TENSORBOARD, self.output / TENSORBOARD)
        discard_seeds(self.output)

    def _write(self):
        write_text(self.path, json.dumps({"settings": self.settings, "runs": self.runs}, indent=1) + "\n")
