"""What the studies of accuracy share: options, the runs that are missing, the choice among them, the result."""

import argparse
import dataclasses
import json
import os
import pathlib
import statistics
import sys

from benchmarks.result import log, provenance, with_link
from benchmarks.studies.training_runs import held_out_of_train, make_run
from tf_adapters.studies.numbers import constant_score

# Of a task without a labelled test split, at most a fifth of the training rows chooses the epoch.
VALIDATION_SHARE = 5
_OPTIONS = {
    "data_dir": {"required": True, "help": "folder that holds the tasks' files in its folders"},
    "task": {"help": "a name, as `tf-adapters tasks` lists"},
    "tasks": {"nargs": "+", "metavar": "TASK", "help": "names, as `tf-adapters tasks` lists"},
    "model": {"default": "minilm", "help": "minilm, a checkpoint directory, or a hub id"},
    "rows": {"type": int, "default": 2000, "help": "at most this many training rows, sampled by the seed"},
    "validation_rows": {"type": int, "default": 500, "help": "at most this many rows choose the epoch, and the rate"},
    "epochs": {"type": int, "default": 3},
    "batch_size": {"type": int, "default": 16},
    "bottleneck": {"type": int, "default": 64, "help": "units of an adapter"},
    "train_layer_norm": {"default": "all", "help": "none, adapted, encoder or all"},
    "learning_rates": {"type": float, "nargs": "+", "default": [3e-4, 1e-3, 3e-3]},
    "max_length": {"type": int, "default": 128, "help": "tokens kept of a text"},
    "seeds": {"type": int, "nargs": "+", "default": [0, 1, 2], "help": "what there is to choose is run at the first"},
    "precision": {"choices": ("float32", "mixed_bfloat16"), "default": "float32"},
    "output": {"type": pathlib.Path, "help": "folder"},
}  # fmt: skip


def parser(description, names, **defaults):
    """A parser of the options of these names, a str, with these defaults in place of the usual ones."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    for name in names.split():
        own = {"default": defaults[name]} if name in defaults else {}
        made.add_argument(f"--{name.replace('_', '-')}", **{**_OPTIONS[name], **own})
    if "seeds" in names.split():
        made.description += " Each finished run is a line of runs.jsonl; a killed command goes on when it is repeated."
    return made


def settings_of(options, names):
    """What a run must equal to count as one of this study: the model's name and these options, a str of names."""
    return {"model": pathlib.Path(options.model).name, **{name: getattr(options, name) for name in names.split()}}


def conduct(runs, settings, tasks, arms, seeds, train, *, finalists=1, passed_over=None, log=log):
    """Do the runs that are missing, seed by seed, so that a stopped study has every task.

    All points of an arm are run at the first seed. The validation rows, which the reported rows have no part in,
    choose those that are run at the others, and of these the one with the best mean over the seeds.

    Args:
        runs: `Runs`.
        settings: dict that a run must equal, beside the task, to count as this study's.
        arms: dict from a method to its points, dicts of the values that tell its runs apart.
        train: function of a task's name and what identifies the run (method, point and seed) that returns a dict.
        finalists: int, how many points of an arm are run at every seed.
        passed_over: dict that is told why a task's files cannot be read; without it that ends the study, and so does
            an arm that diverges at every point.

    Returns: dict from task to a dict from method to its runs at the best point, in the order of the seeds.
    """
    total = len(tasks) * sum(len(points) + min(finalists, len(points)) * (len(seeds) - 1) for points in arms.values())
    count, found = 0, {task: {method: [] for method in arms} for task in tasks}

    def get(task, method, point, seed):
        nonlocal count
        count += 1
        of_task, identity = {**settings, "task": task}, {"method": method, **point, "seed": seed}
        run = runs.find(of_task, identity)
        if run is None:
            log(f"run {count}/{total}: {task}, {method}, {describe_point(point)}, seed {seed} ...")
            run = {**train(task, identity), **identity, "settings": of_task}
            runs.add(run)
        return run

    def advance(task, method, points, seed):
        candidates = found[task][method]
        for candidate in candidates:
            candidate.append(get(task, method, {name: candidate[0].get(name) for name in points[0]}, seed))
        if seed == seeds[0]:
            first = rank([get(task, method, point, seed) for point in points])
            if diverged(first[0]) and passed_over is None:
                raise RuntimeError(f"{method} diverged on {task} at every learning rate: give lower ones.")
            candidates += [[run] for run in first[:finalists] if run is first[0] or not diverged(run)]

    for seed in seeds:
        for task in tasks:
            try:
                for method, points in arms.items():
                    if task not in (passed_over or ()):
                        advance(task, method, points, seed)
            except Missing as error:
                if passed_over is None:
                    raise RuntimeError(f"{task}: {error}") from error
                log(f"{task}: passed over: {error}")
                passed_over[task] = str(error)
    # Of equal means the one that the first seed prefers.
    return {
        task: {method: max(candidates, key=mean_validation) for method, candidates in of_task.items() if candidates}
        for task, of_task in found.items()
    }


def diverged(run):
    """Whether a run's training diverged, which is a finding about its learning rate."""
    return run.get("validation_best") is None


def rank(runs):
    """Runs of one seed, the best by validation first, of equal ones the smallest rate; diverged ones are last."""
    return sorted(runs, key=lambda run: (diverged(run), -(run.get("validation_best") or 0.0), run["learning_rate"]))


def mean_validation(runs):
    """The mean over the seeds, less than any other where one diverged."""
    return -1.0 if any(map(diverged, runs)) else statistics.fmean(run["validation_best"] for run in runs)


def check_finished(what, runs):
    """RuntimeError if one of the runs of `what` at its best point diverged."""
    failed = [run["seed"] for run in runs if diverged(run)]
    if failed:
        raise RuntimeError(f"{what} diverged at its best learning rate with seed {failed[0]}: give lower rates.")


def describe_point(point):
    """A point's values in words."""
    numbers = {name: value for name, value in point.items() if isinstance(value, (int, float))}
    return ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in numbers.items())


class Missing(Exception):
    """A task's files cannot be read."""


class Trainer:
    """Trains and scores one run; loads TensorFlow, the vocabulary and a task when a run needs them.

    Args:
        split: function of a task, the settings and a seed: the task at the study's budget, and the labelled rows to
            score, by name.
        lengths: dict from a kind of tasks to the tokens kept of its texts, in place of the settings'.
        others: dict from a task to further ones whose test split is scored by the same model (zero-shot).
    """

    def __init__(self, options, settings, *, split=None, lengths=None, others=None):
        self.options, self.settings, self.split = options, settings, split or prepare
        self.lengths, self.others = lengths or {}, others or {}
        self.name = None

    def load(self, name):
        """The task; only the last one stays in memory."""
        import tf_adapters
        from tf_adapters.tasks.registry import load_split

        if name != self.name:
            where = {"data_dir": self.options.data_dir}
            try:
                self.task = tf_adapters.load_task(name, **where)
                self.zero_shot = {other: load_split(other, "test", **where).rows for other in self.others.get(name, ())}
            except tf_adapters.InputError as error:
                raise Missing(str(error)) from error
            length = self.lengths.get(self.task.kind, self.settings["max_length"])
            self.run, self.name = make_run({**self.settings, "max_length": length}, self.options.model), name
        return self.task

    def __call__(self, name, identity, **others):
        """One run's results; `others` goes to the function of `make_run` beside the run's identity, or in its place."""
        from tf_adapters.tasks.metrics import METRICS

        task = self.load(name)
        data, scored = self.split(task, self.settings, identity["seed"])
        done = self.run(data, {**scored, **self.zero_shot}, **{**identity, **others}, log=log)
        metric, scores, reported = METRICS[task.metric].primary, done["scores"], scored["reported"]
        primary = scores and {name: numbers[metric] for name, numbers in scores.items()}
        shown = [f"{name} {100 * value:.1f} %" for name, value in primary.items()] if scores else [done["failure"]]
        log(f"  {', '.join(shown)}")
        return {
            **done, "metric": metric, "train_rows": len(data.train), "reported_rows": len(reported),
            "constant": constant_score(task, reported), "primary": primary,
        }  # fmt: skip


def prepare(task, settings, seed):
    """The task at the study's budget, and the labelled rows to report on: those of the test split, if it has labels,
    and validation chooses the epoch; otherwise those of validation, and rows drawn from the training split choose."""
    from tf_adapters.tasks.rows import sample_rows

    if task.test is not None and task.test.labels is not None:
        train = sample_rows(task.train, count=settings["rows"], seed=seed)
        validation = sample_rows(task.validation, count=settings["validation_rows"], seed=seed)
        return dataclasses.replace(task, train=train, validation=validation, test=None), {"reported": task.test}
    held_out = min(settings["validation_rows"], len(task.train) // VALIDATION_SHARE)
    data, reported, _ = held_out_of_train(task, min(settings["rows"], len(task.train) - held_out), held_out, seed)
    return data, {"reported": reported}


def finish(kind, folder, outcome, describe, *, kept=True):
    """Print what a study comes to, and write it to `summary.json`; a stop or a failure ends the command. `outcome` does
    the runs, and returns a run, whose versions and commit count, and a dict for JSON."""
    try:
        run, summary = outcome()
    except KeyboardInterrupt:
        log("Stopped; the finished runs are kept, and the same command goes on.")
        sys.exit(130)
    except RuntimeError as error:
        sys.exit(str(error))
    # The runs may be older than this command.
    document = {"kind": kind, **provenance(), **summary, "versions": run["versions"], "git": run["git"]}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.json").write_text(json.dumps(document, indent=1) + "\n")
    print(describe(with_link(document, folder / "summary.json")))
    if kept:
        print(f"Written to {os.path.relpath(folder)}/summary.json")
