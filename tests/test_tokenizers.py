"""What every tokenizer does, whatever it cuts by: rows as HuggingFace's, everywhere where its operations run."""

import csv
import json
import random

import numpy as np
import pytest
import tensorflow as tf
import transformers

from tests.cases import nightly_but
from tests.conftest import SHARED, WORDS, is_refused, minilm_directory, tiny_model
from tests.families import family_model, write_family_checkpoint
from tests.tokenizers import CLASSES, SENTENCEPIECE, directory, ours, theirs
from tf_adapters import InputError, load_backbone, load_tokenizer
from tf_adapters._keras import keras
from tf_adapters.text import ByteLevelBpe, WordPiece
from tf_adapters.text.windows import word_windows

EACH = pytest.mark.parametrize("family", CLASSES)
TEXTS = ["", " ", "A great,  Unseen film", "café e\u0301 中文 \u200b🙂", "don't (x) 1,000", "x" * 150]
# What TF Serving has of tensorflow-text.
SERVED = {**dict.fromkeys(("bert", "mpnet"), "WordpieceTokenizeWithOffsets"), "roberta": None}


@EACH
def test_special_ids_and_rows_with_truncation_are_huggingfaces(family):
    tokenizer, other = ours(family), theirs(family)
    expected = other.cls_token_id, other.sep_token_id, other.pad_token_id, other.unk_token_id
    assert (tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id, tokenizer.unk_id) == expected
    assert tokenizer.size <= len(other)
    chooser = random.Random(3)
    lengths = [(a, b) for a in range(0, 12, 2) for b in range(1, 12, 2)]
    lengths += [(chooser.randint(0, 40), chooser.randint(0, 40)) for _ in range(40)]
    first, second = ([" ".join(chooser.choices(WORDS, k=count)) for count in counts] for counts in zip(*lengths))
    for max_length in (tokenizer.pair_specials + 2, 13):
        shorter = tokenizer.with_max_length(max_length)
        # MPNet has no token types, whatever its tokenizer would give for them.
        cut = dict(truncation=True, max_length=max_length, padding=True, return_token_type_ids=family != "mpnet")
        for texts in ([first], [first, second]):
            expected, found = other(*texts, **cut, return_tensors="np"), shorter(*texts)
            width = expected["input_ids"].shape[1]
            for name, values in found.items():
                wanted = expected.get(name, np.zeros_like(expected["input_ids"]))
                np.testing.assert_array_equal(values[:, :width], wanted, err_msg=name)
                assert values.dtype == tf.int32
            assert not np.any(found["attention_mask"][:, width:])
            assert set(found["input_ids"].numpy()[found["attention_mask"].numpy() == 0]) <= {tokenizer.pad_id}
    with pytest.raises(InputError, match="has no room"):
        tokenizer.with_max_length(tokenizer.pair_specials + 1)(["a"], ["b"])


@pytest.mark.parametrize("family", ["bert", "mpnet", *SENTENCEPIECE])
def test_words_that_somebody_split_are_huggingfaces_and_special_tokens_in_a_text_are_plain(family):
    tokenizer, other = ours(family), theirs(family, fast=family not in SENTENCEPIECE)
    words = ["A", "great", ",", "caf\u00e9", "don't", "\u4e2d\u6587", "x"]
    windows = word_windows(tf.ragged.constant([words]), tokenizer)
    assert windows.input_ids.to_list() == [other(words, is_split_into_words=True)["input_ids"]]
    for token in (other.sep_token, other.cls_token, other.pad_token):
        special = other.convert_tokens_to_ids(token)
        assert special in other(f"a {token} b", add_special_tokens=False)["input_ids"]
        assert special not in tokenizer.tokenize([f"a {token} b"]).to_list()[0]


@pytest.mark.nightly
@pytest.mark.skipif(not (SHARED / "data" / "xnli").is_dir(), reason="needs ../shared/data")
@pytest.mark.parametrize("family", ["bert", "roberta", *SENTENCEPIECE])
def test_tokens_are_huggingfaces_on_real_text_in_seven_languages(family):
    if family == "bert":
        folder = minilm_directory()
        tokenizer, other = WordPiece.from_directory(folder), transformers.AutoTokenizer.from_pretrained(folder)
    elif family == "roberta":
        folder = SHARED / "weights" / "granite-embedding-30m-english"
        tokenizer, other = ByteLevelBpe.from_directory(folder), transformers.AutoTokenizer.from_pretrained(folder)
    else:
        tokenizer, other = ours(family), theirs(family, fast=False)
    for path in [*(SHARED / "data").glob("xnli/*.tsv"), *(SHARED / "data").glob("xquad/*.json")]:
        texts = [line[:2000] for line in path.read_text(encoding="utf-8").split("\n")[:2500]]
        assert tokenizer.tokenize(texts).to_list() == other(texts, add_special_tokens=False)["input_ids"], path


@pytest.mark.parametrize("family", nightly_but(["bert", "roberta"], CLASSES))
def test_it_runs_in_tf_data_in_a_graph_of_unknown_batch_size_and_in_a_saved_model_without_files(family, tmp_path):
    tokenizer, strings = ours(family), [tf.TensorSpec([None], tf.string)]
    module = tf.Module()
    module.tokenizer = tokenizer
    module.pairs = tf.function(lambda text, pair: tokenizer(text, pair), input_signature=strings * 2)
    module.offsets = tf.function(lambda text: tokenizer.tokenize_with_offsets(text), input_signature=strings)
    tf.saved_model.save(module, str(tmp_path / "1"))
    assert not list((tmp_path / "1" / "assets").glob("*"))
    loaded = tf.saved_model.load(str(tmp_path / "1"))
    keras.backend.clear_session()
    for texts in (TEXTS, []):
        texts = tf.constant(texts, tf.string)
        (batch,) = tf.data.Dataset.from_tensors(texts).map(tokenizer)
        for name, values in tokenizer(texts).items():
            np.testing.assert_array_equal(batch[name], values)
        for name, values in tokenizer(texts, texts[::-1]).items():
            np.testing.assert_array_equal(loaded.pairs(texts, texts[::-1])[name], values)
        for one, other in zip(loaded.offsets(texts), tokenizer.tokenize_with_offsets(texts)):
            assert one.to_list() == other.to_list()
    of_text = ("iece", "Regex", "Normalize", "CaseFold", "FastBert")
    for function, ending in ((module.pairs, ""), (module.offsets, "WithOffsets")):
        kinds = {operation.type for operation in function.get_concrete_function().graph.get_operations()}
        served = SERVED.get(family, f"SentencepieceTokenize{ending}Op")
        assert {kind for kind in kinds if any(word in kind for word in of_text)} == {served} - {None}


def test_a_tokenizer_without_files_is_named(tmp_path):
    write_family_checkpoint(family_model("roberta"), tmp_path)
    is_refused("holds no byte-level BPE", load_tokenizer, load_backbone(tmp_path))
    is_refused("was built without files", load_tokenizer, tiny_model())


@pytest.mark.nightly
@EACH
def test_the_commands_train_predict_and_export_from_raw_text(cli, family, sentences, tmp_path):
    model = family_model(family, vocab_size=ours(family).size + 1, num_hidden_layers=1)
    write_family_checkpoint(model, tmp_path / "encoder", bare=True)
    for path in directory(family).iterdir():
        (tmp_path / "encoder" / path.name).write_bytes(path.read_bytes())
    adapters = tmp_path / "adapters"
    files = [f"--{name}={sentences / name}.csv" for name in ("train", "validation")]
    given = [f"--model={tmp_path / 'encoder'}", *files, "--epochs=1", "--max-length=16"]
    trained = cli("train", *given, f"--output={adapters}")
    assert trained.status == 0, trained.err
    predicted = cli("predict", adapters, "--input", sentences / "test.csv")
    expected = [list(json.loads(line)["probabilities"].values()) for line in predicted.out.splitlines()]
    with open(sentences / "test.csv", newline="", encoding="utf-8") as file:
        texts = [row["text"] for row in csv.DictReader(file)]
    assert cli("export", adapters, "--output", tmp_path / "film" / "1").status == 0
    signature = tf.saved_model.load(str(tmp_path / "film" / "1")).signatures["serving_default"]
    answer = signature(text=tf.constant([*texts, b"\xff"]))
    np.testing.assert_allclose(answer["probabilities"][:-1], expected, atol=1e-5)
    assert [bool(error) for error in answer["error"].numpy()] == [False] * len(texts) + [True]
