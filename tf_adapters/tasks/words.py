"""Sentences of words with a label each, read in constant memory.

| format | extensions | reading |
|---|---|---|
| conllu | .conllu | CoNLL-U: ten columns between tabs, the word is FORM and the label UPOS |
| columns | any other | a word a line with its columns, the word first and the label last |
| txt | .txt, and `-` (standard input) | to predict only: a sentence a line, words between white space |

In the first two an empty line ends a sentence. Of CoNLL-U, comments, multiword ranges
(`1-2`) and empty nodes (`8.1`) are skipped: the words are the syntactic ones, which have
tags. In column files the columns lie between tabs, or between spaces in a row without a
tab; `-DOCSTART-` rows are skipped, and where all words begin with the same language
(`en:word`, as in WikiANN) that is taken off. Files may be compressed (`.conllu.gz`). `lines`
says what of encodings and ends of lines is read.
"""

import dataclasses
import functools
import itertools
import os
import re
from typing import List, Optional, Tuple

import numpy as np

from tf_adapters.errors import InputError
from tf_adapters.tasks.labels import index_of, label_name, unknown_label
from tf_adapters.tasks.lines import fail, read_lines, read_texts, shown_name, usable
from tf_adapters.tasks.rows import HeldRows, Rows, check_texts, digest_of, hashes

FORMATS = ("conllu", "columns", "txt")
CONLLU_COLUMNS = ("ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC")
NO_PAIRS = "words have no pairs of texts"
# Bounds what a file without empty lines can fill the memory with.
MOST_WORDS = 100_000
_MOST_WORDS_IN_A_CHUNK = 2 * MOST_WORDS
_LANGUAGE = re.compile(r"(?:simple|[a-z]{2,3}(?:-[a-z]+)*):(?=.)")


@dataclasses.dataclass(frozen=True)
class WordRows(HeldRows):
    """The sentences of one split, held once.

    Attributes:
        words: string tf.RaggedTensor, `(rows, (words))`.
        labels: int32 tf.RaggedTensor of the same shape, class indices, or None where they are unknown.
        label_names: names of the classes in index order; empty without labels.
    """

    words: "tf.RaggedTensor"  # noqa: F821
    labels: Optional["tf.RaggedTensor"] = None  # noqa: F821
    label_names: Tuple[str, ...] = ()

    by_row = ("words", "labels")
    kinds = ("token-classification",)

    def __len__(self):
        return int(self.words.nrows())

    def plain(self):
        """The sentences as texts without labels, `Rows`: their words with spaces between them."""
        import tensorflow as tf

        with tf.device("CPU:0"):
            return Rows(tf.strings.reduce_join(self.words, axis=-1, separator=" "))

    def digest(self):
        """SHA-256 of words, labels and where rows end, by hashes of the words that TensorFlow computes in one pass."""
        labels = () if self.labels is None else (self.labels.flat_values, "\n".join(self.label_names).encode())
        return digest_of(self.words.row_splits, hashes(self.words.flat_values), *labels)


@dataclasses.dataclass
class WordChunk:
    """Consecutive sentences of a file.

    Attributes:
        words: list of str, of all sentences one after the other.
        counts: list of int, the words of each sentence.
        labels: list of int, a number for each word, or None if labels were not asked for.
    """

    words: List[str]
    counts: List[int]
    labels: Optional[List[int]] = None

    def __len__(self):
        return len(self.counts)

    def rows(self):
        """The sentences as `WordRows` without labels, to predict."""
        import tensorflow as tf

        with tf.device("CPU:0"):
            return WordRows(tf.RaggedTensor.from_row_lengths(tf.constant(self.words), self.counts))


def read_words(path, reading, labels=None):
    """`Reader.whole` of words, which end up once, in tf string tensors. Labels that are found are sorted by code point.

    Columns of CoNLL-U have names ("FORM", "XPOS"), those of column files numbers from 1. A sentence with a malformed
    row or an unknown label is a bad row.
    """
    numbers = index_of(labels or ())
    format = _word_format(path, reading.format, reads=("conllu", "columns"))
    chunks = _chunks(path, reading, format, numbers=numbers, growing=labels is None, chunk_rows=16384)
    # The first chunk before the slow import: a mistake in the file shows at once.
    first = next(chunks)
    import tensorflow as tf

    with tf.device("CPU:0"):
        read = ((chunk.rows().words, np.asarray(chunk.labels, np.int32)) for chunk in itertools.chain([first], chunks))
        words, found = zip(*read)
        words, found = tf.concat(words, 0), np.concatenate(found)
        if labels is None:
            labels = tuple(sorted(numbers))
            if len(labels) < 2:
                raise InputError(f"{shown_name(path)} has only the label {labels[0]!r}: training needs at least two.")
            index = {name: place for place, name in enumerate(labels)}
            found = np.array([index[name] for name in numbers], np.int32)[found]
        return WordRows(words, words.with_values(tf.constant(found)), tuple(labels)), tuple(labels)


def read_word_chunks(path, reading, chunk_rows, keep_all_columns):
    """`Reader.parts` of words, `WordChunk`s without records: a sentence has several lines."""
    yield from _chunks(path, reading, _word_format(path, reading.format, reads=FORMATS), chunk_rows=chunk_rows)


def _word_format(path, format, *, reads):
    """The format that is asked for, or that of the extension, among those that can be read."""
    name = os.fspath(path).lower().removesuffix(".gz")
    if format == "jsonl" or (format is None and name.endswith((".csv", ".jsonl", ".ndjson", ".json"))):
        next(iter(() if name == "-" else read_lines(path)), None)  # what else it may be
        raise _no_words(path)
    if format is not None:
        if format not in reads:
            raise InputError(f"format is {format!r} and must be one of {', '.join(reads)}.")
        return format
    if "txt" in reads and (name == "-" or name.endswith(".txt")):
        return "txt"
    return "conllu" if name.endswith(".conllu") else "columns"


def _no_words(path):
    """The InputError of a file whose rows are sentences."""
    return InputError(
        f"{shown_name(path)} is a table or JSON, and words are read from CoNLL-U or column files: write a word and its "
        "label a line, with a tab between them, and an empty line after each sentence; if it is so already, give "
        "{format}.",
        format="columns",
    )


def _chunks(path, reading, format, *, chunk_rows, numbers=None, growing=False):
    """Sentences in chunks, labels as `numbers` has them, to which new ones are added if growing; None: unread."""
    reading.refuse(f"{shown_name(path)} is read as words")
    columns = {"word": reading.text_column, "label": reading.label_column, "labelled": numbers is not None}
    blocks, parse = _READERS[format](path, reading.encoding, **columns)

    def numbered(block):
        words, labels = parse(block)
        return words, None if numbers is None else _numbers(path, labels, numbers, growing)

    nothing = "has no words: give a file with at least one sentence."
    sentences = usable(blocks, numbered, path, reading.bad_rows, "sentence", nothing)
    while True:
        chunk = WordChunk([], [], None if numbers is None else [])
        for words, labels in itertools.islice(sentences, chunk_rows):
            chunk.words += words
            chunk.counts.append(len(words))
            if labels is not None:
                chunk.labels += labels
            if len(chunk.words) >= _MOST_WORDS_IN_A_CHUNK:
                break
        if not chunk.counts:
            return
        yield chunk


def _numbers(path, labels, numbers, growing):
    """The numbers of a sentence's labels, pairs of line and name; a new one gets the next if they are being found."""
    for line, name in labels:
        if name not in numbers:
            if not growing:
                fail(path, line, unknown_label(name, numbers))
            numbers[name] = len(numbers)
    return [numbers[name] for _, name in labels]


# Each reader returns an iterable of what a sentence is written in, and what makes of it the words and, if labelled, a
# pair of line and label for each; or raises BadRow.


def _read_txt(path, encoding, *, word, label, labelled):
    if word is not None:
        raise InputError(f"text_column is {word!r}, but plain text has no columns: leave it out.")

    def parse(row):
        line, text = row
        return text.split() or fail(path, line, "holds only white space; remove it."), []

    empty = "is empty; remove it, or if a line has a word and its label, give {format}."
    return read_texts(path, encoding, empty, format="columns"), parse


def _read_conllu(path, encoding, *, word, label, labelled):
    columns = [_conllu_column("text_column", word or "FORM")]
    columns += [_conllu_column("label_column", label or "UPOS")] if labelled else []

    def cells_of(line, text, number):
        cells = text.split("\t")
        if len(cells) != len(CONLLU_COLUMNS):
            fail(path, line, f"has {len(cells)} columns where CoNLL-U has ten; separate them by tabs.")
        identity = cells[0]
        if not identity.isdecimal():
            if re.fullmatch(r"\d+[-.]\d+", identity):
                return None
            fail(path, line, f"the ID is {identity!r}; give a number, a range (1-2), or an empty node (1.1).")
        if int(identity) != number:
            advice = "number a sentence's words from 1, and put an empty line after each sentence."
            fail(path, line, f"the ID is {identity} where {number} follows; {advice}")
        if labelled and cells[columns[1]] == "_":
            fail(path, line, f"{CONLLU_COLUMNS[columns[1]]} is '_', which stands for no label; fill it in.")
        return [(cells[column], CONLLU_COLUMNS[column]) for column in columns]

    return _blocks(path, encoding, skipped="#"), functools.partial(_sentence, path=path, cells_of=cells_of)


def _conllu_column(argument, name):
    if str(name).upper() not in CONLLU_COLUMNS:
        raise InputError(f"{argument} is {name!r}, and CoNLL-U has the columns {', '.join(CONLLU_COLUMNS)}.")
    return CONLLU_COLUMNS.index(str(name).upper())


def _read_columns(path, encoding, *, word, label, labelled):
    word = 0 if word is None else _column_number("text_column", word)
    blocks = _blocks(path, encoding, skipped="-DOCSTART-")
    # Two words tell whether all begin with a language.
    ahead = []
    for block in blocks:
        ahead.append(block)
        if sum(map(len, ahead)) > 1:
            break
    if not ahead:
        return (), None
    line, text, _ = ahead[0][0]
    if text.startswith("{"):
        raise _no_words(path)
    width = len(_cells(text))
    if labelled:
        if width < 2:
            fail(path, line, "has one column; give a word and its label, separated by a tab or by spaces.")
        label = width - 1 if label is None else _column_number("label_column", label)
    for column in (word, label or 0):
        if column >= width:
            fail(path, line, f"has {width} columns, and column {column + 1} was asked for.")
    prefix = _language(ahead, word)

    def cells_of(line, text, number):
        cells = _cells(text)
        if len(cells) != width:
            fail(path, line, f"has {len(cells)} columns where the first row has {width}; correct it.")
        token = cells[word]
        if prefix is not None and not token.startswith(prefix):
            fail(path, line, f"{token[:40]!r} does not begin with {prefix!r} as the words before it do; correct it.")
        named = [(token.removeprefix(prefix or ""), "the word")]
        return [*named, (cells[label], "the label")] if labelled else named

    return itertools.chain(ahead, blocks), functools.partial(_sentence, path=path, cells_of=cells_of)


def _column_number(argument, value):
    if not str(value).isdecimal() or int(value) < 1:
        raise InputError(f"{argument} is {value!r}, and this file's columns have no names: give a number from 1.")
    return int(value) - 1


def _cells(text):
    return text.split("\t") if "\t" in text else [cell for cell in text.split(" ") if cell]


def _language(blocks, column):
    """The prefix `en:` that all words of the blocks share, or None; one word alone tells nothing."""
    rows = [_cells(text) for _, text, _ in itertools.chain(*blocks)]
    matches = [_LANGUAGE.match(cells[column]) if column < len(cells) else None for cells in rows]
    prefixes = {match and match[0] for match in matches}
    return prefixes.pop() if len(rows) > 1 and len(prefixes) == 1 else None


def _sentence(block, *, path, cells_of):
    """The words and labels of a block; `cells_of` a line, its text and the number of a word are the cells that are
    wanted and what they are called, None of a line that is no word."""
    words, labels = [], []
    for line, text, problem in block:
        if problem:
            raise problem
        cells = cells_of(line, text, len(words) + 1)
        for cell, what in cells or ():
            if not cell or cell.isspace():
                fail(path, line, f"{what} is empty; fill it in, or remove the row.")
        if cells:
            words.append(cells[0][0])
            labels += [(line, label_name(label)) for label, _ in cells[1:]]
    if not words:
        fail(path, block[0][0], "the sentence that begins here has no word; add one, or remove it.")
    return words, labels


_READERS = {"conllu": _read_conllu, "columns": _read_columns, "txt": _read_txt}


def _blocks(path, encoding, *, skipped):
    """The lines between empty ones, lists of `(number, text, problem)`, without those that begin with `skipped`."""
    block = []
    for line, text, problem in read_lines(path, encoding):
        text = text.rstrip("\r\n")
        if text.startswith(skipped):
            continue
        if text.strip(" \t"):
            block.append((line, text, problem))
            if len(block) > MOST_WORDS:
                raise InputError(
                    f"{shown_name(path)}, line {line}: the sentence that begins on line {block[0][0]} has more than "
                    f"{MOST_WORDS:,} words; put an empty line after each sentence."
                )
        elif block:
            yield block
            block = []
    if block:
        yield block


def words_of_texts(texts, text_pairs):
    """`WordRows` of a list of lists of words, or of texts that are cut at white space."""
    if text_pairs is not None:
        raise InputError(f"text_pairs: {NO_PAIRS}, leave it out.")
    texts = [text.split() if isinstance(text, str) else text for text in texts]
    check_texts(
        texts,
        "a text, or a list of words",
        lambda words: isinstance(words, (list, tuple)) and words and all(isinstance(word, str) for word in words),
    )
    return WordChunk([word for words in texts for word in words], [len(words) for words in texts]).rows()
