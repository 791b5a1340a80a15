"""A result: the options of the command that measures it, where it comes from, and its JSON file."""

import argparse
import contextlib
import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import shlex
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
_FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16")


def make_parser(description, *, smoke, data="folder with tfds glue/sst2; default: tensorflow_datasets' own"):
    """A parser with the options `--data-dir`, `--output` and `--smoke`; `smoke` says what the last one does."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--data-dir", help=data)
    parser.add_argument("--output", type=pathlib.Path, help="new JSON file; default: dated, in benchmarks/results")
    parser.add_argument("--smoke", action="store_true", help=f"{smoke}, nothing kept: does it run?")
    return parser


def at_least_1(text):
    """An option's type: an integer of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} must be an integer of at least 1.")
    return int(text)


def parse_arguments(parser, arguments, name, **smoke):
    """The parsed options; a smoke run has the values of `smoke` in place of those given.

    Their `output` is the file to write, named after `name` (a str, or a function of the options), or None of a smoke
    run. A file that is there is refused.
    """
    options = parser.parse_args(arguments)
    if options.smoke:
        vars(options).update(smoke)
    elif options.output is None:
        name = name if isinstance(name, str) else name(options)
        options.output = RESULTS / f"{name}-{time.strftime('%Y-%m-%d')}.json"
    if options.output is not None and options.output.exists():
        parser.error(f"{options.output} exists, and results are added, never edited: give another --output.")
    return options


def finish(kind, options, settings, measured, describe):
    """Print a result and write it: its kind, by which `tables.py` knows it, where it comes from, the options of these
    names, and what was measured, a dict. `describe` is a function of the result that returns its text."""
    names = ("tensorflow", "tf-keras", "tensorflow-text", "transformers", "numpy", "tf_adapters")
    settings = {name: getattr(options, name) for name in settings}
    result = {"kind": kind, **provenance(), "versions": installed_versions(*names), "settings": settings, **measured}
    show(result, options.output, describe)


def show(result, path, describe):
    """Print a result and write it to a new file, or to none."""
    print(describe(with_link(result, path or "not kept")))
    if path is not None:
        write_result(path, result)
        print(f"Written to {os.path.relpath(path)}")


def with_link(result, path):
    """A result as a table takes it, told of its file."""
    return {**result, "file": pathlib.Path(path).name, "link": os.path.relpath(path)}


def write_result(path, result):
    """Write JSON to a new file; FileExistsError if it is there, for results are added and never edited."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "x", encoding="utf-8") as file:
        file.write(json.dumps(result, indent=1) + "\n")


def provenance():
    """Dict of date, command, git commit and machine, without paths of this machine."""
    date = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    return {"date": date, "command": command(sys.argv), "git": git_state(), "machine": machine()}


def log(line):
    """Tell of progress, beside what is printed."""
    print(line, file=sys.stderr, flush=True)


def command(arguments):
    """The command line as one string; of absolute paths only the last part is kept."""
    parts = []
    for word in arguments[1:]:
        name, equals, value = word.rpartition("=") if word.startswith("-") else ("", "", word)
        path = pathlib.Path(value)
        parts.append(name + equals + (f".../{path.name}" if path.is_absolute() else value))
    return shlex.join(["python", "-m", "benchmarks", pathlib.Path(arguments[0]).stem, *parts])


def git_state(checkout=ROOT):
    """Commit of a checkout, and whether tracked files beside the results differ from it; Nones without git."""

    def git(*words):
        words = ["git", "-C", str(checkout), *words]
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()

    try:
        others = (":/", ":(top,exclude)benchmarks/results")
        changed = git("status", "--porcelain", "--untracked-files=no", "--", *others)
        return {"commit": git("rev-parse", "HEAD"), "dirty": bool(changed)}
    except (OSError, subprocess.CalledProcessError):
        return {"commit": None, "dirty": None}


def machine():
    """CPU, cores, instruction sets that matter, and memory."""
    model, flags = platform.machine(), set()
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            model = value.strip()
        elif name.strip() == "flags":
            flags = set(value.split())
    return {
        "cpu": model, "cores": usable_cores(), "flags": [flag for flag in _FLAGS if flag in flags],
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
    }  # fmt: skip


def installed_versions(*names):
    """Dict of the installed packages' versions, Python's included."""
    versions = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in names:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def usable_cores():
    """Number of logical CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


def busy_cores(seconds):
    """Wait, and return how many cores the whole machine kept busy meanwhile, a float."""
    before = _cpu_ticks()
    time.sleep(seconds)
    spent = [after - one for after, one in zip(_cpu_ticks(), before)]
    # Idle, and waiting for a disk.
    return (sum(spent) - sum(spent[3:5])) / sum(spent) * os.cpu_count() if sum(spent) else 0.0


def _cpu_ticks():
    return [int(value) for value in pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
