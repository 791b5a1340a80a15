"""What the tests of the benchmarks have in common: where they are, a run of a script, and a made-up result."""

import pathlib
import subprocess
import sys

BENCHMARKS = pathlib.Path(__file__).parents[2] / "benchmarks"


def run_script(script, *arguments):
    """Run a command of the benchmarks, `step.py` as `python -m benchmarks step`."""
    command = [sys.executable, "-m", "benchmarks", script.removesuffix(".py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, cwd=BENCHMARKS.parent)


def step_result(**changes):
    result = {
        "kind": "step",
        "date": "2026-01-02T03:04:05+00:00",
        "settings": {
            "model": "bert-base",
            "batches": "t128",
            "batch_size": 16,
            "precision": "float32",
            "bottleneck": 64,
            "rounds": 5,
            "steps": 4,
            "xla": False,
            "threads": 2,
        },
        "batches": {"lengths": [128, 128], "text": "glue/sst2, validation split"},
        "weights": "random",
        "versions": {"tensorflow": {"tensorflow": "2.21.0"}, "torch": {"torch": "2.13.0"}},
        "machine": {"cpu": "A Processor", "cores": 2},
        "git": {"commit": "0123456789abcdef", "dirty": False},
        "arms": {
            "full": arm_row(3000.0, 5.3, 5000.0, 109_483_778, 437_000_000),
            "adapters": {**arm_row(2000.4, 8.0, 4000.0, 2_417_666, 9_680_000), "libraries_rss_mib": 700.4},
        },
        "ratios": {"full / adapters": {"median": 1.5, "min": 1.4, "max": 1.6, "interval": [1.45, 1.55]}},
    }
    return {**result, **changes}


def arm_row(step_ms, rate, memory, trained, saved):
    return {
        "step_ms": {"median": step_ms, "min": step_ms - 10, "max": step_ms + 10},
        "examples_per_second": rate,
        "warm_up_s": 20.0,
        "peak_rss_mib": memory,
        "trained_parameters": trained,
        "saved_bytes": saved,
    }
