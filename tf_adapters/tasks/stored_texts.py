"""Texts on disk, for data sets that should not lie in memory."""

import mmap
import tempfile

import numpy as np

from tf_adapters.errors import InputError


class StoredTexts:
    """Strings in an unnamed temporary file, of which only those that are read are in memory.

    In memory are eight bytes a text, where it ends. The file lies in the folder that the
    environment variable TMPDIR names, and goes when the object does.

    Example:
        >>> texts = StoredTexts()
        >>> texts.extend(["a", "b"])
        >>> texts[[1, 0, 1]].tolist()
        [b'b', b'a', b'b']
    """

    def __init__(self):
        self._file = tempfile.TemporaryFile(prefix="tf_adapters.")
        self._lengths = []
        self._ends = None
        self._bytes = None

    def extend(self, texts):
        """Add a list of str or of UTF-8 bytes; all of them before the first is read."""
        encoded = [text.encode("utf-8") if isinstance(text, str) else text for text in texts]
        self._lengths.append(np.fromiter(map(len, encoded), np.int64, len(encoded)))
        try:
            self._file.write(b"".join(encoded))
            self._file.flush()  # a full disk shows here
        except OSError as error:
            raise InputError(
                f"The texts do not fit into {tempfile.gettempdir()} ({error.strerror}): name a folder with room by TMPDIR."
            ) from None

    def __len__(self):
        return len(self._read()) - 1

    @property
    def shape(self):
        """The shape of the tensor that this stands for, `(texts,)`."""
        return (len(self),)

    def __getitem__(self, index):
        """The texts at an int array of indices: object array of bytes."""
        ends, index = self._read(), np.asarray(index, np.int64)
        texts = np.empty(len(index), object)
        for place, (start, end) in enumerate(zip(ends[index].tolist(), ends[index + 1].tolist())):
            texts[place] = self._bytes[start:end]
        if isinstance(self._bytes, mmap.mmap):
            # What was read would count as this process's memory for as long as no other one needs it.
            self._bytes.madvise(mmap.MADV_DONTNEED)
        return texts

    def gather(self, index):
        """The texts at an int64 tensor of indices, a string tensor; also in a graph."""
        import tensorflow as tf

        return tf.ensure_shape(tf.numpy_function(self.__getitem__, [index], tf.string), index.shape)

    def take(self, index):
        """The texts at an int array of indices, on disk again."""
        taken = StoredTexts()
        for start in range(0, len(index), 8192):
            taken.extend(self[index[start : start + 8192]])
        return taken

    def _read(self):
        if self._ends is None:
            self._ends = np.concatenate([[0], np.cumsum(np.concatenate([[], *self._lengths]), dtype=np.int64)])
            self._lengths.clear()
            # A map of nothing is an error.
            self._bytes = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ) if self._ends[-1] else b""
        return self._ends
