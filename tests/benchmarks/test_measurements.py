"""The commands' help, the smaller measurements and their tables, and the arithmetic of paired measurements."""

import math
import os
import subprocess
import sys

import numpy as np
import pytest

from benchmarks import doors, pairing, provenance
from benchmarks.peers import adapterhub_parity
from benchmarks.steps import gpu
from tests.benchmarks.support import BENCHMARKS, result_of, run_script


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
    "step gpu quality tasks methods recorded doors int8 serving mutations tables adapterhub_parity adapterhub_torch "
    "torch_environment batches"
)


@pytest.mark.parametrize("script", SCRIPTS.split())
def test_help_works_without_tensorflow(script):
    done = run_script(script, "--help")
    assert done.returncode == 0 and "usage" in done.stdout and len(done.stdout) > 200
    assert "tensorflow" not in done.stderr


@pytest.mark.parametrize("script", ["step", "gpu", "recorded", "mutations", "serving"])
def test_scripts_run_from_anywhere(script, tmp_path):
    words = [sys.executable, str(BENCHMARKS / f"{script}.py"), "--help"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env={"PATH": os.environ["PATH"]})
    assert done.returncode == 0 and f"usage: {script}" in done.stdout, done.stderr


def test_parity_table_has_a_cell_for_each_direction_that_was_compared():
    imported = {"bert/lora": {"logits": 1e-6}, "bert/peft": {"logits": 2e-6}, "albert/lora": {"refused": "why"}}
    exported = {"bert/lora": {"logits": 0.0, "flexible logits": 3e-7}}
    text = adapterhub_parity.table(result_of("adapterhub-parity", {}, imported=imported, exported=exported))
    assert "| lora | refused | 1e-06, 3e-07 |" in text and "| peft |  | 2e-06 |" in text


def test_doors_are_compared_in_points():
    one = {"metric": "accuracy", "scores": [0.8, 0.82], "mean": 0.81, "sd": 0.0141}
    other = {**one, "mean": 0.815, "sd": 0.0071, "minus_first": {"mean": 0.005, "interval": [-0.01, 0.02]}}
    arms = {"transformers": one, "keras-hub-jax": other}
    text = doors.table(result_of("doors", {"seeds": 2, "options": "--epochs 1"}, arms=arms))
    assert "| transformers | 81.00 ± 1.41 |  |\n| keras-hub-jax | 81.50 ± 0.71 | +0.50 (-1.00 to +2.00) |" in text
    assert "`tf-adapters train`, `--epochs 1`, 2 seeds" in text


def test_products_of_a_step_on_a_gpu_by_hand():
    sizes = {"num_layers": 1, "hidden_dim": 4, "num_heads": 2, "intermediate_dim": 8}
    # Six tokens; 4 * 16 + 2 * 32 multiplications each in kernels, and 2 * 3 * 4 in attention.
    assert gpu.step_flops(2, 3, "adapters", **sizes) == 2 * 6 * (2 * 128 + 3 * 24)
    assert gpu.step_flops(2, 3, "full", **sizes) == 2 * 6 * (3 * 128 + 3 * 24)


def test_share_of_the_peak_is_told_of_devices_that_are_known():
    row = {
        "arm": "full", "precision": "mixed_bfloat16", "batch_size": 32, "step_ms": {"median": 2.0},
        "examples_per_second": 16_000, "tflops": 494.5, "peak_mib": 1024.0, "accuracy": 0.9,
    }  # fmt: skip
    for device, share in (("NVIDIA H100 80GB HBM3", "50.0%"), ("cpu", "-")):
        line = gpu.describe({"device": device, "settings": {"model": "minilm"}, "rows": [row]}).splitlines()[-1]
        assert line.split()[-3:] == [share, "1,024", "0.9000"]


@pytest.mark.nightly
def test_gpu_trains_on_random_rows_and_on_tokens(tmp_path):
    pytest.importorskip("keras_hub")
    pytest.importorskip("jax")
    random = np.random.default_rng(0)
    arrays = {split: random.integers(1, 99, (5, 12)).astype("uint16") for split in ("train", "validation")}
    np.savez(tmp_path / "tokens.npz", **arrays, **{f"{split}_labels": np.array([0, 1, 1, 0, 1]) for split in arrays})
    for more in ((), ("--tokens", str(tmp_path / "tokens.npz"))):
        done = run_script("gpu.py", "--smoke", "--precisions", "mixed_bfloat16", *more)
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert [line.split()[0] for line in lines[-2:]] == ["adapters", "full"]
        assert ("." in lines[-1].split()[-1]) == bool(more)


def test_summary_of_steps_by_hand():
    summary = pairing.summarise_steps([[10.0, 30.0], [40.0, 60.0], [20.0, 20.0]], batch_size=8)
    assert summary == {"step_ms": {"median": 20.0, "min": 20.0, "max": 50.0}, "examples_per_second": 400.0}


def test_ratio_is_taken_within_each_round():
    # The second round was slow for both: the ratio of the two medians, 4/1, would be wrong.
    ratio = pairing.paired_ratio([[2.0, 2.0], [8.0], [4.0]], [[1.0], [4.0], [1.0, 1.0]])
    assert ratio["rounds"] == [2.0, 2.0, 4.0]
    assert (ratio["median"], ratio["min"], ratio["max"], ratio["interval"]) == (2.0, 2.0, 4.0, None)


def test_bootstrap_interval_lies_within_the_rounds_and_is_the_same_twice():
    top, bottom = [[value] for value in (1.0, 1.1, 1.2, 1.3, 1.4)], [[1.0]] * 5
    ratio = pairing.paired_ratio(top, bottom)
    low, high = ratio["interval"]
    assert 1.0 <= low < ratio["median"] == 1.2 < high <= 1.4
    assert pairing.paired_ratio(top, bottom) == ratio
    assert pairing.paired_ratio([[3.0]] * 5, bottom)["interval"] == [3.0, 3.0]


def test_only_ratios_whose_arms_ran_are_made():
    turns = {"adapters": [[1.0]], "full": [[2.0]], "forward-plain": [[1.0]]}
    assert list(pairing.paired_ratios(turns)) == ["full / adapters"]
    more = {**turns, "fast": [[1.0]], "full@float32": [[3.0]]}
    assert set(pairing.paired_ratios(more)) == {
        "full / adapters", "full@float32 / adapters", "adapters / fast", "full / fast", "full@float32 / fast",
    }  # fmt: skip
    assert pairing.paired_ratios(turns)["full / adapters"]["median"] == 2.0


def test_paired_difference_by_hand():
    # Differences 1, 2, 3: mean 2, sd 1, s.e.m. 1/sqrt(3); t(0.975, 2) = 4.302653.
    difference = pairing.paired_difference([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])
    assert difference["mean"] == 2.0 and difference["sd"] == 1.0 and difference["n"] == 3
    assert difference["sem"] == pytest.approx(1 / math.sqrt(3))
    assert difference["interval"] == pytest.approx([2 - 4.302653 / math.sqrt(3), 2 + 4.302653 / math.sqrt(3)], abs=1e-5)
    assert pairing.paired_difference([2.0], [1.0])["interval"] is None
    for pair in (pairing.paired_difference, pairing.paired_ratio):
        with pytest.raises(ValueError, match="2 and 1 .* cannot be paired"):
            pair([1.0, 1.0], [1.0])
