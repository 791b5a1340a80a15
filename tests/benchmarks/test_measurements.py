"""The commands' help, the smaller measurements and their tables, and the arithmetic of paired measurements."""

import json
import math
import os
import subprocess
import sys
import types

import pytest

from benchmarks import pairing, result
from benchmarks.steps import gpu, growth, tf_worker
from tests.benchmarks.support import BENCHMARKS, run_script, step_result
from tests.cases import nightly_but


def test_the_command_is_kept_without_paths_of_the_machine():
    arguments = ["step", "--data-dir", "/data/tfds", "--output=/tmp/a.json", "--model", "minilm"]
    assert result.command(arguments) == (
        "python -m benchmarks step --data-dir .../tfds --output=.../a.json --model minilm"
    )


def test_provenance_says_where_a_result_comes_from():
    about = result.provenance()
    assert about["machine"]["cores"] >= 1 and about["machine"]["cpu"]
    assert set(about["git"]) == {"commit", "dirty"}
    assert 0 <= result.busy_cores(0.05) <= os.cpu_count()


SCRIPTS = (
    "step gpu hlo growth recorded doors int8 predict serving mutations tables adapterhub_parity adapterhub_torch "
    "torch_environment batches"
)


@pytest.mark.parametrize("script", nightly_but(["step", "recorded"], SCRIPTS.split()))
def test_help_works_without_tensorflow(script):
    done = run_script(script, "--help")
    assert done.returncode == 0 and "usage" in done.stdout and len(done.stdout) > 200
    assert "tensorflow" not in done.stderr


def test_scripts_run_from_anywhere(tmp_path):
    words = [sys.executable, str(BENCHMARKS / "mutations.py"), "--help"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env={"PATH": os.environ["PATH"]})
    assert done.returncode == 0 and "usage: mutations" in done.stdout, done.stderr


def test_products_of_a_step_on_a_gpu_by_hand():
    sizes = {"num_hidden_layers": 1, "hidden_size": 4, "intermediate_size": 8}
    # Six tokens; 4 * 16 + 2 * 32 multiplications each in kernels, and 2 * 3 * 4 in attention.
    assert gpu.step_flops(2, 3, "adapters", sizes) == 2 * 6 * (2 * 128 + 3 * 24)
    assert gpu.step_flops(2, 3, "full", sizes) == 2 * 6 * (3 * 128 + 3 * 24)
    # Two adapters of five units: 2 * 2 * 4 * 5 multiplications a token, backwards twice as many.
    work = {"batch": 2, "length": 3, "depth": 1, "bottleneck": 5}
    assert growth.products(work, "fast", sizes) == 2 * 6 * (2 * 128 + 3 * 24 + 3 * 80)
    assert growth.products(work, "routed", sizes) == 2 * 6 * (128 + 24 + 80)


def test_products_of_a_step_by_hand():
    sizes = {"hidden_size": 8, "intermediate_size": 32, "num_attention_heads": 2}

    def products(depth):
        config = types.SimpleNamespace(num_hidden_layers=depth, **sizes)
        return sum(2 * math.prod(one) * two[-1] for one, two in tf_worker.step_products(2, 5, config, 3))

    # One block is the first and the last: two thirds of the projections, and no gradient below its first adapter.
    attention = 2 * (2 * 2 * 1 * 4 * 5 + 2 * 2 * 1 * 5 * 4)
    forward = 2 * (10 * 8 * 16 + 2 * 8 * 8 + 2 * 8 * 8 + 2 * 2 * 8 * 32 + 4 * 2 * 8 * 3)
    assert products(1) == attention + forward + 2 * (8 * 2 * 8 * 3 + 2 * 2 * 8 * 32)
    # Between two other blocks a block projects three times, and everything is differentiated.
    dense = 10 * 8 * 24 + 10 * 8 * 8 + 2 * 10 * 8 * 32
    assert products(3) - products(2) == 2 * (2 * dense + 6 * 2 * 2 * 5 * 4 * 5 + 12 * 10 * 8 * 3)
    assert products(1) < products(2)


def test_growth_is_of_the_largest_values_and_marked_where_it_is_above_the_products():
    rows = [
        {"value": value, "arms": {"fast": {
            "step_ms": dict.fromkeys(("median", "min", "max"), ms), "gflop": value, "build_s": 1.0,
            "built_rss_mib": 100.0 + value, "peak_rss_mib": 101.0 + value**2,
        }}}
        for value, ms in ((1, 50), (2, 4), (4, 16), (8, 64))
    ]  # fmt: skip
    found = growth.exponents(rows, "fast")
    assert found == pytest.approx({"time": 2.0, "products": 1.0, "memory": 2.0})
    about = {"axis": "depth", "precision": "float32", "rounds": 3}
    made = step_result(settings=about, rows=rows, exponents={"fast": found}, file="a.json", link="a.json")
    assert "| exponent | 2.00 (above the products') | 1.00 | 2.00 |  |" in growth.table(made)


def test_gpu_keeps_what_it_measured_beside_an_arm_that_fails(tmp_path, monkeypatch, capsys):
    def apart(settings, torch_python):
        if settings["arm"] == "full":
            raise RuntimeError("full ended with 1:\nout of memory")
        given = {name: settings[name] for name in ("arm", "precision", "batch_size")}
        times = dict.fromkeys(("median", "min", "max"), 2.0)
        about = {"device": "NVIDIA H200", "versions": {"jax": "1"}, "step_ms": times, "peak_mib": 5.0, "tflops": 98.9}
        return {**given, **about, "examples_per_second": 1000.0, "first_turn_s": 3.0, "trained_parameters": 7}

    monkeypatch.setattr(gpu, "apart", apart)
    output = tmp_path / "gpu.json"
    given = ["--batch-sizes", "2", "--precisions", "mixed_bfloat16", f"--output={output}"]
    monkeypatch.setattr("sys.argv", ["gpu", *given])
    gpu.main()
    assert json.loads(output.read_text())["left_out"] == ["full, mixed_bfloat16, 2 rows"]
    said = capsys.readouterr()
    assert "out of memory" in said.err and "did not end: full, mixed_bfloat16, 2 rows" in said.out
    assert "| mixed_bfloat16 | 2 | 2.0 (2.0 to 2.0) | 1,000 | 10% | 5 | 3 | 7 |" in said.out
    monkeypatch.setattr("sys.argv", ["gpu", *given[:-1], "--arms", "full"])
    with pytest.raises(SystemExit, match="No arm computed"):
        gpu.main()


@pytest.mark.nightly
def test_gpu_trains_on_random_rows():
    pytest.importorskip("keras_hub")
    pytest.importorskip("jax")
    done = run_script("gpu.py", "--smoke", "--precisions", "mixed_bfloat16")
    assert done.returncode == 0, done.stderr
    assert [line.split(",")[0] for line in done.stdout.splitlines()[-4:-2]] == ["| **adapters**", "| full fine-tuning"]


@pytest.mark.nightly
def test_jax_trains_by_the_program_of_a_step_on_tensorflow(tmp_path):
    pytest.importorskip("jax")
    given = ("--precisions", "float32", "--arms", "program-fast")
    done = run_script("hlo", str(tmp_path), "--batch-sizes", "2", "--length", "8", *given)
    assert done.returncode == 0, done.stderr
    done = run_script("gpu", "--smoke", "--programs", str(tmp_path), *given)
    assert done.returncode == 0, done.stderr
    assert "TensorFlow's program | float32 | 2 |" in done.stdout
    assert '"trained_parameters": 605186' in done.stderr  # as the same arm of the second door


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


def test_only_ratios_whose_arms_ran_are_made():
    turns = {"adapters": [[1.0]], "full": [[2.0]], "forward-plain": [[1.0]]}
    assert list(pairing.paired_ratios(turns)) == ["full / adapters"]
    assert set(pairing.paired_ratios({**turns, "fast": [[1.0]], "full@float32": [[3.0]]})) == {
        "full / adapters", "full@float32 / adapters", "adapters / fast", "full / fast", "full@float32 / fast",
    }  # fmt: skip
    assert pairing.paired_ratios(turns)["full / adapters"]["median"] == 2.0


def test_rounds_that_cannot_be_paired_are_refused():
    with pytest.raises(ValueError, match="2 and 1 .* cannot be paired"):
        pairing.paired_ratio([1.0, 1.0], [1.0])
