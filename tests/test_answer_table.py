"""The table that `tf-adapters predict` shows on a terminal."""

import io
import json
import os
import pty
import re
import subprocess
import sys

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console

from tests.test_bank import TASKS, save_task
from tf_adapters.cli.predict import cells, show_answers
from tf_adapters.kinds import get_kind
from tf_adapters.tasks.readers import get_reader

ERROR = "the logits are not finite"


def shown(texts, records, width=80):
    console = Console(file=io.StringIO(), width=width, highlight=False, markup=False, emoji=False, soft_wrap=True)
    show_answers(console, [(texts, records)])
    return [line.rstrip() for line in console.file.getvalue().splitlines() if line.strip()]


def test_a_row_has_its_text_label_and_probability():
    logits = np.log(np.array([[0.25, 0.75], [0.9, 0.1]], np.float32))
    header, _, first, second = shown(
        ["a film", "dull"], get_kind("classification").records(None, logits, ["bad", "good"])
    )
    assert header.split() == ["text", "label", "probability"]
    assert first.split() == ["a", "film", "good", "0.7500"] and second.split() == ["dull", "bad", "0.9000"]


def test_the_error_column_is_there_where_there_is_an_error_and_nowhere_else():
    logits = np.array([[np.nan, 0], [1, 1]], np.float32)
    for kind, labels, columns in (
        ("classification", ["bad", "good"], ["label", "probability"]),
        ("multi-label", ["bad", "good"], ["labels", "probability"]),
        ("regression", (), ["value"]),
    ):
        records = get_kind(kind).records(None, logits if labels else logits[:, :1], labels)
        header, _, broken, fine = shown(["a", "b"], records)
        assert header.split() == ["text", *columns, "error"]
        assert broken.split(maxsplit=1) == ["a", ERROR] and ERROR not in fine
        assert "error" not in shown(["b"], records[1:])[0]


@pytest.mark.parametrize("width", [60, 100])
def test_a_long_text_is_shortened_so_that_a_row_is_a_line_of_the_terminal(width):
    record = {"label": "good", "probabilities": {"bad": 0.25, "good": 0.75}}
    for text in ("long " * 99, "長い文" * 99):
        lines = shown([text, "short"], [record, record], width)
        assert lines[0].split() == ["text", "label", "probability"]
        assert len(lines) == 4 and "…" in lines[2] and lines[2].endswith("0.7500") and lines[3].endswith("0.7500")
        assert max(cell_len(line) for line in lines) == width


def test_a_text_or_a_label_cannot_command_the_terminal_or_rich():
    record = {"label": "[/b]:ok:", "probabilities": {"[/b]:ok:": 1.0}}
    line = shown(["\x1b[2J\r[red]a\tb\nc"], [record])[-1]
    assert "[/b]:ok:" in line and "[2J [red]a b c" in line and "\x1b" not in line


def test_words_and_answers_and_several_tasks_have_cells_of_their_own():
    words = {"words": ["Ada", "sang"], "labels": ["B-PER", "O"], "probabilities": [0.98, 0.9]}
    assert cells(words) == {"labels": "Ada/B-PER 0.98"}
    assert cells({**words, "labels": ["O", "O"]}) == {"labels": "(none)"}
    assert cells({"words": ["Ada"], "labels": None, "probabilities": None, "error": ERROR}) == {
        "labels": "",
        "error": ERROR,
    }
    span = {"id": "0", "answer": "Ada", "probability": 0.5, "start": 0, "end": 3, "n_best": []}
    assert cells(span) == {"answer": "Ada", "probability": "0.5000"}
    choice = {"choice": 1, "answer": "and sang", "probabilities": [0.125, 0.875]}
    assert cells(choice) == {"answer": "and sang", "probability": "0.8750"}
    none = {"choice": None, "answer": None, "probabilities": None, "error": ERROR}
    assert cells(none) == {"answer": "", "probability": "", "error": ERROR}
    several = {
        "film": {"label": "good", "probabilities": {"bad": 0.25, "good": 0.75}},
        "score": {"value": None, "error": ERROR},
        "tags": {"labels": [], "probabilities": {"a": 0.1}},
    }
    assert cells(several) == {"film": "good (0.7500)", "score": "", "tags": "(none)", "error": f"score: {ERROR}"}


def test_each_kind_says_what_was_read_of_a_row():
    for kind, texts, pairs, text in (
        ("classification", ["a film"], None, "a film"),
        ("regression", ["a film"], ["é"], "a film | é"),
        ("token-classification", [["Ada", "sang"]], None, "Ada sang"),
        ("question-answering", ["who?"], ["Ada sang"], "who?"),
        ("multiple-choice", ["Ada"], [["sang", "flew"]], "Ada"),
    ):
        rows = get_reader(kind).of_texts(["before" if kind != "token-classification" else ["before"], *texts],
                                         None if pairs is None else [pairs[0], *pairs])  # fmt: skip
        assert get_kind(kind).text(rows, 1) == text


@pytest.mark.nightly
def test_predict_shows_a_table_on_a_terminal_and_json_lines_elsewhere(cli, checkpoint, tmp_path, monkeypatch):
    save_task(checkpoint, tmp_path / "film", *TASKS["film"], seed=0)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")  # no bold headers
    given = ("predict", tmp_path / "film", "--input", "-")
    records = cli(*given, "--output", "-", stdin=b"a great film\n").rows()
    assert records[0].keys() == {"label", "probabilities"}
    table = cli(*given, stdin=b"a great film\n")
    header, _, row = [line for line in table.out.splitlines() if line.strip()]
    label = records[0]["label"]
    assert header.split() == ["text", "label", "probability"]
    assert row.split() == ["a", "great", "film", label, f"{records[0]['probabilities'][label]:.4f}"]
    assert "--output -" in table.err
    several = cli("predict", tmp_path / "film", f"my={tmp_path / 'film'}", "--input", "-", stdin=b"a great film\n").out
    assert several.split()[:3] == ["text", "film", "my"] and several.count(f"{label} (") == 2
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False)
    assert cli(*given, stdin=b"a great film\n").rows() == records


@pytest.mark.nightly
def test_a_real_terminal_gets_a_table_and_a_pipe_gets_json(checkpoint, tmp_path):
    save_task(checkpoint, tmp_path / "film", *TASKS["film"], seed=0)
    (tmp_path / "t.txt").write_text("a great film\n" + "dull " * 60 + "\n")
    command = [sys.executable, "-m", "tf_adapters", "predict", tmp_path / "film", "--input", tmp_path / "t.txt"]
    controller, terminal = pty.openpty()
    environment = {**os.environ, "COLUMNS": "72", "TERM": "xterm"}
    with subprocess.Popen(command, stdout=terminal, stderr=subprocess.PIPE, env=environment) as process:
        os.close(terminal)
        out = b""
        while True:
            try:
                part = os.read(controller, 4096)
            except OSError:  # the other end is closed
                break
            out += part
            if not part:
                break
        assert process.wait(300) == 0, process.stderr.read().decode()
    os.close(controller)
    lines = [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", out.decode()).splitlines() if line.strip()]
    assert lines[0].split() == ["text", "label", "probability"] and len(lines) == 4 and "…" in lines[3]
    assert max(map(len, lines)) <= 72
    piped = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert [json.loads(line).keys() for line in piped.stdout.splitlines()] == [{"label", "probabilities"}] * 2
