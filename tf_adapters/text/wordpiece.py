"""BERT's tokenization as TensorFlow operations, equal to HuggingFace's fast tokenizer."""

import functools
import hashlib
import os
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tf_adapters.errors import InputError, shown
from tf_adapters.paths import objects, read_json, to_path
from tf_adapters.ranges import check_choice, checked, is_int
from tf_adapters.text.characters import CODE_POINTS, CharacterTable, entry, normalise_each, to_code_points, to_string
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

#: Where the tokens differ from `BertTokenizerFast`'s, and why. Everything else
#: is equal: the character tables are asked from the installed `tokenizers`.
KNOWN_EXCEPTIONS = {
    "special tokens in a text": (
        "A text that contains '[SEP]', '[CLS]', '[PAD]', '[UNK]', '[MASK]' or another special token "
        "literally is plain text here: it becomes '[', 'sep', ']'. HuggingFace maps it to the special id, "
        "by which whoever writes the text could end a segment or hide what follows. On purpose."
    ),
    "order of spacing marks": (
        "When accents are stripped, HuggingFace brings neighbouring combining marks into canonical order. "
        "Here each character is mapped by itself, so two marks that survive the stripping (spacing marks, such "
        "as U+302E and U+1D16D, that have a combining class) next to each other in non-canonical order stay as "
        "they are. Offsets differ, by those marks, also where one of the two is stripped."
    ),
    "noncharacters": (
        "TensorFlow 2.19 writes U+FFFD for the 66 noncharacters (U+FDD0 to U+FDEF, and the last two of "
        "each plane), 2.21 does not. Their words are [UNK] all the same, unless the vocabulary holds U+FFFD "
        "or a noncharacter."
    ),
}

_SEPARATOR = "|"  # survives every normalisation, and is a starter: marks never move across it
_NOTHING, _WORD, _ISOLATED, _SPACE = range(4)
_MAX_WORD_CHARACTERS = 100  # tokenizers' max_input_chars_per_word

# Tokenizer classes whose text handling is BERT's; others also call their vocabulary vocab.txt
# (BERTweet and PhoBERT: BPE; BertJapanese: MeCab) and would be read silently wrong.
_BERT_CLASSES = ("Bert", "DistilBert", "Electra", "MobileBert", "ConvBert", "SqueezeBert", "Lxmert", "Realm")
_TOKENIZER_ENDINGS = ("Tokenizer", "TokenizerFast")
# style -> tokenizer classes, and the settings of a directory that says nothing else.
_STYLES = {
    "bert": (_BERT_CLASSES, {}),
    "mpnet": (("MPNet",), {"cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>", "double_sep": True}),
}


class WordPiece(Tokenizer):
    """BERT's tokenization of strings to ids, in TensorFlow operations.

    The tokens equal those of `transformers.BertTokenizerFast` but for `KNOWN_EXCEPTIONS`. All steps are graph
    operations, so that one object serves `tf.data` and an exported model; the vocabulary and the character tables lie
    in the graph. Besides TensorFlow's own, the only operation used is tensorflow-text's `WordpieceTokenizeWithOffsets`,
    which TF Serving has.

    What a character becomes (dropped, a space, itself, its lower case, its base letter without accents, a word of its
    own) depends on that character alone, so normalisation and splitting are a table look-up by code point. The table is
    asked once, from the installed `tokenizers`, when the object is made. Bytes that are not UTF-8 are replaced by
    U+FFFD and thereby dropped.

    Args:
        vocabulary: list of str, the tokens in the order of their ids.
        do_lower_case: bool, as in HuggingFace.
        strip_accents: bool, or None for the value of `do_lower_case`.
        tokenize_chinese_chars: bool, make each CJK ideograph a word.
        max_length: int, the most ids in a row, special tokens included.
        unk_token, cls_token, sep_token, pad_token: str, entries of `vocabulary`.
        double_sep: bool, whether a pair has two separators in the middle and no token types, as MPNet's.

    Raises: InputError, if the vocabulary is empty, has an entry twice or lacks a
        special token, or if `max_length` is below 3.
    Example:
        >>> wordpiece = WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "##ness"])
        >>> wordpiece(["Goodness good"])["input_ids"].numpy().tolist()
        [[2, 4, 5, 4, 3, 0, 0, 0]]

    Reference: Devlin et al. 2019, section 3; `BertNormalizer`, `BertPreTokenizer`
        and `WordPiece` of HuggingFace tokenizers.
    """

    def __init__(
        self,
        vocabulary,
        *,
        do_lower_case=True,
        strip_accents=None,
        tokenize_chinese_chars=True,
        max_length=128,
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        double_sep=False,
    ):
        super().__init__(name="wordpiece")
        import tensorflow_text  # costs seconds, hence not at the top

        vocabulary = list(vocabulary)
        ids = _checked_ids(vocabulary)
        self.set_specials(ids, unk_token=unk_token, cls_token=cls_token, sep_token=sep_token, pad_token=pad_token)
        self.do_lower_case = bool(do_lower_case)
        self.strip_accents = None if strip_accents is None else bool(strip_accents)
        self.tokenize_chinese_chars = bool(tokenize_chinese_chars)
        self.size, self.max_length = len(vocabulary), checked("max_length", max_length)
        self.double_sep = bool(double_sep)
        if self.double_sep:
            self.pair_specials, self.marks_second = 4, False
        self.mask_id = ids.get("<mask>" if self.double_sep else "[MASK]")
        # One string: tf.Module would wrap and track each entry of a list.
        self._vocabulary_text = "\n".join(vocabulary)
        self._word_starts = bytes(not token.startswith("##") for token in vocabulary)

        strip = self.do_lower_case if self.strip_accents is None else self.strip_accents
        with tf.device("CPU:0"):
            self._table = _character_table(self.do_lower_case, strip, self.tokenize_chinese_chars).tensors()
            self._vocabulary_table = tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(tf.constant(vocabulary), tf.range(len(vocabulary), dtype=tf.int64)),
                default_value=self.unk_id,
            )
        self._wordpiece = tensorflow_text.WordpieceTokenizer(
            self._vocabulary_table,
            suffix_indicator="##",
            max_bytes_per_word=4 * _MAX_WORD_CHARACTERS,  # never reached: long words are [UNK] before
            max_chars_per_token=max(len(token) for token in vocabulary),
            token_out_type=tf.int32,
            unknown_token=unk_token,
        )

    @classmethod
    def from_directory(cls, directory, *, max_length=128, style="bert"):
        """Read the vocabulary and settings that a HuggingFace directory holds.

        Reads `vocab.txt` and, where present, `tokenizer_config.json`; without `vocab.txt`, or of transformers 5's
        `TokenizersBackend`, a `tokenizer.json` whose model is WordPiece. The files are data; nothing in them is run.
        Truncation and padding in them are ignored.

        Args:
            style: str, whose special tokens and pairs: "bert", or "mpnet" for `<s> a </s></s> b </s>`.
        Raises: InputError, if no vocabulary is found, the tokenizer is another one, or tokens were added to it.
        """
        directory = str(to_path(directory))
        vocabulary_file = os.path.join(directory, "vocab.txt")
        tokenizer_file = os.path.join(directory, "tokenizer.json")
        check_choice("style", style, _STYLES)
        classes, defaults = _STYLES[style]
        accepted = [start + end for start in classes for end in _TOKENIZER_ENDINGS]
        config, added = TokenizerConfig(directory, accepted, f"{classes[0]}'s WordPiece"), ()
        settings = config.tokens(("unk_token", "cls_token", "sep_token", "pad_token"))
        settings |= config.flags(("do_lower_case", "strip_accents", "tokenize_chinese_chars"))
        # A PreTrainedTokenizerFast knows no settings of BERT's.
        alone = config.alone or (config.name == "PreTrainedTokenizerFast" and os.path.isfile(tokenizer_file))
        if os.path.isfile(vocabulary_file) and not alone:
            vocabulary = read_lines(vocabulary_file)
        elif os.path.isfile(tokenizer_file):
            vocabulary, found, added = _read_tokenizer_json(tokenizer_file, 2 if defaults.get("double_sep") else 1)
            settings = settings | found if alone else found | settings
        else:
            raise InputError(
                "{directory} holds no WordPiece vocabulary: looked for vocab.txt and tokenizer.json.",
                directory=directory,
            )
        settings = defaults | settings
        config.refuse_added(len(vocabulary), own=settings.values(), listed=added)
        return cls(vocabulary, max_length=max_length, **settings)

    @property
    def vocabulary(self):
        """Tuple of str: the tokens in the order of their ids."""
        return tuple(self._vocabulary_text.split("\n"))

    def settings(self):
        """Return all settings as a dict for JSON, with the vocabulary as a digest.

        Without "vocabulary_sha256", which is the SHA-256 of the entries in UTF-8
        with a line feed after each (of `vocab.txt`, as it is usually written),
        they are the constructor's keyword arguments.
        """
        names = ("do_lower_case", "strip_accents", "tokenize_chinese_chars", "max_length")
        return {
            **{name: getattr(self, name) for name in (*names, "unk_token", "cls_token", "sep_token", "pad_token")},
            # Left out elsewhere: directories of before are compared with this.
            **({"double_sep": True} if self.double_sep else {}),
            "vocabulary_sha256": hashlib.sha256((self._vocabulary_text + "\n").encode("utf-8")).hexdigest(),
        }

    @no_autograph
    def tokenize(self, text):
        """Strings `(batch,)` as wordpieces without special tokens, an int32 RaggedTensor `(batch, (tokens))`."""
        text = checked_text(text, "text")
        with tf.device("CPU:0"):
            words, words_per_text = self._words(text)
            # Words repeat: look up each different one once.
            distinct, occurrence = tf.unique(words)
            pieces = tf.gather(self._wordpiece.tokenize(distinct), occurrence)
            return rows_of_pieces(pieces, words_per_text)

    @no_autograph
    def tokenize_with_offsets(self, text):
        """Tokens, and where in the texts they stand.

        Accents that are stripped, and other characters that are dropped, belong to the piece in which they lie. Bytes
        that are not UTF-8 count as `tf.strings.unicode_decode` replaces them.

        Returns: `(tokens, starts, ends)`, int32 RaggedTensors `(batch, (tokens))`: of each token the first character
            and the one after its last, in Unicode code points from 0; of a character that several tokens share, each
            has its place.
        """
        text = checked_text(text, "text")
        with tf.device("CPU:0"):
            characters = self._characters(text)
            words, words_per_text = self._words(text, characters)
            distinct, occurrence = tf.unique(words)
            pieces, first_bytes, _ = self._wordpiece.tokenize_with_offsets(distinct)
            pieces, first_bytes = tf.gather(pieces, occurrence), tf.gather(first_bytes, occurrence)

            # The pieces tile the characters of the words, so that one ends where the next one begins.
            widths = utf8_bytes(characters.code_points)
            bytes_before = tf.concat([[0], tf.cumsum(widths)], axis=0)
            word_bytes = tf.gather(bytes_before, tf.gather(characters.word_splits, pieces.value_rowids()))
            character_of_byte = tf.repeat(tf.range(tf.size(widths)), widths)
            begin = tf.gather(character_of_byte, word_bytes + tf.cast(first_bytes.flat_values, tf.int32))
            last = tf.concat([begin[1:], [tf.size(widths)]], axis=0)[: tf.size(begin)] - 1
            starts = pieces.with_values(tf.gather(characters.places, begin))
            ends = pieces.with_values(tf.gather(characters.places, tf.maximum(last, begin)) + 1)
            return tuple(rows_of_pieces(ragged, words_per_text) for ragged in (pieces, starts, ends))

    def _characters(self, text):
        """Normalise and split: `_Characters` of the words of all texts."""
        characters = tf.strings.unicode_decode(text, "UTF-8", errors="replace", replacement_char=0xFFFD)
        code_points, texts = characters.values, characters.value_rowids()
        code_points, kind, source = self._table.look_up(code_points)
        texts = tf.gather(texts, source)

        # A word starts where the text changes, at an isolated character and after one, and after a space.
        before = tf.concat([[_SPACE], kind[:-1]], axis=0)
        text_before = tf.concat([[-1], texts[:-1]], axis=0)
        starts = (texts != text_before) | (kind == _ISOLATED) | (before != _WORD)
        in_word = tf.where(kind != _SPACE)[:, 0]
        first = tf.where(tf.gather(starts, in_word))[:, 0]
        texts = tf.gather(texts, in_word)
        return _Characters(
            code_points=tf.gather(code_points, in_word),
            places=tf.cast(tf.gather(source, in_word) - tf.gather(characters.row_starts(), texts), tf.int32),
            texts=texts,
            word_splits=tf.concat([first, tf.shape(in_word, out_type=tf.int64)], axis=0),
        )

    def _words(self, text, characters=None):
        """Normalise and split: words as a flat string tensor, and how many each text has; `characters`, where they are
        known, are what `_characters` made of it."""
        characters = characters or self._characters(text)
        splits = characters.word_splits
        words = tf.strings.unicode_encode(
            tf.RaggedTensor.from_row_splits(characters.code_points, splits, validate=False), "UTF-8"
        )
        # HuggingFace counts characters, tensorflow-text bytes: decide here.
        words = tf.where(splits[1:] - splits[:-1] > _MAX_WORD_CHARACTERS, self.unk_token, words)
        text_of_word = tf.gather(characters.texts, splits[:-1])
        words_per_text = tf.math.unsorted_segment_sum(
            tf.ones_like(text_of_word), text_of_word, tf.shape(text, out_type=tf.int64)[0]
        )
        return words, words_per_text


class _Characters(NamedTuple):
    """The normalised characters of the words of a batch of texts, without what lies between the words.

    Int tensors `(characters,)`: the code points, the place in its text of the original character that each comes
    from, and its text; and `(words + 1,)`: where each word begins.
    """

    code_points: tf.Tensor
    places: tf.Tensor
    texts: tf.Tensor
    word_splits: tf.Tensor


@functools.lru_cache(maxsize=None)
def _character_table(lowercase, strip_accents, isolate_chinese):
    """What becomes of each character, by HuggingFace's normaliser and pre-tokenizer: a `CharacterTable`."""
    from tokenizers.normalizers import BertNormalizer

    normalizer = BertNormalizer(
        clean_text=True, handle_chinese_chars=isolate_chinese, strip_accents=strip_accents, lowercase=lowercase
    )
    normalised = normalise_each(normalizer.normalize_str, _SEPARATOR)
    kind = _kinds(normalised.values)
    table = normalised.table(kind)
    # " x " -> x as a word of its own, so that an ideograph takes one entry and not three.
    _, values, starts, lengths = normalised
    padded = lengths == 3
    padded[padded] = (values[starts[padded]] == ord(" ")) & (values[starts[padded] + 2] == ord(" "))
    new, old = values[starts[padded] + 1], normalised.code_points[padded]
    table[old] = 0
    table[old, 0] = entry(old, new, _ISOLATED)
    table[ord(_SEPARATOR), 0] = entry(0, 0, kind[ord(_SEPARATOR)])
    return CharacterTable.of(table)


def _kinds(code_points):
    """By code point the kind of each of these normalised characters: part of a word, a word of its own, or a space."""
    from tokenizers.pre_tokenizers import BertPreTokenizer

    kinds, there = np.full(CODE_POINTS, _SPACE, np.int32), np.zeros(CODE_POINTS, bool)
    there[code_points] = True
    code_points, isolated = np.flatnonzero(there), []
    for chunk in np.array_split(code_points, len(code_points) // 1024 + 1):
        # "aXaYaZ": a word character makes one token with its "a".
        text = to_string(np.stack([np.full_like(chunk, ord("a")), chunk], axis=1).reshape(-1))
        tokens = [token for token, _ in BertPreTokenizer().pre_tokenize_str(text)]
        isolated += [token for token in tokens if len(token) == 1 and token != "a"]
        kinds[to_code_points("".join(tokens))] = _WORD
    kinds[to_code_points("".join(isolated))] = _ISOLATED
    return kinds


def _checked_ids(vocabulary):
    if not vocabulary:
        raise InputError("vocabulary is empty: give the tokens in the order of their ids.")
    for index, token in enumerate(vocabulary):
        if not isinstance(token, str) or "\n" in token:
            raise InputError(f"vocabulary[{index}]={token!r} must be a str without a line feed.")
    ids = {token: index for index, token in enumerate(vocabulary)}
    if len(ids) != len(vocabulary):
        twice = next(token for index, token in enumerate(vocabulary) if ids[token] != index)
        raise InputError(f"vocabulary has the entry {twice!r} twice, at {vocabulary.index(twice)} and {ids[twice]}.")
    return ids


def _read_tokenizer_json(path, separators):
    """Vocabulary, settings and added tokens of a tokenizer.json, if it is BERT's."""
    content = read_json(path)
    of_file = ("model", "normalizer", "pre_tokenizer", "post_processor")
    model, normalizer, pre_tokenizer, after = objects(content, of_file, path)
    expected = (
        ("model.type", model.get("type", "WordPiece"), "WordPiece"),
        ("model.continuing_subword_prefix", model.get("continuing_subword_prefix", "##"), "##"),
        ("model.max_input_chars_per_word", model.get("max_input_chars_per_word", 100), _MAX_WORD_CHARACTERS),
        ("normalizer.type", normalizer.get("type"), "BertNormalizer"),
        ("normalizer.clean_text", normalizer.get("clean_text", True), True),
        ("pre_tokenizer.type", pre_tokenizer.get("type"), "BertPreTokenizer"),
    )
    check_is(expected, path, "give a model with BERT's WordPiece")
    cls, sep = check_rows(after, separators, path)
    ids = model.get("vocab")
    if not isinstance(ids, dict) or not all(map(is_int, ids.values())) or sorted(ids.values()) != list(range(len(ids))):
        raise InputError(f"model.vocab in {path} must map its tokens to the ids 0, 1, 2, ... without a gap.")
    settings = {
        "do_lower_case": normalizer.get("lowercase", True),
        "strip_accents": normalizer.get("strip_accents"),
        "tokenize_chinese_chars": normalizer.get("handle_chinese_chars", True),
        "unk_token": model.get("unk_token", "[UNK]"),
        "cls_token": cls,
        "sep_token": sep,
    }
    if not isinstance(settings["unk_token"], str):
        raise InputError(f"model.unk_token={shown(settings['unk_token'])} in {path} must be a string.")
    return sorted(ids, key=ids.get), settings, content.get("added_tokens")
