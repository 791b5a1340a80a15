"""Texts, or pairs of texts, with a label, several labels or a number each, from tables."""

import functools

from tf_adapters.errors import InputError
from tf_adapters.tasks.files import read_chunks, read_rows
from tf_adapters.tasks.labels import check_kind, encode_labels, find_labels, usable_cells
from tf_adapters.tasks.lines import USUAL
from tf_adapters.tasks.reader import Reader, check_texts
from tf_adapters.tasks.rows import Rows


def read_sentences(
    path,
    *,
    kind,
    labels=None,
    text_column=None,
    text_pair_column=None,
    label_column=None,
    label_separator="|",
    format=None,
    bad_rows=None,
    dialect=USUAL,
):
    """Read a whole labelled table; arguments and errors as of `task_from_files`, but a `Dialect`.

    Returns: `Rows`, and the label names, a tuple of str.
    """
    check_kind(kind)
    if not label_separator:
        raise InputError(f"label_separator is {label_separator!r} and must have at least one character.")
    reading = {"kind": kind, "path": path, "separator": label_separator}
    usable = functools.partial(usable_cells, labels=labels, bad_rows=bad_rows, **reading)
    table = read_rows(
        path,
        text_column=text_column or "text",
        text_pair_column=text_pair_column,
        label_column=label_column or "label",
        format=format,
        bad_rows=bad_rows,
        usable=None if bad_rows is None else usable,
        dialect=dialect,
    )
    cells, lines = table.labels, table.lines
    if labels is None:
        labels = find_labels(cells, lines=lines, **reading)
    numbers = encode_labels(cells, labels=labels, lines=lines, **reading)
    return Rows(text=table.text, text_pair=table.text_pair, labels=numbers), labels


def read_sentence_chunks(path, *, text_column=None, **reading):
    """Yield a table's texts in chunks, to predict; arguments as of `files.read_chunks`."""
    return read_chunks(path, text_column=text_column or "text", **reading)


def sentences_of_texts(texts, text_pairs):
    """`Rows` of lists of str."""
    import tensorflow as tf

    check_texts(texts)
    check_texts(text_pairs)
    with tf.device("CPU:0"):
        return Rows(tf.constant(texts, tf.string), None if text_pairs is None else tf.constant(text_pairs, tf.string))


SENTENCES = tuple(
    Reader(
        kind, "tables with a text a row", read_sentences, read_sentence_chunks, sentences_of_texts, metric, named=named
    )
    for kind, metric, named in (
        ("classification", "accuracy", True),
        ("regression", "pearson-spearman", False),
        ("multi-label", "multi-label", True),
    )
)
