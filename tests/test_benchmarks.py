"""The benchmarks' arithmetic, files and processes; no time is measured here."""

import importlib.util
import json
import math
import os
import pathlib
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import tensorflow as tf

BENCHMARKS = pathlib.Path(__file__).parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import bank_arm
import batches as batches_script
import padding
import pairing
import pretraining
import profile_step
import provenance
import methods
import quality
import scale_out
import search
import step
import table
import hlo
import tasks as tasks_script
import torch_environment
import tf_worker
import training_runs
import worker_protocol

FAKE_WORKER = f"""
import sys, time
sys.path.insert(0, {str(BENCHMARKS)!r})
from worker_protocol import serve

class Arm:
    trained_parameters = 7
    batch_count = 2
    details = {{"versions": {{"fake": "1"}}}}
    def __init__(self, settings):
        print("a library's chatter on standard output")
        self.settings, self.seen = settings, []
        if settings.get("fail") == "build":
            raise ValueError("no such thing")
    def step(self, index):
        print("more chatter")
        self.seen.append(index)
        if self.settings.get("fail") == "die":
            import os
            print("last words", file=sys.stderr, flush=True)
            os._exit(3)
        with open(self.settings["trace"], "a") as file:
            file.write(f"{{self.settings['arm']}} {{index}}\\n")
    def save(self, directory):
        with open(directory + "/weights", "wb") as file:
            file.write(b"x" * 1234)

serve(Arm)
"""


@pytest.fixture
def fake_worker(tmp_path):
    script = tmp_path / "fake_worker.py"
    script.write_text(textwrap.dedent(FAKE_WORKER))
    made = []

    def make(arm):
        made.append(worker_protocol.Worker(arm, [sys.executable, str(script)], log=tmp_path / f"{arm}.log"))
        return made[-1]

    yield make
    for worker in made:
        worker.close()


def test_a_worker_builds_warms_up_steps_and_finishes(fake_worker, tmp_path):
    worker = fake_worker("one")
    built = worker.ask("build", arm="one", trace=str(tmp_path / "trace"))
    assert built["trained_parameters"] == 7 and built["versions"] == {"fake": "1"} and built["built_rss_mib"] > 1
    assert worker.ask("warm-up").keys() == {"first_step_s", "warm_up_s", "peak_rss_mib"}
    assert len(worker.ask("steps", count=3)["step_ms"]) == 3
    assert len(worker.ask("steps", count=1)["step_ms"]) == 1
    finished = worker.ask("finish")
    assert finished["saved_bytes"] == 1234 and finished["peak_rss_mib"] >= built["built_rss_mib"]
    assert worker.process.wait(10) == 0
    # The warm-up goes once over the batches; turns go on where the last one stopped.
    assert (tmp_path / "trace").read_text().split() == "one 0 one 1 one 0 one 1 one 0 one 1".split()


def test_an_error_in_a_worker_reaches_the_driver_and_the_worker_lives_on(fake_worker, tmp_path):
    worker = fake_worker("one")
    with pytest.raises(worker_protocol.WorkerError, match="one: ValueError: no such thing"):
        worker.ask("build", fail="build")
    assert worker.ask("build", arm="one", trace=str(tmp_path / "trace"))["trained_parameters"] == 7
    with pytest.raises(worker_protocol.WorkerError, match="unknown request 'dance'"):
        worker.ask("dance")


def test_a_worker_that_dies_is_reported_with_its_last_words(fake_worker):
    worker = fake_worker("one")
    worker.ask("build", fail="die")
    with pytest.raises(worker_protocol.WorkerError, match=r"one: the worker ended \(status 3\)[\s\S]*last words"):
        worker.ask("warm-up")


def test_workers_take_turns_and_every_second_round_goes_backwards(fake_worker, tmp_path):
    workers = {}
    for arm in ("a", "b"):
        workers[arm] = fake_worker(arm)
        workers[arm].ask("build", arm=arm, trace=str(tmp_path / "trace"))
    lines = []
    busy = iter([0.0, 0.25, 0.5, 0.25])
    turns, others = step.alternate(
        workers, rounds=2, steps=2, log=lines.append, pause=0.0, busy=lambda pause: next(busy)
    )
    assert (tmp_path / "trace").read_text().split("\n")[:-1] == "a 0,a 1,b 0,b 1,b 0,b 1,a 0,a 1".split(",")
    assert {arm: [len(turn) for turn in rows] for arm, rows in turns.items()} == {"a": [2, 2], "b": [2, 2]}
    assert others == 0.25 and len(lines) == 2


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


def test_rounds_that_cannot_be_paired_are_refused():
    with pytest.raises(ValueError, match="2 and 1 rounds"):
        pairing.paired_ratio([[1.0], [1.0]], [[1.0]])
    with pytest.raises(ValueError, match="2 and 1 values"):
        pairing.paired_difference([1.0, 1.0], [1.0])


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


def test_a_result_is_never_overwritten(tmp_path):
    path = tmp_path / "results" / "one.json"
    step.write_result(path, {"a": 1})
    with pytest.raises(FileExistsError):
        step.write_result(path, {"a": 2})
    assert json.loads(path.read_text()) == {"a": 1}
    done = _run("step.py", "--output", str(path), "--arms", "adapters")
    assert done.returncode == 2 and "never edited" in done.stderr


def test_options_depend_on_the_model_and_turns_are_whole(capsys):
    assert step.parse(["--model", "bert-base"])[1].batch_size == 16
    options = step.parse(["--model", "bert-base", "--batches", "short"])[1]
    assert (options.batch_size, options.steps) == (32, 8)
    assert step.parse(["--batch-size", "4", "--steps", "12"])[1].steps == 12
    for arguments in (["--steps", "3"], ["--rounds", "0"], ["--arms", "full", "full"]):
        with pytest.raises(SystemExit):
            step.parse(arguments)


def test_packed_rows_are_full_and_in_order():
    packed = batches_script.pack([[5, 6, 7], [8], [9, 10, 11, 12]], 2, 5, cls_id=1, sep_id=2)
    assert packed.tolist() == [[1, 5, 6, 7, 2], [1, 8, 9, 10, 2]]
    assert batches_script.pack([[5, 6, 7]], 2, 5, cls_id=1, sep_id=2) is None


def test_short_batches_are_sorted_padded_to_their_longest_and_keep_their_labels():
    rows = [[1, 5, 5, 2], [1, 2], [1, 6, 2], [1, 2]]
    made = batches_script.sort_into_batches(rows, np.array([3, 0, 2, 1]), 2, pad_id=0)
    assert [ids.tolist() for ids, _, _ in made] == [[[1, 2], [1, 2]], [[1, 6, 2, 0], [1, 5, 5, 2]]]
    assert [mask.tolist() for _, mask, _ in made] == [[[1, 1], [1, 1]], [[1, 1, 1, 0], [1, 1, 1, 1]]]
    assert [labels.tolist() for _, _, labels in made] == [[0, 1], [2, 3]]


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


# The study


def fake_run(accuracy, validation=0.5, rate=1e-3, seed=0):
    return {
        "accuracy": accuracy, "validation_best": validation, "learning_rate": rate, "seed": seed, "best_epoch": 1,
        "seconds": 1.0, "trained_parameters": 10, "further_accuracy": accuracy, "further_rows": 6000,
    }


def point(rate, dropout=None, init_stddev=None):
    return {"learning_rate": rate, "dropout": dropout, "init_stddev": init_stddev}


GRIDS = {"adapters": [point(1e-3), point(3e-3, 0.0, 0.03)], "full": [point(1e-5), point(5e-5)]}


def test_the_study_chooses_by_validation_and_runs_the_other_seeds_at_the_best_rate(tmp_path):
    calls = []

    def train(method, learning_rate, dropout, init_stddev, seed):
        calls.append((method, learning_rate, dropout, init_stddev, seed))
        # The rate that is worse on the reported rows is the better one on the validation rows.
        good = learning_rate in (3e-3, 5e-5)
        return {**fake_run(0.8 if good else 0.9, 0.95 if good else 0.6)}

    best = quality.study(
        {"rows": 1}, grids=GRIDS, seeds=[5, 6], runs=training_runs.Runs(tmp_path), train=train, log=lambda line: None
    )
    assert calls == [
        ("adapters", 1e-3, None, None, 5), ("adapters", 3e-3, 0.0, 0.03, 5),
        ("full", 1e-5, None, None, 5), ("full", 5e-5, None, None, 5),
        ("adapters", 3e-3, 0.0, 0.03, 6), ("full", 5e-5, None, None, 6),
    ]
    assert list(best) == ["adapters", "full"]
    assert all([run["seed"] for run in runs] == [5, 6] for runs in best.values())
    assert all(run["accuracy"] == 0.8 for run in best["adapters"])


def test_a_killed_study_goes_on_without_repeating_a_run(tmp_path):
    calls = []

    def train(**run):
        calls.append(tuple(run.values()))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return fake_run(0.9)

    def run_study(settings):
        return quality.study(
            settings, grids=GRIDS, seeds=[0, 1], runs=training_runs.Runs(tmp_path), train=train, log=lambda _: None
        )

    with pytest.raises(KeyboardInterrupt):
        run_study({"rows": 1})
    with open(tmp_path / "runs.jsonl", "a") as file:
        file.write('{"half a li')
    run_study({"rows": 1})
    assert calls[2] == calls[3] and len(calls) == 7 and len(set(calls)) == 6
    assert len(training_runs.Runs(tmp_path).runs) == 6
    run_study({"rows": 1})
    assert len(calls) == 7
    run_study({"rows": 2})  # other settings are other runs
    assert len(calls) == 13 and len((tmp_path / "runs.jsonl").read_text().splitlines()) == 12


def test_the_best_runs_of_before_the_further_rows_are_done_again(tmp_path):
    calls = []

    def study(further_rows):
        def train(method, seed, **point):
            calls.append((method, seed))
            return fake_run(0.9) | {"further_rows": further_rows}

        grids, runs = {method: grid[:1] for method, grid in GRIDS.items()}, training_runs.Runs(tmp_path)
        return quality.study(
            {}, grids=grids, seeds=[0, 1], runs=runs, train=train, further_rows=further_rows, log=lambda line: None
        )

    everything = [(method, seed) for method in GRIDS for seed in (0, 1)]
    for further_rows in (None, 100, 200):
        best = study(further_rows)
        assert sorted(calls) == sorted(everything)
        assert all(run["further_rows"] == further_rows for runs in best.values() for run in runs)
        calls.clear()
        study(further_rows)
        assert not calls


def test_of_equal_rates_the_smaller_is_chosen_and_a_diverged_one_never():
    runs = [fake_run(0.9, 0.7, 3e-3), fake_run(0.8, 0.7, 1e-3), fake_run(None, 0.99, 1e-2), fake_run(0.8, 0.8, 1e-4)]
    assert [run["learning_rate"] for run in quality.rank(runs)] == [1e-4, 1e-3, 3e-3]
    with pytest.raises(RuntimeError, match="every learning rate"):
        quality.rank(runs[2:3])


@pytest.mark.parametrize("later, chosen", [(0.95, 1e-3), (0.69, 3e-3), (None, 3e-3)])
def test_of_the_finalists_the_best_mean_over_the_seeds_is_chosen(tmp_path, later, chosen):
    # At the first seed 3e-3 is ahead of 1e-3, and 1e-2 is no finalist.
    validation = {3e-3: (0.9, 0.7), 1e-3: (0.89, later), 1e-2: (0.5, 0.99)}
    calls = []

    def train(learning_rate, seed, **others):
        calls.append((learning_rate, seed))
        number = validation[learning_rate][seed]
        return fake_run(None if number is None else 0.8, number or 0.99) | {"failure": "diverged"}

    best = quality.study(
        {}, grids={"full": [point(rate) for rate in validation]}, seeds=[0, 1], runs=training_runs.Runs(tmp_path),
        train=train, finalists=2, log=lambda line: None,
    )  # fmt: skip
    assert calls == [(3e-3, 0), (1e-3, 0), (1e-2, 0), (3e-3, 1), (1e-3, 1)]
    assert [run["learning_rate"] for run in best["full"]] == [chosen, chosen]


def test_summary_of_the_study_by_hand():
    best = {
        "adapters": [fake_run(0.90), fake_run(0.88, seed=1)],
        "full": [fake_run(0.89, rate=5e-5), fake_run(0.89, rate=5e-5, seed=1)],
    }
    summary = quality.summarise(
        best, {"adapters": [point(rate) for rate in (3e-4, 1e-3, 3e-3)], "full": [point(1e-5), point(5e-5)]}
    )
    assert summary["methods"]["adapters"]["mean"] == pytest.approx(0.89)
    assert summary["methods"]["adapters"]["sd"] == pytest.approx(0.01 * math.sqrt(2))
    assert not summary["methods"]["adapters"]["at_edge_of_grid"] and summary["methods"]["full"]["at_edge_of_grid"]
    assert summary["adapters - full"]["mean"] == pytest.approx(0.0)
    # t(0.975, 1) = 12.7062 and s.e.m. 0.01
    assert summary["adapters - full"]["interval"] == pytest.approx([-0.127062, 0.127062], abs=1e-6)
    assert "adapters - full: +0.00 points, 95 % interval -12.71 to +12.71" in quality.describe(summary)


def test_products_of_a_step_by_hand():
    # One block is the first and the last: two thirds of the projections, and no gradient below its first adapter.
    found = tf_worker.step_products(2, 5, depth=1, size=8, inner=32, heads=2, bottleneck=3)
    work = sum(2 * math.prod(one) * other[-1] for one, other in found)
    attention = 2 * (2 * 2 * 1 * 4 * 5 + 2 * 2 * 1 * 5 * 4)
    forward = 2 * (10 * 8 * 16 + 2 * 8 * 8 + 2 * 8 * 8 + 2 * 32 * 8 + 2 * 8 * 32 + 4 * 2 * 8 * 3)
    assert work == attention + forward + 2 * (8 * 2 * 8 * 3 + 2 * 2 * 8 * 32)
    # Between two other blocks a block projects three times, and everything is differentiated.
    one, two, three = (
        sum(
            2 * math.prod(a) * b[-1]
            for a, b in tf_worker.step_products(2, 5, depth=depth, size=8, inner=32, heads=2, bottleneck=3)
        )
        for depth in (1, 2, 3)
    )
    dense = 10 * 8 * 24 + 10 * 8 * 8 + 2 * 10 * 8 * 32
    assert three - two == 2 * (2 * dense + 6 * 2 * 2 * 5 * 4 * 5 + 12 * 10 * 8 * 3) and one < two


# Whole programs


def test_donated_parameters_are_read_from_a_programs_header():
    header = "HloModule a_step__.7, input_output_alias={ {1}: (15, {}, may-alias), {12}: (3, {}, must-alias) }, entry={(f32[2])}"
    assert hlo.donated(header + "\n{5}: (1, {}, may-alias)\n") == {1: 15, 12: 3}
    assert hlo.donated("HloModule b\n") == {}


def test_timing_programs_needs_some(tmp_path):
    done = _run("hlo_time.py", str(tmp_path))
    assert done.returncode == 1 and "has no *.hlo: write some with" in done.stderr


@pytest.mark.slow
def test_programs_of_steps_are_written_and_run_without_tensorflow(tmp_path):
    done = _run("hlo.py", str(tmp_path), "--batch-size", "2", "--length", "8", "--arms", "fast", "full")
    assert done.returncode == 0, done.stderr
    about = json.loads((tmp_path / "fast.json").read_text())
    assert about["trained_parameters"] == 753_026 and len(about["donated"]) > 3 * 78
    assert {path.name for path in tmp_path.glob("*.hlo")} == {"fast.hlo", "full.hlo"}
    if importlib.util.find_spec("jax") is None:
        return
    done = _run("hlo_time.py", str(tmp_path), "--rounds", "1", "--steps", "1", "--output", str(tmp_path / "result.json"))
    assert done.returncode == 0, done.stderr
    assert set(json.loads((tmp_path / "result.json").read_text())["arms"]) == {"fast", "full"}


# methods.py

ENCODER = {"depth": 6, "hidden_size": 384, "intermediate_size": 1536, "layer_norm": {"none": 0, "encoder": 9216, "all": 9984}}


def test_methods_are_sized_to_the_same_number_of_parameters():
    # 12 (2 * 32 * 384 + 384 + 32) + 9,984; 6 (2 * 67 * 384 + 384 + 67); 6 * 34 * 4 * 384
    expected = {"houlsby": 309_888, "pfeiffer": 311_442, "parallel": 311_442, "lora": 313_344}
    assert {method: methods.count(methods.sized(method, 310_000, ENCODER), ENCODER) for method in methods.METHODS} == expected
    assert methods.sized("lora", 1, ENCODER).rank == 1


def test_the_methods_study_chooses_each_rate_by_validation_and_goes_on():
    scores = {"houlsby": {1e-3: 0.8, 3e-3: 0.7}, "pfeiffer": {1e-3: 0.6, 3e-3: 0.9}, "parallel": {1e-3: 0.5, 3e-3: 0.5}, "lora": {1e-3: None, 3e-3: 0.4}}
    done = {}

    def do(task, method, rate, seed):
        value = scores[method][rate]
        done[task, method, rate, seed] = {
            "method": method, "learning_rate": rate, "seed": seed, "validation_best": value, "primary": value and value - 0.1 * seed,
            "metric": "accuracy", "constant": 0.5, "trained_parameters": 5, "config": {"rank": 2},
        }  # fmt: skip
        return done[task, method, rate, seed]

    found = methods.study(["a"], rates=[1e-3, 3e-3], seeds=[0, 1], find=lambda *identity: done.get(identity), do=do)
    assert {method: runs[0]["learning_rate"] for method, runs in found["a"].items()} == {"houlsby": 1e-3, "pfeiffer": 3e-3, "parallel": 1e-3, "lora": 3e-3}
    assert len(done) == 4 * 2 + 4
    methods.study(["a"], rates=[1e-3, 3e-3], seeds=[0, 1], find=lambda *identity: done.get(identity), do=lambda *identity: pytest.fail("again"))
    summary = methods.summarise(found, [1e-3, 3e-3])
    pfeiffer = summary["a"]["methods"]["pfeiffer"]
    assert pfeiffer["values"] == [0.9, 0.8] and pfeiffer["minus houlsby"]["mean"] == pytest.approx(0.1) and pfeiffer["at_edge_of_grid"]
    assert "pfeiffer" in methods.describe(summary)
    about = {name: step_result()[name] for name in ("date", "machine", "git")}
    result = {"kind": "methods", "file": "x", "link": "x", "versions": {"tensorflow": "2.21.0"}, **about, "seeds": [0, 1], "tasks": summary, "settings": {"model": "minilm", "rows": 2000, "epochs": 3}}
    assert "| a, accuracy | pfeiffer, 2 | 5 | 0.003 (edge of the grid) | 85.0 ± 7.1 | +10.00 (+10.00 to +10.00) |" in table.methods_table(result)
    with pytest.raises(RuntimeError, match="houlsby diverged on a at every learning rate"):
        methods.study(["a"], rates=[1.0], seeds=[0], find=lambda *identity: {"validation_best": None}, do=None)


# The tables


def step_result(**changes):
    result = {
        "kind": "step",
        "date": "2026-01-02T03:04:05+00:00",
        "settings": {
            "model": "bert-base", "batches": "t128", "batch_size": 16, "precision": "float32", "bottleneck": 64,
            "rounds": 5, "steps": 4, "xla": False,
        },
        "batches": {"lengths": [128, 128], "text": "glue/sst2, validation split"},
        "weights": "random",
        "versions": {"tensorflow": {"tensorflow": "2.21.0"}, "torch": {"torch": "2.13.0"}},
        "machine": {"cpu": "A Processor", "cores": 2},
        "git": {"commit": "0123456789abcdef", "dirty": False},
        "arms": {
            "full": _arm(3000.0, 5.3, 5000.0, 109_483_778, 437_000_000),
            "adapters": _arm(2000.4, 8.0, 4000.0, 2_417_666, 9_680_000),
        },
        "ratios": {"full / adapters": {"median": 1.5, "min": 1.4, "max": 1.6, "interval": [1.45, 1.55]}},
    }
    return {**result, **changes}


def _arm(step_ms, rate, memory, trained, saved):
    return {
        "step_ms": {"median": step_ms, "min": step_ms - 10, "max": step_ms + 10}, "examples_per_second": rate,
        "warm_up_s": 20.0, "peak_rss_mib": memory, "trained_parameters": trained, "saved_bytes": saved,
    }


STEP_TABLE = """\
**BERT-base (12 x 768), random weights, 16 rows of 128 tokens, float32**

| | ms per step (min to max) | examples/s | tracing and compiling, s | peak memory, MiB | trained parameters | saved, MB |
|---|---:|---:|---:|---:|---:|---:|
| **adapters**, tf_adapters | 2000 (1990 to 2010) | 8.0 | 16.0 | 4,000 | 2,417,666 | 9.7 |
| full fine-tuning, TensorFlow | 3000 (2990 to 3010) | 5.3 | 14.0 | 5,000 | 109,483,778 | 437.0 |

| step time, paired by round | median | interval |
|---|---:|---:|
| full / adapters | 1.50 | 1.45 to 1.55 |

<sub>5 rounds of 4 steps, glue/sst2, validation split; 2 cores of A Processor; TensorFlow 2.21.0, PyTorch 2.13.0; \
2026-01-02, commit 0123456; [a.json](benchmarks/results/a.json).</sub>"""


def test_table_of_a_step_result(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(step_result()))
    assert table.make_tables(table.read_results(tmp_path)) == STEP_TABLE


def test_table_of_the_study_and_of_the_newest_result_only(tmp_path):
    best = {"adapters": [fake_run(0.90), fake_run(0.88)], "full": [fake_run(0.89, rate=5e-5)] * 2}
    summary = {
        "kind": "quality", "date": "2026-01-02", "seeds": [0, 1], "reported_rows": 872, "further_rows": 6000,
        "settings": {"task": "glue/sst2", "model": "minilm", "rows": 8000, "epochs": 3},
        "versions": {"tensorflow": "2.21.0"}, "machine": {"cpu": "A Processor", "cores": 2},
        "git": {"commit": "0123456789", "dirty": True}, **quality.summarise(best, GRIDS),
    }
    (tmp_path / "sst2").mkdir()
    (tmp_path / "sst2" / "summary.json").write_text(json.dumps(summary))
    (tmp_path / "new.json").write_text(json.dumps(step_result(date="2026-02-01T00:00:00+00:00")))
    (tmp_path / "old.json").write_text(json.dumps(step_result(weights="pretrained")))
    text = table.make_tables(table.read_results(tmp_path))
    assert "| **adapters** | 0.001 (edge of its grid) | encoder's | 0.01 | 89.00 | 1.41 | 1.00 | 10 |" in text
    assert "Adapters minus full fine-tuning: +0.00 points, 95 % interval -12.71 to +12.71 (paired t, 2 seeds). On 6,000 further rows" in text
    assert "**adapters** 89.00 %, full fine-tuning 89.00 %; +0.00 points, 95 %" in text
    assert "commit 0123456 with changes" in text
    assert "new.json" in text and "old.json" not in text


def test_the_readmes_are_checked_and_written(tmp_path):
    readme, notes, results = tmp_path / "README.md", tmp_path / "benchmarks" / "README.md", tmp_path / "results"
    results.mkdir()
    notes.parent.mkdir()
    (results / "a.json").write_text(json.dumps(step_result()))
    padding = {"ways": [{"batch_size": 16, "way": "sorted", "padding": 0.125, "shapes": 3}], "rows": 1000, "settings": {}}
    common = {key: step_result()[key] for key in ("date", "machine", "git")}
    (results / "b.json").write_text(json.dumps({"kind": "padding", "versions": {"tensorflow": "2.21.0"}, **common, **padding}))
    arguments = ("table.py", "--root", str(tmp_path), "--results", str(results))
    readme.write_text("no markers")
    done = _run(*arguments)
    assert done.returncode == 2 and "benchmarks:start" in done.stderr
    for path in (readme, notes):
        path.write_text(f"before\n{table.START}\nold\n{table.END}\nafter\n")
    assert _run(*arguments, "--check").returncode == 1
    assert "old" in readme.read_text()
    assert _run(*arguments).returncode == 0
    assert readme.read_text() == f"before\n{table.START}\n{STEP_TABLE}\n{table.END}\nafter\n"
    assert "| 16 | sorted | 12.5 | 3 |" in notes.read_text() and "[b.json](results/b.json)" in notes.read_text()
    assert _run(*arguments, "--check").returncode == 0
    readme.write_text(readme.read_text().replace("5 rounds", "6 rounds"))
    done = _run(*arguments, "--check")
    assert done.returncode == 1 and "README.md are" in done.stderr and "benchmarks/README.md" not in done.stderr


def test_routed_arms_name_how_many_adapters_there_are():
    assert bank_arm.split_routed("routed") == (32, False) and bank_arm.split_routed("routed-1000") == (1000, False)
    assert bank_arm.split_routed("routed-single") == (32, True) and bank_arm.split_routed("routed-10-single") == (10, True)
    for wrong in ("routed-", "routed-x", "routed-0", "routed-1-2", "routing"):
        with pytest.raises(ValueError, match="must be routed"):
            bank_arm.split_routed(wrong)


def test_a_table_of_banks_says_what_an_adapter_takes():
    result = {**step_result(), "file": "a.json"}
    (arm, row), *_ = result["arms"].items()
    bank = {**row, "resident": 1000, "bytes_per_adapter": 3.06e6, "weights_per_adapter": 3e6, "build_s": 12.3, "built_rss_mib": 4321.0}
    bank |= {"saved_bytes": 3.2e9, "export_s": 30.1, "load_s": 4.26, "first_answer_s": 0.84, "loaded_rss_mib": 5678.0}
    result["arms"] = {arm: row, "routed-1000": bank, "routed-1000-single": {**bank, "resident": 1000}}
    text = table.make_tables([result])
    assert "**bank of 1,000 adapters, each row its own task**" in text and "| the same, one row at a time |" in text.replace("forward only, ", "")
    assert text.count("| 1,000 | 3.00 | 1.020 times | 12 | 4,321 | 3,200 | 4.3 | 0.8 | 5,678 |") == 1
    note = step.resident_note("routed-1000", bank)
    assert "1.020 times" in note and "read in 4.3 s" in note


def test_a_table_of_a_soak_counts_wrong_answers():
    result = {
        "kind": "soak", "file": "s.json", "date": "2026-01-01", "git": {"commit": "abc", "dirty": False},
        "machine": {"cores": 2, "cpu": "X"}, "versions": {"tensorflow": "2.21"},
        "settings": {"tasks": 1000, "copies": 6, "threads": 2}, "random_adapters": False, "adapters": 24, "requests": 20000, "rows": 90000,
        "changes": {"added": 1, "replaced": 2, "removed": 3}, "wrong": ["x"], "seconds": 10.0, "resident_mib": [100.0, 200.0, 300.0, 250.0],
    }  # fmt: skip
    text = table.make_tables([result], table.NOTES)
    assert "| wrong answers | 1 |" in text and "100, 200, 300, 250" in text and "1,000 tasks" in text


def test_the_results_in_the_repository_make_tables():
    results = table.read_results(BENCHMARKS / "results")
    assert "No results" not in table.make_tables(results)


def test_the_tables_in_the_repository_are_those_of_its_results():
    done = _run("table.py", "--check")
    assert done.returncode == 0, done.stderr


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


# The commands


def test_bytes_of_a_step_are_those_of_one_worker_without_the_quiet_ones():
    text = "Inter-| Receive\n face |bytes\n    lo: 7 1 0 0 0 0 0 0 900 1 0 0 0 0 0 0\n  eth0: 5 1 0 0 0 0 0 0 600 1 0 0 0 0 0 0\n"
    assert (scale_out.sent_bytes(text=text), scale_out.sent_bytes("eth0", text=text)) == (900, 600)
    measured = {"bytes": 8400, "seconds": 4.0, "steps": 2, "trained_parameters": 600, "parameters_of_sparse_gradients": 100, "bytes_to_load": 1}
    row = scale_out.summarise(measured, quiet=100.0)
    # (8400 - 4 * 100) / 2 steps / 2 workers.
    assert (row["bytes_per_step_and_worker"], row["dense_gradient_bytes"], row["step_s"]) == (2000.0, 2000, 2.0)
    modes = {"adapters": row, "full": {**row, "bytes_per_step_and_worker": 5000.0}}
    about = {"kind": "scale-out", "settings": {"batch_size": 32, "steps": 2}, "modes": modes, "file": "a.json", "link": "a.json"}
    shown = table.scale_out_table({**step_result(), "versions": {}, **about})
    assert "| **adapters** | 600 | 0.00 | 0.00 |" in shown and "sends 2.5 times as much" in shown


def test_parity_table_has_a_cell_for_each_direction_that_was_compared():
    measured = {
        "imported": {"bert/lora": {"logits": 1e-6}, "bert/peft": {"logits": 2e-6}, "albert/lora": {"refused": "why"}},
        "exported": {"bert/lora": {"logits": 0.0, "flexible logits": 3e-7}},
    }
    result = {**step_result(), "kind": "adapterhub-parity", "versions": {}, "file": "a.json", "link": "a.json", **measured}
    text = table.parity_table(result)
    assert "| lora | refused | 1e-06, 3e-07 |" in text and "| peft |  | 2e-06 |" in text


@pytest.mark.parametrize("script", ["step.py", "quality.py", "tasks.py", "methods.py", "conformance.py", "pipeline.py", "costs.py", "padding.py", "profile_step.py", "soak.py", "scale_out.py", "search.py", "pretraining.py", "adapterhub_parity.py", "adapterhub_torch.py", "table.py", "torch_environment.py", "batches.py"])
def test_help_works_without_tensorflow(script):
    done = _run(script, "--help")
    assert done.returncode == 0 and "usage" in done.stdout and len(done.stdout) > 200
    assert "tensorflow" not in done.stderr


def test_an_environment_that_is_there_is_not_made_again(tmp_path):
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.touch()
    (tmp_path / torch_environment.STAMP).write_text(json.dumps({"requirements": list(torch_environment.REQUIREMENTS)}))
    lines = []
    assert torch_environment.torch_python(tmp_path, log=lines.append) == python and not lines


@pytest.mark.slow
def test_random_bert_loads_and_step_compares_two_arms(tmp_path):
    """The real workers on a real model; the PyTorch arm too where its environment was made."""
    arms = ["adapters", "forward-adapters", "fast@mixed_bfloat16", "fast-upper-cached", "routed-3"]
    environment = torch_environment.FOLDER / "bin" / "python"
    if environment.exists():
        arms.append("torch-adapters")
    options = ("--smoke", "--batches", "short", "--threads", "1", "--output", str(tmp_path / "a.json"))
    done = _run("step.py", *options, "--arms", *arms)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "a.json").read_text())
    assert {row["trained_parameters"] for arm, row in result["arms"].items() if arm.startswith(("adapters", "fast@", "torch"))} == {753_026}
    assert 0 < result["arms"]["fast-upper-cached"]["trained_parameters"] < 753_026
    assert result["arms"]["routed-3"]["bytes_per_adapter"] < 1.05 * result["arms"]["routed-3"]["weights_per_adapter"]
    assert result["arms"]["adapters"]["saved_bytes"] > 4 * 753_026
    assert "bank of 3 adapters" in table.step_table({**result, "file": "a.json", "link": "a.json"})


def _run(script, *arguments):
    command = [sys.executable, str(BENCHMARKS / script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


# Conformance

SUITE = """
import pytest

@pytest.mark.parametrize("family, variant", [("bert", "plain"), ("albert", "plain"), ("bert", "deep")])
def test_a_variant_works(family, variant, record_property):
    record_property("checks", "starts")
    record_property("checks", "trains")
    assert family != "albert", "not bit-equal"
    record_property("checks", "is saved")

@pytest.mark.slow
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


def test_conformance_keeps_what_each_test_said(tmp_path):
    (tmp_path / "test_suite.py").write_text(SUITE)
    done = _run("conformance.py", "--tests", str(tmp_path / "test_suite.py"), "--output", str(tmp_path / "a.json"))
    assert done.returncode == 1 and "9 tests" in done.stdout and "6 passed, 2 failed, 1 skipped" in done.stdout, done.stdout + done.stderr
    result = {**json.loads((tmp_path / "a.json").read_text()), "file": "a.json"}
    text = table.make_tables([result], table.NOTES)
    assert "| | albert | bert |\n|---|---|---|\n" in text
    assert "| **a variant works** (starts; trains; is saved) | | |\n" in text
    # Of a failed test what held before, and nothing of what it did not come to.
    assert "| plain | **failed**: trains <sup>1</sup> | ✓ |\n| deep |  | ✓ |\n" in text
    assert "| **blocks are fast** | refused <sup>2</sup> | ✓ |\n" in text
    assert "| **files are read** | | |\n| bare=False |  | ✓ |\n| bare=True |  | skipped <sup>3</sup> |\n" in text
    assert "Beside these: names are known ✓; disk **failed** <sup>4</sup>.\n\n1. AssertionError: not bit-equal" in text
    assert "2. albert has none\n3. Skipped: needs a file\n4. OSError: no disk\n" in text
    unfinished = {**result, "cases": [{**case, "outcome": "not run"} for case in result["cases"]]}
    assert "✓" not in table.conformance_table({**unfinished, "link": "a"})
    one = _run("conformance.py", "--tests", str(tmp_path / "test_suite.py"), "--smoke", "--select", "fast")
    assert one.returncode == 0 and "2 tests" in one.stdout and "Written" not in one.stdout
    none = _run("conformance.py", "--tests", str(tmp_path / "test_suite.py"), "--smoke", "--select", "nothing")
    assert none.returncode == 1 and "there is no result" in none.stderr


# Every task


def test_summary_of_the_tasks_by_hand():
    def run(method, seed, reported, other, task="ud/en_ewt", rate=1e-3, validation=0.5):
        return {
            "settings": {"task": task}, "method": method, "seed": seed, "metric": "accuracy", "train_rows": 9, "learning_rate": rate,
            "reported_rows": 5, "constant": 0.25, "primary": {"reported": reported, "ud/tr_imst": other}, "validation_best": validation,
        }  # fmt: skip

    runs = [run("adapters", 0, 0.8, 0.5), run("adapters", 1, 0.9, 0.7), run("full", 0, 0.9, 0.4), run("full", 1, 0.9, 0.4)]
    summary = tasks_script.summarise(runs)
    results = summary["ud/en_ewt"]["results"]
    assert results["reported"]["adapters"]["mean"] == pytest.approx(0.85)
    assert results["reported"]["adapters - full"]["mean"] == pytest.approx(-0.05)
    assert results["ud/tr_imst"]["adapters - full"]["mean"] == pytest.approx(0.2)
    result = {
        "kind": "tasks", "tasks": summary, "passed_over": {}, "settings": {"model": "minilm", "rows": 9, "epochs": 3},
        "versions": {"tensorflow": "2.21.0"}, "machine": {"cpu": "A", "cores": 2}, "date": "2026-01-02", "file": "a.json",
        "git": {"commit": "0123456789", "dirty": False},
    }
    text = table.make_tables([result])
    assert "| ud/en_ewt | accuracy | 9 | 25.0 | 85.0 ± 7.1 | 90.0 ± 0.0 | 2 |" in text
    assert "| ud/en_ewt, zero-shot on ud/tr_imst | accuracy | 9 |  | 60.0 ± 14.1 | 40.0 ± 0.0 | 2 |" in text
    variants = tasks_script.summarise([*runs[:2], run("fast", 0, 0.9, 0.5), run("fast", 1, 0.9, 0.5)])
    assert tasks_script.methods_of(variants) == ["adapters", "fast"]
    results = [{**result, "tasks": variants}, result]
    text = table.make_tables(results, table.NOTES)
    assert "| **adapters** | adapters, fast, bfloat16 | fast minus adapters, points | seeds |" in text
    # The differences are 0.1 and 0: mean 0.05, standard error 0.05, t of one degree of freedom 12.706.
    assert "| 85.0 ± 7.1 | 90.0 ± 0.0 | +5.00 (-58.53 to +68.53) | 2 |" in text
    assert "85.0 ± 7.1 | 90.0 ± 0.0 | 2 |" in table.make_tables(results), "each summary has its place"
    lines = tasks_script.describe(summary).splitlines()
    assert lines[1].split() == ["ud/en_ewt", "accuracy", "9", "25.0", "85.0", "±", "7.1", "90.0", "±", "0.0", "2"]
    assert lines[2].split() == ["on", "ud/tr_imst", "accuracy", "9", "60.0", "±", "14.1", "40.0", "±", "0.0", "2"]
    # Of several rates that one counts which is the best at the first seed, whatever the others report.
    others = [run("full", 0, 1.0, 1.0, rate=1e-4, validation=0.4), {**run("full", 0, 1.0, 1.0, rate=1e-2), "validation_best": None}]
    assert tasks_script.summarise([*others, *runs]) == summary
    better = [run("full", 0, 0.2, 0.2, rate=1e-4, validation=0.6), run("full", 1, 0.4, 0.2, rate=1e-4)]
    of_rates = tasks_script.summarise([*runs, *better])
    assert of_rates["ud/en_ewt"]["results"]["reported"]["full"]["mean"] == pytest.approx(0.3)
    of_two = {"ud/en_ewt": of_rates["ud/en_ewt"], "b": tasks_script.summarise(runs)["ud/en_ewt"]}
    text = table.make_tables([{**result, "tasks": of_two}])
    assert "by validation at the first seed: adapters 0.001, full 0.0001 or 0.001;" in text


def test_a_grid_of_rates_is_run_at_the_first_seed_and_its_best_at_the_others(tmp_path, monkeypatch):
    done = []

    def run_task(name, settings, missing, options, runs):
        for identity in missing:
            done.append((identity["method"], identity["learning_rate"], identity["seed"]))
            validation = None if identity["learning_rate"] == 1e-2 else identity["learning_rate"]
            runs.add({**identity, "settings": settings, "validation_best": validation})

    monkeypatch.setattr(tasks_script, "_run_task", run_task)
    words = ["--data-dir", str(tmp_path), "--tasks", "a", "--seeds", "0", "1", "--adapter-learning-rate", "1e-4", "1e-3", "1e-2"]
    runs = training_runs.Runs(tmp_path / "results")
    for _ in range(2):  # the second time nothing is missing
        assert tasks_script.study(tasks_script.parse(words), runs) == {}
        assert done == [("adapters", 1e-4, 0), ("adapters", 1e-3, 0), ("adapters", 1e-2, 0), ("full", 5e-5, 0), ("adapters", 1e-3, 1), ("full", 5e-5, 1)]


def test_a_task_is_also_scored_on_the_languages_that_it_was_not_trained_on(tmp_path, monkeypatch):
    line = "{}\t{}\t_\t{}\t_\t_\t_\t_\t_\t_\n"
    sentence = "".join(line.format(number, word, tag) for number, (word, tag) in enumerate([("dogs", "NOUN"), ("run", "VERB")], 1))
    for treebank in ("en_ewt", "fr_sequoia", "tr_imst"):
        (tmp_path / "ud" / treebank).mkdir(parents=True)
        for split, count in (("train", 6), ("dev", 3), ("test", 4)):
            (tmp_path / "ud" / treebank / f"{split}.conllu").write_text((sentence + "\n") * count)
    seen = {}

    def make_run(settings, model):
        def run(data, reported, *, log, **identity):
            seen.update({name: len(rows) for name, rows in reported.items()})
            scores = {name: {"accuracy": 0.5} for name in reported}
            return {"validation": 0.5, "scores": scores, "best_epoch": 1}

        return run

    monkeypatch.setattr(tasks_script, "make_run", make_run)
    options = tasks_script.parse(["--data-dir", str(tmp_path), "--tasks", "ud/en_ewt", "--methods", "adapters", "--seeds", "0"])
    runs = training_runs.Runs(tmp_path / "results")
    assert tasks_script.study(options, runs) == {}
    assert seen == {"reported": 4, "ud/fr_sequoia": 4, "ud/tr_imst": 4}
    assert runs.runs[0]["primary"] == dict.fromkeys(seen, 0.5) and runs.runs[0]["constant"] == 0.5


# search.py


def trial(name, size, rate, *validation, message=""):
    runs = [{"validation": value, "seconds": 2.0} for value in validation]
    return {"trial": name, "values": {"bottleneck_size": size, "learning_rate": rate, "epochs": 3}, "seeds": runs, "message": message}


SEARCHED = {
    "trials": [
        trial("0", 64, 1e-3, 0.5, 0.7), trial("1", 8, 1e-3, 0.9, 0.9), trial("2", 8, 3e-3, 0.25),
        trial("3", 64, 3e-3, 0.4, message="diverged"), trial("4", 256, 1e-3, message="diverged"),
    ],
    "best": "1", "test": {"matthews_correlation": 0.625}, "command": "tf-adapters train --adapter-size 8",
}  # fmt: skip


def test_summary_of_a_search_by_hand():
    summary = search.summarise(SEARCHED)
    first, _, third, *failed = summary["cells"]
    # The two are 0.1 from their mean.
    assert first["mean"] == pytest.approx(0.6) and first["sd"] == pytest.approx(0.1 * math.sqrt(2)) and first["seconds"] == [2.0, 2.0]
    assert third["values"] == [0.25] and third["sd"] is None and [cell["message"] for cell in failed] == ["diverged"] * 2
    assert summary["best"] == {"bottleneck_size": 8, "learning_rate": 1e-3, "epochs": 3}
    assert summary["test"] == SEARCHED["test"] and summary["train_command"] == SEARCHED["command"]
    assert [line.split() for line in search.describe(summary).splitlines()] == [
        ["size", "0.001", "0.003"], ["8", "90.0", "±", "0.0", "25.0"], ["64", "60.0", "±", "14.1", "failed"], ["256", "failed", "-"],
    ]  # fmt: skip
    about = {name: step_result()[name] for name in ("date", "machine", "git")}
    settings = {"task": "glue/cola", "model": "minilm", "metric": "matthews", "rows": 2000, "epochs": 3, "seeds": 2}
    result = {"kind": "search", "file": "a.json", "versions": {"tensorflow": "2.21.0"}, **about, "settings": settings, **summary}
    text = table.make_tables([result])
    assert "| size | 0.001 | 0.003 |\n|---:|---:|---:|\n| 8 | **90.0 ± 0.0** | 25.0 |\n" in text
    assert "\n| 64 | 60.0 ± 14.1 | failed |\n| 256 | failed | - |\n" in text
    assert "2,000 rows, 3 epochs, 2 seeds; test of the best adapter: matthews correlation 62.5 %" in text


def write_cola(folder, rows):
    """Sentences of the tiny encoder's words in the layout of the GLUE download."""
    (folder / "CoLA").mkdir(parents=True)
    lines = [f"gj04\t{i % 2}\t\tthe {'good' if i % 2 else 'bad'} film" for i in range(rows)]
    for name, some in (("train", lines), ("dev", lines[:8])):
        (folder / "CoLA" / f"{name}.tsv").write_text("\n".join(some) + "\n")


def test_a_search_goes_on_where_it_stopped_and_its_result_is_kept(tmp_path, monkeypatch, capsys):
    from tf_adapters.cli import main as command_line

    write_cola(tmp_path / "data", 20)
    calls, statuses = [], iter([130, 0])
    folder = tmp_path / "work" / "glue-cola"

    def tune(words):
        calls.append(words)
        folder.mkdir(parents=True, exist_ok=True)
        # As the command itself, which begins with the settings alone.
        (folder / "search.json").write_text(json.dumps({"settings": {}} if len(calls) == 1 else {"settings": {}, **SEARCHED}))
        (folder / "trials.png").write_bytes(b"a plot")
        return next(statuses)

    monkeypatch.setattr(command_line, "main", tune)
    options = ["--data-dir", str(tmp_path / "data"), "--work", str(tmp_path / "work"), "--output", str(tmp_path / "result"), "--seeds", "2"]
    monkeypatch.setattr(sys, "argv", ["search.py", *options, "--sizes", "8", "64", "--learning-rates", "3e-4", "1e-3"])
    with pytest.raises(SystemExit) as stopped:
        search.main()
    assert stopped.value.code == 130 and not (tmp_path / "result").exists()
    search.main()
    assert calls[1] == [*calls[0], "--resume"]
    assert calls[0] == [
        "tune", "--model", "minilm", "--task", "glue/cola", "--data-dir", str(tmp_path / "data"), "--low-resource", "2000",
        "--space", "none", "--vary", "adapter-size=8,64", "--vary", "learning-rate=0.0003,0.001", "--vary", "epochs=3",
        "--vary", "batch-size=16", "--tuner", "grid", "--seeds", "2", "--max-length", "128", "--output", str(folder),
    ]  # fmt: skip
    result = json.loads((tmp_path / "result" / "summary.json").read_text())
    assert result["kind"] == "search" and result["settings"]["metric"] == "matthews" and result["best"]["bottleneck_size"] == 8
    assert (tmp_path / "result" / "trials.png").read_bytes() == b"a plot" and "90.0 ± 0.0" in capsys.readouterr().out


@pytest.mark.slow
def test_a_search_of_two_pairs_makes_a_table(checkpoint, tmp_path):
    # Of the training rows 1,000 validate.
    write_cola(tmp_path / "data", 1100)
    done = _run(
        "search.py", "--data-dir", str(tmp_path / "data"), "--model", str(checkpoint), "--sizes", "4", "--learning-rates", "1e-3", "3e-3",
        "--rows", "32", "--epochs", "1", "--seeds", "1", "--max-length", "16", "--work", str(tmp_path / "work"),
        "--output", str(tmp_path / "results" / "a"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (result,) = table.read_results(tmp_path / "results")
    assert [cell["learning_rate"] for cell in result["cells"]] == [1e-3, 3e-3] and "| 4 | " in table.make_tables([result])


# pretraining.py

PERPLEXITIES = {"before": {"perplexity": 40.2}, "after": {"perplexity": 12.6}, "train_texts": 9, "held_out_texts": 3}


def test_summary_of_pretraining_by_hand():
    def run(method, seed, primary, task="tae/scierc"):
        return {
            "settings": {"task": task}, "method": method, "seed": seed, "primary": primary, "metric": "macro_f1", "constant": 0.25,
            "train_rows": 1000, "reported_rows": 5,
        }  # fmt: skip

    # Of the first seed alone there are two, of which the newer counts; the third seed has no pair.
    runs = [run("alone", 0, 0.1), {"settings": {"task": "tae/scierc"}, "method": "pretraining", "seed": 0}, run("alone", 0, 0.5)]
    runs += [run("alone", 1, 0.6), run("alone", 2, 0.9), run("pretrained", 1, 0.8), run("pretrained", 0, 0.6)]
    runs.append(run("alone", 0, 0.3, "another task"))
    summary = pretraining.summarise(runs, {"tae/scierc": PERPLEXITIES})
    row = summary["tae/scierc"]
    assert list(summary) == ["tae/scierc"] and row["seeds"] == [0, 1] and row["alone"]["values"] == [0.5, 0.6]
    # Differences 0.1 and 0.2: mean 0.15, standard error 0.05; t(0.975, 1) = 12.7062.
    assert row["pretrained - alone"]["interval"] == pytest.approx([0.15 - 0.05 * 12.7062, 0.15 + 0.05 * 12.7062], abs=1e-5)
    assert pretraining.describe(summary).splitlines() == [
        "tae/scierc, macro_f1 (constant answer 25.0); held-out perplexity 40.2 to 12.6",
        "  alone       55.0 ± 7.1", "  pretrained  70.0 ± 14.1", "  difference  +15.0 (-48.5 to +78.5)",
    ]  # fmt: skip
    about = {name: step_result()[name] for name in ("date", "machine", "git")}
    settings = {"model": "minilm", "rows": 2000, "steps": 1500, "fit_head_steps": 500, "epochs": 3}
    result = {"kind": "pretraining", "file": "a.json", "versions": {"tensorflow": "2.21.0"}, **about, "seeds": [0, 1]}
    result |= {"settings": settings, "tasks": summary}
    text = table.make_tables([result])
    assert "| tae/scierc | macro f1 | 1,000 | 40, 13 | 25.0 | 55.0 ± 7.1 | 70.0 ± 14.1 | +15.0 (-48.5 to +78.5) |" in text
    assert "1,500 steps of masked words, after 500 that fitted a new head" in text and "then 3 epochs, seeds 0, 1;" in text
    one = pretraining.summarise([run("alone", 0, 0.5), run("pretrained", 0, 0.6)], {"tae/scierc": PERPLEXITIES})
    assert pretraining.describe(one).splitlines()[1:] == ["  alone       50.0", "  pretrained  60.0", "  difference  +10.0"]


def write_citations(folder, rows):
    """Sentences of the tiny encoder's words in the layout of the task adaptation datasets."""
    (folder / "citation_intent").mkdir(parents=True)
    lines = [json.dumps({"text": f"the {'good' if i % 2 else 'bad'} film", "label": "Uses" if i % 2 else "Future"}) for i in range(rows)]
    for name, count in (("train", rows), ("dev", 8), ("test", 8)):
        (folder / "citation_intent" / f"{name}.jsonl").write_text("\n".join(lines[:count]) + "\n")


def test_a_killed_study_of_pretraining_repeats_neither_the_pretraining_nor_a_run(tmp_path, monkeypatch):
    write_citations(tmp_path / "data", 20)
    calls = []

    def pretrain(task, settings, options, folder):
        calls.append("pretraining")
        folder.mkdir(parents=True)
        (folder / "tf_adapters.json").write_text("{}")
        return {**PERPLEXITIES, "seconds": 1.0}

    def make_run(settings, model):
        def run(data, reported, method, seed, *, pretrained, **others):
            # Behind the task's name is a digest of the settings.
            calls.append((seed, len(data.train), None if pretrained is None else pretrained.name.rpartition("-")[0]))
            if len(calls) == 4:
                raise KeyboardInterrupt
            return {"scores": {"reported": {"macro_f1": 0.5, "accuracy": 0.75}}}

        return run

    monkeypatch.setattr(pretraining, "_pretrain", pretrain)
    monkeypatch.setattr(pretraining, "make_run", make_run)
    options = pretraining.parse(["--data-dir", str(tmp_path / "data"), "--work", str(tmp_path / "work"), "--seeds", "0", "1"])
    settings = {"model": "minilm", "task": "tae/acl-arc", "rows": 12, "validation_rows": 4, "bottleneck": 4}

    def study(**changes):
        return pretraining.study("tae/acl-arc", {**settings, **changes}, options, training_runs.Runs(tmp_path / "results"))

    with pytest.raises(KeyboardInterrupt):
        study()
    with open(tmp_path / "results" / "runs.jsonl", "a") as file:
        file.write('{"half a li')
    assert study() == PERPLEXITIES
    everything = ["pretraining", (0, 12, None), (0, 12, "tae-acl-arc"), (1, 12, None), (1, 12, "tae-acl-arc")]
    assert calls == [*everything[:4], *everything[3:]]
    runs = training_runs.Runs(tmp_path / "results").runs
    assert [run["method"] for run in runs] == ["pretraining", "alone", "pretrained", "alone", "pretrained"]
    # The most frequent of two labels that are equally frequent: F1 of 2/3, and of 0.
    assert runs[1]["primary"] == 0.5 and runs[1]["constant"] == pytest.approx(1 / 3) and runs[1]["reported_rows"] == 8
    calls.clear()
    assert study() == PERPLEXITIES and not calls
    (folder,) = (tmp_path / "work" / "minilm").iterdir()
    (folder / "tf_adapters.json").unlink()
    folder.rmdir()
    study()
    assert calls == ["pretraining"]
    calls.clear()
    with pytest.raises(KeyboardInterrupt):
        study(steps=9)  # other settings begin anew
    assert calls[0] == "pretraining" and len(list((tmp_path / "work" / "minilm").iterdir())) == 2


@pytest.mark.slow
def test_pretraining_for_five_steps_makes_a_table_and_goes_on_with_nothing_left(checkpoint, tmp_path):
    write_citations(tmp_path / "data", 40)
    small = {"steps": 5, "fit-head-steps": 2, "rows": 16, "validation-rows": 8, "epochs": 1, "bottleneck": 4, "max-length": 16, "seeds": 0}
    options = [word for name, value in small.items() for word in (f"--{name}", str(value))]
    folders = {"data-dir": "data", "work": "work", "output": "results/a"}
    options += [word for name, value in folders.items() for word in (f"--{name}", str(tmp_path / value))]
    for _ in range(2):
        done = _run("pretraining.py", "--model", str(checkpoint), "--tasks", "tae/acl-arc", *options)
        assert done.returncode == 0, done.stderr
        assert len((tmp_path / "results" / "a" / "runs.jsonl").read_text().splitlines()) == 3
    (result,) = table.read_results(tmp_path / "results")
    assert result["tasks"]["tae/acl-arc"]["pretraining"]["train_texts"] == 40 and "| tae/acl-arc | " in table.make_tables([result])
