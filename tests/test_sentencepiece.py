"""SentencePiece against HuggingFace's tokenizers of four families, with models that are trained here."""

import dataclasses
import hashlib
import io
import json
import random
import unicodedata

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import SHARED, WORDS
from tests.families import family_model, write_family_checkpoint
from tf_adapters import SentencePiece, load_backbone, load_tokenizer
from tf_adapters._keras import keras
from tf_adapters.errors import InputError
from tf_adapters.text.sentencepiece import KNOWN_EXCEPTIONS, LAYOUTS
from tf_adapters.text.sentencepiece_files import NORMAL, USER_DEFINED, Model, Piece, read_tokenizer_json
from tf_adapters.text.windows import word_windows

CLASSES = {"xlm-roberta": "XLMRoberta", "camembert": "Camembert", "albert": "Albert", "deberta-v2": "DebertaV2"}


EACH = pytest.mark.parametrize("family", CLASSES)
FOREIGN = [
    "\u00e9t\u00e9", "stra\u00dfe", "\u043a\u0438\u043d\u043e", "\u4e2d\u6587",
    "\u0939\u093f\u0928\u094d\u0926\u0940", "\u1006\u1025\u102e\u1038", "\uc601\ud654", "1,000", "9,9",
    "\u03bf\u03b4\u03cc\u03c2 \u03c3\u03ac\u03c2", "'s", "(a)",
]  # fmt: skip
# How each family's model is trained: its own special pieces.
TRAINING = {
    "xlm-roberta": {},
    "albert": dict(
        pad_id=0, unk_id=1, bos_id=-1, eos_id=-1, control_symbols="[CLS],[SEP]", user_defined_symbols='(,),",-,[MASK]'
    ),
    "deberta-v2": dict(
        pad_id=0,
        bos_id=1,
        eos_id=2,
        unk_id=3,
        pad_piece="[PAD]",
        bos_piece="[CLS]",
        eos_piece="[SEP]",
        unk_piece="[UNK]",
    ),
}
HARD = [
    "",
    " ",
    "  lead",
    "trail  ",
    "a  film\t\twas \n\n good",
    "\u3000x\u3000y\u00a0z",
    "\u00bd \u2026 \u338e \ufb01 \u2167 \uff11\uff0c\uff10",
    "e\u0301a\u0301 x\u0301",
    "\u2581a \u2581 b\u2581",
    "a\x10b\x10 c \x10",
    "``quote'' ''''' `x` '''",
    'don\'t (stop)-now. "q" \u00a35 \u2013',
    "1,000, 9,9 5, 10,",
    "\u4e2d\u6587 \u4e2d \u6f22\u5b57",
    "\U0001f642\U0001f642 ok\ufe0f \ufdfa",
    "\u0130stanbul \u1e9e",
    "\u200b\u200c\u200d\ufeff\u00ad x",
    "a\u2028b\u0085c\x0bd\x1ce",
    "\u00a8 \u00b4",
    "UPPER Case \u039f\u0394\u039f\u03a3 \u03a3",
    "x" * 300,
    "\u0e44\u0e17\u0e22",
    "a\u0301\u0327\u0323 o\u0308\u0304",
]


def train(**settings):
    """A SentencePiece model, bytes."""
    sentencepiece = pytest.importorskip("sentencepiece")
    chooser, written = random.Random(0), io.BytesIO()
    words = [*WORDS, *map(str.capitalize, WORDS), *3 * FOREIGN]
    lines = (" ".join(chooser.choices(words, k=9)) + chooser.choice([".", "!", ", 1,000, 9, 9,"]) for _ in range(600))
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=lines, model_writer=written, vocab_size=240, hard_vocab_limit=False,
        normalization_rule_name="nmt_nfkc", minloglevel=2, **settings,
    )  # fmt: skip
    return written.getvalue()


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A folder with the model's file of each family."""
    folder, models = (
        tmp_path_factory.mktemp("sentencepiece"),
        {family: train(**settings) for family, settings in TRAINING.items()},
    )
    models["camembert"] = models["xlm-roberta"]
    for family, content in models.items():
        (folder / family).mkdir()
        (folder / family / LAYOUTS[family].file).write_bytes(content)
    return {family: folder / family for family in models}


@pytest.fixture(scope="module")
def tokenizers_of(folders):
    """(ours, HuggingFace's Python one, its fast one) of a family, made once for each."""
    import transformers

    made = {}

    def make(family, **settings):
        key = family, tuple(settings.items())
        if key not in made:
            file = folders[family] / LAYOUTS[family].file
            theirs = (
                getattr(transformers, f"{CLASSES[family]}Tokenizer{end}")(str(file), **settings) for end in ("", "Fast")
            )
            made[key] = SentencePiece(file.read_bytes(), layout=family, **settings), *theirs
        return made[key]

    return make


def ids_of(tokenizer, texts):
    return tokenizer(list(texts), add_special_tokens=False)["input_ids"]


def assert_tokens_equal(ours, theirs, texts):
    expected = ids_of(theirs, texts)
    found, starts, ends = ours.tokenize_with_offsets(texts)
    different = [one for one in zip(texts, found.to_list(), expected) if one[1] != one[2]]
    assert not different, (
        f"{len(different)} of {len(texts)} differ, first (text, ours, HuggingFace's): {ascii(different[:2])}"
    )
    assert ours.tokenize(texts).to_list() == found.to_list()
    for text, begin, end in zip(texts, starts.to_list(), ends.to_list()):
        assert all(0 <= one <= other <= len(text) for one, other in zip(begin, end)), ascii(text)
        assert begin == sorted(begin) and end == sorted(end), ascii(text)


def ordinary(count, seed=0):
    """Words and marks with one space between."""
    chooser = random.Random(seed)
    words = [*WORDS, *FOREIGN[:4], "Unseen", "caf\u00e9", "!", "x.y"]
    return [" ".join(chooser.choices(words, k=chooser.randint(1, 12))) for _ in range(count)]


def random_texts(count, seed=1):
    chooser = random.Random(seed)
    blocks = [
        (32, 127),
        (32, 127),
        (0, 0x250),
        (0x300, 0x370),
        (0x400, 0x600),
        (0x900, 0xE00),
        (0x1000, 0x10A0),
        (0x1E00, 0x2100),
        (0x2000, 0x2070),
        (0x3000, 0x3100),
        (0x4E00, 0x4F00),
        (0xAC00, 0xAD00),
        (0x1F600, 0x1F650),
    ]

    def part():
        if chooser.random() < 0.4:
            return chooser.choice([*WORDS, *FOREIGN, " ", "  "])
        return chr(chooser.randrange(*chooser.choice(blocks)))

    return ["".join(part() for _ in range(chooser.randint(0, 25))) for _ in range(count)]


# See KNOWN_EXCEPTIONS["noncharacters"].
NONCHARACTERS = {
    *range(0xFDD0, 0xFDF0),
    *(plane + last for plane in range(0, 0x110000, 0x10000) for last in (0xFFFE, 0xFFFF)),
}


def every_character(step=1):
    for code_point in range(1, 0x110000, step):
        if not 0xD800 <= code_point < 0xE000 and code_point not in NONCHARACTERS:
            character = chr(code_point)
            yield f"a{character}film {character} 9{character}{character}"


@EACH
def test_tokens_are_those_of_huggingfaces_python_tokenizer(tokenizers_of, family):
    ours, theirs, _ = tokenizers_of(family)
    assert_tokens_equal(ours, theirs, [*HARD, *ordinary(200), *random_texts(1500)])


SETTINGS = pytest.mark.parametrize(
    "family, settings",
    [
        ("albert", {"do_lower_case": False}), ("albert", {"keep_accents": True}), ("albert", {"remove_space": False}),
        ("deberta-v2", {"do_lower_case": True}), ("deberta-v2", {"split_by_punct": True}),
    ],
)  # fmt: skip


@SETTINGS
def test_settings_of_the_directory_act_as_in_huggingfaces(tokenizers_of, family, settings):
    ours, theirs, _ = tokenizers_of(family, **settings)
    texts = [*HARD, *ordinary(200), *random_texts(800)]
    assert_tokens_equal(ours, theirs, texts)
    other = tokenizers_of(family)[0]
    assert ours.tokenize(texts).to_list() != other.tokenize(texts).to_list()


@EACH
def test_every_59th_character_is_cut_as_huggingface_cuts_it(tokenizers_of, family):
    ours, theirs, _ = tokenizers_of(family)
    assert_tokens_equal(ours, theirs, list(every_character(59)))


@EACH
@pytest.mark.nightly
def test_every_character_is_cut_as_huggingface_cuts_it(tokenizers_of, family):
    ours, theirs, _ = tokenizers_of(family)
    texts = list(every_character())
    if family == "albert":  # See KNOWN_EXCEPTIONS["sigma of mathematical alphabets"].
        texts = [text for text in texts if "\u03a3" not in unicodedata.normalize("NFKD", text.lower())]
        assert len(texts) == len(list(every_character())) - 5
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
def test_tokens_and_offsets_are_the_fast_tokenizers_in_ordinary_sentences(tokenizers_of, family):
    ours, _, fast = tokenizers_of(family)
    texts = ordinary(400)
    expected = fast(texts, add_special_tokens=False, return_offsets_mapping=True)
    found, starts, ends = ours.tokenize_with_offsets(texts)
    assert found.to_list() == expected["input_ids"]
    places = [list(zip(*row)) for row in zip(starts.to_list(), ends.to_list())]
    assert places == [without_space(text, row) for text, row in zip(texts, expected["offset_mapping"])]


@EACH
def test_special_ids_and_rows_with_truncation_are_huggingfaces(tokenizers_of, family):
    ours, slow, fast = tokenizers_of(family)
    for theirs in (slow, fast):
        expected = theirs.cls_token_id, theirs.sep_token_id, theirs.pad_token_id, theirs.unk_token_id
        assert (ours.cls_id, ours.sep_id, ours.pad_id, ours.unk_id) == expected
    assert ours.size <= len(slow)
    chooser = random.Random(3)
    first, second = ([" ".join(chooser.choices(WORDS, k=chooser.randint(0, 20))) for _ in range(200)] for _ in range(2))
    for max_length in (6, 7, 24):
        shorter = ours.with_max_length(max_length)
        for texts in ([first], [first, second]):
            expected = fast(
                *texts,
                truncation=True,
                max_length=max_length,
                padding=True,
                return_token_type_ids=True,
                return_tensors="np",
            )
            for name, values in shorter(*texts).items():
                width = expected[name].shape[1]
                np.testing.assert_array_equal(values[:, :width], expected[name], err_msg=name)
                assert values.dtype == tf.int32 and not np.any(shorter(*texts)["attention_mask"][:, width:])


@EACH
def test_words_that_somebody_split_are_huggingfaces(tokenizers_of, family):
    ours, slow, _ = tokenizers_of(family)
    words = ["A", "great", ",", "caf\u00e9", "don't", "\u4e2d\u6587", "x"]
    expected = slow(words, is_split_into_words=True)["input_ids"]
    windows = word_windows(tf.ragged.constant([words]), ours)
    assert windows.input_ids.to_list() == [expected]


@EACH
def test_bytes_that_are_not_utf8_are_read_as_replacement_characters(tokenizers_of, family):
    ours, slow, _ = tokenizers_of(family)
    assert ours.tokenize(tf.constant([b"good \xff film", b"\xe4\xb8"])).to_list() == ids_of(
        slow, ["good \ufffd film", "\ufffd"]
    )


@EACH
def test_the_model_outlives_seeds_and_cleared_sessions(tokenizers_of, family):
    ours, _, _ = tokenizers_of(family)
    expected = ours.tokenize(["a great film"]).to_list()
    function = tf.function(ours.tokenize)
    for forget in (lambda: keras.utils.set_random_seed(1), keras.backend.clear_session):
        forget()
        assert ours.tokenize(["a great film"]).to_list() == expected
        assert function(tf.constant(["a great film"])).to_list() == expected


@pytest.mark.nightly
@pytest.mark.parametrize("family", CLASSES)
def test_it_runs_in_tf_data_in_a_graph_and_in_a_saved_model_without_files(tokenizers_of, family, tmp_path):
    ours, _, _ = tokenizers_of(family)
    module = tf.Module()
    module.tokenizer = ours
    signature = [tf.TensorSpec([None], tf.string)]
    module.encode = tf.function(lambda text: ours(text), input_signature=signature)
    module.offsets = tf.function(lambda text: ours.tokenize_with_offsets(text), input_signature=signature)
    tf.saved_model.save(module, str(tmp_path / "1"))
    assert not list((tmp_path / "1" / "assets").glob("*"))
    loaded = tf.saved_model.load(str(tmp_path / "1"))
    keras.utils.set_random_seed(2)
    for texts in (HARD, ["one"], []):
        texts = tf.constant(texts, tf.string)
        (batch,) = tf.data.Dataset.from_tensors(texts).map(ours)
        for name, values in loaded.encode(texts).items():
            np.testing.assert_array_equal(values, ours(texts)[name])
            np.testing.assert_array_equal(batch[name], values)
        for one, other in zip(loaded.offsets(texts), ours.tokenize_with_offsets(texts)):
            assert one.to_list() == other.to_list()
    kinds = {operation.type for operation in module.encode.get_concrete_function().graph.get_operations()}
    assert {kind for kind in kinds if any(word in kind for word in ("iece", "Regex", "Normalize", "CaseFold"))} == {
        "SentencepieceTokenizeOp"
    }


def test_offsets_are_characters_of_the_original_text(tokenizers_of):
    ours, _, _ = tokenizers_of("albert")

    def parts(text):
        _, starts, ends = ours.tokenize_with_offsets([text])
        return [text[start:end] for start, end in zip(starts.to_list()[0], ends.to_list()[0])]

    # The mark that is dropped after the first e lies between two tokens.
    assert "".join(parts("  the  E\u0301t\u00c9 \u200b")) == "theEt\u00c9"
    quoted = parts("``good''")
    assert quoted[0] == "``" and quoted[-1] == "''" and "".join(quoted).strip("`'") == "good"


def test_the_known_exceptions_are_these(tokenizers_of):
    assert set(KNOWN_EXCEPTIONS) == {
        "special tokens in a text",
        "fast tokenizers",
        "digits before a comma",
        "sigma of mathematical alphabets",
        "offsets",
        "noncharacters",
    }
    for family in CLASSES:
        ours, slow, _ = tokenizers_of(family)
        for token in LAYOUTS[family].tokens[:3]:
            special = slow.convert_tokens_to_ids(token)
            assert special in ids_of(slow, [f"a {token} b"])[0]
            assert special not in ours.tokenize([f"a {token} b"]).to_list()[0]

    ours, slow, fast = tokenizers_of("xlm-roberta")
    burmese = "\u1025\u102e"
    assert ids_of(slow, [burmese]) == ours.tokenize([burmese]).to_list() != ids_of(fast, [burmese])
    # HuggingFace's offsets of a composed character leave the mark out, and of a leading space count it in.
    expected = fast("a cafe\u0301", add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    _, starts, ends = ours.tokenize_with_offsets(["a cafe\u0301"])
    assert expected[-1][1] == 6 and ends.to_list()[0][-1] == 7
    assert (1, 2) in [(start, start + 1) for start, _ in expected] and 1 not in starts.to_list()[0]

    ours, slow, fast = tokenizers_of("albert")
    assert ids_of(fast, ["good "]) != ids_of(slow, ["good "]) == ours.tokenize(["good "]).to_list()
    assert ids_of(fast, ["(a)"]) != ids_of(slow, ["(a)"]) == ours.tokenize(["(a)"]).to_list()
    assert ids_of(fast, ["a\ufe0f"]) != ids_of(slow, ["a\ufe0f"]) == ours.tokenize(["a\ufe0f"]).to_list()
    ours, slow, fast = tokenizers_of("deberta-v2", split_by_punct=True)
    assert ids_of(fast, ["a\u2026"]) != ids_of(slow, ["a\u2026"]) == ours.tokenize(["a\u2026"]).to_list()
    assert ours.tokenize(["a\ufdd0b"]).to_list() in (ids_of(slow, ["a\ufdd0b"]), ids_of(slow, ["a\ufffdb"]))


def test_digits_before_a_comma_and_mathematical_sigmas_are_known_exceptions_of_albert(folders, tmp_path):
    import transformers

    model = Model.read((folders["albert"] / "spiece.model").read_bytes())
    pieces = [piece for piece in model.pieces if "9" not in piece.text]
    pieces += [Piece("9", -9.0, NORMAL), Piece("9,", -1.0, NORMAL), Piece(",9", -2.0, NORMAL)]
    pieces += [
        Piece(letter, -9.0, NORMAL) for letter in "\u03c3\u03c2" if letter not in [piece.text for piece in pieces]
    ]
    (tmp_path / "spiece.model").write_bytes(dataclasses.replace(model, pieces=tuple(pieces)).encoded())
    slow, fast = (
        getattr(transformers, f"AlbertTokenizer{end}")(str(tmp_path / "spiece.model")) for end in ("", "Fast")
    )
    ids = SentencePiece.from_directory(tmp_path, layout="albert").tokenize(["9,9"]).to_list()
    assert slow.convert_ids_to_tokens(ids[0]) == fast.tokenize("9,9") == ["\u2581", "9", ",9"]
    assert slow.tokenize("9,9") == ["\u2581", "9", ",", "9"]
    ids = SentencePiece.from_directory(tmp_path, layout="albert").tokenize(["a\U0001d6ba", "a\u03a3"]).to_list()
    assert [slow.convert_ids_to_tokens(row[-1]) for row in ids] == ["\u03c3", "\u03c3"]
    assert [slow.tokenize(text)[-1] for text in ("a\U0001d6ba", "a\u03a3")] == ["\u03c2", "\u03c3"]
    assert fast.tokenize("a\U0001d6ba")[-1] == "\u03c3"


def test_a_model_is_written_as_it_was_read(folders):
    import sentencepiece

    content = (folders["albert"] / "spiece.model").read_bytes()
    model = Model.read(content)
    assert Model.read(model.encoded()) == model
    theirs, again = (sentencepiece.SentencePieceProcessor(model_proto=each) for each in (content, model.encoded()))
    expected = [(theirs.id_to_piece(index), theirs.get_score(index)) for index in range(len(theirs))]
    assert [(piece.text, piece.score) for piece in model.pieces] == expected
    assert again.encode(HARD) == theirs.encode(HARD)


@EACH
def test_special_tokens_that_a_user_of_sentencepiece_defined_are_plain_text_too(folders, family):
    file = LAYOUTS[family].file
    model, sep = Model.read((folders[family] / file).read_bytes()), LAYOUTS[family].tokens[1]
    pieces = tuple(
        dataclasses.replace(piece, kind=USER_DEFINED) if piece.text == sep else piece for piece in model.pieces
    )
    ours = SentencePiece(dataclasses.replace(model, pieces=pieces).encoded(), layout=family)
    (ids,) = ours.tokenize([f"a {sep} b"]).to_list()
    assert ours.sep_id not in ids


@pytest.mark.parametrize(
    "family, settings",
    [
        *((family, {}) for family in CLASSES),
        ("albert", {"do_lower_case": False, "keep_accents": True}),
        ("deberta-v2", {"do_lower_case": True, "split_by_punct": True}),
    ],
)
def test_tokenizer_json_alone_is_read_as_transformers_5_saves_it(folders, tokenizers_of, tmp_path, family, settings):
    ours, _, fast = tokenizers_of(family, **settings)
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
    written, _, _ = read_tokenizer_json(tmp_path / "tokenizer.json", LAYOUTS[family])
    scores = {piece.text: piece.score for piece in Model.read(written).pieces}
    for piece in Model.read((folders[family] / LAYOUTS[family].file).read_bytes()).pieces:
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
    ):
        changed = json.loads(json.dumps(content))
        change(changed)
        (tmp_path / "tokenizer.json").write_text(json.dumps(changed))
        with pytest.raises(InputError, match=message):
            SentencePiece.from_directory(tmp_path, layout=family)


@pytest.mark.parametrize("cut", [0, 1, 100, 0.5, 0.99])
@EACH
def test_a_truncated_file_is_named(folders, family, cut, tmp_path):
    file = LAYOUTS[family].file
    content = (folders[family] / file).read_bytes()
    (tmp_path / file).write_bytes(content[: cut if isinstance(cut, int) else int(len(content) * cut)])
    with pytest.raises(InputError, match=f"{file}: model is damaged"):
        SentencePiece.from_directory(tmp_path, layout=family)


@pytest.mark.parametrize(
    "content", [b"\xff" * 50, b"<html></html>", b"version https://git-lfs.github.com/spec/v1\noid sha256:1", bytes(99)]
)
def test_a_file_of_another_kind_is_named(content, tmp_path):
    (tmp_path / "spiece.model").write_bytes(content)
    with pytest.raises(InputError, match="spiece.model: model is damaged, or no SentencePiece model"):
        SentencePiece.from_directory(tmp_path, layout="albert")


def test_a_directory_that_is_not_the_familys_is_refused(folders, tmp_path):
    with pytest.raises(InputError, match="holds no spm.model, SentencePiece's own model"):
        SentencePiece.from_directory(tmp_path, layout="deberta-v2")
    with pytest.raises(InputError, match="layout='bert' is unknown"):
        SentencePiece.from_directory(tmp_path, layout="bert")
    (tmp_path / "sentencepiece.bpe.model").write_bytes((folders["albert"] / "spiece.model").read_bytes())
    with pytest.raises(InputError, match="sentencepiece.bpe.model: model begins with the pieces"):
        SentencePiece.from_directory(tmp_path, layout="camembert")
    (tmp_path / "spm.model").write_bytes((folders["xlm-roberta"] / "sentencepiece.bpe.model").read_bytes())
    with pytest.raises(InputError, match=r"spm.model: model lacks '\[CLS\]'"):
        SentencePiece.from_directory(tmp_path, layout="deberta-v2")
    (tmp_path / "spm.model").write_bytes((folders["deberta-v2"] / "spm.model").read_bytes())
    for config, message in [
        ({"tokenizer_class": "BertTokenizer"}, "tokenizer_class='BertTokenizer'"),
        ({"do_lower_case": "no"}, "do_lower_case='no'"),
        ({"sep_token": {"content": "</s>"}}, "sep_token='</s>'"),
    ]:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
        with pytest.raises(InputError, match=message):
            SentencePiece.from_directory(tmp_path, layout="deberta-v2")


def test_settings_and_the_models_digest_are_kept(folders, tmp_path):
    content = (folders["albert"] / "spiece.model").read_bytes()
    (tmp_path / "spiece.model").write_bytes(content)
    config = {"tokenizer_class": "AlbertTokenizerFast", "keep_accents": True, "sep_token": "[SEP]"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    ours = SentencePiece.from_directory(tmp_path, layout="albert", max_length=64)
    assert ours.settings() == {
        "tokenizer": "sentencepiece",
        "layout": "albert",
        "do_lower_case": True,
        "keep_accents": True,
        "remove_space": True,
        "max_length": 64,
        "model_sha256": hashlib.sha256(content).hexdigest(),
    }
    with pytest.raises(
        InputError,
        match="split_by_punct=True is no setting of albert: it has do_lower_case, keep_accents, remove_space",
    ):
        SentencePiece(content, layout="albert", split_by_punct=True)
    with pytest.raises(InputError, match="max_length=2"):
        SentencePiece(content, layout="albert", max_length=2)


@pytest.fixture(scope="module")
def encoders(folders, tmp_path_factory):
    """A small encoder of a family with its tokenizer's file."""

    def make(family):
        directory = tmp_path_factory.mktemp(family)
        content = (folders[family] / LAYOUTS[family].file).read_bytes()
        size = SentencePiece(content, layout=family).size + 1
        write_family_checkpoint(family_model(family, vocab_size=size, num_hidden_layers=1), directory, bare=True)
        (directory / LAYOUTS[family].file).write_bytes(content)
        return directory

    return make


def test_the_tokenizer_of_an_encoder_is_found_and_checked(encoders, folders):
    directory = encoders("xlm-roberta")
    model = load_backbone(directory)
    expected = SentencePiece.from_directory(directory, layout="xlm-roberta", max_length=9)
    assert load_tokenizer(model, max_length=9).settings() == expected.settings()
    content = Model.read((directory / "sentencepiece.bpe.model").read_bytes())
    pieces = (*content.pieces, *(Piece(f"more{number}", -3.0, NORMAL) for number in range(9)))
    (directory / "sentencepiece.bpe.model").write_bytes(dataclasses.replace(content, pieces=pieces).encoded())
    with pytest.raises(InputError, match="give the files that belong together"):
        load_tokenizer(model)
    (directory / "sentencepiece.bpe.model").unlink()
    with pytest.raises(InputError, match="holds no sentencepiece.bpe.model"):
        load_tokenizer(model)


@pytest.mark.nightly
@pytest.mark.parametrize("family", CLASSES)
def test_the_commands_train_predict_and_export_from_raw_text(cli, encoders, family, sentences, tmp_path):
    given = [
        "--train",
        sentences / "train.csv",
        "--validation",
        sentences / "validation.csv",
        "--epochs",
        "1",
        "--max-length",
        "16",
    ]
    directory = encoders(family)
    trained = cli("train", "--model", directory, *given, "--output", tmp_path / "adapters")
    assert trained.status == 0, trained.err
    texts = ["a great film", "a dull \u4e2d\u6587 plot", ""]
    predicted = cli("predict", tmp_path / "adapters", "--input", "-", stdin="\n".join(texts[:2]).encode())
    expected = [list(json.loads(line)["probabilities"].values()) for line in predicted.out.splitlines()]
    assert cli("export", tmp_path / "adapters", "--output", tmp_path / "film" / "1").status == 0
    signature = tf.saved_model.load(str(tmp_path / "film" / "1")).signatures["serving_default"]
    answer = signature(text=tf.constant([texts[0].encode(), texts[1].encode(), b"\xff"]))
    np.testing.assert_allclose(answer["probabilities"][:2], expected, atol=1e-5)
    assert [bool(error) for error in answer["error"].numpy()] == [False, False, True]
    model = Model.read((directory / LAYOUTS[family].file).read_bytes())
    pieces = (*model.pieces[:-1], dataclasses.replace(model.pieces[-1], score=-1.0))
    (directory / LAYOUTS[family].file).write_bytes(dataclasses.replace(model, pieces=pieces).encoded())
    refused = cli("predict", tmp_path / "adapters", "--input", "-", stdin=b"a film\n")
    assert refused.status == 2 and "was trained with model_sha256=" in refused.err


@EACH
@pytest.mark.nightly
@pytest.mark.skipif(not (SHARED / "data" / "xnli").is_dir(), reason="needs ../shared/data")
def test_tokens_are_huggingfaces_on_real_text_in_six_languages(tokenizers_of, family):
    ours, slow, _ = tokenizers_of(family)
    files = [*(SHARED / "data" / "xnli").glob("*.tsv"), *(SHARED / "data" / "xquad").glob("*.json")]
    assert len(files) >= 8
    for path in files:
        texts = [line[:2000] for line in path.read_text(encoding="utf-8").split("\n")[:2500]]
        assert_tokens_equal(ours, slow, texts)
