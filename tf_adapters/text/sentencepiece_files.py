"""SentencePiece's model: its own file, a protocol buffer, which is read and changed without the sentencepiece package,
and what stands for it in HuggingFace's `tokenizer.json`, which transformers 5 writes.
"""

import base64
import dataclasses
import math
import struct
from typing import Tuple

import numpy as np

from tf_adapters.errors import InputError, shown
from tf_adapters.paths import objects, read_json
from tf_adapters.text.tokenizer import check_is, check_rows

NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4
_PIECES, _TRAINER, _NORMALIZER, _DENORMALIZER = 1, 2, 3, 5  # fields of ModelProto
_TABLE = 2  # field of NormalizerSpec
_KINDS = range(1, 7)
_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5


@dataclasses.dataclass(frozen=True)
class Piece:
    """An entry of the vocabulary."""

    text: str
    score: float
    kind: int

    def encoded(self):
        text, score = self.text.encode("utf-8"), struct.pack("<f", self.score)
        return b"\x0a" + _varint(len(text)) + text + b"\x15" + score + b"\x18" + _varint(self.kind)


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
        pieces, rest, found = [], [], set()
        try:
            for number, value, whole in _fields(content):
                found.add(number)
                if number == _PIECES:
                    pieces.append(_piece(value))
                else:
                    if number in (_NORMALIZER, _DENORMALIZER):
                        for inner, table, _ in _fields(value):
                            if inner == _TABLE:
                                _check_table(table)
                    rest.append(whole)
        except (AttributeError, IndexError, TypeError, ValueError, struct.error):
            pieces = []
        # What comes last in a file is lacking where its end is cut off.
        if not pieces or not {_TRAINER, _NORMALIZER} <= found:
            raise InputError("model is damaged, or no SentencePiece model: restore the file.")
        return cls(tuple(pieces), b"".join(rest))

    def encoded(self):
        """The content of a file."""
        pieces = (piece.encoded() for piece in self.pieces)
        return b"".join(b"\x0a" + _varint(len(piece)) + piece for piece in pieces) + self.rest


def unigram_model(pieces, table):
    """The content of a file: pieces, and the table of what becomes of characters (`precompiled_charsmap`), or b""."""
    trainer, normalizer = b"\x18\x01", b"\x12" + _varint(len(table)) + table  # model_type 1: unigram
    parts = ((_TRAINER, trainer), (_NORMALIZER, normalizer))
    rest = b"".join(_varint(number << 3 | _LENGTH) + _varint(len(part)) + part for number, part in parts)
    return Model(tuple(pieces), rest).encoded()


def _piece(message):
    values = {1: b"", 2: struct.pack("<f", 0), 3: NORMAL}
    values.update((number, value) for number, value, _ in _fields(message))
    piece = Piece(values[1].decode("utf-8"), struct.unpack("<f", values[2])[0], values[3])
    # The library that reads the model next ends the process at some of these.
    if not piece.text or "\0" in piece.text or not math.isfinite(piece.score) or piece.kind not in _KINDS:
        raise ValueError("a piece that cannot be one")
    return piece


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


def _fields(message):
    """The fields of a protocol buffer: number, value (int or bytes) and the bytes of both."""
    place = 0
    while place < len(message):
        start = place
        key, place = _read_varint(message, place)
        if key & 7 == _VARINT:
            value, place = _read_varint(message, place)
        else:
            if key & 7 == _LENGTH:
                length, place = _read_varint(message, place)
            else:
                length = {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}.get(key & 7, len(message) + 1)
            value, place = message[place : place + length], place + length
            if place > len(message):
                raise ValueError("a field is cut off")
        yield key >> 3, value, message[start:place]


def _read_varint(message, place):
    value = 0
    for shift in range(0, 70, 7):
        byte = message[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
    raise ValueError("a number has more than ten bytes")


def _varint(value):
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes([*encoded, value])


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
