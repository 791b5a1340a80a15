"""PyTorch's checkpoints (`torch.save`) as NumPy arrays, by an interpreter that knows the opcodes of a dictionary of
tensors alone.

A pickle is a program. What `torch.save` writes of a dictionary of tensors is built of few opcodes, and of them those
stand here that make numbers, strings, tuples, lists, dictionaries and the views of a storage. A file cannot name
anything else, change anything that is not its own, or take more memory than a few times its own size.
"""

import io
import math
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
    "BFloat16Storage": np.dtype("<u2"),
    "LongStorage": np.dtype("<i8"), "IntStorage": np.dtype("<i4"), "ShortStorage": np.dtype("<i2"),
    "CharStorage": np.dtype("i1"),
    "ByteStorage": np.dtype("u1"), "BoolStorage": np.dtype("?"),
}  # fmt: skip
# About fifty make a tensor.
_MOST_OPCODES = 300_000


class _Refused(Exception):
    """What is wrong with a file, the end of a sentence."""


def read_torch_file(path):
    """The tensors of a state dictionary that `torch.save` wrote, in either of its formats.

    Args:
        path: of the file.

    Returns: dict from name to NumPy array; bfloat16 becomes float32.

    Raises:
        InputError: the file is truncated, is none of PyTorch's, or would build anything but a dictionary of tensors.
            Nothing in it is run.
    """
    try:
        # In memory: a length that the file names is then bounded by what there is.
        with open(path, "rb") as opened:
            content = opened.read()
        size, file = len(content), io.BytesIO(content)
        state = _read_zip(file, size) if zipfile.is_zipfile(file) else _read_legacy(io.BytesIO(content))
        if type(state) is not dict or not all(type(value) is _Tensor for value in state.values()):
            raise _Refused("it holds no dictionary of tensors")
        # Views may share their storage, which few do: not without end.
        if sum(value.check() for value in state.values()) > size:
            raise _Refused(f"its tensors have more numbers than its {size:,} bytes hold: it is damaged")
        return {name: value.array() for name, value in state.items()}
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from None
    # What the standard library raises for a damaged archive is no small set: RuntimeError is of it.
    except (
        _Refused, EOFError, KeyError, IndexError, OverflowError, struct.error, zipfile.BadZipFile, RuntimeError,
        ValueError,
    ) as error:  # fmt: skip
        raise InputError(f"{path} is no complete checkpoint of PyTorch's: {str(error)[:300]}.") from None


class _Storage:
    """The numbers that tensors are views of; they may come after the tensors in the file."""

    def __init__(self, kind):
        self.kind, self.values = kind, None

    def fill(self, data):
        self.values = np.frombuffer(data, _DTYPES[self.kind])
        if self.kind == "BFloat16Storage":
            self.values = (self.values.astype(np.uint32) << 16).view(np.float32)


class _Tensor(typing.NamedTuple):
    storage: _Storage
    offset: int
    size: tuple
    stride: tuple

    def check(self):
        """The number of its numbers; `_Refused` if the storage has fewer."""
        whole = (self.offset, *self.size, *self.stride)
        if (
            len(self.size) != len(self.stride)
            or len(self.size) > 8
            or any(type(n) is not int or not 0 <= n < 2**62 for n in whole)
        ):
            raise _Refused(
                f"it holds a tensor of size {str(self.size)[:60]} and stride {str(self.stride)[:60]}: it is damaged"
            )
        last = self.offset + sum((n - 1) * step for n, step in zip(self.size, self.stride))
        if 0 not in self.size and last >= len(self.storage.values):
            raise _Refused(f"it holds a tensor of {self.size} in {len(self.storage.values)} numbers: it is truncated")
        return math.prod(self.size)

    def array(self):
        values = self.storage.values
        if 0 in self.size:
            return np.zeros(self.size, values.dtype)
        strides = [step * values.itemsize for step in self.stride]
        return np.lib.stride_tricks.as_strided(values[self.offset :], self.size, strides).copy()


class _Global(typing.NamedTuple):
    """A name in a pickle, which stands for nothing but itself."""

    module: str
    name: str


_DICT = _Global("collections", "OrderedDict")
_TENSOR = _Global("torch._utils", "_rebuild_tensor_v2")
_PARAMETER = _Global("torch._utils", "_rebuild_parameter")
_STORAGES = {_Global("torch", kind): kind for kind in _DTYPES}
_KNOWN = {_DICT, _TENSOR, _PARAMETER, *_STORAGES}


_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
_LENGTHS = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


def _load(file, find_storage):
    """The value of the next pickle in a file; `find_storage` is a function of a storage's kind and key."""
    machine = _Machine(find_storage)
    for count, (opcode, argument, _) in enumerate(pickletools.genops(file)):
        if count == _MOST_OPCODES:
            raise _Refused(f"its description has more than {_MOST_OPCODES:,} steps")
        if opcode.name == "STOP":
            return machine.stack.pop()
        machine.step(opcode.name, argument)


class _Machine:
    """Does what the opcodes of a dictionary of tensors say, and no other."""

    def __init__(self, find_storage):
        self.stack, self.marks, self.memo, self.find_storage = [], [], {}, find_storage

    def step(self, name, argument):
        stack = self.stack
        if name in ("BININT", "BININT1", "BININT2", "LONG1", "BINUNICODE"):
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name in _LENGTHS:
            length = _LENGTHS[name]
            if len(stack) < length:
                raise IndexError("its stack is too short")
            stack[-length:] = [tuple(stack[-length:])]
        elif name == "TUPLE":
            stack.append(tuple(self._above_mark()))
        elif name == "MARK":
            self.marks.append(len(stack))
        elif name in ("BINPUT", "LONG_BINPUT"):
            self.memo[argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(self.memo[argument])
        elif name == "BINPERSID":
            stack.append(_storage(stack.pop(), self.find_storage))
        elif name == "REDUCE":
            arguments, function = stack.pop(), stack.pop()
            stack.append(_called(function, arguments))
        elif name in ("SETITEM", "SETITEMS"):
            self._set_items(self._above_mark() if name == "SETITEMS" else [stack.pop(), stack.pop()][::-1])
        elif name in ("APPEND", "APPENDS"):
            self._extend(self._above_mark() if name == "APPENDS" else [stack.pop()])
        elif name == "GLOBAL":
            stack.append(_known(argument))
        elif name != "PROTO":
            raise _Refused(f"its step {name} is none that a dictionary of tensors needs; nothing of it was run")

    def _above_mark(self):
        start = self.marks.pop()
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def _set_items(self, items):
        if type(self.stack[-1]) is not dict or len(items) % 2 or not all(type(key) is str for key in items[::2]):
            raise _Refused("it holds no dictionary of tensors by name")
        self.stack[-1].update(zip(items[::2], items[1::2]))

    def _extend(self, values):
        if type(self.stack[-1]) is not list:
            raise _Refused("it appends to what is no list")
        self.stack[-1].extend(values)


def _known(argument):
    found = _Global(*argument.split(" ", 1))
    if found not in _KNOWN:
        raise _Refused(f"it asks for {'.'.join(found)[:100]}, which no tensor needs; nothing of it was run")
    return found


def _storage(identity, find_storage):
    if (
        type(identity) is not tuple
        or len(identity) < 5
        or identity[0] != "storage"
        or type(identity[2]) not in (str, int)
    ):
        raise _Refused("it has an unknown reference")
    if type(identity[1]) is not _Global or identity[1] not in _STORAGES:
        raise _Refused("it has numbers of an unknown kind")
    return find_storage(_STORAGES[identity[1]], str(identity[2]))


def _called(function, arguments):
    if type(function) is _Global and type(arguments) is tuple:
        if function == _DICT and not arguments:
            return {}
        if function == _PARAMETER and arguments and type(arguments[0]) is _Tensor:
            return arguments[0]
        if function == _TENSOR and len(arguments) >= 4:
            storage, offset, size, stride = arguments[:4]
            if type(storage) is _Storage and type(size) is tuple and type(stride) is tuple:
                return _Tensor(storage, offset, size, stride)
    raise _Refused("it makes something that is no tensor")


def _read_zip(file, size):
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        # PyTorch compresses nothing; sizes are checked before anything is read.
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
            raise _Refused("its parts are compressed, which PyTorch never does")
        if sum(max(entry.file_size, entry.compress_size) for entry in entries) > size:
            raise _Refused("its parts are larger than the file itself")
        name = next(
            (
                entry.filename
                for entry in entries
                if entry.filename.endswith("/data.pkl") or entry.filename == "data.pkl"
            ),
            None,
        )
        if name is None:
            raise _Refused("the archive has no data.pkl")
        folder, storages = name[: -len("data.pkl")], {}
        if f"{folder}byteorder" in archive.namelist() and archive.read(f"{folder}byteorder") != b"little":
            raise _Refused("its numbers are not little-endian")

        def find(kind, key):
            if key not in storages:
                storages[key] = _Storage(kind)
                storages[key].fill(archive.read(f"{folder}data/{key}"))
            return _same(storages[key], kind)

        return _load(io.BytesIO(archive.read(name)), find)


def _same(storage, kind):
    if storage.kind != kind:
        raise _Refused(f"its numbers are both {storage.kind} and {kind}")
    return storage


def _read_legacy(file):
    """The format before PyTorch 1.6: pickles one after the other, then the numbers."""
    storages = {}

    def find(kind, key):
        return _same(storages.setdefault(key, _Storage(kind)), kind)

    if _load(file, find) != _MAGIC or _load(file, find) != _PROTOCOL:
        raise _Refused("it does not begin as one")
    machine = _load(file, find)
    if type(machine) is not dict or machine.get("little_endian") is False:
        raise _Refused("its numbers are not little-endian")
    state, keys = _load(file, find), _load(file, find)
    if type(keys) is not list or not all(type(key) in (str, int) for key in keys):
        raise _Refused("it does not name its numbers")
    for key in keys:
        storage = storages[str(key)]
        (count,) = struct.unpack("<q", file.read(8))
        wanted = count * _DTYPES[storage.kind].itemsize
        data = file.read(max(wanted, 0))
        if count < 0 or len(data) != wanted:
            raise _Refused(f"it names {count:,} numbers, which it is too short for: it is truncated")
        storage.fill(data)
    if any(storage.values is None for storage in storages.values()):
        raise _Refused("it is truncated")
    return state
