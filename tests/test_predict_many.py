"""Several tasks' answers to one file, and a file in parts."""

import csv
import io
import json

import numpy as np
import pytest
import tensorflow as tf

from tests.test_bank import TASKS, save_task
from tf_adapters import AdapterBank
from tf_adapters.cli.predict import write_csv
from tf_adapters.errors import InputError
from tf_adapters.kinds import get_kind
from tf_adapters.serving.bank import BankScorer
from tf_adapters.tasks.own_files import unlabelled_chunks
from tf_adapters.tasks.splitting import parse_shard, shard_chunks
from tf_adapters.text.wordpiece import WordPiece

NAMES = ("film", "three", "upper", "similar")


@pytest.fixture(scope="module")
def directories(checkpoint, tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapters")
    for seed, name in enumerate(NAMES):
        save_task(checkpoint, folder / name, *TASKS[name], seed=seed)
    return folder


@pytest.fixture(scope="module")
def pairs_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "pairs.csv"
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "second"])
        writer.writerows(
            [
                ["a great film " * (row % 7), f"was it \u00e9t\u00e9 {row}"] if row % 7 else [f"x{row}", "dull"]
                for row in range(41)
            ]
        )
    return path


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.nightly
def test_several_tasks_give_what_each_gives_alone(cli, directories, pairs_file):
    several = cli(
        "predict",
        *(directories / name for name in NAMES),
        "--input",
        pairs_file,
        "--text-pair-column",
        "second",
        "--batch-size",
        8,
    )
    assert several.status == 0, several.err
    rows = lines(several.out)
    assert len(rows) == 41 and list(rows[0]) == list(NAMES)
    for name in NAMES:
        columns = ("--text-pair-column", "second") if name == "similar" else ()
        alone = cli("predict", directories / name, "--input", pairs_file, *columns)
        for row, expected in zip(rows, lines(alone.out), strict=True):
            found = row[name]
            assert found.keys() == expected.keys()
            if "value" in found:
                assert found["value"] == pytest.approx(expected["value"], abs=1e-5)
                continue
            assert found["probabilities"] == pytest.approx(expected["probabilities"], abs=1e-5)
            values = sorted(abs(value - 0.5) for value in expected["probabilities"].values())
            if values[0] > 1e-4:  # no tie that rounding decides
                assert [found.get("label"), found.get("labels")] == [expected.get("label"), expected.get("labels")]


@pytest.mark.slow
def test_csv_has_the_columns_of_each_task(cli, directories, pairs_file, tmp_path):
    output = tmp_path / "labels.csv"
    given = ("predict", directories / "film", f"my={directories / 'upper'}", "--input", pairs_file)
    assert cli(*given, "--output", output).status == 0
    with open(output, newline="", encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    assert len(table) == 41
    assert list(table[0])[:2] == ["text", "second"]
    assert list(table[0])[2:5] == ["film_label", "film_probability_bad", "film_probability_good"]
    assert list(table[0])[5:] == [
        "film_error",
        "my_labels",
        *(f"my_probability_{label}" for label in "abcde"),
        "my_error",
    ]
    expected = lines(cli(*given).out)
    assert [row["film_label"] for row in table] == [row["film"]["label"] for row in expected]
    assert [row["my_labels"] for row in table] == ["|".join(row["my"]["labels"]) for row in expected]


def test_a_row_without_an_answer_has_its_error_in_csv_and_nothing_else():
    file, logits = io.StringIO(), np.array([[np.nan, 0], [1, 2]], np.float32)
    records = {
        "film": get_kind("classification").records(None, logits, ["bad", "good"]),
        "tags": get_kind("multi-label").records(None, logits[::-1], ["a", "b"]),
        "score": get_kind("regression").records(None, logits[:, :1], ()),
    }
    write_csv(file, [(None, [dict(zip(records, row)) for row in zip(*records.values())])])
    first, second = csv.DictReader(io.StringIO(file.getvalue()))
    error = "the logits are not finite"
    assert {name: value for name, value in first.items() if value and not name.startswith("tags")} == {
        "film_error": error,
        "score_error": error,
    }
    assert first["tags_labels"] == "a|b" and not first["tags_error"] and second["film_label"] == "good"
    assert (second["tags_labels"], second["tags_probability_a"], second["tags_error"], second["score_value"]) == (
        "",
        "",
        error,
        "1.0",
    )


def test_texts_are_cut_once_for_tasks_alike(checkpoint, directories, monkeypatch):
    bank = AdapterBank(str(checkpoint))
    for name in ("film", "upper", "three"):
        bank.add(name, directories / name)
    encoded, encode = [], WordPiece.encode

    def counted(self, *texts):
        encoded.append(self.max_length)
        return encode(self, *texts)

    monkeypatch.setattr(WordPiece, "encode", counted)
    done = []
    outputs = BankScorer(bank, batch_size=2).outputs(tf.constant(["a film", "", "dull " * 9]), progress=done.append)
    assert sorted(encoded) == [16, 24]
    assert sum(done) == 9 and {name: values.shape for name, values in outputs.items()} == {
        "film": (3, 2),
        "upper": (3, 5),
        "three": (3, 2),
    }
    assert np.isfinite(np.concatenate([values.ravel() for values in outputs.values()])).all()


def test_what_several_directories_cannot_do_is_said(cli, directories, pairs_file):
    film, similar = directories / "film", directories / "similar"

    def refused(*arguments):
        outcome = cli("predict", *arguments, "--input", pairs_file)
        assert outcome.status == 2 and "Traceback" not in outcome.err and not outcome.out
        return " ".join(outcome.err.split())

    assert "both called 'film'" in refused(film, film)
    assert "give the second by --text-pair-column" in refused(film, similar)
    assert "all of these directories were trained on single texts" in refused(
        film, directories / "upper", "--text-pair-column", "second"
    )
    assert "--fast is for one directory" in refused(film, similar, "--fast", "--text-pair-column", "second")
    assert "no such directory" in refused(film, "x=nowhere")


@pytest.mark.parametrize("count", [1, 2, 5, 41])
def test_the_parts_of_a_file_are_the_file(pairs_file, count):
    whole = next(unlabelled_chunks(str(pairs_file), kind="classification")).text
    parts = [
        [
            text.decode()
            for chunk in shard_chunks(
                lambda: unlabelled_chunks(str(pairs_file), kind="classification", chunk_rows=4), index, count
            )
            for text in chunk.rows().text.numpy()
        ]
        for index in range(1, count + 1)
    ]
    assert sum(parts, []) == whole
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_parts_of_words_and_questions(tmp_path):
    words = tmp_path / "words.txt"
    words.write_text("a b\nc\nd e f\n")
    (chunk,) = shard_chunks(lambda: unlabelled_chunks(str(words), kind="token-classification"), 2, 3)
    assert len(chunk) == 1 and chunk.rows().words.to_list() == [[b"c"]]
    questions = tmp_path / "questions.csv"
    questions.write_text("question,context\nwho?,Ada\nwhen?,now\n")
    (chunk,) = shard_chunks(lambda: unlabelled_chunks(str(questions), kind="question-answering"), 2, 2)
    assert list(chunk.rows().questions) == ["when?"]


@pytest.mark.slow
def test_parts_are_written_by_the_command(cli, directories, pairs_file, tmp_path):
    given = ("predict", directories / "film", "--input", pairs_file)
    whole = cli(*given).out
    parts = ""
    for part in (1, 2, 3):
        output = tmp_path / f"{part}.jsonl"
        assert cli(*given, "--shard", f"{part}/3", "--output", output).status == 0
        parts += output.read_text()
    for row, expected in zip(lines(parts), lines(whole), strict=True):
        assert row["probabilities"] == pytest.approx(expected["probabilities"], abs=1e-5)


@pytest.mark.parametrize("shard", ["0/2", "3/2", "2", "1/0", "a/b", "1/2/3", "-1/2"])
def test_no_such_part(shard):
    with pytest.raises(InputError, match="must be PART/PARTS"):
        parse_shard(shard)


def test_parts_that_cannot_be(cli, directories, pairs_file):
    outcome = cli("predict", directories / "film", "--input", pairs_file, "--shard", "1/42")
    assert outcome.status == 2 and "41 rows" in outcome.err
    outcome = cli("predict", directories / "film", "--input", "-", "--shard", "1/2", stdin=b"a\n")
    assert outcome.status == 2 and "standard input can be read once" in outcome.err
