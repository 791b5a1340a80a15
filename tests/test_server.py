"""`tf-adapters serve`: what it reads over HTTP, and real replicas whose tasks change while many ask."""

import asyncio
import concurrent.futures
import fcntl
import importlib.util
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
import types

import numpy as np
import pytest

from benchmarks.peers.serving import Generations, Server, load, serve_words
from tests.conftest import is_refused, write_checkpoint
from tests.test_bank import TASKS, save_task
from tf_adapters.cli.serve import _connect, _source
from tf_adapters.serving import server
from tf_adapters.serving.server import MOST_BYTES, Door, Refusal, Replica

RECORDS = {
    "film": {"label": "good", "probabilities": [0.25, 0.75], "logits": [0.0, 1.1], "names": ["bad", "good"]},
    "topics": {"labels": "a|b", "probabilities": [0.9, 0.2], "logits": [2.0, -1.0], "names": ["a|b", "c"]},
    "similar": {"value": 2.5, "logits": [2.5]},
    "broken": {"error": "the logits are not finite"},
}


class FakeReplicas(Door):
    async def _ask(self, app, method, *arguments):
        if method == "state":
            return {"tasks": {name: {"change": 3} for name in RECORDS}, "faults": {}}
        return [dict(RECORDS.get(task, {"error": f"there is no task {task!r}"})) for task, _, _ in arguments[0]]


def ask(path, body=None, method=None, door=FakeReplicas()):
    """The status and the JSON of a request to a door."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()

    async def stream():
        for start in range(0, len(content), 2**20):
            yield content[start : start + 2**20]

    request = types.SimpleNamespace(
        scope={"path": path}, method=method or ("GET" if body is None else "POST"), stream=stream
    )
    try:
        return 200, asyncio.run(door._answer(request))
    except Refusal as refusal:
        return refusal.args


def test_rows_of_several_tasks_are_answered_each_by_its_own():
    status, found = ask("/predict", {"texts": list("abcde"), "task": ["film", "topics", "similar", "broken", "none"]})
    assert status == 200 and found["answers"] == [
        {"label": "good", "probabilities": {"bad": 0.25, "good": 0.75}},
        {"labels": ["a|b"], "probabilities": {"a|b": 0.9, "c": 0.2}},
        {"value": 2.5},
        {"error": "the logits are not finite"},
        {"error": "there is no task 'none'"},
    ]
    assert ask("/predict/", {"texts": [], "task": "film"}) == (200, {"answers": []})


def test_requests_of_tensorflow_serving_are_answered_in_its_forms():
    row = {"label": "good", "probabilities": [0.25, 0.75], "logits": [0.0, 1.1]}
    path = "/v1/models/film:predict"
    assert ask(path, {"instances": ["a", {"text": "b"}]}) == (200, {"predictions": [row, row]})
    columns = {name: [value, value] for name, value in row.items()}
    assert ask(path, {"instances": ["a", {"text": "b", "text_pair": "c"}]}) == (200, {"predictions": [row, row]})
    for inputs in (["a", "b"], {"text": ["a", "b"]}, {"text": ["a", "b"], "text_pair": [None, ""]}):
        assert ask(path, {"inputs": inputs, "signature_name": "serving_default"}) == (200, {"outputs": columns})
    (version,) = ask("/v1/models/film")[1]["model_version_status"]
    assert version["version"] == "3" and version["state"] == "AVAILABLE"


def test_a_request_that_cannot_be_answered_gets_a_status_and_a_sentence():
    for path, body, status, sentence in (
        ("/predict", b"{", 400, "the body is no JSON"),
        ("/predict", b" " * (MOST_BYTES + 1), 413, "send fewer rows"),
        ("/predict", None, 405, "POST a JSON object"),
        ("/predict", [], 400, "must be a JSON object"),
        ("/predict", {"task": "film", "texts": ["a", 3]}, 400, "texts must be a list of strings, and there is 3"),
        ("/predict", {"texts": ["a"]}, 400, "task must be a list of strings"),
        ("/predict", {"task": ["film"], "texts": ["a", "b"]}, 400, "task has 1 rows and the texts have 2"),
        ("/predict", {"task": "film", "texts": ["a"], "text_pairs": []}, 400, "text_pairs has 0 rows"),
        ("/v1/models/film:predict", {}, 400, "either instances"),
        ("/v1/models/film:predict", {"instances": 3}, 400, "instances must be a list"),
        ("/v1/models/film:predict", {"inputs": None}, 400, "there is null"),
        ("/v1/models/film:predict", {"instances": [{"text_pair": "b"}]}, 400, "there is null"),
        ("/predict", {"task": "film", "texts": ["a"], "text_pairs": [3]}, 400, "text_pairs must be a list of strings"),
        ("/v1/models/50%20a/b?:predict", {"instances": ["a"]}, 404, "row 0: there is no task '50%20a/b?'"),
        ("/v1/models/broken:predict", {"instances": ["a"]}, 500, "row 0: the logits are not finite"),
        ("/predict", {"task": "film", "texts": ["a"], "text_pair": ["b"]}, 400, "'text_pair': give task, texts, text_"),
        (
            "/v1/models/film:predict",
            {"instances": ["a", {"text": "a", "texts": "b"}]},
            400,
            "'texts': give text, text_",
        ),
        ("/v1/models/film:predict", {"inputs": {"text": ["a"], "pair": ["b"]}}, 400, "nothing called 'pair'"),
        ("/v1/models/film:predict", {"inputs": ["a"], "signature_name": "tokens"}, 400, "must be serving_default"),
        ("/v1/models/none", None, 404, "there is no task 'none'; there are 'film'"),
        ("/", None, 404, "POST to /predict"),
    ):
        found = ask(path, body)
        assert found[0] == status and sentence in found[1]


def test_an_application_without_a_replica_does_not_hide_the_others(monkeypatch):
    class Waiting(FakeReplicas):
        async def _ask(self, app, method, *arguments):
            if app.endswith(names):
                await asyncio.sleep(5)
            return {"tasks": {app: {"change": 1}}, "faults": {}}

    monkeypatch.setattr(server, "_ANSWERS_WITHIN", 0.1)
    monkeypatch.setattr(server, "running", lambda: ["tf-adapters-bank-film", "tf-adapters-bank-ham"])
    names, door = "ham", Waiting(separate=True)
    silent = "no replica answers: Ray's log says why"
    assert ask("/health", door=door) == (200, {"status": "ok", "tasks": 1})
    status, found = ask("/tasks", door=door)
    assert status == 200 and found["faults"] == {"ham": {"error": silent}} and len(found["tasks"]) == 1
    assert ask("/v1/models/ham", door=door) == (503, silent)
    names = ("ham", "film")
    assert ask("/health", door=door) == (503, silent)
    names = "bank"
    assert ask("/health", door=Waiting()) == (503, silent)


def with_ray(monkeypatch, **modules):
    """Let `ray` and its modules be these; `ray__serve` stands for `ray.serve`."""
    for name, fakes in {"ray": {}, **modules}.items():
        monkeypatch.setitem(sys.modules, name.replace("__", "."), types.SimpleNamespace(**fakes))


def test_where_several_clusters_run_one_is_to_be_named(monkeypatch):
    found = {"find_gcs_addresses": lambda: frozenset({"b:1", "a:1"})}
    with_ray(monkeypatch, ray__serve={}, ray___private={}, ray___private__services=found)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    is_refused("Several Ray clusters run here: name one by RAY_ADDRESS, a:1 or b:1", _connect, changes=True)


def test_rows_are_asked_for_again_where_a_replica_ended(monkeypatch):
    class Ended(Exception):
        pass

    class Lost(Exception):
        pass

    class Gone(Exception):
        pass

    async def remote(rows):
        found = said.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    def get_app_handle(app):
        if app == "none":
            raise Gone
        return types.SimpleNamespace(answer=types.SimpleNamespace(remote=remote))

    serve = types.SimpleNamespace(get_app_handle=get_app_handle)
    with_ray(
        monkeypatch, ray={"serve": serve}, ray__serve={},
        ray__exceptions={"RayActorError": Ended, "ObjectLostError": Lost},
        ray__serve__exceptions={"RayServeException": Gone},
    )  # fmt: skip
    monkeypatch.setattr(server, "_TRIES", 2)
    said = [Ended(), Lost(), ["an answer"]]
    assert asyncio.run(Door()._ask("bank", "answer", [])) == ["an answer"]
    said = [Ended(), Ended(), Ended()]
    with pytest.raises(Refusal, match="try again later"):
        asyncio.run(Door()._ask("bank", "answer", []))
    assert asyncio.run(Door(separate=True)._ask("none", "answer", [])) is None
    with pytest.raises(Refusal, match="no replica can be started"):
        asyncio.run(Door()._ask("none", "answer", []))


def test_the_command_refuses_before_ray_is_looked_for(refused, adapter_directory, tmp_path):
    for arguments, message in {
        (): "Give NAME=DIRECTORY to start a server",
        (f"a={adapter_directory}", "--remove=a"): "Give NAME=DIRECTORY to start a server",
        (tmp_path,): "is no adapter directory",
        (adapter_directory, "--replicas=2", "--max-replicas=1"): "--max-replicas 1 must be at least --replicas 2",
    }.items():
        refused("serve", *arguments, says=message)


def test_ray_is_imported_by_nothing_but_the_server_and_not_before_it_is_needed():
    package = pathlib.Path(server.__file__).parents[1]
    importing = {}
    for path in package.rglob("*.py"):
        if found := re.findall(r"^( *)(?:import|from) ray\b", path.read_text(encoding="utf-8"), re.M):
            importing[path.relative_to(package).as_posix()] = "" in found
    assert importing == {"cli/serve.py": False, "serving/server.py": False}


TEXTS = ["a great film", "dull " * 40, "", "the plot was not awful!", "\u00e9t\u00e9 \u4e2d x9", "great " * 9]


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    """A folder with an encoder and adapters of it, and what each says of `TEXTS`."""
    from tf_adapters import AdapterBank

    folder = tmp_path_factory.mktemp("served")
    write_checkpoint(folder / "encoder", num_hidden_layers=2)
    bank, names = AdapterBank(folder / "encoder"), {"film": "film", "film-2": "film", "shared": "shared"}
    for seed, (name, task) in enumerate({**names, "three": "three", "similar": "similar"}.items()):
        bank.add(name, save_task(folder / "encoder", folder / name, *TASKS[task], seed=seed))
    names = [name for name in bank.tasks for _ in TEXTS]
    found = bank.answer(TEXTS * len(bank.tasks), names, [""] * len(names))
    probabilities = np.split(found["probabilities"].numpy(), len(bank.tasks))
    return folder, {name: each[:, : len(bank.tasks[name].labels)] for name, each in zip(bank.tasks, probabilities)}


# A replica


@pytest.fixture(scope="module")
def replica(tasks):
    """A `Replica` without Ray, which computes the rows of a request one by one."""

    def batch(**options):
        def of_one(function):
            async def one(row):
                return (await function([row]))[0]

            return one

        return of_one

    class Metric:
        def __init__(self, *arguments, **options):
            pass

        def inc(self, number, tags=None):
            "".join((tags or {}).values()).encode("ascii")  # as Ray's

        observe = inc

    settings = {"encoder": tasks[0] / "encoder", "storage": "float32", "batch_size": 4, "wait": 0, "cores": 1}
    with pytest.MonkeyPatch.context() as patch:
        serve = types.SimpleNamespace(batch=batch)
        with_ray(patch, ray={"serve": serve}, ray__util={}, ray__util__metrics={"Counter": Metric, "Histogram": Metric})
        for name in ("TF_CPP_MIN_LOG_LEVEL", "TF_NUM_INTRAOP_THREADS"):
            patch.setenv(name, "1")
        yield Replica(settings)


def hold(replica, **sources):
    digests = {path: (path / "adapter.safetensors").exists() and _source(path, 0)[2] for path, _ in sources.values()}
    sources = {name: [str(path), number, digests[path]] for name, (path, number) in sources.items()}
    asyncio.run(replica.reconfigure(sources))


def answers(replica, *rows):
    return asyncio.run(replica.answer([(*row, None)[:3] for row in rows]))


def probabilities(replica, task):
    return [row["probabilities"] for row in answers(replica, *((task, text) for text in TEXTS))]


def test_a_replica_holds_what_it_is_told_and_answers_by_it(replica, tasks):
    folder, expected = tasks
    hold(replica, film=(folder / "film", 1), shared=(folder / "shared", 1))
    for name in ("film", "shared"):
        for found, values in zip(probabilities(replica, name), expected[name]):
            np.testing.assert_allclose(found, values, atol=1e-6)
    # The same directory by another number is another adapter: it may have been trained again.
    hold(replica, film=(folder / "film-2", 2), shared=(folder / "shared", 2), été=(folder / "film", 2))
    for name, source in {"film": "film-2", "été": "film"}.items():
        np.testing.assert_allclose(probabilities(replica, name)[0], expected[source][0], atol=1e-6)
    found = asyncio.run(replica.state())["tasks"]
    assert {name: task["change"] for name, task in found.items()} == {"film": 2, "shared": 2, "été": 2}
    hold(replica, film=(folder / "film-2", 2))
    (gone,) = answers(replica, ("shared", "a"))
    assert gone == {"error": "there is no task 'shared'; there are 'film'"}


def test_a_directory_that_a_replica_cannot_read_is_answered_by_nothing_else(replica, tasks):
    folder, _ = tasks
    hold(replica, film=(folder / "film", 1))
    before = probabilities(replica, "film")
    assert "is no adapter directory" in asyncio.run(replica.check("film", str(folder / "encoder")))
    assert asyncio.run(replica.check("film", str(folder / "film-2"))) is None
    assert probabilities(replica, "film") == before and list(asyncio.run(replica.state())["tasks"]) == ["film"]
    hold(replica, film=(folder / "encoder", 2))
    (found,) = answers(replica, ("film", "a"))
    assert "the task 'film' cannot be used" in found["error"] and "is no adapter directory" in found["error"]
    # Who starts later finds what the command saw, or nothing.
    asyncio.run(replica.reconfigure({"film": [str(folder / "film"), 2, "0" * 64]}))
    assert "holds another adapter by now" in answers(replica, ("film", "a"))[0]["error"]
    state = asyncio.run(replica.state())
    assert state["faults"]["film"]["change"] == 2 and not state["tasks"] and not replica._bank.tasks
    hold(replica, film=(folder / "film", 3))
    assert probabilities(replica, "film") == before and not asyncio.run(replica.state())["faults"]


def test_rows_that_cannot_be_read_leave_the_others_alone(replica, tasks):
    folder, expected = tasks
    hold(replica, film=(folder / "film", 4), pairs=(folder / "similar", 4))
    rows = [("film", "\ud800", None), ("pairs", "a", None), ("film", TEXTS[0], None), ("pairs", "a", "b")]
    surrogate, alone, film, number, two = replica._records([*rows, ("film", "a", "b")])
    assert "'film' reads one text: give no text_pair" in two["error"]
    assert surrogate == {"error": "the text is not UTF-8"} and "give a text_pair" in alone["error"]
    np.testing.assert_allclose(film["probabilities"], expected["film"][0], atol=1e-6)
    assert abs(number["value"]) < 0.1001 and len(number["logits"]) == 1


# Real replicas


def with_replicas(test):
    """Marks a test of real replicas."""
    missing = importlib.util.find_spec("ray") is None
    test = pytest.mark.skipif(missing, reason="needs the extra serve")(pytest.mark.nightly(test))
    return pytest.mark.usefixtures("alone")(pytest.mark.timeout(1500)(test))


@pytest.fixture
def alone(tmp_path_factory):
    """No other test has a server meanwhile: a command finds the one that runs on this machine."""
    with open(tmp_path_factory.getbasetemp().parent / "alone", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


NAMES = ("film", "guest", "shared")


def rows(source):
    return [(source.choice(NAMES), source.choice(TEXTS)) for _ in range(3)]


def replicas(app):
    """The processes that answer for an application; not the one that reads HTTP."""
    listed = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True).stdout.splitlines()
    return [int(line.split()[0]) for line in listed if f"ServeReplica:{app}:" in line]


class Asked:
    """32 clients ask a server, from `with` to its end; an answer that is wrong, or none, is an error."""

    def __init__(self, server, tasks):
        folder, expected = tasks
        expected = {name: dict(zip(TEXTS, values)) for name, values in expected.items()}
        self.generations = Generations(expected, {"film": "film", "shared": "shared"})
        self.server, self.folder, self.until, self.requests = server, folder, threading.Event(), 0
        self.pool = concurrent.futures.ThreadPoolExecutor(1)

    def goes_on(self):
        self.requests += 1
        return not self.until.is_set()

    def __enter__(self):
        self.load = self.pool.submit(load, self.server.port, 32, self.goes_on, rows, self.generations.wrong)
        return self

    def __exit__(self, error, *_):
        self.until.set()
        seconds, _, wrong = self.load.result()
        assert error or (len(seconds) > 64 and not wrong), wrong[:3]

    def change(self, **sources):
        """Change tasks, each to a directory, or to None where it goes."""
        there, words = self.server.ask("/tasks")[1]["tasks"], []
        for name, source in sources.items():
            word = "--remove" if source is None else "--replace" if name in there else "--add"
            words += [word, name if source is None else f"{name}={self.folder / source}"]
        with self.generations.change(**sources):
            changed = self.server.change(*words)
        assert changed.returncode == 0, changed.stderr
        self.more()

    def more(self, reached=lambda: True):
        """Wait until it is so, and then for some requests of each client."""
        while not (self.load.done() or reached()):
            time.sleep(0.2)
        wanted = self.requests + 4 * 32
        while not self.load.done() and self.requests < wanted:
            time.sleep(0.05)


def serve(tasks, *arguments, **variables):
    names = [f"{name}={tasks[0] / name}" for name in ("film", "shared")]
    return Server(serve_words(*names, *arguments), **variables)


@with_replicas
def test_tasks_come_and_go_and_a_replica_ends_while_clients_ask(tasks):
    folder, expected = tasks
    with serve(tasks, "--replicas=2") as running:
        status, found = running.ask("/v1/models/film:predict", {"instances": TEXTS})
        assert status == 200
        for row, values in zip(found["predictions"], expected["film"]):
            assert max(abs(a - b) for a, b in zip(row["probabilities"], values)) < 1e-5
        with Asked(running, tasks) as asked:
            before = replicas("tf-adapters-bank")
            asked.change(guest="three", film="film-2")
            assert replicas("tf-adapters-bank") == before
            os.kill(before[0], signal.SIGKILL)
            status, found = running.ask("/predict", b" " * 100 * 2**20)
            assert status == 413 and "send fewer rows" in found["error"]
            asked.change(guest=None, film="film")
        # What is refused changes nothing.
        before = running.ask("/tasks")
        for arguments, message in {
            ("--add", f"film={folder / 'three'}"): "the server has a task of that name",
            ("--replace", f"none={folder / 'three'}"): "the server has no such task; it has film, shared",
            ("--remove", "film", "--remove", "shared"): "would have no task",
            ("--add", f"other={folder / 'encoder'}"): "is no adapter directory",
        }.items():
            refused = running.change(*arguments)
            assert refused.returncode == 2 and message in refused.stderr
        assert running.ask("/tasks") == before
    assert running.status == 130


@with_replicas
def test_tasks_that_have_replicas_of_their_own_get_more_while_there_is_much_to_answer(tasks):
    film = "tf-adapters-bank-film"
    few = ("--separate", "--max-replicas=2", "--batch-size=1")
    with serve(tasks, *few, RAY_OVERRIDE_RESOURCES='{"CPU": 6}') as running:
        assert len(replicas(film)) == 1
        with Asked(running, tasks) as asked:
            asked.more(lambda: len(replicas(film)) == 2)
            asked.change(guest="three", film="film-2")
            asked.change(guest=None)
            os.kill(replicas(film)[0], signal.SIGKILL)
            asked.more()
        more = [word for number in range(6) for word in ("--add", f"{number}={tasks[0] / 'three'}")]
        refused = running.change(*more)
        assert refused.returncode == 2 and "needs 6 cores, and the Ray cluster has" in refused.stderr
        assert running.ask("/health")[1]["tasks"] == 2
        running.stop = signal.SIGTERM
    assert running.status == 130


@with_replicas
def test_a_node_leaves_and_another_joins_while_clients_ask(tasks):
    from ray.cluster_utils import Cluster

    one = {"num_cpus": 1, "node_ip_address": "127.0.0.1", "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=one)
    try:
        other = cluster.add_node(**one)
        # A replica on each, since each has one core.
        with serve(tasks, "--replicas=2", RAY_ADDRESS=cluster.address) as running:
            with Asked(running, tasks) as asked:
                asked.more()
                cluster.remove_node(other, allow_graceful=False)
                asked.more(lambda: len(replicas("tf-adapters-bank")) == 1)
                cluster.add_node(**one)
                asked.more(lambda: len(replicas("tf-adapters-bank")) == 2)
                asked.change(film="film-2", guest="three")
            running.process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
            running.stop = signal.SIGTERM
        assert running.status == 130
        assert replicas("tf-adapters-bank") == []
    finally:
        cluster.shutdown()
