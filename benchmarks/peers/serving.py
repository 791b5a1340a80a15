"""Requests to `tf-adapters serve`: one bank of many tasks, a deployment for each, and `adapters` on PyTorch.

All stand behind Ray Serve on this machine alone. A round starts one server after the other, asks it by each number of
clients, and stops it. At last tasks change while clients ask, and every answer is compared.
"""

import contextlib
import http.client
import itertools
import json
import math
import os
import pathlib
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

from benchmarks.pairing import in_turn
from benchmarks.peers.torch_environment import torch_python
from benchmarks.result import ROOT, at_least_1, finish, installed_versions, log, make_parser, parse_arguments
from benchmarks.start import command
from benchmarks.table_parts import Table, in_notes, markdown, of_settings, origin

ARMS = {
    "bank": "a bank of all tasks",
    "wide-bank": "the bank, with as many replicas as there are tasks",
    "separate": "a deployment for each task",
    "torch-adapters": "`adapters` on PyTorch, all tasks in one model",
}
SETTINGS = ("model", "tasks", "replicas", "bottleneck", "clients", "requests", "rounds", "changing")
_ALWAYS = (-math.inf, math.inf)


class Server:
    """A server in processes of its own, from `with` to its end: a command, which prints a line when it answers and ends
    by Ctrl-C, or by the signal `stop`, with these variables beside this process's."""

    stop = signal.SIGINT

    def __init__(self, words, **variables):
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            self.port = one.getsockname()[1]
        self._words = [*words, f"--port={self.port}"]
        others = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
        self._environment = {**others, "PYTHONPATH": str(ROOT), "RAY_worker_niceness": "0", **variables}

    def __enter__(self):
        self._said = tempfile.TemporaryFile("w+")
        options = {"stdout": subprocess.PIPE, "stderr": self._said, "text": True, "env": self._environment}
        self.process = subprocess.Popen(self._words, **options)
        # Ray has lines of its own there, of many processes.
        if not any("Ctrl-C" in line for line in self.process.stdout):
            self._said.seek(0)
            raise RuntimeError(f"The server does not start:\n{self._said.read()[-2000:]}")
        return self

    def __exit__(self, *_):
        self.process.send_signal(self.stop)
        self.status = self.process.wait(300)

    def change(self, *arguments):
        """Run `tf-adapters serve` with these arguments beside it; a `subprocess.CompletedProcess`."""
        options = {"capture_output": True, "text": True, "env": self._environment, "timeout": 600}
        return subprocess.run([*serve_words(), *arguments], **options)

    def ask(self, path, body=None):
        """The status and the JSON that it answers; `body` may be bytes, or a value for JSON."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)) as connection:
            return _ask(connection, path, body)

    def memory_mib(self):
        """MiB of all its processes; what several share is counted once."""
        parents, family, total = {}, {self.process.pid}, 0
        for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        while more := {one for one, parent in parents.items() if parent in family} - family:
            family |= more
        for one in family:
            with contextlib.suppress(OSError):
                total += int(re.search(r"^Pss: +(\d+)", pathlib.Path(f"/proc/{one}/smaps_rollup").read_text(), re.M)[1])
        return total / 1024


def serve_words(*arguments):
    """The words that run `tf-adapters serve` of this checkout."""
    return [sys.executable, "-m", "tf_adapters", "serve", *map(str, arguments)]


def _ask(connection, path, body):
    content = body if body is None or isinstance(body, bytes) else json.dumps(body)
    connection.request("GET" if body is None else "POST", path, content)
    answer = connection.getresponse()
    content = answer.read()
    try:
        return answer.status, json.loads(content)
    except ValueError:
        return answer.status, content


class Generations:
    """By which adapter a task answers, and since when, of what each directory says, a dict from texts to probabilities,
    and the directory that each task starts with."""

    def __init__(self, expected, sources):
        self._expected, self._found = expected, {name: [[source, *_ALWAYS]] for name, source in sources.items()}

    @contextlib.contextmanager
    def change(self, **sources):
        """Tasks change meanwhile, each to a directory, or to None where it goes: both answers are right."""
        for name, source in sources.items():
            self._found.setdefault(name, [[None, *_ALWAYS]]).append([source, time.monotonic(), math.inf])
        yield
        for name in sources:
            self._found[name][-2][2] = time.monotonic()

    def wrong(self, rows, status, found, began, ended):
        """The rows, pairs of task and text, that no adapter answers so that was there between two times."""
        if status != 200 or len(found["answers"]) != len(rows):
            return [(status, found)]
        answered = zip(rows, found["answers"])
        return [(*row, answer) for row, answer in answered if not self._right(*row, answer, began, ended)]

    def _right(self, task, text, answer, began, ended):
        periods = self._found.get(task, [[None, *_ALWAYS]])
        sources = [source for source, since, until in periods if since <= ended and began <= until]
        if "error" in answer:
            return None in sources and "there is no task" in answer["error"]
        found = list(answer["probabilities"].values())
        right = [list(self._expected[source][text]) for source in sources if source is not None]
        return any(len(found) == len(one) and max(abs(a - b) for a, b in zip(found, one)) < 1e-4 for one in right)


def load(port, clients, go_on, draw, wrong):
    """Ask by clients of one connection each, as fast as they are answered, while `go_on()`. `draw`, a function of a
    `random.Random`, gives a request's rows; `wrong` is as of `Generations`.

    Returns: seconds of each request, seconds of all together, and all that was wrong.
    """
    seconds, mistakes = [], []

    def client(number):
        source = random.Random(number)
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=300)) as connection:
            while go_on():
                rows = draw(source)
                body = {"task": [task for task, _ in rows], "texts": [text for _, text in rows]}
                began = time.monotonic()
                status, found = _ask(connection, "/predict", body)
                ended = time.monotonic()
                seconds.append(ended - began)
                mistakes.extend(wrong(rows, status, found, began, ended))

    began = time.monotonic()
    with ThreadPoolExecutor(clients) as pool:
        # A client that fails says so.
        list(pool.map(client, range(clients)))
    return seconds, time.monotonic() - began, mistakes


def parse(arguments=None):
    parser = make_parser(__doc__, smoke="2 tasks, 8 requests of 1 and 2 clients, 1 round, 40 while tasks change")
    parser.add_argument("--model", default="minilm", help="minilm, or a checkpoint directory with a vocab.txt")
    parser.add_argument("--tasks", type=at_least_1, default=32)
    parser.add_argument("--replicas", type=at_least_1, default=1, help="of the bank, and of the peer on PyTorch")
    parser.add_argument("--bottleneck", type=at_least_1, default=64)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS), metavar="ARM", help=", ".join(ARMS))
    parser.add_argument("--clients", type=at_least_1, nargs="+", default=[1, 8, 32])
    parser.add_argument("--requests", type=at_least_1, default=1000, help="of each number of clients in a round")
    parser.add_argument("--rounds", type=at_least_1, default=3)
    parser.add_argument("--changing", type=at_least_1, default=20_000, help="requests while tasks change")
    parser.add_argument("--torch-python", type=pathlib.Path, help="Python of the peers; default: .benchmark-env")
    small = {"tasks": 2, "clients": [1, 2], "requests": 8, "rounds": 1, "changing": 40}
    return parse_arguments(parser, arguments, "serving", **small)


def main():
    options = parse()
    with tempfile.TemporaryDirectory() as folder:
        encoder, expected = _write_tasks(pathlib.Path(folder), options)
        names = list(expected)[:-1]
        generations = Generations(expected, {name: name for name in names})
        texts = list(expected[names[0]])

        def draw(source):
            return [(source.choice(names), source.choice(texts))]

        arms = measure(options, pathlib.Path(folder), encoder, names, draw, generations)
        changing = answers_while_tasks_change(options, pathlib.Path(folder), names, draw, expected)
    finish("serving", options, SETTINGS, {"arms": arms, "changing": changing, **installed_versions("ray")}, table)


def _write_tasks(folder, options):
    """The encoder's folder, and what each task says of some texts, as `Generations` has it; one task is a spare."""
    import numpy as np

    import tf_adapters
    from tf_adapters.models.transformers.loading import find_files

    encoder = find_files(options.model)
    model = tf_adapters.load_backbone(encoder, num_labels=2)
    longest = min(128, model.config.max_position_embeddings)
    wordpiece = tf_adapters.text.WordPiece.from_directory(encoder, max_length=longest)
    words = [word for word in wordpiece.vocabulary if word.isalpha()]
    source, noise = random.Random(0), np.random.default_rng(0)
    # As many words as a sentence or a short paragraph has.
    texts = [" ".join(source.choices(words, k=source.randint(5, 40))) for _ in range(100)]
    config = tf_adapters.AdapterConfig(bottleneck_size=options.bottleneck, train_layer_norm="encoder")
    tf_adapters.set_trainable(tf_adapters.add_adapters(model, config, seed=0), "adapters")
    bank, expected = tf_adapters.AdapterBank(encoder), {}
    for number in range(options.tasks + 1):
        for variable in model.trainable_variables:
            variable.assign_add(noise.normal(0, 0.02, variable.shape))
        name, task = f"task-{number}", {"kind": "classification", "text_pairs": False}
        bank.add(name, tf_adapters.save_adapter(model, folder / name, text=wordpiece, task=task))
        answers = bank.answer(texts, name)["probabilities"].numpy()
        expected[name] = {text: row[:2].tolist() for text, row in zip(texts, answers)}
    return encoder, expected


def _words(arm, options, folder, encoder, names):
    """The words that start an arm's server."""
    if arm == "torch-adapters":
        about = {"encoder": str(encoder), "tasks": len(names), **vars(options)}
        about = {name: about[name] for name in ("encoder", "tasks", "bottleneck", "replicas")}
        return command("torch_server", json.dumps(about), python=torch_python(options.torch_python))
    more = {"separate": "--separate", "wide-bank": f"--replicas={len(names)}"}
    tasks = [f"{name}={folder / name}" for name in names]
    return serve_words(*tasks, more.get(arm, f"--replicas={options.replicas}"))


def measure(options, folder, encoder, names, draw, generations):
    """What each arm needs: dict from arm to `clients`, a dict of figures by round, and `memory_mib` by round."""
    # Replicas may be more than the cores are: they share them.
    cores = json.dumps({"CPU": max(len(names), options.replicas, os.cpu_count())})
    arms = {arm: {"memory_mib": [], "clients": {str(one): [] for one in options.clients}} for arm in options.arms}
    for number in range(options.rounds):
        for arm in in_turn(options.arms, number):
            words = _words(arm, options, folder, encoder, names)
            # Nobody else computes the answers of PyTorch.
            wrong = _no_answers if arm == "torch-adapters" else generations.wrong
            with Server(words, RAY_OVERRIDE_RESOURCES=cores) as server:
                for clients, found in arms[arm]["clients"].items():
                    # The first requests are not counted: connections are made, and replicas found.
                    load(server.port, int(clients), _up_to(4 * len(names)), draw, wrong)
                    seconds, whole, mistakes = load(server.port, int(clients), _up_to(options.requests), draw, wrong)
                    found.append({**summary(seconds, whole), "wrong": len(mistakes)})
                    log(f"round {number + 1}, {arm}, {clients} clients: {found[-1]}")
                arms[arm]["memory_mib"].append(server.memory_mib())
    return arms


def _no_answers(rows, status, found, began, ended):
    return [] if status == 200 and len(found["answers"]) == len(rows) else [(status, found)]


def _up_to(requests):
    """A function that says so many times that there is another; of a generator, threads would need a lock."""
    left = iter(range(requests))
    return lambda: next(left, None) is not None


def summary(seconds, whole):
    """Requests a second, and percentiles in milliseconds: the shortest time within which so many were answered."""
    ordered = sorted(seconds)
    shares = {f"p{one}_ms": 1e3 * ordered[math.ceil(len(ordered) * one / 100) - 1] for one in (50, 95, 99)}
    return {"requests_per_second": len(ordered) / whole, **shares}


def answers_while_tasks_change(options, folder, names, draw, expected):
    """Counts of requests that 32 clients make, of changes meanwhile, and of wrong answers."""
    first, last, spare = names[0], names[-1], list(expected)[-1]
    changes = itertools.cycle(
        [{"replace": {first: spare}}, {"remove": {last: None}}, {"replace": {first: first}}, {"add": {last: last}}]
    )
    generations, done = Generations(expected, {name: name for name in names}), 0
    with Server(_words("bank", options, folder, None, names)) as server, ThreadPoolExecutor(1) as pool:
        answered = pool.submit(load, server.port, 32, _up_to(options.changing), draw, generations.wrong)
        while not answered.done():
            ((option, tasks),) = next(changes).items()
            with generations.change(**tasks):
                words = [name if source is None else f"{name}={folder / source}" for name, source in tasks.items()]
                changed = server.change(f"--{option}", *words)
            if changed.returncode:
                raise RuntimeError(f"--{option} {words[0]}: {changed.stderr}")
            done += 1
    seconds, _, wrong = answered.result()
    return {"requests": len(seconds), "changes": done, "wrong": len(wrong), "first": repr(wrong[:1])[:500]}


def table(result):
    """Markdown of one result of serving.py."""
    settings, changing, rows = result["settings"], result["changing"], []
    for arm, found in result["arms"].items():
        for clients, rounds in found["clients"].items():
            names = ("requests_per_second", "p50_ms", "p95_ms", "p99_ms")
            figures = [f"{statistics.median(one[name] for one in rounds):.1f}" for name in names]
            memory, wrong = statistics.median(found["memory_mib"]), sum(one["wrong"] for one in rounds)
            rows.append((ARMS[arm], f"{memory:,.0f}", clients, *figures, wrong))
    what = (
        f"While tasks changed {changing['changes']} times, 32 clients made {changing['requests']:,} requests, of which "
        f"{changing['wrong']} were answered wrongly. Medians of {settings['rounds']} rounds of {settings['requests']} "
        f"requests of one row; {settings['replicas']} replicas where nothing else is said"
    )
    title = f"Ray Serve, {settings['tasks']} tasks, {settings['model']}"
    head = "| server | memory, MiB | clients | requests/s | p50, ms | p95, ms | p99, ms | wrong |"
    return markdown(title, head, "lrrrrrrr", rows, origin(result, what))


TABLE = Table(table, of_settings("model", "tasks", "replicas", "bottleneck"), in_notes)
