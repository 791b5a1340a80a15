"""Byte-level BPE against HuggingFace's, on text of every script and on strings made to trip it."""

import json

import pytest
import tensorflow as tf

from tests.conftest import is_refused
from tests.texts import NONCHARACTERS
from tests.texts import random_texts as drawn_texts
from tests.tokenizers import content_of, directory
from tf_adapters.text import ByteLevelBpe

HARD = [
    "", " ", "  lead", "trail  ", "it's  John's   dog\n\n we'll 'tis ''s 's's", "'sabc 'd1 'll't I'VE i've're", " 's",
    " \n's", "!'s", "tab\t\tx \t y", "a\u00a0b \u00a0c \u3000x\u3000\u3000y", "\u0966\u096c 12ab\u00bd",
    "aaaa aaaaaaaaa", "\ufdd0 \U0001f600\U0001f600 ok \u0301x", "a\U0001fffe film", "\uffff\ufdd0good \U0010ffff",
]  # fmt: skip
PARTS = [
    *" \n\t'st!-", "  ", "re", "ll", "ve", "m", "d", "a", "B", "\u00e9", "1", "\u0968", "\u00a0", "\u2003", "\u4e2d",
    "\U0001f600", "\u0301", "the", " film",
]  # fmt: skip


@pytest.fixture(scope="module")
def files():
    """Files of a small tokenizer that `tokenizers` trained."""
    from tokenizers import Tokenizer

    folder = directory("roberta")
    return folder, Tokenizer.from_file(str(folder / "tokenizer.json"))


def random_texts(count, seed=0):
    return drawn_texts(count, seed, parts=PARTS, share=1.0, longest=14)


def ids_of(tokenizer, texts):
    # Special tokens in a text are plain text here.
    return [encoding.ids for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]


def check(bpe, tokenizer, texts):
    # See `ByteLevelBpe`: TensorFlow 2.19 cannot write them.
    replaced = tf.strings.unicode_encode([0xFDD0], "UTF-8").numpy() != "\ufdd0".encode()
    expected = [text.translate(NONCHARACTERS) if replaced else text for text in texts]
    expected = tokenizer.encode_batch(expected, add_special_tokens=False)
    tokens, starts, ends = bpe.tokenize_with_offsets(texts)
    for text, encoding, ids, first, last in zip(texts, expected, tokens.to_list(), starts.to_list(), ends.to_list()):
        assert ids == encoding.ids, repr(text)
        assert list(zip(first, last)) == encoding.offsets, repr(text)
    assert bpe.tokenize(texts).to_list() == tokens.to_list()


def test_tokens_and_their_places_are_huggingfaces(files):
    folder, tokenizer = files
    check(ByteLevelBpe.from_directory(folder), tokenizer, [*HARD, *random_texts(1500)])


def test_every_character_is_cut_as_huggingface_cuts_it(files):
    folder, tokenizer = files
    code_points = [*range(0x20, 0x3400), *range(0xA000, 0xB000), *range(0x1D400, 0x1D800), *range(0x1F100, 0x1F700)]
    texts = ["a" + "".join(map(chr, code_points[first : first + 3])) + " b" for first in range(0, len(code_points), 3)]
    assert ByteLevelBpe.from_directory(folder).tokenize(texts).to_list() == ids_of(tokenizer, texts)


def test_special_tokens_are_plain_text_and_bytes_that_are_not_utf8_replacement_characters(files):
    folder, tokenizer = files
    bpe = ByteLevelBpe.from_directory(folder)
    (ids,) = bpe.tokenize(["</s> good <s>"]).to_list()
    assert not {bpe.cls_id, bpe.sep_id} & set(ids)
    assert bpe.tokenize(tf.constant([b"good \xff film"])).to_list() == ids_of(tokenizer, ["good \ufffd film"])


def test_spaces_are_read_before_words_and_where_the_tokenizer_says_so_before_texts(files, tmp_path):
    from tokenizers import Tokenizer

    folder, tokenizer = files
    bpe = ByteLevelBpe.from_directory(folder)
    assert bpe.tokenize_words(["film", "great", ","]).to_list() == ids_of(tokenizer, [" film", " great", " ,"])
    content = content_of(folder)
    content["pre_tokenizer"]["add_prefix_space"] = True
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    texts, theirs = ["film", " film", "", "\nfilm", "it's"], Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for config, wanted in (({"tokenizer_class": "TokenizersBackend"}, theirs), ({}, tokenizer)):
        # transformers 4 asks tokenizer_config.json, where False is the default.
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
        assert ByteLevelBpe.from_directory(tmp_path).tokenize(texts).to_list() == ids_of(wanted, texts)


def test_vocab_and_merges_make_the_same_tokenizer(files, tmp_path):
    content = content_of(files[0])["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(content["vocab"]))
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in content["merges"]]
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n", encoding="utf-8")
    one, other = ByteLevelBpe.from_directory(files[0]), ByteLevelBpe.from_directory(tmp_path)
    assert one.settings() == other.settings()
    assert one.tokenize(HARD).to_list() == other.tokenize(HARD).to_list()


def test_the_files_of_transformers_5_are_read_and_added_tokens_are_refused(files, tmp_path):
    content = content_of(files[0])
    special = {name: {"SpecialToken": {"id": name, "type_id": 0}} for name in ("<s>", "</s>")}
    begin, end, text = special["<s>"], special["</s>"], {"Sequence": {"id": "A", "type_id": 0}}
    pair = [begin, text, end, end, {"Sequence": {"id": "B", "type_id": 0}}, end]
    content["post_processor"] = {"type": "TemplateProcessing", "single": [begin, text, end], "pair": pair}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "TokenizersBackend"}))
    assert ByteLevelBpe.from_directory(tmp_path).settings() == ByteLevelBpe.from_directory(files[0]).settings()
    del pair[2]
    for change in ({"post_processor": content["post_processor"]}, {"post_processor": {"type": "ByteLevel"}}):
        (tmp_path / "tokenizer.json").write_text(json.dumps(content | change))
        is_refused("post_processor=.* must put a token before a .* 2 between", ByteLevelBpe.from_directory, tmp_path)
    content = content_of(files[0])
    size = len(content["model"]["vocab"])
    content["added_tokens"].append({"id": size, "content": "<e1>", "special": True})
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    is_refused(f"the token '<e1>' was added to the vocabulary of {size} entries", ByteLevelBpe.from_directory, tmp_path)


def test_other_tokenizers_are_refused(files, tmp_path):
    for change, message in (
        (lambda c: c["model"].update(type="Unigram"), "model.type='Unigram'"),
        (lambda c: c["pre_tokenizer"].update(type="Metaspace"), "pre_tokenizer.type='Metaspace'"),
        (lambda c: c["model"]["merges"].append(["the", "nothing"]), "must be two tokens of the vocabulary"),
        (lambda c: c["model"]["merges"].append(c["model"]["merges"][0]), "must hold each pair of tokens once"),
        (lambda c: c["model"]["vocab"].pop("\u0120"), "lacks|must map its tokens"),
        (lambda c: c.update(normalizer={"type": "NFC"}), "normalizer="),
    ):
        content = content_of(files[0])
        change(content)
        (tmp_path / "tokenizer.json").write_text(json.dumps(content))
        is_refused(message, ByteLevelBpe.from_directory, tmp_path)
    is_refused("holds no byte-level BPE", ByteLevelBpe.from_directory, tmp_path / "nothing")
