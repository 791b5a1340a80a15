"""keras-tuner's search of several processes: a chief hands out the trials, workers train them, and each may be
killed."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from tests.conftest import write_checkpoint, write_csv
from tf_adapters import InputError

keras_tuner = pytest.importorskip("keras_tuner", reason="needs the extra `tuner`")

from keras_tuner.src.distribute.oracle_client import OracleClient  # noqa: E402

from tf_adapters.saving.lock import holding  # noqa: E402
from tf_adapters.tuning import chief as chief_module  # noqa: E402
from tf_adapters.tuning import worker as worker_module  # noqa: E402
from tf_adapters.tuning.chief import MOST_LOSSES, Chief, serve  # noqa: E402
from tf_adapters.tuning.role import Role, read_role  # noqa: E402
from tf_adapters.tuning.worker import ChiefStub, heard  # noqa: E402

# keras-tuner names its threads in an old way.
pytestmark = pytest.mark.filterwarnings("ignore:(currentThread|getName):DeprecationWarning")
OBJECTIVE = keras_tuner.Objective("score", "max")
ORACLES = {
    "random": lambda: keras_tuner.oracles.RandomSearchOracle(objective=OBJECTIVE, max_trials=7, seed=1),
    "bayesian": lambda: keras_tuner.oracles.BayesianOptimizationOracle(
        objective=OBJECTIVE, max_trials=5, num_initial_points=2, seed=1
    ),
    "hyperband": lambda: keras_tuner.oracles.HyperbandOracle(objective=OBJECTIVE, max_epochs=3, seed=1),
    "grid": lambda: keras_tuner.oracles.GridSearchOracle(objective=OBJECTIVE, seed=1),
}


@pytest.fixture
def port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.fixture
def environment(monkeypatch, port):
    """Makes this process the chief or a worker: `environment("tuner0")`."""

    def set_variables(name, host="127.0.0.1", port=port):
        for variable, value in {"TUNER_ID": name, "ORACLE_IP": host, "ORACLE_PORT": port}.items():
            if value is None:
                monkeypatch.delenv(f"KERASTUNER_{variable}", raising=False)
            else:
                monkeypatch.setenv(f"KERASTUNER_{variable}", str(value))

    return set_variables


# The chief's answers


class Search:
    """A chief, without a network, and what it told."""

    def __init__(self, folder, name="random"):
        self.oracle = ORACLES[name]()
        hp = keras_tuner.HyperParameters()
        hp.Float("rate", 0, 1) if name != "grid" else hp.Choice("rate", [0.1, 0.2, 0.3])
        hp.Choice("size", [1, 2, 3])
        self.oracle.update_space(hp)
        self.oracle.verbose = 0
        self.oracle._set_project_dir(str(folder), "search")
        self.given, self.ended = [], []
        self.chief = Chief(
            self.oracle,
            folder / "chief.jsonl",
            on_given=lambda trial, *workers: self.given.append((trial.trial_id, *workers)),
            on_ended=lambda trial: self.ended.append(trial.trial_id),
            on_deserted=lambda: self.ended.append(None),
            explain=lambda trial, worker: f"by {worker}",
        )

    def report(self, trial, status="COMPLETED"):
        """As a worker does, whose copy of the trial has neither the objective nor a message."""
        if status == "COMPLETED":
            values = trial.hyperparameters.values
            self.chief.update_trial(
                trial.trial_id, {"score": values["rate"] + values["size"] + values.get("tuner/epochs", 0)}
            )
        self.chief.end_trial(
            keras_tuner.engine.trial.Trial(trial.hyperparameters, trial_id=trial.trial_id, status=status)
        )

    def run(self, workers=("tuner0", "tuner1"), most=None):
        """Let workers train in turns, of which each holds a trial while the others ask, until `most` trials ended."""
        self.waiting = waiting = list(workers)
        trials = {}
        while waiting and (most is None or len(self.ended) < most):
            worker = waiting.pop(0)
            if worker in trials:
                self.report(trials.pop(worker))
            trial = self.chief.create_trial(worker)
            if trial.status == "RUNNING":
                trials[worker] = trial
            if trial.status != "STOPPED":
                waiting.append(worker)
        return trials

    def state(self):
        return self.oracle.get_state(), {name: trial.get_state() for name, trial in self.oracle.trials.items()}


@pytest.fixture
def silence(monkeypatch):
    """Lets a chief's workers be silent for as long as makes them gone: `silence(chief, "tuner0")`."""

    def pass_over(chief, *workers):
        for worker in workers:
            chief.asked[worker] -= chief_module.LOST_SECONDS + 1

    return pass_over


@pytest.mark.parametrize("name", ORACLES)
def test_no_trial_is_done_twice(tmp_path, name):
    search = Search(tmp_path, name)
    search.run()
    trials = [trial for trial, _, _ in search.given]
    assert len(trials) == len(set(trials)) == len(search.ended) >= 5 and sorted(search.ended) == sorted(trials)
    assert {worker for _, worker, _ in search.given} == {"tuner0", "tuner1"} and search.chief.finished
    values = [json.dumps(trial.hyperparameters.values) for trial in search.oracle.trials.values()]
    assert len(values) == len(set(values))
    if name == "grid":
        assert len(trials) == 9


@pytest.mark.parametrize("name", ["random", "grid"])
def test_two_workers_get_the_trials_that_one_would(tmp_path, name):
    searches = [Search(tmp_path / "one", name), Search(tmp_path / "two", name)]
    for search, workers in zip(searches, (["tuner0"], ["tuner0", "tuner1"])):
        search.run(workers)
    one, two = (
        [(name, trial.hyperparameters.values, trial.score) for name, trial in s.oracle.trials.items()] for s in searches
    )
    assert one == two


def test_grid_has_a_trial_for_each_of_many_workers_at_once(tmp_path):
    search = Search(tmp_path, "grid")
    statuses = [search.chief.create_trial(f"tuner{number}").status for number in range(10)]
    assert statuses == ["RUNNING"] * 9 + ["IDLE"]


def test_worker_that_comes_back_gets_its_trial_again(tmp_path):
    search = Search(tmp_path)
    first, other = search.chief.create_trial("tuner0"), search.chief.create_trial("tuner1")
    assert search.chief.create_trial("tuner0") is first and search.chief.create_trial("tuner1") is other
    assert len(search.given) == 2


def test_trial_of_a_worker_that_is_gone_goes_to_the_next_that_asks(tmp_path, silence):
    search = Search(tmp_path)
    lost, kept = search.chief.create_trial("tuner0"), search.chief.create_trial("tuner1")
    silence(search.chief, "tuner0")
    # One that is at work has its own.
    assert search.chief.create_trial("tuner1") is kept
    assert search.chief.create_trial("tuner2") is lost
    assert search.given[-1] == (lost.trial_id, "tuner2", "tuner0")
    # It was there after all: it gets another, and its report is the trial's.
    assert search.chief.create_trial("tuner0").trial_id not in (lost.trial_id, kept.trial_id)
    search.report(lost)
    search.report(lost, "FAILED")
    assert search.ended == [lost.trial_id] and lost.status == "COMPLETED" and search.oracle.end_order == [lost.trial_id]


def test_last_trial_keeps_the_other_workers_waiting_in_case_its_own_is_gone(tmp_path, silence):
    search = Search(tmp_path)
    last = search.run(most=6)
    (worker,) = last
    other = "tuner0" if worker == "tuner1" else "tuner1"
    assert search.chief.create_trial(other).status == "IDLE" and not search.chief.finished
    silence(search.chief, worker)
    assert search.chief.create_trial(other).trial_id == last[worker].trial_id
    search.report(last[worker])
    assert not search.chief.finished and search.chief.create_trial(other).status == "STOPPED" and search.chief.finished


def test_trial_that_no_worker_survives_fails(tmp_path, silence):
    search = Search(tmp_path)
    trial = search.chief.create_trial("tuner0")
    for number in range(MOST_LOSSES):
        silence(search.chief, f"tuner{number}")
        given = search.chief.create_trial(f"tuner{number + 1}")
        assert (given is trial) == (number + 1 < MOST_LOSSES)
    assert trial.status == "FAILED" and trial.message == "3 workers were gone while they trained it."


@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize("most", [1, 3])
def test_chief_that_was_killed_goes_on_where_it_was(tmp_path, name, most, silence):
    whole = Search(tmp_path / "whole", name)
    whole.run()
    search = Search(tmp_path / "killed", name)
    trials = search.run(most=most)
    if most == 3:
        search.report(trials["tuner0" if "tuner0" in trials else "tuner1"], "FAILED")
        worker = next(iter(search.oracle.ongoing_trials))
        silence(search.chief, worker)
        search.chief.create_trial("tuner2")
    with open(tmp_path / "killed" / "chief.jsonl", "a") as file:
        file.write('{"step": "ask", "wor')
    again = Search(tmp_path / "killed", name)
    assert again.state() == search.state() and again.given == [] and again.chief.losses == search.chief.losses
    again.run(["tuner0", "tuner1", "tuner2"] if most == 3 else search.waiting)
    if most == 3:
        assert len(again.oracle.end_order) == len(set(again.oracle.end_order)) == len(again.oracle.trials)
    else:
        assert again.state() == whole.state()
    # A third one has nothing to do, and needs no worker to know.
    third = Search(tmp_path / "killed", name)
    assert third.chief.finished and third.state() == again.state()


def test_chief_of_another_seed_is_refused(tmp_path):
    Search(tmp_path).run(most=2)
    search = Search(tmp_path)
    search.oracle.seed = 2
    with pytest.raises(
        InputError, match="'seed': 1}, and the oracle is now .*'seed': 2}: give it the same seed, not 0"
    ):
        Chief(search.oracle, tmp_path / "chief.jsonl", on_given=None, on_ended=None, on_deserted=None, explain=None)


def test_failed_trial_says_why_although_the_protocol_does_not(tmp_path):
    search = Search(tmp_path)
    trial = search.chief.create_trial("tuner0")
    search.report(trial, "FAILED")
    assert trial.message == "by tuner0" and search.chief.create_trial("tuner0") is not trial


def test_lock_is_one_process_s_until_it_is_killed(tmp_path):
    held = f"with holding({str(tmp_path / 'a')!r}): print('held', flush=True); time.sleep(60)"
    code = f"import time; from tf_adapters.saving.lock import holding\n{held}"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    with pytest.raises(InputError, match="it is mine"), holding(tmp_path / "a", message="it is mine"):
        pass
    entered = []

    def wait():
        with holding(tmp_path / "a"):
            entered.append(time.monotonic())

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    time.sleep(0.2)
    assert not entered
    process.kill()
    process.wait()
    thread.join(10)
    assert entered


# Over gRPC


def test_chief_and_two_workers_share_a_search_over_loopback(tmp_path, environment, port, monkeypatch):
    monkeypatch.setattr(worker_module, "ASK_SECONDS", 0.05)
    search, done = Search(tmp_path), []
    role = Role("chief", "127.0.0.1", port)
    server = threading.Thread(target=serve, args=(search.chief, role), daemon=True)

    def work(name):
        environment(name)
        client = OracleClient(search.oracle)
        client.stub = ChiefStub(read_role())
        return threading.Thread(target=train, args=(name, client), daemon=True)

    def train(name, client):
        client.stub.meet()
        while (trial := client.create_trial(name)).status != "STOPPED":
            if trial.status == "IDLE":
                time.sleep(0.05)
                continue
            with heard(client, name):
                time.sleep(0.2)
            client.update_trial(trial.trial_id, {"score": trial.hyperparameters.values["rate"]})
            trial.status = "COMPLETED"
            client.end_trial(trial)
            done.append((trial.trial_id, name))

    workers = [work("tuner0"), work("tuner1")]
    # The chief may be the last to start.
    for thread in (*workers, server):
        thread.start()
    for thread in (*workers, server):
        thread.join(30)
        assert not thread.is_alive()
    assert sorted(trial for trial, _ in done) == [str(number) for number in range(7)] and {
        name for _, name in done
    } == {"tuner0", "tuner1"}
    assert all(trial.score == trial.hyperparameters.values["rate"] for trial in search.oracle.trials.values())


def test_chief_without_workers_says_so_once(tmp_path, port, silence):
    search = Search(tmp_path)
    thread = threading.Thread(target=serve, args=(search.chief, Role("chief", "127.0.0.1", port)), daemon=True)
    thread.start()
    for times in (1, 2):
        search.chief.create_trial("tuner0")
        time.sleep(0.3)
        assert len(search.ended) == times - 1
        search.chief.started -= chief_module.LOST_SECONDS + 1
        silence(search.chief, "tuner0")
        time.sleep(0.5)
        assert search.ended == [None] * times and thread.is_alive()
    search.oracle.ongoing_trials.clear()
    search.chief.refusal = "STOPPED"
    thread.join(30)


def test_error_of_the_chief_ends_it_and_is_told_to_the_worker(tmp_path, environment, port, caplog):
    search = Search(tmp_path)
    search.chief.on_given = lambda *arguments: 1 / 0
    errors = []

    def run():
        with pytest.raises(ZeroDivisionError) as caught:
            serve(search.chief, Role("chief", "127.0.0.1", port))
        errors.append(caught.value)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    environment("tuner0")
    client = OracleClient(search.oracle)
    client.stub = ChiefStub(read_role())
    with pytest.raises(
        keras_tuner.errors.FatalError, match="no chief of this search, or it failed: .*division by zero"
    ):
        client.create_trial("tuner0")
    thread.join(30)
    assert errors


# Bad input


@pytest.mark.parametrize(
    "name, host, port, message",
    [
        (
            "tuner0",
            None,
            None,
            "KERASTUNER_ORACLE_IP is not set, but KERASTUNER_TUNER_ID: a search of several processes needs all three",
        ),
        (
            None,
            "127.0.0.1",
            8000,
            "KERASTUNER_TUNER_ID is not set, but KERASTUNER_ORACLE_IP and KERASTUNER_ORACLE_PORT: a search",
        ),
        (
            "chief",
            "127.0.0.1",
            "",
            "KERASTUNER_ORACLE_PORT is not set, but KERASTUNER_TUNER_ID and KERASTUNER_ORACLE_IP: a search",
        ),
        ("tuner0", "127.0.0.1", "http", "KERASTUNER_ORACLE_PORT='http' must be a number from 1 to 65535."),
        ("tuner0", "127.0.0.1", 65536, "KERASTUNER_ORACLE_PORT='65536' must be a number from 1 to 65535."),
        (
            "tuner-chief-1",
            "127.0.0.1",
            8000,
            "KERASTUNER_TUNER_ID='tuner-chief-1' has 'chief' in it, and keras-tuner takes it",
        ),
        ("../tuner", "127.0.0.1", 8000, "KERASTUNER_TUNER_ID='../tuner' names files: use letters"),
        (
            "chief",
            "192.0.2.1",
            8000,
            "The chief cannot listen at 192.0.2.1:8000 .*KERASTUNER_ORACLE_IP must be an address of this machine",
        ),
    ],
)
def test_contradictory_environment_is_one_sentence(cli, words, environment, tmp_path, name, host, port, message):
    environment(name, host, port)
    outcome = cli(*words, f"--output={tmp_path / 's'}")
    assert outcome.status == 2 and re.search(message, outcome.err), outcome.err
    assert outcome.err.startswith("error: ") and outcome.err.count("\n") == 1 and not (tmp_path / "s").exists()


def test_chief_s_port_in_use_is_named_before_anything_is_replaced(cli, words, environment, tmp_path):
    (tmp_path / "search.json").write_text("{}")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        environment("chief", port=port)
        outcome = cli(*words, "--overwrite", f"--output={tmp_path}")
    assert outcome.status == 2 and outcome.err == (
        f"error: The chief cannot listen at 127.0.0.1:{port} (address already in use): end the chief or the program "
        "that does, or choose another KERASTUNER_ORACLE_PORT.\n"
    )
    assert (tmp_path / "search.json").read_text() == "{}"


def test_unreachable_chief_is_one_sentence_after_a_bounded_time(cli, words, environment, port, tmp_path, monkeypatch):
    monkeypatch.setattr(worker_module, "ANSWER_SECONDS", 0.5)
    environment("tuner0")
    outcome = cli(*words, f"--output={tmp_path / 's'}")
    assert outcome.status == 2 and outcome.err == (
        f"error: No chief has answered at 127.0.0.1:{port} for 0.5 seconds: start it there with "
        "KERASTUNER_TUNER_ID=chief, or correct KERASTUNER_ORACLE_IP and KERASTUNER_ORACLE_PORT.\n"
    )
    # A chief that starts later finds no files that are not its own.
    assert not (tmp_path / "s").exists()


# Processes


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """A `tune` on an encoder of two blocks and few rows, without --output."""
    folder = tmp_path_factory.mktemp("distributed")
    write_checkpoint(folder / "encoder", num_hidden_layers=2)
    for seed, (name, rows) in enumerate({"train": 48, "validation": 40}.items()):
        write_csv(folder / f"{name}.csv", rows, seed=seed)
    return [
        "tune",
        f"--model={folder / 'encoder'}",
        f"--train={folder / 'train.csv'}",
        f"--validation={folder / 'validation.csv'}",
        "--max-length=16",
        "--space=none",
        "--vary=adapter-size=2,3,4",
        "--vary=epochs=6",
    ]


SEARCHES = {
    "random": ["--vary=learning-rate=1e-3..1e-2", "--trials=6"],
    "grid": ["--vary=learning-rate=1e-3,1e30", "--tuner=grid"],
}


class Processes:
    """The processes of a search, whose output is kept in files."""

    def __init__(self, words, folder, port):
        self.words, self.folder, self.port = words, folder, port
        self.all = []

    def start(self, name, *options, lost=60.0, answer=60.0):
        """Start the chief or a worker, or, with None, a search of one process, with short times between a worker's
        signs."""
        code = (
            "import sys; from tf_adapters.tuning import chief, worker; from tf_adapters.cli.main import main; "
            f"chief.LOST_SECONDS, worker.ANSWER_SECONDS, worker.ASK_SECONDS = {lost}, {answer}, 0.3; sys.exit(main())"
        )
        variables = {} if name is None else {"TUNER_ID": name, "ORACLE_IP": "127.0.0.1", "ORACLE_PORT": str(self.port)}
        environment = {
            **os.environ,
            "COLUMNS": "200",
            **{f"KERASTUNER_{key}": value for key, value in variables.items()},
        }
        path = self.folder / f"{len(self.all)}-{name}.txt"
        with open(path, "w") as file:
            process = subprocess.Popen(
                [sys.executable, "-u", "-c", code, *self.words, *options, f"--output={self.folder / 'search'}"],
                stdout=file, stderr=subprocess.STDOUT, env=environment,
            )  # fmt: skip
        process.path, process.name = path, name
        self.all.append(process)
        return process

    def wait(self, process, pattern, seconds=240):
        """Wait for a process to print something."""
        end = time.monotonic() + seconds
        while not re.search(pattern, process.path.read_text()):
            assert time.monotonic() < end and process.poll() is None, process.path.read_text()
            time.sleep(0.02)

    def finish(self, *processes, seconds=400):
        for process in processes:
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                pass
            assert process.returncode == 0, "\n".join(other.path.read_text() for other in self.all)

    def kill(self, *processes):
        for process in processes:
            process.send_signal(signal.SIGKILL)
            process.wait()

    def begun(self):
        """The trials that workers began to train, anew or from a state, each with the worker."""
        return [
            (trial, process.name)
            for process in self.all
            if process.name != "chief"
            for trial in re.findall(r"^Trial (\w+): (?=bottleneck)", process.path.read_text(), re.MULTILINE)
        ]

    def results(self):
        """What the trials came to, times left out, with the best and its weights."""
        content = json.loads((self.folder / "search" / "search.json").read_text())
        for row in content["trials"]:
            row["message"] = row["message"].replace(str(self.folder), "")
            for run in row["seeds"]:
                del run["seconds"]
        return (
            content["trials"],
            content["best"],
            (self.folder / "search" / "best" / "adapter.safetensors").read_bytes(),
        )


@pytest.fixture
def processes(words, port, request):
    made = []

    def make(folder, options):
        folder.mkdir()
        made.append(Processes([*words, *options], folder, port))
        return made[-1]

    yield make
    for process in [process for processes in made for process in processes.all]:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def whole(words, tmp_path_factory):
    """What the searches come to in one process: a function of the oracle's name."""
    found = {}

    def results(name):
        if name not in found:
            folder = tmp_path_factory.mktemp(name)
            alone = Processes([*words, *SEARCHES[name]], folder, None)
            alone.finish(alone.start(None))
            found[name] = alone.results()
        return found[name]

    return results


@pytest.mark.nightly
@pytest.mark.parametrize("name", SEARCHES)
def test_chief_and_two_workers_come_to_what_one_process_does(processes, whole, tmp_path, name):
    search = processes(tmp_path / "a", SEARCHES[name])
    workers = [search.start("tuner0", "--resume"), search.start("tuner1")]
    for worker in workers:
        search.wait(worker, "Worker tuner[01] of the search")
    chief = search.start("chief")
    search.finish(chief, *workers)
    assert sorted(trial for trial, _ in search.begun()) == [row["trial"] for row in whole(name)[0]]
    assert {worker for _, worker in search.begun()} == {"tuner0", "tuner1"}
    # Trial by trial, the best one's bytes too.
    assert search.results() == whole(name)
    printed = chief.path.read_text()
    assert f"Handing out trials at 127.0.0.1:{search.port}" in printed and "Best: trial" in printed
    assert len(re.findall(r"^Trial \w+ to tuner[01]: ", printed, re.MULTILINE)) == 6
    for worker in workers:
        trained = sum(name == worker.name for _, name in search.begun())
        assert (
            f"No trial is left for {worker.name}, which trained {trained}; the chief reports."
            in worker.path.read_text()
        )
    if name == "grid":
        failed = [row for row in search.results()[0] if row["status"] == "failed"]
        assert len(failed) == 3 and printed.count("failed: The training loss") == 3
    assert (search.folder / "search" / "trials.csv").read_text().count("\n") == 7


@pytest.mark.nightly
def test_killed_worker_s_trial_is_retried_by_its_restart(processes, whole, tmp_path):
    search = processes(tmp_path / "a", SEARCHES["random"])
    # However long the restart takes.
    chief, worker = search.start("chief", lost=1000.0), search.start("tuner0")
    search.wait(worker, "(?s)Trial 1: bottleneck.*epoch 2/6")
    search.kill(worker)
    other = search.start("tuner1")
    search.wait(other, "Trial 2: bottleneck")
    again = search.start("tuner0")
    search.wait(again, "Trial 1: bottleneck")
    search.finish(chief, other, again)
    begun = search.begun()
    assert begun.count(("1", "tuner0")) == 2 and len(begun) == len(set(begun)) + 1 == 7
    assert "Resuming after step" in again.path.read_text() and search.results() == whole("random")


@pytest.mark.nightly
def test_killed_worker_s_trial_is_retried_by_another(processes, whole, tmp_path):
    search = processes(tmp_path / "a", SEARCHES["random"])
    chief, worker = search.start("chief", lost=3.0), search.start("tuner0")
    search.wait(worker, "(?s)Trial 1: bottleneck.*epoch 2/6")
    search.kill(worker)
    time.sleep(3.0)
    other = search.start("tuner1")
    search.finish(chief, other)
    assert "Trial 1 to tuner1 from tuner0, which has not been heard of for 3 s: bottleneck" in chief.path.read_text()
    begun = search.begun()
    assert ("1", "tuner0") in begun and ("1", "tuner1") in begun and len(begun) == 7
    assert "Resuming after step" in other.path.read_text() and search.results() == whole("random")


@pytest.mark.nightly
def test_killed_chief_goes_on_and_its_workers_with_it(processes, whole, tmp_path):
    search = processes(tmp_path / "a", SEARCHES["random"])
    chief, workers = search.start("chief"), [search.start("tuner0"), search.start("tuner1")]
    search.wait(chief, "Trial 1: validation")
    search.kill(chief)
    chief = search.start("chief", "--resume")
    search.finish(chief, *workers)
    begun = search.begun()
    assert len(begun) == len(set(begun)) == 6 and search.results() == whole("random")


@pytest.mark.nightly
def test_killed_search_goes_on_without_repeating_finished_trials(processes, whole, tmp_path):
    search = processes(tmp_path / "a", SEARCHES["random"])
    chief = search.start("chief")
    search.wait(chief, "Handing out trials")
    workers = [search.start("tuner0"), search.start("tuner1", answer=2.0)]
    search.wait(chief, "(?s)(Trial .: validation.*){3}")
    search.kill(chief, workers[0])
    # Its chief is gone for longer than it waits.
    assert workers[1].wait(60) == 2
    assert (
        f"error: The chief at 127.0.0.1:{search.port} has not answered for 2 seconds: start it again"
        in workers[1].path.read_text()
    )
    runs = (search.folder / "search" / "search" / "runs").glob("*/adapter.safetensors")
    finished = {path: path.stat().st_mtime_ns for path in runs if not (path.parent / "seeds.json").exists()}
    assert len(finished) >= 3
    chief, workers = search.start("chief", "--resume"), [search.start("tuner0"), search.start("tuner1")]
    search.finish(chief, *workers)
    assert all(path.stat().st_mtime_ns == written for path, written in finished.items())
    assert search.results() == whole("random")
    # Everything is done, and no worker needed to see it.
    search.finish(search.start("chief", "--resume"))
    assert search.results() == whole("random")


@pytest.mark.nightly
def test_process_that_does_not_belong_to_the_search_is_refused(processes, tmp_path):
    search = processes(tmp_path / "a", SEARCHES["random"])
    chief, worker = search.start("chief"), search.start("tuner0")
    search.wait(worker, "Trial 0: bottleneck")
    same, other = search.start("tuner0"), search.start("tuner1", "--seed=3")
    elsewhere = Processes(search.words, tmp_path / "b", search.port)
    elsewhere.folder.mkdir()
    search.all.append(elsewhere.start("tuner2"))
    for process, message in (
        (
            same,
            "error: KERASTUNER_TUNER_ID='tuner0' is at work on this search already: give each process an id of its "
            "own.",
        ),
        (other, "holds a search with another seed (0, now 3): resume with the same arguments"),
        (search.all[-1], "search is not the chief's: give the folder that it writes, which all machines must share."),
    ):
        assert process.wait(120) == 2 and message in process.path.read_text(), process.path.read_text()
    search.kill(chief, worker)
