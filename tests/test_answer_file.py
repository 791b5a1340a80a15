"""The CSV of `tf-adapters predict`: the input's columns and the answer's."""

import csv
import io
import json
import tracemalloc
import types

import pytest

from tf_adapters.cli.predict import write_csv


def written(*chunks):
    file = io.StringIO()
    write_csv(file, chunks)
    return list(csv.reader(io.StringIO(file.getvalue())))


ANSWER = {"label": "b", "probabilities": {"a": 0.25, "b": 0.75}}
OF_ANSWER = ["label", "probability_a", "probability_b", "error"]


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
def test_no_more_than_a_chunk_is_held():
    file = types.SimpleNamespace(write=lambda text: None)
    chunks = (([{"text": f"text {n}"} for n in range(100)], [dict(ANSWER) for n in range(100)]) for _ in range(1000))
    tracemalloc.start()
    try:
        write_csv(file, chunks)
        # A chunk takes 0.1 MB, and all of them 100 MB.
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def table(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_predict_carries_the_columns_of_every_kind_of_file(cli, adapter_directory, tmp_path):
    texts = ["a great film", "dull", "naïve, and long"]
    lines = [json.dumps({"id": n, "text": text, "label": "?"}, ensure_ascii=False) for n, text in enumerate(texts)]
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    (tmp_path / "t.csv").write_bytes(
        "\r\n".join(["id;text;label", *(f'{n};"{t}";?' for n, t in enumerate(texts))]).encode("cp1252")
    )
    (tmp_path / "t.txt").write_text("\n".join(texts), encoding="utf-16")
    expected = cli("predict", adapter_directory, "--input", tmp_path / "t.txt").rows()
    assert [list(row) for row in expected] == [["label", "probabilities"]] * 3
    for name, options in (("t.jsonl", []), ("t.csv", ["--encoding", "cp1252"]), ("t.txt", [])):
        words = ("predict", adapter_directory, "--input", tmp_path / name, *options)
        assert cli(*words).rows() == expected, name
        outcome = cli(*words, "--output", tmp_path / "o.csv", "--overwrite")
        assert outcome.status == 0, outcome.err
        rows = table(tmp_path / "o.csv")
        ours = ["text"] if name == "t.txt" else ["id", "text", "input_label"]
        assert list(rows[0]) == [*ours, "label", "probability_negative", "probability_positive", "error"]
        assert [row["text"] for row in rows] == texts
        assert [row["label"] for row in rows] == [row["label"] for row in expected]
    outcome = cli(*words, "--input", tmp_path / "t.jsonl", "--output", tmp_path / "part.csv", "--shard", "2/3")
    assert outcome.status == 0 and [row["id"] for row in table(tmp_path / "part.csv")] == ["1"]


def test_half_of_a_surrogate_pair_in_a_column_that_nobody_reads_breaks_nothing(cli, adapter_directory, tmp_path):
    (tmp_path / "t.jsonl").write_text('{"text": "a", "other": "x\\ud800", "k\\udc00": 1}\n')
    outcome = cli("predict", adapter_directory, "--input", tmp_path / "t.jsonl", "--output", tmp_path / "o.csv")
    assert outcome.status == 0, outcome.err
    assert list(table(tmp_path / "o.csv")[0].items())[:3] == [("text", "a"), ("other", "x?"), ("k?", "1")]
