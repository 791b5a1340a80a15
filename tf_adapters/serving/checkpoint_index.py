"""The index of a TensorFlow checkpoint: which tensor, or which rows of one, lies where in which of its files.

TensorFlow writes and merges indexes. It can neither leave entries out nor point to a file that another checkpoint
wrote, which versions of a bank need. An index is a table of LevelDB's format (tensorflow/core/lib/io/format.h) from
keys to the messages of tensor_bundle.proto; rows have a key of their own
(tensorflow/core/util/saved_tensor_slice_util.cc).
"""

import os
import struct
import tempfile

import tensorflow as tf
from tensorflow.core.protobuf.tensor_bundle_pb2 import BundleEntryProto, BundleHeaderProto

_MAGIC = struct.pack("<Q", 0xDB4775248B80FB57)
_FOOTER, _TRAILER = 48, 5
_BLOCK_BYTES, _RESTARTS = 2**16, 16


def read_index(path):
    """Dict from key, bytes, to `BundleEntryProto`, in the order of the keys.

    Raises: ValueError, if it is no index.
    """
    with open(path, "rb") as file:
        data = file.read()
    if len(data) < _FOOTER or data[-8:] != _MAGIC:
        raise ValueError(f"{path} is no index of a checkpoint")
    try:
        _, place = _handle(data, len(data) - _FOOTER)
        index, _ = _handle(data, place)
        found = {}
        for _, handle in _pairs(_block(data, *index)):
            for key, value in _pairs(_block(data, *_handle(handle, 0)[0])):
                if key:
                    found[key] = BundleEntryProto.FromString(value)
    except (IndexError, struct.error) as error:
        raise ValueError(f"{path} is damaged: {error}") from None
    return found


def write_index(path, entries, files):
    """Write an index.

    Args:
        path: of the new file.
        entries: dict from key, bytes, to `BundleEntryProto`.
        files: int, how many data files the checkpoint has.
    """
    header = BundleHeaderProto(num_shards=files, endianness=BundleHeaderProto.LITTLE)
    header.version.producer = 1
    blocks, last_keys, pairs, size = [], [], [], 0
    for key, value in [(b"", header), *sorted(entries.items())]:
        value = value.SerializeToString()
        pairs.append((key, value))
        size += len(key) + len(value)
        if size >= _BLOCK_BYTES:
            blocks.append(_packed(pairs))
            last_keys.append(key)
            pairs, size = [], 0
    if pairs:
        blocks.append(_packed(pairs))
        last_keys.append(pairs[-1][0])
    handles, place = [], 0
    for block in blocks:
        handles.append(_varint(place) + _varint(len(block)))
        place += len(block) + _TRAILER
    blocks += [_packed([]), _packed(list(zip(last_keys, handles)))]
    footer = b""
    for block in blocks[-2:]:
        footer += _varint(place) + _varint(len(block))
        place += len(block) + _TRAILER
    with open(path, "wb") as file:
        for block, checksum in zip(blocks, _checksums([block + b"\0" for block in blocks])):
            file.write(block + b"\0" + checksum)
        file.write(footer.ljust(_FOOTER - 8, b"\0") + _MAGIC)


def rows_key(tensor, start, count, rank):
    """The key of the rows `start` to `start + count` of a tensor.

    Args:
        tensor: str, its key.
        start, count, rank: ints.
    """
    name = tensor.encode().replace(b"\0", b"\0\xff").replace(b"\xff", b"\xff\0") + b"\0\1"
    # An axis as a whole is from 0 and -1 long.
    extents = (start, count, *(0, -1) * (rank - 1))
    return b"\0" + name + bytes([1, rank]) + b"".join(map(_ordered, extents))


def of_rows(tensor, shape, dtype, runs):
    """The entries of a tensor whose rows lie in several places.

    Args:
        tensor: str, its key.
        shape: list of int, of the whole.
        dtype: as in `BundleEntryProto`.
        runs: list of `BundleEntryProto`, each of the next rows, which cover all.

    Returns: dict for `write_index`.
    """
    whole, entries, start = BundleEntryProto(dtype=dtype), {}, 0
    for size in shape:
        whole.shape.dim.add(size=size)
    for run in runs:
        count = run.shape.dim[0].size
        extents = whole.slices.add().extent
        extents.add(start=start, length=count)
        for _ in shape[1:]:
            extents.add()
        entries[rows_key(tensor, start, count, len(shape))] = run
        start += count
    if start != shape[0]:
        raise ValueError(f"{tensor}: {start} rows of {shape[0]} are given")
    return {tensor.encode(): whole, **entries}


def _ordered(number):
    """A whole number in bytes of the same order (`OrderedCode::WriteSignedNumIncreasing`)."""
    bits = (number if number >= 0 else ~number).bit_length()
    length = bits // 7 + 1
    # As many ones as there are bytes, and the number in what is left, its sign first.
    value = number & ((1 << (8 * length)) - 1)
    ones = ((1 << length) - 1) << (8 * length - length)
    return (value ^ ones).to_bytes(length, "big")


def _handle(data, place):
    offset, place = _number(data, place)
    size, place = _number(data, place)
    return (offset, size), place


def _block(data, offset, size):
    if data[offset + size] != 0:
        raise ValueError("it is compressed")
    return data[offset : offset + size]


def _pairs(block):
    """The keys and values of a block, each key without what it has in common with the one before."""
    (restarts,) = struct.unpack("<I", block[-4:])
    end, place, key = len(block) - 4 * (restarts + 1), 0, b""
    while place < end:
        shared, place = _number(block, place)
        own, place = _number(block, place)
        size, place = _number(block, place)
        key = key[:shared] + block[place : place + own]
        yield key, block[place + own : place + own + size]
        place += own + size


def _packed(pairs):
    body, restarts, before = bytearray(), [0], b""
    for number, (key, value) in enumerate(pairs):
        shared = 0
        if number % _RESTARTS:
            shared = len(os.path.commonprefix([before, key]))
        elif number:
            restarts.append(len(body))
        body += _varint(shared) + _varint(len(key) - shared) + _varint(len(value)) + key[shared:] + value
        before = key
    return bytes(body) + b"".join(struct.pack("<I", place) for place in (*restarts, len(restarts)))


def _number(data, place):
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place


def _varint(value):
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _checksums(contents):
    """The masked CRC-32C of each, 4 bytes: a record of TensorFlow's record files ends in that of its content."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "records")
        with tf.io.TFRecordWriter(path) as writer:
            for content in contents:
                writer.write(content)
        with open(path, "rb") as file:
            found = []
            for content in contents:
                file.seek(12 + len(content), os.SEEK_CUR)
                found.append(file.read(4))
            return found
