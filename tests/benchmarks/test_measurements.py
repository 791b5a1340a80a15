"""The smaller measurements: what they count, their tables and their help."""

import json
import os
import threading

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import provenance, tables
from benchmarks.campaigns import conformance, doors, load, tokens
from benchmarks.peers import adapterhub_parity
from benchmarks.steps import padding, profile_step, repeated, scale_out
from benchmarks.table_parts import NOTES
from tests.benchmarks.support import run_script, step_result


def test_the_command_is_kept_without_paths_of_the_machine():
    arguments = ["/home/me/benchmarks/step.py", "--data-dir", "/data/tfds", "--output=/tmp/a.json", "--model", "minilm"]
    assert provenance.command(arguments) == (
        "python benchmarks/step.py --data-dir .../tfds --output=.../a.json --model minilm"
    )


def test_provenance_says_where_a_result_comes_from():
    about = provenance.provenance()
    assert about["machine"]["cores"] >= 1 and about["machine"]["cpu"]
    assert set(about["git"]) == {"commit", "dirty"}
    assert 0 <= provenance.busy_cores(0.05) <= os.cpu_count()


@pytest.mark.parametrize(
    "script",
    [
        "step.py",
        "quality.py",
        "tasks.py",
        "methods.py",
        "conformance.py",
        "doors.py",
        "tokens.py",
        "pipeline.py",
        "costs.py",
        "padding.py",
        "profile_step.py",
        "soak.py",
        "fuzz.py",
        "load.py",
        "options.py",
        "kills.py",
        "repeated.py",
        "scale_out.py",
        "search.py",
        "pretraining.py",
        "adapterhub_parity.py",
        "adapterhub_torch.py",
        "table.py",
        "torch_environment.py",
        "batches.py",
    ],
)
def test_help_works_without_tensorflow(script):
    done = run_script(script, "--help")
    assert done.returncode == 0 and "usage" in done.stdout and len(done.stdout) > 200
    assert "tensorflow" not in done.stderr


def test_padding_is_counted_by_hand():
    batches = [{"attention_mask": tf.constant(mask)} for mask in ([[1, 1, 1], [1, 0, 0]], [[1, 1, 1], [1, 1, 1]])]
    assert padding.shares(batches) == {"tokens": 10, "padding": pytest.approx(0.2), "shapes": 1}


@pytest.mark.parametrize(
    "event, group",
    [
        ("gradient_tape/bert/encoder/output/MatMul/MatMul:_MklMatMul", "other products"),
        ("MatMul_11:_MklBatchMatMulV2", "products of the attention"),
        ("bert/embeddings/Gather:ResourceGather", "embeddings"),
        ("Adam/Sqrt:Sqrt", "optimizer"),
        ("mul:Mul", "other operations"),
        ("ExecutorState::Process", None),
        ("multiply_tanh_fusion", None),
        ("CpuExecutable::ExecuteAsyncOnStream", "CpuExecutable::ExecuteAsyncOnStream"),
    ],
)
def test_group_of_an_operation(event, group):
    assert profile_step.group_of(event) == group


def test_bytes_of_a_step_are_those_of_one_worker_without_the_quiet_ones():
    text = (
        "Inter-| Receive\n face |bytes\n    lo: 7 1 0 0 0 0 0 0 900 1 0 0 0 0 0 0\n"
        "  eth0: 5 1 0 0 0 0 0 0 600 1 0 0 0 0 0 0\n"
    )
    assert (scale_out.sent_bytes(text=text), scale_out.sent_bytes("eth0", text=text)) == (900, 600)
    measured = {
        "bytes": 8400,
        "seconds": 4.0,
        "steps": 2,
        "trained_parameters": 600,
        "parameters_of_sparse_gradients": 100,
        "bytes_to_load": 1,
    }
    row = scale_out.summarise(measured, quiet=100.0)
    # (8400 - 4 * 100) / 2 steps / 2 workers.
    assert (row["bytes_per_step_and_worker"], row["dense_gradient_bytes"], row["step_s"]) == (2000.0, 2000, 2.0)
    modes = {"adapters": row, "full": {**row, "bytes_per_step_and_worker": 5000.0}}
    about = {
        "kind": "scale-out",
        "settings": {"batch_size": 32, "steps": 2},
        "modes": modes,
        "file": "a.json",
        "link": "a.json",
    }
    shown = scale_out.table({**step_result(), "versions": {}, **about})
    assert "| **adapters** | 600 | 0.00 | 0.00 |" in shown and "sends 2.5 times as much" in shown


def test_a_table_of_a_soak_counts_wrong_answers():
    result = {
        "kind": "soak",
        "file": "s.json",
        "date": "2026-01-01",
        "git": {"commit": "abc", "dirty": False},
        "machine": {"cores": 2, "cpu": "X"},
        "versions": {"tensorflow": "2.21"},
        "settings": {"tasks": 1000, "copies": 6, "threads": 2},
        "random_adapters": False,
        "adapters": 24,
        "requests": 20000,
        "rows": 90000,
        "changes": {"added": 1, "replaced": 2, "removed": 3},
        "wrong": ["x"],
        "seconds": 10.0,
        "resident_mib": [100.0, 200.0, 300.0, 250.0],
    }
    text = tables.make_tables([result], NOTES)
    assert "| wrong answers | 1 |" in text and "100, 200, 300, 250" in text and "1,000 tasks" in text


@pytest.mark.nightly
def test_a_short_load_is_answered_rightly_and_its_table_says_so(tmp_path):
    """Eight clients at a bank that changes all the time, and at its export."""
    options = load.parse(["--smoke", "--requests", "1"])
    options.requests, options.tasks = 100, 10
    measured = load.load(options, tmp_path)
    for name in ("bank", "export"):
        assert not measured[name]["wrong"] and measured[name]["requests"] >= 100
    assert measured["bank"]["changes"] > 0 and measured["export"]["changes"] == 0
    settings = {"clients": 8, "writers": 2, "tasks": 10}
    about = {"kind": "load", "file": "a.json", "link": "a.json", "versions": {}, "settings": settings}
    text = tables.make_tables([{**step_result(), **about, **measured}], NOTES)
    assert "| wrong answers | 0 | 0 |" in text and "called by 8 clients" in text
    assert load.growth({"resident_mib": [1.0, 5.0, 7.0]}) == 2.0


def test_a_wrong_answer_and_a_stall_end_a_load():
    options = load.parse(["--smoke"])
    options.stall_seconds, options.requests, tasks = 0.2, 10, load.Tasks(2, [])
    right = {
        "logits": tf.constant([[1.0, 2.0, 0.0]] * 4),
        "error": tf.constant([""] * 4),
        "outputs": tf.constant([2] * 4),
    }
    expected = [np.array([[1.0, 2.0]])] * 2

    def run(call):
        return load.Load(options, tasks, ["text"], expected, call).run()["wrong"]

    assert run(lambda *_: right) == []
    assert "task" in run(lambda *_: {**right, "outputs": tf.constant([1] * 4)})[0]
    assert "task" in run(lambda *_: {**right, "logits": right["logits"] + 1e-3})[0]
    assert "task" in run(lambda *_: {**right, "error": tf.constant(["unknown task"] * 4)})[0]
    assert "ValueError" in run(lambda *_: int("x") if threading.current_thread().daemon else right)[0]
    leave = threading.Event()
    wrong = run(lambda *_: leave.wait(20) if threading.current_thread().daemon else right)
    leave.set()
    assert wrong[0] == "no request ended for 0 s"


def test_growth_of_repeated_trainings_is_by_those_after_the_first():
    result = {
        "kind": "repeated",
        "settings": {"trainings": 3},
        "resident_mib": {"fit": [1000.0, 1010.0, 1020.0], "keras": [1000.0, 1100.0, 1204.0]},
    }
    about = {"file": "a.json", "link": "a.json", "versions": {}}
    shown = repeated.table({**step_result(), **result, **about})
    assert "| adapters, `tf_adapters.fit` | 1,000 | 1,020 | 10 |" in shown and "| 1,000 | 1,204 | 102 |" in shown


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


SUITE = """
import pytest

@pytest.mark.parametrize("family, variant", [("bert", "plain"), ("albert", "plain"), ("bert", "deep")])
def test_a_variant_works(family, variant, record_property):
    record_property("checks", "starts")
    record_property("checks", "trains")
    assert family != "albert", "not bit-equal"
    record_property("checks", "is saved")

@pytest.mark.nightly
@pytest.mark.parametrize("family", ["albert", "bert"])
def test_blocks_are_fast(family, record_property):
    if family == "albert":
        record_property("refused", "albert has none")

@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize("family", ["bert"])
def test_files_are_read(family, bare):
    if bare:
        pytest.skip("needs a file")

def test_names_are_known():
    pass

@pytest.fixture
def broken():
    raise OSError("no disk")

def test_disk(broken):
    pass
"""


@pytest.mark.nightly
def test_conformance_keeps_what_each_test_said(tmp_path):
    (tmp_path / "test_suite.py").write_text(SUITE)
    done = run_script(
        "conformance.py", "--tests", str(tmp_path / "test_suite.py"), "--output", str(tmp_path / "a.json")
    )
    assert done.returncode == 1 and "9 tests" in done.stdout and "6 passed, 2 failed, 1 skipped" in done.stdout, (
        done.stdout + done.stderr
    )
    result = {**json.loads((tmp_path / "a.json").read_text()), "file": "a.json"}
    text = tables.make_tables([result], NOTES)
    assert "| | albert | bert |\n|---|---|---|\n" in text
    assert "| **a variant works** (starts; trains; is saved) | | |\n" in text
    # Of a failed test what held before, and nothing of what it did not come to.
    assert "| plain | **failed**: trains <sup>1</sup> | ✓ |\n| deep |  | ✓ |\n" in text
    assert "| **blocks are fast** | refused <sup>2</sup> | ✓ |\n" in text
    assert "| **files are read** | | |\n| bare=False |  | ✓ |\n| bare=True |  | skipped <sup>3</sup> |\n" in text
    assert "Beside these: names are known ✓; disk **failed** <sup>4</sup>.\n\n1. AssertionError: not bit-equal" in text
    assert "2. albert has none\n3. Skipped: needs a file\n4. OSError: no disk\n" in text
    unfinished = {**result, "cases": [{**case, "outcome": "not run"} for case in result["cases"]]}
    assert "✓" not in conformance.table({**unfinished, "link": "a"})
    one = run_script("conformance.py", "--tests", str(tmp_path / "test_suite.py"), "--smoke", "--select", "fast")
    assert one.returncode == 0 and "2 tests" in one.stdout and "Written" not in one.stdout
    none = run_script("conformance.py", "--tests", str(tmp_path / "test_suite.py"), "--smoke", "--select", "nothing")
    assert none.returncode == 1 and "there is no result" in none.stderr


ON_BACKENDS = """
import os
import pathlib

import pytest


@pytest.mark.parametrize("variant", ["plain", "deep"])
@pytest.mark.parametrize("family", ["bert", "albert"])
def test_both_doors(family, variant, record_property):
    backend, mark = os.environ["KERAS_BACKEND"], pathlib.Path(__file__).with_suffix(".runs")
    with open(mark, "a") as runs:
        runs.write(f"{backend} {family} {variant}\\n")
    record_property("checks", "equal")
    record_property("differences", {"logits": {"plain": 2e-7, "deep": 3e-6}[variant]})
    if (family, variant) == ("albert", "deep"):
        record_property("refused", "one block")
    assert (backend, family, variant) != ("jax", "bert", "deep") or mark.with_suffix(".mended").exists()
"""


@pytest.mark.nightly
def test_conformance_has_a_row_for_each_backend_and_runs_again_what_failed(tmp_path):
    (tmp_path / "test_suite.py").write_text(ON_BACKENDS)
    words = ["conformance.py", "--tests", str(tmp_path / "test_suite.py"), "--backends", "tensorflow", "jax"]
    words += ["--folder", str(tmp_path / "folder"), "--output"]
    done = run_script(*words, str(tmp_path / "a.json"))
    assert done.returncode == 1 and "7 passed, 1 failed" in done.stdout, done.stdout + done.stderr
    text = conformance.table({**json.loads((tmp_path / "a.json").read_text()), "file": "a.json", "link": "a.json"})
    assert (
        "| **tensorflow**: of 2 variants hold | 1, 1 refused | 2 |\n| tensorflow: logits | 3.0e-06 | 3.0e-06 |" in text
    )
    assert "| **jax**: of 2 variants hold | 1, 1 refused | 1 |\n" in text
    assert "- bert, deep, jax: failed: equal: " in text
    assert "- albert, deep, jax: refused by both doors: one block" in text
    (tmp_path / "test_suite.mended").touch()
    done = run_script(*words, str(tmp_path / "b.json"))
    assert done.returncode == 0 and "8 passed" in done.stdout, done.stdout + done.stderr
    runs = (tmp_path / "test_suite.runs").read_text().splitlines()
    assert len(runs) == 9 and runs.count("jax bert deep") == 2


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


def test_texts_that_are_cut_differently_are_told_apart():
    def cut(texts, length):
        ids = np.array([[len(text) % 7 + place for place in range(3)] for text in texts])
        return {"input_ids": ids, "attention_mask": np.array([[1, 1, length]] * len(texts))}

    texts = ["a film", "caf\u00e9", "the film 's plot", "1\u00bd hours", "a\u0007b"]
    assert tokens.compare(texts, lambda part: cut(part, 0), lambda part: cut(part, 0), tokens.of_byte_bpe) == {}
    found = tokens.compare(texts, lambda part: cut(part, 0), lambda part: cut(part, 1), tokens._accents)
    assert found == {
        "anything else": 2,
        "accents": 1,
        "characters with a compatible form, such as ½ and …": 1,
        "control characters, U+FFFD": 1,
    }
    assert tokens.of_byte_bpe(texts[2]) == "'s and its like behind a space or a sign"
    assert tokens.of_byte_bpe("it's") == "anything else"
