"""keras-tuner's search with trials that `tf_adapters.fit` runs."""

import json
import pathlib

import tensorflow as tf

from tf_adapters.errors import DivergedError, InputError
from tf_adapters.saving.directory import load_trained
from tf_adapters.tuning.hypermodel import AdapterHyperModel, keras_tuner

RUNS_FOLDER = "runs"


class AdapterTuner(keras_tuner.Tuner):
    """Searches with any oracle of keras-tuner: random, Bayesian, Hyperband, grid or one's own.

    keras-tuner builds, trains and checkpoints models of Keras 3 itself; here a trial is a call of the hypermodel, and
    leaves an adapter directory of its best seed in `directory/project_name/runs`. A search that was killed goes on when
    it is started again with the same arguments: the oracle proposes the same trials, finished ones are read, and the one at
    work goes on from its last state. A trial that diverged is recorded as failed, and the search goes on.

    With Hyperband each trial of a later round trains from the start for its greater number of epochs.

    Args:
        hypermodel: `AdapterHyperModel`.
        oracle: `keras_tuner.Oracle`, such as `keras_tuner.oracles.RandomSearchOracle(objective=hypermodel.objective,
            max_trials=20, seed=1)`; with a seed other than 0, by which it proposes the same trials again.
        directory: path for the search.
        project_name: str, folder in it.
        kwargs: further arguments of `keras_tuner.Tuner`, such as `overwrite=True` to start anew.

    Raises:
        InputError: the hypermodel is another one, or varies the epochs, which Hyperband chooses.

    Reference: Li et al. 2018 (Hyperband); O'Malley et al. 2019 (KerasTuner).
    """

    def __init__(self, hypermodel, oracle, *, directory, project_name="search", **kwargs):
        if not isinstance(hypermodel, AdapterHyperModel):
            raise InputError(f"hypermodel={hypermodel!r} must be an AdapterHyperModel.")
        if isinstance(oracle, keras_tuner.oracles.HyperbandOracle) and "epochs" in hypermodel.space:
            raise InputError("space: the epochs are what Hyperband chooses, up to its max_epochs: leave them out.")
        # Three learning rates in a row that are too high are no reason to stop.
        oracle.max_consecutive_failed_trials = None
        _forget_state(pathlib.Path(directory, project_name), oracle)
        super().__init__(oracle=oracle, hypermodel=hypermodel, directory=directory, project_name=project_name, **kwargs)

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
        """The trials that ended, in their order: a list of dicts.

        Each has `trial`, `status` ("completed" or "failed"), `objective` (or None), `values`, a dict, `seeds`, the runs as
        `train --seeds` keeps them, and `message`.
        """
        rows = []
        for name in self.oracle.end_order:
            trial = self.oracle.trials[name]
            completed = trial.status == keras_tuner.engine.trial.TrialStatus.COMPLETED
            rows.append(
                {
                    "trial": name,
                    "status": "completed" if completed else "failed",
                    "objective": float(trial.score) if completed else None,
                    "values": self.hypermodel.values(trial.hyperparameters),
                    "seeds": self.hypermodel.results(self.folder(trial)).get("runs", []),
                    "message": "" if completed else trial.message.strip().splitlines()[-1].partition(": ")[2],
                }
            )
        return rows


def _forget_state(project, oracle):
    """Remove keras-tuner's state if the oracle proposes the same trials again: the finished ones are read from their folders.

    keras-tuner does not save all of it (a grid's place, the generator of a Bayesian search, a trial that a kill separated from the
    list), and a kill may leave a file half written. Only an oracle without a seed of its own has to go on from it.
    """
    try:
        seed = json.loads((project / "oracle.json").read_text(encoding="utf-8"))["seed"]
    except FileNotFoundError:
        return
    except (ValueError, KeyError):
        seed = oracle.seed
    if seed == oracle.seed or isinstance(oracle, keras_tuner.oracles.GridSearchOracle):
        for path in (*project.glob("trial_*/trial.json"), *project.glob("tuner*.json"), project / "oracle.json"):
            path.unlink()
