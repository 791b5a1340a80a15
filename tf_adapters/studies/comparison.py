"""Studies that compare ways of training on tasks, and perhaps look into the models: options, arms, the choice of a
rate, and the summary."""

import dataclasses
from typing import ClassVar, Optional, Tuple

from tf_adapters.errors import InputError
from tf_adapters.ranges import RANGES, Whole
from tf_adapters.recipes import PRETRAINING, RECIPES, get_recipe
from tf_adapters.saving.atomic import remove_folder
from tf_adapters.studies.baselines import BASELINES, train_baseline
from tf_adapters.studies.figure import arms_by_task
from tf_adapters.studies.numbers import (
    SCORES,
    about_rows,
    at_edge,
    at_floor,
    is_failed,
    of,
    paired,
    rank,
    rate_words,
    score_of,
    spread,
    trained_words,
)
from tf_adapters.studies.rows import held_out, load
from tf_adapters.studies.study import Study, option
from tf_adapters.training.settings import TrainingSettings, usual_settings

RATE = RANGES["learning_rate"]
KEEPS = ("best", "last")
# Rows that are reported beside a task's own: their name, and the split.
FURTHER = {"glue/mnli": ("mismatched", "validation_mismatched")}


@dataclasses.dataclass(frozen=True)
class Arm:
    """One of the ways of training that a study compares.

    Attributes:
        title: str, for tables and figures.
        trainable: str, as in `set_trainable`, or the name of one of `BASELINES`, which fine-tune nothing.
        adapter: dict of the adapter's fields that are other than the recipe's, or None without adapters.
        settings: dict of the run's that are other than the recipe's, by the fields of `TrainingSettings`.
        recipe: str, name of the recipe, or None for the study's.
        rates: the learning rates that are tried, or None for the study's.
    """

    title: str
    trainable: str = "adapters"
    adapter: Optional[dict] = dataclasses.field(default_factory=dict)
    settings: dict = dataclasses.field(default_factory=dict)
    recipe: Optional[str] = None
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

    Each arm is trained as its recipe says. What an option changes of that is in the summary, as `changed`.
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
    learning_rates: Tuple[float, ...] = option(
        (),
        "Rates that are tried of adapters, LayerNorms and heads. Default: the recipe's.",
        of=float,
        smoke=(1e-3,),
        extends=True,
        range=RATE,
    )
    full_learning_rates: Tuple[float, ...] = option(
        (),
        "Rates that are tried of full and top-N fine-tuning. Default: the recipe's.",
        of=float,
        smoke=(1e-4,),
        extends=True,
        range=RATE,
    )
    metric: Optional[str] = option(
        None, "Metric that chooses and is reported, such as `spearman` or `accuracy`. Default: the task's own."
    )
    keep: str = option(
        "best",
        "Which epoch counts: the `best` by the rows that choose, or the `last`. Both are scored and kept in the "
        "values.",
    )
    seeds: int = option(3, "Trainings at the best rate, with the seeds from 0 on.", smoke=2, extends=True)
    fast: bool = option(False, "Fast blocks for adapters: the same numbers but for rounding.")
    precision: str = option("float32", "`float32`, `mixed_bfloat16` or `mixed_float16`.")

    # The recipe that is followed, and with "-full" that without adapters.
    paper: ClassVar[str] = "houlsby-2019"
    # Whether the last epoch may count in place of the best.
    keeps_last: ClassVar[bool] = True
    # Whether the first seed chooses what the others train with.
    chooses: ClassVar[bool] = True
    columns = {
        "arm": of("title"), "trained": trained_words, "rate": rate_words, **SCORES, "seeds": of("n"),
    }  # fmt: skip

    def __post_init__(self):
        for name, usual in (("recipe", self.paper), ("full_recipe", f"{self.paper}-full")):
            object.__setattr__(self, name, getattr(self, name) or usual)
        super().__post_init__()

    def check(self):
        if not self.tasks:
            raise InputError("{tasks} is empty: name a task at least.", tasks=list(self.tasks))
        for name, trainable in (("recipe", "adapters"), ("full_recipe", "full")):
            known = [other for other in RECIPES if RECIPES[other].trainable == trainable and other not in PRETRAINING]
            if getattr(self, name) not in known:
                raise InputError(f"{{{name}}} must be one of {', '.join(known)}.", **{name: getattr(self, name)})
        if self.keep not in (KEEPS if self.keeps_last else KEEPS[:1]):
            raise InputError(
                "{keep} must be best or last."
                if self.keeps_last
                else "{keep} is best in this study, which looks at more than the last epoch: leave it out.",
                keep=self.keep,
            )

    def arms(self):
        """The `Arm`s by name, a dict."""
        raise NotImplementedError

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
                if getattr(self, field) not in (None, usual[field]):
                    changed.setdefault(field, {})[name] = usual[field]
            if [point["learning_rate"] for point in self.points(arm)] != [usual["learning_rate"]]:
                changed.setdefault("learning_rate", {})[name] = usual["learning_rate"]
        return changed

    def check_tasks(self):
        """Raise InputError for a task that cannot be read, or is not for this study, before anything trains."""
        for name in self.tasks:
            self.check_task(load(name, self.data_dir, self.metric))

    def check_task(self, task):
        """Raise InputError for a `Task` that this study is not for."""

    def measure(self, lab):
        self.check_tasks()
        arms = self.arms()
        lab.expect(len(self.tasks) * sum(map(self.values_of, arms.values())))
        for seed in range(self.seeds):
            for task in self.tasks:
                for name, arm in arms.items():
                    self.run_arm(lab, task, name, arm, seed)

    def values_of(self, arm):
        """How many values an arm has on a task, an int."""
        points = len(self.points(arm))
        return points + self.seeds - 1 if self.chooses else points * self.seeds

    def run_arm(self, lab, task, name, arm, seed):
        """The runs of an arm on a task with one seed: all points with the first, otherwise the best one."""
        points = self.points(arm)
        if seed and self.chooses:
            runs = [self.counted(lab.find(identity_of(task, name, point, 0))) for point in points]
            best = rank(runs)[0]
            if is_failed(best):
                return
            points = [points[runs.index(best)]]
        for point in points:
            identity = identity_of(task, name, point, seed)
            lab.value(identity, lambda identity=identity: self.train(lab, task, arm, identity))

    def train(self, lab, task, arm, identity, *, keep=False):
        """One run; a dict for `Lab.value`."""
        if arm.trainable in BASELINES:
            data, reported = self.rows_of(identity)
            done = train_baseline(
                arm.trainable, data, reported, seed=identity["seed"], learning_rate=identity["learning_rate"],
                batch_size=self.batch_size or 32, source=self.model, max_length=self.max_length or 128,
            )  # fmt: skip
            return {**done, "last_scores": done["scores"], **about_rows(data, reported)}
        experiment, reported, data = self.experiment(lab, arm, identity)
        scored = {"reported": reported, **self.further_rows(task, data, reported)}
        done = lab.train(identity, experiment, seed=identity["seed"], scored=scored, keep=keep)
        return {**done, **about_rows(data, reported)}

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
        adapter = dataclasses.replace(recipe.adapter, **{**(arm.adapter or {}), **self.adapter_of(identity)})
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
                of_arm = [run for run in runs if (run["task"], run["arm"]) == (task, name)]
                first = [run for run in of_arm if run["seed"] == 0]
                if not first:
                    continue
                best, names = rank(first)[0], [*self.points(arm)[0]]
                chosen = {run["seed"]: run for run in of_arm if all(run[key] == best[key] for key in names)}
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
                    "trained_pooler": runs[0].get("trained_pooler"),
                    **spread([score_of(run) for run in finished]),
                }
                rows[name]["at_floor"] = at_floor(rows[name], runs[0])
                if task in FURTHER:
                    further = FURTHER[task][0]
                    rows[name][further] = spread([score_of(run, further) for run in finished])
            if rows:
                some = next(iter(by_arm.values()))[0]
                about = ("metric", "constant", "constant_loss", "train_rows", "reported_rows")
                summary["tasks"][task] = {**{name: some.get(name) for name in about}, "arms": rows}
        return summary

    def table_rows(self, about):
        for row in super().table_rows(about):
            yield row
            for name, _ in FURTHER.values():
                if name in row:
                    yield {"of": name, "title": row["title"], **row[name]}

    def draw(self, summary, figure):
        arms_by_task(figure, summary["tasks"])


@dataclasses.dataclass(frozen=True)
class OfTrained(Comparison):
    """Base of the studies that train arms on tasks and then look into the models, of the best epochs."""

    keeps_last = False

    def values_of(self, arm):
        return super().values_of(arm) + self.seeds

    def train(self, lab, task, arm, identity):
        return super().train(lab, task, arm, identity, keep=True)

    def run_arm(self, lab, task, name, arm, seed):
        super().run_arm(lab, task, name, arm, seed)
        identities = [identity_of(task, name, point, seed) for point in self.points(arm)]
        runs = {id(run): identity for identity in identities if (run := lab.find(identity)) is not None}
        best = next(iter(rank([lab.find(identity) for identity in runs.values()])), None)
        if best is not None and not is_failed(best):
            identity = runs[id(best)]

            def look():
                directory = lab.model_of(identity)
                if not directory.is_dir():  # values alone were brought here
                    self.train(lab, task, arm, identity)
                return self.look_into(lab, directory, *self.experiment(lab, arm, identity)[:2], identity)

            lab.value({**identity, "measured": self.name}, look)
        for identity in runs.values():
            remove_folder(lab.model_of(identity))

    def look_into(self, lab, directory, experiment, reported, identity):
        """What is found in a trained model; a dict for `Lab.value`.

        Args:
            directory: path of its adapter directory.
            experiment: `Experiment` that trained it.
            reported: labelled rows.
            identity: dict of its run.
        """
        raise NotImplementedError

    def looks(self, values):
        """What `look_into` found: dict from a task to a dict from an arm to its values, a list, a seed's newest."""
        found = {}
        for value in values:
            if value["measured"] == self.name:
                found.setdefault(value["task"], {}).setdefault(value["arm"], {})[value["seed"]] = value
        return {task: {arm: [*of_seeds.values()] for arm, of_seeds in arms.items()} for task, arms in found.items()}


def both_arms(**settings):
    """The `Arm`s of adapters and of full fine-tuning, with these settings."""
    return {
        "adapters": Arm("adapters", settings=settings),
        "full": Arm("full fine-tuning", trainable="full", adapter=None, settings=settings),
    }


def identity_of(task, arm, point, seed):
    """What identifies a run among a study's values, a dict."""
    return {"measured": "run", "task": task, "arm": arm, **point, "seed": seed}


def paired_by_seed(runs, others):
    """The paired difference of the runs of two arms, seed by seed, a dict; None where no seed of both has finished."""
    scores, other = ({run["seed"]: score_of(run) for run in arm if not is_failed(run)} for arm in (runs, others))
    both = [seed for seed in scores if seed in other]
    return paired([scores[seed] for seed in both], [other[seed] for seed in both]) if both else None
