"""Columns on disk, for data sets that should not lie in memory."""

import json
import mmap
import tempfile

import numpy as np

from tf_adapters.errors import InputError

_CHUNK = 8192


class _Store:
    """Bytes in an unnamed temporary file, of which only those that are read are in memory.

    The file lies in the folder that the environment variable TMPDIR names, and goes when the object does.
    """

    def __init__(self):
        self.size = 0
        self._map = None
        try:
            self._file = tempfile.TemporaryFile(prefix="tf_adapters.")
        except OSError as error:
            raise InputError(
                f"The rows of a large file need a temporary one ({error.strerror}): name a folder with room by TMPDIR."
            ) from None

    def append(self, content):
        """Add bytes; all of them before the first is read."""
        try:
            self._file.write(content)
            self._file.flush()  # a full disk shows here
        except OSError as error:
            raise InputError(
                f"The rows do not fit into {tempfile.gettempdir()} ({error.strerror}): name a folder with room by "
                "TMPDIR."
            ) from None
        self.size += len(content)

    @property
    def bytes(self):
        """What was added, as bytes or a map of them."""
        if self._map is None:
            # A map of nothing is an error.
            self._map = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ) if self.size else b""
        return self._map

    def release(self):
        """Let go of what was read, which would count as this process's memory for as long as no other one needs it."""
        if self._map:
            self._map.madvise(mmap.MADV_DONTNEED)


class StoredNumbers:
    """An array on disk that grows by its first axis.

    Args:
        dtype: of NumPy.
        row: shape of an entry.

    Example:
        >>> numbers = StoredNumbers(np.int32)
        >>> numbers.extend([3, 5])
        >>> numbers[[1, 0, 1]]
        array([5, 3, 5], dtype=int32)
    """

    def __init__(self, dtype, row=()):
        self.dtype = np.dtype(dtype)
        self._row = tuple(row)
        self._row_bytes = self.dtype.itemsize * int(np.prod(self._row, dtype=np.int64))
        self._store = _Store()

    def extend(self, numbers):
        """Add entries; all of them before the first is read."""
        self._store.append(np.ascontiguousarray(numbers, self.dtype).tobytes())

    def __len__(self):
        return self._store.size // self._row_bytes

    def __getitem__(self, index):
        """The entries at an int, a slice or an int array, in memory."""
        found = np.array(self.array()[index])
        self._store.release()
        return found

    def __iter__(self):
        for start in range(0, len(self), _CHUNK):
            yield from self[start : start + _CHUNK].tolist()

    def array(self):
        """All of it as a read-only array, which the system reads from the file where it is used."""
        return np.frombuffer(self._store.bytes, self.dtype).reshape(len(self), *self._row)


class StoredTexts:
    """Strings on disk.

    Example:
        >>> texts = StoredTexts()
        >>> texts.extend(["a", "b"])
        >>> texts[[1, 0, 1]].tolist()
        [b'b', b'a', b'b']
    """

    def __init__(self):
        self._store = _Store()
        self._ends = StoredNumbers(np.int64)
        self._ends.extend([0])

    def extend(self, texts):
        """Add a list of str or of UTF-8 bytes; all of them before the first is read."""
        encoded = [text.encode("utf-8") if isinstance(text, str) else text for text in texts]
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
        self._ends.extend(self._store.size + np.cumsum(lengths))
        self._store.append(b"".join(encoded))

    def __len__(self):
        return len(self._ends) - 1

    @property
    def shape(self):
        """The shape of the tensor that this stands for, `(texts,)`."""
        return (len(self),)

    def __getitem__(self, index):
        """The texts at an int array of indices: object array of bytes."""
        index = np.asarray(index, np.int64)
        stored = self._store.bytes
        texts = np.empty(len(index), object)
        for place, (start, end) in enumerate(zip(self._ends[index].tolist(), self._ends[index + 1].tolist())):
            texts[place] = stored[start:end]
        self._store.release()
        return texts

    def gather(self, index):
        """The texts at an int64 tensor of indices, a string tensor; also in a graph."""
        import tensorflow as tf

        return tf.ensure_shape(tf.numpy_function(self.__getitem__, [index], tf.string), index.shape)

    def take(self, index):
        """The texts at an int array of indices, on disk again."""
        taken = StoredTexts()
        for start in range(0, len(index), _CHUNK):
            taken.extend(self[index[start : start + _CHUNK]])
        return taken


class StoredCells:
    """Label cells on disk, any JSON values."""

    def __init__(self):
        self._texts = StoredTexts()

    def extend(self, cells):
        """Add a list of cells; all of them before the first is read."""
        self._texts.extend(list(map(json.dumps, cells)))

    def __len__(self):
        return len(self._texts)

    def __iter__(self):
        for start in range(0, len(self), _CHUNK):
            yield from map(json.loads, self._texts[np.arange(start, min(start + _CHUNK, len(self)))])
