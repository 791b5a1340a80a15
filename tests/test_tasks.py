"""Labels, the user's own files, what is said of them and what a directory keeps of it; and what is found in TensorFlow
Datasets."""

import io

import numpy as np
import pytest
import rich.console
import tensorflow as tf

from tests.cases import refused
from tf_adapters.cli.data import DataOptions
from tf_adapters.errors import InputError
from tf_adapters.tasks import load_task, task_from_files, tfds_reader
from tf_adapters.tasks.labels import doubts, encode_labels, find_labels
from tf_adapters.tasks.own_files import kept_reading, rows_from_file


def write(tmp_path, name, header, rows):
    path = tmp_path / name
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


# Labels


def test_labels_are_found_in_order_and_become_numbers():
    for kind, first, names, other, numbers in (
        # Class names are sorted by code point, and numbers by value; white space around them is no part of them.
        ("classification", ["10", "9", "-1", "9"], ("-1", "9", "10"), ["10", " 9"], [2, 1]),
        ("classification", ["10", "9", "b"], ("10", "9", "b"), ["b"], [2]),
        ("classification", [2, 10, 1], ("1", "2", "10"), [10, "1"], [2, 0]),
        # A number and a truth value are one label, however they are written.
        ("classification", ["0", "1", "1.0"], ("0", "1"), ["0.0", "-0.0", "1.00", 1.0], [0, 0, 1, 1]),
        ("classification", [True, False, "TRUE"], ("false", "true"), ["True", "FALSE ", False], [1, 0, 0]),
        ("classification", ["a", "2.0", "2.5"], ("2", "2.5", "a"), ["2", "2.5", "a"], [0, 1, 2]),
        ("multi-label", ["0|1.0", [True]], ("0", "1", "true"), ["True|0.0", [1.0]], [[1, 0, 1], [0, 1, 0]]),
        # Several labels stand in a cell or in a list.
        ("multi-label", ["b|a", "", ["c|d"]], ("a", "b", "c|d"), ["a|a", ["b"], []], [[1, 0, 0], [0, 1, 0], [0] * 3]),
        ("multi-label", ["['b', 'a']", '["it\'s"]', "[]", "[x]"], ("[x]", "a", "b", "it's"), ["['a']"], [[0, 1, 0, 0]]),
        ("regression", ["1"], (), ["3.5", " -2e1 ", 4], [3.5, -20, 4]),
        # Many whole numbers and the halves of a rating are classes.
        ("classification", [str(i) for i in range(50)] * 2, tuple(map(str, range(50))), ["49"], [49]),
    ):  # fmt: skip
        assert find_labels(first, kind=kind, path="") == names
        encoded = encode_labels(other, kind=kind, labels=names, path="")
        assert encoded.tolist() == numbers and encoded.dtype == (np.int32 if kind == "classification" else np.float32)


def test_labels_of_words_and_of_directories_from_before_are_the_same_too(tmp_path):
    for names, cells, numbers in (
        (("True", "1.0"), ["1", "true", "1.0"], [1, 0, 1]),
        (("0", "0.0"), ["0", "0.0"], [0, 1]),
    ):
        assert encode_labels(cells, kind="classification", labels=names, path="").tolist() == numbers
    assert find_labels(["b,a"], kind="multi-label", path="", separator=",") == ("a", "b")
    path = write(tmp_path, "a.txt", "a 1.0", ["b 0", "", "c True"])
    rows = rows_from_file(path, kind="token-classification", labels=("0", "1", "true"))
    assert rows.labels.flat_values.numpy().tolist() == [1, 0, 2]
    path = write(tmp_path, "a.jsonl", '{"text": "a", "choices": ["b", "c"], "label": "1.0"}', [])
    assert rows_from_file(path, kind="multiple-choice", labels=()).labels.tolist() == [1]


@pytest.mark.parametrize("kind", ["classification", "multi-label"])
def test_a_label_that_is_almost_a_known_one_is_told_which(kind):
    for labels, cell, says in (
        (("neg", "pos"), "Pos ", "the label 'Pos' is not among those of the training rows ('neg', 'pos'); write 'pos'"),
        (("neg", "pos"), "p\u200bos", "write 'pos' for it."),
        (("0.5", "1"), "0.50", "write '0.5' for it."),
        (("0", "1"), "True", "write '1' for it."),
        (("0", "1"), "2", "correct it, or add rows with it to the training file."),
    ):
        with refused(says):
            encode_labels([cell], kind=kind, labels=labels, path="")


def test_unusable_training_labels_are_refused():
    for kind, cells, message in (
        ("classification", ["a", "a"], "t.csv has only the label 'a': training needs rows of at least two classes."),
        ("classification", ["a", " "], "t.csv, line 2: the label is empty; fill it in or remove the row."),
        ("classification", ["a", None], "t.csv, line 2: the label is empty"),
        ("classification", ["a", ["b"]], 't.csv, line 2: the label is ["b"]; give a string or a number, or use kind='),
        ("classification", [f"{i / 7:.3f}" for i in range(30)] * 2, "which look like scores: use kind='regression'."),
        ("classification", [f"id{i}" for i in range(30)], "t.csv has a different label in each of its 30 rows ('id0'"),
        ("multi-label", ["", ""], "t.csv has no label in any row: a multi-label task needs at least one."),
        ("multi-label", ["a||b"], "t.csv, line 1: one of the labels is empty; remove the extra '|'."),
        ("multi-label", ["a", None], "t.csv, line 2: the label is null; write [] for a row without labels."),
        ("multi-label", ["['a' 'b']"], "t.csv, line 1: the label \"['a' 'b']\" looks like a list; write the labels"),
    ):
        with refused(message):
            find_labels(cells, kind=kind, path="t.csv")


def test_scores_that_are_none_are_refused():
    for cells, says in (
        (["nan", "inf", "-Infinity", float("inf"), "1e39"], "the label {!r} is not a finite number; correct it."),
        (["good", "1_000", "3,5", True, [1]], "the label {!r} is not a number, which regression needs"),
        (["", None, float("nan")], "the label is empty"),
    ):
        for cell in cells:
            with refused("t.csv, line 8: " + says.format(str(cell))):
                encode_labels(["1", cell], kind="regression", labels=(), path="t.csv", lines=[7, 8])


def test_labels_that_look_like_something_else_are_doubted():
    for names, kind, separator, says in (
        (["a", "b", "a|b", "b|a"], "classification", "|", ("a|b", {"kind": "multi-label"})),
        (["a,b", "b,c", "c,a"], "multi-label", "|", ("a,b", {"label_separator": ","})),
        ([str(n) for n in range(21)], "classification", "|", ("21 labels", {"kind": "regression"})),
        ([str(n) for n in range(20)], "classification", "|", None),
        (["New York, NY", "Albany, NY", "Boston, MA"], "classification", "|", None),
        (["POS", "Pos", "neg", "pos"], "classification", "|", ("The labels 'POS' and 'Pos' and 'pos' differ", {})),
        (["new  york", "New\xa0York", "01", "1", "x"], "multi-label", "|", ("York'; '01' and '1' differ by", {})),
        (["['a']", "['a', 'b']"], "classification", "|", ("\"['a']\" are lists", {"kind": "multi-label"})),
        (["[1]", "[0, 1]", "[-1,2]"], "classification", "|", ("'[1]' are lists", {"kind": "multi-label"})),
        (["a", "b", "nan"], "classification", "|", ("The label 'nan' is a class here", {})),
    ):
        found = doubts(tuple(names), kind=kind, separator=separator)
        assert (found is None) == (says is None), names
        if found:
            sentence, values = found
            assert says[0] in sentence and values == says[1] and all(f"{{{name}}}" in sentence for name in values)


def test_train_says_what_labels_look_like(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text,label\na,x|y\na,y|x\na,x\na,y\n")
    console = rich.console.Console(file=io.StringIO(), width=500)
    DataOptions(train_file=path, validation=path).read(console)
    assert "Labels such as 'x|y' look like several. If they are, give --kind multi-label." in console.file.getvalue()


# The user's own files


def test_files_become_a_task(tmp_path):
    header = "a,b,y"
    task = task_from_files(
        train=write(tmp_path, "train.csv", header, ["x,y,pos", "z,w,neg", '"p\nq",r,neg']),
        validation=write(tmp_path, "dev.csv", header, ["k,l,neg"]),
        test=write(tmp_path, "test.tsv", header.replace(",", "\t"), ["m\tn\tpos"]),
        text_column="a",
        text_pair_column="b",
        label_column="y",
        metric="f1",
    )
    assert (task.name, task.kind, task.labels, task.metric) == ("files", "classification", ("neg", "pos"), "f1")
    texts = [part.numpy().tolist() for part in task.train.texts(range(3))]
    assert texts == [[b"x", b"z", b"p\nq"], [b"y", b"w", b"r"]]
    assert task.train.labels.tolist() == [1, 0, 0] and task.test.labels.tolist() == [1] and len(task.validation) == 1
    files = "train train.csv (3 rows), validation dev.csv (1 rows), test test.tsv (1 rows)"
    assert task.source == f"The user's files: {files}."
    records = ['{"text": "a", "label": ["x", "y"]}', '{"text": "b", "label": "y"}', '{"text": "c", "label": []}']
    sets = write(tmp_path, "m.txt", records[0], records[1:])
    task = task_from_files(train=sets, validation=sets, kind="multi-label", format="jsonl")
    assert (task.labels, task.metric) == (("x", "y"), "multi-label")
    assert task.train.labels.tolist() == [[1, 1], [0, 1], [0, 0]]
    with refused("The label 'x|y' has the '|' that stands between"):
        type(task)("m", "multi-label", ("x|y", "z"), "multi-label", task.train, task.train)


def test_a_label_that_training_lacks_is_named_with_its_file_and_line(tmp_path):
    train = write(tmp_path, "train.csv", "text,label", ["a,x", "b,y"])
    other = write(tmp_path, "dev.csv", "text,label", ['"a\nb",x', "c,z"])
    message = f"{other}, line 4: the label 'z' is not among those of the training rows ('x', 'y'); correct it"
    for splits in ({"validation": other}, {"validation": train, "test": other}):
        with refused(message):
            task_from_files(train=train, **splits)


def test_arguments_are_checked_before_files_are_read():
    for arguments, message in (
        ({"kind": "regression", "metric": "f1"}, "metric 'f1' is not for regression tasks"),
        ({"kind": "multi-label", "label_separator": ""}, "label_separator is '' and must have at least one character"),
        ({"text_column": "y", "label_column": "y"}, "column 'y' is asked for twice"),
        ({"delimiter": "::"}, "must be one character between columns, or one of comma"),
        ({"delimiter": '"'}, "must be one character between columns"),
        ({"header": "0"}, "header='0' is unknown: use one of first, none."),
        *(({"encoding": encoding}, "is no encoding that Python knows") for encoding in ("utf-88", "base64", "a\0", 8)),
        ({}, "no.csv does not exist"),
    ):
        with refused(message):
            task_from_files(train="no.csv", validation="no.csv", **arguments)


# What a directory keeps


def test_a_task_keeps_how_its_files_were_read_and_nothing_that_is_usual(tmp_path):
    path, named = tmp_path / "a.csv", tmp_path / "b.csv"
    path.write_text("x|so good\ny|so bad\n")
    task = task_from_files(train=path, validation=path, header="none", delimiter="pipe", label_column=1)
    kept = {"files": "table", "label_column": "1", "header": "none", "delimiter": "pipe"}
    assert task.reading == kept and task.train.text.numpy().tolist() == [b"so good", b"so bad"]
    named.write_bytes("text,label\nso good,x\nso bad,y\n".encode("utf-16"))
    assert task_from_files(train=named, validation=named, encoding="utf-16").reading is None


def test_what_of_a_training_files_reading_is_for_another_file():
    for reading, path, about, expected in (
        # A delimiter is of CSV alone.
        ({"delimiter": "pipe", "text_column": "body"}, "a.csv.gz", {}, {"delimiter": "pipe", "text_column": "body"}),
        ({"delimiter": "pipe", "text_column": "body"}, "a.tsv", {}, {"text_column": "body"}),
        ({"header": "none", "text_column": "2"}, "a.csv", {"header": "none"}, {"text_column": "2"}),
        # Numbers are no names, and names no numbers.
        ({"header": "none", "text_column": "2"}, "a.csv", {"header": "first"}, {}),
        ({"text_column": "body"}, "a.csv", {"header": "none"}, {}),
        # Other files have no such columns.
        *(({"text_column": "body"}, other, {}, {}) for other in ("-", "a.json")),
        (None, "a.csv", {}, {}),
    ):
        assert kept_reading(reading and {"files": "table", **reading}, path, **about) == expected


# The command line


def test_options_of_files_are_refused_where_there_are_none(refused, tmp_path):
    for words, says in (
        ("train --header=none", "--header none goes with --train FILE"),
        ("train --train=a.csv --validation-split=test", "--validation-split test belongs to --task NAME"),
        ("tune --train=a.csv --delimiter=::", "--delimiter :: must be one character between columns, or one of"),
        ("train --train=a.csv --header=0", "--header 0 is unknown"),
    ):
        refused(*words.split(), f"--output={tmp_path / 'o.csv'}", says=says)


def test_a_search_repeats_how_files_are_read(tmp_path):
    told = {"encoding": "cp1252", "header": "none", "delimiter": "tab", "text_column": "1"}
    words = DataOptions(train_file=tmp_path / "a.csv", **told).words()
    assert words[2:] == "--text-column 1 --encoding cp1252 --header none --delimiter tab".split()


# TensorFlow Datasets


def tfds_or_skip():
    """The module tensorflow_datasets, or skip the test; only its absence is a reason to."""
    try:
        return tfds_reader.import_tfds()
    except InputError as error:
        pytest.skip(str(error))


def store(tmp_path, name, features, **splits):
    """A small data set on disk, as `tfds.builder(name, data_dir=tmp_path)` finds it."""
    tfds = tfds_or_skip()
    kinds = {
        "text": (tfds.features.Text(), tf.string),
        "classes": (tfds.features.ClassLabel(names=["no", "yes"]), tf.int64),
        "score": (np.float32, tf.float32),
        "number": (np.int64, tf.int64),
    }
    tensors = {
        split: {column: tf.constant(values, kinds[features[column]][1]) for column, values in columns.items()}
        for split, columns in splits.items()
    }
    tfds.dataset_builders.store_as_tfds_dataset(
        name=name,
        version="1.0.0",
        features=tfds.features.FeaturesDict({column: kinds[kind][0] for column, kind in features.items()}),
        split_datasets={split: tf.data.Dataset.from_tensor_slices(each) for split, each in tensors.items()},
        data_dir=tmp_path,
    )


def test_another_data_set_is_read_by_its_types(tmp_path):
    split = {"sentence": ["a", "b", "c"], "mood": [1, -1, 0], "id": [7, 8, 9]}
    unknown = {**split, "mood": [-1, -1, -1]}
    features = {"sentence": "text", "mood": "classes", "id": "number"}
    store(tmp_path, "moods", features, train=split, validation=split, test=unknown)
    task = load_task("moods", data_dir=tmp_path)
    assert (task.kind, task.metric, task.labels) == ("classification", "accuracy", ("no", "yes"))
    assert task.train.text.numpy().tolist() == [b"a", b"c"] and task.train.labels.tolist() == [1, 0]  # -1 is dropped
    assert len(task.test) == 3 and task.test.labels is None
    assert task.source == "moods/1.0.0 of TensorFlow Datasets, columns 'sentence', 'mood'."
    # MNLI's has another name.
    store(tmp_path, "sorted", features, train=split, validation_matched=unknown | {"mood": [0, 0, 1]})
    builder, renamed = tfds_or_skip().builder("sorted", data_dir=tmp_path), {"validation": "validation_matched"}
    read = tfds_reader.read_splits(builder, ("train", "validation"), name="sorted", renamed=renamed)
    assert [len(read.rows[name]) for name in ("train", "validation")] == [2, 3]


def test_without_a_validation_split_a_tenth_of_train_is_held_out_by_a_fixed_hash(tmp_path):
    texts = [f"sentence {i // 2}" for i in range(1000)]  # each text twice
    train = {"text": texts, "label": [i % 2 for i in range(1000)]}
    store(tmp_path, "pile", {"text": "text", "label": "classes"}, train=train)
    task = load_task("pile", data_dir=tmp_path)
    held_out = set(task.validation.text.numpy())
    assert len(task.train) + len(task.validation) == 1000 and 60 < len(task.validation) < 140
    assert not held_out & set(task.train.text.numpy())
    assert task.test is None and "held out as validation by a fixed hash" in task.source
    # Pinned: a run of next year must hold out the same rows.
    assert sorted(held_out)[:3] == [b"sentence 10", b"sentence 106", b"sentence 107"]


def test_columns_of_another_data_set_can_be_chosen(tmp_path):
    rows = {"a": ["x"] * 4, "b": ["y"] * 4, "c": ["z"] * 4, "l": [0, 1, 0, 1], "s": [0.5, 1, 2, 3], "n": [1, 2, 3, 4]}
    features = {"a": "text", "b": "text", "c": "text", "l": "classes", "s": "score", "n": "number"}
    store(tmp_path, "many", features, train=rows, validation=rows)
    task = load_task("many", data_dir=tmp_path, text_column="c", text_pair_column="a", label_column="s")
    assert (task.kind, task.metric) == ("regression", "pearson-spearman")
    assert (task.train.text[0].numpy(), task.train.text_pair[0].numpy()) == (b"z", b"x")
    assert sorted(task.train.labels) == [0.5, 1, 2, 3]
    for columns, message in (
        ({}, "many has the text columns ['a', 'b', 'c']: say text_column"),
        ({"text_column": "l"}, "text_column is 'l', which is not text: the text columns of many are ['a', 'b', 'c']."),
        ({"text_column": "a", "label_column": "n"}, "label_column 'n' of many is"),
    ):
        with refused(message):
            load_task("many", data_dir=tmp_path, **columns)


def test_two_texts_are_a_pair_and_a_missing_class_label_is_asked_for(tmp_path):
    rows = {"hypothesis": ["x"], "premise": ["y"], "l": [0]}
    store(tmp_path, "pairs", {"hypothesis": "text", "premise": "text", "l": "classes"}, train=rows, dev=rows)
    task = load_task("pairs", data_dir=tmp_path)
    assert (task.validation.text[0].numpy(), task.validation.text_pair[0].numpy()) == (b"y", b"x")
    store(tmp_path, "scores", {"t": "text", "s": "score"}, train={"t": ["x"], "s": [1.0]})
    with refused("scores has 0 class label columns []: say label_column (its columns are ['s', 't'])."):
        load_task("scores", data_dir=tmp_path)
