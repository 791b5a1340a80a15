"""Byte-level BPE against HuggingFace's, on text of every script and on strings made to trip it."""

import json
import random

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import SHARED, tiny_model
from tests.families import family_model, write_family_checkpoint
from tf_adapters import ByteLevelBpe, load_backbone, load_tokenizer
from tf_adapters.errors import InputError
from tf_adapters.text.byte_bpe import _byte_alphabet

GRANITE = SHARED / "weights" / "granite-embedding-30m-english"
HARD = [
    "",
    " ",
    "  lead",
    "trail  ",
    "it's  John's   dog\n\n we'll 'tis ''s 's's",
    "'sabc 'd1 'll't I'VE i've're",
    " 's",
    " \n's",
    "!'s",
    "tab\t\tx \t y",
    "a\u00a0b \u00a0c \u3000x\u3000\u3000y",
    "\u0966\u096c 12ab\u00bd",
    "aaaa aaaaaaaaa",
    "\ufdd0 \U0001f600\U0001f600 ok \u0301x",
    "</s> <s>",
]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files of a small tokenizer that `tokenizers` trained."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    folder = tmp_path_factory.mktemp("bpe")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(
        ["the film was good and the cast is great"] * 9
        + ["it's a dull plot, aaaa bad", "\u00e9t\u00e9 \u4e2d\u6587 the story"] * 9,
        trainer,
    )
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", 2), ("<s>", 0), trim_offsets=True, add_prefix_space=False
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder, tokenizer


def random_texts(count, seed=0):
    chooser = random.Random(seed)
    parts = [
        *" \n\t'st!-",
        "  ",
        "re",
        "ll",
        "ve",
        "m",
        "d",
        "a",
        "B",
        "\u00e9",
        "1",
        "\u0968",
        "\u00a0",
        "\u2003",
        "\u4e2d",
        "\U0001f600",
        "\u0301",
        "the",
        " film",
    ]
    return ["".join(chooser.choice(parts) for _ in range(chooser.randint(0, 14))) for _ in range(count)]


def ids_of(tokenizer, texts):
    # Special tokens in a text are plain text here.
    return [encoding.ids for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]


NONCHARACTERS = dict.fromkeys(
    [*range(0xFDD0, 0xFDF0), *(plane + last for plane in range(0, 0x110000, 0x10000) for last in (0xFFFE, 0xFFFF))],
    0xFFFD,
)


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
    check(
        ByteLevelBpe.from_directory(folder),
        tokenizer,
        [text for text in HARD if "s>" not in text]
        + ["a\U0001fffe film", "\uffff\ufdd0good \U0010ffff"]
        + random_texts(1500),
    )


def test_every_character_is_cut_as_huggingface_cuts_it(files):
    folder, tokenizer = files
    code_points = [c for c in range(0x20, 0x3400) if not 0xD800 <= c < 0xE000] + [
        *range(0xA000, 0xB000),
        *range(0x1D400, 0x1D800),
        *range(0x1F100, 0x1F700),
    ]
    texts = ["a" + "".join(map(chr, code_points[first : first + 3])) + " b" for first in range(0, len(code_points), 3)]
    found = ByteLevelBpe.from_directory(folder).tokenize(texts).to_list()
    assert found == ids_of(tokenizer, texts)


def test_special_tokens_in_a_text_are_plain_text(files):
    bpe = ByteLevelBpe.from_directory(files[0])
    (ids,) = bpe.tokenize(["</s> good <s>"]).to_list()
    assert not {bpe.cls_id, bpe.sep_id} & set(ids)


def test_pairs_and_truncation_are_robertas(files):
    folder, tokenizer = files
    pairs = [
        ("the film was good", "a dull plot"),
        ("", "x"),
        ("the " * 20, "film"),
        ("bad", "great " * 20),
        ("the cast " * 9, "it is " * 9),
    ]
    bpe = ByteLevelBpe.from_directory(folder, max_length=16)
    tokenizer.enable_truncation(16)
    try:
        for given in (pairs, [first for first, _ in pairs]):
            expected = [encoding.ids for encoding in tokenizer.encode_batch(given)]
            texts = zip(*given) if given is pairs else [given]
            encoded = bpe.encode(*map(list, texts))
            assert encoded["input_ids"].to_list() == expected
            assert not np.any(encoded["token_type_ids"].flat_values)
    finally:
        tokenizer.no_truncation()
    padded = bpe([first for first, _ in pairs])
    assert set(padded["input_ids"].numpy()[padded["attention_mask"].numpy() == 0]) == {bpe.pad_id}
    with pytest.raises(InputError, match="at least 6"):
        bpe.with_max_length(5).encode(["a"], ["b"])


def test_words_are_read_with_a_space_before_them(files):
    folder, tokenizer = files
    bpe = ByteLevelBpe.from_directory(folder)
    assert bpe.tokenize_words(["film", "great", ","]).to_list() == ids_of(tokenizer, [" film", " great", " ,"])


def test_a_prefix_space_is_read_where_the_tokenizer_says_so(files, tmp_path):
    from tokenizers import Tokenizer

    content = json.loads((files[0] / "tokenizer.json").read_text())
    content["pre_tokenizer"]["add_prefix_space"] = True
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    texts = ["film", " film", "", "\nfilm", "it's"]
    assert ByteLevelBpe.from_directory(tmp_path).tokenize(texts).to_list() == ids_of(
        Tokenizer.from_file(str(tmp_path / "tokenizer.json")), texts
    )


def test_vocab_and_merges_make_the_same_tokenizer(files, tmp_path):
    content = json.loads((files[0] / "tokenizer.json").read_text())["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(content["vocab"]))
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in content["merges"]]
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n", encoding="utf-8")
    one, other = ByteLevelBpe.from_directory(files[0]), ByteLevelBpe.from_directory(tmp_path)
    assert one.settings() == other.settings()
    assert one.tokenize(HARD).to_list() == other.tokenize(HARD).to_list()


def test_the_files_of_transformers_5_are_read_and_added_tokens_are_refused(files, tmp_path):
    content = json.loads((files[0] / "tokenizer.json").read_text())
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
        with pytest.raises(InputError, match="post_processor=.* must put tokens around texts as RoBERTa does"):
            ByteLevelBpe.from_directory(tmp_path)
    content = json.loads((files[0] / "tokenizer.json").read_text())
    size = len(content["model"]["vocab"])
    content["added_tokens"].append({"id": size, "content": "<e1>", "special": True})
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=f"the token '<e1>' was added to the vocabulary of {size} entries"):
        ByteLevelBpe.from_directory(tmp_path)


def test_bytes_that_are_not_utf8_become_replacement_characters(files):
    folder, tokenizer = files
    found = ByteLevelBpe.from_directory(folder).tokenize(tf.constant([b"good \xff film"])).to_list()
    assert found == ids_of(tokenizer, ["good \ufffd film"])


def test_it_runs_in_a_graph_and_in_a_saved_model(files, tmp_path):
    bpe = ByteLevelBpe.from_directory(files[0])
    module = tf.Module()
    module.bpe = bpe
    module.encode = tf.function(lambda text: bpe(text), input_signature=[tf.TensorSpec([None], tf.string)])
    tf.saved_model.save(module, str(tmp_path / "1"))
    loaded = tf.saved_model.load(str(tmp_path / "1"))
    for texts in (HARD, ["one"], []):
        texts = tf.constant(texts, tf.string)
        for name, values in loaded.encode(texts).items():
            np.testing.assert_array_equal(values, bpe(texts)[name])


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda c: c["model"].update(type="Unigram"), "model.type='Unigram'"),
        (lambda c: c["pre_tokenizer"].update(type="Metaspace"), "pre_tokenizer.type='Metaspace'"),
        (lambda c: c["model"]["merges"].append(["the", "nothing"]), "must be two tokens of the vocabulary"),
        (lambda c: c["model"]["vocab"].pop("\u0120"), "lacks|must map its tokens"),
        (lambda c: c.update(normalizer={"type": "NFC"}), "normalizer="),
    ],
)
def test_other_tokenizers_are_refused(files, tmp_path, change, message):
    content = json.loads((files[0] / "tokenizer.json").read_text())
    change(content)
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=message):
        ByteLevelBpe.from_directory(tmp_path)
    with pytest.raises(InputError, match="holds no byte-level BPE"):
        ByteLevelBpe.from_directory(tmp_path / "nothing")


def test_the_alphabet_is_gpt2s():
    from tokenizers.pre_tokenizers import ByteLevel

    assert sorted(_byte_alphabet()) == sorted(ByteLevel.alphabet())


@pytest.fixture(scope="module")
def roberta(files, tmp_path_factory):
    directory = tmp_path_factory.mktemp("roberta")
    write_family_checkpoint(family_model("roberta", vocab_size=420, max_position_embeddings=66), directory, bare=True)
    (directory / "tokenizer.json").write_bytes((files[0] / "tokenizer.json").read_bytes())
    return directory


@pytest.mark.nightly
def test_roberta_trains_predicts_and_is_served_from_raw_text(cli, roberta, sentences, tmp_path):
    saved = tmp_path / "adapters"
    given = [
        "--train",
        sentences / "train.csv",
        "--validation",
        sentences / "validation.csv",
        "--test",
        sentences / "test.csv",
    ]
    trained = cli(
        "train",
        "--model",
        roberta,
        *given,
        "--epochs",
        "1",
        "--adapter-size",
        "4",
        "--max-length",
        "32",
        "--output",
        saved,
    )
    assert trained.status == 0, trained.err
    predicted = cli("predict", saved, "--input", sentences / "test.csv")
    rows = [json.loads(line) for line in predicted.out.splitlines()]
    assert cli("export", saved, "--output", tmp_path / "film" / "1").status == 0
    import csv

    with open(sentences / "test.csv", newline="", encoding="utf-8") as file:
        texts = [row["text"] for row in csv.DictReader(file)]
    answer = tf.saved_model.load(str(tmp_path / "film" / "1")).signatures["serving_default"](text=tf.constant(texts))
    for row, values in zip(rows, answer["probabilities"].numpy(), strict=True):
        np.testing.assert_allclose(list(row["probabilities"].values()), values, atol=1e-5)
    too_long = cli("train", "--model", roberta, *given, "--max-length", "65", "--output", tmp_path / "other")
    assert too_long.status == 2 and "beyond the 64 positions" in too_long.err


def test_a_tokenizer_without_files_is_named(tmp_path):
    write_family_checkpoint(family_model("roberta"), tmp_path)
    with pytest.raises(InputError, match="holds no byte-level BPE"):
        load_tokenizer(load_backbone(tmp_path))
    with pytest.raises(InputError, match="was built without files"):
        load_tokenizer(tiny_model())


@pytest.mark.nightly
@pytest.mark.skipif(not GRANITE.is_dir(), reason="needs ../shared/weights")
def test_a_real_vocabulary_on_real_text_in_seven_languages():
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(GRANITE / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    bpe = ByteLevelBpe.from_directory(GRANITE)
    files = [*(SHARED / "data" / "xnli").glob("*.tsv"), *(SHARED / "data" / "xquad").glob("*.json")]
    assert len(files) >= 6
    for path in files:
        texts = [line[:2000] for line in path.read_text(encoding="utf-8").split("\n")[:2500]]
        assert bpe.tokenize(texts).to_list() == ids_of(tokenizer, texts), path
    check(bpe, tokenizer, random_texts(5000, seed=1))
