"""Presets of KerasHub in the place of checkpoints: what KerasHub computes and how it cuts texts, with adapters."""

import shutil
from unittest import mock

import numpy as np
import pytest

import tf_adapters
from tests import tokenizers
from tests.conftest import VOCABULARY, is_refused
from tests.keras_hub_models import adapted, answers, keras_hub, needs_first, small_backbone
from tf_adapters._keras3_internals import preset_utils
from tf_adapters.models.keras_hub.loading import load_backbone
from tf_adapters.models.state import state_of
from tf_adapters.text.tokenizer import load_tokenizer

# Without a ß, of which KerasHub's WordPiece makes two letters.
TEXTS = ["The film was Good, it's 1,000 (bad)!", "ÉTÉ 中文 кино", "", "  ``two''  9, 9, 1,000, "]
#: Of KerasHub's tokenizers, the family in `tests.tokenizers` whose files each reads.
CUTS = dict(Bert="bert", Roberta="roberta", XLMRoberta="xlm-roberta", Albert="albert", DebertaV3="deberta-v2")


def their_tokenizer(name, **settings):
    family = CUTS[name]
    if family == "bert":
        settings = {"vocabulary": VOCABULARY, "lowercase": True, **settings}
    elif family == "roberta":
        model = tokenizers.content_of(tokenizers.directory(family))["model"]
        settings = {"vocabulary": model["vocab"], "merges": [" ".join(pair) for pair in model["merges"]]}
    else:
        settings = {"proto": tokenizers.sentencepiece_model(family)}
    return getattr(keras_hub.tokenizers, f"{name}Tokenizer")(**settings)


def write_preset(directory, name="Bert", **settings):
    tokenizer = their_tokenizer(name, **settings)
    small_backbone(name, tokenizer.vocabulary_size()).save_to_preset(str(directory))
    tokenizer.save_to_preset(str(directory))
    return directory


@pytest.mark.parametrize("name", CUTS)
def test_a_preset_computes_and_cuts_as_kerashub_does(tmp_path, name):
    family, source = CUTS[name], str(write_preset(tmp_path / "preset", name))
    model, theirs = load_backbone(source, head="none"), keras_hub.models.Backbone.from_preset(source)
    np.testing.assert_array_equal(answers(model, family), answers(theirs, family))
    cut = [list(map(int, row)) for row in their_tokenizer(name)(TEXTS)]
    assert load_tokenizer(model, max_length=20).tokenize(TEXTS).to_list() == cut  # all positions
    model = tf_adapters.set_trainable(adapted(load_backbone(source, labels=["no", "yes"])))
    tf_adapters.save_adapter(model, tmp_path / "kept", text=load_tokenizer(model, max_length=9))
    back, _ = tf_adapters.load_trained(tmp_path / "kept", door="keras-hub")
    np.testing.assert_array_equal(answers(back, family), answers(model, family))


def test_the_head_of_a_preset_is_taken_where_it_fits(tmp_path):
    theirs = keras_hub.models.BertTextClassifier(small_backbone("Bert", len(VOCABULARY)), 3, activation="softmax")
    theirs.save_to_preset(str(tmp_path / "bert"))
    for head, labels in (("classification", 3), ("classification", 2), ("masked-lm", 2)):
        model = load_backbone(tmp_path / "bert", head=head, num_labels=labels)
        assert state_of(model).pretrained_head == (labels == 3)
        if labels == 3:
            theirs.output_dense.activation = None  # what trains are logits
            np.testing.assert_array_equal(answers(model, "bert"), answers(theirs, "bert"))
    small_backbone("Roberta").save_to_preset(str(tmp_path / "roberta"))
    model = load_backbone(tmp_path / "roberta", head="multiple-choice")
    assert state_of(model).newly_initialized == [model.backbone.pooled_dense]


def test_a_built_in_preset_is_fetched_by_its_name_or_handle(tmp_path, monkeypatch):
    asked, _ = [], write_preset(tmp_path)

    def download(handle, path):
        asked.append(handle)
        if (tmp_path / path).exists():
            return str(tmp_path / path)
        raise ValueError(f"{path} is not present in the model files")

    monkeypatch.setattr(preset_utils.kagglehub, "model_download", download)
    for source in ("bert_tiny_en_uncased", "kaggle://keras/bert/keras/bert_tiny_en_uncased/3"):
        model = tf_adapters.load_backbone(source, door="keras-hub")
        assert state_of(model).source == source and load_tokenizer(model).size == len(VOCABULARY)
    assert set(asked) == {"keras/bert/keras/bert_tiny_en_uncased/3"}


def test_what_is_no_preset_of_an_encoder_or_damaged_is_a_sentence(tmp_path, monkeypatch):
    offline = mock.Mock(side_effect=ConnectionError("no route to a host"))
    monkeypatch.setattr(preset_utils.kagglehub, "model_download", offline)
    small_backbone("GPT2").save_to_preset(str(tmp_path / "gpt2"))
    (write_preset(tmp_path / "damaged") / "model.weights.h5").write_bytes(b"no weights")
    (tmp_path / "damaged" / "task.json").write_text('{"class_name": "BertTextClassifier", "config": null}')
    shutil.rmtree(write_preset(tmp_path / "mute") / "assets")
    for source, message in {
        "bert_tiny_en_unca": "is no directory here, and no preset of KerasHub .did you mean 'bert_tiny_en_uncased' or ",
        "bert_tiny_en_uncased": "cannot load this preset .ConnectionError: no route.*: try again with a net",
        tmp_path / "gpt2": "is a 'GPT2Backbone' of KerasHub, and adapters are for AlbertBackbone, ",
        tmp_path / "damaged": "cannot load this preset .OSError: .*: restore it, or",
    }.items():
        is_refused(message, load_backbone, source)
    write_preset(tmp_path / "cut", suffix_indicator="@@")
    for name, message in {"mute": "cannot load this preset .FileNotFoundE", "cut": "suffix_indicator='@@'"}.items():
        is_refused(message, load_tokenizer, load_backbone(tmp_path / name))
    needs_first()
    for source in (str(tmp_path / "cut"), "kaggle://keras/bert/keras/bert_tiny_en_uncased/3"):
        is_refused("preset of KerasHub.*door='keras-hub'", tf_adapters.load_backbone, source, door="transformers")
