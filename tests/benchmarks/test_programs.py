"""hlo.py and hlo_time.py."""

import importlib.util
import json

import pytest

from benchmarks.steps import hlo
from tests.benchmarks.support import run_script


def test_donated_parameters_are_read_from_a_programs_header():
    alias = "{ {1}: (15, {}, may-alias), {12}: (3, {}, must-alias) }"
    header = f"HloModule a_step__.7, input_output_alias={alias}, entry={{(f32[2])}}"
    assert hlo.donated(header + "\n{5}: (1, {}, may-alias)\n") == {1: 15, 12: 3}
    assert hlo.donated("HloModule b\n") == {}


def test_timing_programs_needs_some(tmp_path):
    done = run_script("hlo_time.py", str(tmp_path))
    assert done.returncode == 1 and "has no *.hlo: write some with" in done.stderr


@pytest.mark.nightly
def test_programs_of_steps_are_written_and_run_without_tensorflow(tmp_path):
    done = run_script("hlo.py", str(tmp_path), "--batch-size", "2", "--length", "8", "--arms", "fast", "full")
    assert done.returncode == 0, done.stderr
    about = json.loads((tmp_path / "fast.json").read_text())
    assert about["trained_parameters"] == 753_026 and len(about["donated"]) > 3 * 76  # a weight and its two moments
    assert {path.name for path in tmp_path.glob("*.hlo")} == {"fast.hlo", "full.hlo"}
    if importlib.util.find_spec("jax") is None:
        return
    done = run_script(
        "hlo_time.py", str(tmp_path), "--rounds", "1", "--steps", "1", "--output", str(tmp_path / "result.json")
    )
    assert done.returncode == 0, done.stderr
    assert set(json.loads((tmp_path / "result.json").read_text())["arms"]) == {"fast", "full"}
