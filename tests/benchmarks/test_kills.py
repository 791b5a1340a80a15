"""The campaign of kills: what it counts, and a bounded run of it."""

import json
import signal
import subprocess
import sys

import numpy as np
import pytest

from benchmarks import tables
from benchmarks.campaigns import kills
from benchmarks.table_parts import NOTES
from tests.benchmarks.support import BENCHMARKS, run_script, step_result

WORK = """
import os, pathlib, shutil, sys
from benchmarks.campaigns.file_operations import FileOperations
folder = pathlib.Path(sys.argv[1])
FileOperations(folder, file=open(sys.argv[2], "wb"), at=int(sys.argv[3]), event=sys.argv[4]).install()
(folder / "0123456789abcdef").mkdir()
(folder / "0123456789abcdef" / "a.txt").write_text("1")
os.replace(folder / "0123456789abcdef" / "a.txt", folder / "a.txt")
(folder / "a.txt").read_text()
(folder.parent / "elsewhere.txt").write_text("1")
with open(folder / "a.txt") as file:
    os.fsync(file.fileno())
shutil.rmtree(folder / "0123456789abcdef")
"""
OPERATIONS = ["mkdir #", "open #/a.txt", "replace a.txt", "fsync a.txt", "rmdir #"]


@pytest.mark.parametrize(
    "at, event, left",
    [
        (9, "kill before", ["a.txt"]),
        (0, "kill before", []),
        (0, "kill after", ["0123456789abcdef"]),
        (1, "kill before", ["0123456789abcdef"]),
        (1, "kill after", ["0123456789abcdef", "0123456789abcdef/a.txt"]),
        (2, "kill after", ["0123456789abcdef", "a.txt"]),
        (4, "kill after", ["a.txt"]),
        (2, "read-only", ["0123456789abcdef", "0123456789abcdef/a.txt"]),
        (3, "full disk", ["0123456789abcdef", "a.txt"]),
    ],
)
def test_a_process_is_killed_right_before_or_after_an_operation(tmp_path, at, event, left):
    folder = tmp_path / "folder"
    folder.mkdir()
    command = [sys.executable, "-c", WORK, str(folder), str(tmp_path / "operations"), str(at), event]
    done = subprocess.run(command, capture_output=True, text=True, cwd=BENCHMARKS.parent, check=False)
    if at < 9:
        assert (
            done.returncode == -signal.SIGKILL
            if event.startswith("kill")
            else ("Read-only" if at == 2 else "No space left") in done.stderr
        )
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*")) == left
    assert (tmp_path / "operations").read_text().splitlines() == OPERATIONS[: at + 1]


def test_each_kind_of_operation_is_chosen_before_any_comes_twice():
    operations = ["open a", "fsync a", "open a", "replace a", "open b"] * 10
    hit = {"replace a"}
    chosen = kills.spread(operations, 11, hit, np.random.default_rng(0))
    assert {operations[number] for number in chosen[:3]} == {"open a", "fsync a", "open b"} and len(chosen) == 11
    assert chosen[3:] == sorted(chosen[3:]) and hit == set(operations)
    assert (
        kills.kind_of("open search/runs/#/.seed-1/a.json")
        == kills.kind_of("open best/a.json")
        != kills.kind_of("open best/b.json")
    )


def test_advice_is_followed_and_where_there_is_none_there_is_none():
    over = ("--overwrite",)
    assert kills.next_flags(
        "error: --output a is not empty: go on with it by\n--resume, or replace it by --overwrite.", over
    ) == ("--resume",)
    assert kills.next_flags("error: --resume: a holds no search; start one without --resume.", ()) == ()
    ended = "error: --resume: a holds no interrupted run, but what one came to: use it, or replace it by --overwrite."
    assert (kills.next_flags(ended, ()), kills.next_flags(ended, over)) == ("done", over)
    empty = "error: --output a is not empty: replace it by --overwrite, or give another directory."
    assert (kills.next_flags(empty, ()), kills.next_flags(empty, over)) == (("--resume",), over)
    assert kills.next_flags("error: a holds other files than a search: give another folder.", over) is None


def test_contents_differ_by_bytes_names_and_folders_and_not_by_times(tmp_path):
    for name, seconds in (("a", 1), ("b", 2)):
        (tmp_path / name / "deep").mkdir(parents=True)
        (tmp_path / name / "tf_adapters.json").write_text(json.dumps({"runs": [{"seconds": seconds, "best_epoch": 1}]}))
        (tmp_path / name / "trials.csv").write_text(f"trial,seconds\n0,{seconds}\n")
        (tmp_path / name / "adapter.safetensors").write_bytes(b"same")
    first, second = kills.content(tmp_path / "a"), kills.content(tmp_path / "b")
    assert kills.difference(first, second) is None
    assert kills.difference(first, {**second, "deep/x": b""}) == "deep/x is missing"
    assert kills.difference({**first, ".resume": None}, second) == ".resume was left behind"
    assert kills.difference({**first, "adapter.safetensors": b"other"}, second) == "adapter.safetensors differs"


def test_what_a_failed_disk_left_goes_with_the_next_writer_and_nothing_else_does(tmp_path):
    (tmp_path / ".0123456789abcdef.tf_adapters.tmp").mkdir()
    (tmp_path / "1").mkdir()
    kills.clear(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["1"]


def test_a_table_has_a_row_for_each_command():
    row = {
        "cases": 60,
        "kills_at_random_moments": 20,
        "kills_at_operations": 30,
        "kinds_hit": 17,
        "kinds_of_operations": 18,
        "second_kills": 12,
        "failures": 10,
        "failed": 1,
    }
    result = {
        "kind": "kills",
        "settings": {"kills": 50, "exports": 20, "seed": 0},
        "commands": {"train": row},
        "failed": [],
    }
    shown = tables.make_tables([{**step_result(), **result, "versions": {}, "file": "a.json"}], NOTES)
    assert "| `train` | 20 | 30 (17 of 18) | 12 | 10 | 1 |" in shown and "60 cases, seed 0" in shown


@pytest.mark.nightly
def test_a_few_kills_of_each_kind_leave_nothing_broken(tmp_path):
    arguments = ["--only", "train", "export", "--kills", "3", "--exports", "1", "--failures", "1"]
    done = run_script("kills.py", *arguments, "--work", str(tmp_path / "work"), "--output", str(tmp_path / "a.json"))
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((tmp_path / "a.json").read_text())
    assert (
        result["failed"] == []
        and result["commands"]["train"]["cases"] == 6
        and result["commands"]["export"]["cases"] == 4
    )
    assert list((tmp_path / "work" / "cases").iterdir()) == []
