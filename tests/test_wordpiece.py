"""Tokens equal those of HuggingFace's fast tokenizer, in every place where the operations run."""

import functools
import hashlib
import json

import pytest
import tensorflow as tf
import transformers

from tests.conftest import is_refused, minilm_directory
from tests.texts import NONCHARACTERS, characters, random_texts
from tests.tokenizers import ours, theirs
from tf_adapters.text.wordpiece import KNOWN_EXCEPTIONS, WordPiece

TOY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "##ness", "bad", "a", "b", "##a", "##b", ",", "é", "e", "中"]
BERT_STEPS = {"normalizer": {"type": "BertNormalizer"}, "pre_tokenizer": {"type": "BertPreTokenizer"}}
BERT_STEPS["post_processor"] = {"type": "BertProcessing", "cls": ["[CLS]", 2], "sep": ["[SEP]", 3]}
UNCASED, CASED = {"do_lower_case": True}, {"do_lower_case": False}
ACCENTED = {"do_lower_case": True, "strip_accents": False}


def each(*settings):
    return pytest.mark.parametrize("settings", settings, ids=str)


@functools.cache
def pair_of(**settings):
    """Ours and HuggingFace's with MiniLM's vocabulary."""
    file = minilm_directory() / "vocab.txt"
    theirs = transformers.BertTokenizerFast(vocab_file=str(file), **settings)
    return WordPiece(file.read_text(encoding="utf-8").split("\n")[:-1], **settings), theirs


def assert_equal_hf(pair, texts, *, offsets=False):
    """Tokens, and perhaps their places."""
    ours, theirs = pair
    got = ours.tokenize(tf.constant(texts)).to_list()
    expected = theirs(list(texts), add_special_tokens=False, return_offsets_mapping=offsets)
    different = [one for one in zip(texts, got, expected["input_ids"]) if one[1] != one[2]]
    if offsets:
        pieces, starts, ends = ours.tokenize_with_offsets(tf.constant(texts))
        assert pieces.to_list() == got
        places = [list(zip(*row)) for row in zip(starts.to_list(), ends.to_list())]
        different += [one for one in zip(texts, places, expected["offset_mapping"]) if one[1] != one[2]]
    assert not different, f"{len(different)} of {len(texts)} differ, first (ours, HF's): {ascii(different[:3])}"


@pytest.mark.parametrize("step", [59, pytest.param(1, marks=pytest.mark.nightly)])
@each(UNCASED, CASED, ACCENTED, {"do_lower_case": False, "strip_accents": True, "tokenize_chinese_chars": False})
def test_every_so_manieth_character_is_treated_as_by_hf(settings, step):
    """Between letters, by itself, and twice after a letter that takes accents; words before the vocabulary, where no
    [UNK] hides a difference."""
    tokenizers = pytest.importorskip("tokenizers")
    ours = WordPiece(TOY, **settings)
    normalizer = tokenizers.normalizers.BertNormalizer(
        lowercase=settings["do_lower_case"],
        strip_accents=settings.get("strip_accents"),
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
    )
    splitter = tokenizers.pre_tokenizers.BertPreTokenizer()
    texts, different = [f"a{one}b A {one} é{one}{one}" for one in characters(step)], []
    for start in range(0, len(texts), 50_000):
        chunk = texts[start : start + 50_000]
        words = tf.strings.reduce_join(
            tf.RaggedTensor.from_row_lengths(*ours._words(tf.constant(chunk))), 1, separator=" "
        )
        for text, got in zip(chunk, words.numpy()):
            expected = " ".join(word for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text)))
            if got.decode().translate(NONCHARACTERS) != expected.translate(NONCHARACTERS):
                different.append((text, got.decode(), expected))
    assert not different, f"{len(different)} of {len(texts)} differ: {ascii(different[:3])}"


HARD = [
    "a\0b\x01c\x7fd\x85e\u200cf\u200dg\u00adh\ufeffi\ufffdj\ue000k",  # dropped
    "a\tb\nc\rd\u00a0e\u2028f\u3000g\u2009h",  # spaces
    "漢字とかな 中文abc中文 \U00020000\U0002b81f\U0002b820\U0002b920\uf900 한국어 텍스트",
    "Ünïcödé ÀÉÎ ǅ ß ẞ İstanbul ΣΑΣ Ὀδυσσεύς ấ e\u0301 \u0301 ½ ﬁ Ⅷ ① 🙂👍🏽",
    "don't -- $5.00 `x` ^_^ ~~ «quoted» ¿qué? …—– ।॥ ،؟ 「括弧」 #hash @user a_b <b>",
    "हिन्दी বাংলা தமிழ் ไทย ລາວ မြန်မာ עִבְרִית العَرَبِيَّة",
    "", " ", "   ", "   leading and trailing   ", "unaffable", "\u0301", " e\u0301\u0327x caf\u00e9s ",
    "\ufeffhello wor\u00adld a\u200bb", "각", "ǰ ﬃ", "🙂 unk🙂x", "中国 人abc", "tab\there\r\nnew", "Ａｂ क्षि ΐ",
    # Words of 100 characters are cut, and longer ones unknown, whatever their bytes.
    *(one * count for one in "xéж🙂中" for count in (100, 101)), "a" * 99 + "\u0301\u0301b", "가" * 33 + "a", "가" * 50,
    "x" * 150 + " y " + "é" * 101 + "z",
]  # fmt: skip
# Where no marks stand in another than the canonical order, of which offsets are a known exception.
ORDERED = [
    (32, 127), (0xA0, 0x250), (0x300, 0x315), (0x370, 0x590), (0x1E00, 0x2100), (0x4E00, 0x4F00), (0xAC00, 0xD7A4),
]  # fmt: skip


@each(UNCASED, CASED, ACCENTED)
def test_hostile_texts_equal_hf(settings):
    pair = pair_of(**settings)
    assert_equal_hf(pair, [*HARD, *random_texts(1000, 2, blocks=ORDERED)], offsets=True)
    assert_equal_hf(pair, [*(text for hard in HARD for text in ("a " + hard, hard + ".")), *random_texts(1500, 1)])


def test_the_known_exceptions_are_these_three():
    assert set(KNOWN_EXCEPTIONS) == {"special tokens in a text", "order of spacing marks", "noncharacters"}
    ours, theirs = pair_of(**UNCASED)
    assert_equal_hf((ours, theirs), ["a\ufdd0b", "a \uffff b", "\U0010fffe", "\U0008ffffa"])
    assert theirs.backend_tokenizer.normalizer.normalize_str("a\U0001d16d\u302e") == "a\u302e\U0001d16d"
    assert ours._words(tf.constant(["a\U0001d16d\u302e"]))[0].numpy()[0].decode() == "a\U0001d16d\u302e"
    text = "\u08d9\u065ce"
    assert theirs(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"] == [(1, 3)]
    assert [ragged.to_list() for ragged in ours.tokenize_with_offsets([text])[1:]] == [[[0]], [[3]]]


def test_tokens_and_offsets_by_hand():
    ours = WordPiece(TOY)
    assert ours.tokenize(["a" * 100, "a" * 101, "中", "é" * 101]).to_list() == [[7] + [9] * 99, [1], [14], [1]]
    pieces, starts, ends = ours.tokenize_with_offsets(["  Go\u0301odness,\u00e9 zz", "", "中"])
    assert pieces.to_list() == [[4, 5, 11, 13, 1], [], [14]]
    assert starts.to_list() == [[2, 7, 11, 12, 14], [], [0]]
    assert ends.to_list() == [[7, 11, 12, 13, 16], [], [1]]
    assert {ragged.dtype for ragged in (pieces, starts, ends)} == {tf.int32}
    assert [ragged.to_list() for ragged in ours.tokenize_with_offsets(tf.constant([], tf.string))] == [[], [], []]
    # Bytes that are not UTF-8 are dropped.
    texts = tf.constant([b"go\xffod", b"\xc3", b"good\xe4\xb8", b"\xed\xa0\x80bad", b"\xf8\x88\x80\x80\x80a"])
    assert ours.tokenize(texts).to_list() == [[4], [], [4], [6], [7]]


def test_padding_goes_to_the_next_multiple_and_never_beyond_max_length_and_cuts_nothing():
    ours = WordPiece(TOY, max_length=20)
    for tokens, multiple, width in [(1, 8, 8), (6, 8, 8), (7, 8, 16), (14, 8, 16), (15, 8, 20), (40, 8, 20), (3, 1, 5)]:
        padded = ours.pad(ours.encode(["a " * tokens, ""]), multiple_of=multiple)
        assert padded["input_ids"].shape == (2, width)
        assert padded["attention_mask"].numpy().sum(axis=1).tolist() == [min(tokens + 2, 20), 2]
    assert ours.pad(ours.encode(["a"]), length=17)["input_ids"].numpy().tolist() == [[2, 7, 3] + [0] * 14]
    assert ours(tf.constant([], tf.string))["input_ids"].shape == (0, 8)
    encoded = ours.encode(["a a a a"])
    assert ours.pad(encoded, length=6)["input_ids"].shape == (1, 6)
    with pytest.raises(tf.errors.InvalidArgumentError, match="longer than the length"):
        ours.pad(encoded, length=5)


def test_settings_of_a_directory_are_read(tmp_path):
    directory = minilm_directory()
    ours = WordPiece.from_directory(directory, max_length=64)
    assert (ours.do_lower_case, ours.max_length, ours.cls_id, len(ours.vocabulary)) == (True, 64, 101, 30522)
    digest = hashlib.sha256((directory / "vocab.txt").read_bytes()).hexdigest()
    assert ours.settings()["vocabulary_sha256"] == digest
    (tmp_path / "tokenizer.json").write_bytes((directory / "tokenizer.json").read_bytes())
    assert WordPiece.from_directory(tmp_path, max_length=64).settings() == ours.settings()

    (tmp_path / "vocab.txt").write_text("\r\n".join(["<pad>" if t == "[PAD]" else t for t in TOY]), "utf-8")
    given = {"do_lower_case": False, "strip_accents": True, "tokenize_chinese_chars": False}
    config = {**given, "pad_token": {"content": "<pad>", "lstrip": False}, "tokenizer_class": "ElectraTokenizer"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    settings = WordPiece.from_directory(tmp_path).settings()
    digest = settings.pop("vocabulary_sha256")
    tokens = {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "<pad>"}
    assert settings == {**given, "max_length": 128, **tokens}
    again = WordPiece(["<pad>", *TOY[1:]], **settings)
    assert again.settings()["vocabulary_sha256"] == digest
    json.dumps(again.settings())


def test_directories_that_are_not_berts_are_refused(tmp_path):
    for file, content, message in (
        ("other.txt", "", "looked for vocab.txt and tokenizer.json"),
        ("tokenizer.json", {"model": {"type": "BPE"}}, "model.type='BPE'"),
        ("tokenizer.json", {"model": {}, "normalizer": {"type": "Lowercase"}}, "normalizer.type='Lowercase'"),
        ("tokenizer.json", {"model": {}, **BERT_STEPS, "post_processor": None}, "post_processor={} .* before a text"),
        ("vocab.txt", "[PAD]\n\ud8ff\n", "not UTF-8"),
        ("tokenizer_config.json", {"tokenizer_class": "BertweetTokenizer"}, "tokenizer_class='BertweetTokenizer'"),
        ("tokenizer_config.json", {"do_lower_case": "yes"}, "do_lower_case='yes'"),
    ):
        if file == "tokenizer_config.json":
            (tmp_path / "vocab.txt").write_text("\n".join(TOY) + "\n", "utf-8")
        text = json.dumps(content) if isinstance(content, dict) else content
        (tmp_path / file).write_text(text, "utf-8", errors="surrogatepass")
        is_refused(message, WordPiece.from_directory, tmp_path)


@pytest.mark.parametrize("lowercase, strip_accents", [(False, None), (True, False)])
def test_what_transformers_5_saves_is_read_as_tokenizer_json_says(tmp_path, lowercase, strip_accents):
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    theirs = Tokenizer(models.WordPiece({token: number for number, token in enumerate(TOY)}, unk_token="[UNK]"))
    theirs.normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=strip_accents)
    theirs.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    theirs.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    theirs.save(str(tmp_path / "tokenizer.json"))
    # Of transformers 4, which go before tokenizer.json there.
    config = {"do_lower_case": not lowercase, "strip_accents": not strip_accents}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config | {"tokenizer_class": "TokenizersBackend"}))
    (tmp_path / "vocab.txt").write_text("\n".join(TOY[::-1]) + "\n", "utf-8")
    ours, texts = WordPiece.from_directory(tmp_path), ["Good \u00e9 e \u4e2d", "GOODNESS \u00c9, a b"]
    assert ours.tokenize(texts).to_list() == [one.ids for one in theirs.encode_batch(texts, add_special_tokens=False)]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config | {"tokenizer_class": "BertTokenizer"}))
    (tmp_path / "vocab.txt").unlink()
    other = WordPiece.from_directory(tmp_path)
    assert (other.do_lower_case, other.strip_accents) == (not lowercase, not strip_accents)


ENTITY = {"content": "[E1]", "special": True}


@pytest.mark.parametrize(
    "file, content",
    [
        ("added_tokens.json", {"[E1]": len(TOY)}),
        ("tokenizer_config.json", {"added_tokens_decoder": {"0": {"content": "[PAD]"}, str(len(TOY)): ENTITY}}),
        ("tokenizer.json", {"added_tokens": [{"id": len(TOY), **ENTITY}]}),
        # A word of the vocabulary, which transformers cuts out all the same.
        ("tokenizer_config.json", {"added_tokens_decoder": {"4": {"content": "[E1]", "special": False}}}),
    ],
)
def test_tokens_that_were_added_to_a_vocabulary_are_refused_wherever_they_stand(tmp_path, file, content):
    if file == "tokenizer.json":
        content = {**content, "model": {"vocab": {token: number for number, token in enumerate(TOY)}}, **BERT_STEPS}
    else:
        (tmp_path / "vocab.txt").write_text("\n".join(TOY) + "\n", "utf-8")
    (tmp_path / file).write_text(json.dumps(content))
    is_refused(r"the token '\[E1\]' was added to the vocabulary of 15 entries", WordPiece.from_directory, tmp_path)


def test_what_cannot_be_used_is_named():
    ours = WordPiece(TOY, max_length=4)
    for use, message in (
        (lambda: WordPiece([*TOY, "good"]), "'good' twice, at 4 and 15"),
        (lambda: WordPiece(TOY[1:]), r"pad_token='\[PAD\]' is not in the vocabulary"),
        (lambda: WordPiece(TOY, max_length=2), "max_length=2"),
        (lambda: ours.tokenize("good"), "wrap a single text in a list"),
        (lambda: ours.tokenize([["good"]]), r"\(batch,\)"),
        (lambda: ours.tokenize([1]), "text must be a list"),
        (lambda: ours(["a"], ["b"]), "max_length=4 has no room"),
        (lambda: ours.with_max_length(9)(["a", "b"], ["b"]), "text_pair has 1 rows and text has 2"),
        (lambda: ours.pad(ours.encode(["a"]), multiple_of=0), "multiple_of=0"),
    ):
        is_refused(message, use)


def test_the_style_of_mpnet_is_kept_and_its_tokenizer_json_alone_is_read(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(["<s>", "<pad>", "</s>", *TOY]) + "\n", "utf-8")
    mpnet = WordPiece.from_directory(tmp_path, style="mpnet").settings()
    assert mpnet["double_sep"] is True and mpnet["sep_token"] == "</s>"
    assert "double_sep" not in WordPiece.from_directory(tmp_path).settings()
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "MPNetTokenizer"}))
    is_refused("tokenizer_class='MPNetTokenizer'.* is not Bert's WordPiece", WordPiece.from_directory, tmp_path)
    theirs("mpnet").save_pretrained(tmp_path)
    (tmp_path / "vocab.txt").unlink()
    found = WordPiece.from_directory(tmp_path, style="mpnet")
    assert found.settings() == ours("mpnet").settings() and found.mask_id == 4
