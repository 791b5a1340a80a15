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
        (["sports|football", "sports|tennis", "news"], "classification", "|", None),
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


def test_a_task_keeps_how_its_files_were_read_and_nothing_that_is_usual(tmp_path):
    path, named = tmp_path / "a.csv", tmp_path / "b.csv"
    path.write_text("x|so good\ny|so bad\n")
    task = task_from_files(train=path, validation=path, header="none", delimiter="pipe", label_column=1)
    kept = {"files": "table", "label_column": "1", "header": "none", "delimiter": "pipe"}
    assert task.reading == kept and task.train.text.numpy().tolist() == [b"so good", b"so bad"]
    named.write_bytes("text,label\nso good,x\nso bad,y\n".encode("utf-16"))
    assert task_from_files(train=named, validation=named, encoding="utf-16").reading is None

    expected = {name: value for name, value in kept.items() if name != "files"}
    assert kept_reading(kept, "other.csv.gz") == expected
    # A delimiter is of CSV alone. JSON lines have names where columns were numbers, and other files no such columns.
    assert kept_reading(kept, "other.dat", format="tsv") == {"label_column": "1", "header": "none"}
    assert kept_reading(kept, "other.jsonl") == {}
    for other in ("-", "other.txt", "other.conllu", "other.json"):
        assert kept_reading(kept, other) == {}
    assert kept_reading(None, "other.csv") == {}


@pytest.fixture
def headless(tmp_path):
    """A file as Excel writes it in Germany, without a header: a number, a label and a text, `rows.csv`."""
    words = {"good": "great fun naïve", "bad": "dull awful plot"}
    rows = [f"{n};{label};{words[label]} {n % 5}" for n in range(20) for label in words]
    (tmp_path / "rows.csv").write_bytes("\r\n".join(rows).encode("cp1252"))
    return tmp_path / "rows.csv"


@pytest.mark.nightly
def test_a_directory_reads_files_like_its_training_file_without_being_told(cli, checkpoint, headless, tmp_path):
    words = ["--encoding=cp1252", "--header=none", "--delimiter=semicolon", "--text-column=3", "--label-column=2"]
    run = [f"--model={checkpoint}", f"--train={headless}", "--max-length=16", "--epochs=1"]
    outcome = cli("train", *run, *words, f"--output={tmp_path / 'a'}")
    assert outcome.status == 0, outcome.err
    assert "32 training, 4 validation, 4 test rows, labels bad, good" in outcome.out
    settings = json.loads((tmp_path / "a" / "tf_adapters.json").read_text())
    assert settings["task"]["reading"] == {
        "files": "table", "text_column": "3", "label_column": "2", "header": "none", "delimiter": "semicolon",
    }  # fmt: skip

    note = f"{headless} is read as the training file: --text-column 3 --label-column 2 --header none --delimiter"
    # The encoding is asked for: another file's may be another, and some fit all bytes.
    refused = cli("evaluate", tmp_path / "a", f"--input={headless}")
    assert refused.status == 2 and "is not UTF-8; with --encoding cp1252 it reads '" in refused.err
    assert "Traceback" not in refused.err and refused.err.count("error: ") == 1
    scored = cli("evaluate", tmp_path / "a", f"--input={headless}", "--encoding=cp1252")
    assert scored.status == 0 and note in " ".join(scored.out.split()), scored.out
    assert f"{tmp_path / 'a'} on rows.csv" in scored.out
    predicted = cli("predict", tmp_path / "a", f"--input={headless}", "--encoding=cp1252")
    assert predicted.status == 0 and len(predicted.rows()) == 40
    assert predicted.err == f"{headless} is read as the training file: --text-column 3 --header none --delimiter " + (
        "semicolon\n"
    )
    # What is said counts more.
    (tmp_path / "named.csv").write_text("text\na great film\n")
    words = ("--header=first", "--text-column=text", "--delimiter=comma")
    assert len(cli("predict", tmp_path / "a", f"--input={tmp_path / 'named.csv'}", *words).rows()) == 1


@pytest.mark.parametrize(
    "command, options, says",
    [
        ("train", ["--encoding=none"], "--encoding none is no encoding that Python knows: use one such as utf-8"),
        ("tune", ["--header=no"], "--header no is unknown: use one of first, none."),
        ("pretrain", ["--delimiter=::"], "--delimiter :: must be one character between columns, or one of comma"),
        ("train", [], "line 1: byte 0xef is not UTF-8; with --encoding cp1252 it reads '0;good;great fun naïve 0'"),
        (
            "pretrain",
            ["--encoding=cp1252", "--header=none"],
            "'0;good;great fun naïve 0': give --delimiter semicolon, or",
        ),
        ("train", ["--encoding=cp1252", "--delimiter=;"], "give --header none and number the columns from 1."),
        (
            "train",
            ["--encoding=cp1252", "--delimiter=;", "--header=none"],
            "has the columns 1 to 3, in its first row '0', 'good', 'great fun naïve 0': name --text-column and "
            "--label-column by number.",
        ),
    ],
)
def test_each_mistake_names_the_next_option(cli, headless, tmp_path, command, options, says):
    outcome = cli(command, "--model=none", f"--train={headless}", f"--output={tmp_path / 'o'}", *options)
    assert outcome.status == 2 and outcome.err.count("\n") == 1 and "Traceback" not in outcome.err
    assert says in outcome.err


def test_options_of_files_are_refused_where_there_are_none(cli, adapter_directory, tmp_path):
    for words, says in (
        (["train", "--header=none"], "--header none goes with --train FILE"),
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


def test_train_says_what_labels_look_like(tmp_path):
    for labels, shown in (
        (["x|y", "y|x", "x", "y"], "Labels such as 'x|y' look like several. If they are, give --kind multi-label."),
        (["Pos", "pos ", "pos", "neg"], "The labels 'Pos' and 'pos' differ by no more than case, spaces or"),
    ):
        path = tmp_path / "a.csv"
        path.write_text("text,label\n" + "".join(f"a,{label}\n" for label in labels))
        console = rich.console.Console(file=io.StringIO(), width=500)
        DataOptions(train_file=path, validation=path).read(console)
        assert shown in console.file.getvalue()


@pytest.mark.parametrize(
    ("reading", "path", "about", "expected"),
    [
        ({"delimiter": "pipe", "text_column": "body"}, "a.csv", {}, {"delimiter": "pipe", "text_column": "body"}),
        ({"delimiter": "pipe", "text_column": "body"}, "a.tsv", {}, {"text_column": "body"}),
        ({"delimiter": "pipe"}, "a.tsv", {"format": "csv"}, {"delimiter": "pipe"}),
        ({"header": "none", "text_column": "2"}, "a.tsv", {}, {"header": "none", "text_column": "2"}),
        ({"header": "none", "text_column": "2"}, "a.csv", {"header": "none"}, {"text_column": "2"}),
        # Numbers are no names, and names no numbers.
        ({"header": "none", "text_column": "2"}, "a.csv", {"header": "first"}, {}),
        ({"header": "none", "text_column": "2"}, "a.jsonl", {}, {}),
        ({"text_column": "body"}, "a.csv", {"header": "none"}, {}),
        ({"text_column": "body"}, "a.csv", {"header": "first"}, {"text_column": "body"}),
        ({"text_column": "body"}, "a.conllu", {}, {}),
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
