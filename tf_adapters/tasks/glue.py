"""The nine GLUE tasks (Wang et al., 2019), from TensorFlow Datasets or from the original TSV files.

Metrics are the benchmark's own: Matthews correlation for CoLA, F1 for MRPC and
QQP, the mean of Pearson's and Spearman's correlation for STS-B, accuracy
elsewhere. The labels of GLUE's test sets were never published: the test rows
have none. Classes are numbered as in TensorFlow Datasets by either door.
"""

import dataclasses
import glob
import os
from typing import Dict, Mapping, Optional, Tuple

import numpy as np

from tf_adapters.errors import InputError
from tf_adapters.tasks.about import About
from tf_adapters.tasks.published_files import Layout, collect, read_records
from tf_adapters.tasks.rows import Rows, Splits
from tf_adapters.tasks.tfds_reader import find_builder, import_tfds, read_splits

TSV_FILES = {"train": "train.tsv", "validation": "dev.tsv", "test": "test.tsv"}
MNLI_FILES = {
    "train": "train.tsv",
    **{
        f"{ours}{kind}": f"{theirs}{kind or '_matched'}.tsv"
        for ours, theirs in (("validation", "dev"), ("test", "test"))
        for kind in ("", "_matched", "_mismatched")
    },
    "diagnostic": "../diagnostic/diagnostic.tsv",
}
ORIGIN = "https://gluebenchmark.com/tasks"


@dataclasses.dataclass(frozen=True)
class GlueTask:
    """One GLUE task; call `load` for its splits.

    Attributes:
        config: its name in TensorFlow Datasets, after "glue/".
        folder: its folder in the original download.
        text_column, text_pair_column: its texts in TensorFlow Datasets; no pair for single sentences.
        labels: label names in index order; () for regression.
        tsv: names of text, text pair and label in the original files.
        tsv_files: dict from a split to its file below `folder`.
        tsv_index: column with the row's number in the original test file.
        tsv_header: all columns of train.tsv and dev.tsv, where these have no header.
        metric, kind: as in `Task`.
        value_range: as in `Rows`.
        renamed: where its splits have other names in TensorFlow Datasets.
        skip_malformed: whether broken rows of the original files are left out, as TensorFlow Datasets does.
        note: sentence for the task's `source`.
        run_on_real_rows: whether the published rows were read here, or only small files in their layout.
    """

    config: str
    folder: str
    text_column: str
    text_pair_column: Optional[str] = None
    labels: Tuple[str, ...] = ()
    tsv: Tuple[str, Optional[str], str] = ("sentence1", "sentence2", "label")
    tsv_files: Mapping[str, str] = dataclasses.field(default_factory=lambda: TSV_FILES)
    tsv_index: str = "index"
    tsv_header: Optional[Tuple[str, ...]] = None
    metric: str = "accuracy"
    kind: str = "classification"
    value_range: Optional[Tuple[float, float]] = None
    renamed: Optional[Dict[str, str]] = None
    skip_malformed: bool = False
    note: str = ""
    run_on_real_rows: bool = True

    @property
    def name(self):
        """str, as on the command line."""
        return f"glue/{self.config}"

    @property
    def about(self):
        """`About`, for the list of tasks."""
        origin = f"TensorFlow Datasets, or the TSV files of {ORIGIN}"
        return About(self.kind, self.metric, origin, self.run_on_real_rows)

    def load(self, splits, *, data_dir=None) -> Splits:
        """The named splits.

        Args:
            splits: names of splits; one that does not exist is left out.
            data_dir: folder of TensorFlow Datasets, or the one that holds CoLA/, RTE/ and so on
                as they were downloaded (itself or in glue/). The original files are taken
                where both are there.

        Returns: `Splits`.

        Raises: InputError, if the data cannot be had.
        """
        folder = self.original_folder(data_dir)
        if folder is not None:
            return self._load_originals(splits, folder, data_dir)
        read = read_splits(
            find_builder(self.name, data_dir=data_dir),
            splits,
            name=self.name,
            text_column=self.text_column,
            text_pair_column=self.text_pair_column,
            label_column="label",
            kind=self.kind,
            metric=self.metric,
            renamed=self.renamed,
            unlabelled=("test", "test_matched", "test_mismatched"),
            note=f"{self.note} The test rows have no published labels.".strip(),
        )
        return dataclasses.replace(read, rows={split: self._ranged(rows) for split, rows in read.rows.items()})

    def original_folder(self, data_dir):
        """The task's folder of original files below `data_dir`, or None if that holds none of any task.

        Raises: InputError, if there are original files of other tasks alone.
        """
        if data_dir is None:
            return None
        others = []
        for parent in (os.fspath(data_dir), os.path.join(data_dir, "glue")):
            for task in GLUE:
                folder = os.path.join(parent, task.folder)
                files = [file for file in task.tsv_files.values() if not file.startswith("..")]
                if any(os.path.isfile(os.path.join(folder, file)) for file in files):
                    if task.folder == self.folder:
                        return folder
                    others.append(task.folder)
        if others and not _prepared(self.config, data_dir):
            raise InputError(
                f"Task {self.name!r}: {data_dir} holds the original files of {', '.join(others)} and no "
                f"{self.folder}/{os.path.basename(self.tsv_files['validation'])}: get {self.folder} of {ORIGIN}."
            )
        return None

    def original_layout(self, split):
        """`Layout` of the original file of one split, and whether it has labels."""
        labelled = split == "train" or split.startswith("validation")
        text, pair, label = self.tsv
        return Layout(
            "tsv",
            text=text,
            text_pair=pair,
            label=label if labelled else None,
            index=None if labelled else "index" if split == "diagnostic" else self.tsv_index,
            header=self.tsv_header if labelled else None,
            skip_malformed=self.skip_malformed and labelled,
        )

    def original_file(self, split, folder):
        """Path of the original file of a split, or None if there is no such split or file."""
        if split not in self.tsv_files:
            return None
        path = os.path.normpath(os.path.join(folder, self.tsv_files[split]))
        return path if os.path.isfile(path) else None

    def test_rows(self, split="test", *, data_dir=None):
        """The rows of a test file in its order, to be predicted for the benchmark's server.

        Args:
            split: "test"; for MNLI also "test_mismatched" and "diagnostic".
            data_dir: as in `load`.

        Returns: `(index, rows)`: list of the file's row numbers, str; and `Rows` without labels.

        Raises: InputError, if the data cannot be had.
        """
        folder = self.original_folder(data_dir)
        if folder is None:
            return self._test_rows_of_tfds(split, data_dir)
        path = self.original_file(split, folder)
        if path is None:
            raise InputError(
                f"Task {self.name!r}: {folder} has no {self.tsv_files.get(split, split)}: get it from {ORIGIN}."
            )
        index = []
        rows = collect(_noting(read_records(path, self.original_layout(split)), index), path=path)
        return index, rows

    def count_test_rows(self, split="test", *, data_dir=None):
        """Number of rows of a test file, without holding them; None if there is no such file."""
        folder = self.original_folder(data_dir)
        if folder is not None:
            path = self.original_file(split, folder)
            return None if path is None else sum(1 for _ in read_records(path, self.original_layout(split)))
        name, actual = self._tfds_split(split)
        builder = find_builder(name, data_dir=data_dir)
        if not builder.is_prepared() or actual not in builder.info.splits:
            return None
        return builder.info.splits[actual].num_examples

    def _load_originals(self, splits, folder, data_dir):
        number = {name: i for i, name in enumerate(self.labels)} | {str(i): i for i in range(len(self.labels))}

        def number_of(record):
            value = number.get(record.label)
            if value is None:
                record.fail(f"the label {record.label!r} of {self.name} is none of {', '.join(self.labels)}.")
            return value

        def score_of(record):
            try:
                return float(record.label)
            except ValueError:
                record.fail(f"the score {record.label!r} of {self.name} is no number.")

        rows, missing, skipped = {}, [], []
        for split in splits:
            path = self.original_file(split, folder)
            if path is None:
                missing += [self.tsv_files[split]] if split in self.tsv_files else []
                continue
            layout = self.original_layout(split)
            of = None if layout.label is None else score_of if self.kind == "regression" else number_of
            records = read_records(path, layout, skipped=skipped)
            rows[split] = self._ranged(
                collect(records, of, path=path, dtype=np.float32 if self.kind == "regression" else np.int32)
            )
        notes = [f"The original TSV files in {self.folder} of the GLUE download."]
        if _prepared(self.config, data_dir):
            notes.append("The TensorFlow Datasets that are there too were not read.")
        if missing:
            notes.append(f"{folder} has no {' and no '.join(missing)}.")
        if skipped:
            notes.append(f"{len(skipped)} malformed rows are left out.")
        if self.note:
            notes.append(self.note)
        return Splits(
            kind=self.kind,
            labels=self.labels,
            metric=self.metric,
            rows=rows,
            source=" ".join([*notes, "The test rows have no published labels."]),
        )

    def _ranged(self, rows):
        return dataclasses.replace(rows, value_range=self.value_range)

    def _tfds_split(self, split):
        """Name of data set and split in TensorFlow Datasets."""
        if split == "diagnostic":
            return "glue/ax", "test"
        return self.name, (self.renamed or {}).get(split, split)

    def _test_rows_of_tfds(self, split, data_dir):
        import tensorflow as tf

        import_tfds()
        name, actual = self._tfds_split(split)
        builder = find_builder(name, data_dir=data_dir)
        # It prepares what is not there, or says why it cannot.
        read_splits(
            builder,
            (),
            name=name,
            text_column=self.text_column,
            text_pair_column=self.text_pair_column,
            label_column="label",
        )
        table = builder.as_dataset(split=actual, batch_size=-1, shuffle_files=False)
        # TensorFlow Datasets stores the rows in an order of its own.
        index = table["idx"].numpy()
        order = np.argsort(index, kind="stable")
        rows = Rows(
            text=tf.gather(table[self.text_column], order),
            text_pair=tf.gather(table[self.text_pair_column], order) if self.text_pair_column else None,
        )
        return [str(number) for number in index[order]], rows


def _noting(records, index):
    for record in records:
        index.append(record.index)
        yield record


def _prepared(config, data_dir):
    return bool(glob.glob(os.path.join(glob.escape(os.fspath(data_dir)), "glue", config, "*", "dataset_info.json")))


_ENTAILED = ("entailment", "not_entailment")
GLUE = (
    GlueTask(
        "cola",
        "CoLA",
        "sentence",
        labels=("unacceptable", "acceptable"),
        tsv=("sentence", None, "label"),
        tsv_header=("source", "label", "mark", "sentence"),
        metric="matthews",
    ),
    GlueTask("sst2", "SST-2", "sentence", labels=("negative", "positive"), tsv=("sentence", None, "label")),
    GlueTask(
        "mrpc",
        "MRPC",
        "sentence1",
        "sentence2",
        labels=("not_equivalent", "equivalent"),
        tsv=("#1 String", "#2 String", "Quality"),
        metric="f1",
    ),
    GlueTask(
        "qqp",
        "QQP",
        "question1",
        "question2",
        labels=("not_duplicate", "duplicate"),
        tsv=("question1", "question2", "is_duplicate"),
        tsv_index="id",
        metric="f1",
        skip_malformed=True,
        run_on_real_rows=False,
    ),
    GlueTask(
        "stsb",
        "STS-B",
        "sentence1",
        "sentence2",
        tsv=("sentence1", "sentence2", "score"),
        metric="pearson-spearman",
        kind="regression",
        value_range=(0.0, 5.0),
        note="Scores run from 0 to 5, and predictions are clipped to that range.",
    ),
    GlueTask(
        "mnli",
        "MNLI",
        "premise",
        "hypothesis",
        labels=("entailment", "neutral", "contradiction"),
        tsv=("sentence1", "sentence2", "gold_label"),
        tsv_files=MNLI_FILES,
        renamed={"validation": "validation_matched", "test": "test_matched"},
        note="Validation and test are the matched ones.",
        run_on_real_rows=False,
    ),
    GlueTask("qnli", "QNLI", "question", "sentence", labels=_ENTAILED, tsv=("question", "sentence", "label")),
    GlueTask("rte", "RTE", "sentence1", "sentence2", labels=_ENTAILED),
    GlueTask("wnli", "WNLI", "sentence1", "sentence2", labels=("not_entailment", "entailment")),
)
