"""SentencePiece of XLM-R, CamemBERT, ALBERT and DeBERTa-v2 and -v3 as TensorFlow operations, equal to HuggingFace's
tokenizers."""

import dataclasses
import functools
import hashlib
import os
import string
import unicodedata
from typing import Dict, NamedTuple, Tuple

import numpy as np
import tensorflow as tf

from tf_adapters._keras_internals import sentencepiece_operations
from tf_adapters.errors import InputError, shown
from tf_adapters.paths import reading, to_path
from tf_adapters.ranges import check_choice, checked
from tf_adapters.text.characters import CODE_POINTS, CharacterTable, entry, normalise_each
from tf_adapters.text.sentencepiece_files import CONTROL, NORMAL, UNKNOWN, USER_DEFINED, Model, read_tokenizer_json
from tf_adapters.text.tokenizer import (
    Tokenizer,
    TokenizerConfig,
    checked_text,
    no_autograph,
    rows_of_pieces,
    utf8_bytes,
)

#: Where the tokens differ from those of HuggingFace's Python tokenizers (XLMRobertaTokenizer, CamembertTokenizer,
#: AlbertTokenizer, DebertaV2Tokenizer) or, under "fast tokenizers" and "offsets", from the fast ones, and why.
KNOWN_EXCEPTIONS = {
    "special tokens in a text": (
        "A text that contains '</s>', '[SEP]' or another special token literally is plain text here. HuggingFace maps "
        "it to the special id, by which whoever writes the text could end a segment. On purpose."
    ),
    "fast tokenizers": (
        "HuggingFace's fast tokenizers are another implementation, and the encoders were pretrained with SentencePiece "
        "itself, which cuts here and in the Python tokenizers. The fast ones normalise one user-perceived character at "
        "a time, and a longer one code point by code point, so that some sequences stay apart (Burmese U+1025 U+102E); "
        "cut otherwise where two ways are equally likely; and, converted from a model file, end a text that ends with "
        "white space by a token for it (ALBERT; DeBERTa where it is not plain), begin each part around a piece that "
        "the user of SentencePiece defined (ALBERT's brackets and quotes) by a token for a space, drop more marks "
        "(ALBERT), and split DeBERTa's punctuation after normalisation."
    ),
    "digits before a comma": (
        "ALBERT's Python tokenizer cuts a piece such as '9,' once more, into what the model makes of '9', and ','. "
        "Here, as in its fast one, such pieces are worth less than others, which mostly comes to the same."
    ),
    "sigma of mathematical alphabets": (
        "ALBERT's Python tokenizer makes the capital sigmas of mathematical alphabets (U+1D6BA, ...) a final sigma at "
        "the end of a word, and plain ones nowhere. Here, as in its fast one, all become the usual small sigma."
    ),
    "offsets": (
        "White space, controls and format characters at either end belong to no token; fast tokenizers converted from "
        "a model file count a space that leads a word in. A character that is composed of two (e and U+0301) is the "
        "place of its token as a whole, as are two quotes that ALBERT reads as one. A token that ends inside a "
        "character that becomes several (the first of 1/2 for U+00BD) may leave that character to the next token."
    ),
    "noncharacters": (
        "TensorFlow 2.19 writes U+FFFD for the 66 noncharacters, which SentencePiece's usual normalisation makes a "
        "space. 2.21 does not."
    ),
}

_SEPARATOR = "\ue000"  # of private use: nothing else becomes it
_SPACE = "\u2581"
# Settings by which a text is read as it is.
_UNCHANGED = {"do_lower_case": False, "keep_accents": True, "remove_space": False}
_ROLES = ("cls_token", "sep_token", "pad_token", "unk_token")


class _Layout(NamedTuple):
    """What an encoder family adds to SentencePiece.

    Attributes:
        file: str, the model's file in a HuggingFace directory.
        tokenizer_class: str, HuggingFace's, without "Fast".
        begins: tuple of str, the pieces that the model begins with.
        tokens: tuple of str, the tokens that begin, end, pad, and stand for what is unknown or masked.
        ids: dict from those of the tokens that are no piece of the model, or have another id than as a piece, to their
            ids.
        offset: int, from the model's ids to the encoder's.
        pair_specials, marks_second: as of `Tokenizer`.
        settings: dict from the settings of `tokenizer_config.json` that the family has to what they are where none is
            given.
        own_spelling: bool, whether '' and `` become ", and pieces that end with a digit and a comma are avoided.
    """

    file: str
    tokenizer_class: str
    begins: Tuple[str, ...]
    tokens: Tuple[str, ...]
    ids: Dict[str, int]
    offset: int
    pair_specials: int
    marks_second: bool
    settings: Dict[str, bool]
    own_spelling: bool = False

    def avoids(self, piece):
        """Whether the family takes another piece where it can."""
        return self.own_spelling and piece[-1:] == "," and piece[-2:-1].isdigit()


# A new family that cuts by SentencePiece is an entry here.
_FAIRSEQ = dict(
    file="sentencepiece.bpe.model", begins=("<unk>", "<s>", "</s>"), tokens=("<s>", "</s>", "<pad>", "<unk>", "<mask>"),
    pair_specials=4, marks_second=False, settings={},
)  # fmt: skip
LAYOUTS = {
    "xlm-roberta": _Layout(
        **_FAIRSEQ, tokenizer_class="XLMRobertaTokenizer", ids={"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}, offset=1
    ),
    "camembert": _Layout(**_FAIRSEQ, tokenizer_class="CamembertTokenizer", ids={"<pad>": 1, "<unk>": 3}, offset=4),
    "albert": _Layout(
        file="spiece.model", tokenizer_class="AlbertTokenizer", begins=(),
        tokens=("[CLS]", "[SEP]", "<pad>", "<unk>", "[MASK]"),
        ids={}, offset=0, pair_specials=3, marks_second=True,
        settings={"do_lower_case": True, "keep_accents": False, "remove_space": True},
        own_spelling=True,
    ),
    "deberta-v2": _Layout(
        file="spm.model", tokenizer_class="DebertaV2Tokenizer", begins=(),
        tokens=("[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]"),
        ids={}, offset=0, pair_specials=3, marks_second=True,
        settings={"do_lower_case": False, "split_by_punct": False},
    ),
}  # fmt: skip
# As KerasHub has it: the model alone.
LAYOUTS["albert-plain"] = LAYOUTS["albert"]._replace(own_spelling=False, settings={})


class SentencePiece(Tokenizer):
    """SentencePiece of strings to ids, in TensorFlow operations.

    The tokens equal those of HuggingFace's Python tokenizers but for `KNOWN_EXCEPTIONS`. Besides TensorFlow's own, the
    operations used are tensorflow-text's `SentencepieceOp`, whose attribute is the model, so that an exported graph
    holds it, `SentencepieceTokenizeOp` and, for offsets, `SentencepieceTokenizeWithOffsetsOp`, all of which TF Serving
    has. Bytes that are not UTF-8 become U+FFFD, which SentencePiece's usual normalisation makes a space.

    Args:
        model: bytes, the content of the model's file.
        layout: str, a key of `LAYOUTS`, the encoder family's `model_type`.
        max_length: int, the most ids in a row, special tokens included.
        settings: bools as HuggingFace's tokenizer of the family has them: `do_lower_case`, `keep_accents` and
            `remove_space` of ALBERT, `do_lower_case` and `split_by_punct` of DeBERTa.

    Raises:
        InputError: a model that is damaged or of another family, a setting that the family does not have, a
            `max_length` below 3.

    Reference: Kudo 2018, section 3.2; Conneau et al. 2020; Lan et al. 2020; He et al. 2021.
    """

    def __init__(self, model, *, layout, max_length=128, **settings):
        super().__init__(name="sentencepiece")
        check_choice("layout", layout, LAYOUTS)
        self.layout, described = layout, LAYOUTS[layout]
        for name in settings:
            if name not in described.settings:
                raise InputError(
                    f"{name}={settings[name]!r} is no setting of {layout}: it has {', '.join(described.settings)}."
                )
        settings = {name: bool(value) for name, value in {**described.settings, **settings}.items()}
        self._settings = tuple(settings.items())
        self.max_length = checked("max_length", max_length)
        self.pair_specials, self.marks_second = described.pair_specials, described.marks_second
        self._sha256 = hashlib.sha256(model).hexdigest()
        self._own_spelling = described.own_spelling

        read = Model.read(model)
        ids = {piece.text: index for index, piece in enumerate(read.pieces)}
        _check_pieces(read, ids, layout, described)
        self.cls_id, self.sep_id, self.pad_id, self.unk_id = (
            described.ids.get(token, ids.get(token, 0) + described.offset) for token in described.tokens[:4]
        )
        self._unknown = next(index for index, piece in enumerate(read.pieces) if piece.kind == UNKNOWN)
        self.size = len(read.pieces) + described.offset
        # Behind the model's own pieces, where it is none of them.
        self.mask_id = ids[described.tokens[4]] + described.offset if described.tokens[4] in ids else self.size
        self._word_starts = bytes(described.offset) + bytes(piece.text.startswith(_SPACE) for piece in read.pieces)
        led = [len(piece.text) > 1 and piece.text.startswith(_SPACE) for piece in read.pieces]
        self._table = self._punctuation = None
        with tf.device("CPU:0"):
            changes = {name: settings.get(name, usual) for name, usual in _UNCHANGED.items()}
            if changes != _UNCHANGED:
                self._table = _character_table(*changes.values()).tensors()
            if settings.get("split_by_punct"):
                self._punctuation = tf.constant(_punctuation())
            self._blank = tf.constant(_blank())
            self._led_by_space = tf.constant(led)
            self._pieces = _Pieces(_as_cut(read, described).encoded())

    @classmethod
    def from_directory(cls, directory, *, layout, max_length=128):
        """Read the model's file and, where present, `tokenizer_config.json` of a HuggingFace directory.

        Without that file, and of transformers 5's `TokenizersBackend`, the model in `tokenizer.json` is read.

        The files are data; nothing in them is run.

        Raises:
            InputError: the file is missing or damaged, the tokenizer is another one, or tokens were added to its
                vocabulary.
        """
        directory = str(to_path(directory))
        check_choice("layout", layout, LAYOUTS)
        described = LAYOUTS[layout]
        accepted = [described.tokenizer_class, described.tokenizer_class + "Fast"]
        config, listed = TokenizerConfig(directory, accepted, described.tokenizer_class), ()
        wanted, settings = dict(zip(_ROLES, described.tokens)), config.flags(described.settings)
        for role, token in config.tokens(_ROLES).items():
            if token != wanted[role]:
                raise InputError(f"{role}={shown(token)} of {directory} must be {wanted[role]!r}.")
        path, other = (os.path.join(directory, name) for name in (described.file, "tokenizer.json"))
        if os.path.isfile(other) and (config.alone or not os.path.isfile(path)):
            path = other
            model, found, listed = read_tokenizer_json(path, described)
            settings |= found
        elif os.path.isfile(path):
            with reading(path), open(path, "rb") as file:
                model = file.read()
        else:
            raise InputError(
                f"{{directory}} holds no {described.file}, SentencePiece's own model, and no tokenizer.json: put one "
                f"there that {described.tokenizer_class} reads.",
                directory=directory,
            )
        try:
            tokenizer = cls(model, layout=layout, max_length=max_length, **settings)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        cut = [token["content"] for token in listed]
        config.refuse_added(tokenizer.size, own=described.tokens, listed=listed, cut=cut)
        return tokenizer

    def settings(self):
        """All settings as a dict for JSON, with the model as a digest."""
        return {
            "tokenizer": "sentencepiece",
            "layout": self.layout,
            **dict(self._settings),
            "max_length": self.max_length,
            "model_sha256": self._sha256,
        }

    @no_autograph
    def tokenize(self, text):
        text = checked_text(text, "text")
        with tf.device("CPU:0"):
            characters = self._characters(text)
            pieces = self._pieces.tokenize(characters.strings())
            return rows_of_pieces(self._encoder_ids(pieces), characters.segments_per_text)

    @no_autograph
    def tokenize_with_offsets(self, text):
        """As of `WordPiece`, white space at either end left out."""
        text = checked_text(text, "text")
        with tf.device("CPU:0"):
            characters = self._characters(text)
            pieces, first_bytes, end_bytes = self._pieces.tokenize_with_offsets(characters.strings())
            widths = utf8_bytes(characters.code_points)
            size = tf.size(widths)
            bytes_before = tf.concat([[0], tf.cumsum(widths)], 0)
            character_of_byte = tf.concat([tf.repeat(tf.range(size), widths), [size]], 0)
            segment = pieces.value_rowids()
            base = tf.gather(bytes_before, tf.gather(characters.splits, segment))
            last_of_segment = tf.cast(tf.gather(characters.splits, segment + 1), tf.int32) - 1
            first = tf.minimum(tf.gather(character_of_byte, base + first_bytes.flat_values), last_of_segment)
            last = tf.maximum(tf.gather(character_of_byte, tf.maximum(base + end_bytes.flat_values - 1, 0)), first)

            # White space at either end belongs to no token.
            filled = tf.where(~tf.gather(self._blank, tf.gather(characters.texts.values, characters.first)))[:, 0]
            filled = tf.concat([[-1], tf.cast(filled, tf.int32), [size]], 0)
            next_filled = tf.gather(filled, tf.searchsorted(filled, first))
            # A piece may end inside a character that becomes several, where SentencePiece says that it ends before it.
            last = tf.where(
                tf.gather(self._led_by_space, pieces.flat_values),
                tf.clip_by_value(next_filled, last, last_of_segment),
                last,
            )
            end = last + 1
            start = tf.minimum(next_filled, end)
            end = tf.maximum(tf.gather(filled, tf.searchsorted(filled, last, side="right") - 1) + 1, start)

            text_of_piece = tf.gather(characters.text_of_segment, segment)
            base, length = (
                tf.gather(values, text_of_piece)
                for values in (characters.texts.row_starts(), characters.texts.row_lengths())
            )
            beyond = tf.concat([characters.first, tf.shape(characters.texts.values)], 0)
            starts = tf.gather(beyond, start)
            ends = tf.where(end > start, tf.gather(characters.after, tf.maximum(end - 1, 0)), starts)
            places = (
                tf.minimum(values - tf.cast(base, tf.int32), tf.cast(length, tf.int32)) for values in (starts, ends)
            )
            rows = (self._encoder_ids(pieces), *(pieces.with_values(values) for values in places))
            return tuple(rows_of_pieces(ragged, characters.segments_per_text) for ragged in rows)

    def _characters(self, text):
        """The `_Characters` that SentencePiece is to read."""
        texts = tf.strings.unicode_decode(text, "UTF-8", errors="replace", replacement_char=0xFFFD)
        code_points, text_of = texts.values, texts.value_rowids()
        first = tf.range(tf.size(code_points))
        after = first + 1
        if self._own_spelling:
            code_points, chosen, double = _one_quote_for_two(code_points, text_of)
            first, after = tf.gather(first, chosen), tf.gather(after, chosen) + double
        if self._table is not None:
            code_points, _, chosen = self._table.look_up(code_points)
            first, after = tf.gather(first, chosen), tf.gather(after, chosen)
        text_of = tf.gather(text_of, first)
        count = texts.nrows(out_type=tf.int64)
        if self._punctuation is None:
            text_of_segment = tf.range(count)
            splits = tf.RaggedTensor.from_value_rowids(code_points, text_of, count, validate=False).row_splits
        else:
            alone = tf.gather(self._punctuation, code_points)
            behind = tf.concat([[True], alone[:-1]], 0)[: tf.size(alone)]
            other_text = text_of != tf.concat([[-1], text_of[:-1]], 0)[: tf.size(alone)]
            begins = tf.where(alone | behind | other_text)[:, 0]
            text_of_segment = tf.gather(text_of, begins)
            splits = tf.concat([begins, tf.shape(code_points, out_type=tf.int64)], 0)
        segments_per_text = tf.math.unsorted_segment_sum(tf.ones_like(text_of_segment), text_of_segment, count)
        return _Characters(texts, code_points, first, after, splits, text_of_segment, segments_per_text)

    def _encoder_ids(self, pieces):
        ids = pieces.flat_values
        return pieces.with_flat_values(tf.where(ids == self._unknown, self.unk_id, ids + LAYOUTS[self.layout].offset))


class _Characters(NamedTuple):
    """The characters of a batch of texts as SentencePiece reads them, in segments that it reads one by one.

    `texts`, the original code points, ragged `(batch, (characters))`; int32 tensors `(characters,)`, the code points,
    and the first original character that each stands for and the one after its last, counted over all texts; and int64
    tensors: where each segment begins `(segments + 1,)`, its text `(segments,)`, and how many each text has `(batch,)`.
    """

    texts: tf.RaggedTensor
    code_points: tf.Tensor
    first: tf.Tensor
    after: tf.Tensor
    splits: tf.Tensor
    text_of_segment: tf.Tensor
    segments_per_text: tf.Tensor

    def strings(self):
        return tf.strings.unicode_encode(
            tf.RaggedTensor.from_row_splits(self.code_points, self.splits, validate=False), "UTF-8"
        )


class _Pieces(tf.saved_model.experimental.TrackableResource):
    """A model in tensorflow-text's resource.

    Its name is the model's digest. That of `tensorflow_text.SentencepieceTokenizer` has none, so that it belongs to a
    cached kernel and is gone after `tf.random.set_seed` or `keras.backend.clear_session` (tensorflow/text issue 570).
    """

    def __init__(self, model):
        super().__init__()
        self._model, self._operations = model, sentencepiece_operations()
        try:
            self.resource_handle  # noqa: B018
        except tf.errors.OpError as error:
            raise InputError(f"model is damaged, or no SentencePiece model: restore it ({error.message}).") from None

    def _create_resource(self):
        return self._operations.sentencepiece_op(
            model=self._model, shared_name="tf_adapters/" + hashlib.sha256(self._model).hexdigest()
        )

    def tokenize(self, strings):
        """Ids of the pieces of strings `(batch,)`, int32 RaggedTensor."""
        values, splits = self._operations.sentencepiece_tokenize_op(
            self.resource_handle, strings, *_PLAIN, out_type=tf.int32
        )
        return tf.RaggedTensor.from_row_splits(values, splits, validate=False)

    def tokenize_with_offsets(self, strings):
        """Ids of the pieces, and the bytes of the strings where each begins and where it has ended, int32
        RaggedTensors."""
        values, splits, *places = self._operations.sentencepiece_tokenize_with_offsets_op(
            self.resource_handle, strings, *_PLAIN, out_type=tf.int32
        )
        return tuple(
            tf.RaggedTensor.from_row_splits(tf.cast(each, tf.int32), splits, validate=False)
            for each in (values, *places)
        )


# nbest_size, alpha, add_bos, add_eos, reverse: the best way to cut, and nothing else.
_PLAIN = (0, 1.0, False, False, False)


def _one_quote_for_two(code_points, text_of):
    """'' and `` as one ": the code points, the index of each before, and 1 where it stands for two, else 0."""
    before = tf.concat([[-1], code_points[:-1]], 0)[: tf.size(code_points)]
    text_before = tf.concat([[-1], text_of[:-1]], 0)[: tf.size(code_points)]
    begins = (code_points != before) | (text_of != text_before)
    run = tf.cumsum(tf.cast(begins, tf.int32)) - 1
    place = tf.range(tf.size(code_points)) - tf.gather(tf.cast(tf.where(begins)[:, 0], tf.int32), run)
    quotes = (code_points == ord("'")) | (code_points == ord("`"))
    second = quotes & (place % 2 == 1)
    opens = tf.concat([second[1:], [False]], 0)[: tf.size(second)]
    chosen = tf.where(~second)[:, 0]
    return (
        tf.gather(tf.where(opens, ord('"'), code_points), chosen),
        chosen,
        tf.cast(tf.gather(opens, chosen), tf.int32),
    )


def _check_pieces(model, ids, layout, described):
    advice = "give the encoder's own file."
    begins = tuple(piece.text for piece in model.pieces[: len(described.begins)])
    if begins != described.begins:
        raise InputError(f"model begins with the pieces {begins}, one of {layout} with {described.begins}: {advice}")
    missing = [token for token in described.tokens[:4] if token not in ids and token not in described.ids]
    if missing:
        raise InputError(f"model lacks {missing[0]!r}, which one of {layout} has: {advice}")
    if not any(piece.kind == UNKNOWN for piece in model.pieces):
        raise InputError(f"model has no piece for what is unknown: {advice}")


def _as_cut(model, described):
    """The model that cuts texts of a family."""

    def changed(piece):
        if piece.kind == USER_DEFINED and piece.text in described.tokens:
            # Otherwise whoever writes a text could end it.
            return dataclasses.replace(piece, kind=CONTROL)
        if piece.kind == NORMAL and described.avoids(piece.text):
            return dataclasses.replace(piece, score=piece.score - 100)
        return piece

    return dataclasses.replace(model, pieces=tuple(map(changed, model.pieces)))


@functools.lru_cache(maxsize=None)
def _character_table(lower, keep_accents, remove_space):
    """What HuggingFace's Python tokenizer makes of each character before SentencePiece reads it, a `CharacterTable`."""

    def normalise(text):
        if lower:
            text = text.lower()
        if not keep_accents:
            text = "".join(
                character for character in unicodedata.normalize("NFKD", text) if not unicodedata.combining(character)
            )
        return text.lower() if lower else text

    table = normalise_each(normalise, _SEPARATOR).table()
    if remove_space:
        for code_point in filter(str.isspace, map(chr, range(CODE_POINTS))):
            table[ord(code_point)] = 0
            table[ord(code_point), 0] = entry(ord(code_point), ord(" "), 0)
    table[ord(_SEPARATOR), 0] = entry(0, 0, 0)
    return CharacterTable.of(table)


@functools.lru_cache(maxsize=None)
def _punctuation():
    """Which code points are punctuation to DeBERTa, bool array."""
    characters = map(chr, range(CODE_POINTS))
    return np.array(
        [character in string.punctuation or unicodedata.category(character)[0] == "P" for character in characters]
    )


@functools.lru_cache(maxsize=None)
def _blank():
    """Which code points are white space, or control what stands beside them, bool array."""
    kinds = ("Cc", "Cf", "Zs", "Zl", "Zp")
    return np.array(
        [unicodedata.category(character) in kinds or character == _SPACE for character in map(chr, range(CODE_POINTS))]
    )
