"""SentencePiece's model file, a protocol buffer: what is needed of it is read and changed without the sentencepiece
package."""

import dataclasses
import math
import struct
from typing import Tuple

import numpy as np

from tf_adapters.errors import InputError

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
