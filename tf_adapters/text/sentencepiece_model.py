"""SentencePiece's model file, a protocol buffer: what is needed of it is read and changed without the sentencepiece package."""

import dataclasses
import struct
from typing import Tuple

from tf_adapters.errors import InputError

NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4
_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3  # fields of ModelProto
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


def _piece(message):
    values = {1: b"", 2: struct.pack("<f", 0), 3: NORMAL}
    values.update((number, value) for number, value, _ in _fields(message))
    return Piece(values[1].decode("utf-8"), struct.unpack("<f", values[2])[0], int(values[3]))


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
