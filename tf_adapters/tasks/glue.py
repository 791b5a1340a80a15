"""The nine GLUE tasks (Wang et al., 2019) through TensorFlow Datasets.

Metrics are the benchmark's own: Matthews correlation for CoLA, F1 for MRPC and
QQP, the mean of Pearson's and Spearman's correlation for STS-B, accuracy
elsewhere. The labels of GLUE's test sets were never published: the test rows
have none.
"""

import dataclasses
from typing import Dict, Optional

from tf_adapters.tasks.rows import Splits
from tf_adapters.tasks.tfds_reader import find_builder, read_splits


@dataclasses.dataclass(frozen=True)
class GlueTask:
    """One GLUE task; call `load` for its splits.

    Attributes:
        config: its name in TensorFlow Datasets, after "glue/".
        text_column, text_pair_column: its texts; no pair for single sentences.
        metric, kind: as in `Task`.
        renamed: where its splits have other names.
        note: sentence for the task's `source`.
    """

    config: str
    text_column: str
    text_pair_column: Optional[str] = None
    metric: str = "accuracy"
    kind: str = "classification"
    renamed: Optional[Dict[str, str]] = None
    note: str = ""

    def load(self, splits, *, data_dir=None) -> Splits:
        """The named splits; see `tfds_reader.read_splits`."""
        name = f"glue/{self.config}"
        return read_splits(
            find_builder(name, data_dir=data_dir),
            splits,
            name=name,
            text_column=self.text_column,
            text_pair_column=self.text_pair_column,
            label_column="label",
            kind=self.kind,
            metric=self.metric,
            renamed=self.renamed,
            unlabelled=("test", "test_matched", "test_mismatched"),
            note=f"{self.note} The test rows have no published labels.".strip(),
        )


GLUE = (
    GlueTask("cola", "sentence", metric="matthews"),
    GlueTask("sst2", "sentence"),
    GlueTask("mrpc", "sentence1", "sentence2", metric="f1"),
    GlueTask("qqp", "question1", "question2", metric="f1"),
    GlueTask(
        "stsb",
        "sentence1",
        "sentence2",
        metric="pearson-spearman",
        kind="regression",
        note="Scores run from 0 to 5; predictions are not clipped to that range.",
    ),
    GlueTask(
        "mnli",
        "premise",
        "hypothesis",
        renamed={"validation": "validation_matched", "test": "test_matched"},
        note="Validation and test are the matched ones.",
    ),
    GlueTask("qnli", "question", "sentence"),
    GlueTask("rte", "sentence1", "sentence2"),
    GlueTask("wnli", "sentence1", "sentence2"),
)
