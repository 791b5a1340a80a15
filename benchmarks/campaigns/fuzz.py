"""Damaged and hostile files: each is loaded or refused in one sentence, in bounded time and memory, and changes
nothing."""

import collections
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile

from benchmarks.provenance import log
from benchmarks.result_file import at_least_1, finish, make_parser, parse_arguments
from benchmarks.start import command
from benchmarks.table_parts import Table, in_notes, of_settings, origin

ALLOWED = ("loaded", "refused")
KEPT_FAILURES = 100


def parse(arguments=None):
    parser = make_parser(
        description=__doc__
        + " Files are changed at random and with knowledge of their formats: adapter directories, AdapterHub's and "
        "PEFT's checkpoints, encoders, tokenizers and data files. It fails if anything else comes of one than a load "
        "or an InputError.",
        smoke="200 cases",
    )
    parser.add_argument("--cases", type=at_least_1, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=30.0, help="that a case may take")
    parser.add_argument(
        "--failures",
        type=pathlib.Path,
        default=pathlib.Path("fuzz-failures"),
        help="folder for the files of cases that fail",
    )
    parser.add_argument(
        "--replay",
        type=pathlib.Path,
        nargs="+",
        metavar="FILE",
        help="only try these files of --failures again, and keep no result",
    )
    options = parse_arguments(parser, arguments, "fuzz", cases=200)
    if not options.seconds > 0:
        parser.error("--seconds must be above 0.")
    return options


def table(result):
    """Markdown of one result of fuzz.py."""
    rows = [
        f"| {kind} | {counts.get('loaded', 0):,} | {counts.get('refused', 0):,} | "
        f"{sum(n for name, n in counts.items() if name not in ALLOWED):,} |"
        for kind, counts in sorted(result["counts"].items())
    ]
    slowest = max(result["slowest_s"].values())
    return "\n".join([
        f"**{result['cases']:,} damaged and hostile files, seed {result['settings']['seed']}**", "",
        "| files | loaded | refused | failures |", "|---|---:|---:|---:|", *rows, "",
        origin(result, f"slowest case {slowest:.1f} s, all {result['seconds']:,.0f} s"),
    ])  # fmt: skip


TABLE = Table(table, of_settings("cases", "seed"), in_notes)


class Worker:
    """The process that reads, started anew when it died or was too slow.

    Args:
        folder: path, where it puts the files of cases.
        seconds: float, that a case may take.
    """

    def __init__(self, folder, seconds):
        self.folder, self.seconds, self.process = folder, seconds, None
        self.log = folder / "log"

    def start(self):
        environment = {
            **os.environ,
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "TF_USE_LEGACY_KERAS": "1",
            "CUDA_VISIBLE_DEVICES": "",
        }
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                command("campaigns.fuzz_worker", self.folder),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                bufsize=0,  # select must see what is there
            )
        if self._answer(600) is None:
            raise RuntimeError(f"The worker did not start: {self._said()}")

    def ask(self, request):
        """The outcome of a case, a dict of kind, choice, outcome, detail and seconds."""
        if self.process is None:
            self.start()
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()
        started = time.perf_counter()
        answer = {"kind": request.get("kind", "unknown"), "choice": request.get("choice", 0)}
        for _ in range(2):
            line = self._answer(self.seconds)
            if line is None:
                died = self.process.poll() is not None
                detail = f"status {self.process.poll()}: {self._said()}" if died else f"more than {self.seconds:g} s"
                self.stop()
                return {
                    **answer,
                    "outcome": "crash" if died else "time",
                    "detail": detail,
                    "seconds": time.perf_counter() - started,
                }
            answer |= line
        return answer

    def _answer(self, seconds):
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        line = self.process.stdout.readline() if ready else b""
        if not line and ready:
            self.process.wait()
        return json.loads(line) if line else None

    def _said(self):
        return self.log.read_bytes()[-500:].decode("utf-8", "replace")

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def keep(folder, failures, seed, number, answer):
    """The files of a case as an archive that `--replay` reads; its path."""
    failures.mkdir(parents=True, exist_ok=True)
    path = failures / f"{answer['kind']}-{seed}-{number}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("case.json", json.dumps({"seed": seed, "number": number, **answer}, indent=1))
        for file in sorted((folder / "case" / "given").rglob("*")):
            if file.is_file():
                archive.write(file, f"given/{file.relative_to(folder / 'case' / 'given')}")
    return path


def run(options, folder):
    """Try all cases; dict of counts and failures."""
    worker, counts, slowest, failures = Worker(folder, options.seconds), {}, {}, []
    worker.start()
    started = shown = time.perf_counter()
    try:
        for number in range(options.cases):
            answer = worker.ask({"seed": options.seed, "number": number})
            kind = answer["kind"]
            counts.setdefault(kind, collections.Counter())[answer["outcome"]] += 1
            slowest[kind] = max(slowest.get(kind, 0.0), answer["seconds"])
            if answer["outcome"] not in ALLOWED:
                failures.append(
                    {"number": number, "kind": kind, "outcome": answer["outcome"], "detail": answer["detail"][-400:]}
                )
                if len(failures) <= KEPT_FAILURES:
                    log(f"{keep(folder, options.failures, options.seed, number, answer)}: {answer['outcome']}")
            if time.perf_counter() - shown > 10:
                shown = time.perf_counter()
                left = (shown - started) / (number + 1) * (options.cases - number - 1)
                log(f"{number + 1:,} of {options.cases:,} cases, {len(failures)} failures, {left / 60:.0f} min left")
    finally:
        worker.stop()
    return {
        "cases": options.cases, "counts": {kind: dict(found) for kind, found in counts.items()}, "slowest_s": slowest,
        "failures": failures, "seconds": time.perf_counter() - started,
    }  # fmt: skip


def replay(options, folder):
    """Try kept files again, and print what comes of each; whether all are allowed."""
    worker, right = Worker(folder, options.seconds), True
    try:
        for path in options.replay:
            with tempfile.TemporaryDirectory() as given, zipfile.ZipFile(path) as archive:
                archive.extractall(given)
                case = json.loads((pathlib.Path(given) / "case.json").read_text(encoding="utf-8"))
                (pathlib.Path(given) / "given").mkdir(exist_ok=True)
                answer = worker.ask(
                    {
                        **{name: case[name] for name in ("number", "kind", "choice")},
                        "files": str(pathlib.Path(given) / "given"),
                    }
                )
            print(f"{path}: {answer['outcome']}, {answer['seconds']:.2f} s\n{answer['detail']}")
            right &= answer["outcome"] in ALLOWED
    finally:
        worker.stop()
    return right


def describe(result):
    """The result as lines of text."""
    lines = [f"{result['cases']:,} cases in {result['seconds']:.0f} s, {len(result['failures'])} failures"]
    lines += [
        f"{kind}: {', '.join(f'{count:,} {name}' for name, count in sorted(found.items()))}; slowest "
        f"{result['slowest_s'][kind]:.2f} s"
        for kind, found in sorted(result["counts"].items())
    ]
    return "\n".join(
        lines
        + [f"  {failure['kind']} {failure['number']}: {failure['outcome']}" for failure in result["failures"][:20]]
    )


def main():
    options = parse()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="fuzz-"))
    try:
        if options.replay:
            sys.exit(0 if replay(options, folder) else 1)
        measured = run(options, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    finish("fuzz", options, ("cases", "seed", "seconds"), measured, describe)
    if measured["failures"]:
        sys.exit(1)
