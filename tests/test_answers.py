"""What `tf-adapters predict` writes: a CSV of the input's columns and the answer's, and a table on a terminal."""

import csv
import io
import json
import sys

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console

from tests.cases import read_csv
from tf_adapters.cli.predict import cells, show_answers, write_csv
from tf_adapters.kinds import get_kind
from tf_adapters.tasks.own_files import get_reader

ANSWER = {"label": "b", "probabilities": {"a": 0.25, "b": 0.75}}
OF_ANSWER = ["label", "probability_a", "probability_b", "error"]
ERROR = "the logits are not finite"


# The file


def written(*chunks):
    file = io.StringIO()
    write_csv(file, chunks)
    return list(csv.reader(io.StringIO(file.getvalue())))


def test_the_input_comes_first_in_its_order_and_names_of_the_answer_never_change():
    records = [{"text": 'x, "y"', "label": "true", "input_label": "z", "": "1", "error": None}]
    header, row = written((records, [ANSWER]))
    assert header == ["text", "input_label", "input_input_label", "", "input_error", *OF_ANSWER]
    assert row == ['x, "y"', "true", "z", "1", "", "b", "0.25", "0.75", ""]
    assert written((None, [ANSWER])) == [OF_ANSWER, ["b", "0.25", "0.75", ""]]


def test_keys_of_json_may_be_missing_and_hold_anything():
    first = [{"text": "a", "n": 1}, {"text": "b", "of": {"ü": [None, True]}}]
    header, *rows = written((first, [ANSWER, ANSWER]), ([{"text": "c"}], [ANSWER]))
    assert header[:3] == ["text", "n", "of"]
    assert [row[:3] for row in rows] == [["a", "1", ""], ["b", "", '{"ü": [null, true]}'], ["c", "", ""]]
    with pytest.warns(UserWarning, match="come up late in the input are not in the CSV .'late', 'n'.: write .jsonl"):
        header, *rows = written(([{"text": "a"}], [ANSWER]), ([{"text": "c", "n": 1, "late": 2}], [ANSWER]))
    assert [row[0] for row in rows] == ["a", "c"] and header == ["text", *OF_ANSWER]


@pytest.mark.slow
def test_predict_carries_the_columns_of_every_kind_of_file(cli, adapter_directory, tmp_path):
    texts = ["a great film", "dull", "naïve, and long"]
    lines = [json.dumps({"id": n, "text": text, "label": "?"}, ensure_ascii=False) for n, text in enumerate(texts)]
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    rows = [f'{n};"{text}";?' for n, text in enumerate(texts)]
    (tmp_path / "t.csv").write_bytes("\r\n".join(["id;text;label", *rows]).encode("cp1252"))
    (tmp_path / "t.txt").write_text("\n".join(texts), encoding="utf-16")
    expected = cli("predict", adapter_directory, "--input", tmp_path / "t.txt").rows()
    assert [list(row) for row in expected] == [["label", "probabilities"]] * 3
    for name, options in (("t.jsonl", []), ("t.csv", ["--encoding", "cp1252"]), ("t.txt", [])):
        words = ("predict", adapter_directory, "--input", tmp_path / name, *options)
        assert cli(*words).rows() == expected, name
        outcome = cli(*words, "--output", tmp_path / "o.csv", "--overwrite")
        assert outcome.status == 0, outcome.err
        rows = read_csv(tmp_path / "o.csv")
        ours = ["text"] if name == "t.txt" else ["id", "text", "input_label"]
        assert list(rows[0]) == [*ours, "label", "probability_negative", "probability_positive", "error"]
        assert [row["text"] for row in rows] == texts
        assert [row["label"] for row in rows] == [row["label"] for row in expected]
    outcome = cli(*words, "--input", tmp_path / "t.jsonl", "--output", tmp_path / "part.csv", "--shard", "2/3")
    assert outcome.status == 0 and [row["id"] for row in read_csv(tmp_path / "part.csv")] == ["1"]


def test_half_of_a_surrogate_pair_in_a_column_that_nobody_reads_breaks_nothing(cli, adapter_directory, tmp_path):
    (tmp_path / "t.jsonl").write_text('{"text": "a", "other": "x\\ud800", "k\\udc00": 1}\n')
    outcome = cli("predict", adapter_directory, "--input", tmp_path / "t.jsonl", "--output", tmp_path / "o.csv")
    assert outcome.status == 0, outcome.err
    assert list(read_csv(tmp_path / "o.csv")[0].items())[:3] == [("text", "a"), ("other", "x?"), ("k?", "1")]


# The terminal


def shown(texts, records, width=80):
    console = Console(file=io.StringIO(), width=width, highlight=False, markup=False, emoji=False, soft_wrap=True)
    show_answers(console, [(texts, records)])
    return [line.rstrip() for line in console.file.getvalue().splitlines() if line.strip()]


def test_the_error_column_is_there_where_there_is_an_error_and_nowhere_else():
    logits = np.array([[np.nan, 0], [0, np.log(3)]], np.float32)
    for kind, labels, columns, answer in (
        ("classification", ["bad", "good"], ["label", "probability"], ["good", "0.7500"]),
        ("multi-label", ["bad", "good"], ["labels", "probability"], ["good", "0.7500"]),
        ("regression", (), ["value"], None),
    ):
        records = get_kind(kind).records(None, logits if labels else logits[:, :1], labels)
        header, _, broken, fine = shown(["a film", "b"], records)
        assert header.split() == ["text", *columns, "error"]
        assert broken.split(maxsplit=2) == ["a", "film", ERROR] and fine.split()[1:] == (answer or fine.split()[1:])
        assert "error" not in shown(["b"], records[1:])[0] and ERROR not in fine


@pytest.mark.parametrize("width", [60, 100])
def test_a_long_text_is_shortened_so_that_a_row_is_a_line_of_the_terminal(width):
    record = {"label": "good", "probabilities": {"bad": 0.25, "good": 0.75}}
    for text in ("long " * 99, "長い文" * 99):
        lines = shown([text, "short"], [record, record], width)
        assert lines[0].split() == ["text", "label", "probability"]
        assert len(lines) == 4 and "…" in lines[2] and lines[2].endswith("0.7500") and lines[3].endswith("0.7500")
        assert max(cell_len(line) for line in lines) == width


def test_a_text_or_a_label_cannot_command_the_terminal_or_rich():
    line = shown(["\x1b[2J\r[red]a\tb\nc"], [{"label": "[/b]:ok:", "probabilities": {"[/b]:ok:": 1.0}}])[-1]
    assert "[/b]:ok:" in line and "[2J [red]a b c" in line and "\x1b" not in line


ADA = {"words": ["Ada", "sang"], "labels": ["B-PER", "O"], "probabilities": [0.98, 0.9]}
SEVERAL = {
    "film": {"label": "good", "probabilities": {"bad": 0.25, "good": 0.75}},
    "score": {"value": None, "error": ERROR},
    "tags": {"labels": [], "probabilities": {"a": 0.1}},
}


def test_words_and_answers_and_several_tasks_have_cells_of_their_own():
    for record, expected in (
        (ADA, {"labels": "Ada/B-PER 0.98"}),
        ({**ADA, "labels": ["O", "O"]}, {"labels": "(none)"}),
        (
            {"choice": 1, "answer": "and sang", "probabilities": [0.125, 0.875]},
            {"answer": "and sang", "probability": "0.8750"},
        ),
        (
            {"choice": None, "answer": None, "probabilities": None, "error": ERROR},
            {"answer": "", "probability": "", "error": ERROR},
        ),
        (SEVERAL, {"film": "good (0.7500)", "score": "", "tags": "(none)", "error": f"score: {ERROR}"}),
    ):
        assert cells(record) == expected


def test_each_kind_says_what_was_read_of_a_row():
    for kind, before, row, pairs, text in (
        ("classification", "before", "a film", None, "a film"),
        ("regression", "before", "a film", ["before", "é"], "a film | é"),
        ("token-classification", ["before"], ["Ada", "sang"], None, "Ada sang"),
        ("question-answering", "before", "who?", ["before", "Ada sang"], "who?"),
        ("multiple-choice", "before", "Ada", [["sang", "flew"]] * 2, "Ada"),
    ):
        assert get_kind(kind).text(get_reader(kind).of_texts([before, row], pairs), 1) == text


def test_predict_shows_a_table_on_a_terminal(cli, adapter_directory, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")  # no bold headers
    given = ("predict", adapter_directory, f"my={adapter_directory}", "--input", "-")
    (answers,) = cli(*given, "--output", "-", stdin=b"a great film\n").rows()
    label, table = answers["my"]["label"], cli(*given, stdin=b"a great film\n")
    header, _, row = [line for line in table.out.splitlines() if line.strip()]
    assert header.split() == ["text", "sentiment", "my"] and row.count(f"{label} (") == 2
    assert "--output -" in table.err
