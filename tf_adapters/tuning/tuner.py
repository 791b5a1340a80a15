"""keras-tuner's search with trials that `tf_adapters.fit` runs."""

import contextlib
import os
import pathlib
import time

import grpc
import tensorflow as tf

from tf_adapters._keras_internals import without_tracebacks
from tf_adapters.errors import DivergedError, InputError
from tf_adapters.paths import parse_json, to_path
from tf_adapters.saving.atomic import reason, remove_file
from tf_adapters.saving.directory import load_trained
from tf_adapters.tuning import HOST, PORT, worker_name
from tf_adapters.tuning.hypermodel import AdapterHyperModel, keras_tuner

RUNS_FOLDER = "runs"


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
            if not self.is_worker:
                _forget_state(project, oracle)
            super().__init__(
                oracle=oracle, hypermodel=hypermodel, directory=str(directory), project_name=project_name, **kwargs
            )
        self._waits = False

    def search(self, *arguments, **settings):
        """Search; as keras-tuner's, whose arguments go to `run_trial`.

        Raises:
            InputError: the folder cannot be written to; a chief cannot listen at its address, or does not answer.
            FatalError: of keras-tuner; training came to an error.
        """
        # keras-tuner prints one for each trial that diverged, beside the message that it keeps.
        with without_tracebacks(), _said(self.project_dir):
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
