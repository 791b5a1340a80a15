"""What is said of the user's files and labels at the command line, and what a directory keeps of it."""

import io
import json

import pytest
import rich.console

from tf_adapters.cli.data import DataOptions
from tf_adapters.cli.trained import reading_of
from tf_adapters.tasks.labels import doubts
from tf_adapters.tasks.own_files import kept_reading, task_from_files


@pytest.mark.parametrize(
    "names, kind, separator, says",
    [
        (["a", "b", "a|b", "b|a"], "classification", "|", ("a|b", {"kind": "multi-label"})),
        (["a;b", "b;c", "c;a"], "classification", "|", ("a;b", {"kind": "multi-label", "label_separator": ";"})),
        (["a,b", "b,c", "c,a"], "multi-label", "|", ("a,b", {"label_separator": ","})),
        ([str(n) for n in range(21)], "classification", "|", ("21 labels", {"kind": "regression"})),
        ([str(n) for n in range(20)], "classification", "|", None),
        (["New York, NY", "Albany, NY", "Boston, MA"], "classification", "|", None),
        (["a", "b", "a|b"], "multi-label", "|", None),
        ((), "regression", "|", None),
        (["POS", "Pos", "neg", "pos"], "classification", "|", ("The labels 'POS' and 'Pos' and 'pos' differ", {})),
        (["new  york", "New\xa0York", "01", "1", "x"], "multi-label", "|", ("York'; '01' and '1' differ by", {})),
        (["['a']", "['a', 'b']"], "classification", "|", ("\"['a']\" are lists", {"kind": "multi-label"})),
        (["a", "b", "nan"], "classification", "|", ("The label 'nan' is a class here", {})),
        (["B-PER", "O", "b-PER"], "token-classification", "|", ("'B-PER' and 'b-PER'", {})),
    ],
)
def test_labels_that_look_like_something_else_are_doubted(names, kind, separator, says):
    found = doubts(tuple(names), kind=kind, separator=separator)
    if says is None:
        assert found is None
    else:
        sentence, values = found
        assert says[0] in sentence and values == says[1] and all(f"{{{name}}}" in sentence for name in values)


def test_train_says_what_labels_look_like(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text,label\na,x|y\na,y|x\na,x\na,y\n")
    console = rich.console.Console(file=io.StringIO(), width=500)
    DataOptions(train_file=path, validation=path).read(console)
    said = "Labels such as 'x|y' look like several. If they are, give --kind multi-label."
    assert said in console.file.getvalue()


# What a directory keeps


def test_a_task_keeps_how_its_files_were_read_and_nothing_that_is_usual(tmp_path):
    path, named = tmp_path / "a.csv", tmp_path / "b.csv"
    path.write_text("x|so good\ny|so bad\n")
    task = task_from_files(train=path, validation=path, header="none", delimiter="pipe", label_column=1)
    kept = {"files": "table", "label_column": "1", "header": "none", "delimiter": "pipe"}
    assert task.reading == kept and task.train.text.numpy().tolist() == [b"so good", b"so bad"]
    named.write_bytes("text,label\nso good,x\nso bad,y\n".encode("utf-16"))
    assert task_from_files(train=named, validation=named, encoding="utf-16").reading is None


@pytest.mark.parametrize(
    ("reading", "path", "about", "expected"),
    [
        # A delimiter is of CSV alone.
        ({"delimiter": "pipe", "text_column": "body"}, "a.csv.gz", {}, {"delimiter": "pipe", "text_column": "body"}),
        ({"delimiter": "pipe", "text_column": "body"}, "a.tsv", {}, {"text_column": "body"}),
        ({"delimiter": "pipe"}, "a.tsv", {"format": "csv"}, {"delimiter": "pipe"}),
        ({"header": "none", "text_column": "2"}, "a.dat", {"format": "tsv"}, {"header": "none", "text_column": "2"}),
        ({"header": "none", "text_column": "2"}, "a.csv", {"header": "none"}, {"text_column": "2"}),
        # Numbers are no names, and names no numbers.
        ({"header": "none", "text_column": "2"}, "a.csv", {"header": "first"}, {}),
        ({"header": "none", "text_column": "2"}, "a.jsonl", {}, {}),
        ({"text_column": "body"}, "a.csv", {"header": "none"}, {}),
        ({"text_column": "body"}, "a.csv", {"header": "first"}, {"text_column": "body"}),
        # Other files have no such columns.
        *(({"text_column": "body"}, other, {}, {}) for other in ("-", "a.txt", "a.conllu", "a.json")),
        (None, "a.csv", {}, {}),
    ],
)  # fmt: skip
def test_what_of_a_training_files_reading_is_for_another_file(reading, path, about, expected):
    assert kept_reading(reading and {"files": "table", **reading}, path, **about) == expected


def test_directories_of_one_file_with_other_labels_keep_what_they_share():
    settings = [
        {"task": {"reading": {"files": "table", "text_column": "body", "label_column": label}}} for label in ("a", "b")
    ]
    given = {"text_column": None, "format": None, "header": None}
    assert reading_of(settings, "new.csv", given)[0] == {"text_column": "body"}
    assert reading_of(settings, "new.csv", {**given, "label_column": None})[0] == {}


# The command line


@pytest.mark.nightly
def test_a_directory_reads_files_like_its_training_file_without_being_told(cli, checkpoint, tmp_path):
    # As Excel writes it in Germany, without a header: a number, a label and a text.
    texts = {"good": "great fun naïve", "bad": "dull awful plot"}
    rows = [f"{n};{label};{texts[label]} {n % 5}" for n in range(20) for label in texts]
    headless = tmp_path / "rows.csv"
    headless.write_bytes("\r\n".join(rows).encode("cp1252"))
    words = ["--encoding=cp1252", "--header=none", "--delimiter=semicolon", "--text-column=3", "--label-column=2"]
    run = [f"--model={checkpoint}", f"--train={headless}", "--max-length=16", "--epochs=1"]
    outcome = cli("train", *run, *words, f"--output={tmp_path / 'a'}")
    assert outcome.status == 0, outcome.err
    assert "32 training, 4 validation, 4 test rows, labels bad, good" in outcome.out
    settings = json.loads((tmp_path / "a" / "tf_adapters.json").read_text())
    reading = {"text_column": "3", "label_column": "2", "header": "none", "delimiter": "semicolon"}
    assert settings["task"]["reading"] == {"files": "table", **reading}

    # The encoding is asked for: another file's may be another, and some fit all bytes.
    given = (tmp_path / "a", f"--input={headless}")
    refused = cli("evaluate", *given)
    assert refused.status == 2 and "is not UTF-8; with --encoding cp1252 it reads '" in refused.err
    scored = cli("evaluate", *given, "--encoding=cp1252")
    note = f"{headless} is read as the training file: --text-column 3 --label-column 2 --header none --delimiter"
    assert scored.status == 0 and note in " ".join(scored.out.split()), scored.out
    predicted = cli("predict", *given, "--encoding=cp1252")
    assert predicted.status == 0 and len(predicted.rows()) == 40
    note = f"{headless} is read as the training file: --text-column 3 --header none --delimiter semicolon\n"
    assert predicted.err == note
    # What is said counts more.
    (tmp_path / "named.csv").write_text("text\na great film\n")
    words = ("--header=first", "--text-column=text", "--delimiter=comma")
    assert len(cli("predict", tmp_path / "a", f"--input={tmp_path / 'named.csv'}", *words).rows()) == 1


def test_options_of_files_are_refused_where_there_are_none(cli, adapter_directory, tmp_path):
    for words, says in (
        (["train", "--header=none"], "--header none goes with --train FILE"),
        (["train", "--train=a.csv", "--validation-split=test"], "--validation-split test belongs to --task NAME"),
        (["pretrain", "--encoding=cp1252"], "--encoding cp1252 goes with --train FILE"),
        (["evaluate", adapter_directory, "--header=none"], "--header none goes with --input FILE"),
        (["predict", adapter_directory, "--input=no.csv", "--header=0"], "--header 0 is unknown"),
    ):
        outcome = cli(*words, f"--output={tmp_path / 'o.csv'}")
        assert outcome.status == 2 and says in outcome.err, outcome.err


def test_a_search_repeats_how_files_are_read(tmp_path):
    data = DataOptions(
        train_file=tmp_path / "a.csv", encoding="cp1252", header="none", delimiter="tab", text_column="1"
    )
    assert data.words()[2:] == [
        "--text-column", "1", "--encoding", "cp1252", "--header", "none", "--delimiter", "tab",
    ]  # fmt: skip
