"""SentencePiece models of strangers: what would end the process in the library that reads them next is refused
before."""

import dataclasses
import struct

import numpy as np
import pytest

from tf_adapters import InputError, SentencePiece
from tf_adapters.text.sentencepiece_files import CONTROL, NORMAL, UNKNOWN, Model, Piece

# trainer_spec with model_type UNIGRAM, normalizer_spec with the name "identity".
REST = b"\x12\x02\x18\x01" + b"\x1a\x0a\x0a\x08identity"
PIECES = (
    Piece("<unk>", 0.0, UNKNOWN),
    Piece("<s>", 0.0, CONTROL),
    Piece("</s>", 0.0, CONTROL),
    Piece("\u2581a", -1.0, NORMAL),
)


def varint(value):
    return bytes([value & 127 | 128]) + varint(value >> 7) if value > 127 else bytes([value])


def with_table(table, field=b"\x1a"):
    spec = b"\x12" + varint(len(table)) + table
    return Model(PIECES, REST + field + varint(len(spec)) + spec).encoded()


def table(units, strings=b"a\0"):
    content = np.zeros(256, "<u4")
    content[: len(units)] = units
    return struct.pack("<I", 1024) + content.tobytes() + strings


def test_a_whole_model_is_read():
    model = Model(PIECES, REST)
    assert Model.read(model.encoded()) == model
    assert SentencePiece(model.encoded(), layout="xlm-roberta").tokenize(["a a"]).to_list() == [[4, 4]]


@pytest.mark.parametrize(
    "changes",
    [
        dict(text="\0"),
        dict(text="a\0b"),
        dict(text=""),
        *(dict(score=score) for score in (np.nan, np.inf, -np.inf)),
        *(dict(kind=kind) for kind in (0, 7, 127)),
    ],
    ids=str,
)
def test_a_piece_that_cannot_be_one_is_refused(changes):
    model = Model((*PIECES, dataclasses.replace(Piece("b", -2.0, NORMAL), **changes)), REST)
    with pytest.raises(InputError, match="model is damaged, or no SentencePiece model"):
        Model.read(model.encoded())


def test_a_number_without_end_is_refused():
    with pytest.raises(InputError, match="model is damaged"):
        Model.read(Model(PIECES, REST).encoded() + b"\x80" * 100_000 + b"\x01")


def test_a_table_of_characters_that_stays_within_itself_is_read():
    # 0 leads to the 97 ("a"), which has the value at 97 ^ 1 = 96: 0, the string "a".
    units = np.zeros(256, np.uint32)
    units[97], units[96] = 97 | 256 | 1 << 10, 1 << 31
    for content in (b"", table([]), table(units)):
        assert Model.read(with_table(content))
    assert SentencePiece(with_table(table(units)), layout="xlm-roberta").tokenize(["a"]).to_list() == [[4]]


@pytest.mark.parametrize("field", [b"\x1a", b"\x2a"], ids=["normalizer", "denormalizer"])
@pytest.mark.parametrize(
    "content",
    [
        b"\0",
        b"\0\0\0\0" + b"a\0",
        struct.pack("<I", 2**32 - 1) + bytes(1024),
        struct.pack("<I", 4) + bytes(8),
        table([], b""),
        table([], b"a"),
        table([1 << 10 << 8 | 512]),
        table([0, 97 | 256 << 10]),
        table([2 << 10 | 256, 0, 1 << 31 | 2]),
        table([2 << 10 | 256, 0, 7]),
    ],
    ids=range(10),
)
def test_a_table_of_characters_that_leads_out_of_itself_is_refused(content, field):
    with pytest.raises(InputError, match="model is damaged"):
        Model.read(with_table(content, field))
