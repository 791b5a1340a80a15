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
    for inputs in (["a", "b"], {"text": ["a", "b"]}, {"text": ["a", "b"], "text_pair": ["", ""]}):
        assert ask(path, {"inputs": inputs, "signature_name": "serving_default"}) == (200, {"outputs": columns})
    (version,) = ask("/v1/models/film")[1]["model_version_status"]
    assert version["version"] == "3" and version["state"] == "AVAILABLE"


@pytest.mark.parametrize(
    "path, body, status, sentence",
    [
        ("/predict", b"{", 400, "the body is no JSON"),
        ("/predict", b"[" * 100_000, 400, "the body is no JSON"),
        ("/predict", b"\xff", 400, "the body is no JSON"),
        ("/predict", b" " * (MOST_BYTES + 1), 413, "send fewer rows"),
        ("/predict", None, 405, "POST a JSON object"),
        ("/predict", [], 400, "must be a JSON object"),
        ("/predict", {"task": "film"}, 400, "texts must be a list of strings, and there is null"),
        ("/predict", {"task": "film", "texts": ["a", 3]}, 400, "texts must be a list of strings, and there is 3"),
        ("/predict", {"texts": ["a"]}, 400, "task must be a list of strings"),
        ("/predict", {"task": ["film"], "texts": ["a", "b"]}, 400, "task has 1 rows and the texts have 2"),
        ("/predict", {"task": "film", "texts": ["a"], "text_pairs": []}, 400, "text_pairs has 0 rows"),
        ("/v1/models/film:predict", {}, 400, "either instances"),
        ("/v1/models/film:predict", {"instances": 3}, 400, "instances must be a list"),
        ("/v1/models/film:predict", {"instances": [{"text": "a", "text_pair": "b"}, "c"]}, 400, "there is null"),
        ("/v1/models/none:predict", {"instances": ["a"]}, 404, "row 0: there is no task 'none'"),
        ("/v1/models/broken:predict", {"instances": ["a"]}, 400, "row 0: the logits are not finite"),
        ("/v1/models/none", None, 404, "there is no task 'none'; there are 'film'"),
        ("/v1/models/film:classify", {}, 404, "there is nothing at"),
        ("/", None, 404, "POST to /predict"),
    ],
)
def test_a_request_that_cannot_be_answered_gets_a_status_and_a_sentence(path, body, status, sentence):
    found = ask(path, body)
    assert found[0] == status and sentence in found[1]


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

    fakes = {
        "ray": types.SimpleNamespace(serve=types.SimpleNamespace(get_app_handle=get_app_handle)),
        "ray.exceptions": types.SimpleNamespace(RayActorError=Ended),
        "ray.serve": None,
        "ray.serve.exceptions": types.SimpleNamespace(RayServeException=Gone),
    }
    for name, fake in fakes.items():
        monkeypatch.setitem(sys.modules, name, fake)
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
        (tmp_path / "none",): "there is no such directory",
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
    write_checkpoint(folder / "encoder")
    names = {"film": "film", "film-2": "film", "shared": "shared", "three": "three", "similar": "similar"}
    for seed, (name, task) in enumerate(names.items()):
        save_task(folder / "encoder", folder / name, *TASKS[task], seed=seed)
    expected = {}
    for name in names:
        found = AdapterBank(folder / "encoder").add(name, folder / name).answer(TEXTS, name)
        expected[name] = found["probabilities"].numpy()[:, : found["outputs"].numpy()[0]]
    return folder, expected


def is_of(answer, expected):
    values = list(answer["probabilities"].values())
    return len(values) == len(expected) and max(abs(a - b) for a, b in zip(values, expected)) < 1e-5


# A replica


@pytest.fixture
def replica(tasks, monkeypatch):
    """A `Replica` without Ray, which computes the rows of a request together."""

    def batch(**options):
        def decorated(function):
            waiting = []

            async def one(row):
                future = asyncio.get_running_loop().create_future()
                waiting.append((row, future))
                await asyncio.sleep(0)  # the others of the request come
                batch, waiting[:] = list(waiting), []
                if batch:
                    for (_, answer), found in zip(batch, await function([row for row, _ in batch])):
                        answer.set_result(found)
                return await future

            return one

        return decorated

    class Metric:
        def __init__(self, *arguments, **options):
            pass

        inc = observe = __init__

    serve, metrics = types.SimpleNamespace(batch=batch), types.SimpleNamespace(Counter=Metric, Histogram=Metric)
    fakes = {"ray": types.SimpleNamespace(serve=serve), "ray.util": None, "ray.util.metrics": metrics}
    for name, fake in fakes.items():
        monkeypatch.setitem(sys.modules, name, fake)
    for name in ("TF_CPP_MIN_LOG_LEVEL", "TF_NUM_INTRAOP_THREADS"):
        monkeypatch.setenv(name, "1")
    settings = {"encoder": tasks[0] / "encoder", "storage": "float32", "batch_size": 4, "wait": 0, "cores": 1}
    return Replica(settings)


def answers(replica, *rows):
    return asyncio.run(replica.answer([(*row, None)[:3] for row in rows]))


def probabilities(replica, task):
    return [row["probabilities"] for row in answers(replica, *((task, text) for text in TEXTS))]


def test_a_replica_holds_what_it_is_told_and_answers_by_it(replica, tasks):
    folder, expected = tasks
    film, shared = [str(folder / "film"), 1], [str(folder / "shared"), 1]
    asyncio.run(replica.reconfigure({"film": film, "shared": shared}))
    for name in ("film", "shared"):
        for found, values in zip(probabilities(replica, name), expected[name]):
            np.testing.assert_allclose(found, values, atol=1e-6)
    # The same directory by another number is another adapter: it may have been trained again.
    asyncio.run(replica.reconfigure({"film": [str(folder / "film-2"), 2], "three": [str(folder / "three"), 2]}))
    for name, source in {"film": "film-2", "three": "three"}.items():
        np.testing.assert_allclose(probabilities(replica, name)[0], expected[source][0], atol=1e-6)
    (gone,) = answers(replica, ("shared", "a"))
    assert gone == {"error": "there is no task 'shared'; there are 'film', 'three'"}
    found = asyncio.run(replica.state())
    assert {name: task["change"] for name, task in found["tasks"].items()} == {"film": 2, "three": 2}


def test_a_directory_that_a_replica_cannot_read_is_answered_by_nothing_else(replica, tasks):
    folder, expected = tasks
    asyncio.run(replica.reconfigure({"film": [str(folder / "film"), 1]}))
    before = probabilities(replica, "film")
    assert "is no adapter directory" in asyncio.run(replica.check("film", str(folder / "encoder")))
    assert asyncio.run(replica.check("film", str(folder / "three"))) is None
    assert probabilities(replica, "film") == before and list(asyncio.run(replica.state())["tasks"]) == ["film"]
    asyncio.run(replica.reconfigure({"film": [str(folder / "encoder"), 2]}))
    (found,) = answers(replica, ("film", "a"))
    assert "the task 'film' cannot be used" in found["error"] and "is no adapter directory" in found["error"]
    state = asyncio.run(replica.state())
    assert state["faults"]["film"]["change"] == 2 and not state["tasks"]
    asyncio.run(replica.reconfigure({"film": [str(folder / "film"), 3]}))
    assert probabilities(replica, "film") == before and not asyncio.run(replica.state())["faults"]


def test_rows_that_cannot_be_read_leave_the_others_alone(replica, tasks):
    folder, expected = tasks
    asyncio.run(replica.reconfigure({"film": [str(folder / "film"), 1], "pairs": [str(folder / "similar"), 1]}))
    surrogate, alone, film, number = answers(
        replica, ("film", "\ud800"), ("pairs", "a"), ("film", TEXTS[0]), ("pairs", "a", "b")
    )
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
        self.environment = {**os.environ, "RAY_ADDRESS": "", "PYTHONPATH": os.getcwd()}
        del self.environment["RAY_ADDRESS"]
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tf_adapters.cli", "serve", *arguments, f"--port={self.port}"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, env=self.environment,
        )  # fmt: skip
        line = self.process.stdout.readline()
        assert "Ctrl-C" in line, line + self.process.stderr.read()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(60) == 130

    def change(self, *arguments):
        return subprocess.run(
            [sys.executable, "-m", "tf_adapters.cli", "serve", *arguments],
            capture_output=True, text=True, cwd=self.folder, env=self.environment, timeout=300,
        )  # fmt: skip

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
        if status != 200:
            wrong.append((status, found))
            continue
        for number, (name, answer) in enumerate(zip(tasks_of_rows, found["answers"])):
            if "error" in answer:
                right = name not in ("film", "shared") and "there is no task" in answer["error"]
            else:
                right = any(is_of(answer, expected[one][number]) for one in allowed[name])
            if not right:
                wrong.append((name, number, answer))
    return requests, wrong


def tasks_change_while_clients_ask(server, tasks, clients, rounds):
    folder, expected = tasks
    allowed = {"film": ["film", "film-2"], "shared": ["shared"], "guest": ["three"]}
    until, names = threading.Event(), ["film", "guest", "shared"] * 2
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        running = [pool.submit(asked, server, names, allowed, expected, until) for _ in range(clients)]
        try:
            for number in range(rounds):
                for arguments in (
                    ["--add", f"guest={folder / 'three'}", "--replace", f"film={folder / 'film-2'}"],
                    ["--remove", "guest", "--replace", f"film={folder / 'film'}"],
                ):
                    changed = server.change(*arguments)
                    assert changed.returncode == 0, changed.stderr
                if number == 0:
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


needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra serve")


@needs_ray
@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_tasks_come_and_go_and_a_replica_ends_while_clients_ask(tasks):
    folder, expected = tasks
    with Server(folder, "film=film", "shared=shared", "--replicas=2") as running:
        status, found = running.ask("/v1/models/film:predict", {"instances": TEXTS})
        assert status == 200
        for row, values in zip(found["predictions"], expected["film"]):
            assert max(abs(a - b) for a, b in zip(row["probabilities"], values)) < 1e-5
        assert tasks_change_while_clients_ask(running, tasks, clients=8, rounds=1) > 8
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
