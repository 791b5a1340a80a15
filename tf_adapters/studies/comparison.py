"""Studies that compare ways of training on tasks: options, arms, the choice of a rate, and the summary."""

import dataclasses
import math
import statistics
from typing import ClassVar, Optional, Tuple

from tf_adapters.errors import InputError
from tf_adapters.paths import to_path
from tf_adapters.ranges import RANGES, Whole
from tf_adapters.studies.baselines import BASELINES, train_baseline
from tf_adapters.studies.study import Study, option

# Of a task without a labelled test split, at most a fifth of the training rows chooses the epoch.
VALIDATION_SHARE = 5
RATE = RANGES["learning_rate"]
ADAPTER_RATES = (1e-4, 3e-4, 1e-3)
FULL_RATES = (2e-5, 5e-5, 1e-4)


@dataclasses.dataclass(frozen=True)
class Arm:
    """One of the ways of training that a study compares.

    Attributes:
        title: str, for tables and figures.
        trainable: str, as in `set_trainable`, or the name of one of `BASELINES`, which fine-tune nothing.
        adapter: dict of the adapter's fields that are other than the study's, or None without adapters.
        settings: dict of the run's that are other than the study's, by the fields of `TrainingSettings`.
        head_layers: int, as in `Recipe`.
        rates: the learning rates that are tried, or None for the study's.
    """

    title: str
    trainable: str = "adapters"
    adapter: Optional[dict] = dataclasses.field(default_factory=dict)
    settings: dict = dataclasses.field(default_factory=dict)
    head_layers: int = 1
    rates: Optional[Tuple[float, ...]] = None

    @property
    def is_adapters(self):
        """Whether adapters train, whose rates are other ones."""
        return self.trainable in ("adapters", "layer-norm", "head", "bias")


@dataclasses.dataclass(frozen=True)
class Comparison(Study):
    """Base of the studies that train arms on tasks.

    Where a task's test split has labels it is reported, and its validation rows choose the epoch and the rate;
    otherwise its validation rows are reported, and rows of the training split, drawn by the seed, choose. All rates of
    an arm are run at the first seed, and the best by those rows at the others.
    """

    tasks: Tuple[str, ...] = option(
        ("rotten-tomatoes",),
        "Names of tasks, as `tf-adapters tasks` lists, or folders with `train.csv`, `validation.csv` and perhaps "
        "`test.csv` (`.tsv`, `.jsonl`), whose columns are `text` and `label`.",
        of=str,
        extends=True,
    )
    data_dir: Optional[str] = option(None, "Folder with the tasks' files.", extends=True)
    model: str = option("minilm", "Pretrained encoder: `minilm`, a directory, or an id on the HuggingFace hub.")
    rows: Optional[int] = option(
        None, "At most this many training rows, drawn by the seed. Default: all.", smoke=32, range=Whole()
    )
    validation_rows: int = option(
        1000, "At most this many rows choose the epoch and the rate.", smoke=16, range=Whole()
    )
    reported_rows: Optional[int] = option(
        None, "At most this many rows are reported on, drawn by the seed 0. Default: all.", smoke=16, range=Whole()
    )
    epochs: int = option(10, "Passes over the training rows.", smoke=1)
    batch_size: int = option(32, "Rows per step.", smoke=8)
    max_length: int = option(128, "Tokens kept of a text.", smoke=16)
    dropout: Optional[float] = option(None, "Dropout of encoder and head. Default: the encoder's own, 0.1 of BERT.")
    learning_rates: Tuple[float, ...] = option(
        ADAPTER_RATES,
        "Rates that are tried of adapters, LayerNorms and heads.",
        of=float,
        smoke=(1e-3,),
        extends=True,
        range=RATE,
    )
    full_learning_rates: Tuple[float, ...] = option(
        FULL_RATES,
        "Rates that are tried of full and top-N fine-tuning.",
        of=float,
        smoke=(1e-4,),
        extends=True,
        range=RATE,
    )
    seeds: int = option(3, "Trainings at the best rate, with the seeds from 0 on.", smoke=2, extends=True)
    fast: bool = option(False, "Fast blocks for adapters: the same numbers but for rounding.")
    precision: str = option("float32", "`float32`, `mixed_bfloat16` or `mixed_float16`.")

    # Fields of the adapter that all arms have.
    adapter: ClassVar[dict] = {"bottleneck_size": 64, "init_stddev": 1e-2, "train_layer_norm": "all"}

    def check(self):
        if not self.tasks:
            raise InputError("{tasks} is empty: name a task at least.", tasks=list(self.tasks))
        for name in ("learning_rates", "full_learning_rates"):
            if not getattr(self, name):
                raise InputError(f"{{{name}}} is empty: give a rate at least.", **{name: []})

    def arms(self):
        """The `Arm`s by name, a dict."""
        raise NotImplementedError

    def points(self, arm):
        """What is tried of an arm, a list of dicts that identify: its rates."""
        rates = arm.rates or (self.learning_rates if arm.is_adapters else self.full_learning_rates)
        return [{"learning_rate": rate} for rate in rates]

    def check_tasks(self):
        """Raise InputError for a task that cannot be read, or is not for this study, before anything trains."""
        for name in self.tasks:
            self.check_task(load(name, self.data_dir))

    def check_task(self, task):
        """Raise InputError for a `Task` that this study is not for."""

    def measure(self, lab):
        self.check_tasks()
        arms = self.arms()
        lab.expect(len(self.tasks) * sum(len(points) + self.seeds - 1 for points in map(self.points, arms.values())))
        for seed in range(self.seeds):
            for task in self.tasks:
                for name, arm in arms.items():
                    self.run_arm(lab, task, name, arm, seed)

    def run_arm(self, lab, task, name, arm, seed):
        """The runs of an arm on a task with one seed: all points with the first, otherwise the best one."""
        points = self.points(arm)
        if seed:
            runs = [lab.find(identity_of(task, name, point, 0)) for point in points]
            best = rank(runs)[0]
            if is_failed(best):
                return
            points = [points[runs.index(best)]]
        for point in points:
            identity = identity_of(task, name, point, seed)
            lab.value(identity, lambda identity=identity: self.train(lab, task, arm, identity))

    def train(self, lab, task, arm, identity, *, keep=False, **others):
        """One run; a dict for `Lab.value`."""
        if arm.trainable in BASELINES:
            data, reported = self.rows_of(identity)
            done = train_baseline(
                arm.trainable, data, reported, seed=identity["seed"], learning_rate=identity["learning_rate"],
                batch_size=self.batch_size, source=self.model, max_length=self.max_length,
            )  # fmt: skip
            return {**done, **about_rows(data, reported)}
        experiment, reported, data = self.experiment(lab, task, arm, identity, **others)
        done = lab.train(identity, experiment, seed=identity["seed"], scored={"reported": reported}, keep=keep)
        return {**done, **about_rows(data, reported)}

    def experiment(self, lab, task, arm, identity, **others):
        """The `Experiment` of a run in the folder of a `Lab`, the rows that are reported, and the `Task`."""
        from tf_adapters.config import MethodConfig
        from tf_adapters.methods import AdapterConfig
        from tf_adapters.recipes import get_recipe
        from tf_adapters.training.experiment import Experiment
        from tf_adapters.training.settings import TrainingSettings

        data, reported = self.rows_of(identity)
        recipe = dataclasses.replace(
            get_recipe("default"), name="study", head_layers=arm.head_layers, dropout=self.dropout
        )
        adapter = arm.adapter
        if not isinstance(adapter, MethodConfig):
            adapter = AdapterConfig(**{**self.adapter, **(adapter or {}), **self.adapter_of(identity)})
        settings = {
            "epochs": self.epochs, "batch_size": self.batch_size, "learning_rate": identity["learning_rate"],
            "dropout": self.dropout, **arm.settings, **others,
        }  # fmt: skip
        experiment = Experiment(
            self.model, data, recipe, TrainingSettings(**settings, seed=identity["seed"]), adapter=adapter,
            trainable=arm.trainable, max_length=self.max_length, precision=self.precision,
            fast=self.fast and arm.trainable == "adapters",
        )  # fmt: skip
        return experiment, reported, data

    def adapter_of(self, identity):
        """Fields of the adapter that a run's identity decides, a dict."""
        return {}

    def rows_of(self, identity):
        """The `Task` that a run trains on, and the labelled rows to report."""
        return held_out(
            load(identity["task"], self.data_dir), rows=self.rows, validation_rows=self.validation_rows,
            reported_rows=self.reported_rows, seed=identity["seed"],
        )  # fmt: skip

    def best_runs(self, values):
        """Dict from task to a dict from arm to its runs at the best point, in the order of the seeds."""
        found = {}
        for task in self.tasks:
            found[task] = {}
            for name, arm in self.arms().items():
                wanted = identity_of(task, name, {}, None)
                runs = [
                    value for value in values if all(value[key] == wanted[key] for key in ("measured", "task", "arm"))
                ]
                first = [run for run in runs if run["seed"] == 0]
                if not first:
                    continue
                best = rank(first)[0]
                names = [key for key in self.points(arm)[0]]
                chosen = {run["seed"]: run for run in runs if all(run[key] == best[key] for key in names)}
                found[task][name] = [chosen[seed] for seed in range(self.seeds) if seed in chosen]
        return found

    def summarise(self, values):
        summary = {"tasks": {}}
        arms = self.arms()
        for task, by_arm in self.best_runs(values).items():
            rows = {}
            for name, runs in by_arm.items():
                finished = [run for run in runs if not is_failed(run)]
                rates = [point["learning_rate"] for point in self.points(arms[name])]
                rows[name] = {
                    "title": arms[name].title,
                    "learning_rate": runs[0]["learning_rate"],
                    "at_edge": at_edge(runs[0]["learning_rate"], rates),
                    "failed": len(runs) - len(finished),
                    "trained_parameters": runs[0]["trained_parameters"],
                    **spread([score_of(run) for run in finished]),
                }
            if rows:
                some = next(iter(by_arm.values()))[0]
                summary["tasks"][task] = {
                    **{name: some[name] for name in ("metric", "constant", "train_rows", "reported_rows")},
                    "arms": rows,
                }
        return summary

    def table(self, summary):
        columns = ["task", "arm", "trained", "rate", "score", "sd", "seeds"]
        rows = []
        for task, about in summary["tasks"].items():
            for row in about["arms"].values():
                rate = f"{row['learning_rate']:g}{' (edge)' if row['at_edge'] else ''}"
                rows.append(
                    [f"{task}, {about['metric']}", row["title"], f"{row['trained_parameters']:,}", rate]
                    + [percent(row["mean"]), percent(row["sd"]), str(row["n"])]
                )
            if about["constant"] is not None:
                rows.append(
                    [f"{task}, {about['metric']}", "constant answer", "", "", percent(about["constant"]), "", ""]
                )
        return columns, rows


def identity_of(task, arm, point, seed):
    """What identifies a run among a study's values, a dict."""
    return {"measured": "run", "task": task, "arm": arm, **point, "seed": seed}


_TASKS = {}


def load(name, data_dir):
    """A task by its name, or of the files in a folder; the latest stays in memory."""
    if (name, data_dir) not in _TASKS:
        _TASKS.clear()
        _TASKS[name, data_dir] = _read(name, data_dir)
    return _TASKS[name, data_dir]


def _read(name, data_dir):
    from tf_adapters.tasks.own_files import task_from_files
    from tf_adapters.tasks.registry import load_task

    folder = to_path(name)
    if not folder.is_dir():
        return load_task(name, data_dir=data_dir)
    files = {}
    for split in ("train", "validation", "test"):
        found = sorted(path for path in folder.glob(f"{split}.*") if path.suffix in (".csv", ".tsv", ".jsonl"))
        if found:
            files[split] = found[0]
        elif split != "test":
            raise InputError(
                f"{{tasks}}: the folder {folder} has no {split}.csv, .tsv or .jsonl: put one there, with columns text "
                "and label, or name a task.",
                tasks=name,
            )
    return dataclasses.replace(task_from_files(**files), name=str(name))


def held_out(task, *, rows, validation_rows, reported_rows, seed):
    """`(Task at the study's budget, labelled rows to report on)`, as `Comparison` says."""
    import numpy as np

    from tf_adapters.tasks.rows import sample_rows

    if task.test is not None and task.test.labels is not None:
        train = task.train if rows is None else sample_rows(task.train, count=rows, seed=seed)
        validation = sample_rows(task.validation, count=validation_rows, seed=seed)
        data, reported = dataclasses.replace(task, train=train, validation=validation, test=None), task.test
    else:
        available = len(task.train)
        chosen = min(validation_rows, available // VALIDATION_SHARE)
        # RandomState's stream is frozen by NumPy.
        order = np.random.RandomState(seed).permutation(available)
        count = available - chosen if rows is None else min(rows, available - chosen)
        data = dataclasses.replace(
            task, train=task.train.take(np.sort(order[chosen : chosen + count])),
            validation=task.train.take(np.sort(order[:chosen])), test=None,
        )  # fmt: skip
        reported = task.validation
    return data, reported if reported_rows is None else sample_rows(reported, count=reported_rows, seed=0)


def about_rows(task, reported):
    """What a run says of its rows, a dict."""
    return {
        "metric": primary_of(task),
        "train_rows": len(task.train),
        "reported_rows": len(reported),
        "constant": constant_score(task, reported),
    }


def primary_of(task):
    """The name of the number that counts of a task."""
    from tf_adapters.tasks.metrics import METRICS

    return METRICS[task.metric].primary


def constant_score(task, reported):
    """The metric of answering each row alike, with the rows' most frequent label, or None."""
    from tf_adapters.kinds import get_kind

    kind = get_kind(task.kind)
    constant = kind.constant(reported, task.labels)
    return None if constant is None else kind.score(task.metric, reported, constant)[primary_of(task)]


def is_failed(run):
    """Whether a run diverged, which is a finding about its rate."""
    return run.get("scores") is None


def best_validation(run):
    """The best validation number of a run's epochs."""
    return max(epoch[run["metric"]] for epoch in run["validation"])


def score_of(run, name="reported"):
    """The number that counts of a run, on the rows of that name."""
    return run["scores"][name][run["metric"]]


def rank(runs):
    """Runs of one seed, the best by validation first, of equal ones the smallest rate; failed ones are last."""
    return sorted(
        runs, key=lambda run: (is_failed(run), 0.0 if is_failed(run) else -best_validation(run), run["learning_rate"])
    )


def at_edge(rate, rates):
    """Whether a best rate is at the edge of its grid, which then may not hold the true best."""
    return len(set(rates)) > 1 and rate in (min(rates), max(rates))


def spread(values):
    """Dict of the values, their mean, standard deviation, standard error and number; None where there are too few."""
    sd = statistics.stdev(values) if len(values) > 1 else None
    return {
        "values": values,
        "mean": statistics.fmean(values) if values else None,
        "sd": sd,
        "sem": None if sd is None else sd / math.sqrt(len(values)),
        "n": len(values),
    }


def paired(first, second):
    """The mean of `first - second`, seed by seed, with Student's t interval of 95 %; a dict."""
    from scipy.stats import t

    differences = [a - b for a, b in zip(first, second)]
    result = {**spread(differences), "interval": None}
    if len(differences) > 1:
        margin = float(t.ppf(0.975, len(differences) - 1)) * result["sem"]
        result["interval"] = [result["mean"] - margin, result["mean"] + margin]
    return result


def percent(value):
    """A share in percent, as a table shows it."""
    return "" if value is None else f"{100 * value:.2f}"
