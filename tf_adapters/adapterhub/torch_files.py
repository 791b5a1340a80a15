"""PyTorch's checkpoints (`torch.save`) as NumPy arrays, without PyTorch.

A pickle is a program. Here it can name five things (`_Name`), which stand for themselves and make nothing but plain
dictionaries and descriptions of tensors; the arrays are made afterwards. Of the opcodes, those are let through that a
dictionary of tensors needs. Needs no TensorFlow.
"""

import io
import math
import pickle
import pickletools
import struct
import typing
import zipfile

import numpy as np

from tf_adapters.errors import InputError

_MAGIC, _PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
# storage class -> dtype; bfloat16 has none in NumPy and is widened by hand
_DTYPES = {
    "FloatStorage": np.dtype("<f4"), "DoubleStorage": np.dtype("<f8"), "HalfStorage": np.dtype("<f2"),
    "BFloat16Storage": np.dtype("<u2"), "LongStorage": np.dtype("<i8"), "IntStorage": np.dtype("<i4"),
    "ShortStorage": np.dtype("<i2"), "CharStorage": np.dtype("i1"), "ByteStorage": np.dtype("u1"),
    "BoolStorage": np.dtype("?"),
}  # fmt: skip
_OPCODES = frozenset(
    "PROTO STOP MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINUNICODE EMPTY_DICT EMPTY_LIST EMPTY_TUPLE "
    "TUPLE TUPLE1 TUPLE2 TUPLE3 BINPUT LONG_BINPUT BINGET LONG_BINGET BINPERSID GLOBAL REDUCE SETITEM SETITEMS APPEND "
    "APPENDS".split()
)
# About 35 make a tensor. Of 150,000 nested tuples, the hash ends the process.
_MOST_OPCODES = 50_000


class _Refused(Exception):
    """What is wrong with a file, the end of a sentence."""


def read_torch_file(path):
    """The tensors of a state dictionary that `torch.save` wrote, in either of its formats: dict from name to NumPy
    array, bfloat16 as float32.

    Raises:
        InputError: the file cannot be read, is damaged or truncated, or holds anything but a dictionary of tensors.
            Nothing in it is run.
    """
    try:
        # In memory: a length that the file names is then bounded by what there is.
        with open(path, "rb") as opened:
            content = opened.read()
        read = _read_zip if zipfile.is_zipfile(io.BytesIO(content)) else _read_legacy
        tensors, storages = read(content)
        # Views may share their storage, which few do: not without end.
        if sum(tensor.check(storages) for tensor in tensors.values()) > len(content):
            raise _Refused(f"its tensors have more numbers than its {len(content):,} bytes hold: it is damaged")
        return {name: tensor.array(storages) for name, tensor in tensors.items()}
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from None
    # What the standard library raises for a damaged archive is no small set: RuntimeError is of it.
    except (
        _Refused, EOFError, KeyError, OverflowError, struct.error, zipfile.BadZipFile, RuntimeError, ValueError,
    ) as error:  # fmt: skip
        raise InputError(f"{path} is no complete checkpoint of PyTorch's: {str(error)[:300]}.") from None


# What a pickle makes. These are tuples, with neither a `__dict__` nor a `__setstate__`: a BUILD changes nothing.


class _Storage(typing.NamedTuple):
    """Names the numbers that tensors are views of."""

    kind: str
    key: str


class _Tensor(typing.NamedTuple):
    storage: _Storage
    offset: int
    size: tuple
    stride: tuple

    def check(self, storages):
        """The number of its numbers; `_Refused` if the storage has fewer."""
        whole = (self.offset, *self.size, *self.stride)
        wrong = any(type(n) is not int or not 0 <= n < 2**62 for n in whole)
        if wrong or not len(self.size) == len(self.stride) <= 8:
            raise _Refused(f"a tensor has size {str(self.size)[:60]} and stride {str(self.stride)[:60]}: it is damaged")
        last = self.offset + sum((n - 1) * step for n, step in zip(self.size, self.stride))
        count = len(storages[self.storage.key])
        if 0 not in self.size and last >= count:
            raise _Refused(f"it holds a tensor of {self.size} in {count} numbers: it is truncated")
        return math.prod(self.size)

    def array(self, storages):
        values = storages[self.storage.key]
        if 0 in self.size:
            return np.zeros(self.size, values.dtype)
        strides = [step * values.itemsize for step in self.stride]
        return np.lib.stride_tricks.as_strided(values[self.offset :], self.size, strides).copy()


class _Name(typing.NamedTuple):
    """A name in a pickle. It is no class, so that nothing makes an object of it but a call, which is this one."""

    module: str
    name: str

    def __call__(self, *arguments):
        if self == _DICT and not arguments:
            return {}
        if self == _PARAMETER and arguments and type(arguments[0]) is _Tensor:
            return arguments[0]
        if self == _TENSOR and len(arguments) >= 4:
            storage, _, size, stride = arguments[:4]
            if type(storage) is _Storage and type(size) is tuple and type(stride) is tuple:
                return _Tensor(*arguments[:4])
        raise _Refused("it makes something that is no tensor")


_DICT = _Name("collections", "OrderedDict")
_TENSOR = _Name("torch._utils", "_rebuild_tensor_v2")
_PARAMETER = _Name("torch._utils", "_rebuild_parameter")
_KNOWN = {_DICT, _TENSOR, _PARAMETER, *(_Name("torch", kind) for kind in _DTYPES)}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module, name):
        found = _Name(module, name)
        if found not in _KNOWN:
            raise _Refused(f"it asks for {'.'.join(found)[:100]}, which no tensor needs; nothing of it was run")
        return found

    def persistent_load(self, identity):
        known = type(identity) is tuple and len(identity) >= 5 and identity[0] == "storage"
        if not known or type(identity[2]) not in (str, int):
            raise _Refused("it has an unknown reference")
        kind = identity[1]
        if type(kind) is not _Name or kind.module != "torch":
            raise _Refused("it has numbers of an unknown kind")
        return _Storage(kind.name, str(identity[2]))


def _load(file):
    """The value of the next pickle in a file."""
    start = file.tell()
    # Ahead of the unpickler, which takes what EXT means from a table of the whole process without asking
    # `find_class`, and memory for what a file only announces.
    for count, (opcode, argument, _) in enumerate(pickletools.genops(file)):
        if opcode.name not in _OPCODES:
            raise _Refused(f"its step {opcode.name} is none that a dictionary of tensors needs; nothing of it was run")
        if count == _MOST_OPCODES or (opcode.name == "LONG_BINPUT" and argument >= _MOST_OPCODES):
            raise _Refused(f"its description has more than {_MOST_OPCODES:,} steps")
    pickled = io.BytesIO(file.getvalue()[start : file.tell()])
    try:
        return _Unpickler(pickled).load()
    except _Refused:
        raise
    except Exception as error:  # a damaged pickle comes to any of them
        raise _Refused(f"its description is damaged ({str(error)[:100]})") from None


def _kinds(state):
    """Dict from the key of each storage to its kind; `_Refused` if the state is no dictionary of tensors."""
    if type(state) is not dict:
        raise _Refused("it holds no dictionary of tensors")
    if not all(type(name) is str and type(value) is _Tensor for name, value in state.items()):
        raise _Refused("it holds no dictionary of tensors by name")
    kinds = {}
    for kind, key in (tensor.storage for tensor in state.values()):
        if kinds.setdefault(key, kind) != kind:
            raise _Refused(f"its numbers are both {kinds[key]} and {kind}")
    return kinds


def _numbers(kind, data):
    values = np.frombuffer(data, _DTYPES[kind])
    return (values.astype(np.uint32) << 16).view(np.float32) if kind == "BFloat16Storage" else values


def _read_zip(content):
    """The tensors by their names, and the storages by their keys."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = archive.infolist()
        # PyTorch compresses nothing; sizes are checked before anything is read.
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
            raise _Refused("its parts are compressed, which PyTorch never does")
        if sum(max(entry.file_size, entry.compress_size) for entry in entries) > len(content):
            raise _Refused("its parts are larger than the file itself")
        names = archive.namelist()
        name = next((name for name in names if name == "data.pkl" or name.endswith("/data.pkl")), None)
        if name is None:
            raise _Refused("the archive has no data.pkl")
        folder = name[: -len("data.pkl")]
        if f"{folder}byteorder" in names and archive.read(f"{folder}byteorder") != b"little":
            raise _Refused("its numbers are not little-endian")
        state = _load(io.BytesIO(archive.read(name)))
        return state, {key: _numbers(kind, archive.read(f"{folder}data/{key}")) for key, kind in _kinds(state).items()}


def _read_legacy(content):
    """The same of the format before PyTorch 1.6: pickles one after the other, then the numbers."""
    file = io.BytesIO(content)
    if _load(file) != _MAGIC or _load(file) != _PROTOCOL:
        raise _Refused("it does not begin as one")
    machine = _load(file)
    if type(machine) is not dict or machine.get("little_endian") is False:
        raise _Refused("its numbers are not little-endian")
    state, keys = _load(file), _load(file)
    kinds, storages = _kinds(state), {}
    if type(keys) is not list or not all(type(key) in (str, int) for key in keys):
        raise _Refused("it does not name its numbers")
    for key in map(str, keys):
        (count,) = struct.unpack("<q", file.read(8))
        wanted = count * _DTYPES[kinds[key]].itemsize
        data = file.read(max(wanted, 0))
        if count < 0 or len(data) != wanted:
            raise _Refused(f"it names {count:,} numbers, which it is too short for: it is truncated")
        storages[key] = _numbers(kinds[key], data)
    if storages.keys() != kinds.keys():
        raise _Refused("it is truncated")
    return state, storages
