"""Presets of KerasHub as encoders: by a built-in name, a handle (`kaggle://keras/bert/keras/bert_base_en/3`), or a
directory. They compute what KerasHub's classes say."""

import difflib
import functools
import os

import keras_hub

from tf_adapters._keras3_internals import preset_file
from tf_adapters.errors import InputError, shown
from tf_adapters.models.keras_hub.families import FAMILIES, family_of
from tf_adapters.models.keras_hub.heads import HEADS, HeadModel
from tf_adapters.paths import read_json

# KerasHub's tokenizers -> `Family.tokenizer`.
_TOKENIZERS = {
    "BertTokenizer": "wordpiece", "DistilBertTokenizer": "wordpiece", "ElectraTokenizer": "wordpiece",
    "RobertaTokenizer": "byte-level-bpe", "XLMRobertaTokenizer": "sentencepiece:xlm-roberta",
    "AlbertTokenizer": "sentencepiece:albert-plain", "DebertaV3Tokenizer": "sentencepiece:deberta-v2",
}  # fmt: skip


def described(source):
    """The content of the `config.json` of a built-in preset, or of the one that a handle names; InputError if there is
    no such preset, or it cannot be had."""
    known = [name for family in FAMILIES.values() for name in family.backbone.presets]
    if "://" not in source and source not in known:
        close = difflib.get_close_matches(source, known, n=3)
        meant = f" (did you mean {' or '.join(map(repr, close))}?)" if close else ""
        raise InputError(
            f"{{source}} is no directory here, and no preset of KerasHub{meant}: give the model's directory.",
            source=source,
        )
    config = _read(source, "config.json")
    if not is_preset(config):
        raise InputError("{source} has no preset of KerasHub: fetch it, and give its directory.", source=source)
    return config


def is_preset(config):
    """Whether a `config.json` is of KerasHub, and not of transformers."""
    return "registered_name" in config


def load(source, config, head, num_labels, dtype=None):
    """A preset with a head; `config` is the content of its `config.json`.

    Returns: `(model, whether its head is the preset's own, list of the encoder's layers that the preset lacks)`.

    Raises:
        InputError: an encoder that adapters are not for, a head that its family has not, damaged files.
    """
    names = sorted({family.backbone.__name__ for family in FAMILIES.values()})
    if config.get("class_name") not in names:
        raise InputError(
            f"{{source}} is a {shown(config.get('class_name'))} of KerasHub, and adapters are for {', '.join(names)}.",
            source=source,
        )
    task, settings = _read(source, "task.json"), {"preprocessor": None}
    kinds = {kind.__name__: kind for family in FAMILIES.values() for kind in [family.tasks.get(head)] if kind}
    own = kinds.get(task.get("class_name"))
    if head != "masked-lm":
        settings["activation"] = None  # logits
        told = task.get("config")
        own = own if isinstance(told, dict) and told.get("num_classes") == num_labels else None
    if own is not None and _fetched(preset_file, source, "task.weights.h5", source=source):
        return _fetched(functools.partial(own.from_preset, dtype=dtype, **settings), source, source=source), True, []
    model = _fetched(functools.partial(keras_hub.models.Backbone.from_preset, dtype=dtype), source, source=source)
    family = family_of(model)
    check_head_of(family, head)
    had_pooler = family.pooler(model) is not None
    if head in HEADS:
        model = HEADS[head](model, num_labels, **HEADS[head].arguments(family, {}, model))
    elif head != "none":
        made = family.tasks[head]
        settings = {} if head == "masked-lm" else {"num_classes": num_labels}
        # KerasHub's own have their own rates of dropout.
        model = made(model, **settings, **(family.head_arguments({}, model) if issubclass(made, HeadModel) else {}))
    return model, False, [] if had_pooler or not family.reads_pooler(model) else [family.pooler(model)]


def check_head_of(family, head):
    """Raise InputError for a head that a family has not."""
    known = [*family.tasks, *HEADS, "none"]
    if head not in known:
        known = ", ".join(map(repr, known))
        raise InputError(f"{{head}}: {family.model_type} of this door has {known}.", head=head)


def tokenizer_of(source):
    """What cuts the texts of a preset, as `text.tokenizer` makes it: a key of its tokenizers, and arguments of one.

    Vocabulary and settings are KerasHub's, and texts are cut with them as by transformers' tokenizers. Of those,
    KerasHub's WordPiece differs where case folding is not lower case (a ß, a final sigma, ligatures), at soft hyphens
    and the like, and in words of over 100 bytes; all of KerasHub's may read special tokens in a text.

    Raises:
        InputError: it has none, or one that cuts otherwise.
    """
    theirs = _fetched(keras_hub.tokenizers.Tokenizer.from_preset, source, source=source)
    kind = _TOKENIZERS.get(type(theirs).__name__)
    if kind is None:
        name = type(theirs).__name__
        raise InputError(f"{{source}} has a {name}, and texts are cut by {', '.join(_TOKENIZERS)}.", source=source)
    if kind == "wordpiece":
        for name, computed in {"split": True, "suffix_indicator": "##"}.items():
            if getattr(theirs, name) != computed:
                raise InputError(
                    f"{{source}}: its tokenizer has {name}={shown(getattr(theirs, name))}, and not {computed!r}.",
                    source=source,
                )
        return kind, {
            "vocabulary": theirs.get_vocabulary(), "do_lower_case": theirs.lowercase,
            "strip_accents": theirs.strip_accents, "tokenize_chinese_chars": theirs.split_on_cjk,
            "unk_token": theirs.oov_token,
        }  # fmt: skip
    if kind == "byte-level-bpe":
        merges = [tuple(merge.split(" ")) for merge in theirs.merges]
        vocabulary = {token: int(number) for token, number in theirs.vocabulary.items()}
        return kind, {"vocabulary": vocabulary, "merges": merges, "add_prefix_space": theirs.add_prefix_space}
    return kind, {"model": theirs.proto}


def _read(source, name):
    """A JSON file of a preset, a dict; empty where it has none."""
    path = _fetched(preset_file, source, name, source=source)
    return {} if path is None else read_json(path)


def _fetched(read, *arguments, source):
    """What KerasHub reads of a preset, which it fetches if it is not here."""
    try:
        return read(*arguments)
    # Of the network, of the files, of Keras: none is a defect of this package.
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        fix = "restore it" if os.path.isdir(source) else "try again with a network"
        raise InputError(
            f"{{source}}: KerasHub cannot load this preset ({type(error).__name__}: {lines[0][:200]}): {fix}, or give "
            "a directory.",
            source=source,
        ) from error
