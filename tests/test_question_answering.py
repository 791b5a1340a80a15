"""Answers in a context: files, alignment, windows, loss, decoding, metric, training and prediction."""

import json
import math

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import VOCABULARY, WORDS, is_refused, squad_file, tiny_model, write_checkpoint
from tests.runs import KillAt, Killed, content, seven_seconds_a_look
from tf_adapters import AdapterConfig, add_adapters, fit, load_backbone, load_trained, set_trainable
from tf_adapters._keras import keras
from tf_adapters.errors import InputError
from tf_adapters.kinds import get_kind
from tf_adapters.kinds.kind import Scorer
from tf_adapters.kinds.spans import QuestionAnswering, best_spans, n_best_spans, position_crossentropy
from tf_adapters.tasks import load_task, task_from_files
from tf_adapters.tasks.files import BadRows
from tf_adapters.tasks.metrics import METRICS
from tf_adapters.tasks.own_files import READERS
from tf_adapters.tasks.registry import load_split
from tf_adapters.tasks.rows import Task
from tf_adapters.tasks.spans import Answer, Answers, span_rows
from tf_adapters.text import WordPiece
from tf_adapters.text.batching import training_batches
from tf_adapters.text.windows import ContextTokens, cut_windows, question_tokens

KIND, QUESTIONS = get_kind("question-answering"), READERS["question-answering"]
SQUAD = METRICS["squad"]


def wordpiece(max_length=32):
    return WordPiece(VOCABULARY, max_length=max_length)


def rows_of(*questions, labelled=True):
    """Rows of (question, context, *answers); an answer is a text, at its first place, or a pair with its place."""
    tuples = []
    for number, (question, context, *answers) in enumerate(questions):
        pairs = [(answer, context.find(answer)) if isinstance(answer, str) else answer for answer in answers]
        tuples.append((f"q{number}", question, context, pairs))
    return span_rows(tuples, labelled=labelled)


def random_rows(count, *, seed, words=(20, 60)):
    """Contexts of random words with an answer of up to four tokens somewhere."""
    random = np.random.default_rng(seed)
    questions = []
    for number in range(count):
        context = random.choice(WORDS, random.integers(*words)).tolist()
        place = int(random.integers(0, len(context)))
        answer = ("zz", "zz y", "zz y y")[number % 3]
        context[place] = answer
        questions.append(("who is it", " ".join(context), answer))
    return rows_of(*questions)


ARTICLES = {
    "Ada": [
        ("Ada sang.", [("1", "Who?", [("Ada", 0)]), ("2", "Did what?", [("sang", 4), ("sang.", 4)])]),
        ("Élan 🙂 here", [("3", "Where?", [("here", 7)])]),
    ],
    "Bob": [("Ada sang.", [("4", "Who sang?", [("Ada", 0)])])],
}


# --- metric


def test_metric_of_one_question():
    for references, answer, exact_match, f1 in (
        (["1976"], "1999", 0, 0),
        (["The Panthers' 308."], "panthers 308", 1, 1),
        (["a theatre"], "an  THEATRE!", 1, 1),
        (["be be"], "be be be", 0, 2 * 2 / (3 + 2)),
        (["red fox", "quick red fox jumps", "dog"], "the quick red fox", 0, 2 * 3 / (3 + 4)),
        (["die Katze"], "Katze", 0, 2 / 3),  # an article of another language is a word
        (["the"], "a", 1, 0),  # as in version 1.1 of the script: nothing in common
        (["x"], "", 0, 0),
    ):
        assert SQUAD([references], [answer]) == pytest.approx({"f1": f1, "exact_match": exact_match}, abs=1e-12)


def test_metric_names_what_it_lacks():
    for references, answers, message in (
        (None, ["a"], "these questions have none"),
        ([["a"]], ["a", "b"], "references of 1 questions and 2 answers"),
        ([["a"], []], ["a", "b"], "question 1 has none"),
    ):
        is_refused(message, SQUAD, references, answers)
    numbers = SQUAD([["a"], ["b"]], [Answer("b", 0, 1, 1.0), Answer("b", 0, 1, math.nan)])
    assert math.isnan(numbers["f1"]) and math.isnan(numbers["exact_match"])


# --- files


def test_squad_json_is_read_with_each_context_once(tmp_path):
    path = squad_file(tmp_path / "a.json", ARTICLES)
    task = task_from_files(train=path, validation=path, kind="question-answering")
    rows = task.train
    assert (task.kind, task.labels, task.metric) == ("question-answering", (), "squad")
    assert rows.ids.tolist() == ["1", "2", "3", "4"] and rows.questions[1] == "Did what?"
    assert rows.contexts.tolist() == ["Ada sang.", "Élan 🙂 here"] and rows.context_of.tolist() == [0, 0, 1, 0]
    assert list(rows.labels) == [["Ada"], ["sang", "sang."], ["here"], ["Ada"]]
    assert rows.labels.starts.tolist() == [0, 4, 4, 7, 0]
    taken = rows.take(np.array([3, 1]))
    assert taken.ids.tolist() == ["4", "2"] and list(taken.labels) == [["Ada"], ["sang", "sang."]]
    assert taken.labels.starts.tolist() == [0, 4, 4] and taken.labels.row.tolist() == [0, 1, 1]
    assert taken.contexts is rows.contexts and taken.context(1) == "Ada sang."
    assert [part.tolist() for part in rows.take(np.array([2])).used_contexts()] == [["Élan 🙂 here"], [0]]


def test_digest_tells_questions_contexts_and_answers_apart_but_not_how_they_are_stored(tmp_path):
    rows = QUESTIONS.read(squad_file(tmp_path / "a.json", ARTICLES))[0]
    alone, who, ada, sang = rows_of(("Who?", "Ada sang.", "Ada")), ("Who?", "Ada sang."), ("Ada",), ("sang",)
    assert rows.take(np.array([0])).digest() == alone.digest()
    others = [
        alone,
        rows_of(("Who!", "Ada sang.", "Ada")),
        rows_of(("Who?", "Ada sang!", "Ada")),
        rows_of(("Who?", "Ada sang.", "sang")),
        rows_of(("Who?", "Ada sang.", ("Ada", -1))),
        rows_of(("Who?", "Ada sang.", "Ada", "sang")),
        rows_of(("Who?", "Ada sang."), labelled=False),
        rows_of(who + ada + sang, who + ada),
        rows_of(who + ada, who + sang + ada),
    ]
    assert len({rows.digest() for rows in others}) == 9


def squad_with(**question):
    question = {"id": "7", "question": "Who?", "answers": [{"text": "Ada", "answer_start": 0}], **question}
    return {"data": [{"title": "A", "paragraphs": [{"context": "Ada sang.", "qas": [question]}]}]}


def test_squad_json_that_cannot_be_used_is_named(tmp_path):
    for data, message in (
        ("", "bad.json is not JSON .* give SQuAD's JSON, or format='jsonl'"),
        ([1], "is not SQuAD v1.1: it has no list 'data'"),
        ({"data": [{"title": "x"}]}, r"data\[0\] has no list 'paragraphs'"),
        ({"data": [{"paragraphs": [{"qas": []}]}]}, r"'context' of data\[0\].paragraphs\[0\] is empty"),
        ({"data": []}, "has no usable question: give a file"),
        ({"data": [squad_with()["data"][0]] * 2}, "the question id '7' is there twice"),
        (squad_with(question=" "), "'question' of question '7' is empty"),
        (squad_with(question="a\0"), "'question' of question '7' holds a NUL"),
        (squad_with(is_impossible=True, answers=[]), r"'7': is_impossible is true, and .* \(SQuAD v2\) are not"),
        (squad_with(answers=[{"text": "Ada"}]), "needs a `text` and an `answer_start`"),
        (squad_with(answers=True), "needs a `text` and an `answer_start`"),
        (squad_with(answers=[{"text": "Ada", "answer_start": "0"}]), "a whole number"),
        (squad_with(answers=[{"text": "", "answer_start": 0}]), "a text that is not empty"),
    ):
        (tmp_path / "bad.json").write_text(data if isinstance(data, str) else json.dumps(data))
        is_refused(message, QUESTIONS.read, tmp_path / "bad.json")


def write_lines(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_tables_of_questions_are_read(tmp_path):
    (tmp_path / "a.csv").write_text(
        'id,question,context,answers,answer_start\nx,Who?,"Ada sang, Ada.",Ada,10\ny,What?,"Ada sang, Ada.",sang,\n'
    )
    rows, _ = QUESTIONS.read(tmp_path / "a.csv")
    assert rows.ids.tolist() == ["x", "y"] and list(rows.labels) == [["Ada"], ["sang"]]
    assert rows.labels.starts.tolist() == [10, 4] and len(rows.contexts) == 1
    answers = [["Ada", "sang"], {"text": ["sang"], "answer_start": [4]}, [{"text": "Ada", "answer_start": 0}], "Eve"]
    records = [{"question": "a", "context": "Ada sang", "answers": each} for each in answers]
    rows, _ = QUESTIONS.read(write_lines(tmp_path / "b.jsonl", records), format="jsonl")
    assert rows.ids.tolist() == ["1", "2", "3", "4"]
    assert list(rows.labels) == [["Ada", "sang"], ["sang"], ["Ada"], ["Eve"]]
    assert rows.labels.starts.tolist() == [0, 4, 4, 0, -1]  # a text that is not there can be scored, not learned
    cells = ['"{""text"": [""sang""], ""answer_start"": [4]}"', '"[""Ada"", ""sang""]"', "[sic] Ada"]
    (tmp_path / "c.csv").write_text("question,context,answers\n" + "".join(f"a,Ada sang,{cell}\n" for cell in cells))
    assert list(QUESTIONS.read(tmp_path / "c.csv")[0].labels) == [["sang"], ["Ada", "sang"], ["[sic] Ada"]]
    (tmp_path / "c.csv").write_text("question,context,answers\na,Ada sang,{'text': ['sang']}\n")
    is_refused("line 2: the answer \"{'text': .* looks like several; write", QUESTIONS.read, tmp_path / "c.csv")


@pytest.mark.parametrize(
    "answers, message",
    [
        ([], "the question has no answer"),
        (3, "the answers are 3; give a text"),
        ({"text": ["Ada"]}, "the answers need lists"),
        ([{"text": "sang", "answer_start": 6}], "the answer 'sang' from character 6 to 10 lies outside"),
        ([{"text": "Ada", "answer_start": -1}], "the answer 'Ada' from character -1 to 2 lies outside"),
    ],
)
def test_bad_answers_are_named_with_their_place_or_left_out_and_counted(tmp_path, answers, message):
    good = {"question": "a", "context": "Ada sang.", "answers": "Ada"}
    path = write_lines(tmp_path / "a.jsonl", (good, {**good, "answers": answers}, good))
    is_refused(f"a.jsonl, line 2: {message}", QUESTIONS.read, path)
    bad = BadRows()
    assert QUESTIONS.read(path, bad_rows=bad)[0].ids.tolist() == ["1", "3"]
    assert bad.count == 1 and message in bad.examples[0]
    # To predict, answers are not looked at.
    assert [chunk.ids.tolist() for chunk in QUESTIONS.chunks(path)] == [["1", "2", "3"]]
    path = squad_file(tmp_path / "a.json", {"A": [("Ada sang.", [("7", "Who?", [("sang", 6)])])], **ARTICLES})
    assert QUESTIONS.read(path, bad_rows=bad)[0].ids.tolist() == ["1", "2", "3", "4"]
    assert "a.json, question '7': the answer 'sang' from" in bad.examples[1]


def test_reading_to_predict_needs_no_answers_and_comes_in_chunks(tmp_path):
    path = write_lines(tmp_path / "a.jsonl", ({"question": f"q{n}", "context": "Ada sang"} for n in range(5)))
    chunks = list(QUESTIONS.chunks(path, chunk_rows=2))
    assert [chunk.questions.tolist() for chunk in chunks] == [["q0", "q1"], ["q2", "q3"], ["q4"]]
    assert [chunk.ids.tolist() for chunk in chunks] == [["1", "2"], ["3", "4"], ["5"]]
    assert all(chunk.labels is None and len(chunk.contexts) == 1 for chunk in chunks)
    chunks = list(QUESTIONS.chunks(squad_file(tmp_path / "b.json", ARTICLES), chunk_rows=3))
    assert [chunk.ids.tolist() for chunk in chunks] == [["1", "2", "3"], ["4"]] and chunks[1].context(0) == "Ada sang."


def test_options_and_formats_without_meaning_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\nx,y\n")
    squad_file(tmp_path / "a.json", ARTICLES)
    for name, options, message in (
        ("a.json", {"text_column": "q"}, "text_column='q': SQuAD's JSON has keys of its own"),
        ("a.json", {"format": "txt"}, "format is 'txt' and must be one of squad, csv, tsv, jsonl"),
        ("a.csv", {}, "has no column 'question': the columns of its first line are 'text', 'label'"),
    ):
        is_refused(message, QUESTIONS.read, tmp_path / name, **options)


# --- named tasks


def many_articles(count, *, title="t{}"):
    def paragraphs(n):
        return [(f"context {n} {p}", [(f"{n}-{p}", "Who?", [("context", 0)])]) for p in range(2)]

    return {title.format(n): paragraphs(n) for n in range(count)}


def test_squad_holds_out_a_tenth_of_the_articles_and_tests_on_the_development_set(tmp_path):
    (tmp_path / "squad").mkdir()
    squad_file(tmp_path / "squad" / "train-v1.1.json", many_articles(40))
    squad_file(tmp_path / "squad" / "dev-v1.1.json", many_articles(3, title="dev{}"))
    task = load_task("squad", data_dir=tmp_path)
    assert (len(task.train), len(task.validation), len(task.test)) == (72, 8, 6)
    assert task.metric == "squad" and "development set" in task.source and "tenth" in task.source
    articles = [{id.partition("-")[0] for id in split.ids} for split in (task.train, task.validation)]
    # Fixed for ever: another choice would make old results incomparable.
    assert sorted(articles[1], key=int) == ["10", "15", "22", "36"] and not articles[0] & articles[1]
    (tmp_path / "squad" / "train-v1.1.json").unlink()
    assert len(load_split("squad", "test", data_dir=tmp_path / "squad").rows) == 6
    with pytest.raises(InputError, match="No train-v1.1.json was found for train and validation"):
        load_split("squad", "validation", data_dir=tmp_path)
    # All languages of XQuAD are split alike.
    for language in ("en", "zh"):
        squad_file(tmp_path / f"xquad.{language}.json", many_articles(44))
    english, chinese = (load_task(f"xquad/{language}", data_dir=tmp_path) for language in ("en", "zh"))
    for split in ("train", "validation", "test"):
        assert getattr(english, split).ids.tolist() == getattr(chinese, split).ids.tolist()
    assert (len(english.train), len(english.validation), len(english.test)) == (72, 8, 8)
    assert "A tenth of the articles is held out" in english.source


# --- windows and alignment


def test_a_short_context_is_one_window_with_the_answers_tokens_as_its_label():
    pieces = wordpiece()
    rows = rows_of(("who is it", "the Plot, was góod. Very fun", "góod. Very"), ("a", "the cast", "cast"))
    examples = KIND.examples(rows, pieces)
    encoded = examples.encode(pieces, tf.range(2, dtype=tf.int64))
    for name, ragged in pieces.encode(rows.questions.tolist(), [rows.context(0), rows.context(1)]).items():
        assert encoded[name].to_list() == ragged.to_list()
    text = " ".join(pieces.vocabulary[id] for id in encoded["input_ids"].to_list()[0])
    assert text == "[CLS] w ##h ##o is it [SEP] the plot , was good . very fun [SEP]"
    assert examples.labels.tolist() == [[11, 13, 16], [4, 4, 6]] and examples.labels.dtype == np.int32
    assert examples.notes == ()
    # RoBERTa has two separators in the middle.
    pieces = WordPiece(VOCABULARY, max_length=32, double_sep=True)
    examples = KIND.examples(rows, pieces)
    assert examples.labels.tolist() == [[12, 14, 17], [5, 5, 7]]
    assert len(examples.encode(pieces, tf.range(1, dtype=tf.int64))["input_ids"][0]) == 17
    assert [answer.text for answer in KIND.predict(Oracle(pieces, examples), rows)] == ["góod. Very", "cast"]


def naive_windows(pieces, rows):
    """Windows and labels by loops over rows, as a second implementation: (ids, start, end) each."""
    windows = []
    most, overlap = min(64, pieces.max_length // 3), pieces.max_length // 3
    for row in range(len(rows)):
        question = pieces.tokenize([rows.questions[row]]).to_list()[0][:most]
        ids, starts, ends = (ragged.to_list()[0] for ragged in pieces.tokenize_with_offsets([rows.context(row)]))
        (text,), begin = rows.labels[row], rows.labels.starts[row]
        answer = [n for n in range(len(ids)) if ends[n] > begin and starts[n] < begin + len(text)]
        room = pieces.max_length - 3 - len(question)
        first = 0
        while True:
            part = ids[first : first + room]
            held = answer[0] >= first and answer[-1] < first + len(part)
            shift = 2 + len(question) - first
            start, end = (answer[0] + shift, answer[-1] + shift) if held else (0, 0)
            windows.append(([2, *question, 3, *part, 3], start, end))
            if first + room >= len(ids):
                break
            first += room - overlap
    return windows


@pytest.mark.parametrize("max_length", [16, 31])
def test_windows_of_long_contexts_equal_those_of_a_plain_loop(max_length, monkeypatch):
    monkeypatch.setattr("tf_adapters.text.windows._TEXTS_AT_ONCE", 10)
    pieces = wordpiece(max_length)
    rows = random_rows(25, seed=max_length, words=(1, 90))
    expected = naive_windows(pieces, rows)
    examples = KIND.examples(rows, pieces)
    assert len(examples) == len(expected) > 30 and examples.alignment.left_out == 0
    encoded = examples.encode(pieces, tf.range(len(examples), dtype=tf.int64))
    assert encoded["input_ids"].to_list() == [ids for ids, _, _ in expected]
    assert examples.labels.tolist() == [[start, end, len(ids)] for ids, start, end in expected]
    # The tokens of a context are stored once, whatever the number of its windows.
    assert len(examples.tokens) == sum(len(row) for row in pieces.tokenize(rows.contexts.tolist()).to_list())
    for types, (ids, _, _) in zip(encoded["token_type_ids"].to_list(), expected):
        assert types == [0] * (ids.index(3) + 1) + [1] * (len(ids) - ids.index(3) - 1)


def test_alignments_that_are_impossible_are_counted_and_reported():
    pieces = wordpiece(24)
    long = " ".join(["good"] * 40)
    rows = rows_of(
        ("a", "the film was good", "film"),  # exact
        ("a", "the film was good", "lm wa"),  # inside tokens
        ("a", "the film was good", ("bad", -1)),  # not there
        ("a", "the \u200b\u200b film", "\u200b"),  # of no token
        ("a", long, " ".join(["good"] * 30)),  # longer than a window
        ("a", "the film was good", ("bad", -1), "good"),  # the second reference is there
        ("the a " * 20, "the film was good", "film"),  # its question is cut
    )
    examples = KIND.examples(rows, pieces)
    alignment = examples.alignment
    assert alignment.row.tolist() == [0, 1, 5, 6]
    assert (alignment.elsewhere, alignment.no_token, alignment.too_long, alignment.left_out) == (1, 1, 1, 3)
    assert (alignment.questions, alignment.inside_token, alignment.cut_questions) == (7, 1, 1)
    assert list(zip(alignment.first.tolist(), alignment.last.tolist())) == [(1, 1), (1, 2), (3, 3), (1, 1)]
    assert examples.notes == (
        "Training questions left out: 3 of 7 (the context has another text at answer_start: 1; "
        "the answer is of no token: 1; no window holds the whole answer: 1).",
        "Answers that begin or end inside a token, which is learned whole: 1.",
        "Questions cut at their end to leave room for the context: 1.",
    )
    assert len(examples) == 4 and max(examples.labels[:, 2]) <= 24
    with pytest.raises(InputError, match="no question to learn: Training questions left out: 1 of 1"):
        KIND.examples(rows.take(np.array([3])), pieces)
    is_refused("labels is None", KIND.examples, rows_of(("a", "b"), labelled=False), pieces)
    with pytest.raises(InputError, match="max_length=15 has no room for a question and its context: give at least 16"):
        KIND.examples(rows, wordpiece(15))


def test_contexts_without_a_token_have_a_window_and_no_answer():
    pieces = wordpiece()
    rows = rows_of(("a", "\u200b"), ("a", "film"), ("a", "\u200b\u200b"), labelled=False)
    texts, context_of = rows.used_contexts()
    questions, _ = question_tokens(pieces, rows.questions)
    windows = cut_windows(pieces, questions, ContextTokens.of(pieces, texts), context_of)
    assert windows.length.numpy().tolist() == [0, 1, 0]

    class Zeros:
        tokenizer = pieces

        def batches(self, encoded):
            yield np.arange(3), np.zeros((3, 8, 2), np.float32)

    got = [(answer.text, answer.probability, len(answer.n_best)) for answer in KIND.predict(Zeros(), rows)]
    assert got == [("", 0, 0), ("film", 1, 1), ("", 0, 0)]


# --- loss


def test_loss_is_the_mean_cross_entropy_of_start_and_end_within_the_window():
    # Uniform logits over a window of n tokens: ln n, whatever stands on the padding.
    logits = tf.constant([[0.0] * 4 + [9.0] * 4, [1.0] * 8])
    losses = position_crossentropy(tf.constant([[2, 4], [0, 8]]), logits)
    np.testing.assert_allclose(losses, [math.log(4), math.log(8)], rtol=1e-6)
    padded = tf.pad(logits, [[0, 0], [0, 5]], constant_values=7.0)
    np.testing.assert_array_equal(position_crossentropy(tf.constant([[2, 4], [0, 8]]), padded), losses)


def test_a_training_step_reports_half_the_sum_of_both_losses():
    pieces, rows = wordpiece(24), random_rows(8, seed=0, words=(3, 10))
    model = add_adapters(tiny_model("question-answering", num_hidden_layers=1), AdapterConfig(4), seed=0)
    set_trainable(model, "adapters")
    for layer in model.submodules:
        if isinstance(layer, keras.layers.Dropout):
            layer.rate = 0.0
    ((inputs, labels),) = training_batches(KIND.examples(rows, pieces), pieces, batch_size=8, epochs=1, seed=0)
    outputs, (starts, ends, lengths) = model(inputs, training=False), labels.numpy().T
    expected = np.mean(
        [
            -np.log(np.exp(logits[position]) / np.exp(logits[:length]).sum())
            for name, positions in (("start_logits", starts), ("end_logits", ends))
            for logits, position, length in zip(outputs[name].numpy().astype(np.float64), positions, lengths)
        ]
    )
    losses = KIND.losses()
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=True, **losses)
    logs = model.train_on_batch(inputs, KIND.targets(labels), return_dict=True)
    assert KIND.running_loss(logs) == pytest.approx(expected, rel=1e-5) == logs["loss"]
    assert len([variable for metric in tf.nest.flatten(losses["metrics"]) for variable in metric.variables]) == 4


# --- decoding


def test_best_spans_equal_those_of_all_pairs():
    logits = np.random.default_rng(0).normal(size=(3, 12, 2)).astype(np.float32)
    begin, after = np.array([3, 2, 5]), np.array([12, 9, 5])
    window, start, end, score = map(np.array, best_spans(logits, begin, after, longest=4, count=6))
    for row in range(3):
        pairs = {
            (s, e): logits[row, s, 0] + logits[row, e, 1]
            for s in range(begin[row], after[row])
            for e in range(s, min(s + 4, after[row]))
        }
        expected = sorted(pairs.items(), key=lambda pair: -pair[1])[:6]
        of_row = window == row
        got = sorted(zip(zip(start[of_row], end[of_row]), score[of_row]), key=lambda pair: -pair[1])
        assert [span for span, _ in got] == [span for span, _ in expected]
        np.testing.assert_allclose([s for _, s in got], [s for _, s in expected])
    assert (window != 2).all()  # a window without context


def test_n_best_keeps_a_span_once_with_its_greatest_score():
    row = np.array([1, 0, 1, 1, 1, 1])
    start = np.array([5, 0, 5, 2, 9, 1])
    end = np.array([7, 3, 7, 4, 9, 2])
    score = np.array([1.0, 4.0, 3.0, 2.0, 2.0, -9.0])
    starts, ends, probabilities, counts = map(np.array, n_best_spans(row, start, end, score, rows=3, count=3))
    assert counts.tolist() == [1, 3, 0]
    assert starts.tolist() == [[0, 0, 0], [5, 2, 9], [0, 0, 0]] and ends.tolist() == [[3, 0, 0], [7, 4, 9], [0, 0, 0]]
    expected = np.array([[1, 0, 0], [math.e, 1, 1], [0, 0, 0]]) / np.array([[1], [math.e + 2], [1]])
    np.testing.assert_allclose(probabilities, expected, rtol=1e-12)


class Oracle:
    """A scorer whose logits say the labels of `examples`, and of windows without the answer nothing."""

    def __init__(self, pieces, examples):
        self.tokenizer, self.examples = pieces, examples

    def batches(self, encoded):
        width = int(encoded["input_ids"].bounding_shape()[1])
        for positions in np.array_split(np.random.default_rng(0).permutation(len(self.examples)), 3):
            logits = np.zeros((len(positions), width, 2), np.float32)
            for column in (0, 1):
                logits[np.arange(len(positions)), self.examples.labels[positions, column], column] = 9.0
            yield positions, logits


def test_right_logits_give_right_answers_over_all_windows():
    pieces, rows = wordpiece(24), random_rows(40, seed=5, words=(1, 80))
    progress = []
    outputs = KIND.predict(Oracle(pieces, KIND.examples(rows, pieces)), rows, progress=progress.append)
    assert KIND.score("squad", rows, outputs) == {"f1": 1.0, "exact_match": 1.0}
    assert sum(progress) == 40 and len(outputs) == 40
    for row, answer in enumerate(outputs):
        assert answer.text == rows.labels[row][0] == rows.context(row)[answer.start : answer.end]
        assert answer.start == rows.labels.starts[rows.labels.splits[row]]
        assert 1 <= len(answer.n_best) <= 20 and answer.n_best[0].text == answer.text
        numbers = [other.probability for other in answer.n_best]
        assert numbers == sorted(numbers, reverse=True) and sum(numbers) == pytest.approx(1)
        assert len({(other.start, other.end) for other in answer.n_best}) == len(answer.n_best)
    assert KIND.interval("squad", rows, outputs) == (1.0, 1.0)


def test_rows_with_logits_that_are_not_numbers_have_no_probability():
    pieces, rows = wordpiece(), rows_of(("a", "the film", "film"), ("a", "the film", "the"))

    class Broken(Oracle):
        def batches(self, encoded):
            for positions, logits in super().batches(encoded):
                logits[positions == 1, 0, 0] = np.nan
                yield positions, logits

    outputs = KIND.predict(Broken(pieces, KIND.examples(rows, pieces)), rows)
    assert outputs[0].probability > 0.9 and math.isnan(outputs[1].probability)
    assert math.isnan(KIND.score("squad", rows, outputs)["f1"])


def test_prediction_in_parts_equals_prediction_at_once_and_keeps_to_its_limits(monkeypatch):
    pieces, rows = wordpiece(24), random_rows(7, seed=2)
    scorer = Scorer(tiny_model("question-answering", num_hidden_layers=1), pieces, batch_size=4)
    whole = KIND.predict(scorer, rows)
    monkeypatch.setattr("tf_adapters.kinds.spans._CHUNK_ROWS", 3)
    parts = KIND.predict(scorer, rows)
    for name in ("starts", "ends", "counts"):
        np.testing.assert_array_equal(getattr(parts, name), getattr(whole, name))
    np.testing.assert_allclose(parts.probabilities, whole.probabilities, atol=1e-6)
    for answer in QuestionAnswering(longest_answer=2, n_best=3).predict(scorer, rows):
        assert len(answer.n_best) == 3
        assert all(len(pieces.tokenize([other.text]).to_list()[0]) <= 2 for other in answer.n_best)
    is_refused("n_best=0 must be a positive integer", QuestionAnswering, n_best=0)


def test_records_descriptions_and_the_example_command():
    rows = rows_of(("who", "the film"), labelled=False)
    outputs = Answers(rows, *map(np.array, ([[4, 0]], [[8, 3]], [[0.75, 0.25]], [2])))
    best = {"answer": "film", "probability": 0.75, "start": 4, "end": 8}
    other = {"answer": "the", "probability": 0.25, "start": 0, "end": 3}
    assert KIND.records(rows, outputs, ()) == [{"id": "q0", **best, "n_best": [best, other]}]
    assert KIND.describe(rows, 0, outputs[0], ()) == ("film (0.75)", "who")
    assert KIND.example_command("DIR", rows).endswith("| tf-adapters predict DIR --input - --format jsonl")


# --- training


@pytest.mark.slow
def test_training_on_windows_learns_and_resumes_bit_equal_and_what_is_saved_predicts_the_same(tmp_path):
    write_checkpoint(tmp_path / "encoder", num_hidden_layers=1)
    rows = [random_rows(count, seed=count) for count in (48, 16)]
    task = Task("random", KIND.name, (), "squad", *rows, source="Random.")
    pieces = WordPiece.from_directory(tmp_path / "encoder", max_length=48)

    def train(output, **options):
        keras.utils.set_random_seed(0)
        model = load_backbone(tmp_path / "encoder", head=KIND.name, num_labels=2)
        set_trainable(add_adapters(model, AdapterConfig(bottleneck_size=8, dropout=0.1), seed=0), "adapters")
        settings = dict(epochs=4, learning_rate=3e-3, batch_size=8, seed=3)
        return model, fit(model, task, pieces, output=tmp_path / output, **settings, **options)

    model, result = train("whole")
    assert result.metrics["f1"] > 0.5
    windows = len(KIND.examples(task.train, pieces))
    assert result.steps == 4 * -(-windows // 8) and windows > len(task.train)
    with seven_seconds_a_look(), pytest.raises(Killed):
        train("killed", checkpoint_seconds=15, reporter=KillAt(11))
    train("killed", resume=True)
    assert content(tmp_path / "killed") == content(tmp_path / "whole")

    saved, settings = load_trained(tmp_path / "whole")
    assert [settings["task"][name] for name in ("kind", "metric", "source")] == [KIND.name, "squad", "Random."]
    outputs = [KIND.predict(Scorer(each, pieces), task.validation) for each in (model, saved)]
    for name in ("starts", "probabilities"):
        np.testing.assert_array_equal(getattr(outputs[0], name), getattr(outputs[1], name))
    assert KIND.score("squad", task.validation, outputs[1]) == result.metrics
