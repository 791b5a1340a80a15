"""The list of recorded studies: each is a command that its study takes, and what is finished is kept."""

import json
import shlex
import time

import pytest

from benchmarks.studies import recorded
from tests.conftest import write_checkpoint
from tf_adapters.ranges import choices_of
from tf_adapters.studies import Init
from tf_adapters.studies.lab import Observer, Stopped

MADE = {
    "date": "today", "git": {"commit": "0123"}, "machine": {"cpu": "A Processor"}, "precision": "float32",
    "commits": ["0123"],
}  # fmt: skip


@pytest.mark.parametrize("name", recorded.PLAN)
def test_a_recorded_study_is_one_that_there_is_with_options_that_it_has(name):
    study = recorded.study_of(name, data_dir="DATA")
    study.check()
    assert study.name == recorded.PLAN[name][0]
    # Both arms are searched alike.
    assert len(study.learning_rates) == len(study.full_learning_rates) or study.name in ("init", "ablation")
    words = shlex.split(recorded.command(name, "mixed_bfloat16"))
    assert words[:3] == ["tf-adapters", "study", study.name] and words[-2:] == ["--precision", "mixed_bfloat16"]
    given = {word.removeprefix("--").replace("-", "_") for word in words if word.startswith("--")}
    assert given == {*recorded.PLAN[name][1], "precision"} <= set(choices_of(type(study)))


def test_what_is_kept_of_a_study(tmp_path):
    folder = tmp_path / "work" / "curves"
    folder.mkdir(parents=True)
    for name in ("values.csv", "summary.json", "curves.svg", "curves.png", "values.jsonl"):
        (folder / name).write_text('{"settings": {"data_dir": "mine", "seeds": 3}}')
    recorded.keep("curves", folder, MADE, tmp_path / "kept")
    found = sorted(path.name for path in (tmp_path / "kept" / "curves").iterdir())
    assert found == ["curves.svg", "made.json", "summary.json", "values.csv"]
    summary = json.loads((tmp_path / "kept" / "curves" / "summary.json").read_text())
    about = {"commits": ["0123"], "precision": "float32", "processor": "A Processor"}
    assert summary == {"settings": {"seeds": 3}, **about}
    assert json.loads((tmp_path / "kept" / "curves" / "made.json").read_text()) == MADE


def test_an_unfinished_study_goes_on_elsewhere(tmp_path):
    here, there, kept = (tmp_path / name for name in ("here", "there", "kept"))
    here.mkdir()
    (here / "study.json").write_text('{"study": "curves", "settings": {"data_dir": "mine", "seeds": 3}}')
    recorded.keep_parts("curves", here, MADE, kept)
    assert not kept.exists()  # nothing is measured yet
    (here / "values.jsonl").write_text('{"seed": 0}\n')
    recorded.keep_parts("curves", here, MADE, kept)
    recorded.take_up("curves", there, kept)
    assert json.loads((there / "study.json").read_text()) == {"study": "curves", "settings": {"seeds": 3}}
    assert (there / "values.jsonl").read_text() == '{"seed": 0}\n'
    assert json.loads((there / "made.json").read_text())["commits"] == ["0123"]
    # What has been measured there since is not lost.
    (there / "values.jsonl").write_text('{"seed": 0}\n{"seed": 1}\n')
    recorded.take_up("curves", there, kept)
    assert (there / "values.jsonl").read_text().count("seed") == 2


@pytest.mark.slow
def test_a_slice_ends_with_the_run_at_hand_and_the_next_one_goes_on(sentences, tmp_path, monkeypatch):
    write_checkpoint(tmp_path / "encoder")
    small = {"tasks": (str(sentences),), "model": str(tmp_path / "encoder"), "sigmas": (1e-3, 1e-2), "seeds": 1}
    small |= {"rows": 16, "validation_rows": 8, "epochs": 1, "max_length": 16, "learning_rates": (1e-3,)}
    monkeypatch.setattr(recorded, "PLAN", {"tiny": ("init", small)})
    monkeypatch.setattr(recorded, "KEPT", tmp_path / "kept")
    for name in ("take_up", "keep_parts", "keep"):  # whose default was the real folder
        real = getattr(recorded, name)
        monkeypatch.setattr(recorded, name, lambda *given, real=real: real(*given, kept=tmp_path / "kept"))
    options = recorded._options(["--data-dir", str(tmp_path), "--folder", str(tmp_path / "work")])
    assert not recorded.conduct("tiny", options, MADE, time.monotonic() - 1)
    assert not (tmp_path / "kept").exists()

    class OneRun(Observer):
        def value(self, number, total, text, left):
            if number == 2:
                raise Stopped

    with monkeypatch.context() as patched:
        patched.setattr(recorded, "_until", lambda name, deadline: OneRun())
        assert not recorded.conduct("tiny", options, MADE, 1.0)
    assert len((tmp_path / "kept" / "tiny" / "values.jsonl").read_text().splitlines()) == 1
    assert recorded.conduct("tiny", options, {**MADE, "git": {"commit": "4567"}}, float("inf"))
    summary = json.loads((tmp_path / "kept" / "tiny" / "summary.json").read_text())
    assert summary["values"] == 2 and summary["commits"] == ["0123", "4567"] and Init.name == summary["study"]
