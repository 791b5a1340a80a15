"""The chief of a search of several processes: which worker trains what, and what is to be done when one is gone."""

import contextlib
import json
import os
import pathlib
import time
from concurrent import futures

import grpc

from tf_adapters._keras_internals import answer_workers, find_successor_now
from tf_adapters.errors import InputError
from tf_adapters.json_input import parse_json
from tf_adapters.saving.atomic import write_text
from tf_adapters.tuning.hypermodel import keras_tuner

# A worker that has not asked for so long is gone; one that trains asks every `worker.ASK_SECONDS`.
LOST_SECONDS = 60.0
# A trial that so many workers did not survive fails: it may be what ends them, for want of memory.
MOST_LOSSES = 3

Status = keras_tuner.engine.trial.TrialStatus


class Chief:
    """Answers the workers of a search for an oracle of keras-tuner, as keras-tuner's `OracleServicer` asks.

    The oracle by itself waits without end for a worker that is gone, and saves only a part of its state. Here the trial
    of a worker that has not been heard of for `LOST_SECONDS` goes to the next one that asks, and each step that the
    oracle takes is in a file before the worker hears of it: a new chief has the oracle take the same steps. No worker
    is sent away while a trial is at work, which may come back.

    Args:
        oracle: `keras_tuner.Oracle`.
        path: the file of the steps; what is in it is taken first.
        on_given: function of a trial, its worker, and the worker that is gone or None; called for each trial that a
            worker gets.
        on_ended: function of a trial, called when it ended.
        on_deserted: function, called when no worker has been heard of for `LOST_SECONDS`.
        explain: function of a failed trial and its worker to a str; the workers' messages do not say why.

    Attributes:
        error: the exception that an answer came to, or None. keras-tuner's oracle answers nothing more after it.

    Raises:
        InputError: the file is another oracle's.
    """

    def __init__(self, oracle, path, *, on_given, on_ended, on_deserted, explain):
        self.oracle = oracle
        self.path = pathlib.Path(path)
        self.on_given = on_given
        self.on_ended = on_ended
        self.on_deserted = on_deserted
        self.explain = explain
        self.error = None
        self.started = time.monotonic()
        # When each worker asked last, of those that were not sent away.
        self.asked = {}
        # The oracle's status if it had no trial to give. The same question before a trial ends would only change its
        # state.
        self.refusal = None
        self.losses = {}
        self._take_steps_of_file()

    @property
    def finished(self):
        """Whether there is nothing left to train and no worker left to tell."""
        return self.refusal == Status.STOPPED and not self.oracle.ongoing_trials and not self._heard()

    @property
    def is_deserted(self):
        """Whether no worker has been heard of for `LOST_SECONDS`."""
        return time.monotonic() - self.started > LOST_SECONDS and not self._heard()

    def get_space(self):
        return self.oracle.get_space()

    def get_trial(self, trial_id):
        return self.oracle.get_trial(trial_id)

    def get_best_trials(self, num_trials):
        return self.oracle.get_best_trials(num_trials)

    def create_trial(self, worker):
        """The trial that a worker has, that of a worker that is gone, a new one, or one with the status to wait or to
        go."""
        with self._kept_error():
            self.asked[worker] = time.monotonic()
            ongoing = self.oracle.ongoing_trials
            if worker not in ongoing:
                self._take_over(worker)
            if worker not in ongoing and self.refusal is None:
                self._step(step="ask", worker=worker)
                if worker in ongoing:
                    self.on_given(ongoing[worker], worker, None)
            if worker in ongoing:
                return ongoing[worker]
            going = self.refusal == Status.STOPPED and not ongoing
            if going:
                del self.asked[worker]
            status = Status.STOPPED if going else Status.IDLE
            return keras_tuner.engine.trial.Trial(self.oracle.get_space(), trial_id="", status=status)

    def update_trial(self, trial_id, metrics, step=0):
        """Keep a trial's objective."""
        trial = self.get_trial(trial_id)
        with self._kept_error():
            if trial_id not in self.oracle.end_order:
                self._step(step="update", trial=trial_id, metrics=dict(metrics))
        return trial

    def end_trial(self, trial):
        """Keep how a trial ended, once: a worker that was thought to be gone may report it too."""
        self.get_trial(trial.trial_id)
        with self._kept_error():
            if trial.trial_id not in self.oracle.end_order:
                self._end(trial.trial_id, trial.status)

    def _take_over(self, worker):
        """Give a worker the trial of one that is gone, if there is one."""
        for other, trial in list(self.oracle.ongoing_trials.items()):
            if self._is_heard(other):
                continue
            self.asked.pop(other, None)
            if self.losses.get(trial.trial_id, 0) + 1 == MOST_LOSSES:
                self._end(trial.trial_id, Status.FAILED, f"{MOST_LOSSES} workers were gone while they trained it.")
                continue
            self._step(step="move", trial=trial.trial_id, worker=worker, other=other)
            self.on_given(trial, worker, other)
            return

    def _end(self, trial_id, status, message=None):
        trial = self.get_trial(trial_id)
        if status != Status.COMPLETED and message is None:
            (worker,) = [name for name, ongoing in self.oracle.ongoing_trials.items() if ongoing is trial]
            message = self.explain(trial, worker)
        self._step(step="end", trial=trial_id, status=status, message=message)
        if trial_id in self.oracle.end_order:
            self.on_ended(trial)

    def _heard(self):
        return [worker for worker in list(self.asked) if self._is_heard(worker)]

    def _is_heard(self, worker):
        return time.monotonic() - self.asked.get(worker, self.started) <= LOST_SECONDS

    @contextlib.contextmanager
    def _kept_error(self):
        try:
            yield
        except Exception as error:
            self.error = error
            raise

    def _step(self, **step):
        """Take a step, and have it in the file."""
        step = self._take(step)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(step) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def _take(self, step):
        """Have the oracle take a step; the step with what the oracle said."""
        oracle, kind = self.oracle, step["step"]
        if kind == "ask":
            trial = oracle.create_trial(step["worker"])
            if trial.status != Status.RUNNING:
                self.refusal = trial.status
                return {**step, "status": trial.status}
            if isinstance(oracle, keras_tuner.oracles.GridSearchOracle):
                # It would find a trial's successor when the trial ends, in case that new hyperparameters appear: one
                # worker would do.
                find_successor_now(oracle, trial)
            return {**step, "trial": trial.trial_id, "values": trial.hyperparameters.values}
        if kind == "update":
            oracle.update_trial(step["trial"], step["metrics"])
        elif kind == "move":
            self.losses[step["trial"]] = self.losses.get(step["trial"], 0) + 1
            oracle.ongoing_trials[step["worker"]] = oracle.ongoing_trials.pop(step["other"])
        else:
            trial = oracle.trials[step["trial"]]
            trial.status, trial.message = step["status"], step["message"]
            oracle.end_trial(trial)
            if self.refusal == Status.IDLE:
                self.refusal = None
        return step

    def _take_steps_of_file(self):
        taken = [{"oracle": type(self.oracle).__name__, "seed": self.oracle.seed}]
        if self.path.exists():
            first, *steps = self._read()
            if first != taken[0]:
                raise InputError(
                    f"{self.path} is the search of {first}, and the oracle is now {taken[0]}: give it the same seed, "
                    "not 0."
                )
            for step in steps:
                taken.append(json.loads(json.dumps(self._take(step))))
                if taken[-1] != step:
                    # Another version of keras-tuner; what was trained is found in its folder if it is proposed again.
                    break
        write_text(self.path, "".join(json.dumps(step) + "\n" for step in taken))

    def _read(self):
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                yield parse_json(line)
            except ValueError:
                # A kill cut it off, before its worker heard of it.
                return


def serve(chief, role):
    """Answer workers at the role's address until nothing is left to train.

    Raises:
        InputError: the address cannot be listened at.
    """
    role.check_free()
    # With the port shared, as is gRPC's custom, a second chief would start and hand out the same trials.
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=1), options=[("grpc.so_reuseport", 0)])
    answer_workers(server, chief)
    server.add_insecure_port(role.address)
    server.start()
    try:
        told = False
        while not chief.finished:
            if chief.error is not None:
                raise chief.error
            deserted = chief.is_deserted
            if deserted and not told:
                chief.on_deserted()
            told = deserted
            time.sleep(0.1)
    finally:
        server.stop(grace=1).wait()
