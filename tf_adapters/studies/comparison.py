"""What a study is: its options, arms that are trained on tasks, the choice of a rate, what that comes to, its table."""

import dataclasses
import functools
import json
import os
from typing import ClassVar, Optional, Tuple

from tf_adapters.errors import NAME, InputError
from tf_adapters.ranges import PRECISIONS, RANGES, Whole, choice, choices_of
from tf_adapters.recipes import PRETRAINING, RECIPES, get_recipe
from tf_adapters.studies.baselines import BASELINES, train_baseline
from tf_adapters.studies.figure import arms_by_task
from tf_adapters.studies.numbers import (
    SCORES,
    about_rows,
    at_edge,
    at_floor,
    is_failed,
    of,
    paired_seeds,
    percent,
    rank,
    rate_words,
    score_of,
    spread,
    trained_words,
)
from tf_adapters.studies.rows import held_out, load
from tf_adapters.training.settings import TrainingSettings, usual_settings

RATE = RANGES["learning_rate"]
KEEPS = ("best", "last")
# Rows that are reported beside a task's own: their name, and the split.
FURTHER = {"glue/mnli": ("mismatched", "validation_mismatched")}


# A field of a study that is an option of its command.
option = functools.partial(choice, panel="Study")


def several(default, help, range, **about):
    """An option of several numbers of a range, `Whole` or `Real`, which a study that has begun may have more of."""
    return option(default, help, range=range, of=int if isinstance(range, Whole) else float, extends=True, **about)


@dataclasses.dataclass(frozen=True)
class Arm:
    """One of the ways of training that a study compares."""

    title: str  # for tables and figures
    trainable: str = "adapters"  # as in `set_trainable`, or the name of one of `BASELINES`, which fine-tune nothing
    adapter: dict = dataclasses.field(default_factory=dict)  # its fields that are other than the recipe's
    settings: dict = dataclasses.field(default_factory=dict)  # the same of `TrainingSettings`
    recipe: Optional[str] = None  # its name; None for the study's
    rates: Optional[Tuple[float, ...]] = None  # the learning rates that are tried; None for the study's

    @property
    def is_adapters(self):
        """Whether adapters train, whose rates are other ones."""
        return self.trainable in ("adapters", "layer-norm", "head", "bias")


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Base of the studies: a frozen dataclass whose fields are its options, which trains arms on tasks.

    Where a task's test split has labels it is reported, and its validation rows choose the epoch and the rate;
    otherwise its validation rows are reported, and rows of the training split, drawn by the seed, choose. All rates of
    an arm are run at the first seed, and the best by those rows at the others.

    Each arm is trained as its recipe says. What an option changes of that is in the summary, as `changed`.

    Attributes:
        name: str, that of the command.
        figures: str, what it reproduces: papers with figures and tables.
        packages: names of packages that it needs and the library does not.
        paper: str, the recipe that is followed, and with "-full" that without adapters.
        kinds: the kinds of tasks that it is for, or None for all.
        keeps_last: bool, whether the last epoch may count in place of the best.
        chooses: bool, whether the first seed chooses what the others train with.
        columns: dict from the title of a column of its table to a function of a row, a dict, that gives a word.
    """

    name: ClassVar[str] = ""
    figures: ClassVar[str] = ""
    packages: ClassVar[Tuple[str, ...]] = ()
    paper: ClassVar[str] = "houlsby-2019"
    kinds: ClassVar[Optional[Tuple[str, ...]]] = None
    keeps_last: ClassVar[bool] = True
    chooses: ClassVar[bool] = True
    columns: ClassVar[dict] = {
        "arm": of("title"), "trained": trained_words, "rate": rate_words, **SCORES, "seeds": of("n"),
    }  # fmt: skip

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
    recipe: Optional[str] = option(
        None, "Recipe of the arms that train adapters, LayerNorms or heads alone. Default: the paper's."
    )
    full_recipe: Optional[str] = option(None, "Recipe of full and top-N fine-tuning. Default: the paper's.")
    epochs: Optional[int] = option(
        None, "Passes over the training rows, of all arms. Default: as many as each arm's recipe has.", smoke=1
    )
    batch_size: Optional[int] = option(None, "Rows per step. Default: the recipe's.", smoke=8)
    max_length: Optional[int] = option(None, "Tokens kept of a text. Default: the recipe's.", smoke=16)
    dropout: Optional[float] = option(None, "Dropout of encoder and head. Default: the recipe's.")
    learning_rates: Tuple[float, ...] = several(
        (), "Rates that are tried of adapters, LayerNorms and heads. Default: the recipe's.", RATE, smoke=(1e-3,)
    )
    full_learning_rates: Tuple[float, ...] = several(
        (), "Rates that are tried of full and top-N fine-tuning. Default: the recipe's.", RATE, smoke=(1e-4,)
    )
    metric: Optional[str] = option(
        None, "Metric that chooses and is reported, such as `f1` (of the second label). Default: the task's own."
    )
    keep: str = option(
        "best",
        "Which epoch counts: the `best` by the rows that choose, or the `last`. Both are scored and kept in the "
        "values.",
    )
    seeds: int = option(3, "Trainings at the best rate, with the seeds from 0 on.", smoke=2, extends=True)
    fast: bool = option(False, "Fast blocks for adapters: the same numbers but for rounding.")
    precision: str = option("float32", "`float32`, `mixed_bfloat16` or `mixed_float16`.", values=PRECISIONS)

    def __post_init__(self):
        for name, usual in (("recipe", self.paper), ("full_recipe", f"{self.paper}-full")):
            object.__setattr__(self, name, getattr(self, name) or usual)
        for name, about in choices_of(type(self)).items():
            value, allowed = getattr(self, name), about.range or RANGES.get(name)
            if about.of is not None:
                value = (value,) if isinstance(value, (str, int, float, os.PathLike)) else tuple(value or ())
                value = tuple(map(str, value)) if about.of is str else value
                object.__setattr__(self, name, value)
                if len(set(value)) != len(value):
                    raise InputError(f"{{{name}}} has a value twice: give each once.", **{name: list(value)})
            for one in value if about.of is not None else (value,):
                if about.values is not None and one not in about.values:
                    raise InputError(f"{{{name}}}: {one!r} is none of {', '.join(about.values)}.", **{name: one})
                problem = None if allowed is None or one is None else allowed.problem(one)
                if problem is not None:
                    raise InputError(f"{{{name}}} {problem}.", **{name: one})
        self.check()

    @classmethod
    def of_settings(cls, settings):
        """The study of some `settings()`, of which other versions may have had more."""
        return cls(**{name: value for name, value in settings.items() if name in choices_of(cls)})

    @classmethod
    def smoke(cls, **given):
        """The study so small that it only shows that it runs."""
        small = {name: about.smoke for name, about in choices_of(cls).items() if about.smoke is not None}
        return cls(**{**small, **given})

    @classmethod
    def about(cls):
        """What it is, in the first sentence of its docstring."""
        return " ".join(cls.__doc__.split("\n\n")[0].split())

    def settings(self):
        """The options, a dict for JSON."""
        return json.loads(json.dumps({name: getattr(self, name) for name in choices_of(type(self))}, default=str))

    def check(self):
        """Raise InputError for options that do not fit together, before anything is loaded."""
        if not self.tasks:
            raise InputError("{tasks} is empty: name a task at least.", tasks=list(self.tasks))
        for name, trainable in (("recipe", "adapters"), ("full_recipe", "full")):
            known = [other for other in RECIPES if RECIPES[other].trainable == trainable and other not in PRETRAINING]
            if getattr(self, name) not in known:
                raise InputError(f"{{{name}}} must be one of {', '.join(known)}.", **{name: getattr(self, name)})
        if self.keep not in (KEEPS if self.keeps_last else KEEPS[:1]):
            why = "must be best or last" if self.keeps_last else "is best in this study, which looks at more epochs"
            raise InputError(f"{{keep}} {why}.", keep=self.keep)

    def arms(self):
        """The `Arm`s by name, a dict; those of adapters and of full fine-tuning, unless a study has others."""
        return both_arms()

    def points(self, arm):
        """What is tried of an arm, a list of dicts that identify: its rates."""
        rates = arm.rates or (self.learning_rates if arm.is_adapters else self.full_learning_rates)
        return [{"learning_rate": rate} for rate in rates or [self.usual_of(arm)["learning_rate"]]]

    def recipe_of(self, arm):
        """The `Recipe` of an arm."""
        return get_recipe(arm.recipe or (self.recipe if arm.is_adapters else self.full_recipe))

    def usual_of(self, arm):
        """What an arm's recipe trains with, a dict by the fields of `TrainingSettings`."""
        return usual_settings(self.recipe_of(arm), arm.trainable)

    def changes(self):
        """What options change of the arms' recipes: dict from an option to the recipes' values, by arm."""
        changed = {}
        for name, arm in self.arms().items():
            if arm.trainable in BASELINES:
                continue
            usual = {**self.usual_of(arm), "max_length": self.recipe_of(arm).max_length}
            for field in ("epochs", "batch_size", "max_length", "dropout"):
                if field not in arm.settings and getattr(self, field) not in (None, usual[field]):
                    changed.setdefault(field, {})[name] = usual[field]
            if [point["learning_rate"] for point in self.points(arm)] != [usual["learning_rate"]]:
                changed.setdefault("learning_rate", {})[name] = usual["learning_rate"]
        return changed

    def check_inputs(self):
        """Raise InputError for a task that cannot be read, or is not for this study, and for other files that are
        missing, before anything is written."""
        for name in self.tasks:
            task = load(name, self.data_dir, self.metric)
            if self.kinds is not None and task.kind not in self.kinds:
                raise InputError(
                    f"{{tasks}}: {name} is of the kind {task.kind}: give tasks of {', '.join(self.kinds)}.",
                    tasks=list(self.tasks),
                )

    def measure(self, lab):
        """Measure what is missing, by `Lab.value`, which keeps each result, so that a killed study goes on."""
        arms = self.arms()
        lab.total = lab.number + len(self.tasks) * sum(map(self.values_of, arms.values()))
        for seed in range(self.seeds):
            for task in self.tasks:
                for name, arm in arms.items():
                    self.run_arm(lab, task, name, arm, seed)

    def values_of(self, arm):
        """How many values an arm has on a task, an int."""
        points = len(self.points(arm))
        return points + self.seeds - 1 if self.chooses else points * self.seeds

    def identities(self, lab, task, name, arm, seed):
        """What identifies the runs of an arm on a task with one seed: all points with the first, otherwise the best
        one; none where all of them failed."""
        points = self.points(arm)
        if seed and self.chooses:
            runs = [self.counted(lab.find(identity_of(task, name, point, 0))) for point in points]
            best = rank(runs)[0]
            points = [] if is_failed(best) else [points[runs.index(best)]]
        return [identity_of(task, name, point, seed) for point in points]

    def run_arm(self, lab, task, name, arm, seed):
        """The runs of an arm on a task with one seed."""
        for identity in self.identities(lab, task, name, arm, seed):
            lab.value(identity, lambda identity=identity: self.train(lab, task, arm, identity))

    def train(self, lab, task, arm, identity, *, keep=False):
        """One run; a dict for `Lab.value`. InputError if the task's rows are no longer those of the values that there
        are."""
        now = load(task, self.data_dir).digests()
        if any(value.get("task") == task and value.get("data", now) != now for value in lab.values):
            raise InputError(
                f"{{tasks}}: {task} has other rows than those of the values in {lab.folder}: give another {{output}}.",
                tasks=task, output=NAME,
            )  # fmt: skip
        if arm.trainable in BASELINES:
            data, reported = self.rows_of(identity)
            done = train_baseline(
                arm.trainable, data, reported, seed=identity["seed"], learning_rate=identity["learning_rate"],
                batch_size=self.batch_size or 32, source=self.model, max_length=self.max_length or 128,
            )  # fmt: skip
            return {**done, **about_rows(data, reported), "data": now}
        experiment, reported, data = self.experiment(lab, arm, identity)
        scored = {"reported": reported, **self.further_rows(task, data, reported)}
        done = lab.train(identity, experiment, seed=identity["seed"], scored=scored, keep=keep)
        return {**done, **about_rows(data, reported), "data": now}

    def further_rows(self, task, data, reported):
        """Labelled rows that are scored beside the reported ones, a dict by name; of a task's name and `Task`."""
        from tf_adapters.tasks.registry import load_split

        if task not in FURTHER:
            return {}
        name, split = FURTHER[task]
        return {name: load_split(task, split, data_dir=self.data_dir).rows}

    def experiment(self, lab, arm, identity):
        """The `Experiment` of a run in the folder of a `Lab`, the rows that are reported, and the `Task`."""
        from tf_adapters.training.experiment import Experiment

        data, reported = self.rows_of(identity)
        recipe = self.recipe_of(arm)
        given = {name: getattr(self, name) for name in ("epochs", "batch_size", "dropout")}
        given = {name: value for name, value in given.items() if value is not None}
        settings = TrainingSettings.of_recipe(
            recipe, arm.trainable,
            **{**given, **arm.settings, "learning_rate": identity["learning_rate"], "seed": identity["seed"]},
        )  # fmt: skip
        adapter = dataclasses.replace(recipe.adapter, **{**arm.adapter, **self.adapter_of(identity)})
        experiment = Experiment(
            self.model, data, recipe, settings, adapter=adapter, trainable=arm.trainable, max_length=self.max_length,
            precision=self.precision, fast=self.fast and arm.trainable == "adapters",
        )  # fmt: skip
        return experiment, reported, data

    def adapter_of(self, identity):
        """Fields of the adapter that a run's identity decides, a dict."""
        return {}

    def rows_of(self, identity):
        """The `Task` that a run trains on, and the labelled rows to report."""
        return held_out(
            load(identity["task"], self.data_dir, self.metric), rows=self.rows, validation_rows=self.validation_rows,
            reported_rows=self.reported_rows, seed=identity["seed"],
        )  # fmt: skip

    def counted(self, run):
        """A run with the scores of the epoch that counts."""
        if self.keep == "best" or is_failed(run):
            return run
        last = {"scores": run["last_scores"], "validation": run["validation"][-1:]}
        return {**run, "every_epoch": run["validation"], **last}

    def best_runs(self, values):
        """Dict from task to a dict from arm to its runs at the best point, in the order of the seeds."""
        runs, found = [self.counted(value) for value in values if value["measured"] == "run"], {}
        for task in self.tasks:
            found[task] = {}
            for name, arm in self.arms().items():
                points = self.points(arm)
                names = [*points[0]]
                of_arm = [run for run in runs if (run["task"], run["arm"]) == (task, name)]
                first = [run for run in of_arm if run["seed"] == 0 and {key: run[key] for key in names} in points]
                if not first:
                    continue
                best = rank(first)[0]
                chosen = {run["seed"]: run for run in of_arm if all(run[key] == best[key] for key in names)}
                found[task][name] = [chosen[seed] for seed in range(self.seeds) if seed in chosen]
        return found

    def summarise(self, values):
        """What values, dicts as `Lab.value` gives them in the order of measuring, come to; a dict for JSON."""
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
                    "trained_pooler": runs[0].get("trained_pooler"),
                    **spread([score_of(run) for run in finished], [run["seed"] for run in finished]),
                }
                rows[name]["at_floor"] = at_floor(rows[name], runs[0])
                if task in FURTHER:
                    further = FURTHER[task][0]
                    rows[name][further] = spread([score_of(run, further) for run in finished])
                rows[name] |= self.more(name, by_arm)
            if rows:
                some = next(iter(by_arm.values()))[0]
                about = ("metric", "constant", "constant_loss", "train_rows", "reported_rows")
                summary["tasks"][task] = {**{name: some.get(name) for name in about}, "arms": rows}
        return summary

    def more(self, name, by_arm):
        """What a summary says of an arm besides, a dict; `by_arm` has all arms' runs on a task, by their names."""
        return {}

    def table(self, summary):
        """The summary as `(columns, rows)`, lists of words: each of `table_rows`, and a task's constant answer, which
        the columns "arm" and "score" show."""
        rows = []
        for task, about in summary["tasks"].items():
            metric = about.get("metric")
            for row in self.table_rows(about):
                name = ", ".join(filter(None, (task, metric or row.get("metric"), row.get("of"))))
                rows.append([name, *(cell(row) for cell in self.columns.values())])
            if about.get("constant") is not None:
                loss = about.get("constant_loss")
                cells = dict.fromkeys(self.columns, "") | {
                    "arm": f"constant answer{'' if loss is None else f', log loss {loss:.3f}'}",
                    "score": percent(about["constant"]),
                }
                rows.append([f"{task}, {metric}", *cells.values()])
        return ["task", *self.columns], rows

    def table_rows(self, about):
        """The rows of what a summary says of a task, dicts, perhaps with a `metric` and what they are `of`."""
        for row in about.get("arms", about).values():
            yield row
            for name, _ in FURTHER.values():
                if name in row:
                    yield {"of": name, "title": row["title"], **row[name]}

    def draw(self, summary, figure):
        """Draw the summary on an empty Matplotlib figure."""
        arms_by_task(figure, summary["tasks"])


FULL = Arm("full fine-tuning", trainable="full")


def both_arms(**settings):
    """The `Arm`s of adapters and of full fine-tuning, with these settings."""
    return {"adapters": Arm("adapters", settings=settings), "full": dataclasses.replace(FULL, settings=settings)}


def identity_of(task, arm, point, seed):
    """What identifies a run among a study's values, a dict."""
    return {"measured": "run", "task": task, "arm": arm, **point, "seed": seed}


def paired_by_seed(runs, others):
    """The paired difference of the runs of two arms, seed by seed, a dict; None where no seed of both has finished."""
    scores, other = ({run["seed"]: score_of(run) for run in arm if not is_failed(run)} for arm in (runs, others))
    return paired_seeds(scores, other)
