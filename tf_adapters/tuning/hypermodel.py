"""The models and trainings of a search space, for keras-tuner."""

import contextlib
import hashlib
import json

from tf_adapters._keras import keras
from tf_adapters.errors import DivergedError, InputError
from tf_adapters.json_input import read_json
from tf_adapters.kinds import get_kind
from tf_adapters.models.injection import remove_adapters
from tf_adapters.models.state import state_of
from tf_adapters.models.storage import is_cast
from tf_adapters.models.transformers.loading import find_files, read_config
from tf_adapters.paths import to_path
from tf_adapters.ranges import check_seeds, in_range
from tf_adapters.recipes import changed_adapter, get_recipe
from tf_adapters.saving.atomic import remove_folder, write_text
from tf_adapters.saving.settings import SETTINGS_FILE, read_settings
from tf_adapters.tasks.metrics import METRICS
from tf_adapters.training.disk import RESUME_FOLDER, SEEDS_FILE, STATE_FILE, SeedRuns, remove_leftovers
from tf_adapters.training.experiment import Experiment
from tf_adapters.training.settings import TrainingSettings, choices, usual_settings
from tf_adapters.tuning.spaces import DIMENSIONS, Range, check_depth, check_values, get_space, varies

try:
    import keras_tuner
except ImportError as error:
    raise ImportError("A search needs the package keras-tuner: run `pip install keras-tuner`.") from error

OBJECTIVES = ("mean", "best")
DIVERGED_FILE = "diverged.json"


class AdapterHyperModel(keras_tuner.HyperModel):
    """What to train for each point of a search space, on one task and one encoder; `AdapterTuner` searches.

    A training is the one that `tf-adapters train` runs with `arguments(hp)`: its numbers are the same. The encoder
    stays in memory and is given another head and other adapters for each trial. Where a training changes the encoder
    itself (`trainable` other than `"adapters"`) or `cast_frozen` rounded it (half precision), the next one loads it
    again.

    Args:
        source: the encoder, as in `load_backbone`.
        task: `Task`, or a function from a seed to one, for rows that are sampled by it.
        space: str, one of `spaces.SPACES`, or a dict: names in `spaces.DIMENSIONS` to a sequence of values, to one
            value, which is then fixed, or to a `spaces.Range`.
        recipe: str, the `Recipe` that has everything else, or None for the space's.
        max_length: int, tokens that are kept of a text, or None for the task's or recipe's.
        seed: int, the first seed.
        seeds: int, how many seeds each trial trains with.
        objective: `"mean"` or `"best"`, which of the seeds' validation numbers a trial counts by.
        fast: as in `add_adapters`.
        jit_compile: as in `fit`.

    Attributes:
        space: dict of what is searched, checked.
        metric: str, the task's primary metric, better when greater.

    Raises:
        InputError: a space that is empty or contradicts the model, or a task without validation rows.

    Example:
    >>> import keras_tuner
    >>> from tf_adapters.tuning import AdapterTuner
    >>> space = {"bottleneck_size": (8, 64), "epochs": 1}
    >>> hypermodel = AdapterHyperModel("minilm", load_task("rotten-tomatoes"), space=space)
    >>> oracle = keras_tuner.oracles.GridSearchOracle(objective=hypermodel.objective)
    >>> tuner = AdapterTuner(hypermodel, oracle, directory="searches")
    >>> tuner.search(verbose=0)

    Reference: O'Malley et al. 2019, KerasTuner; Houlsby et al. 2019, sections 3.2 and 3.3.
    """

    @in_range
    def __init__(
        self, source, task, *, space="default", recipe=None, max_length=None, seed=0, seeds=1, objective="mean",
        fast=False,
        jit_compile=False,
    ):  # fmt: skip
        super().__init__()
        preset = get_space(space) if isinstance(space, str) else None
        self.recipe = get_recipe(recipe or (preset.recipe if preset else "default"))
        self.recipe.check_labels()
        self.space = check_values(preset.values if preset else space, self.recipe)
        if objective not in OBJECTIVES:
            raise InputError("{objective} is unknown: use 'mean' or 'best', of the seeds.", objective=objective)
        check_seeds(seed, seeds)
        self.source = str(source)
        self.task = task if callable(task) else lambda seed: task
        first = self.task(seed)
        if first.validation is None or not len(first.validation):
            raise InputError(f"task {first.name!r} has no validation rows, by which a search chooses: give it some.")
        self.max_length = max_length
        self.tokens = max_length or get_kind(first.kind).max_length or self.recipe.max_length
        self.seeds = range(seed, seed + seeds)
        self.reduced = objective
        self.fast = fast
        self.jit_compile = jit_compile
        self.metric = METRICS[first.metric].primary
        family, config = read_config(find_files(self.source, config_only=True))
        check_depth(self.space, config.num_hidden_layers, self.source)
        if fast and self.space.get("trainable", (self.recipe.trainable,)) != ("adapters",):
            raise InputError(
                "{fast} is for adapters, and the space has other values of trainable: leave one of them out.", fast=True
            )
        if fast and family.fast_block_class is None:
            raise InputError(f"{{fast}}: {family.model_type} has no fast blocks; leave it out.", fast=True)
        self._data = [
            first.name, first.train.digest(), first.validation.digest(), first.metric, list(first.labels),
            getattr(first.train, "value_range", None),
        ]  # fmt: skip
        self._model, self._tokenizer = None, None

    @property
    def objective(self):
        """What an oracle of keras-tuner maximises."""
        return keras_tuner.Objective(f"validation_{self.metric}", "max")

    @property
    def varied(self):
        """Names of what varies, in the order of the space."""
        return [name for name, choice in self.space.items() if varies(choice)]

    def declare_hyperparameters(self, hp):
        """Register what varies with keras-tuner's `HyperParameters`."""
        modes = self.space.get("trainable", (self.recipe.trainable,))
        names = self.varied
        if len(modes) > 1:
            self._declare(hp, "trainable", modes)
            names.remove("trainable")
        for name in names:
            depends = len(modes) > 1 and DIMENSIONS[name].field is not None
            with hp.conditional_scope("trainable", ["adapters"]) if depends else contextlib.nullcontext():
                self._declare(hp, name, self.space[name])

    def values(self, hp):
        """The values of a trial, fixed ones included: dict in the order of `DIMENSIONS`."""
        values = {name: choice[0] for name, choice in self.space.items() if not varies(choice)}
        for name in self.varied:
            if hp.values.get(name) is not None and hp.is_active(name):
                values[name] = _decode(name, self.space[name], hp.values[name])
        if "tuner/epochs" in hp.values:
            # A round of Hyperband. It trains anew: a schedule that falls to 0 over all epochs cannot go on from a
            # shorter one's end.
            values["epochs"] = hp.values["tuner/epochs"]
        if values.get("trainable", self.recipe.trainable) != "adapters":
            values = {name: value for name, value in values.items() if DIMENSIONS[name].field is None}
        return {name: values[name] for name in DIMENSIONS if name in values}

    def settings(self, hp):
        """The `TrainingSettings` of a trial, of the first seed."""
        values = self.values(hp)
        given = {name: value for name, value in values.items() if name in choices()}
        trainable = values.get("trainable", self.recipe.trainable)
        return TrainingSettings.of_recipe(
            self.recipe, trainable, **given, seed=self.seeds[0], jit_compile=self.jit_compile
        )

    def arguments(self, hp):
        """Words of the command line that make `tf-adapters train` train this trial; the model, the data and --output
        are the caller's."""
        words = [] if self.recipe.name == "default" else ["--recipe", self.recipe.name]
        for name, value in self.values(hp).items():
            words += [DIMENSIONS[name].option, str(value)]
        for option, value, usual in (
            ("--max-length", self.max_length, None), ("--seed", self.seeds[0], 0), ("--seeds", len(self.seeds), 1),
        ):  # fmt: skip
            words += [] if value == usual else [option, str(value)]
        return words + ["--fast"] * self.fast + ["--xla"] * self.jit_compile

    def experiment(self, hp):
        """The `Experiment` of a trial."""
        values = self.values(hp)
        changes = {DIMENSIONS[name].field: value for name, value in values.items() if DIMENSIONS[name].field}
        return Experiment(
            self.source, self.task, self.recipe, self.settings(hp), adapter=changed_adapter(self.recipe, changes),
            trainable=values.get("trainable"), max_length=self.tokens,
            precision=keras.mixed_precision.global_policy().name, fast=self.fast,
        )  # fmt: skip

    def build(self, hp, seed=None):
        """A model that is ready to train, with the initial weights of a seed (the first for None)."""
        backbone, self._model = self._model, None
        if backbone is not None:
            state = state_of(backbone)
            if state.trainable in (None, "adapters") and not any(map(is_cast, backbone.weights)):
                backbone = remove_adapters(backbone) if state.adapters else backbone
            else:
                # It goes before the next one comes.
                backbone = None
        self._model, self._tokenizer = self.experiment(hp).build(seed, backbone=backbone)
        return self._model

    def fit(self, hp, model, *, output, seed=None, reporter=None):
        """Train a model that `build` gave, into an adapter directory; goes on with a run that is there.

        Returns: dict of the best epoch's validation numbers, `best_epoch` and `seconds`.
        """
        resume = (to_path(output) / RESUME_FOLDER / STATE_FILE).exists()
        result = self.experiment(hp).train(model, self._tokenizer, output, seed=seed, resume=resume, reporter=reporter)
        if result.interrupted:
            raise KeyboardInterrupt
        numbers = {f"validation_{name}": value for name, value in result.metrics.items()}
        return {**numbers, "best_epoch": result.best_epoch, "seconds": result.seconds}

    def run(self, hp, folder, *, reporter=None):
        """Train a trial with every seed that is not done, and keep the best one's adapter in `folder`.

        Returns: dict as `train --seeds` keeps it: `metric`, `runs` and `summary`.

        Raises:
            DivergedError: training with one of the seeds diverges, now or in an earlier call; nothing but that is kept.
        """
        folder = to_path(folder)
        results = self.results(folder)
        if results:
            remove_leftovers(folder)
        if "diverged" in results:
            raise DivergedError(results["diverged"])
        if results:
            return results
        runs = SeedRuns(folder, metric=self.metric, settings=self.identity(hp), resume=True)
        try:
            for seed in self.seeds:
                if not runs.done(seed):
                    numbers = self.fit(
                        hp, self.build(hp, seed=seed), output=runs.folder(seed), seed=seed, reporter=reporter
                    )
                    seconds, validation = round(numbers["seconds"], 1), numbers[f"validation_{self.metric}"]
                    runs.add(seed, best_epoch=numbers["best_epoch"], seconds=seconds, validation=validation, test=None)
        except DivergedError as error:
            remove_folder(folder)
            write_text(folder / DIVERGED_FILE, json.dumps({"diverged": str(error)}) + "\n")
            raise
        runs.finish()
        return self.results(folder)

    def results(self, folder):
        """What `run` found in an earlier call: its dict, `{"diverged": message}`, or `{}` if it did not end."""
        if (folder / DIVERGED_FILE).exists():
            return read_json(folder / DIVERGED_FILE, "remove the folder of this trial")
        if (folder / SEEDS_FILE).exists() or not (folder / SETTINGS_FILE).exists():
            return {}
        return read_settings(folder)["seeds"]

    def score(self, results):
        """The objective of a trial, from what `run` returns."""
        values = [run["validation"] for run in results["runs"]]
        return max(values) if self.reduced == "best" else results["summary"]["validation"]["mean"]

    def identity(self, hp):
        """Everything that decides what a trial comes to, a dict for JSON."""
        return {
            "source": self.source,
            "recipe": self.recipe.name,
            "values": self.values(hp),
            "max_length": self.tokens,
            "seeds": list(self.seeds),
            "fast": self.fast,
            "jit_compile": self.jit_compile,
            "precision": keras.mixed_precision.global_policy().name,
            "data": self._data,
        }

    def digest(self, hp):
        """A name for `identity`: trials of the same name are one training."""
        return hashlib.sha256(json.dumps(self.identity(hp), sort_keys=True).encode()).hexdigest()[:16]

    def _declare(self, hp, name, choice):
        settings = usual_settings(self.recipe, self.space.get("trainable", (self.recipe.trainable,))[0])
        dimension = DIMENSIONS[name]
        usual = settings.get(name) if dimension.field is None else getattr(self.recipe.adapter, dimension.field)
        usual = self.recipe.trainable if name == "trainable" else usual
        if isinstance(choice, Range):
            make = hp.Int if dimension.types == "int" else hp.Float
            default = usual if usual in choice else choice.low
            make(name, choice.low, choice.high, sampling="log" if choice.log else "linear", default=default)
        else:
            default = _encode(choice, usual if usual in choice else choice[0])
            hp.Choice(name, [_encode(choice, value) for value in choice], default=default)


def _encode(choice, value):
    """A value as keras-tuner takes it, which wants all of a choice to be of one type."""
    return value if len({type(other) for other in choice}) == 1 else str(value)


def _decode(name, choice, value):
    if isinstance(choice, Range):
        return int(value) if DIMENSIONS[name].types == "int" else value
    return next(other for other in choice if _encode(choice, other) == value)
