"""GPT-2's and RoBERTa's byte-level BPE as TensorFlow operations, equal to HuggingFace's fast tokenizer."""

import functools
import hashlib
import json
import os

import numpy as np
import tensorflow as tf

from tf_adapters.errors import InputError, shown
from tf_adapters.paths import objects, read_json, to_path
from tf_adapters.ranges import checked, is_int
from tf_adapters.text.characters import CODE_POINTS, to_string
from tf_adapters.text.tokenizer import (
    Tokenizer,
    TokenizerConfig,
    check_is,
    check_rows,
    checked_text,
    no_autograph,
    read_lines,
    rows_of_pieces,
    utf8_bytes,
)

_OTHER, _LETTER, _NUMBER, _SPACE = range(4)
_NO_RANK = 2**31 - 1


class ByteLevelBpe(Tokenizer):
    """Byte-level BPE of strings to ids, in TensorFlow operations.

    The tokens equal those of `transformers.RobertaTokenizerFast`, except that special tokens in a text (`</s>`) are
    plain text here, on purpose: whoever writes a text could otherwise end it. Bytes that are not UTF-8 become U+FFFD,
    and so do Unicode's 66 noncharacters (U+FDD0, U+FFFE, ...) under a TensorFlow whose `unicode_encode` replaces them,
    as that of 2.19 does.
    All steps are operations of TensorFlow alone, without state, so that one object serves `tf.data` and an exported
    model.

    A text is cut where GPT-2's pattern cuts it; what is a letter, a number or white space is asked once from the
    installed `tokenizers`. Of the pieces that are left, each different one is merged once: in a step, every piece joins
    its pair of lowest rank, until none has one.

    Args:
        vocabulary: dict from token to id, tokens written in GPT-2's alphabet for bytes; ids without a gap.
        merges: list of pairs of tokens, in the order of their ranks.
        add_prefix_space: bool, whether a text that begins with no space is read as if it did.
        max_length: int, the most ids in a row, special tokens included.
        cls_token, sep_token, pad_token, unk_token: str, entries of the vocabulary.

    Raises:
        InputError: a vocabulary or merges that do not belong together, a missing token, a `max_length` below 3.

    Reference: Radford et al. 2019, section 2.2; Liu et al. 2019, section 4.4.
    """

    single_specials, pair_specials, marks_second = 2, 4, False

    def __init__(
        self, vocabulary, merges, *, add_prefix_space=False, max_length=128, cls_token="<s>", sep_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
    ):  # fmt: skip
        super().__init__(name="byte_level_bpe")
        keys, merged = _merge_table(vocabulary, merges)
        self.set_specials(
            vocabulary, cls_token=cls_token, sep_token=sep_token, pad_token=pad_token, unk_token=unk_token
        )
        self.max_length, self.add_prefix_space = checked("max_length", max_length), bool(add_prefix_space)
        digest = hashlib.sha256(
            json.dumps([sorted(vocabulary.items()), list(map(list, merges))], ensure_ascii=False).encode("utf-8")
        )
        self._sha256 = digest.hexdigest()
        self.size, self.mask_id = len(vocabulary), vocabulary.get("<mask>")
        # White space in GPT-2's alphabet for bytes.
        starts = {number for token, number in vocabulary.items() if token[:1] in "\u0120\u010a\u010d\u0109"}
        self._word_starts = bytes(number in starts for number in range(self.size))
        alphabet = _byte_alphabet()
        missing = next((token for token in alphabet if token not in vocabulary), None)
        if missing is not None:
            raise InputError(f"vocabulary lacks {missing!r}: it must hold all 256 bytes.")
        with tf.device("CPU:0"):
            self._id_of_byte = tf.constant([vocabulary[token] for token in alphabet], tf.int32)
            self._kinds = tf.constant(_character_kinds())
            self._merged = tf.constant(merged)
            self._ranks = tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(tf.constant(keys), tf.range(len(keys), dtype=tf.int32)), _NO_RANK
            )

    @classmethod
    def from_directory(cls, directory, *, max_length=128):
        """Read `tokenizer.json`, or `vocab.json` and `merges.txt`, of a HuggingFace directory.

        Raises:
            InputError: neither is there, they are damaged, or the tokenizer is another one.
        """
        directory = str(to_path(directory))
        path = os.path.join(directory, "tokenizer.json")
        if os.path.isfile(path):
            vocabulary, merges, settings, added = _read_tokenizer_json(path)
        elif all(os.path.isfile(os.path.join(directory, name)) for name in ("vocab.json", "merges.txt")):
            vocabulary = read_json(os.path.join(directory, "vocab.json"))
            lines = read_lines(os.path.join(directory, "merges.txt"))
            merges = [tuple(line.split()) for line in lines if line and not line.startswith("#version")]
            settings, added = {}, ()
        else:
            raise InputError(
                "{directory} holds no byte-level BPE: neither tokenizer.json, nor vocab.json and merges.txt.",
                directory=directory,
            )
        config = TokenizerConfig(directory)
        settings |= config.tokens(("cls_token", "sep_token", "pad_token", "unk_token"))
        if not config.alone:
            # transformers sets it in what tokenizer.json says, too.
            settings |= {"add_prefix_space": False, **config.flags(("add_prefix_space",))}
        config.refuse_added(len(vocabulary), own=settings.values(), listed=added)
        for token in added or ():
            vocabulary.setdefault(token["content"], token["id"])
        return cls(vocabulary, merges, max_length=max_length, **settings)

    def settings(self):
        """All settings as a dict for JSON, with vocabulary and merges as a digest."""
        names = ("add_prefix_space", "max_length", "cls_token", "sep_token", "pad_token", "unk_token")
        return {
            "tokenizer": "byte-level-bpe",
            **{name: getattr(self, name) for name in names},
            "vocabulary_sha256": self._sha256,
        }

    @no_autograph
    def tokenize(self, text):
        text = checked_text(text, "text")
        with tf.device("CPU:0"):
            return self._tokens(text)[0]

    @no_autograph
    def tokenize_words(self, words):
        """`tokenize` for words of a sentence that somebody has split: a space is read before each."""
        with tf.device("CPU:0"):
            return self.tokenize(tf.strings.join([" ", checked_text(words, "words")]))

    @no_autograph
    def tokenize_with_offsets(self, text):
        """As of `WordPiece`, spaces at either end left out."""
        text = checked_text(text, "text")
        with tf.device("CPU:0"):
            tokens, widths, characters, first_of_text = self._tokens(text)
            ends = tf.cumsum(widths.flat_values)
            starts = ends - widths.flat_values
            character_of_byte = tf.repeat(tf.range(tf.size(characters)), utf8_bytes(characters))
            first, last = tf.gather(character_of_byte, starts), tf.gather(character_of_byte, ends - 1)
            # As HuggingFace trims: spaces at either end belong to no token, and one of spaces alone has no character.
            places = tf.where(characters != ord(" "))[:, 0]
            places = tf.cast(tf.concat([[-1], places, tf.shape(characters, out_type=tf.int64)], 0), tf.int32)
            end = last + 1
            start = tf.minimum(tf.gather(places, tf.searchsorted(places, first)), end)
            end = tf.maximum(tf.gather(places, tf.searchsorted(places, last, side="right") - 1) + 1, start)
            base = tf.gather(first_of_text, tokens.value_rowids())
            return (
                tokens,
                tokens.with_values(tf.maximum(start - base, 0)),
                tokens.with_values(tf.maximum(end - base, 0)),
            )

    def _tokens(self, text):
        """Tokens and their widths in bytes, ragged; all characters, flat; and the place of each text's first one,
        without a prefix."""
        prefixed = tf.zeros_like(text, tf.int32)
        characters = tf.strings.unicode_decode(text, "UTF-8", errors="replace", replacement_char=0xFFFD)
        if _replaces_noncharacters():
            flat = characters.flat_values
            lost = (flat & 0xFFFE == 0xFFFE) | ((flat >= 0xFDD0) & (flat < 0xFDF0))
            # Before widths are counted: U+FFFD has other ones.
            characters = characters.with_flat_values(tf.where(lost, 0xFFFD, flat))
        if self.add_prefix_space:
            needed = tf.cast((characters[:, :1].to_tensor(ord(" "), shape=[None, 1])[:, 0] != ord(" ")), tf.int32)
            spaces = tf.RaggedTensor.from_row_lengths(
                tf.fill([tf.reduce_sum(needed)], ord(" ")), tf.cast(needed, tf.int64)
            )
            characters = tf.concat([spaces, characters], 1)
            prefixed = needed
        flat, splits = characters.flat_values, tf.cast(characters.row_splits, tf.int64)
        starts = self._piece_starts(flat, splits)
        first = tf.where(starts)[:, 0]
        bounds = tf.concat([first, tf.shape(flat, out_type=tf.int64)], 0)
        pieces = tf.strings.unicode_encode(tf.RaggedTensor.from_row_splits(flat, bounds, validate=False), "UTF-8")
        distinct, occurrence = tf.unique(pieces)
        ids, widths = self._merge(distinct)
        texts = tf.gather(characters.value_rowids(), first)
        pieces_per_text = tf.math.unsorted_segment_sum(tf.ones_like(texts), texts, tf.shape(text, out_type=tf.int64)[0])
        rows = [rows_of_pieces(tf.gather(ragged, occurrence), pieces_per_text) for ragged in (ids, widths)]
        return *rows, flat, tf.cast(splits[:-1], tf.int32) + prefixed

    def _piece_starts(self, characters, splits):
        """Where GPT-2's pattern begins a piece: bool `(characters,)`, all texts one after the other."""
        kinds = tf.gather(self._kinds, characters)
        size = tf.shape(characters, out_type=tf.int64)[0]
        opening = tf.scatter_nd(splits[:-1, tf.newaxis], tf.ones_like(splits[:-1], tf.int32), [size + 1])[:-1] > 0
        # The text of each character, so that nothing is seen across the border of two.
        text = tf.cumsum(tf.cast(opening, tf.int32))

        def shifted(values, by, empty):
            """Each character's neighbour `by` places on, or `empty` beyond its text."""
            missing = tf.fill([tf.minimum(tf.constant(abs(by), tf.int64), size)], tf.constant(empty, values.dtype))
            moved, other = (
                tf.concat([each[by:], fill] if by > 0 else [fill, each[:by]], 0)
                for each, fill in ((values, missing), (text, tf.zeros_like(missing, tf.int32)))
            )
            return tf.where(other == text, moved, tf.constant(empty, values.dtype))

        before, after = shifted(kinds, -1, -1), shifted(kinds, 1, -1)
        # A space belongs to the word behind it; so of white space before a word the last character goes by itself.
        led = (shifted(characters, -1, -1) == ord(" ")) & (kinds != _SPACE)
        starts = ((kinds != before) & ~led) | ((kinds == _SPACE) & (after != _SPACE) & (after != -1))
        # 's, 't, 'm, 'd, 're, 've and 'll are pieces, if an apostrophe begins one.
        apostrophe = (characters == ord("'")) & starts
        one, two = shifted(characters, 1, -1), shifted(characters, 2, -1)
        single = apostrophe & tf.reduce_any([one == ord(letter) for letter in "stmd"], 0)
        double = apostrophe & tf.reduce_any([(one == ord(a)) & (two == ord(b)) for a, b in ("re", "ve", "ll")], 0)
        inside = shifted(single | double, -1, False)
        behind = (shifted(single, -2, False)) | shifted(double, -3, False)
        return (starts & ~inside) | behind

    def _merge(self, pieces):
        """Ids of the tokens of pieces, and how many bytes each has: int32 RaggedTensors `(pieces, (tokens))`."""
        lengths = tf.cast(tf.strings.length(pieces), tf.int64)
        content = tf.io.decode_raw(tf.strings.reduce_join(pieces)[tf.newaxis], tf.uint8)[0]
        ids = tf.gather(self._id_of_byte, tf.cast(content, tf.int32))
        count = tf.size(pieces, tf.int64)
        owner = tf.repeat(tf.range(count), lengths)

        def step(ids, owner, widths, _):
            alike = owner[1:] == owner[:-1]
            keys = tf.cast(ids[:-1], tf.int64) * self.size + tf.cast(ids[1:], tf.int64)
            rank = tf.where(alike, self._ranks.lookup(keys), _NO_RANK)
            least = tf.math.unsorted_segment_min(rank, owner[:-1], count)
            chosen = (rank == tf.gather(least, owner[:-1])) & (rank != _NO_RANK)
            # Of pairs that overlap ("aaa"), the first, third, ... of a row of them join.
            position = tf.range(tf.size(chosen))
            begins = chosen & ~tf.concat([[False], chosen[:-1]], 0)[: tf.size(chosen)]
            first = tf.concat([tf.boolean_mask(position, begins), [0]], 0)
            row = tf.gather(first, tf.maximum(tf.cumsum(tf.cast(begins, tf.int32)) - 1, 0))
            chosen &= (position - row) % 2 == 0
            joins = tf.concat([chosen, [False]], 0)[: tf.size(ids)]
            joined = tf.concat([[False], chosen], 0)[: tf.size(ids)]
            rank = tf.concat([rank, [_NO_RANK]], 0)[: tf.size(ids)]
            ids = tf.where(joins, tf.gather(self._merged, tf.where(joins, rank, 0)), ids)
            widths += tf.where(joins, tf.concat([widths[1:], [0]], 0)[: tf.size(widths)], 0)
            kept = tf.where(~joined)[:, 0]
            return tf.gather(ids, kept), tf.gather(owner, kept), tf.gather(widths, kept), tf.reduce_any(chosen)

        flat = [tf.TensorShape([None])] * 3
        ids, owner, widths, _ = tf.while_loop(
            lambda ids, owner, widths, again: again, step, (ids, owner, tf.ones_like(ids), tf.constant(True)),
            shape_invariants=(*flat, tf.TensorShape([])),
        )  # fmt: skip
        return tuple(
            tf.RaggedTensor.from_value_rowids(values, owner, count, validate=False) for values in (ids, widths)
        )


@functools.cache
def _replaces_noncharacters():
    """Whether this TensorFlow writes U+FFFD for Unicode's noncharacters."""
    with tf.init_scope():
        return tf.strings.unicode_encode([0xFDD0], "UTF-8").numpy() != "\ufdd0".encode()


def _merge_table(vocabulary, merges):
    """Of each merge, in the order of ranks: `left * size + right`, and the id of what they become; two int arrays."""
    size = len(vocabulary)
    if not all(map(is_int, vocabulary.values())) or sorted(vocabulary.values()) != list(range(size)):
        raise InputError("vocabulary must map its tokens to the ids 0, 1, 2, ... without a gap.")
    keys, merged = [], []
    for rank, pair in enumerate(merges):
        texts = len(pair) == 2 and all(isinstance(token, str) for token in pair)
        if not texts or any(token not in vocabulary for token in (*pair, "".join(pair))):
            raise InputError(f"merges[{rank}]={shown(pair)} must be two tokens of the vocabulary that make a third.")
        keys.append(vocabulary[pair[0]] * size + vocabulary[pair[1]])
        merged.append(vocabulary["".join(pair)])
    if len(set(keys)) < max(1, len(keys)):
        raise InputError("merges must hold each pair of tokens once, and at least one.")
    return np.array(keys, np.int64), np.array(merged, np.int32)


def _byte_alphabet():
    """GPT-2's character for each byte: printable ones are themselves, the others come after 255."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


@functools.lru_cache(maxsize=None)
def _character_kinds():
    """What each code point is to GPT-2's pattern, by the Unicode version of the installed `tokenizers`."""
    from tokenizers import Regex
    from tokenizers.normalizers import Replace

    code_points = np.arange(CODE_POINTS)
    code_points = code_points[(code_points < 0xD800) | (code_points >= 0xE000)]  # surrogates never come out of UTF-8
    characters = to_string(code_points)
    kinds = np.full(CODE_POINTS, _OTHER, np.int32)
    for kind, pattern in ((_LETTER, r"\p{L}"), (_NUMBER, r"\p{N}"), (_SPACE, r"\s")):
        marked = np.frombuffer(Replace(Regex(pattern), "\ue000").normalize_str(characters).encode("utf-32-le"), "<u4")
        kinds[code_points[(marked == 0xE000) & (code_points != 0xE000)]] = kind
    return kinds


def _read_tokenizer_json(path):
    """Vocabulary, merges, settings and added tokens of a tokenizer.json, if it is RoBERTa's."""
    content = read_json(path)
    model, before, after = objects(content, ("model", "pre_tokenizer", "post_processor"), path)
    expected = (
        ("model.type", model.get("type"), "BPE"),
        ("model.dropout", model.get("dropout"), None),
        ("model.byte_fallback", model.get("byte_fallback", False), False),
        ("model.ignore_merges", model.get("ignore_merges", False), False),
        ("model.continuing_subword_prefix", model.get("continuing_subword_prefix") or "", ""),
        ("model.end_of_word_suffix", model.get("end_of_word_suffix") or "", ""),
        ("normalizer", content.get("normalizer"), None),
        ("pre_tokenizer.type", before.get("type"), "ByteLevel"),
        ("pre_tokenizer.use_regex", before.get("use_regex", True), True),
    )
    check_is(expected, path, "give a model with RoBERTa's byte-level BPE")
    cls, sep = check_rows(after, 2, path)
    vocabulary, merges = model.get("vocab"), model.get("merges")
    if not isinstance(vocabulary, dict) or not isinstance(merges, list):
        raise InputError(f"model in {path} must have a vocab and merges: restore the file.")
    try:
        merges = [tuple(pair.split(" ")) if isinstance(pair, str) else tuple(pair) for pair in merges]
    except TypeError as error:
        raise InputError(
            f"{path} is no complete tokenizer ({type(error).__name__}: {shown(str(error))}): restore the file."
        ) from None
    settings = {"add_prefix_space": before.get("add_prefix_space", False), "cls_token": cls, "sep_token": sep}
    return dict(vocabulary), merges, settings, content.get("added_tokens")
