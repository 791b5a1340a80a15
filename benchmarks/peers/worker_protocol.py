"""One arm of a benchmark in a process of its own, told what to do by JSON lines, and what all arms compute on.

The driver writes a request to the worker's standard input and waits for one line of answer, so that of all workers only
one computes at a time. Neither side imports anything heavy here: PyTorch's and TensorFlow's workers share this file.

Requests: {"do": "build", ...settings}, {"do": "warm-up"}, {"do": "steps", "count": n}, {"do": "profile"},
{"do": "finish"}.
Answers: {"ok": {...}} or {"error": "..."}.
"""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import traceback

import numpy as np

# Of the banks of LoRA: the same tasks for this package and for PEFT.
TASKS, RANK, ALPHA, TARGETS = 32, 8, 16, ("query", "value")


class WorkerError(RuntimeError):
    """A worker reported an error or died; the message has what it last said."""


class Worker:
    """The driver's end of the process of an arm, which a command, a list of str, starts with these variables beside
    this process's. What its libraries print goes to the file `log`."""

    def __init__(self, name, command, *, environment=None, log):
        self.name = name
        self.log = pathlib.Path(log)
        with open(self.log, "wb") as file:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": file}
            self.process = subprocess.Popen(command, **pipes, text=True, env={**os.environ, **(environment or {})})

    def ask(self, do, **values):
        """Send one request and return its answer; raises WorkerError."""
        try:
            self.process.stdin.write(json.dumps({"do": do, **values}) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            status = self.process.wait()
            # The kernel kills whoever asks last when memory is out.
            hint = " It was killed, perhaps for want of memory: give fewer arms." if status == -9 else ""
            raise WorkerError(f"{self.name}: the worker ended (status {status}).{hint}\n{self._last_words()}")
        answer = json.loads(line)
        if "error" in answer:
            raise WorkerError(f"{self.name}: {answer['error']}\n{self._last_words()}")
        return answer["ok"]

    def close(self):
        """End the process if it still runs; it has nothing to tidy up."""
        self.process.kill()
        self.process.wait()
        with contextlib.suppress(BrokenPipeError):  # of a request that a dead worker did not read
            self.process.stdin.close()
        self.process.stdout.close()

    def _last_words(self):
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])


class Arm:
    """What a worker computes: `step(index)` trains on batch `index`, or scores it, and returns when that is done.

    It has `batch_count`, and `details`, a dict for its row of the result. `save` writes what was trained; `profile`
    says what a step's operations take, a dict of ms by what they do, or None where that is not known. The first pass
    over the batches is in the context `ahead()`.
    """

    trained_parameters = 0

    def ahead(self):
        return contextlib.nullcontext()

    def save(self, directory):
        pass

    def profile(self):
        return None


def serve(make_arm):
    """Answer requests until "finish", by the arm that a function of the settings makes; the worker's end."""
    # Libraries print to standard output too; the answers keep the real one for themselves.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    arm, done = None, 0
    for line in sys.stdin:
        request = json.loads(line)
        do = request.pop("do")
        try:
            if do == "build":
                started = time.perf_counter()
                arm = make_arm(request)
                seconds, memory = time.perf_counter() - started, peak_rss_mib()
                about = {"trained_parameters": arm.trained_parameters, **arm.details}
                answer = {"build_s": seconds, "built_rss_mib": memory, **about}
            elif do == "warm-up":
                started = time.perf_counter()
                with arm.ahead():
                    before = (time.perf_counter() - started) * 1e3
                    times = [_timed(arm, index) for index in range(arm.batch_count)]
                times[0] += before
                answer = {"first_step_s": times[0] / 1e3, "warm_up_s": sum(times) / 1e3, "peak_rss_mib": peak_rss_mib()}
            elif do == "steps":
                times = [_timed(arm, (done + index) % arm.batch_count) for index in range(request["count"])]
                done += len(times)
                answer = {"step_ms": times}
            elif do == "profile":
                answer = arm.profile()
            elif do == "finish":
                answer = {"peak_rss_mib": peak_rss_mib(), **_saved(arm)}
            else:
                raise ValueError(f"unknown request {do!r}")
            answer = {"ok": answer}
        except Exception as error:  # noqa: BLE001 - whatever it is, the driver must hear of it
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
        if do == "finish" and "ok" in answer:
            break
    # Nothing left to do, and interpreters with two runtimes take seconds to end.
    os._exit(0)


def peak_rss_mib():
    """Highest resident memory of this process, MiB. Not `getrusage`, whose number survives `exec`: a child starts with
    the peak of the process that started it."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("/proc/self/status has no VmHWM: peak memory needs Linux.")


def _timed(arm, index):
    started = time.perf_counter()
    arm.step(index)
    return (time.perf_counter() - started) * 1e3


def _saved(arm):
    with tempfile.TemporaryDirectory() as directory:
        arm.save(directory)
        size = sum(path.stat().st_size for path in pathlib.Path(directory).rglob("*") if path.is_file())
        return {"saved_bytes": size or None}


def read_batches(path):
    """The batches that batches.py wrote: a list of token ids and masks, `(rows, length)`, and labels."""
    with np.load(path) as arrays:
        names, count = ("input_ids", "attention_mask", "labels"), len(arrays.files) // 3
        return [[arrays[f"{name}_{index}"] for name in names] for index in range(count)]


def names_of(rows, tasks=TASKS):
    """The task of each row of a batch, a list of str; of many tasks, from all over them."""
    return [f"task{number * max(1, tasks // rows) % tasks}" for number in range(rows)]


def task_weights(number, depth, hidden_size):
    """Trained weights of the task of a number, float32 arrays: a dict from `(block, target)` to `A`, `(hidden_size,
    RANK)`, and `B`, `(RANK, hidden_size)`; and the classifier's kernel, `(hidden_size, 2)`, and bias, `(2,)`."""
    random = np.random.default_rng(number)

    def draw(*shape):
        return (random.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)

    sites = [(block, target) for block in range(depth) for target in TARGETS]
    return {site: (draw(hidden_size, RANK), draw(RANK, hidden_size)) for site in sites}, (draw(hidden_size, 2), draw(2))


def check_same(answers, tolerance=1e-3):
    """Raise RuntimeError unless arms answered the same: `answers` has the logits of each one's first batch.

    Returns: the greatest difference, a float.
    """
    values = np.asarray(list(answers.values()))
    difference = float(np.ptp(values, axis=0).max(initial=0.0))
    if not difference <= tolerance:
        raise RuntimeError(f"{' and '.join(answers)} answer otherwise, by {difference:.1g}: they compute other things.")
    return difference
