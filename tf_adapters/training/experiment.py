"""An experiment: what is trained on which task, from the pretrained encoder to numbers on rows that were held out."""

import contextlib
import dataclasses
import functools
import pathlib
import time
from typing import Any, Callable, Dict, Optional, Tuple, Union

import tensorflow as tf

from tf_adapters._installation import versions
from tf_adapters._types import Model, PathLike
from tf_adapters.config import MethodConfig
from tf_adapters.errors import InputError
from tf_adapters.kinds import get_kind
from tf_adapters.kinds.kind import Scorer
from tf_adapters.models.door import choose_door, door_called, load_backbone
from tf_adapters.models.injection import add_adapters
from tf_adapters.models.state import state_of
from tf_adapters.models.trainable import cast_frozen, set_trainable
from tf_adapters.paths import to_path
from tf_adapters.ranges import check_seeds
from tf_adapters.recipes import Recipe, get_recipe
from tf_adapters.saving.atomic import only_writer, remove_folder
from tf_adapters.saving.directory import keep_result, load_adapter
from tf_adapters.saving.hub import find_adapter
from tf_adapters.saving.pretrained import fuse_adapters, load_pretrained_adapter
from tf_adapters.saving.settings import read_settings
from tf_adapters.tasks.analysis import class_report
from tf_adapters.tasks.metrics import METRICS
from tf_adapters.tasks.rows import Task
from tf_adapters.text.tokenizer import Tokenizer, load_tokenizer
from tf_adapters.training.disk import RESUME_FOLDER, SEEDS_FILE, TENSORBOARD, SeedRuns, refuse_other
from tf_adapters.training.fit import fit_by
from tf_adapters.training.run import FitResult, Reporter
from tf_adapters.training.settings import TrainingSettings
from tf_adapters.training.strategies import processes_of, refuse_workers, scope_of

# Fast blocks take some seconds to compile. A training of fewer steps need not win them back.
_REPAID = 100


@dataclasses.dataclass(frozen=True)
class HeldOut:
    """Predictions on rows that were not trained on: test where it has labels, otherwise validation."""

    split: str  # "test" or "validation"
    rows: object  # of that split
    outputs: object  # what `Kind.predict` gave for them
    numbers: dict  # of the task's metric


class Observer:
    """Hears of what an experiment over several seeds does; subclass what is of interest."""

    def begin(self, seed, task, model):
        """A model for this seed is ready to train."""

    def reporter(self, seed):
        """The `Reporter` of this seed's run, or None."""

    def progress(self, seed):
        """A context that gives the `progress` of `Experiment.score`, or None."""
        return contextlib.nullcontext()

    def end(self, seed, result):
        """Its run is over: `result` is a `FitResult`, None if it was done before."""


@dataclasses.dataclass(frozen=True)
class Experiment:
    """Trains a task by a recipe; everything but the seed is fixed.

    Attributes:
        source: str, where the encoder comes from, as in `load_backbone`.
        task: `Task`, or a function from a seed to the one that it trains on.
        recipe: `Recipe`, or its name.
        settings: `TrainingSettings`, or None for the recipe's; the first seed is among them.
        adapter: `MethodConfig` in place of the recipe's, or None.
        trainable: as in `set_trainable`, or None for the recipe's.
        max_length: int, tokens kept of a text, or None for what is usual of the kind of task, or in the recipe.
        precision: str, Keras' policy.
        fast: as in `add_adapters`; None for where it repays compiling: adapters on one CPU, for 100 steps or more.
        fused: adapter directories by name, whose adapters are fused in place of a new one, or empty.
        pretrained: directory whose adapter, or encoder, training goes on with, or `owner/name` on the hub; or None.
        strategy: `tf.distribute.Strategy` or None.
        door: as in `load_backbone`; where it is `"keras-hub"` frozen weights stay as they are.

    Example:
    >>> settings = TrainingSettings(epochs=1, learning_rate=1e-3)
    >>> experiment = Experiment("minilm", load_task("rotten-tomatoes"), "houlsby-2019", settings)
    >>> runs = experiment.run_seeds("adapters/three-seeds", seeds=3)
    >>> 0 < runs.summary()["test"]["mean"] <= 1
    True
    """

    source: str
    task: Union[Task, Callable[[int], Task]]
    recipe: Union[str, Recipe] = "default"
    settings: Optional[TrainingSettings] = None
    adapter: Optional[MethodConfig] = None
    trainable: Optional[str] = None
    max_length: Optional[int] = None
    precision: str = "float32"
    fast: Optional[bool] = None
    fused: Dict[str, pathlib.Path] = dataclasses.field(default_factory=dict)
    pretrained: Optional[pathlib.Path] = None
    strategy: object = None
    door: Optional[str] = None
    # The task of the latest seed: drawing its rows again takes time and memory.
    _tasks: dict = dataclasses.field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self):
        if isinstance(self.recipe, str):
            object.__setattr__(self, "recipe", get_recipe(self.recipe))
        self.recipe.check_labels()
        object.__setattr__(self, "door", choose_door(self.door))
        for name in ("adapter", "trainable"):
            if getattr(self, name) is None:
                object.__setattr__(self, name, getattr(self.recipe, name))
        if self.settings is None:
            object.__setattr__(self, "settings", TrainingSettings.of_recipe(self.recipe, self.trainable))
        object.__setattr__(self, "fused", {name: find_adapter(path) for name, path in self.fused.items()})
        if self.pretrained is not None:
            object.__setattr__(self, "pretrained", find_adapter(self.pretrained))
        if self.fused and self.fast:
            raise InputError("{fast} has no parts for fused adapters: leave it out.", fast=True)

    @property
    def _keras(self):
        return door_called(self.door).ops.keras

    @property
    def backend(self):
        """What the door's Keras runs on, a str."""
        return self._keras.backend.backend()

    @property
    def devices(self):
        """How many compute the rows of a batch, an int."""
        if self.door != "transformers":
            from tf_adapters.training import step_keras3

            return step_keras3.devices()
        return 1 if self.strategy is None else self.strategy.num_replicas_in_sync

    def task_of(self, seed: Optional[int] = None) -> Task:
        """The `Task` that a seed trains on; None for the first."""
        if not callable(self.task):
            return self.task
        seed = self._seed(seed)
        if seed not in self._tasks:
            self._tasks.clear()
            self._tasks[seed] = self.task(seed)
        return self._tasks[seed]

    def build(self, seed: Optional[int] = None, *, backbone: Optional[Model] = None) -> Tuple[Model, Tokenizer]:
        """A fresh model that is ready to train, on the encoder of `backbone` if that is given, and its tokenizer.

        Raises:
            InputError: as `load_backbone`, `add_adapters` and `set_trainable`.
        """
        seed = self._seed(seed)
        task = self.task_of(seed)
        length = self.max_length or get_kind(task.kind).max_length or self.recipe.max_length
        with scope_of(self.strategy):
            self._keras.mixed_precision.set_global_policy(self.precision)
            model, tokenizer = load_for_task(
                self.source, task, max_length=length, head_layers=self.recipe.head_layers, seed=seed,
                backbone=backbone, door=self.door,
            )  # fmt: skip
            if self.fused:
                fuse_adapters(model, self.fused, name="default", seed=seed)
            elif self.pretrained is not None:
                load_pretrained_adapter(model, self.pretrained, fast=self._fast(model, task) or None)
            elif self.trainable == "adapters":
                add_adapters(model, self.adapter, seed=seed, fast=self._fast(model, task))
            set_trainable(model, self.trainable)
            if self.door == "transformers" and processes_of(self.strategy)[0] == 1:
                # Variables are sent to the other workers when they are made, and TensorFlow's operation for it knows no
                # bfloat16.
                cast_frozen(model)
        return model, tokenizer

    def _fast(self, model, task):
        if self.fast is not None:
            return self.fast
        settings, state = self.settings, state_of(model)
        steps = settings.steps or settings.epochs * len(task.train) // settings.batch_size
        return (
            steps >= _REPAID and self.trainable == "adapters" and not settings.jit_compile and self.devices == 1
            and not tf.config.list_physical_devices("GPU") and state.door.why_not_fast(state.family) is None
        )  # fmt: skip

    def train(
        self,
        model: Model,
        tokenizer: Tokenizer,
        output: PathLike,
        *,
        seed: Optional[int] = None,
        resume: bool = False,
        reporter: Optional[Reporter] = None,
        keep_state: bool = False,
    ) -> FitResult:
        """Train what `build` gave into the directory `output`; the `FitResult`. `keep_state` is as of `fit_by`."""
        output, seed = to_path(output), self._seed(seed)
        if not resume and processes_of(self.strategy)[1]:
            # Its files would be shown together with this run's; everything else is replaced in one stroke.
            remove_folder(output / TENSORBOARD)
        settings = dataclasses.replace(self.settings, seed=seed, recipe=self.recipe.name)
        how = None, resume, reporter, self.strategy
        return fit_by(settings, model, self.task_of(seed), tokenizer, output, *how, keep_state=keep_state)

    def score(
        self,
        model: Model,
        tokenizer: Tokenizer,
        *,
        seed: Optional[int] = None,
        progress: Optional[Callable[[int], None]] = None,
    ) -> HeldOut:
        """What a trained model says of the held-out rows, `HeldOut`; `progress` is as in `Kind.predict`."""
        return score(model, tokenizer, self.task_of(seed), batch_size=self.settings.batch_size, progress=progress)

    def score_rows(
        self, model: Model, tokenizer: Tokenizer, rows: Any, *, seed: Optional[int] = None
    ) -> Dict[str, float]:
        """The numbers of the task's metric on other labelled rows, a dict."""
        task = self.task_of(seed)
        kind, scorer = get_kind(task.kind), Scorer(model, tokenizer, batch_size=self.settings.batch_size)
        return kind.score(task.metric, rows, kind.predict(scorer, rows))

    def run_seeds(
        self, output: PathLike, seeds: int, *, resume: bool = False, observer: Optional[Observer] = None
    ) -> Optional[SeedRuns]:
        """Train with `seeds` seeds from the settings' on, and keep the best by validation in `output`, with its result.

        Args:
            output: path of the adapter directory.
            seeds: int.
            resume: bool, go on with what `output` holds: seeds that are done stay, and the one at work goes on.
            observer: `Observer` or None.

        Returns: `SeedRuns`, whose `finish` was called. If it was interrupted, None.

        Raises:
            InputError: as `fit`; or `output` was begun with other settings, or is no interrupted run, or another
                process writes to it.
        """
        output = to_path(output)
        if resume and not (output / SEEDS_FILE).exists():
            raise InputError(f"{output} holds no seeds to go on with: start them without {{resume}}.", resume=resume)
        check_seeds(self.settings.seed, seeds)
        refuse_workers(self.strategy, "several seeds")
        with only_writer(output, wait=0):
            return self._run_seeds(output, seeds, resume, observer or Observer())

    def _run_seeds(self, output, seeds, resume, observer):
        if not resume:
            remove_folder(output / RESUME_FOLDER)
        first = self.settings.seed
        task = self.task_of(first)
        metric = METRICS[task.metric].primary
        runs = SeedRuns(
            output, metric=metric, resume=resume,
            settings={
                **self.identity(), "task": task.name, "seeds": seeds, "metric": task.metric,
                "label_names": list(task.labels),
                "data": task.digests(),
            },
        )  # fmt: skip
        of_best = None, None
        for seed in range(first, first + seeds):
            if runs.done(seed):
                observer.end(seed, None)
                continue
            door_called(self.door).ops.clear_session()
            model, tokenizer = self.build(seed)
            if runs.runs:
                before = read_settings(runs.folder(runs.runs[0]["seed"]))["backbone"]["sha256"]
                now = {"encoder": state_of(model).digest(model)}
                refuse_other(output, "seeds of a run", {"encoder": before}, now)
            observer.begin(seed, self.task_of(seed), model)
            folder = runs.folder(seed)
            going_on = resume and (folder / RESUME_FOLDER).is_dir()
            about = {"resume": going_on, "reporter": observer.reporter(seed), "keep_state": True}
            result = self.train(model, tokenizer, folder, seed=seed, **about)
            observer.end(seed, result)
            if result.interrupted:
                return None
            with observer.progress(seed) as progress:
                held_out = self.score(model, tokenizer, seed=seed, progress=progress)
            runs.add(
                seed, best_epoch=result.best_epoch, seconds=round(result.seconds, 1), validation=result.metrics[metric],
                test=held_out.numbers[metric] if held_out.split == "test" else None,
            )  # fmt: skip
            remove_folder(folder / RESUME_FOLDER)
            if runs.best()["seed"] == seed:
                of_best = seed, held_out
        seed = runs.best()["seed"]
        if of_best[0] != seed:
            # It was trained before this call.
            model, tokenizer = self.build(seed)
            load_adapter(model, runs.folder(seed))
            of_best = seed, self.score(model, tokenizer, seed=seed)
        keep(self.task_of(seed), runs.folder(seed), of_best[1])
        runs.finish()
        return runs

    def identity(self):
        """Everything that decides what comes out, but for the task's rows and the state of the disk; a dict for
        JSON."""
        return {
            "recipe": self.recipe.name,
            "adapter": self.adapter.to_dict(),
            "source": self.source,
            "fused": {name: _weights_of(directory) for name, directory in self.fused.items()},
            "pretrained": self.pretrained and _weights_of(self.pretrained),
            "trainable": self.trainable,
            "max_length": self.max_length,
            "precision": self.precision,
            "fast": self.fast,
            "door": self.door,
            "backend": self.backend,
            "devices": self.devices,
            **self.settings.of("compared"),
            "cache_frozen": self.settings.cache_frozen,
        }

    def _seed(self, seed):
        return self.settings.seed if seed is None else seed


def _weights_of(directory):
    return read_settings(directory)["weights"]["sha256"]


def held_out_rows(task):
    """`(split, rows)` that were not trained on: test where it has labels, otherwise validation."""
    labelled = task.test is not None and task.test.labels is not None
    return ("test", task.test) if labelled else ("validation", task.validation)


def score(model, tokenizer, task, *, batch_size=32, progress=None):
    """What a model says of a task's held-out rows, `HeldOut`; arguments as of `Experiment.score`."""
    kind, (split, rows) = get_kind(task.kind), held_out_rows(task)
    outputs = kind.predict(Scorer(model, tokenizer, batch_size=batch_size), rows, progress=progress)
    return HeldOut(split, rows, outputs, kind.score(task.metric, rows, outputs))


def load_for_task(source, task, *, max_length, head_layers=1, seed=0, backbone=None, door=None):
    """Load a pretrained encoder with the head that a task needs: `(model, tokenizer)`.

    The seed decides the head's initial weights, and Keras' global generators start from it. The encoder of `backbone`,
    a model without adapters, is used in place of reading it again. The rest is as in `load_backbone`.
    """
    kind = get_kind(task.kind)
    door = choose_door(door)
    door_called(door).ops.keras.utils.set_random_seed(seed)
    if backbone is None:
        load = functools.partial(load_backbone, source, door=door)
    else:
        from tf_adapters.models.transformers.loading import change_head

        load = functools.partial(change_head, backbone)
    labels = {"num_labels": kind.num_labels(task.labels), "labels": list(task.labels) or None}
    model = load(head=kind.head, head_layers=head_layers, **labels)
    return model, load_tokenizer(model, max_length=max_length)


_MOST_CLASSES_KEPT = 200


def keep(task, output, held_out):
    """Keep a `HeldOut` in its adapter directory, with what is reached without training, which is returned; with it the
    run is over, and its state goes."""
    kind = get_kind(task.kind)
    others = without_training(kind, task, held_out.rows)
    classes = kind.classes(held_out.rows, held_out.outputs) if len(task.labels) <= _MOST_CLASSES_KEPT else None
    # No times, by which equal runs would differ.
    result = {
        "split": held_out.split,
        "rows": len(held_out.rows),
        "numbers": {name: float(value) for name, value in held_out.numbers.items()},
        "without_training": {what: float(value) for what, value in others.items()},
        "classes": None if classes is None else class_report(*classes, task.labels).classes,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "versions": versions(),
    }
    keep_result(output, result)
    remove_folder(output / RESUME_FOLDER)
    return others


def without_training(kind, task, rows):
    """What scores are reached without fine-tuning, a dict of the task's main number by what reaches it."""
    primary, found = METRICS[task.metric].primary, {}
    constant = kind.constant(rows, task.labels)
    if constant is not None:
        found["one constant answer"] = kind.score(task.metric, rows, constant)[primary]
    alone = kind.words_alone(task, rows)
    if alone is not None:
        found[alone[0]] = kind.score(task.metric, rows, alone[1])[primary]
    return found
