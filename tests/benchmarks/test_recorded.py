"""The list of recorded studies: each is a command that its study takes, and what is finished is kept."""

import dataclasses
import json
import shlex

import pytest

from benchmarks.studies import recorded
from tf_adapters.studies import STUDIES
from tf_adapters.studies.study import options_of


def study_of(words):
    name, *given = shlex.split(words)
    study, values = STUDIES[name], {}
    while given:
        option = given.pop(0).removeprefix("--").replace("-", "_")
        is_flag = study.__dataclass_fields__[option].default is False
        of = options_of(study)[option].of
        words = [] if is_flag else given.pop(0).split(",")
        values[option] = True if is_flag else tuple(map(of, words)) if of else number_or_word(*words)
    return study(**values)


def number_or_word(word):
    return int(word) if word.isdecimal() else word


@pytest.mark.parametrize("name", recorded.PLAN)
def test_a_recorded_study_is_one_that_there_is_with_options_that_it_has(name):
    study = study_of(recorded.PLAN[name])
    study.check()
    assert dataclasses.is_dataclass(study) and study.name == recorded.PLAN[name].split()[0]


def test_what_is_kept_of_a_study(tmp_path):
    folder = tmp_path / "work" / "curves"
    folder.mkdir(parents=True)
    for name in ("values.csv", "summary.json", "curves.svg", "curves.png", "values.jsonl"):
        (folder / name).write_text('{"settings": {"data_dir": "mine", "seeds": 3}}')
    made = {"date": "today", "command": recorded.command("curves", "mixed_bfloat16")}
    recorded.keep("curves", folder, made, tmp_path / "kept")
    found = sorted(path.name for path in (tmp_path / "kept" / "curves").iterdir())
    assert found == ["curves.svg", "made.json", "summary.json", "values.csv"]
    made = json.loads((tmp_path / "kept" / "curves" / "made.json").read_text())
    summary = json.loads((tmp_path / "kept" / "curves" / "summary.json").read_text())
    assert summary == {"settings": {"seeds": 3}}
    command = f"tf-adapters study {recorded.PLAN['curves']} --precision mixed_bfloat16"
    assert made == {"date": "today", "command": command}


def test_an_unfinished_study_goes_on_elsewhere(tmp_path):
    here, there, kept = (tmp_path / name for name in ("here", "there", "kept"))
    here.mkdir()
    (here / "study.json").write_text('{"study": "curves", "settings": {"data_dir": "mine", "seeds": 3}}')
    recorded.keep_parts("curves", here, kept)
    assert not kept.exists()  # nothing is measured yet
    (here / "values.jsonl").write_text('{"seed": 0}\n')
    recorded.keep_parts("curves", here, kept)
    recorded.take_up("curves", there, kept)
    assert json.loads((there / "study.json").read_text()) == {"study": "curves", "settings": {"seeds": 3}}
    assert (there / "values.jsonl").read_text() == '{"seed": 0}\n'
    # What has been measured there since is not lost.
    (there / "values.jsonl").write_text('{"seed": 0}\n{"seed": 1}\n')
    recorded.take_up("curves", there, kept)
    assert (there / "values.jsonl").read_text().count("seed") == 2
    for name in ("values.csv", "summary.json"):
        (there / name).write_text('{"settings": {}}')
    recorded.keep("curves", there, {"command": "this"}, kept)
    assert sorted(path.name for path in (kept / "curves").iterdir()) == ["made.json", "summary.json", "values.csv"]


@pytest.mark.parametrize(("words", "message"), [(["nothing"], "is no recorded study"), ([], "give --data-dir")])
def test_mistakes_are_told(capsys, words, message):
    with pytest.raises(SystemExit):
        recorded.main(words)
    assert message in capsys.readouterr().err
