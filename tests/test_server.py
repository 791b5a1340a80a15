"""`tf-adapters serve`: what it reads over HTTP, and real replicas whose tasks change while many ask."""

import asyncio
import concurrent.futures
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import types
import urllib.error
import urllib.request

import numpy as np
import pytest

from tests.conftest import write_checkpoint
from tests.test_bank import TASKS, save_task
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

    async def read():
        return content

    request = types.SimpleNamespace(
        url=types.SimpleNamespace(path=path), method=method or ("GET" if body is None else "POST"), body=read
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


@pytest.mark.parametrize(
    "path, body, status, sentence",
    [
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
        ("/v1/models/none:predict", {"instances": ["a"]}, 404, "row 0: there is no task 'none'"),
        ("/v1/models/broken:predict", {"instances": ["a"]}, 400, "row 0: the logits are not finite"),
        ("/v1/models/none", None, 404, "there is no task 'none'; there are 'film'"),
        ("/", None, 404, "POST to /predict"),
    ],
)
def test_a_request_that_cannot_be_answered_gets_a_status_and_a_sentence(path, body, status, sentence):
    found = ask(path, body)
    assert found[0] == status and sentence in found[1]


def with_ray(monkeypatch, **modules):
    """Let `ray` and its modules be these; `ray__serve` stands for `ray.serve`."""
    for name, fakes in {"ray": {}, **modules}.items():
        monkeypatch.setitem(sys.modules, name.replace("__", "."), types.SimpleNamespace(**fakes))


def test_rows_are_asked_for_again_where_a_replica_ended(monkeypatch):
    class Ended(Exception):
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
        ray__exceptions={"RayActorError": Ended}, ray__serve__exceptions={"RayServeException": Gone},
    )  # fmt: skip
    monkeypatch.setattr(server, "_TRIES", 2)
    said = [Ended(), Ended(), ["an answer"]]
    assert asyncio.run(Door()._ask("bank", "answer", [])) == ["an answer"]
    said = [Ended(), Ended(), Ended()]
    with pytest.raises(Refusal, match="try again later"):
        asyncio.run(Door()._ask("bank", "answer", []))
    assert asyncio.run(Door()._ask("none", "answer", [])) is None


def test_the_command_refuses_before_ray_is_looked_for(cli, adapter_directory, tmp_path):
    for arguments, message in {
        (): "Give NAME=DIRECTORY to start a server",
        (f"a={adapter_directory}", "--remove=a"): "Give NAME=DIRECTORY to start a server",
        (tmp_path,): "is no adapter directory",
        (adapter_directory, "--replicas=2", "--max-replicas=1"): "--max-replicas 1 must be at least --replicas 2",
    }.items():
        refused = cli("serve", *arguments)
        assert refused.status == 2 and message in refused.err, refused.err


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
    found = bank.answer(TEXTS * len(bank.tasks), [name for name in bank.tasks for _ in TEXTS])
    probabilities = np.split(found["probabilities"].numpy(), len(bank.tasks))
    return folder, {name: each[:, : len(bank.tasks[name].labels)] for name, each in zip(bank.tasks, probabilities)}


def is_of(answer, expected):
    values = list(answer["probabilities"].values())
    return len(values) == len(expected) and max(abs(a - b) for a, b in zip(values, expected)) < 1e-5


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

        inc = observe = __init__

    settings = {"encoder": tasks[0] / "encoder", "storage": "float32", "batch_size": 4, "wait": 0, "cores": 1}
    with pytest.MonkeyPatch.context() as patch:
        serve = types.SimpleNamespace(batch=batch)
        with_ray(patch, ray={"serve": serve}, ray__util={}, ray__util__metrics={"Counter": Metric, "Histogram": Metric})
        for name in ("TF_CPP_MIN_LOG_LEVEL", "TF_NUM_INTRAOP_THREADS"):
            patch.setenv(name, "1")
        yield Replica(settings)


def hold(replica, **sources):
    asyncio.run(replica.reconfigure({name: [str(path), number] for name, (path, number) in sources.items()}))


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
    hold(replica, film=(folder / "film-2", 2), shared=(folder / "shared", 2), other=(folder / "film", 2))
    for name, source in {"film": "film-2", "other": "film"}.items():
        np.testing.assert_allclose(probabilities(replica, name)[0], expected[source][0], atol=1e-6)
    found = asyncio.run(replica.state())["tasks"]
    assert {name: task["change"] for name, task in found.items()} == {"film": 2, "shared": 2, "other": 2}
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
    state = asyncio.run(replica.state())
    assert state["faults"]["film"]["change"] == 2 and not state["tasks"] and not replica._bank.tasks
    hold(replica, film=(folder / "film", 3))
    assert probabilities(replica, "film") == before and not asyncio.run(replica.state())["faults"]


def test_rows_that_cannot_be_read_leave_the_others_alone(replica, tasks):
    folder, expected = tasks
    hold(replica, film=(folder / "film", 4), pairs=(folder / "similar", 4))
    rows = [("film", "\ud800", None), ("pairs", "a", None), ("film", TEXTS[0], None), ("pairs", "a", "b")]
    surrogate, alone, film, number = replica._records(rows)
    assert surrogate == {"error": "the text is not UTF-8"} and "give a text_pair" in alone["error"]
    np.testing.assert_allclose(film["probabilities"], expected["film"][0], atol=1e-6)
    assert abs(number["value"]) < 0.1001 and len(number["logits"]) == 1


# Real replicas


class Server:
    """`tf-adapters serve` in processes of its own."""

    def __init__(self, folder, *arguments):
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            self.port = one.getsockname()[1]
        self.command = [sys.executable, "-m", "tf_adapters.cli", "serve"]
        environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
        self.options = {"text": True, "cwd": folder, "env": {**environment, "PYTHONPATH": os.getcwd()}}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen([*self.command, *arguments, f"--port={self.port}"], **pipes, **self.options)
        line = self.process.stdout.readline()
        assert "Ctrl-C" in line, line + self.process.stderr.read()

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(60) == 130

    def change(self, *arguments):
        return subprocess.run([*self.command, *arguments], capture_output=True, timeout=300, **self.options)

    def ask(self, path, body=None):
        content = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", content, timeout=120) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)


def asked(server, tasks_of_rows, allowed, expected, until):
    """Ask again and again; returns the number of requests, and every answer that no allowed directory gives."""
    wrong, requests = [], 0
    while not until.is_set():
        status, found = server.ask("/predict", {"texts": TEXTS, "task": tasks_of_rows})
        requests += 1
        for number, (name, answer) in enumerate(zip(tasks_of_rows, found["answers"] if status == 200 else ())):
            if "error" in answer:
                right = name not in ("film", "shared") and "there is no task" in answer["error"]
            else:
                right = any(is_of(answer, expected[one][number]) for one in allowed[name])
            wrong += [] if right else [(name, number, answer)]
        wrong += [] if status == 200 else [(status, found)]
    return requests, wrong


def tasks_change_while_clients_ask(server, tasks, clients):
    folder, expected = tasks
    allowed = {"film": ["film", "film-2"], "shared": ["shared"], "guest": ["three"]}
    until, names = threading.Event(), ["film", "guest", "shared"] * 2
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        running = [pool.submit(asked, server, names, allowed, expected, until) for _ in range(clients)]
        try:
            for arguments in (
                ["--add", f"guest={folder / 'three'}", "--replace", f"film={folder / 'film-2'}"],
                ["--remove", "guest", "--replace", f"film={folder / 'film'}"],
            ):
                changed = server.change(*arguments)
                assert changed.returncode == 0, changed.stderr
            kill_a_replica()
        finally:
            until.set()
        found = [one.result() for one in running]
    assert not [wrong for _, wrongs in found for wrong in wrongs][:3]
    return sum(requests for requests, _ in found)


def kill_a_replica():
    """Kill a process that answers; not the one that reads HTTP."""
    listed = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True).stdout.splitlines()
    numbers = [int(line.split()[0]) for line in listed if "ServeReplica:tf-adapters-bank:" in line]
    assert numbers, listed
    os.kill(numbers[0], signal.SIGKILL)


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra serve")
@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_tasks_come_and_go_and_a_replica_ends_while_clients_ask(tasks):
    folder, expected = tasks
    running = Server(folder, "film=film", "shared=shared", "--replicas=2")
    try:
        status, found = running.ask("/v1/models/film:predict", {"instances": TEXTS})
        assert status == 200
        for row, values in zip(found["predictions"], expected["film"]):
            assert max(abs(a - b) for a, b in zip(row["probabilities"], values)) < 1e-5
        assert tasks_change_while_clients_ask(running, tasks, clients=8) > 8
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
    finally:
        running.stop()
