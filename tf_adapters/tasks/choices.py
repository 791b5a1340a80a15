"""Texts with several continuations or answers, of which one is right: multiple choice.

JSON lines, an object a row, of any of these shapes:

| text | choices | label | as in |
|---|---|---|---|
| `text` | `choices`, a list | `label` | |
| `ctx` | `endings`, a list | `label` | HellaSwag |
| `sent1` | `ending0`, `ending1`, ..., each behind `sent2` if it is there | `label` | SWAG |

The label is the place of the right choice, from 0. All rows of a file have the same number of choices. Other keys are
not looked at.
"""

import dataclasses
import itertools
from typing import Optional

import numpy as np

from tf_adapters.errors import NAME, InputError, shown
from tf_adapters.tasks.files import check_cell, file_format, read_records
from tf_adapters.tasks.labels import label_name
from tf_adapters.tasks.lines import fail, shown_name, usable
from tf_adapters.tasks.rows import HeldRows, Part, Rows, check_texts, digest_of, hashes

#: Keys of the text and of the list of choices that are looked for.
TEXT_KEYS, CHOICES_KEYS = ("text", "ctx", "sent1"), ("choices", "endings")
MOST_CHOICES = 100


@dataclasses.dataclass(frozen=True)
class ChoiceRows(HeldRows):
    """The rows of one split, held once.

    Attributes:
        text: string tensor, `(rows,)`.
        choices: string tensor, `(rows, choices)`.
        labels: int32 array, `(rows,)`, places of the right choices, or None where they are unknown.
    """

    text: "tf.Tensor"  # noqa: F821
    choices: "tf.Tensor"  # noqa: F821
    labels: Optional[np.ndarray] = None

    by_row = ("text", "choices", "labels")
    kinds = ("multiple-choice",)

    def __len__(self):
        return int(self.text.shape[0])

    def plain(self):
        """Each text with each of its choices, without labels, as `Rows`."""
        return self.pairs(np.arange(len(self)))

    def pairs(self, index):
        """Each of some rows' texts with each of its choices, one after the other, as `Rows`; also in a graph."""
        import tensorflow as tf

        choices = tf.gather(self.choices, index)
        return Rows(tf.repeat(tf.gather(self.text, index), self.choices.shape[1]), tf.reshape(choices, [-1]))

    def digest(self):
        """SHA-256 of texts, choices and labels, by hashes of the texts that TensorFlow computes."""
        count = str(self.choices.shape[1]).encode()
        return digest_of(count, hashes(self.text), hashes(self.choices), self.labels)


def read_choices(path, reading, labels=None):
    """`Reader.whole` of choices, which have no label names. The columns are keys: the text's, the list of choices', and
    the label's."""
    return _tensors(row for row, _ in _rows(path, reading, labelled=True)), ()


def read_choice_chunks(path, reading, chunk_rows, keep_all_columns):
    """`Reader.parts` of choices, `ChoiceRows`; `rows.Part` if all keys are kept."""
    rows = _rows(path, reading, labelled=False)
    while chunk := list(itertools.islice(rows, chunk_rows)):
        tensors = _tensors(row for row, _ in chunk)
        yield Part(len(chunk), tensors.rows, [record for _, record in chunk]) if keep_all_columns else tensors


def choices_of_texts(texts, choices):
    """`ChoiceRows` of a list of texts, and a list of the choices of each."""
    if choices is None:
        raise InputError("{text_pairs}: give a list of the choices of each text.", text_pairs=None)
    check_texts(texts)
    count = len(choices[0]) if isinstance(choices[0], (list, tuple)) else 0

    def is_valid(each):
        return isinstance(each, (list, tuple)) and len(each) == count > 1 and all(isinstance(c, str) for c in each)

    check_texts(choices, f"a list of {max(2, count)} texts, as many for each", is_valid)
    return _tensors((text, list(each), None) for text, each in zip(texts, choices))


def _tensors(rows):
    texts, choices, labels = zip(*rows)
    import tensorflow as tf

    with tf.device("CPU:0"):
        return ChoiceRows(
            tf.constant(texts), tf.constant(choices), None if labels[0] is None else np.array(labels, np.int32)
        )


def _rows(path, reading, *, labelled):
    """Of each row that can be used the text, the choices and the label, or None; and the whole record."""
    if file_format(path, reading.format or ("jsonl" if str(path) == "-" else None)) != "jsonl":
        raise InputError(
            f"{shown_name(path)}: texts with choices are read from JSON lines; give such a file, or {{format}}.",
            format="jsonl",
        )
    keys = {
        "text": reading.text_column,
        "choices": reading.text_pair_column,
        "label": (reading.label_column or "label") if labelled else None,
    }
    count = None

    def check(row):
        nonlocal count
        line, record = row
        row = _row(record, path, line, keys)
        count = count or len(row[1])
        if len(row[1]) != count:
            fail(path, line, f"has {len(row[1])} choices where the rows before have {count}; give each row as many.")
        return row, record

    return usable(read_records(path, dialect=reading), check, path, reading.bad_rows)


def _row(record, path, line, keys):
    key = keys["text"] or next((key for key in TEXT_KEYS if key in record), TEXT_KEYS[0])
    if key not in record:
        fail(path, line, f"has no key {key!r}; name the text's by {{text_column}}.", text_column=NAME)
    text, choices = record[key], _choices(record, path, line, keys["choices"])
    check_cell(text, path, line, key)
    for choice in choices:
        check_cell(choice, path, line, "choices")
    if not 2 <= len(choices) <= MOST_CHOICES:
        fail(path, line, f"has {len(choices)} choices; give 2 to {MOST_CHOICES}.")
    label = None
    if keys["label"] is not None:
        if keys["label"] not in record:
            fail(path, line, f"has no key {keys['label']!r}; name the label's by {{label_column}}.", label_column=NAME)
        cell = record[keys["label"]]
        name = label_name(cell) if isinstance(cell, (str, float)) else ""
        label = int(name) if name.isascii() and name.isdecimal() and len(name) < 4 else cell
        if isinstance(label, bool) or not isinstance(label, int) or not 0 <= label < len(choices):
            place = f"give the place of the right choice, from 0 to {len(choices) - 1}"
            fail(path, line, f"the label is {shown(cell)}; {place}.")
    return text, choices, label


def _choices(record, path, line, key):
    key = key or next((key for key in CHOICES_KEYS if key in record), None)
    if key is None and "ending0" in record:
        endings = (record.get(f"ending{number}") for number in range(MOST_CHOICES + 1))
        begun = record.get("sent2")
        begun = f"{begun} " if isinstance(begun, str) and begun else ""
        return [
            begun + ending if isinstance(ending, str) else ending
            for ending in itertools.takewhile(lambda ending: ending is not None, endings)
        ]
    if key is None or not isinstance(record.get(key), list):
        problem = f"has no list of choices under {key or CHOICES_KEYS[0]!r}; name its key by {{text_pair_column}}."
        fail(path, line, problem, text_pair_column=NAME)
    return record[key]
