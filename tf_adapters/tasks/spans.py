"""Questions on paragraphs: SQuAD v1.1 JSON, tables with a question and a context a row.

| format | extensions | reading |
|---|---|---|
| squad | .json | SQuAD v1.1: articles, their paragraphs, and the questions on each; the whole file at once |
| csv, tsv, jsonl | .csv .tsv .jsonl .ndjson | columns `question` and `context`; to predict, in constant memory |

A table may have a column `id`. Its answers, needed to train and to evaluate, lie in a column `answers`: one text, or in
JSON lines several, `["first", "second"]`, also with their places as SQuAD
(`[{"text": ..., "answer_start": ...}]`) and HuggingFace's datasets (`{"text": [...], "answer_start": [...]}`) write
them. Without a place an answer is looked for in the context, and the first place is taken.

Places count characters (Unicode code points).
"""

import collections.abc
import dataclasses
import json
import os
from typing import Optional, Tuple

import numpy as np

from tf_adapters.errors import InputError, shown
from tf_adapters.paths import parse_json
from tf_adapters.tasks.files import file_format, read_chunks, text_problem
from tf_adapters.tasks.lines import BadRow, read_lines, shown_name, usable
from tf_adapters.tasks.rows import HeldRows, Part, Rows, check_texts, digest_of, hashes


@dataclasses.dataclass(frozen=True)
class References:
    """The reference answers of each question: a sequence of one list of str a question.

    Attributes:
        texts: object array of str, `(references,)`, those of a question one after the other.
        starts: int32 array, `(references,)`: the first character (code point) of each in its context, -1 where the
            context has another text there.
        splits: int64 array, `(rows + 1,)`: row i has the references `splits[i]:splits[i + 1]`.
    """

    texts: np.ndarray
    starts: np.ndarray
    splits: np.ndarray

    def __len__(self):
        return len(self.splits) - 1

    def __getitem__(self, row):
        return self.texts[self.splits[row] : self.splits[row + 1]].tolist()

    @property
    def row(self):
        """The question of each reference, int64 array `(references,)`."""
        return np.repeat(np.arange(len(self)), np.diff(self.splits))

    def take(self, chosen):
        """The references of the questions `chosen` (int array), in that order."""
        counts = np.diff(self.splits)[chosen]
        splits = np.concatenate([[0], np.cumsum(counts)])
        places = np.arange(splits[-1]) + np.repeat(self.splits[chosen] - splits[:-1], counts)
        return References(texts=self.texts[places], starts=self.starts[places], splits=splits)


@dataclasses.dataclass(frozen=True)
class SpanRows(HeldRows):
    """The questions of one split; a context that many share is held once.

    Attributes:
        ids, questions: object arrays of str, `(rows,)`.
        contexts: object array of str, `(contexts,)`, all different.
        context_of: int32 array, `(rows,)`: the context of each question.
        labels: `References`, or None where the answers are unknown.
    """

    ids: np.ndarray
    questions: np.ndarray
    contexts: np.ndarray
    context_of: np.ndarray
    labels: Optional[References] = None

    by_row = ("ids", "questions", "context_of", "labels")
    kinds = ("question-answering",)

    def __len__(self):
        return len(self.questions)

    def context(self, row):
        """The context of one question, a str."""
        return self.contexts[self.context_of[row]]

    def plain(self):
        """Each context that is used, and each question, as a text without labels, `Rows`."""
        import tensorflow as tf

        with tf.device("CPU:0"):
            return Rows(tf.constant([*self.contexts[np.unique(self.context_of)].tolist(), *self.questions.tolist()]))

    def used_contexts(self):
        """The contexts that the rows have, and which of them each row has: object array, int array."""
        used, context_of = np.unique(self.context_of, return_inverse=True)
        return self.contexts[used], context_of.reshape(-1)

    def digest(self):
        """SHA-256 of questions, contexts and answers, by hashes of the texts that TensorFlow computes in one pass."""

        def hashed(texts):
            return hashes(texts.tolist()) if len(texts) else np.zeros(0, np.int64)

        (contexts, context_of), known = self.used_contexts(), self.labels
        answers = () if known is None else (hashed(known.texts), known.starts, known.splits)
        return digest_of(hashed(self.questions), hashed(contexts)[context_of], *answers)


def span_rows(questions, *, labelled):
    """`SpanRows` of questions, tuples of an id, the question, its context and, where they are labelled, the answers:
    pairs of text and first character, as in `References`."""
    ids, asked, context_of, places, counts, found = [], [], [], {}, [], []
    for id, question, context, answers in questions:
        ids.append(id)
        asked.append(question)
        context_of.append(places.setdefault(context, len(places)))
        counts.append(len(answers))
        found += answers
    labels = None
    if labelled:
        texts, starts = zip(*found) if found else ((), ())
        splits = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        labels = References(_objects(texts), np.array(starts, np.int32), splits)
    return SpanRows(_objects(ids), _objects(asked), _objects(places), np.array(context_of, np.int32), labels)


def _objects(texts):
    return np.fromiter(texts, object, len(texts))


@dataclasses.dataclass(frozen=True)
class Answer:
    """A part of a context.

    Attributes:
        text: str, `context[start:end]`; empty if the context has no token.
        start, end: ints, characters (code points) of the context.
        probability: float, among the best answers to the question, which sum to 1.
        n_best: tuple of `Answer`, the best ones of which this is the first; empty in those.
    """

    text: str
    start: int
    end: int
    probability: float
    n_best: Tuple["Answer", ...] = ()


class Answers(collections.abc.Sequence):
    """One `Answer` for each row, made when it is asked for: texts are not stored a second time.

    Args:
        rows: `SpanRows`.
        starts, ends: int arrays, `(rows, n)`, the best first.
        probabilities: float array, `(rows, n)`.
        counts: int array, `(rows,)`: how many of the n a row has.
    """

    def __init__(self, rows, starts, ends, probabilities, counts):
        self.rows = rows
        self.starts = starts
        self.ends = ends
        self.probabilities = probabilities
        self.counts = counts

    def __len__(self):
        return len(self.counts)

    def __getitem__(self, row):
        context = self.rows.context(row)
        columns = (values[row, : self.counts[row]].tolist() for values in (self.starts, self.ends, self.probabilities))
        n_best = tuple(Answer(context[start:end], start, end, number) for start, end, number in zip(*columns))
        if not n_best:
            return Answer("", 0, 0, float(self.probabilities[row, 0]))
        return dataclasses.replace(n_best[0], n_best=n_best)


FORMATS = ("squad", "csv", "tsv", "jsonl")
_NOTHING = {"what": "question", "otherwise": "has no usable question: give a file with at least one."}


def read_questions(path, reading, labels=None):
    """`Reader.whole` of questions, `SpanRows` without label names.

    The columns of a table are those of the question, the context and the answers. A question without an answer, or with
    one that does not lie in the paragraph, is a bad row.
    """
    if _question_format(path, reading.format) == "squad":
        return read_squad(path, reading, labelled=True)[0], ()

    def question_of(row):
        id, question, context, line, cell, record = row
        where = f"{shown_name(path)}, line {line}"
        return id, question, context, _answers(_answers_of_cell(cell, record, context, where), context, where)

    columns = reading.table("question", "context", "answers")
    chunks = read_chunks(path, chunk_rows=4096, keep_all_columns=True, **columns)
    rows = (
        (*row, *rest)
        for chunk in chunks
        for row, *rest in zip(_of_table(chunk), chunk.lines, chunk.labels, chunk.records)
    )
    return span_rows(usable(rows, question_of, path, reading.bad_rows, **_NOTHING), labelled=True), ()


def read_question_chunks(path, reading, chunk_rows, keep_all_columns):
    """`Reader.parts` of questions, `SpanRows`; those of a table as `rows.Part` if all of its columns are kept. A
    table is never held as a whole, SQuAD's JSON is."""
    if _question_format(path, reading.format) == "squad":
        rows = read_squad(path, reading, labelled=False)[0]
        yield from map(rows.take, rows.slices(chunk_rows))
        return
    columns = reading.table("question", "context")
    for chunk in read_chunks(path, chunk_rows=chunk_rows, keep_all_columns=True, **columns):
        rows = span_rows(((*row, ()) for row in _of_table(chunk)), labelled=False)
        yield Part(len(rows), rows.rows, chunk.records) if keep_all_columns else rows


def _question_format(path, format):
    if format is None and os.fspath(path) != "-":
        is_squad = os.fspath(path).lower().removesuffix(".gz").endswith(".json")
        format = "squad" if is_squad else file_format(path)
    if format not in FORMATS:
        what = f"format is {format!r} and" if format is not None else f"{shown_name(path)} has no extension: format"
        raise InputError(f"{what} must be one of {', '.join(FORMATS)}: a question comes with its context.")
    return format


def _of_table(chunk):
    """Of each row of a chunk of a table the id, the question and its context."""
    ids = (record.get("id") for record in chunk.records)
    ids = (str(line if id is None else id) for id, line in zip(ids, chunk.lines))
    return zip(ids, chunk.text, chunk.text_pair)


def _answers_of_cell(cell, record, context, where):
    """What a table says of answers, as the list of objects that SQuAD has."""
    if isinstance(cell, str) and cell.lstrip().startswith(('{"', "{'", '[{"', '["')):
        try:
            cell = parse_json(cell)
        except ValueError:
            said = f"{where}: the answer {shown(cell)} looks like several; write them as JSON, in double quotes."
            raise BadRow(said) from None
    if isinstance(cell, str):
        start = record.get("answer_start")
        if isinstance(start, str):
            if start.strip() and not start.strip().isdecimal():
                raise BadRow(f"{where}: answer_start is {start!r}, which is not a number of characters; correct it.")
            start = int(start) if start.strip() else None
        cell = [{"text": cell, "answer_start": start}] if cell.strip() else []
    elif isinstance(cell, dict):
        texts, starts = cell.get("text"), cell.get("answer_start")
        if not isinstance(texts, list) or not isinstance(starts, list) or len(texts) != len(starts):
            raise BadRow(f"{where}: the answers need lists `text` and `answer_start` of one length.")
        cell = [{"text": text, "answer_start": start} for text, start in zip(texts, starts)]
    elif isinstance(cell, list):
        cell = [{"text": answer, "answer_start": None} if isinstance(answer, str) else answer for answer in cell]
    if not isinstance(cell, list):
        raise BadRow(f"{where}: the answers are {json.dumps(cell)[:60]}; give a text or a list of texts.")
    found = []
    for answer in cell:
        if isinstance(answer, dict) and isinstance(answer.get("text"), str) and answer.get("answer_start") is None:
            start = context.find(answer["text"])
            # A text that is not there can still be scored against.
            answer = {"text": answer["text"], "answer_start": start if start >= 0 else None}
        found.append(answer)
    return found


def _answers(answers, context, where):
    """Pairs of an answer's text and first character; -1 where the context has another text there."""
    if not answers:
        raise BadRow(f"{where}: the question has no answer; give it one, or leave it out.")
    pairs = []
    for answer in answers if isinstance(answers, list) else [answers]:
        text, start = (answer.get("text"), answer.get("answer_start", "")) if isinstance(answer, dict) else ("", "")
        if not text or not isinstance(text, str) or (start is not None and type(start) is not int):
            raise BadRow(
                f"{where}: an answer is {json.dumps(answer)[:80]}; it needs a `text` and an `answer_start`: a text "
                "that is not empty, and a whole number."
            )
        if start is not None and not 0 <= start <= len(context) - len(text):
            raise BadRow(
                f"{where}: the answer {text[:40]!r} from character {start} to {start + len(text)} lies outside its "
                f"paragraph of {len(context)} characters; correct answer_start, which counts characters, or leave the "
                "question out."
            )
        pairs.append((text, start if start is not None and context.startswith(text, start) else -1))
    return pairs


def read_squad(path, reading, *, labelled):
    """`SpanRows` of SQuAD's JSON, and the title of each row's article, a list of str."""
    for name in ("text_column", "text_pair_column", "label_column"):
        if (column := getattr(reading, name)) is not None:
            raise InputError(f"{{{name}}}: SQuAD's JSON has keys of its own, leave it out.", **{name: column})
    reading.refuse(f"{shown_name(path)} is read as SQuAD's JSON")
    titles = []

    def question_of(row):
        title, id, question, context = row
        where, answers = f"{shown_name(path)}, question {id!r}", ()
        text = _text(question, "question", path, f"question {id!r}")
        if labelled:
            if question.get("is_impossible"):
                raise InputError(
                    f"{where}: is_impossible is true, and questions without an answer (SQuAD v2) are not supported; "
                    "give a file of SQuAD v1.1, or leave these questions out."
                )
            answers = _answers(question.get("answers"), context, where)
        titles.append(title)
        return id, text, context, answers

    questions = _questions_of(_read_json(path, reading.encoding), path)
    return span_rows(usable(questions, question_of, path, reading.bad_rows, **_NOTHING), labelled=labelled), titles


def _questions_of(content, path):
    """The article's title, the id, the object and the context of each question in SQuAD's JSON."""
    seen = set()
    for number, article in enumerate(_list(content, "data", path, "")):
        place = f"data[{number}]"
        for index, paragraph in enumerate(_list(article, "paragraphs", path, place)):
            at = f"{place}.paragraphs[{index}]"
            questions, context = _list(paragraph, "qas", path, at), _text(paragraph, "context", path, at)
            for position, question in enumerate(questions):
                question = question if isinstance(question, dict) else {}
                id = str(question.get("id") or f"{at}.qas[{position}]")
                if id in seen:
                    raise InputError(f"{shown_name(path)}: the question id {id!r} is there twice; give each its own.")
                seen.add(id)
                yield str(article.get("title", number)), id, question, context


def _read_json(path, encoding):
    parts = []
    for _, text, problem in read_lines(path, encoding):
        if problem is not None:
            raise problem
        parts.append(text)
    try:
        return parse_json("".join(parts))
    except ValueError as error:
        raise InputError(
            f"{shown_name(path)} is not JSON ({error}): give SQuAD's JSON, or {{format}}.", format="jsonl"
        ) from None


def _list(value, key, path, place):
    if not isinstance(value, dict) or not isinstance(value.get(key), list):
        where = f"{place} has" if place else "it has"
        raise InputError(
            f"{shown_name(path)} is not SQuAD v1.1: {where} no list {key!r}. Give SQuAD's JSON, or {{format}}.",
            format="jsonl",
        )
    return value[key]


def _text(value, key, path, place):
    if problem := text_problem(value.get(key)):
        raise InputError(f"{shown_name(path)}: {key!r} of {place} {problem}")
    return value[key]


def questions_of_texts(questions, contexts):
    """`SpanRows` of lists of questions and of their contexts."""
    if contexts is None:
        raise InputError("{text_pairs}: give the context of each question.", text_pairs=None)
    check_texts(questions)
    check_texts(contexts)
    pairs = enumerate(zip(questions, contexts))
    return span_rows(((str(number), *pair, ()) for number, pair in pairs), labelled=False)
