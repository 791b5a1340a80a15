"""Several tasks' answers to one file, and a file in parts."""

import csv
import io

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import is_refused
from tests.test_bank import TASKS, save_task
from tf_adapters import AdapterBank
from tf_adapters.cli.predict import write_csv
from tf_adapters.kinds import get_kind
from tf_adapters.serving.bank import outputs_by_task
from tf_adapters.tasks.own_files import get_reader
from tf_adapters.tasks.rows import parse_shard, shard_chunks
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
        for row in range(41):
            long = ["a great film " * (row % 7), f"was it \u00e9t\u00e9 {row}"]
            writer.writerow(long if row % 7 else [f"x{row}", "dull"])
    return path


@pytest.mark.nightly
def test_several_tasks_give_what_each_gives_alone(cli, directories, pairs_file):
    columns = ("--text-pair-column", "second")
    several = cli("predict", *map(directories.joinpath, NAMES), "--input", pairs_file, *columns, "--batch-size=8")
    assert several.status == 0, several.err
    rows = several.rows()
    assert len(rows) == 41 and list(rows[0]) == list(NAMES)
    for name in NAMES:
        alone = cli("predict", directories / name, "--input", pairs_file, *(columns if name == "similar" else ()))
        for row, expected in zip(rows, alone.rows(), strict=True):
            found = row[name]
            assert found.keys() == expected.keys()
            if "value" in found:
                assert found["value"] == pytest.approx(expected["value"], abs=1e-5)
                continue
            assert found["probabilities"] == pytest.approx(expected["probabilities"], abs=1e-5)
            values = sorted(abs(value - 0.5) for value in expected["probabilities"].values())
            if values[0] > 1e-4:  # no tie that rounding decides
                assert [found.get("label"), found.get("labels")] == [expected.get("label"), expected.get("labels")]


def test_a_row_without_an_answer_has_its_error_in_csv_and_nothing_else():
    file, logits = io.StringIO(), np.array([[np.nan, 0], [1, 2]], np.float32)
    records = {
        "film": get_kind("classification").records(None, logits, ["bad", "good"]),
        "tags": get_kind("multi-label").records(None, logits[::-1], ["a", "b"]),
        "score": get_kind("regression").records(None, logits[:, :1], ()),
    }
    write_csv(file, [([{"text": "a"}] * 2, [dict(zip(records, row)) for row in zip(*records.values())])])
    first, second = csv.DictReader(io.StringIO(file.getvalue()))
    assert " ".join(first) == (
        "text film_label film_probability_bad film_probability_good film_error "
        "tags_labels tags_probability_a tags_probability_b tags_error score_value score_error"
    )
    error = "the logits are not finite"
    of_first = {name: value for name, value in first.items() if value and not name.startswith(("tags", "text"))}
    assert of_first == {"film_error": error, "score_error": error}
    assert first["tags_labels"] == "a|b" and not first["tags_error"] and second["film_label"] == "good"
    names = ("tags_labels", "tags_probability_a", "tags_error", "score_value")
    assert [second[name] for name in names] == ["", "", error, "1.0"]


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
    outputs = outputs_by_task(bank, tf.constant(["a film", "", "dull " * 9]), batch_size=2, progress=done.append)
    assert sorted(encoded) == [16, 24]
    shapes = {name: values.shape for name, values in outputs.items()}
    assert sum(done) == 9 and shapes == {"film": (3, 2), "upper": (3, 5), "three": (3, 2)}
    assert np.isfinite(np.concatenate([values.ravel() for values in outputs.values()])).all()


def test_what_several_directories_and_parts_cannot_do_is_said(refused, directories, pairs_file):
    film, similar, rows = directories / "film", directories / "similar", f"--input={pairs_file}"
    pairs = "--text-pair-column=second"
    refused("predict", film, film, rows, says="both called 'film'")
    refused("predict", film, similar, rows, says="give the second by --text-pair-column")
    says = "all of these directories were trained on single texts"
    refused("predict", film, directories / "upper", rows, pairs, says=says)
    refused("predict", film, similar, rows, pairs, "--fast", says="--fast is for one directory")
    refused("predict", film, "x=nowhere", rows, says="no such directory")
    refused("predict", film, rows, "--shard=1/42", says="41 rows")
    refused("predict", film, "--input=-", "--shard=1/2", stdin=b"a\n", says="standard input can be read once")


@pytest.mark.parametrize("count", [1, 5, 41])
def test_the_parts_of_a_file_are_the_file(pairs_file, count):
    def chunks(**size):
        return get_reader("classification").chunks(str(pairs_file), **size)

    def part(index):
        found = shard_chunks(lambda: chunks(chunk_rows=4), index, count)
        return [text.decode() for chunk in found for text in chunk.rows().text.numpy()]

    parts = [part(index) for index in range(1, count + 1)]
    assert sum(parts, []) == next(chunks()).text
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_parts_of_words_and_questions(tmp_path):
    words = tmp_path / "words.txt"
    words.write_text("a b\nc\nd e f\n")
    (chunk,) = shard_chunks(lambda: get_reader("token-classification").chunks(str(words)), 2, 3)
    assert len(chunk) == 1 and chunk.rows().words.to_list() == [[b"c"]]
    questions = tmp_path / "questions.csv"
    questions.write_text("question,context\nwho?,Ada\nwhen?,now\n")
    (chunk,) = shard_chunks(lambda: get_reader("question-answering").chunks(str(questions)), 2, 2)
    assert list(chunk.rows().questions) == ["when?"]
    # Rows, which load TensorFlow, are made when they are asked for.
    assert len(next(shard_chunks(lambda: [range(3)], 1, 2))) == 1


def test_no_such_part():
    for shard in ("0/2", "3/2", "2", "a/b", "1/2/3", "-1/2"):
        is_refused("must be PART/PARTS", parse_shard, shard)
