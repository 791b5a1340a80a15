"""SentencePiece against HuggingFace's tokenizers of four families, with models that are trained here, and models of
strangers: what would end the process in the library that reads them next is refused before."""

import dataclasses
import functools
import hashlib
import json
import random
import struct
import unicodedata

import numpy as np
import pytest
import tensorflow as tf
import transformers

from tests.conftest import WORDS, is_refused
from tests.families import family_model, write_family_checkpoint
from tests.texts import NONCHARACTERS, characters
from tests.texts import random_texts as drawn_texts
from tests.tokenizers import FOREIGN, SENTENCEPIECE, directory, sentencepiece_model
from tf_adapters import load_backbone, load_tokenizer
from tf_adapters.errors import InputError
from tf_adapters.text import SentencePiece, sentencepiece_files
from tf_adapters.text.sentencepiece import KNOWN_EXCEPTIONS, LAYOUTS
from tf_adapters.text.sentencepiece_files import CONTROL, NORMAL, UNKNOWN, USER_DEFINED, Model, Piece

EACH = pytest.mark.parametrize("family", SENTENCEPIECE)
HARD = [
    "", " ", "  lead", "trail  ", "a  film\t\twas \n\n good", "\u3000x\u3000y\u00a0z",
    "\u00bd \u2026 \u338e \ufb01 \u2167 \uff11\uff0c\uff10", "e\u0301a\u0301 x\u0301", "\u2581a \u2581 b\u2581",
    "a\x10b\x10 c \x10", "``quote'' ''''' `x` '''", 'don\'t (stop)-now. "q" \u00a35 \u2013', "1,000, 9,9 5, 10,",
    "\u4e2d\u6587 \u4e2d \u6f22\u5b57", "\U0001f642\U0001f642 ok\ufe0f \ufdfa", "\u0130stanbul \u1e9e",
    "\u200b\u200c\u200d\ufeff\u00ad x", "a\u2028b\u0085c\x0bd\x1ce", "\u00a8 \u00b4",
    "UPPER Case \u039f\u0394\u039f\u03a3 \u03a3", "x" * 300, "\u0e44\u0e17\u0e22", "a\u0301\u0327\u0323 o\u0308\u0304",
]  # fmt: skip


@functools.cache
def trio(family, **settings):
    """Ours, HuggingFace's Python tokenizer, and its fast one."""
    classes = (getattr(transformers, f"{SENTENCEPIECE[family]}Tokenizer{end}") for end in ("", "Fast"))
    both = (each(str(directory(family) / LAYOUTS[family].file), **settings) for each in classes)
    return SentencePiece(sentencepiece_model(family), layout=family, **settings), *both


def ids_of(tokenizer, texts):
    return tokenizer(list(texts), add_special_tokens=False)["input_ids"]


def assert_tokens_equal(ours, theirs, texts):
    expected = ids_of(theirs, texts)
    found, starts, ends = ours.tokenize_with_offsets(texts)
    different = [one for one in zip(texts, found.to_list(), expected) if one[1] != one[2]]
    assert not different, f"{len(different)} of {len(texts)} differ, first (ours, HF's): {ascii(different[:2])}"
    assert ours.tokenize(texts).to_list() == found.to_list()
    for text, begin, end in zip(texts, starts.to_list(), ends.to_list()):
        assert all(0 <= one <= other <= len(text) for one, other in zip(begin, end)), ascii(text)
        assert begin == sorted(begin) and end == sorted(end), ascii(text)


def ordinary(count, seed=0):
    """Words and marks with one space between."""
    chooser = random.Random(seed)
    words = [*WORDS, *FOREIGN[:4], "Unseen", "caf\u00e9", "!", "x.y"]
    return [" ".join(chooser.choices(words, k=chooser.randint(1, 12))) for _ in range(count)]


def random_texts(count):
    return drawn_texts(count, 1, parts=[*WORDS, *FOREIGN, " ", "  "], longest=25)


@pytest.mark.parametrize(
    "family, settings",
    [
        *((family, {}) for family in SENTENCEPIECE),
        ("albert", {"do_lower_case": False}), ("albert", {"keep_accents": True}), ("albert", {"remove_space": False}),
        ("deberta-v2", {"do_lower_case": True}), ("deberta-v2", {"split_by_punct": True}),
    ],
)  # fmt: skip
def test_tokens_are_those_of_huggingfaces_python_tokenizer(family, settings):
    ours, theirs, _ = trio(family, **settings)
    texts = [*HARD, *ordinary(200), *random_texts(600)]
    assert_tokens_equal(ours, theirs, texts)
    broken = ours.tokenize(tf.constant([b"good \xff film", b"\xe4\xb8"])).to_list()
    assert broken == ids_of(theirs, ["good \ufffd film", "\ufffd"])
    if settings:
        assert ours.tokenize(texts).to_list() != trio(family)[0].tokenize(texts).to_list()


@EACH
@pytest.mark.parametrize("step", [59, pytest.param(1, marks=pytest.mark.nightly)])
def test_every_so_manieth_character_is_cut_as_huggingface_cuts_it(family, step):
    ours, theirs, _ = trio(family)
    tried = [one for one in characters(step)[1:] if ord(one) not in NONCHARACTERS]
    texts = [f"a{one}film {one} 9{one}{one}" for one in tried]
    if family == "albert":  # See KNOWN_EXCEPTIONS["sigma of mathematical alphabets"].
        texts = [text for text in texts if "\u03a3" not in unicodedata.normalize("NFKD", text.lower())]
        assert len(texts) >= len(tried) - 5
    for start in range(0, len(texts), 50_000):
        assert_tokens_equal(ours, theirs, texts[start : start + 50_000])


def without_space(text, places):
    """Offsets without the white space that HuggingFace counts in."""
    trimmed = []
    for start, end in places:
        while start < end and text[start].isspace():
            start += 1
        trimmed.append((start, end))
    return trimmed


@EACH
def test_tokens_and_offsets_are_the_fast_tokenizers_in_ordinary_sentences(family):
    ours, _, fast = trio(family)
    texts = ordinary(400)
    expected = fast(texts, add_special_tokens=False, return_offsets_mapping=True)
    found, starts, ends = ours.tokenize_with_offsets(texts)
    assert found.to_list() == expected["input_ids"]
    places = [list(zip(*row)) for row in zip(starts.to_list(), ends.to_list())]
    assert places == [without_space(text, row) for text, row in zip(texts, expected["offset_mapping"])]


def test_offsets_are_characters_of_the_original_text():
    ours, _, _ = trio("albert")

    def parts(text):
        _, starts, ends = ours.tokenize_with_offsets([text])
        return [text[start:end] for start, end in zip(starts.to_list()[0], ends.to_list()[0])]

    # The mark that is dropped after the first e lies between two tokens.
    assert "".join(parts("  the  E\u0301t\u00c9 \u200b")) == "theEt\u00c9"
    quoted = parts("``good''")
    assert quoted[0] == "``" and quoted[-1] == "''" and "".join(quoted).strip("`'") == "good"


def test_the_known_exceptions_are_these():
    assert set(KNOWN_EXCEPTIONS) == {
        "special tokens in a text", "fast tokenizers", "digits before a comma", "sigma of mathematical alphabets",
        "offsets", "noncharacters",
    }  # fmt: skip
    for family, settings, texts in (
        ("xlm-roberta", {}, ["\u1025\u102e"]),
        ("albert", {}, ["good ", "(a)", "a\ufe0f"]),
        ("deberta-v2", {"split_by_punct": True}, ["a\u2026"]),
    ):
        ours, slow, fast = trio(family, **settings)
        for text in texts:
            assert ids_of(fast, [text]) != ids_of(slow, [text]) == ours.tokenize([text]).to_list()
    assert ours.tokenize(["a\ufdd0b"]).to_list() in (ids_of(slow, ["a\ufdd0b"]), ids_of(slow, ["a\ufffdb"]))


def test_special_tokens_that_a_user_of_sentencepiece_defined_are_plain_text_too():
    for family in SENTENCEPIECE:
        model, sep = Model.read(sentencepiece_model(family)), LAYOUTS[family].tokens[1]
        pieces = tuple(
            dataclasses.replace(piece, kind=USER_DEFINED) if piece.text == sep else piece for piece in model.pieces
        )
        ours = SentencePiece(dataclasses.replace(model, pieces=pieces).encoded(), layout=family)
        (ids,) = ours.tokenize([f"a {sep} b"]).to_list()
        assert ours.sep_id not in ids


@pytest.mark.parametrize(
    "family, settings",
    [
        *((family, {}) for family in SENTENCEPIECE),
        ("albert", {"do_lower_case": False, "keep_accents": True}),
        ("deberta-v2", {"do_lower_case": True, "split_by_punct": True}),
    ],
)
def test_tokenizer_json_alone_is_read_as_transformers_5_saves_it(tmp_path, family, settings):
    ours, _, fast = trio(family, **settings)
    fast.backend_tokenizer.save(str(tmp_path / "tokenizer.json"))
    # What the class says of lower case is not asked, and neither is a file that lies there as well.
    config = {"tokenizer_class": "TokenizersBackend", "do_lower_case": not settings.get("do_lower_case", True)}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / LAYOUTS[family].file).write_bytes(b"another")
    found = SentencePiece.from_directory(tmp_path, layout=family)
    texts = [*HARD, *ordinary(99), *random_texts(500)]
    assert found.tokenize(texts).to_list() == ours.tokenize(texts).to_list()
    for name in ("size", "cls_id", "sep_id", "pad_id", "unk_id", "mask_id"):
        assert getattr(found, name) == getattr(ours, name)
    written, _, _ = sentencepiece_files.read_tokenizer_json(tmp_path / "tokenizer.json", LAYOUTS[family])
    scores = {piece.text: piece.score for piece in Model.read(written).pieces}
    for piece in Model.read(sentencepiece_model(family)).pieces:
        assert piece.kind != NORMAL or abs(scores[piece.text] - piece.score) < 1e-4
    known = {name: value for name, value in ours.settings().items() if name != "model_sha256"}
    assert found.settings().items() >= known.items()

    content = json.loads((tmp_path / "tokenizer.json").read_text("utf-8"))
    added = {"id": ours.size + 1, "content": "<e1>", "special": True}
    for change, message in (
        (lambda c: c["added_tokens"].append(added), f"the token '<e1>' was added to the vocabulary of {ours.size} "),
        (lambda c: c["model"].update(type="BPE"), "model.type='BPE' .* must be 'Unigram'"),
        (lambda c: c["normalizer"]["normalizers"].append({"type": "NFC"}), "normalizer: {'type': 'NFC'}"),
        (lambda c: c["model"]["vocab"].insert(0, ["x", 0]), r"model.vocab\[\d\] .* must be"),
        (lambda c: c["model"].update(vocab=[[1]]), "no complete tokenizer"),
        (lambda c: c.update(pre_tokenizer={"type": "Whitespace"}), "pre_tokenizer="),
        (lambda c: c.update(post_processor=None), "post_processor={} .* before a text"),
    ):
        changed = json.loads(json.dumps(content))
        change(changed)
        (tmp_path / "tokenizer.json").write_text(json.dumps(changed))
        is_refused(message, SentencePiece.from_directory, tmp_path, layout=family)


def test_a_directory_that_is_not_the_familys_is_refused(tmp_path):
    with pytest.raises(InputError, match="holds no spm.model, SentencePiece's own model"):
        SentencePiece.from_directory(tmp_path, layout="deberta-v2")
    is_refused("layout='bert' is unknown", SentencePiece.from_directory, tmp_path, layout="bert")
    for layout, family, message in (
        ("camembert", "albert", "sentencepiece.bpe.model: model begins with the pieces"),
        ("deberta-v2", "xlm-roberta", r"spm.model: model lacks '\[CLS\]'"),
    ):
        (tmp_path / LAYOUTS[layout].file).write_bytes(sentencepiece_model(family))
        is_refused(message, SentencePiece.from_directory, tmp_path, layout=layout)
    (tmp_path / "spm.model").write_bytes(sentencepiece_model("deberta-v2"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"sep_token": {"content": "</s>"}}))
    is_refused("sep_token='</s>'", SentencePiece.from_directory, tmp_path, layout="deberta-v2")


def test_settings_and_the_models_digest_are_kept(tmp_path):
    content = sentencepiece_model("albert")
    (tmp_path / "spiece.model").write_bytes(content)
    config = {"tokenizer_class": "AlbertTokenizerFast", "keep_accents": True, "sep_token": "[SEP]"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    ours = SentencePiece.from_directory(tmp_path, layout="albert", max_length=64)
    of_text = {"do_lower_case": True, "keep_accents": True, "remove_space": True, "max_length": 64}
    digest = {"model_sha256": hashlib.sha256(content).hexdigest()}
    assert ours.settings() == {"tokenizer": "sentencepiece", "layout": "albert", **of_text, **digest}
    with pytest.raises(InputError, match="split_by_punct=True is no setting of albert: it has do_lower_case, keep_acc"):
        SentencePiece(content, layout="albert", split_by_punct=True)


def test_the_tokenizer_of_an_encoder_is_found_and_checked(tmp_path):
    directory, content = tmp_path, sentencepiece_model("xlm-roberta")
    size = SentencePiece(content, layout="xlm-roberta").size + 1
    write_family_checkpoint(family_model("xlm-roberta", vocab_size=size, num_hidden_layers=1), directory, bare=True)
    (directory / "sentencepiece.bpe.model").write_bytes(content)
    model = load_backbone(directory)
    expected = SentencePiece.from_directory(directory, layout="xlm-roberta", max_length=9)
    assert load_tokenizer(model, max_length=9).settings() == expected.settings()
    content = Model.read(content)
    pieces = (*content.pieces, *(Piece(f"more{number}", -3.0, NORMAL) for number in range(9)))
    (directory / "sentencepiece.bpe.model").write_bytes(dataclasses.replace(content, pieces=pieces).encoded())
    is_refused("give the files that belong together", load_tokenizer, model)
    (directory / "sentencepiece.bpe.model").unlink()
    is_refused("holds no sentencepiece.bpe.model", load_tokenizer, model)


# Models of strangers

# trainer_spec with model_type UNIGRAM, normalizer_spec with the name "identity".
REST = b"\x12\x02\x18\x01" + b"\x1a\x0a\x0a\x08identity"
PIECES = (
    Piece("<unk>", 0.0, UNKNOWN),
    Piece("<s>", 0.0, CONTROL),
    Piece("</s>", 0.0, CONTROL),
    Piece("\u2581a", -1.0, NORMAL),
)


def varint(value):
    return bytes([value & 127 | 128]) + varint(value >> 7) if value > 127 else bytes([value])


def with_table(table, field=b"\x1a"):
    spec = b"\x12" + varint(len(table)) + table
    return Model(PIECES, REST + field + varint(len(spec)) + spec).encoded()


def table(units, strings=b"a\0"):
    content = np.zeros(256, "<u4")
    content[: len(units)] = units
    return struct.pack("<I", 1024) + content.tobytes() + strings


def test_a_whole_model_and_a_table_of_characters_that_stays_within_itself_are_read():
    model = Model(PIECES, REST)
    assert Model.read(model.encoded()) == model
    assert SentencePiece(model.encoded(), layout="xlm-roberta").tokenize(["a a"]).to_list() == [[4, 4]]
    # 0 leads to the 97 ("a"), which has the value at 97 ^ 1 = 96: 0, the string "a".
    units = np.zeros(256, np.uint32)
    units[97], units[96] = 97 | 256 | 1 << 10, 1 << 31
    for content in (b"", table([]), table(units)):
        assert Model.read(with_table(content))
    assert SentencePiece(with_table(table(units)), layout="xlm-roberta").tokenize(["a"]).to_list() == [[4]]


def test_what_is_no_model_or_ends_the_process_in_the_library_is_refused(tmp_path):
    """Pieces that cannot be one, numbers without an end, and tables that are cut off or lead out of themselves."""
    changes = [{"text": "\0"}, {"text": "a\0b"}, {"text": ""}, *({"kind": kind} for kind in (0, 7, 127))]
    changes += [{"score": score} for score in (np.nan, np.inf, -np.inf)]
    pieces = [dataclasses.replace(Piece("b", -2.0, NORMAL), **change) for change in changes]
    damaged = [Model((*PIECES, piece), REST).encoded() for piece in pieces]
    damaged.append(Model(PIECES, REST).encoded() + b"\x80" * 100_000 + b"\x01")
    tables = [b"\0", b"\0\0\0\0" + b"a\0", struct.pack("<I", 2**32 - 1) + bytes(1024), struct.pack("<I", 4) + bytes(8)]
    tables += [table([], b""), table([], b"a"), table([1 << 10 << 8 | 512]), table([0, 97 | 256 << 10])]
    tables += [table([2 << 10 | 256, 0, 1 << 31 | 2]), table([2 << 10 | 256, 0, 7])]
    # Of the normalizer and of the denormalizer.
    damaged += [with_table(content, field) for content in tables for field in (b"\x1a", b"\x2a")]
    # Files that are cut off, and of another kind.
    whole = [sentencepiece_model(family) for family in ("xlm-roberta", "albert", "deberta-v2")]
    damaged += [file[: int(len(file) * cut)] for file in whole for cut in (0, 0.02, 0.5, 0.99)]
    damaged += [b"\xff" * 50, b"<html></html>", b"version https://git-lfs.github.com/spec/v1\noid sha256:1", bytes(99)]
    for content in damaged:
        is_refused("model is damaged, or no SentencePiece model", Model.read, content)
    (tmp_path / "spiece.model").write_bytes(damaged[0])
    is_refused("spiece.model: model is damaged", SentencePiece.from_directory, tmp_path, layout="albert")
