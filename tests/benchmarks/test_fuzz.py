"""fuzz.py."""

import json
import random

import pytest

from benchmarks.campaigns import fuzz, fuzz_changes
from tests.benchmarks.support import run_script


@pytest.mark.parametrize("change", sorted(set(fuzz_changes.BY_NAME.values()), key=lambda change: change.__name__))
def test_changes_are_made_of_the_seed_alone(change):
    content = json.dumps({"a": [1, {"b": "text"}], "c": True}).encode()
    if change is fuzz_changes.change_safetensors:
        content = (
            b"\x40".ljust(8, b"\0") + b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'.ljust(64) + bytes(8)
        )
    elif change is fuzz_changes.change_sentencepiece:
        content = b"\x0a\x03\x0a\x01a" * 4
    found = [[change(random.Random(seed), content) for seed in range(60)] for _ in range(2)]
    assert found[0] == found[1] and len(set(found[0])) > 20 and content not in found[0][:1]


def test_a_case_that_fails_is_kept_and_can_be_tried_again(tmp_path, monkeypatch, capsys):
    class Unlucky:
        def __init__(self, folder, seconds):
            (folder / "case" / "given").mkdir(parents=True, exist_ok=True)
            (folder / "case" / "given" / "rows.csv").write_text("text,label\n")

        def start(self):
            pass

        stop = start

        def ask(self, request):
            if "files" in request:
                assert request["kind"] == "csv" and request["choice"] == 7
                return {"outcome": "refused", "detail": "a sentence", "seconds": 0.1, "kind": "csv"}
            outcome = "crash" if request["number"] == 1 else "loaded"
            return {"kind": "csv", "choice": 7, "outcome": outcome, "detail": "status -11", "seconds": 0.5}

    monkeypatch.setattr(fuzz, "Worker", Unlucky)
    options = fuzz.parse(["--cases", "3", f"--failures={tmp_path / 'kept'}", f"--output={tmp_path / 'out.json'}"])
    (tmp_path / "run").mkdir()
    result = fuzz.run(options, tmp_path / "run")
    assert result["counts"] == {"csv": {"loaded": 2, "crash": 1}} and [
        failure["number"] for failure in result["failures"]
    ] == [1]
    options.replay = [tmp_path / "kept" / "csv-0-1.zip"]
    assert fuzz.replay(options, tmp_path / "run") and "refused, 0.10 s\na sentence" in capsys.readouterr().out


def test_the_table_counts_failures():
    result = {
        "kind": "fuzz",
        "file": "f.json",
        "link": "results/f.json",
        "date": "2026-01-01",
        "git": {"commit": "abc", "dirty": False},
        "cases": 1000,
        "machine": {"cpu": "A Processor", "cores": 2},
        "versions": {"tensorflow": "2.21.0"},
        "settings": {"seed": 0, "cases": 1000},
        "seconds": 60.0,
        "counts": {"csv": {"loaded": 2, "refused": 996, "crash": 1, "time": 1}},
        "slowest_s": {"csv": 30.0},
        "failures": [],
    }
    assert "| csv | 2 | 996 | 2 |" in fuzz.table(result)


@pytest.mark.nightly
def test_hundreds_of_damaged_files_are_loaded_or_refused(tmp_path):
    done = run_script("fuzz.py", "--smoke", "--seed=11", f"--failures={tmp_path}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "200 cases in" in done.stdout and "0 failures" in done.stdout
