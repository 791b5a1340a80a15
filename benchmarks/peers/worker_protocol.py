"""One arm of a benchmark in a process of its own, told what to do by JSON lines.

The driver writes a request to the worker's standard input and waits for one line of
answer, so that of all workers only one computes at a time. Neither side imports
anything heavy here: PyTorch's and TensorFlow's workers share this file.

Requests: {"do": "build", ...settings}, {"do": "warm-up"}, {"do": "steps", "count": n},
{"do": "finish"}. Answers: {"ok": {...}} or {"error": "..."}.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import traceback


class WorkerError(RuntimeError):
    """A worker reported an error or died; the message has what it last said."""


class Worker:
    """The driver's end of one worker process.

    Args:
        name: the arm's name.
        command: list of str that starts the process.
        environment: dict of environment variables added to this process's.
        log: path of a file for what the worker's libraries print.
    """

    def __init__(self, name, command, *, environment=None, log):
        self.name = name
        self.log = pathlib.Path(log)
        with open(self.log, "wb") as file:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                env={**os.environ, **(environment or {})},
            )

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
        """End the process if it still runs."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def _last_words(self):
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])


def serve(make_arm):
    """Answer requests until "finish"; the worker's end.

    Args:
        make_arm: function of the settings that returns an arm: an object with
            `trained_parameters` (int), `details` (dict), `step(index)`, which trains on or
            scores batch `index` and returns when that is done, `batch_count`, and
            `save(directory)`, which may do nothing, and may return a dict of what it measured.
    """
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
                answer = {
                    "build_s": time.perf_counter() - started,
                    "trained_parameters": arm.trained_parameters,
                    "built_rss_mib": peak_rss_mib(),
                    **arm.details,
                }
            elif do == "warm-up":
                times = [_timed(arm, index) for index in range(arm.batch_count)]
                answer = {"first_step_s": times[0] / 1e3, "warm_up_s": sum(times) / 1e3, "peak_rss_mib": peak_rss_mib()}
            elif do == "steps":
                times = [_timed(arm, (done + index) % arm.batch_count) for index in range(request["count"])]
                done += len(times)
                answer = {"step_ms": times}
            elif do == "finish":
                answer = {"peak_rss_mib": peak_rss_mib(), **_saved(arm)}
            else:
                raise ValueError(f"unknown request {do!r}")
        except Exception as error:  # noqa: BLE001 - whatever it is, the driver must hear of it
            traceback.print_exc()
            answers.write(json.dumps({"error": f"{type(error).__name__}: {error}"}) + "\n")
            answers.flush()
            continue
        answers.write(json.dumps({"ok": answer}) + "\n")
        answers.flush()
        if do == "finish":
            break
    # Nothing left to do, and interpreters with two runtimes take seconds to end.
    os._exit(0)


def peak_rss_mib():
    """Highest resident memory of this process, MiB.

    Not `getrusage`: its number survives `exec`, so a child starts with the peak of
    the process that started it.
    """
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("/proc/self/status has no VmHWM: peak memory needs Linux.")


def directory_bytes(directory):
    """Bytes of all files below a directory."""
    return sum(path.stat().st_size for path in pathlib.Path(directory).rglob("*") if path.is_file())


def _timed(arm, index):
    started = time.perf_counter()
    arm.step(index)
    return (time.perf_counter() - started) * 1e3


def _saved(arm):
    with tempfile.TemporaryDirectory() as directory:
        measured = arm.save(directory) or {}
        return {"saved_bytes": directory_bytes(directory) or None, **measured}
