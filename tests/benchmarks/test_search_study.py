"""search.py, with a search that is made up and a small one that runs."""

import json
import math
import sys

import pytest

from benchmarks import tables
from benchmarks.studies import search
from tests.benchmarks.support import run_script, step_result


def trial(name, size, rate, *validation, message=""):
    runs = [{"validation": value, "seconds": 2.0} for value in validation]
    return {
        "trial": name,
        "values": {"bottleneck_size": size, "learning_rate": rate, "epochs": 3},
        "seeds": runs,
        "message": message,
    }


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
    assert (
        first["mean"] == pytest.approx(0.6)
        and first["sd"] == pytest.approx(0.1 * math.sqrt(2))
        and first["seconds"] == [2.0, 2.0]
    )
    assert (
        third["values"] == [0.25] and third["sd"] is None and [cell["message"] for cell in failed] == ["diverged"] * 2
    )
    assert summary["best"] == {"bottleneck_size": 8, "learning_rate": 1e-3, "epochs": 3}
    assert summary["test"] == SEARCHED["test"] and summary["train_command"] == SEARCHED["command"]
    about = {name: step_result()[name] for name in ("date", "machine", "git")}
    settings = {"task": "glue/cola", "model": "minilm", "metric": "matthews", "rows": 2000, "epochs": 3, "seeds": 2}
    result = {
        "kind": "search",
        "file": "a.json",
        "versions": {"tensorflow": "2.21.0"},
        **about,
        "settings": settings,
        **summary,
    }
    text = tables.make_tables([result])
    assert "| size | 0.001 | 0.003 |\n|---:|---:|---:|\n| 8 | **90.0 ± 0.0** | 25.0 |\n" in text
    assert "\n| 64 | 60.0 ± 14.1 | failed |\n| 256 | failed | - |\n" in text
    assert "2 seeds; a constant answer has 0.0; test of the best adapter: matthews correlation 62.5 %" in text


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
        (folder / "search.json").write_text(
            json.dumps({"settings": {}} if len(calls) == 1 else {"settings": {}, **SEARCHED})
        )
        (folder / "trials.png").write_bytes(b"a plot")
        return next(statuses)

    monkeypatch.setattr(command_line, "main", tune)
    options = [
        "--data-dir",
        str(tmp_path / "data"),
        "--work",
        str(tmp_path / "work"),
        "--output",
        str(tmp_path / "result"),
        "--seeds",
        "2",
    ]
    monkeypatch.setattr(sys, "argv", ["search.py", *options, "--sizes", "8", "64", "--learning-rates", "3e-4", "1e-3"])
    with pytest.raises(SystemExit) as stopped:
        search.main()
    assert stopped.value.code == 130 and not (tmp_path / "result").exists()
    search.main()
    assert calls[1] == [*calls[0], "--resume"]
    assert calls[0] == [
        "tune",
        "--model",
        "minilm",
        "--task",
        "glue/cola",
        "--data-dir",
        str(tmp_path / "data"),
        "--low-resource",
        "2000",
        "--space",
        "none",
        "--vary",
        "adapter-size=8,64",
        "--vary",
        "learning-rate=0.0003,0.001",
        "--vary",
        "epochs=3",
        "--vary",
        "batch-size=16",
        "--tuner",
        "grid",
        "--seeds",
        "2",
        "--max-length",
        "128",
        "--output",
        str(folder),
    ]
    result = json.loads((tmp_path / "result" / "summary.json").read_text())
    assert (
        result["kind"] == "search"
        and result["settings"]["metric"] == "matthews"
        and result["best"]["bottleneck_size"] == 8
    )
    assert (tmp_path / "result" / "trials.png").read_bytes() == b"a plot" and "90.0 ± 0.0" in capsys.readouterr().out


@pytest.mark.nightly
def test_a_search_of_two_pairs_makes_a_table(checkpoint, tmp_path):
    # Of the training rows 1,000 validate.
    write_cola(tmp_path / "data", 1100)
    done = run_script(
        "search.py",
        "--data-dir",
        str(tmp_path / "data"),
        "--model",
        str(checkpoint),
        "--sizes",
        "4",
        "--learning-rates",
        "1e-3",
        "3e-3",
        "--rows",
        "32",
        "--epochs",
        "1",
        "--seeds",
        "1",
        "--max-length",
        "16",
        "--work",
        str(tmp_path / "work"),
        "--output",
        str(tmp_path / "results" / "a"),
    )
    assert done.returncode == 0, done.stderr
    (result,) = tables.read_results(tmp_path / "results")
    assert [cell["learning_rate"] for cell in result["cells"]] == [1e-3, 3e-3] and "| 4 | " in tables.make_tables(
        [result]
    )
