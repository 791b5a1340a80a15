"""One of several equal parts of a file."""

import re

import numpy as np

from tf_adapters.errors import InputError


def parse_shard(text):
    """`"2/8"` as `(2, 8)`, or an InputError that says what a shard is."""
    match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
    index, count = map(int, match.groups()) if match else (0, 0)
    if not 1 <= index <= count:
        raise InputError("{shard} must be PART/PARTS, such as 2/8 for the second of eight.", shard=text)
    return index, count


def shard_chunks(read, index, count):
    """The chunks of one of `count` parts of a file, whose rows are consecutive; one after the other they are the file.

    Args:
        read: function without arguments that returns the file's chunks, as `own_files.unlabelled_chunks` does. The file
            is read twice: once to count its rows.
        index: int from 1 to `count`.
        count: int.

    Returns: iterator of chunks; `len(chunk)`, `chunk.rows()` and `chunk.records` are all that they have.

    Raises: InputError, if there are fewer rows than parts, or as `read`.
    """
    total = sum(len(chunk) for chunk in read())
    if total < count:
        shard = f"{index}/{count}"
        raise InputError(f"{{shard}}: the input has {total} rows, so there are at most {total} parts.", shard=shard)
    first, end = total * (index - 1) // count, total * index // count
    return _between(read(), first, end)


def _between(chunks, first, end):
    start = 0
    for chunk in chunks:
        low, high = max(first - start, 0), min(end - start, len(chunk))
        start += len(chunk)
        if low < high:
            yield _Part(chunk, low, high)
        if start >= end:
            return


class _Part:
    def __init__(self, chunk, low, high):
        self.chunk, self.low, self.high = chunk, low, high

    @property
    def records(self):
        """The rows' whole records, or None where the chunk has none."""
        records = getattr(self.chunk, "records", None)
        return None if records is None else records[self.low : self.high]

    def __len__(self):
        return self.high - self.low

    def rows(self):
        return self.chunk.rows().take(np.arange(self.low, self.high))
