"""Metrics of labelled words: entities by seqeval, tags by scikit-learn."""

import dataclasses
import re
from typing import Callable, Tuple

import numpy as np

from tf_adapters.errors import InputError

_ENTITY_TAG = re.compile(r"O|[BIES](-.+)?")


@dataclasses.dataclass(frozen=True)
class WordMetric:
    """A named metric of words; call it with labels and logits.

    If a logit is NaN or infinite every value is NaN, which is never the best.

    Attributes:
        name: str, its key in `METRICS`.
        primary: str, the key of the number that counts, in what the call returns.
        kinds: the kinds of task that it is for.
        compute: function of true and predicted classes (int arrays, `(words,)`), row splits
            (int array, `(rows + 1,)`) and label names, that returns the numbers.
        count: function of the same, that returns an int array, `(rows, 3)`: what each row has
            right, has predicted, and has in truth. The primary number is that of all rows,
            twice the right ones divided by the sum of the two others.

    Call arguments:
        labels: int32 tf.RaggedTensor, `(rows, (words))`, as `WordRows.labels`.
        outputs: logits, `WordOutputs`.
        label_names: names of the classes in index order.

    Returns: dict from name to float.

    Raises: InputError, if there are no words or labels, or their numbers differ.
    """

    name: str
    primary: str
    kinds: Tuple[str, ...]
    compute: Callable
    count: Callable

    def __call__(self, labels, outputs, label_names=()):
        arguments, finite = self._arguments(labels, outputs, label_names)
        values = self.compute(*arguments)
        return {name: float(value) if finite else float("nan") for name, value in values.items()}

    def counts(self, labels, outputs, label_names=()):
        """What `count` says of each row, an int array `(rows, 3)`."""
        return self.count(*self._arguments(labels, outputs, label_names)[0])

    def _arguments(self, labels, outputs, label_names):
        if labels is None:
            raise InputError(f"metric {self.name!r} needs labels, and these rows have none.")
        true, splits = labels.flat_values.numpy(), labels.row_splits.numpy()
        if not len(true) or not np.array_equal(splits, outputs.splits):
            raise InputError(
                f"metric {self.name!r} got {len(true)} labels in {len(splits) - 1} rows, and outputs of "
                f"{len(outputs.flat)} words in {len(outputs)}: give at least one word, and as many outputs as labels "
                "in each row."
            )
        finite = bool(np.isfinite(outputs.flat).all())
        return (true, outputs.flat.argmax(-1), splits, tuple(label_names)), finite


def are_entity_tags(labels):
    """Whether the label names are tags of entities in the IOB or IOBES scheme ("B-PER", "I-PER", "O")."""
    return set(labels) - {"O"} != set() and all(_ENTITY_TAG.fullmatch(label) for label in labels)


def default_word_metric(labels=None):
    """The usual metric for these label names: of entities if they all look like tags of them, else of tags."""
    return "entity-f1" if labels and are_entity_tags(labels) else "token-accuracy"


def _token_accuracy(true, predicted, splits, label_names):
    from sklearn.metrics import f1_score

    macro_f1 = f1_score(true, predicted, average="macro", zero_division=0)
    return {"accuracy": np.mean(true == predicted), "macro_f1": macro_f1}


def _right_words(true, predicted, splits, label_names):
    before = np.concatenate([[0], np.cumsum(true == predicted)])
    words = np.diff(splits)
    return np.stack([np.diff(before[splits]), words, words], axis=-1)


def _entity_f1(true, predicted, splits, label_names):
    from seqeval.metrics.sequence_labeling import precision_recall_fscore_support

    tags = [_tags(classes, splits, label_names) for classes in (true, predicted)]
    # Of a tag "O" alone nothing can be divided, and zero is what is meant.
    precision, recall, f1, _ = precision_recall_fscore_support(*tags, average="micro", zero_division=0)
    return {"f1": f1, "precision": precision, "recall": recall, "accuracy": np.mean(true == predicted)}


def _right_entities(true, predicted, splits, label_names):
    from seqeval.metrics.sequence_labeling import get_entities

    pairs = zip(*(_tags(classes, splits, label_names) for classes in (true, predicted)))
    entities = ((set(get_entities(row)) for row in pair) for pair in pairs)
    return np.array([(len(real & found), len(found), len(real)) for real, found in entities])


def _tags(classes, splits, label_names):
    """Label names in a list for each row."""
    names = np.asarray(label_names, object)[classes].tolist()
    return [names[start:stop] for start, stop in zip(splits[:-1], splits[1:])]


WORD_METRICS = (
    WordMetric("token-accuracy", "accuracy", ("token-classification",), _token_accuracy, _right_words),
    WordMetric("entity-f1", "f1", ("token-classification",), _entity_f1, _right_entities),
)
