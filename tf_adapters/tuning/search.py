"""The models and trainings of a search space for keras-tuner, and a search whose trials `tf_adapters.fit` runs."""

import contextlib
import hashlib
import json
import os
import pathlib
import time

import tensorflow as tf

from tf_adapters._keras import keras
from tf_adapters._keras_internals import without_tracebacks
from tf_adapters.errors import DivergedError, InputError
from tf_adapters.kinds import get_kind
from tf_adapters.models.injection import remove_adapters
from tf_adapters.models.origin import is_cast
from tf_adapters.models.state import state_of
from tf_adapters.models.transformers.door import why_not_fast
from tf_adapters.models.transformers.loading import find_files, read_config
from tf_adapters.paths import parse_json, read_json, to_path
from tf_adapters.ranges import check_choice, check_seeds, in_range
from tf_adapters.recipes import changed_adapter, get_recipe
from tf_adapters.saving.atomic import only_writer, reason, remove_file, remove_folder, write_text
from tf_adapters.saving.directory import load_trained
from tf_adapters.saving.settings import SETTINGS_FILE, read_settings, sha256_of
from tf_adapters.tasks.metrics import METRICS
from tf_adapters.training.disk import RESUME_FOLDER, SEEDS_FILE, STATE_FILE, SeedRuns, refuse_other, remove_leftovers
from tf_adapters.training.experiment import Experiment
from tf_adapters.training.settings import TrainingSettings, choices, usual_settings
from tf_adapters.tuning import HOST, PORT, worker_name
from tf_adapters.tuning.spaces import DIMENSIONS, Range, check_depth, check_values, get_space, varies

try:
    import keras_tuner
except ImportError as error:
    raise ImportError("A search needs the package keras-tuner: run `pip install keras-tuner`.") from error
import grpc  # which keras-tuner brings

DIVERGED_FILE = "diverged.json"
RUNS_FOLDER = "runs"


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
        check_choice("objective", objective, ("mean", "best"))
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
        encoder = find_files(self.source, config_only=True)
        family, config = read_config(encoder)
        check_depth(self.space, config.num_hidden_layers, self.source)
        if fast and self.space.get("trainable", (self.recipe.trainable,)) != ("adapters",):
            raise InputError(
                "{fast} is for adapters, and the space has other values of trainable: leave one of them out.", fast=True
            )
        why = fast and why_not_fast(family)
        if why:
            raise InputError(f"{{fast}}: {why}; leave it out.", fast=True)
        self._data = [
            first.name, first.train.digest(), first.validation.digest(), first.metric, list(first.labels),
            getattr(first.train, "value_range", None),
        ]  # fmt: skip
        files = sorted(path for path in encoder.iterdir() if path.suffix in (".safetensors", ".h5"))
        self._encoder = [sha256_of(path) for path in files]
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
        if results := self.results(folder):
            remove_leftovers(folder)
            if "diverged" in results:
                raise DivergedError(results["diverged"])
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
        return {**self.common(), "values": self.values(hp)}

    def common(self):
        """The same of all trials."""
        return {
            "source": self.source,
            "encoder": self._encoder,
            "recipe": self.recipe.name,
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


class AdapterTuner(keras_tuner.Tuner):
    """Searches with any oracle of keras-tuner: random, Bayesian, Hyperband, grid or one's own.

    keras-tuner builds, trains and checkpoints models of Keras 3 itself; here a trial is a call of the hypermodel, and
    leaves an adapter directory of its best seed in `directory/project_name/runs`. A search that was killed goes on when
    it is started again with the same arguments: the oracle proposes the same trials, finished ones are read, and the
    one at work goes on from its last state. A trial that diverged is recorded as failed, and the search goes on.

    With Hyperband each trial of a later round trains from the start for its greater number of epochs.

    keras-tuner's environment variables `KERASTUNER_TUNER_ID`, `KERASTUNER_ORACLE_IP` and `KERASTUNER_ORACLE_PORT` make
    the same script a search of several processes, on machines that share `directory`: `search` of the one whose id is
    `chief` hands out the trials and returns when all have ended; the others' trains them. What there is of the trials
    is the chief's to tell: `table`, `get_best_models` and the like are not for workers.

    Args:
        hypermodel: `AdapterHyperModel`.
        oracle: `keras_tuner.Oracle`, such as `keras_tuner.oracles.RandomSearchOracle(objective=hypermodel.objective,
            max_trials=20, seed=1)`; with a seed other than 0, by which it proposes the same trials again.
        directory: path for the search.
        project_name: str, folder in it.
        kwargs: further arguments of `keras_tuner.Tuner`, such as `overwrite=True` to start anew.

    Attributes:
        is_worker: bool, whether it is a worker of a search of several.

    Raises:
        InputError: the hypermodel is another one, or varies the epochs, which Hyperband chooses; the environment
            variables contradict each other.

    Reference: Li et al. 2018 (Hyperband); O'Malley et al. 2019 (KerasTuner).
    """

    def __init__(self, hypermodel, oracle, *, directory, project_name="search", **kwargs):
        if not isinstance(hypermodel, AdapterHyperModel):
            raise InputError("{hypermodel} must be an AdapterHyperModel.", hypermodel=hypermodel)
        if isinstance(oracle, keras_tuner.oracles.HyperbandOracle) and "epochs" in hypermodel.space:
            raise InputError("space: the epochs are what Hyperband chooses, up to its max_epochs: leave them out.")
        # Three learning rates in a row that are too high are no reason to stop.
        oracle.max_consecutive_failed_trials = None
        self.is_worker = worker_name() not in (None, "chief")
        directory = to_path(directory)
        project = directory / project_name
        with _said(project):
            if not (self.is_worker or kwargs.get("overwrite")):
                _forget_state(project, oracle)
                _check_same(project, {**hypermodel.common(), "space": str(hypermodel.space)})
            super().__init__(
                oracle=oracle, hypermodel=hypermodel, directory=str(directory), project_name=project_name, **kwargs
            )
        self._waits = False

    def search(self, *arguments, **settings):
        """Search; as keras-tuner's, whose arguments go to `run_trial`.

        Raises:
            InputError: the folder cannot be written to, or another process does; a chief cannot listen at its address,
                or does not answer.
            FatalError: of keras-tuner; training came to an error.
        """
        alone = contextlib.nullcontext() if self.is_worker else only_writer(self.project_dir, wait=0)
        # keras-tuner prints one for each trial that diverged, beside the message that it keeps.
        with without_tracebacks(), _said(self.project_dir), alone:
            return super().search(*arguments, **settings)

    def pre_create_trial(self):
        """Of keras-tuner, which asks again at once where the oracle has no trial yet."""
        if self._waits:
            time.sleep(1)
        self._waits = True

    def on_trial_begin(self, trial):
        """Of keras-tuner: a trial is about to train here."""
        self._waits = False
        super().on_trial_begin(trial)

    def run_trial(self, trial, *, reporter=None, verbose=None):
        """Train one trial; `search` calls it.

        Args:
            trial: `keras_tuner.engine.trial.Trial`.
            reporter: `training.run.Reporter` or None, given to `search`.
            verbose: what `search` got, for keras-tuner's own output.
        """
        try:
            results = self.hypermodel.run(trial.hyperparameters, self.folder(trial), reporter=reporter)
        except (DivergedError, tf.errors.ResourceExhaustedError) as error:
            raise keras_tuner.errors.FailedTrialError(str(error)) from None
        except InputError as error:
            raise keras_tuner.errors.FatalValueError(str(error)) from error
        except Exception as error:
            # keras-tuner would note it and go on; a defect would spoil all trials.
            raise keras_tuner.errors.FatalRuntimeError(f"{type(error).__name__}: {error}") from error
        return {self.hypermodel.objective.name: self.hypermodel.score(results)}

    def load_model(self, trial):
        """The trained model of a trial; `get_best_models` calls it."""
        return load_trained(self.folder(trial), backbone=self.hypermodel.source)[0]

    def folder(self, trial):
        """Adapter directory of a trial, a `pathlib.Path`. Trials of the same values have the same one."""
        return pathlib.Path(self.project_dir, RUNS_FOLDER, self.hypermodel.digest(trial.hyperparameters))

    def table(self):
        """The trials that ended, in the order in which they began: a list of what `row` returns."""
        ended = set(self.oracle.end_order)
        return [self.row(self.oracle.trials[name]) for name in self.oracle.start_order if name in ended]

    def row(self, trial):
        """What a trial that ended came to.

        Returns: dict of `trial`, `status` ("completed" or "failed"), `objective` (or None), `values`, a dict, `seeds`,
            the runs as `train --seeds` keeps them, and `message`.
        """
        completed = trial.status == keras_tuner.engine.trial.TrialStatus.COMPLETED
        results = self.hypermodel.results(self.folder(trial))
        # A worker's copy of the trial lacks the score.
        score = self.hypermodel.score(results) if completed and trial.score is None else trial.score
        return {
            "trial": trial.trial_id,
            "status": "completed" if completed else "failed",
            "objective": float(score) if completed else None,
            "values": self.hypermodel.values(trial.hyperparameters),
            "seeds": results.get("runs", []),
            # keras-tuner does not send a worker's message to the chief.
            "message": "" if completed else results.get("diverged") or _last_line(trial.message),
        }


def _encode(choice, value):
    """A value as keras-tuner takes it, which wants all of a choice to be of one type."""
    return value if len({type(other) for other in choice}) == 1 else str(value)


def _decode(name, choice, value):
    if isinstance(choice, Range):
        return int(value) if DIMENSIONS[name].types == "int" else value
    return next(other for other in choice if _encode(choice, other) == value)


@contextlib.contextmanager
def _said(project):
    """keras-tuner's errors of files, which it writes by TensorFlow's functions, and of the line to the chief."""
    address = f"{os.environ.get(HOST)}:{os.environ.get(PORT)}"
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        raise InputError(f"{project} cannot be written: {reason(error)}.") from error
    except grpc.RpcError as error:
        raise InputError(f"The chief at {address} does not answer: start it, then this worker.") from error
    except RuntimeError as error:
        if type(error) is not RuntimeError:
            raise
        raise InputError(f"The chief cannot listen at {address}: correct {HOST} and {PORT}.") from error


def _last_line(message):
    """What an exception says, of its traceback."""
    lines = (message or "The objective is no number.").strip().splitlines()
    return lines[-1].partition(": ")[2] if len(lines) > 1 else lines[0]


def _check_same(project, now):
    """Keep what all trials have in common; InputError if those that are kept have something else."""
    path = project / "search.json"
    if path.exists() and any(project.glob("trial_*/trial.json")):
        refuse_other(project, "a search", read_json(path, "remove the folder"), now)
    write_text(path, json.dumps(now))


def _forget_state(project, oracle):
    """Remove keras-tuner's state if the oracle proposes the same trials again: the finished ones are read from their
    folders.

    keras-tuner does not save all of it (a grid's place, the generator of a Bayesian search, a trial that a kill
    separated from the list), and a kill may leave a file half written. Only an oracle without a seed of its own has to
    go on from it.
    """
    try:
        seed = parse_json((project / "oracle.json").read_text(encoding="utf-8"))["seed"]
    except FileNotFoundError:
        return
    except (ValueError, KeyError, TypeError):
        seed = oracle.seed
    if seed == oracle.seed or isinstance(oracle, keras_tuner.oracles.GridSearchOracle):
        for path in (*project.glob("trial_*/trial.json"), *project.glob("*.json")):
            remove_file(path)
