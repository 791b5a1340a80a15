"""Where a result comes from: commit, machine, command."""

import datetime
import importlib.metadata
import os
import pathlib
import platform
import shlex
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
_FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16")


def provenance():
    """Dict of date, command, git commit and machine, without paths of this machine."""
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "command": command(sys.argv),
        "git": git_state(),
        "machine": machine(),
    }


def log(line):
    """Tell of progress, beside what is printed."""
    print(line, file=sys.stderr, flush=True)


def command(arguments):
    """The command line as one string; of absolute paths only the last part is kept."""
    return shlex.join(["python", "-m", "benchmarks", pathlib.Path(arguments[0]).stem, *without_folders(arguments[1:])])


def without_folders(words):
    """Words of a command line, of whose absolute paths only the last part is kept."""
    parts = []
    for word in words:
        name, equals, value = word.rpartition("=") if word.startswith("-") else ("", "", word)
        path = pathlib.Path(value)
        parts.append(name + equals + (f".../{path.name}" if path.is_absolute() else value))
    return parts


def git_state(checkout=ROOT):
    """Commit of a checkout, and whether tracked files beside the results differ from it; Nones without git."""
    try:
        commit = _git(checkout, "rev-parse", "HEAD").strip()
        others = (":/", ":(top,exclude)benchmarks/results")
        changed = _git(checkout, "status", "--porcelain", "--untracked-files=no", "--", *others)
        return {"commit": commit, "dirty": bool(changed.strip())}
    except (OSError, subprocess.CalledProcessError):
        return {"commit": None, "dirty": None}


def machine():
    """CPU, cores, instruction sets that matter, and memory."""
    model, flags = platform.machine(), set()
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                model = value.strip()
            elif name.strip() == "flags":
                flags = set(value.split())
    except OSError:
        pass
    return {
        "cpu": model,
        "cores": usable_cores(),
        "flags": [flag for flag in _FLAGS if flag in flags],
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
    }


def installed_versions(*names):
    """Dict of the installed packages' versions, Python's included."""
    versions = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in names:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    return versions


def usable_cores():
    """Number of logical CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


def busy_cores(seconds):
    """Wait, and return how many cores the whole machine kept busy meanwhile, a float."""
    before = _cpu_ticks()
    time.sleep(seconds)
    after = _cpu_ticks()
    total = sum(after) - sum(before)
    idle = sum(after[3:5]) - sum(before[3:5])  # idle, and waiting for a disk
    return (total - idle) / total * os.cpu_count() if total else 0.0


def available_memory_gib():
    """Memory that new processes can have, GiB."""
    for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) / 2**20
    return float("inf")


def _cpu_ticks():
    return [int(value) for value in pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]


def _git(checkout, *arguments):
    return subprocess.run(["git", "-C", str(checkout), *arguments], check=True, capture_output=True, text=True).stdout
