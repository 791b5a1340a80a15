"""SentencePiece's model: its own file, a protocol buffer, which is read and changed without the sentencepiece package,
and what stands for it in HuggingFace's `tokenizer.json`, which transformers 5 writes.
"""

import base64
import dataclasses
import functools
import math
from typing import Tuple

import numpy as np
from google.protobuf.message import DecodeError

from tf_adapters._protobuf import message_class
from tf_adapters.errors import InputError, shown
from tf_adapters.paths import objects, read_json
from tf_adapters.text.tokenizer import check_is, check_rows

NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4
_KINDS = range(1, 7)
_UNIGRAM = 1
# What is read or changed of sentencepiece_model.proto.
_MESSAGES = {
    "Piece": "optional bytes text = 1; optional float score = 2; optional int32 kind = 3",
    "Trainer": "optional int32 model_type = 3",
    "Normalizer": "optional bytes table = 2",
    "Model": "repeated Piece pieces = 1; optional Trainer trainer = 2; optional Normalizer normalizer = 3; "
    "optional Normalizer denormalizer = 5",
}
_message = functools.cache(lambda: message_class("tf_adapters.sentencepiece", _MESSAGES, "Model"))


@dataclasses.dataclass(frozen=True)
class Piece:
    """An entry of the vocabulary."""

    text: str
    score: float
    kind: int


@dataclasses.dataclass(frozen=True)
class Model:
    """A model: its pieces in the order of their ids, and the rest of the file as it is."""

    pieces: Tuple[Piece, ...]
    rest: bytes

    @classmethod
    def read(cls, content):
        """The model in a file's content.

        Raises: InputError, if it is damaged or something else.
        """
        message, pieces = _message()(), ()
        try:
            message.ParseFromString(content)
            for part in (message.normalizer, message.denormalizer):
                _check_table(part.table)
            pieces = tuple(
                Piece(piece.text.decode("utf-8"), piece.score, piece.kind if piece.HasField("kind") else NORMAL)
                for piece in message.pieces
            )
        except (DecodeError, ValueError):
            pass
        # What comes last in a file is lacking where its end is cut off.
        whole = message.HasField("trainer") and message.HasField("normalizer")
        if not pieces or not whole or not all(map(_can_be, pieces)):
            raise InputError("model is damaged, or no SentencePiece model: restore the file.")
        message.ClearField("pieces")
        return cls(pieces, message.SerializeToString())

    def encoded(self):
        """The content of a file."""
        message = _message().FromString(self.rest)
        for piece in self.pieces:
            message.pieces.add(text=piece.text.encode("utf-8"), score=piece.score, kind=piece.kind)
        return message.SerializeToString()


def _can_be(piece):
    # The library that reads the model next ends the process at others.
    return piece.text and "\0" not in piece.text and math.isfinite(piece.score) and piece.kind in _KINDS


def _check_table(table):
    """Raise ValueError for a table of characters (`precompiled_charsmap`) in which a search would leave it.

    It is the size of a double array in bytes, the array (Darts, in blocks of 256 numbers), and the strings that its
    values point into, each with a NUL behind it. The library that searches in it does not look at bounds.
    """
    if not table:
        return
    size, strings = int.from_bytes(table[:4], "little"), table[4 + int.from_bytes(table[:4], "little") :]
    if not size or size % 1024 or size > len(table) - 4 or strings[-1:] != b"\0":
        raise ValueError("a table that is cut off")
    units = np.frombuffer(table, "<u4", size // 4, 4).astype(np.int64)
    targets = np.arange(len(units)) ^ (units >> 10) << ((units & 512) >> 6)
    inner = units >> 31 == 0
    if (targets[inner] >= len(units)).any() or (
        units[targets[inner & (units & 256 != 0)]] & 0x7FFFFFFF >= len(strings)
    ).any():
        raise ValueError("a table that leads out of itself")


_QUOTES = ["``", "''"]


def read_tokenizer_json(path, described):
    """The model in a `tokenizer.json` as the content of SentencePiece's own file, the settings that go with it, and the
    added tokens; `described` is the `_Layout` of the encoder's family.

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
    model, before, after = objects(content, ("model", "pre_tokenizer", "post_processor"), path)
    table, settings, quotes = _normalizer(content.get("normalizer"), path)
    steps = before["pretokenizers"] if before.get("type") == "Sequence" else [before]
    steps = {str(step.get("type")): step for step in steps}
    space = steps.get("Metaspace", {})
    settings["split_by_punct"] = "Punctuation" in steps
    # Each word that white space separates begins with a mark; by "first" alone, the text.
    marked = ("always",) if "WhitespaceSplit" in steps else ("always", "first")
    expected = (
        ("model.type", model.get("type", "Unigram"), "Unigram"),
        ("model.byte_fallback", model.get("byte_fallback", False), False),
        ("normalizer: the quotes that become one", quotes, _QUOTES if described.own_spelling else []),
        ("pre_tokenizer", sorted(set(steps) - {"Metaspace", "WhitespaceSplit", "Punctuation"}), []),
        ("pre_tokenizer.replacement", space.get("replacement"), "\u2581"),
        ("pre_tokenizer.prepend_scheme", space.get("prepend_scheme", "always") in marked, True),
        ("pre_tokenizer.behavior", steps.get("Punctuation", {}).get("behavior", "Isolated"), "Isolated"),
        ("post_processor", check_rows(after, described.pair_specials - 2, path), described.tokens[:2]),
    )
    check_is(expected, path, "give the encoder's own tokenizer")
    plain = {"do_lower_case": False, "keep_accents": True, "split_by_punct": False}
    settings = {name: value for name, value in settings.items() if name in described.settings or value != plain[name]}
    listed = list(content.get("added_tokens") or ())
    kinds = {token["content"]: CONTROL if token["special"] else USER_DEFINED for token in listed}
    rest = _message()(trainer={"model_type": _UNIGRAM}, normalizer={"table": table})
    made = Model(tuple(_pieces(model, kinds, described, path)), rest.SerializeToString())
    return made.encoded(), settings, listed


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
