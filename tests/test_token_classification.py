"""Labels for words: files, windows, loss, metrics, training and prediction."""

import gzip
import re
import warnings

import numpy as np
import pytest
import tensorflow as tf
import transformers

from tests.cases import nightly_but, refused
from tests.conftest import SHARED, WORDS, is_refused, minilm_directory, tiny_model
from tf_adapters.errors import InputError
from tf_adapters.kinds import get_kind, tokens
from tf_adapters.kinds.kind import Scorer
from tf_adapters.kinds.tokens import WordOutputs
from tf_adapters.tasks import load_task, task_from_files
from tf_adapters.tasks import words as reading
from tf_adapters.tasks.catalogue import UPOS
from tf_adapters.tasks.files import BadRows
from tf_adapters.tasks.metrics import METRICS, check_metric
from tf_adapters.tasks.own_files import get_reader, metric_of
from tf_adapters.tasks.registry import load_split
from tf_adapters.tasks.words import WordRows
from tf_adapters.text import WordPiece
from tf_adapters.text.batching import training_batches
from tf_adapters.text.windows import _windows, word_windows

KIND, READER = get_kind("token-classification"), get_reader("token-classification")
DATA = SHARED / "data"

CONLLU = """\
# sent_id = 1
# text = Vámonos al mar
1-2\tVámonos\t_\t_\t_\t_\t_\t_\t_\t_
1\tVamos\tir\tVERB\tV\t_\t0\troot\t_\t_
2\tnos\tnosotros\tPRON\tP\t_\t1\tobj\t_\t_
3-4\tal\t_\t_\t_\t_\t_\t_\t_\t_
3\ta\ta\tADP\tE\t_\t5\tcase\t_\t_
4\tel\tel\tDET\tR\t_\t5\tdet\t_\t_
4.1\tvisto\tver\tVERB\tV\t_\t_\t_\t0:root\t_
5\tmar\tmar\tNOUN\tS\t_\t1\tobl\t_\t_

# sent_id = 2
1\t6 000\t6 000\tNUM\tN\t_\t0\troot\t_\t_

"""
SENTENCE = "1\tmar\tmar\tNOUN\tS\t_\t0\troot\t_\t_\n"


def words_of(rows):
    return [[word.decode() for word in row] for row in rows.words.to_list()]


def names_of(rows):
    return [[rows.label_names[number] for number in row] for row in rows.labels.to_list()]


def word_rows(sentences, labels=None, names=("A", "B", "C")):
    words = tf.ragged.constant(sentences, dtype=tf.string, ragged_rank=1)
    labels = None if labels is None else tf.ragged.constant(labels, dtype=tf.int32, ragged_rank=1)
    return WordRows(words, labels, names)


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="")
    return path


def shared(*parts):
    path = DATA.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"needs {path}, which is not part of the repository")
    return path


# Files


def test_conllu_gives_the_syntactic_words_and_their_tags(tmp_path):
    rows, labels = READER.read(write(tmp_path / "a.conllu", CONLLU))
    assert words_of(rows) == [["Vamos", "nos", "a", "el", "mar"], ["6 000"]]
    assert names_of(rows) == [["VERB", "PRON", "ADP", "DET", "NOUN"], ["NUM"]]
    assert labels == rows.label_names == ("ADP", "DET", "NOUN", "NUM", "PRON", "VERB")
    assert rows.labels.dtype == tf.int32
    with gzip.open(tmp_path / "a.CoNLLU.gz", "wt", encoding="utf-8", newline="\r\n") as file:
        file.write(CONLLU.rstrip("\n"))
    assert READER.read(tmp_path / "a.CoNLLU.gz")[0].digest() == rows.digest()
    rows, _ = READER.read(tmp_path / "a.conllu", text_column="lemma", label_column="XPOS", labels=tuple("ENPRSV"))
    assert words_of(rows)[0] == ["ir", "nosotros", "a", "el", "mar"] and rows.labels.to_list() == [[5, 2, 0, 3, 4], [1]]


def test_column_files_have_the_word_first_and_the_label_last(tmp_path):
    document = "-DOCSTART- -X- -X- O\n\n"
    text = f"{document}EU NNP I-NP B-ORG\nrejects VBZ I-VP O\n\n\n# NN I-NP O\n{document}A NN I-NP O"
    rows, labels = READER.read(write(tmp_path / "eng.train", text))
    assert words_of(rows) == [["EU", "rejects"], ["#"], ["A"]]
    assert names_of(rows) == [["B-ORG", "O"], ["O"], ["O"]] and labels == ("B-ORG", "O")
    assert task_from_files(train=tmp_path / "eng.train", kind=KIND.name, validation=0.4).metric == "entity-f1"
    rows, labels = READER.read(tmp_path / "eng.train", text_column=4, label_column="2")
    assert words_of(rows)[0] == ["B-ORG", "O"] and labels == ("NN", "NNP", "VBZ")
    # A tab separates alone: then a word may hold a space.
    rows, _ = READER.read(write(tmp_path / "a.tsv", "13 819\tB-X\r\n%\tO\r\n \t\r\nx\tO\r\n"))
    assert words_of(rows) == [["13 819", "%"], ["x"]]


def test_a_language_before_every_word_is_taken_off_and_one_word_alone_is_no_sign_of_it(tmp_path):
    text = "en:R.H.\tB-ORG\n\nen:Saunders\tI-ORG\nen::\tO\n"
    assert words_of(READER.read(write(tmp_path / "train", text))[0]) == [["R.H."], ["Saunders", ":"]]
    for text, expected in (("re:a\tA\nb\tB\n", ["re:a", "b"]), ("a\tA\nre:b\tB\n", ["a", "re:b"])):
        assert words_of(READER.read(write(tmp_path / "b", text))[0]) == [expected]
    with pytest.raises(InputError, match="train, line 5: 'Ltd' does not begin with 'en:' as the words before it do"):
        READER.read(write(tmp_path / "train", "en:R.H.\tB\nen:S\tI\n\nen:x\tO\nLtd\tO\n"))


def test_sentences_to_predict_come_in_chunks_from_text_and_from_labelled_files(tmp_path, monkeypatch):
    path = write(tmp_path / "a.txt", "a quiet , film\nSt.\u00a0Denis\u3000x\nno\n")
    chunks = list(READER.chunks(path, chunk_rows=2))
    assert [len(chunk) for chunk in chunks] == [2, 1] and all(chunk.rows().labels is None for chunk in chunks)
    assert words_of(chunks[0].rows()) == [["a", "quiet", ",", "film"], ["St.", "Denis", "x"]]
    (chunk,) = READER.chunks(write(tmp_path / "a.conllu", CONLLU.replace("NOUN", "_")))
    assert chunk.words == ["Vamos", "nos", "a", "el", "mar", "6 000"] and chunk.counts == [5, 1]
    (chunk,) = READER.chunks(write(tmp_path / "test", "a\nb\n\nc\n"))
    assert chunk.words == ["a", "b", "c"] and chunk.counts == [2, 1]
    is_refused("a.txt, line 2: is empty; .* format='columns'", list, READER.chunks(write(path, "a\n\nb\n")))
    monkeypatch.setattr(reading, "MOST_WORDS", 3)
    with pytest.raises(InputError, match="line 6: the sentence that begins on line 3 has more than 3 words; put an"):
        list(READER.chunks(write(tmp_path / "a", "a\n\n" + "b\n" * 4)))


def test_a_mistake_is_named_with_file_line_and_fix(tmp_path):
    for name, text, options, message in (
        ("a.conllu", SENTENCE + "2\tx\tNOUN\n", {}, "line 2: has 3 columns where CoNLL-U has ten; separate them by"),
        ("a.conllu", SENTENCE * 2, {}, "line 2: the ID is 1 where 2 follows; number a sentence's words from 1, and"),
        ("a.conllu", SENTENCE.replace("NOUN", "_"), {}, "line 1: UPOS is '_', which stands for no label"),
        ("a.conllu", "# nothing\n\n", {}, "a.conllu has no words: give a file with at least one sentence"),
        ("a.conllu", SENTENCE, {"labels": UPOS[:3]}, "line 1: the label 'NOUN' is not among those of the training"),
        ("a.txt", "EU\nrejects\n", {}, "line 1: has one column; give a word and its label"),
        ("a.txt", "EU\tB-ORG\n\tO\n", {}, "line 2: the word is empty; fill it in, or remove the row"),
        ("a.txt", "EU\tO\nrejects\tO\n", {}, "a.txt has only the label 'O': training needs at least two"),
        ("a.csv", "EU\tO\n", {}, "a.csv is a table or JSON, and words are read from CoNLL-U or column files: write a"),
        ("a.conllu", SENTENCE, {"text_pair_column": "b"}, "text_pair_column='b': words have no pairs"),
        ("a.conllu", SENTENCE, {"label_column": "POS"}, "label_column is 'POS', and CoNLL-U has the columns ID, FORM,"),
        ("a.txt", SENTENCE, {"text_column": 11}, "line 1: has 10 columns, and column 11 was asked for"),
    ):
        write(tmp_path / name, text)
        with refused(message):
            READER.read(tmp_path / name, **options)


def test_sentences_that_cannot_be_used_are_counted_and_leave_no_label_behind(tmp_path):
    text = "a B-X\nb O\n\nc NEVER\nd\n\ne O\nf I-X\n"
    bad = BadRows()
    rows, labels = READER.read(write(tmp_path / "a", text), bad_rows=bad)
    assert words_of(rows) == [["a", "b"], ["e", "f"]] and labels == ("B-X", "I-X", "O")
    assert bad.count == 1 and "a, line 5: has 1 columns where the first row has 2" in bad.examples[0]
    rows, _ = READER.read(tmp_path / "a", labels=("B-X", "O"), bad_rows=bad)
    assert words_of(rows) == [["a", "b"]] and bad.count == 3 and "line 8: the label 'I-X'" in bad.examples[-1]


def test_rows_are_taken_and_told_apart():
    words, labels = [["a", "b"], ["c"], []], [[0, 1], [2], []]
    rows = word_rows(words, labels)
    assert len(rows) == 3 and words_of(rows.take([2, 0])) == [[], ["a", "b"]]
    taken = rows.take(np.array([1, 0]))
    assert taken.labels.to_list() == [[2], [0, 1]] and taken.label_names == rows.label_names
    others = [
        word_rows([["a"], ["b", "c"], []], [[0], [1, 2], []]),
        word_rows(words, [[0, 1], [1], []]),
        word_rows([["a", "b"], ["d"], []], labels),
        word_rows(words, labels, names=("A", "B", "D")),
        word_rows(words),
    ]
    assert len({rows.digest(), *(other.digest() for other in others)}) == 6
    assert word_rows(words, labels).digest() == rows.digest()


# Named tasks


def test_a_treebank_is_found_under_its_published_and_its_short_name(tmp_path):
    for name in ("UD_Spanish-GSD/es_gsd-ud-test.conllu", "ud/it_vit/dev.conllu", "ud/nl_alpino-ud-train.conllu"):
        write(tmp_path / name, CONLLU)
    assert len(load_split("ud/it_vit", "validation", data_dir=tmp_path / "ud").rows) == 2
    split = load_split("ud/es_gsd", "test", data_dir=tmp_path)
    assert split.labels == split.rows.label_names == UPOS and len(UPOS) == 17
    assert (split.kind, split.metric) == ("token-classification", "token-accuracy")
    assert names_of(split.rows) == [["VERB", "PRON", "ADP", "DET", "NOUN"], ["NUM"]]
    is_refused("'ud/nl_alpino' has no split 'validation'", load_task, "ud/nl_alpino", data_dir=tmp_path)
    write(tmp_path / "fr_ftb/test.conllu", re.sub(r"(?m)^(\d+)\t[^\t]+", r"\1\t_", CONLLU))
    for name, message in (
        ("de_gsd", "'ud/de_gsd' has no files in .*: give the folder that holds de_gsd/train.conllu"),
        ("../x", "'ud/../x' names no treebank"),
        ("fr_ftb", "every word is '_', because ud/fr_ftb is published without its text"),
    ):
        is_refused(message, load_split, f"ud/{name}", "test", data_dir=tmp_path)


ENTITY_FILES = {
    "ner/conll2003/eng.train": "EU NNP I-NP I-ORG\n. . O O\n",
    "ner/conll2003/eng.testa": "x NN I-NP O\n",
    "ner/conll2003/eng.testb": "y NN I-NP O\n",
    "wikiann/tr/train": "tr:a\tB-LOC\ntr:b\tO\n",
    "wikiann/tr/dev": "tr:c\tO\ntr:d\tO\n",
    "ner/NCBI-disease/train.txt": "a\tNN\tO\tB-Disease\n",
    "ner/NCBI-disease/dev.txt": "b\tNN\tO\tO\n",
    "ner/NCBI-disease/test.txt": "c\tNN\tO\tI-Disease\n",
    "test.txt": "a\tO\n",  # of another task, since the folders of these have files
}


def test_entity_tasks_read_the_published_layouts_with_fixed_labels(tmp_path):
    for name, text in ENTITY_FILES.items():
        write(tmp_path / name, text)
    task = load_task("ner/conll2003", data_dir=tmp_path)
    assert task.labels == ("B-LOC", "B-MISC", "B-ORG", "B-PER", "I-LOC", "I-MISC", "I-ORG", "I-PER", "O")
    assert [words_of(rows) for rows in (task.train, task.validation, task.test)] == [[["EU", "."]], [["x"]], [["y"]]]
    assert names_of(task.train) == [["I-ORG", "O"]] and task.metric == "entity-f1"
    check_metric(task.metric, kind=task.kind, labels=task.labels)
    task = load_task("ner/wikiann-tr", data_dir=tmp_path)
    assert words_of(task.train) == [["a", "b"]] and words_of(task.validation) == [["c", "d"]] and task.test is None
    assert task.labels == load_split("ner/wikiann-tr", "train", data_dir=tmp_path / "wikiann").labels
    disease = load_split("ner/ncbi-disease", "test", data_dir=tmp_path / "ner/NCBI-disease")
    assert names_of(disease.rows) == [["I-Disease"]] and disease.metric == "entity-f1"
    with pytest.raises(InputError, match="'ner/wikiann-../x' names no language"):
        load_split("ner/wikiann-../x", "test", data_dir=tmp_path / "ner")


# Windows


@pytest.mark.parametrize("name", nightly_but(["tr_imst"], ["en_ewt", "fr_sequoia", "tr_imst"]))
def test_pieces_equal_huggingfaces_for_split_words(name):
    directory = minilm_directory()
    rows, _ = READER.read(shared("ud", name, "test.conllu"))
    windows = word_windows(rows.words, WordPiece.from_directory(directory, max_length=512))
    expected = transformers.BertTokenizerFast.from_pretrained(directory)(words_of(rows), is_split_into_words=True)
    assert windows.input_ids.to_list() == expected["input_ids"]
    first = [
        [place for place, word in enumerate(words) if word is not None and word != words[place - 1]]
        for words in map(expected.word_ids, range(len(rows)))
    ]
    assert windows.position.tolist() == sum(first, [])
    assert [len(row) for row in first] == (windows.last - windows.first).tolist()


@pytest.fixture(scope="module")
def letters():
    """A WordPiece in which a word has as many pieces as letters, and digits are unknown."""
    return WordPiece(
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefgh", *("##" + letter for letter in "abcdefgh")], max_length=16
    )


def test_short_sentences_are_one_window_each(letters):
    windows = word_windows(word_rows([["ab", "c"], [], ["9", "\u200b", "a" * 20]]).words, letters)
    # A word of nothing but a control character is [UNK]; one beyond the window keeps its first pieces, here alone.
    a, c, more = 4, 6, 12
    assert windows.input_ids.to_list() == [[2, a, more + 1, c, 3], [2, 1, 1, 3], [2, a, *[more] * 13, 3]]
    assert windows.first.tolist() == [0, 2, 4] and windows.last.tolist() == [2, 4, 5]
    assert windows.position.tolist() == [1, 3, 1, 2, 1]
    assert windows.encoded["token_type_ids"].to_list() == [[0] * 5, [0] * 4, [0] * 16]
    assert word_windows(word_rows([[], []]).words, letters).input_ids.to_list() == []


def test_a_long_sentence_is_cut_between_words_with_a_third_of_the_window_in_common(letters):
    words = "abcdefgh" * 3
    windows = word_windows(word_rows([list(words)]).words, letters)
    ids = [2, *({token: place for place, token in enumerate("abcdefgh", 4)}[letter] for letter in words), 3]
    # 24 words of one piece, 14 in a window; 4 in common, but the last window reaches back to be full.
    assert windows.input_ids.to_list() == [[*ids[:15], 3], [2, *ids[11:]]]
    # Of the four words 10 to 13 two go to each: word 11 has 2 after it in the first window, 1 before it in the second.
    assert windows.first.tolist() == [0, 12] and windows.last.tolist() == [12, 24]
    assert windows.position.tolist() == [*range(1, 13), *range(3, 15)]
    # Of 19 words 4 would be in common: the last window would begin with the word 10 and have 9.
    windows = word_windows(word_rows([list(words[:19])]).words, letters)
    assert windows.input_ids.to_list()[1] == [2, *ids[6:20], 3]


@pytest.mark.parametrize("seed", range(5))
def test_every_word_belongs_to_the_window_in_which_it_has_most_context(seed):
    random = np.random.default_rng(seed)
    room = int(random.integers(1, 30))
    longest = int(random.integers(1, room + 1))
    rows = np.concatenate([[0], np.cumsum(random.integers(0, 60, 20))])
    ends = np.concatenate([[0], np.cumsum(random.integers(1, longest + 1, rows[-1]))])
    start, stop, first, last = (tensor.numpy() for tensor in _windows(ends, rows, room, room // 3))
    assert np.concatenate([np.arange(*pair) for pair in zip(first, last)]).tolist() == list(range(rows[-1]))
    assert (start <= first).all() and (first < last).all() and (last <= stop).all()
    assert (ends[stop] - ends[start] <= room).all()
    row_of = np.searchsorted(rows, np.arange(rows[-1]), side="right") - 1
    assert (row_of[start] == row_of[stop - 1]).all()
    for word in range(rows[-1]):
        context = np.minimum(ends[word] - ends[start], ends[stop] - ends[word + 1])[(start <= word) & (word < stop)]
        (own,) = np.flatnonzero((first <= word) & (word < last))
        assert min(ends[word] - ends[start[own]], ends[stop[own]] - ends[word + 1]) == context.max()
    single = np.flatnonzero((ends[rows[1:]] - ends[rows[:-1]] <= room) & (rows[1:] > rows[:-1]))
    for row in single:
        assert [rows[row], rows[row + 1]] in np.stack([start, stop], -1).tolist()


# Loss


def test_loss_is_the_mean_over_labelled_tokens_alone():
    logits = np.log(np.float32([[[0.5, 0.25, 0.25]] * 3, [[0.1, 0.1, 0.8]] * 3]))
    labels = np.int32([[-1, 0, 1], [2, -1, -1]])
    expected = -(np.log(0.5) + np.log(0.25) + np.log(0.8)) / 3
    assert KIND.losses()["loss"](labels, logits).numpy() == pytest.approx(expected, rel=1e-6)
    # A running mean counts tokens, not batches: three of the first batch and one of the second.
    (mean,) = KIND.losses()["metrics"]
    mean.update_state(labels, logits)
    mean.update_state(np.int32([[-1, -1, 2]]), logits[:1])
    assert mean.result().numpy() == pytest.approx((3 * expected - np.log(0.25)) / 4, rel=1e-6)
    assert [variable.dtype for variable in mean.variables] == [tf.float32, tf.float32]
    loss = KIND.losses()["loss"]

    @tf.function(jit_compile=True)
    def step(labels, logits):
        with tf.GradientTape() as tape:
            tape.watch(logits)
            value = loss(labels, logits)
        return value, tape.gradient(value, logits)

    # In float32 whatever the logits; of a batch without labels it is zero, and so is its gradient.
    half = tf.cast(logits, "float16")
    value, gradient = step(tf.constant(labels), half)
    assert value.numpy() == pytest.approx(expected, rel=1e-3) and np.array_equal(np.any(gradient, -1), labels >= 0)
    value, gradient = step(tf.fill([2, 3], -1), half)
    assert value.dtype == tf.float32 and value == 0 and not np.any(gradient)


# Metrics


def random_tags(names, seed):
    """Rows of labels and of logits that are right in about half of the words."""
    random = np.random.default_rng(seed)
    splits = np.concatenate([[0], np.cumsum(random.integers(0, 12, 50))])
    true = random.integers(0, len(names), splits[-1])
    predicted = np.where(random.random(splits[-1]) < 0.5, true, random.integers(0, len(names), splits[-1]))
    logits = (
        np.float32(random.normal(0, 0.1, (splits[-1], len(names))))
        + 3 * np.eye(len(names), dtype=np.float32)[predicted]
    )
    return tf.RaggedTensor.from_row_splits(tf.constant(true, tf.int32), splits), WordOutputs(logits, splits), predicted


IOBES = ("B-LOC", "B-PER", "E-PER", "I-LOC", "I-PER", "O", "S-LOC")


@pytest.mark.parametrize("metric, names", [("entity-f1", IOBES), ("token-accuracy", UPOS)])
def test_the_counts_of_rows_from_which_intervals_are_drawn_come_to_the_metric(metric, names):
    labels, outputs, predicted = random_tags(names, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        values = METRICS[metric](labels, outputs, names)
    right, found, real = METRICS[metric].counts(labels, outputs, names).sum(0)
    assert values[METRICS[metric].primary] == pytest.approx(2 * right / (found + real), abs=1e-12)
    assert 0 < right < min(found, real)
    assert values["accuracy"] == pytest.approx(np.mean(predicted == labels.flat_values), abs=1e-6)


def test_entity_f1_by_hand():
    names = ("B-X", "I-X", "O")
    labels = tf.ragged.constant([[0, 1, 2, 0], [2, 0]], dtype=tf.int32)
    # The first is found; the second begins a word too early; the last, an inside after O, counts as begun, and is
    # found.
    for predicted, f1, accuracy in (([0, 1, 0, 1, 2, 1], 2 / 3, 3 / 6), ([2] * 6, 0, 2 / 6)):
        logits = np.eye(3, dtype=np.float32)[predicted]
        values = METRICS["entity-f1"](labels, WordOutputs(logits, labels.row_splits.numpy()), names)
        assert values == pytest.approx({"f1": f1, "precision": f1, "recall": f1, "accuracy": accuracy})


def test_metrics_of_what_is_no_number_and_of_what_does_not_fit():
    labels, outputs, _ = random_tags(("A", "B"), 0)
    broken = outputs.flat.copy()
    broken[3, 0] = np.nan
    assert np.isnan(list(METRICS["token-accuracy"](labels, WordOutputs(broken, outputs.splits)).values())).all()
    with pytest.raises(InputError, match="got .* labels in 49 rows, and outputs of .* words in 50"):
        METRICS["token-accuracy"](labels[1:], outputs)


def test_the_usual_metric_follows_from_the_labels():
    for metric, names in (
        ("entity-f1", (IOBES, ("B", "I", "O"))),
        ("token-accuracy", (UPOS, ("B-PER", "O", "X"), ("O",), None)),
    ):
        for labels in names:
            assert metric_of(KIND.name, labels=labels) == metric
            check_metric(metric, kind=KIND.name, labels=labels)
    with pytest.raises(InputError, match="needs tags such as B-PER, I-PER and O, and the labels are ADJ, ADP"):
        check_metric("entity-f1", kind=KIND.name, labels=UPOS)


# Prediction


def some_sentences(rows, *, seed=0, longest=30):
    """Sentences of known words, a third of them of several windows; the label is a function of the word."""
    random = np.random.default_rng(seed)
    words = [list(random.choice([*WORDS, "goodness", "x9"], random.integers(1, longest))) for _ in range(rows)]
    return word_rows(words, [[len(word) % 3 for word in row] for row in words])


@pytest.mark.slow
def test_each_word_is_predicted_from_the_window_it_belongs_to(wordpiece, monkeypatch):
    model = tiny_model("token-classification", num_labels=3, num_hidden_layers=1)
    rows, done = some_sentences(30), []
    scorer = Scorer(model, wordpiece, batch_size=8)
    outputs = KIND.predict(scorer, rows, progress=done.append)
    assert [len(output) for output in outputs] == rows.words.row_lengths().numpy().tolist() and sum(done) == 30
    for index in range(0, len(rows), 3):
        windows = word_windows(rows.words[index : index + 1], wordpiece)
        logits = model(wordpiece.pad(windows.encoded, length=16), training=False).logits.numpy()
        own = np.repeat(np.arange(len(windows.first)), windows.last - windows.first)
        np.testing.assert_allclose(outputs[index], logits[own, windows.position], atol=1e-5)
    # However the rows are cut into chunks, and with rows that have no words.
    monkeypatch.setattr(tokens, "_CHUNK_ROWS", 7)
    empty = word_rows([[], ["good"], []])
    again, done = KIND.predict(scorer, rows), []
    np.testing.assert_allclose(again.flat, outputs.flat, atol=1e-5)
    assert [len(output) for output in KIND.predict(scorer, empty, progress=done.append)] == [0, 1, 0] and sum(done) == 3
    assert len(KIND.predict(scorer, word_rows([[]]))[0]) == 0


def test_examples_are_the_same_however_the_rows_are_cut_into_chunks(wordpiece, monkeypatch):
    rows = some_sentences(20)
    whole = KIND.examples(rows, wordpiece)
    monkeypatch.setattr(tokens, "_CHUNK_ROWS", 3)
    parts = KIND.examples(rows, wordpiece)
    for name in ("input_ids", "token_type_ids", "labels"):
        assert getattr(parts, name).to_list() == getattr(whole, name).to_list()
    inputs, labels = next(iter(training_batches(whole, wordpiece, batch_size=4, epochs=1, seed=0)))
    assert labels.shape == inputs["input_ids"].shape and not np.any((labels >= 0) & (inputs["attention_mask"] == 0))


def test_records_hold_every_word_with_its_label_and_probability():
    rows, names = word_rows([["Ärger", "b"], ["c"]]), ("B-X", "I-X", "O")
    outputs = WordOutputs(np.log(np.float32([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8], [0.2, 0.5, 0.3]])), np.array([0, 2, 3]))
    first, second = KIND.records(rows, outputs, names)
    assert (first["words"], first["labels"]) == (["Ärger", "b"], ["B-X", "O"])
    assert (second["words"], second["labels"]) == (["c"], ["I-X"])
    numbers = first["probabilities"] + second["probabilities"]
    assert numbers == pytest.approx([0.7, 0.8, 0.5], abs=1e-6) and all(type(number) is float for number in numbers)
    assert KIND.describe(rows, 0, outputs[0], names) == ("Ärger/B-X", "Ärger b")
    assert KIND.describe(rows, 0, outputs[0], ("O", "X", "O"))[0] == "(none)"


def test_interval_constant_and_classes():
    labels, outputs, predicted = random_tags(IOBES, 0)
    rows = WordRows(tf.fill(labels.flat_values.shape, "w"), labels, IOBES)
    low, high = KIND.interval("entity-f1", rows, outputs)
    assert low < METRICS["entity-f1"](labels, outputs, IOBES)["f1"] < high and high - low < 0.3
    true, found = KIND.classes(rows, outputs)
    assert true.tolist() == labels.flat_values.numpy().tolist() and found.tolist() == predicted.tolist()
    constant = KIND.constant(rows, IOBES)
    share = np.bincount(true).max() / len(true)
    assert METRICS["token-accuracy"](labels, constant, IOBES)["accuracy"] == pytest.approx(share)
    assert len(constant) == len(outputs)
