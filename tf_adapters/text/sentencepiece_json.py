"""SentencePiece's model in HuggingFace's `tokenizer.json`, which transformers 5 writes in place of the model's file."""

import base64

from tf_adapters.errors import InputError, shown
from tf_adapters.json_input import objects, read_json
from tf_adapters.text.sentencepiece_model import CONTROL, NORMAL, UNKNOWN, USER_DEFINED, Piece, unigram_model

_QUOTES = ["``", "''"]


def read_tokenizer_json(path, described):
    """The model in a `tokenizer.json` as the content of SentencePiece's own file, the settings that go with it, and the
    added tokens.

    Args:
        path: of the file.
        described: the `_Layout` of the encoder's family.

    Raises:
        InputError: the file is damaged, or says something that no model of the family does.
    """
    content = read_json(path)
    try:
        return _read(content, described, path)
    except InputError:
        raise
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path} is no complete tokenizer ({type(error).__name__}: {shown(str(error))}): restore the file."
        ) from None


def _read(content, described, path):
    model, before = objects(content, ("model", "pre_tokenizer"), path)
    table, settings, quotes = _normalizer(content.get("normalizer"), path)
    steps = before["pretokenizers"] if before.get("type") == "Sequence" else [before]
    steps = {str(step.get("type")): step for step in steps}
    space = steps.get("Metaspace", {})
    settings["split_by_punct"] = "Punctuation" in steps
    for key, value, wanted in (
        ("model.type", model.get("type", "Unigram"), "Unigram"),
        ("model.byte_fallback", model.get("byte_fallback", False), False),
        ("normalizer: the quotes that become one", quotes, _QUOTES if described.own_spelling else []),
        ("pre_tokenizer", sorted(set(steps) - {"Metaspace", "WhitespaceSplit", "Punctuation"}), []),
        ("pre_tokenizer.replacement", space.get("replacement"), "\u2581"),
        ("pre_tokenizer.prepend_scheme", space.get("prepend_scheme", "always") != "never", True),
        ("pre_tokenizer.behavior", steps.get("Punctuation", {}).get("behavior", "Isolated"), "Isolated"),
    ):
        if value != wanted:
            raise InputError(f"{key}={shown(value)} in {path} must be {wanted!r}: give the encoder's own tokenizer.")
    plain = {"do_lower_case": False, "keep_accents": True, "split_by_punct": False}
    settings = {name: value for name, value in settings.items() if name in described.settings or value != plain[name]}
    listed = list(content.get("added_tokens") or ())
    kinds = {token["content"]: CONTROL if token["special"] else USER_DEFINED for token in listed}
    return unigram_model(_pieces(model, kinds, described, path), table), settings, listed


def _pieces(model, kinds, described, path):
    """The model's pieces, in whose place `vocab` has the encoder's own tokens at its ends."""
    vocabulary = [(str(text), float(score)) for text, score in model["vocab"]]
    for token, number in {**described.ids, described.tokens[3]: model["unk_id"]}.items():
        if vocabulary[number][0] != token:
            raise InputError(f"model.vocab[{number}] in {path} must be {token!r}: give the encoder's own tokenizer.")
    if described.offset and vocabulary[-1][0] == described.tokens[4]:
        del vocabulary[-1]
    begins = [Piece(text, 0.0, UNKNOWN if text == described.tokens[3] else CONTROL) for text in described.begins]
    pieces = [
        # The converter takes the 100 off that reading the model takes off again.
        Piece(
            text,
            score + 100 * described.avoids(text),
            UNKNOWN if number == model["unk_id"] else kinds.get(text, NORMAL),
        )
        for number, (text, score) in enumerate(vocabulary)
    ]
    return begins + pieces[len(begins) + described.offset :]


def _normalizer(normalizer, path):
    """The table of characters, settings, and which pairs of quotes become one."""
    steps = [] if normalizer is None else [normalizer]
    if steps and normalizer.get("type") == "Sequence":
        steps = normalizer["normalizers"]
    table, settings, quotes = b"", {"do_lower_case": False, "keep_accents": True}, []
    for step in steps:
        kind, pattern = step["type"], step.get("pattern")
        if kind == "Precompiled":
            table = base64.b64decode(step["precompiled_charsmap"], validate=True)
        elif kind == "Lowercase":
            settings["do_lower_case"] = True
        elif kind == "StripAccents":
            settings["keep_accents"] = False
        elif kind == "Replace" and pattern in [{"String": quote} for quote in _QUOTES] and step["content"] == '"':
            quotes.append(pattern["String"])
        # White space, which SentencePiece joins and strips itself; NFKD is how accents come off.
        elif kind not in ("Strip", "NFKD") and not (kind == "Replace" and pattern == {"Regex": " {2,}"}):
            raise InputError(f"normalizer: {shown(step)} in {path} has no like here: give the encoder's own tokenizer.")
    return table, settings, quotes
