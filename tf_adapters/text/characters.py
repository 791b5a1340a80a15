"""What becomes of each character, asked once from a tokenizer's own normaliser and looked up in the graph."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

CODE_POINTS = 0x110000
_PAGE = 256


class CharacterTable(NamedTuple):
    """What becomes of each code point, in two levels that share equal pages.

    Code point `c` becomes the non-zero entries of
    `entries[pages[c // 256] * 256 + c % 256]`; an entry is
    `4 * (new code point - c + 0x110000) + kind`, with a kind from 0 to 3 for whoever makes the table.
    """

    pages: np.ndarray
    entries: np.ndarray

    @classmethod
    def of(cls, table):
        """Store entries `(0x110000, width)` by pages, in no more columns than there are entries in a row."""
        table = table[:, : max(1, int((table > 0).any(axis=0).sum()))]
        asked, stands_for = _pages_to_ask()
        first_of = {}
        places = {
            int(page): first_of.setdefault(table[page * _PAGE : (page + 1) * _PAGE].tobytes(), len(first_of))
            for page in asked
        }
        pages = np.array([places[int(page)] for page in stands_for], np.int32)
        return cls(pages, np.frombuffer(b"".join(first_of), np.int32).reshape(-1, table.shape[1]))

    def tensors(self):
        """The same table as constants."""
        return CharacterTable(*map(tf.constant, self))

    def look_up(self, code_points):
        """What code points become, in a graph.

        Args:
            code_points: int32 tensor, `(characters,)`.
        Returns: the new code points and their kinds, int32, and of each the index in `code_points` of what it comes
        from, int64.
        """
        page = tf.gather(self.pages, code_points // _PAGE)
        entries = tf.gather(self.entries, page * _PAGE + code_points % _PAGE)
        kept = tf.where(entries > 0)
        entries, source = tf.gather_nd(entries, kept), kept[:, 0]
        return tf.gather(code_points, source) + entries // 4 - CODE_POINTS, entries % 4, source


class Normalised(NamedTuple):
    """What a normaliser makes of code points: that of `code_points[i]` is `lengths[i]` values of `values` from
    `starts[i]` on."""

    code_points: np.ndarray
    values: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray

    def table(self, kind=None):
        """The entries of a `CharacterTable`, int32 array `(0x110000, width)`, with the kind of each new code point, or
        0."""
        table = np.zeros((CODE_POINTS, int(self.lengths.max())), np.int32)
        for position in range(table.shape[1]):
            has = self.lengths > position
            new, old = self.values[self.starts[has] + position], self.code_points[has]
            table[old, position] = entry(old, new, 0 if kind is None else kind[new])
        return table


def entry(old, new, kind):
    """An entry of a `CharacterTable`."""
    return 4 * (new - old + CODE_POINTS) + kind


def normalise_each(normalise, separator):
    """Ask what becomes of each character by itself.

    Asking, in place of rules of our own, gives the same Unicode version and the
    same oddities as the tokenizer that the model was trained with.

    Args:
        normalise: function from str to str.
        separator: str, a character that stays as it is, that nothing else becomes and that no mark is moved across.
    Returns: `Normalised`, of all code points that `CharacterTable.of` looks at but for the separator.
    """
    asked, _ = _pages_to_ask()
    code_points = (asked[:, None] * _PAGE + np.arange(_PAGE)).reshape(-1)
    surrogate = (code_points >= 0xD800) & (code_points < 0xE000)  # never come out of UTF-8
    code_points = code_points[~surrogate & (code_points != ord(separator))]
    # One call for all of a chunk: "a|b|c|" -> "a'|b'|c'|".
    values = []
    for chunk in np.array_split(code_points, len(code_points) // 4096 + 1):
        text = to_string(np.stack([chunk, np.full_like(chunk, ord(separator))], axis=1).reshape(-1))
        values.append(to_code_points(normalise(text)))
    values = np.concatenate(values)
    ends = np.flatnonzero(values == ord(separator))
    if len(ends) != len(code_points):
        raise RuntimeError(f"the normaliser changed the separator {separator!r} between characters")
    starts = np.concatenate([[0], ends[:-1] + 1])
    return Normalised(code_points, values, starts, ends - starts)


def _pages_to_ask():
    """The pages of 256 code points to ask for, and for every page the asked one that it equals.

    Planes 4 to 13 are unassigned and planes 15 and 16 private: one page speaks
    for all but the last of a plane, which holds two noncharacters. This keeps
    the table's making at a fifth of the time.
    """
    page = np.arange(CODE_POINTS // _PAGE)
    plane, place = page // 256, page % 256
    alike = ((plane >= 4) & (plane != 14) | (plane == 14) & (place >= 16)) & (place < 255)
    stands_for = np.where(alike, plane * 256 + 128, page)
    return np.unique(stands_for), stands_for


def to_string(code_points):
    """A NumPy array of code points as a str."""
    return code_points.astype("<u4").tobytes().decode("utf-32-le")


def to_code_points(text):
    """The reverse: int64."""
    return np.frombuffer(text.encode("utf-32-le"), "<u4").astype(np.int64)
