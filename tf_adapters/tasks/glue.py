"""The nine GLUE tasks (Wang et al., 2019), from TensorFlow Datasets or from the original TSV files; and what GLUE's
evaluation server takes, a file for each test set, https://gluebenchmark.com/submit.

Metrics are the benchmark's own: Matthews correlation for CoLA, F1 for MRPC and
QQP, the mean of Pearson's and Spearman's correlation for STS-B, accuracy
elsewhere. The labels of GLUE's test sets were never published: the test rows
have none. Classes are numbered as in TensorFlow Datasets by either door.
"""

import dataclasses
import glob
import importlib.util
import os
from typing import Mapping, Optional

import numpy as np

from tf_adapters.errors import InputError
from tf_adapters.tasks.layouts import Layout, collect, read_records
from tf_adapters.tasks.named import Files, NamedTask
from tf_adapters.tasks.rows import Rows, Splits
from tf_adapters.tasks.tfds_reader import find_builder, import_tfds, prepare, read_splits

ORIGIN = "https://gluebenchmark.com/tasks"
HEADER = "index\tprediction\n"
_USUAL_FILES = {"train": "train", "validation": "dev", "test": "test"}
_UNLABELLED = ("test", "test_matched", "test_mismatched", "diagnostic")


@dataclasses.dataclass(frozen=True)
class GlueTask(NamedTask):
    """One GLUE task, whose original files are taken where TensorFlow Datasets are there too.

    Attributes:
        config: its name in TensorFlow Datasets, after "glue/".
        folder: its folder in the original download.
        text_column, text_pair_column: its texts in TensorFlow Datasets; no pair for single sentences.
        renamed: where its splits have other names in TensorFlow Datasets.
        Others: as of `NamedTask`.
    """

    config: str = ""
    folder: str = ""
    text_column: str = "sentence1"
    text_pair_column: Optional[str] = "sentence2"
    renamed: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def load(self, splits, *, data_dir=None) -> Splits:
        """The named splits; arguments, result and errors as of `NamedTask.load`, but
        data_dir: folder of TensorFlow Datasets, or the one that holds CoLA/, RTE/ and so on
            as they were downloaded (itself or in glue/).
        """
        if self.has_originals(data_dir):
            read = super().load(splits, data_dir=data_dir)
            if self._is_prepared(data_dir):
                read = dataclasses.replace(
                    read, source=f"{read.source} The TensorFlow Datasets that are there too were not read."
                )
            return read
        read = read_splits(
            find_builder(self.name, data_dir=data_dir),
            splits,
            name=self.name,
            text_column=self.text_column,
            text_pair_column=self.text_pair_column,
            label_column="label",
            renamed=self.renamed,
            unlabelled=_UNLABELLED,
        )
        rows = {split: dataclasses.replace(rows, value_range=self.value_range) for split, rows in read.rows.items()}
        return dataclasses.replace(read, rows=rows, metric=self.metric, source=f"{read.source} {self.note}")

    def check(self, data_dir):
        """As of `NamedTask`."""
        if importlib.util.find_spec("tensorflow_datasets") is None and not self.has_originals(data_dir):
            import_tfds()

    def has_originals(self, data_dir):
        """Whether `data_dir` holds original files of the task.

        Raises: InputError, if there are original files of other tasks alone.
        """
        if data_dir is None:
            return False
        if set(self.find(data_dir)) - {"diagnostic"}:
            return True
        others = [task.folder for task in GLUE if set(task.find(data_dir)) - {"diagnostic"}]
        if others and not self._is_prepared(data_dir):
            raise InputError(
                f"Task {self.name!r}: {data_dir} holds the original files of {', '.join(others)} and none of "
                f"{self.folder}: get it from {ORIGIN}."
            )
        return False

    def test_rows(self, split="test", *, data_dir=None):
        """The rows of a test file in its order, to be predicted for the benchmark's server.

        Args:
            split: "test"; for MNLI also "test_mismatched" and "diagnostic".
            data_dir: as in `load`.

        Returns: `(index, rows)`: list of the file's row numbers, str; and `Rows` without labels.

        Raises: InputError, if the data cannot be had.
        """
        if not self.has_originals(data_dir):
            import tensorflow as tf

            builder, split = self._prepared(split, data_dir)
            prepare(builder, self.name)
            table = builder.as_dataset(split=split, batch_size=-1, shuffle_files=False)
            # TensorFlow Datasets stores the rows in an order of its own.
            index = table["idx"].numpy()
            order = np.argsort(index, kind="stable")
            columns = (
                column and tf.gather(table[column], order) for column in (self.text_column, self.text_pair_column)
            )
            return [str(number) for number in index[order]], Rows(*columns)
        found = self.find(data_dir)
        if split not in found:
            raise InputError(f"Task {self.name!r}: {data_dir} has no file of {split}: get it from {ORIGIN}.")
        (path,), layout = found[split]
        index = []
        # Such rows have no labels: 0 stands for each.
        rows = collect(read_records(path, layout), lambda record: index.append(record.index) or 0, path=path)
        return index, rows.plain()

    def has_test_rows(self, split, *, data_dir=None):
        """Whether `test_rows` finds this file here, or this split prepared."""
        if self.has_originals(data_dir):
            return split in self.find(data_dir)
        builder, split = self._prepared(split, data_dir)
        return builder.is_prepared() and split in builder.info.splits

    def _is_prepared(self, data_dir):
        pattern = os.path.join(glob.escape(os.fspath(data_dir)), "glue", self.config, "*", "dataset_info.json")
        return bool(glob.glob(pattern))

    def _prepared(self, split, data_dir):
        """The builder of a split in TensorFlow Datasets, and its name there."""
        name = "glue/ax" if split == "diagnostic" else self.name
        return find_builder(name, data_dir=data_dir), self.renamed.get(split, "test" if name == "glue/ax" else split)


def _glue(config, folder, columns, *, labels=(), tsv=None, index="index", files=_USUAL_FILES, note="", **about):
    """A task of GLUE.

    Args:
        columns: its one or two texts in TensorFlow Datasets.
        tsv: these and the label in the original files, where they have other names.
        index: column with the row's number in the original test file.
        files: dict from a split to its file in `folder`, or beside it.
        about: `header` and `skip_malformed` of the files with labels, as of `Layout`; others as of `GlueTask`.
    """
    *texts, label = tsv or (*columns, "label")
    text, pair = (*texts, None)[:2]
    written = {name: about.pop(name) for name in ("header", "skip_malformed") if name in about}
    places = []
    for parent in ("", "glue/"):
        paths = {split: f"{parent}{file if '/' in file else f'{folder}/{file}'}.tsv" for split, file in files.items()}
        tests = {split: paths.pop(split) for split in _UNLABELLED if split in paths}
        places.append(Files(Layout("tsv", text, pair, label, **written), paths))
        places.append(Files(Layout("tsv", text, pair, label=None, index=index), tests))
    return GlueTask(
        name=f"glue/{config}", places=tuple(places), origin=f"TensorFlow Datasets, or the TSV files of {ORIGIN}",
        labels=labels, spellings={str(number): name for number, name in enumerate(labels)},
        note=f"{note} The test rows have no published labels.".strip(), config=config, folder=folder,
        text_column=columns[0], text_pair_column=(*columns, None)[1], **{"run_on_real_rows": True, **about},
    )  # fmt: skip


_ENTAILED = ("entailment", "not_entailment")
_PAIR = ("sentence1", "sentence2")
# fmt: off
GLUE = (
    _glue("cola", "CoLA", ("sentence",), labels=("unacceptable", "acceptable"), metric="matthews",
          header=("source", "label", "mark", "sentence")),
    _glue("sst2", "SST-2", ("sentence",), labels=("negative", "positive")),
    _glue("mrpc", "MRPC", _PAIR, labels=("not_equivalent", "equivalent"), metric="f1",
          tsv=("#1 String", "#2 String", "Quality")),
    _glue("qqp", "QQP", ("question1", "question2"), labels=("not_duplicate", "duplicate"), metric="f1",
          tsv=("question1", "question2", "is_duplicate"), index="id", skip_malformed=True, run_on_real_rows=False),
    _glue("stsb", "STS-B", _PAIR, kind="regression", metric="pearson-spearman", tsv=(*_PAIR, "score"),
          value_range=(0.0, 5.0), note="Scores run from 0 to 5, and predictions are clipped to that range."),
    _glue("mnli", "MNLI", ("premise", "hypothesis"), labels=("entailment", "neutral", "contradiction"),
          tsv=(*_PAIR, "gold_label"), run_on_real_rows=False, note="Validation and test are the matched ones.",
          files={"train": "train", "validation": "dev_matched", "validation_matched": "dev_matched",
                 "validation_mismatched": "dev_mismatched", "test": "test_matched", "test_matched": "test_matched",
                 "test_mismatched": "test_mismatched", "diagnostic": "diagnostic/diagnostic"},
          renamed={"validation": "validation_matched", "test": "test_matched"}),
    _glue("qnli", "QNLI", ("question", "sentence"), labels=_ENTAILED),
    _glue("rte", "RTE", _PAIR, labels=_ENTAILED),
    _glue("wnli", "WNLI", _PAIR, labels=("not_entailment", "entailment")),
)
# fmt: on
_TASKS = {task.config: task for task in GLUE}


@dataclasses.dataclass(frozen=True)
class Submission:
    """One file of a submission.

    Attributes:
        file: str, its name.
        task: `GlueTask`.
        rows: int, rows of the official test set.
        split: name of the test split, for `GlueTask.test_rows`.
        words: bool, whether classes are written by name (entailment), and not by number.
        optional: bool, whether the file is left out where its rows are not there.
    """

    file: str
    task: GlueTask
    rows: int
    split: str = "test"
    words: bool = False
    optional: bool = False

    def predictions(self, outputs):
        """What the file says of rows, a list of str.

        Args:
            outputs: array, `(rows, labels)` of logits; `(rows,)` or `(rows, 1)` for regression.
        """
        outputs = np.asarray(outputs, np.float64)
        if self.task.kind == "regression":
            return [f"{value:.3f}" for value in np.clip(outputs.reshape(len(outputs)), *self.task.value_range)]
        best = outputs.argmax(-1)
        return [self.task.labels[i] if self.words else str(i) for i in best.tolist()]


SUBMISSIONS = (
    Submission("CoLA.tsv", _TASKS["cola"], 1063),
    Submission("SST-2.tsv", _TASKS["sst2"], 1821),
    Submission("MRPC.tsv", _TASKS["mrpc"], 1725),
    Submission("STS-B.tsv", _TASKS["stsb"], 1379),
    Submission("QQP.tsv", _TASKS["qqp"], 390965),
    Submission("MNLI-m.tsv", _TASKS["mnli"], 9796, words=True),
    Submission("MNLI-mm.tsv", _TASKS["mnli"], 9847, split="test_mismatched", words=True),
    Submission("QNLI.tsv", _TASKS["qnli"], 5463, words=True),
    Submission("RTE.tsv", _TASKS["rte"], 3000, words=True),
    Submission("WNLI.tsv", _TASKS["wnli"], 146),
    Submission("AX.tsv", _TASKS["mnli"], 1104, split="diagnostic", words=True, optional=True),
)
