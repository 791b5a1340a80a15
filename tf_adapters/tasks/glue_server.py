"""What GLUE's evaluation server takes: a file for each test set, https://gluebenchmark.com/submit."""

import dataclasses

import numpy as np

from tf_adapters.tasks.glue import GLUE, GlueTask

HEADER = "index\tprediction\n"
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
