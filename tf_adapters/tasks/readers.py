"""The readers of all kinds of tasks. A new kind has a file here that reads it, and a line below; that of texts with a
label, several labels or a number each, from tables, is here."""

import functools

from tf_adapters.errors import InputError
from tf_adapters.tasks.choices import CHOICES
from tf_adapters.tasks.files import read_chunks, read_rows
from tf_adapters.tasks.labels import encode_labels, find_labels, usable_cells
from tf_adapters.tasks.metrics import check_metric
from tf_adapters.tasks.rows import Reader, Rows, check_texts
from tf_adapters.tasks.spans import QUESTIONS
from tf_adapters.tasks.words import WORDS


def read_sentences(path, reading, labels=None):
    """`Reader.whole` of a table, as `Rows`."""
    if not reading.label_separator:
        raise InputError(f"label_separator is {reading.label_separator!r} and must have at least one character.")
    how = {"kind": reading.kind, "path": path, "separator": reading.label_separator}
    usable = functools.partial(usable_cells, labels=labels, bad_rows=reading.bad_rows, **how)
    table = read_rows(path, usable=None if reading.bad_rows is None else usable, **reading.table(label="label"))
    cells, lines = table.labels, table.lines
    if labels is None:
        labels = find_labels(cells, lines=lines, **how)
    numbers = encode_labels(cells, labels=labels, lines=lines, **how)
    return Rows(text=table.text, text_pair=table.text_pair, labels=numbers), labels


def read_sentence_chunks(path, reading, chunk_rows, keep_all_columns):
    """`Reader.parts` of a table, as `files.Chunk`s."""
    return read_chunks(path, chunk_rows=chunk_rows, keep_all_columns=keep_all_columns, **reading.table())


def sentences_of_texts(texts, text_pairs):
    """`Rows` of lists of str."""
    import tensorflow as tf

    check_texts(texts)
    check_texts(text_pairs)
    with tf.device("CPU:0"):
        return Rows(tf.constant(texts, tf.string), None if text_pairs is None else tf.constant(text_pairs, tf.string))


_SENTENCES = tuple(
    Reader(
        kind, "tables with a text a row", read_sentences, read_sentence_chunks, sentences_of_texts, metric, named=named
    )
    for kind, metric, named in (
        ("classification", "accuracy", True),
        ("regression", "pearson-spearman", False),
        ("multi-label", "multi-label", True),
    )
)
READERS = {reader.kind: reader for reader in (*_SENTENCES, WORDS, QUESTIONS, CHOICES)}


def get_reader(kind):
    """The `Reader` of a kind of task; raises InputError with the known ones otherwise."""
    if kind not in READERS:
        raise InputError(f"kind is {kind!r} and must be one of {', '.join(READERS)}.")
    return READERS[kind]


def metric_of(kind, metric=None, labels=None):
    """The metric that is asked for, or what is usual of a kind of task with these label names.

    Raises:
        InputError: it is for other kinds or labels.
    """
    reader = get_reader(kind)
    metric = metric or (reader.metric(labels) if callable(reader.metric) else reader.metric)
    check_metric(metric, kind=reader.scored_as or kind, labels=labels if reader.named else None)
    return metric
