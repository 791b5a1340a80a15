"""The benchmark of the second door on JAX: its arithmetic, and that it runs on a CPU."""

import json

import numpy as np
import pytest

from benchmarks.steps import gpu
from tests.benchmarks.support import run_script


def test_products_of_a_step_by_hand():
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
def test_it_trains_on_random_rows_and_on_tokens(tmp_path):
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


def test_a_file_that_is_there_is_not_written_over(tmp_path, capsys):
    (tmp_path / "a.json").write_text(json.dumps({}))
    with pytest.raises(SystemExit):
        gpu.parse(["--output", str(tmp_path / "a.json")])
    assert "results are added, never edited" in capsys.readouterr().err
