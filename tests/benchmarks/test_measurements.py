"""The smaller measurements: what they count, their tables and their help."""

import os
import subprocess
import sys

import pytest

from benchmarks import doors, provenance
from benchmarks.peers import adapterhub_parity
from tests.benchmarks.support import BENCHMARKS, run_script, step_result


def test_the_command_is_kept_without_paths_of_the_machine():
    arguments = ["step", "--data-dir", "/data/tfds", "--output=/tmp/a.json", "--model", "minilm"]
    assert provenance.command(arguments) == (
        "python -m benchmarks step --data-dir .../tfds --output=.../a.json --model minilm"
    )


def test_provenance_says_where_a_result_comes_from():
    about = provenance.provenance()
    assert about["machine"]["cores"] >= 1 and about["machine"]["cpu"]
    assert set(about["git"]) == {"commit", "dirty"}
    assert 0 <= provenance.busy_cores(0.05) <= os.cpu_count()


SCRIPTS = (
    "step gpu quality tasks methods search pretraining recorded doors int8 mutations tables adapterhub_parity "
    "adapterhub_torch torch_environment batches"
)


@pytest.mark.parametrize("script", SCRIPTS.split())
def test_help_works_without_tensorflow(script):
    done = run_script(script, "--help")
    assert done.returncode == 0 and "usage" in done.stdout and len(done.stdout) > 200
    assert "tensorflow" not in done.stderr


@pytest.mark.parametrize("script", ["step", "gpu", "recorded", "mutations"])
def test_scripts_run_from_anywhere(script, tmp_path):
    words = [sys.executable, str(BENCHMARKS / f"{script}.py"), "--help"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env={"PATH": os.environ["PATH"]})
    assert done.returncode == 0 and f"usage: {script}" in done.stdout, done.stderr


def test_parity_table_has_a_cell_for_each_direction_that_was_compared():
    measured = {
        "imported": {"bert/lora": {"logits": 1e-6}, "bert/peft": {"logits": 2e-6}, "albert/lora": {"refused": "why"}},
        "exported": {"bert/lora": {"logits": 0.0, "flexible logits": 3e-7}},
    }
    result = {
        **step_result(),
        "kind": "adapterhub-parity",
        "versions": {},
        "file": "a.json",
        "link": "a.json",
        **measured,
    }
    text = adapterhub_parity.table(result)
    assert "| lora | refused | 1e-06, 3e-07 |" in text and "| peft |  | 2e-06 |" in text


def test_doors_are_compared_in_points():
    arms = {
        "transformers": {"metric": "accuracy", "scores": [0.8, 0.82], "mean": 0.81, "sd": 0.0141},
        "keras-hub-jax": {
            "metric": "accuracy", "scores": [0.81, 0.82], "mean": 0.815, "sd": 0.0071,
            "minus_first": {"mean": 0.005, "interval": [-0.01, 0.02]},
        },
    }  # fmt: skip
    about = {"kind": "doors", "file": "a.json", "link": "a.json", "versions": {}, "date": "2026-11-25"}
    about |= {"machine": {"cores": 2, "cpu": "made up"}, "git": {"commit": "0" * 40, "dirty": False}}
    text = doors.table({**about, "settings": {"seeds": 2, "options": "--epochs 1"}, "arms": arms})
    assert "| transformers | 81.00 ± 1.41 |  |\n| keras-hub-jax | 81.50 ± 0.71 | +0.50 (-1.00 to +2.00) |" in text
    assert "`tf-adapters train`, `--epochs 1`, 2 seeds" in text
