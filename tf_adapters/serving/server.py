"""What runs in Ray Serve's processes: replicas that hold a bank, and the door that reads HTTP.

It loads neither TensorFlow nor Ray before an object is made: the door needs no TensorFlow, the command no Ray.
"""

import asyncio
import collections
import json
import os
import threading
import time

from tf_adapters.errors import InputError
from tf_adapters.paths import parse_json

# Names of applications: of the door, and of the replicas; where tasks have their own, the task's name follows.
DOOR, BANK = "tf-adapters", "tf-adapters-bank"
# What a replica is told of a task: where it is, the number of the change that put it there, and its weights' digest.
SOURCE = ("directory", "change", "sha256")
MOST_BYTES = 16 * 2**20
_TRIES = 6
# Seconds in which a replica says what it holds.
_ANSWERS_WITHIN = 10
_SILENT = {"error": "no replica answers: Ray's log says why"}
# What TensorFlow Serving's REST form has of a row.
_INPUTS = ("text", "text_pair")
_LENGTHS = (1, 8, 32, 64, 128, 256, 512)


def no_task(name, known):
    """The sentence for a task that is not there."""
    return f"there is no task {name!r}; there are {', '.join(map(repr, list(known)[:20])) or 'none'}"


def app_of(task, separate):
    """The name of the application that answers a task."""
    return f"{BANK}-{_ascii(task)}" if separate else BANK


def _ascii(name):
    """A task's name as Ray's metrics, whose tags are ASCII, can hold it; another one for each name."""
    return name.encode("unicode_escape").decode()


class Replica:
    """An `AdapterBank` that answers the rows of many requests together.

    Ray Serve starts it, gives each replica the same tasks by `reconfigure`, and starts it again where it ended.

    Args:
        settings: dict of `encoder`, its source, `storage`, as of an `AdapterBank`, `batch_size`, most rows that are
            computed at once, `wait`, seconds that a row waits for others, and `cores`, threads of an operation.
    """

    def __init__(self, settings):
        # TensorFlow reads them once.
        os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_NUM_INTRAOP_THREADS": str(settings["cores"])}
        from ray import serve

        from tf_adapters.serving.bank import AdapterBank

        self._settings, self._rows, self._warm = settings, settings["batch_size"], False
        self._bank = AdapterBank(settings["encoder"], storage=settings["storage"])
        # What was asked for, by name: what `SOURCE` names, and what the task is, or the `error` of reading it.
        self._held = {}
        # An answer, and the label names that it is read by, are of one task; so a change waits for a batch.
        self._lock = threading.Lock()
        self._metrics = _Metrics()

        @serve.batch(max_batch_size=self._rows, batch_wait_timeout_s=settings["wait"])
        async def batched(rows):
            return await asyncio.to_thread(self._records, rows)

        self._record = batched

    async def reconfigure(self, tasks):
        """Hold these tasks: a dict from name to a list of what `SOURCE` names.

        A directory that cannot be read, or has other weights by now, is a fault: requests for its task get the
        sentence.
        """
        await asyncio.to_thread(self._become, tasks)

    def _become(self, tasks):
        with self._lock:
            for name in self._held.keys() - tasks.keys():
                self._drop(name)
            for name, source in tasks.items():
                about = dict(zip(SOURCE, source))
                if not about.items() <= self._held.get(name, {}).items():
                    self._read(name, about)
            # Texts of all lengths, so that no request waits for TensorFlow to optimise its graph.
            longest, name = max(((task.max_length, name) for name, task in self._bank.tasks.items()), default=(0, ""))
            for length in _LENGTHS[:1] if self._warm else _LENGTHS:
                for rows in (1, self._rows) if length <= longest else ():
                    self._bank.answer(["a " * length] * rows, name, [""] * rows)
            self._warm = self._warm or longest > 0

    def _read(self, name, about):
        from tf_adapters.saving.settings import read_settings

        try:
            (self._bank.replace if name in self._bank.tasks else self._bank.add)(name, about["directory"])
            # After it was read, so that no save comes between the two.
            if read_settings(about["directory"])["weights"]["sha256"] != about["sha256"]:
                raise InputError(f"{about['directory']} holds another adapter by now: --replace the task by it.")
            task = self._bank.tasks[name]
            about |= {key: getattr(task, key) for key in ("kind", "labels", "text_pairs", "max_length")}
        except InputError as problem:
            # The old adapter is not what was asked for.
            self._drop(name)
            about["error"] = str(problem)
        self._held[name] = about

    def _drop(self, name):
        self._held.pop(name, None)
        if name in self._bank.tasks:
            self._bank.remove(name)

    async def check(self, name, directory):
        """Why a directory cannot be a task of this bank, a str, or None. The bank is as before."""

        def check(name):
            with self._lock:
                try:
                    self._bank.add(name, directory)
                except InputError as error:
                    return str(error)
                self._bank.remove(name)

        return await asyncio.to_thread(check, f"checked {name}")

    async def state(self):
        """What this replica holds, a dict of `tasks`, each with what it is, and of `faults`."""
        found = {"tasks": {}, "faults": {}, "settings": self._settings}
        for name, about in list(self._held.items()):
            found["faults" if "error" in about else "tasks"][name] = about
        return found

    async def answer(self, rows):
        """Records of rows, each `(task, text, text_pair or None)`; a record that has an `error` has nothing else."""
        began = time.perf_counter()
        records = await asyncio.gather(*map(self._record, rows))
        self._metrics.count([task if task in self._held else "" for task, _, _ in rows], records, began)
        return records

    def _records(self, rows):
        with self._lock:
            errors = [self._error(*row) for row in rows]
            asked = [row for row, error in zip(rows, errors) if error is None]
            answers = iter(self._answers(asked) if asked else ())
            self._metrics.batch.observe(len(rows))
            return [next(answers) if error is None else {"error": error} for error in errors]

    def _error(self, task, text, pair):
        from tf_adapters.serving.task_parts import is_encodable

        if task not in self._held:
            return no_task(task, self._held)
        if "error" in self._held[task]:
            return f"the task {task!r} cannot be used: {self._held[task]['error']}"
        if self._bank.tasks[task].text_pairs and pair is None:
            return f"the task {task!r} reads two texts: give a text_pair (in /predict, text_pairs)"
        if pair and not self._bank.tasks[task].text_pairs:
            return f"the task {task!r} reads one text: give no text_pair"
        if not is_encodable(text + (pair or "")):
            return "the text is not UTF-8"

    def _answers(self, rows):
        tasks, texts, pairs = zip(*rows)
        answer = self._bank.answer(list(texts), list(tasks), [pair or "" for pair in pairs])
        found = {name: value.numpy() for name, value in answer.items()}
        for number, name in enumerate(tasks):
            task, row = self._bank.tasks[name], {key: value[number] for key, value in found.items()}
            values = {key: row[key][: row["outputs"]].tolist() for key in ("probabilities", "logits")}
            if row["error"]:
                yield {"error": row["error"].decode()}
            elif task.kind == "regression":
                yield {"value": float(row["value"]), "logits": values["logits"]}
            else:
                label = "label" if task.kind == "classification" else "labels"
                yield {label: row["label"].decode(), **values, "names": list(task.labels)}


class _Metrics:
    """What Ray exports for Prometheus, by task; a request for a task that is not there counts under an empty name."""

    def __init__(self):
        from ray.util.metrics import Counter, Histogram

        steps, of_task = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000], {"tag_keys": ("task",)}
        of_rows = {"rows": "Rows that were asked for.", "errors": "Rows that have an error for an answer."}
        counted = {"requests": "Requests that had rows of the task.", **of_rows}
        self.counters = [Counter(f"tf_adapters_{name}", about, **of_task) for name, about in counted.items()]
        latency = "From a request's arrival at the replica to its answers."
        self.latency = Histogram("tf_adapters_latency_ms", latency, steps, **of_task)
        self.batch = Histogram("tf_adapters_batch_rows", "Rows of a batch.", steps[:8])

    def count(self, tasks, records, began):
        errors = collections.Counter(task for task, record in zip(tasks, records) if "error" in record)
        for task, rows in collections.Counter(tasks).items():
            tag = {"task": _ascii(task)}
            for counter, number in zip(self.counters, (1, rows, errors[task])):
                if number:
                    counter.inc(number, tag)
            self.latency.observe(1e3 * (time.perf_counter() - began), tag)


class Refusal(Exception):
    """An HTTP status and a sentence."""


class Door:
    """Reads requests over HTTP, and asks the replicas; where one ended meanwhile, another.

    `POST /predict` takes `{"task": NAME or one a row, "texts": [...], "text_pairs": [...]}`. `GET /tasks` says what
    there is, `GET /health` whether it answers. `POST /v1/models/NAME:predict` and `GET /v1/models/NAME` are TensorFlow
    Serving's (its REST interface), with the task for a model.

    Args:
        separate: bool, whether each task has replicas of its own.
    """

    def __init__(self, separate=False):
        self._separate = separate

    async def __call__(self, request):
        from starlette.responses import JSONResponse

        try:
            return JSONResponse(await self._answer(request))
        except Refusal as refusal:
            status, sentence = refusal.args
            return JSONResponse({"error": sentence}, status)

    async def _answer(self, request):
        path = request.scope["path"].rstrip("/")  # decoded, as it was sent; of `url` a "?" in it would end the path
        if path == "/predict":
            body = await _body(request)
            _only(body, "task", "texts", "text_pairs")
            records = await self._records(body.get("task"), body.get("texts"), body.get("text_pairs"))
            return {"answers": [_named(record) for record in records]}
        if path in ("/tasks", "/health"):
            tasks, faults = await self._state()
            return {"tasks": tasks, "faults": faults} if path == "/tasks" else {"status": "ok", "tasks": len(tasks)}
        if path.startswith("/v1/models/"):
            name = path.removeprefix("/v1/models/")
            if request.method == "GET":
                return await self._status(name)
            if name.endswith(":predict"):
                return await self._as_served(name.removesuffix(":predict"), await _body(request))
        known = "POST to /predict or /v1/models/NAME:predict, GET /tasks or /health"
        raise Refusal(404, f"there is nothing at {path[:200] or '/'}: {known}")

    async def _as_served(self, name, body):
        rows, columns = body.get("instances"), body.get("inputs")
        if ("instances" in body) == ("inputs" in body):
            raise Refusal(400, "give either instances, one for each row, or inputs, a list for each input")
        if body.get("signature_name") not in (None, "", "serving_default"):
            raise Refusal(400, "signature_name must be serving_default: the server answers texts")
        if "inputs" not in body:
            if not isinstance(rows, list):
                raise Refusal(400, "instances must be a list, with one entry for each row")
            rows = [row if isinstance(row, dict) else {"text": row} for row in rows]
            _only(set().union(*rows), *_INPUTS)
            columns = {key: [row.get(key) for row in rows] for key in _INPUTS}
        elif not isinstance(columns, dict):
            columns = {"text": columns}
        _only(columns, *_INPUTS)
        records = await self._records(name, columns.get("text"), columns.get("text_pair"))
        for number, record in enumerate(records):
            if "error" in record:
                ours = any(words in record["error"] for words in ("logits are not finite", " cannot be used: "))
                status = 404 if record["error"].startswith("there is no task") else 500 if ours else 400
                raise Refusal(status, f"row {number}: {record['error']}")
            record.pop("names", None)
        if "instances" in body:
            return {"predictions": records}
        return {"outputs": {key: [record[key] for record in records] for key in (records[0] if records else ())}}

    async def _status(self, name):
        tasks, faults = await self._state()
        if name in faults:
            raise Refusal(503, faults[name]["error"])
        if name not in tasks:
            raise Refusal(404, no_task(name, tasks))
        version = {"version": str(tasks[name]["change"]), "state": "AVAILABLE"}
        return {"model_version_status": [{**version, "status": {"error_code": "OK", "error_message": ""}}]}

    async def _records(self, task, texts, pairs):
        """The records of rows, in their order; `task` may be one for all, `pairs` None, for all or for single rows."""
        _check_texts("texts", texts, texts)
        tasks = [task] * len(texts) if isinstance(task, str) else task
        _check_texts("task", tasks, texts)
        pairs = [None] * len(texts) if pairs is None else pairs
        _check_texts("text_pairs", pairs, texts, str, type(None))
        groups = {}
        for row in zip(tasks, texts, pairs):
            groups.setdefault(app_of(row[0], self._separate), []).append(row)
        found = await asyncio.gather(*(self._ask(app, "answer", rows) for app, rows in groups.items()))
        # Each application's answers, in the order of its rows; one that is gone has none.
        answers = {app: iter(records or ()) for app, records in zip(groups, found)}
        return [next(answers[app_of(name, self._separate)], {"error": f"there is no task {name!r}"}) for name in tasks]

    async def _state(self):
        apps = await asyncio.to_thread(running) if self._separate else [BANK]
        states = [state for state in await asyncio.gather(*map(self._state_of, apps)) if state]
        if not any(state["tasks"] for state in states) and any(_SILENT in state["faults"].values() for state in states):
            raise Refusal(503, _SILENT["error"])
        return [dict(collections.ChainMap(*(state[part] for state in states))) for part in ("tasks", "faults")]

    async def _state_of(self, app):
        try:
            return await asyncio.wait_for(self._ask(app, "state"), _ANSWERS_WITHIN)
        except asyncio.TimeoutError:
            # Such as one for which there is no core: it does not hide the others.
            return {"tasks": {}, "faults": {app.removeprefix(f"{BANK}-"): _SILENT}}

    async def _ask(self, app, method, *arguments):
        """What a replica says, or None where there is no such application."""
        from ray import serve
        from ray.exceptions import ObjectLostError, RayActorError
        from ray.serve.exceptions import RayServeException

        for wait in [*(0.1 * 2**number for number in range(_TRIES)), None]:
            try:
                handle = await asyncio.to_thread(serve.get_app_handle, app)
                return await getattr(handle, method).remote(*arguments)
            except RayServeException:
                if self._separate:
                    return None
                raise Refusal(503, "no replica can be started: Ray's log says why") from None
            except (RayActorError, ObjectLostError):
                # Rows may be asked for again: an answer changes nothing.
                if wait is None:
                    raise Refusal(503, "the replicas end before they answer: try again later") from None
                await asyncio.sleep(wait)


def running():
    """The names of the applications that answer tasks."""
    from ray import serve

    return [name for name in serve.status().applications if name.startswith(BANK)]


async def _body(request):
    if request.method != "POST":
        raise Refusal(405, f"{request.method} is not for {request.scope['path']}: POST a JSON object")
    content = bytearray()
    async for part in request.stream():
        # Who sends too much reads no answer before the end: it is read, and not kept.
        content += part if len(content) <= MOST_BYTES else b""
    if len(content) > MOST_BYTES:
        raise Refusal(413, f"the body has more than {MOST_BYTES} bytes, which is the most: send fewer rows")
    try:
        body = parse_json(content)
    except ValueError as error:
        raise Refusal(400, f"the body is no JSON: {str(error)[:200]}") from None
    if not isinstance(body, dict):
        raise Refusal(400, "the body must be a JSON object")
    return body


def _only(given, *known):
    for name in sorted(set(given).difference(known)):
        raise Refusal(400, f"there is nothing called {name[:200]!r}: give {', '.join(known)}")


def _check_texts(name, given, texts, *types):
    wrong = [text for text in given if not isinstance(text, types or str)] if isinstance(given, list) else [given]
    if wrong:
        raise Refusal(400, f"{name} must be a list of strings, and there is {json.dumps(wrong[0])[:100]}")
    if len(given) != len(texts):
        raise Refusal(400, f"{name} has {len(given)} rows and the texts have {len(texts)}: give equally many")


def _named(record):
    """A record as `tf-adapters predict` writes it: probabilities by the names of the labels."""
    for key in record.keys() & {"error", "value"}:
        return {key: record[key]}
    found = {key: record[key] for key in ("label", "labels") if key in record}
    if "labels" in record:
        found["labels"] = [name for name, logit in zip(record["names"], record["logits"]) if logit > 0]
    return {**found, "probabilities": dict(zip(record["names"], record["probabilities"]))}
