"""PyTorch's checkpoints (`torch.save`) as NumPy arrays, by an unpickler that can build nothing but tensors."""

import collections
import os
import pickle
import struct
import zipfile

import numpy as np

from tf_adapters.errors import InputError

_MAGIC, _PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
# storage class -> dtype; bfloat16 has none in NumPy and is widened by hand
_DTYPES = {
    "FloatStorage": np.dtype("<f4"), "DoubleStorage": np.dtype("<f8"), "HalfStorage": np.dtype("<f2"), "BFloat16Storage": np.dtype("<u2"),
    "LongStorage": np.dtype("<i8"), "IntStorage": np.dtype("<i4"), "ShortStorage": np.dtype("<i2"), "CharStorage": np.dtype("i1"),
    "ByteStorage": np.dtype("u1"), "BoolStorage": np.dtype("?"),
}  # fmt: skip


def read_torch_file(path):
    """The tensors of a state dictionary that `torch.save` wrote, in either of its formats.

    Args:
        path: of the file.

    Returns: dict from name to NumPy array; bfloat16 becomes float32.

    Raises:
        InputError: the file is truncated, is none of PyTorch's, or would build anything but a dictionary of tensors. Nothing
            in it is run.
    """
    try:
        if zipfile.is_zipfile(path):
            state = _read_zip(path)
        else:
            state = _read_legacy(path)
    except (pickle.UnpicklingError, EOFError, KeyError, IndexError, struct.error, zipfile.BadZipFile, AttributeError, TypeError, ValueError) as error:
        raise InputError(f"{path} is no complete checkpoint of PyTorch's: {error}.") from None
    if not isinstance(state, dict) or not all(isinstance(name, str) and isinstance(value, _Tensor) for name, value in state.items()):
        raise InputError(f"{path} holds no dictionary of tensors.")
    return {name: value.array(path) for name, value in state.items()}


class _Storage:
    """The numbers that tensors are views of; they may come after the tensors in the file."""

    def __init__(self, kind):
        self.kind, self.values = kind, None

    def fill(self, data):
        self.values = np.frombuffer(data, _DTYPES[self.kind])
        if self.kind == "BFloat16Storage":
            self.values = (self.values.astype(np.uint32) << 16).view(np.float32)


class _Tensor:
    def __init__(self, storage, offset, size, stride):
        self.storage, self.offset, self.size, self.stride = storage, offset, tuple(size), tuple(stride)

    def array(self, path):
        values = self.storage.values
        if len(self.size) != len(self.stride) or any(not isinstance(n, int) or n < 0 for n in (self.offset, *self.size, *self.stride)):
            raise InputError(f"{path} holds a tensor of size {self.size} and stride {self.stride}: it is damaged.")
        if 0 in self.size:
            return np.zeros(self.size, values.dtype)
        last = self.offset + sum((n - 1) * step for n, step in zip(self.size, self.stride))
        if last >= len(values):
            raise InputError(f"{path} holds a tensor of {self.size} in {len(values)} numbers: it is truncated.")
        strides = [step * values.itemsize for step in self.stride]
        return np.lib.stride_tricks.as_strided(values[self.offset :], self.size, strides).copy()


def _rebuild_tensor(storage, offset, size, stride, *_):
    if not isinstance(storage, _Storage):
        raise pickle.UnpicklingError("a tensor without numbers")
    return _Tensor(storage, offset, size, stride)


def _rebuild_parameter(tensor, *_):
    return tensor


class _StorageType:
    def __init__(self, kind):
        self.kind = kind


class _Unpickler(pickle.Unpickler):
    """Finds names in a table of its own, and in no module."""

    _NAMES = {
        ("collections", "OrderedDict"): collections.OrderedDict,
        ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
        ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
        **{("torch", kind): _StorageType(kind) for kind in _DTYPES},
    }

    def __init__(self, file, find_storage):
        super().__init__(file, encoding="utf-8")
        self.find_storage = find_storage

    def find_class(self, module, name):
        try:
            return self._NAMES[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no tensor needs; nothing of it was run") from None

    def persistent_load(self, identity):
        if not isinstance(identity, tuple) or len(identity) < 5 or identity[0] != "storage" or not isinstance(identity[1], _StorageType):
            raise pickle.UnpicklingError("an unknown reference")
        return self.find_storage(identity[1].kind, str(identity[2]))


def _read_zip(path):
    with zipfile.ZipFile(path) as archive:
        name = next((name for name in archive.namelist() if name.endswith("/data.pkl") or name == "data.pkl"), None)
        if name is None:
            raise pickle.UnpicklingError("the archive has no data.pkl")
        folder, storages = name[: -len("data.pkl")], {}

        def find(kind, key):
            if key not in storages:
                storages[key] = _Storage(kind)
                storages[key].fill(archive.read(f"{folder}data/{key}"))
            return storages[key]

        with archive.open(name) as file:
            return _Unpickler(file, find).load()


def _read_legacy(path):
    """The format before PyTorch 1.6: pickles one after the other, then the numbers."""
    storages = {}

    def find(kind, key):
        return storages.setdefault(key, _Storage(kind))

    with open(path, "rb") as file:
        load = lambda: _Unpickler(file, find).load()  # noqa: E731
        if load() != _MAGIC or load() != _PROTOCOL:
            raise pickle.UnpicklingError("it does not begin as one")
        load()  # the machine that wrote it
        state = load()
        for key in load():
            storage = storages[str(key)]
            (count,) = struct.unpack("<q", file.read(8))
            size = count * _DTYPES[storage.kind].itemsize
            if count < 0 or size > os.path.getsize(path):
                raise pickle.UnpicklingError(f"it names {count} numbers, which it is too short for")
            data = file.read(size)
            if len(data) != size:
                raise EOFError("it is truncated")
            storage.fill(data)
    if any(storage.values is None for storage in storages.values()):
        raise EOFError("it is truncated")
    return state
