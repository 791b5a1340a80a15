"""What tokenizers have in common: special tokens, truncation and padding as TensorFlow operations, what a directory of
HuggingFace says beside the vocabulary, and which of them reads the texts of an encoder."""

import contextlib
import copy
import importlib
import os
from typing import Optional

import numpy as np
import tensorflow as tf

from tf_adapters._types import Model
from tf_adapters.errors import InputError, shown
from tf_adapters.models.state import state_of
from tf_adapters.paths import read_json, reading
from tf_adapters.ranges import checked, is_int

# No Python branch here depends on a tensor, and conversion takes most of a trace's time.
no_autograph = tf.autograph.experimental.do_not_convert

# What transformers 5 calls a tokenizer that `tokenizer.json` says all of.
_OF_ANY_KIND = "TokenizersBackend"
# What `pad` returns, by name.
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_ROLES = ("unk_token", "cls_token", "sep_token", "pad_token", "mask_token", "bos_token", "eos_token")


class Tokenizer(tf.Module):
    """Strings to ids in the graph; a subclass says how a text is cut.

    A subclass has `tokenize`, `tokenize_with_offsets` and `settings`, sets `_word_starts`, a byte for each token, and

    Attributes:
        max_length: int, the most ids in a row, special tokens included.
        cls_id, sep_id, pad_id, unk_id: ints.
        mask_id: int, what stands for a hidden token in pretraining, or None where the vocabulary has none.
        size: int, which no id of a text reaches.
        single_specials, pair_specials: ints, special tokens of a row with one text, and with two.
        marks_second: bool, whether the second text has token type 1.
    """

    single_specials, pair_specials, marks_second = 2, 3, True

    @property
    def before_second(self):
        """int, special tokens before the second text of a pair."""
        return self.pair_specials - 1

    def tokenize(self, text):
        """Strings `(batch,)` as ids without special tokens, an int32 RaggedTensor `(batch, (tokens))`."""
        raise NotImplementedError

    def word_starts(self):
        """Whether each token begins a word, a NumPy bool array `(size,)`; a word's first token may also be one that
        does not."""
        # Bytes, since tf.Module would wrap and track each entry of a list.
        return np.frombuffer(self._word_starts, bool)

    def tokenize_words(self, words):
        """`tokenize` for words of a sentence that somebody has split."""
        return self.tokenize(words)

    def with_max_length(self, max_length):
        """The same tokenizer, its table shared, that cuts at another length."""
        other = copy.copy(self)
        other.max_length = checked("max_length", max_length)
        return other

    def set_specials(self, ids, **tokens):
        """Set `cls_token`, `cls_id` and so on; raises InputError for a token without an id in the dict `ids`."""
        for argument, token in tokens.items():
            if not isinstance(token, str) or token not in ids:
                raise InputError(
                    f"{argument}={shown(token)} is not in the vocabulary of {len(ids)} entries: give the model's own."
                )
            setattr(self, argument, token)
            setattr(self, argument.replace("token", "id"), ids[token])

    @no_autograph
    def encode(self, text, text_pair=None):
        """Tokenize, truncate and add special tokens: `[CLS] a [SEP]` or `[CLS] a [SEP] b [SEP]`; RoBERTa's has two in
        the middle.

        A row longer than `max_length` is cut at the end of its text; of a pair,
        the longer text is cut until both are equally long, then both, as
        HuggingFace's "longest_first" does.

        Args:
            text: strings, `(batch,)`.
            text_pair: strings, `(batch,)`, or None.
        Returns: dict of the int32 RaggedTensors `input_ids` and `token_type_ids`,
            `(batch, (tokens))`.
        Raises: InputError, for texts of the wrong shape, or a pair with `max_length` below 5.
        """
        first = self.tokenize(text)
        with tf.device("CPU:0"):
            if text_pair is None:
                return self.join(
                    _keep_first(first, tf.minimum(first.row_lengths(), self.max_length - self.single_specials))
                )
            if self.max_length < self.pair_specials + 2:
                raise InputError(
                    f"{{max_length}} has no room for a pair: give at least {self.pair_specials + 2}.",
                    max_length=self.max_length,
                )
            second = self.tokenize(text_pair)
            # Static shapes catch most of it; the assertion holds in a graph.
            if not first.shape[:1].is_compatible_with(second.shape[:1]):
                raise InputError(
                    f"text_pair has {second.shape[0]} rows and text has {first.shape[0]}: give equally many."
                )
            equal = tf.debugging.assert_equal(
                first.nrows(), second.nrows(), "text and text_pair must have equally many rows"
            )
            with tf.control_dependencies([equal]):
                kept_first, kept_second = _longest_first(
                    first.row_lengths(),
                    second.row_lengths(),
                    tf.constant(self.max_length - self.pair_specials, tf.int64),
                )
            return self.join(_keep_first(first, kept_first), _keep_first(second, kept_second))

    @no_autograph
    def join(self, first, second=None):
        """Add special tokens to token rows: `[CLS] first [SEP]`, or of pairs `[CLS] first [SEP] second [SEP]`.

        Args:
            first, second: int32 RaggedTensors, `(batch, (tokens))`, as `tokenize` returns them; the second may be None.
        Returns: dict, as of `encode`.
        """
        with tf.device("CPU:0"):
            rows = first.nrows(out_type=tf.int64)
            cls, sep = (tf.fill(tf.stack([rows, 1]), token) for token in (self.cls_id, self.sep_id))
            others = [] if second is None else [*[sep] * (self.before_second - 1), second]
            input_ids = tf.concat([cls, first, *others, sep], axis=1)
            if second is None or not self.marks_second:
                return {"input_ids": input_ids, "token_type_ids": tf.zeros_like(input_ids)}
            in_second = _positions(input_ids) >= tf.gather(
                first.row_lengths() + self.before_second, input_ids.value_rowids()
            )
            return {"input_ids": input_ids, "token_type_ids": input_ids.with_values(tf.cast(in_second, tf.int32))}

    @no_autograph
    def pad(self, encoded, *, length=None, multiple_of=8):
        """Make rows equally long.

        Args:
            encoded: dict, as `encode` returns it.
            length: int or int scalar tensor that no row exceeds; None for the
                longest row rounded up to `multiple_of`, at most `max_length`.
            multiple_of: int.
        Returns: dict of the int32 tensors `input_ids`, `attention_mask` and
            `token_type_ids`, `(batch, length)`.
        Raises: InputError, if `length` or `multiple_of` is not positive;
            tf.errors.InvalidArgumentError, if a row is longer than `length`.
        """
        with tf.device("CPU:0"):
            lengths = encoded["input_ids"].row_lengths()
            if length is None:
                check_positive(multiple_of, "multiple_of")
                longest = tf.reduce_max(tf.concat([lengths, [1]], axis=0))
                width = tf.minimum(-(-longest // multiple_of) * multiple_of, self.max_length)
                # A row is never longer than max_length unless it was encoded by other settings.
                width = tf.maximum(width, longest)
            else:
                if not tf.is_tensor(length):
                    check_positive(length, "length")
                width = tf.cast(length, tf.int64)
                if tf.is_tensor(length) or length < self.max_length:
                    with tf.control_dependencies(
                        [tf.debugging.assert_less_equal(lengths, width, "a row is longer than the length to pad to")]
                    ):
                        width = tf.identity(width)
            shape = tf.stack([tf.constant(-1, tf.int64), width])
            padded = {
                "input_ids": encoded["input_ids"].to_tensor(self.pad_id, shape=shape),
                "attention_mask": tf.sequence_mask(lengths, width, dtype=tf.int32),
                "token_type_ids": encoded["token_type_ids"].to_tensor(0, shape=shape),
            }
            static = [encoded["input_ids"].shape[0], None if tf.is_tensor(length) else length]
            return {name: tf.ensure_shape(tensor, static) for name, tensor in padded.items()}

    @no_autograph
    def __call__(self, text, text_pair=None):
        """Return `pad(encode(text, text_pair))`."""
        return self.pad(self.encode(text, text_pair))


def rows_of_pieces(ragged, words_per_text):
    """Rows of words of pieces to rows of pieces, by the splits alone."""
    row_splits = tf.gather(ragged.row_splits, tf.concat([[0], tf.cumsum(words_per_text)], axis=0))
    return tf.RaggedTensor.from_row_splits(ragged.flat_values, row_splits, validate=False)


def utf8_bytes(code_points):
    """How many bytes each code point takes in UTF-8."""
    return 1 + sum(tf.cast(code_points >= limit, tf.int32) for limit in (0x80, 0x800, 0x10000))


def _positions(ragged):
    """Position of each value in its row, flat."""
    return tf.ragged.range(ragged.row_lengths()).values


def _keep_first(ragged, counts):
    """Keep the first `counts[i]` values of row i, which has at least as many."""
    keep = _positions(ragged) < tf.gather(counts, ragged.value_rowids())
    return tf.RaggedTensor.from_row_lengths(tf.boolean_mask(ragged.values, keep), counts, validate=False)


def _longest_first(first, second, budget):
    """How many tokens of each text of a pair stay, int64 `(batch,)` as those before, so that together they are at most
    `budget`, as `tokenizers` decides it."""
    shorter = tf.minimum(first, second)
    longer_left = tf.where(shorter > budget, shorter, tf.maximum(shorter, budget - shorter))
    halve = shorter + longer_left > budget
    shorter = tf.where(halve, budget // 2, shorter)
    longer_left = tf.where(halve, budget // 2 + budget % 2, longer_left)
    fits, swapped = first + second <= budget, first > second
    return (
        tf.where(fits, first, tf.where(swapped, longer_left, shorter)),
        tf.where(fits, second, tf.where(swapped, shorter, longer_left)),
    )


def checked_text(text, argument):
    try:
        text = tf.convert_to_tensor(text, tf.string)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{argument} must be a list or tensor of strings, not {type(text).__name__}: {error}"
        ) from None
    if text.shape.rank != 1:
        raise InputError(
            f"{argument} must be (batch,) strings, not of shape {text.shape}: wrap a single text in a list."
        )
    return text


def check_positive(value, argument):
    """Raise InputError unless a value is an integer above 0."""
    if not is_int(value) or value < 1:
        raise InputError(f"{argument}={value!r} must be a positive integer.")


class TokenizerConfig:
    """What `tokenizer_config.json` says; nothing where there is none.

    Args:
        directory: str.
        accepted: tokenizer classes of the kind, or None for all.
        kind: str, in words.

    Attributes:
        name: str, the tokenizer's class, or None.
        alone: bool, whether `tokenizer.json` says how texts are cut, whatever else is there.

    Raises:
        InputError: the file is damaged, or names another class.
    """

    def __init__(self, directory, accepted=None, kind=None):
        self._directory, self._path = directory, os.path.join(directory, "tokenizer_config.json")
        self._values = read_json(self._path) if os.path.isfile(self._path) else {}
        self.name = self._values.get("tokenizer_class")
        self.alone = self.name == _OF_ANY_KIND
        if accepted and self.name not in (None, "PreTrainedTokenizerFast", _OF_ANY_KIND, *accepted):
            raise InputError(
                f"{{tokenizer_class}} in {self._path} is not {kind}: give a model with a {accepted[0]}.",
                tokenizer_class=self.name,
            )

    def tokens(self, roles=_ROLES):
        """The special tokens that it names, by their roles."""
        tokens = {role: self._values.get(role) for role in roles}
        tokens = {role: token.get("content") if isinstance(token, dict) else token for role, token in tokens.items()}
        return self._checked(tokens, str, "a string")

    def flags(self, names):
        """The settings of these names that are true or false; those that are null are left out."""
        return self._checked({name: self._values.get(name) for name in names}, bool, "true or false")

    def _checked(self, values, wanted, words):
        values = {name: value for name, value in values.items() if value is not None}
        for name, value in values.items():
            if not isinstance(value, wanted):
                raise InputError(f"{name}={shown(value)} in {self._path} must be {words}.")
        return values

    def refuse_added(self, size, own=(), listed=(), cut=()):
        """Raise InputError if tokens were added behind a vocabulary, which are cut out of a text before anything else
        is.

        Args:
            size: int, entries of the vocabulary.
            own: strs, tokens that the kind of tokenizer has behind its vocabulary; what is no token is of no account.
            listed: list of objects, the `added_tokens` of a `tokenizer.json` that was read.
            cut: strs, tokens that are cut out of texts here too.
        """
        path = os.path.join(self._directory, "added_tokens.json")
        own = {*own, *self.tokens().values()}
        decoder, of_text = self._values.get("added_tokens_decoder") or {}, set()
        try:
            added = dict(read_json(path)) if os.path.isfile(path) else {}
            added |= {token["content"]: int(number) for number, token in decoder.items()}
            added |= {token["content"]: token["id"] for token in listed or ()}
            # Special ones in a text are refused or read as text, as documented; these are words of the vocabulary.
            every = (*decoder.values(), *(listed or ()))
            of_text = {token["content"] for token in every if token.get("special") is False}
        except (AttributeError, KeyError, TypeError, ValueError):
            raise InputError(
                f"{self._directory} has a list of added tokens that is damaged: restore its files."
            ) from None
        for token, number in added.items():
            if not is_int(number) or (number >= size or token in of_text - set(cut)) and token not in own:
                raise InputError(
                    f"{self._directory}: the token {shown(token)} was added to the vocabulary of {size} entries, and "
                    "added tokens are not cut out of texts: give an encoder without."
                )


def read_lines(path):
    """The lines of a file, a list of str."""
    try:
        # Text mode would also cut at other line ends that can be tokens; Windows' is stripped.
        with reading(path), open(path, encoding="utf-8", newline="\n") as file:
            lines = file.read().split("\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text ({error.reason} at byte {error.start}): restore it.") from None
    return [line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1])]


def check_is(expected, path, advice):
    """Raise InputError for the first of `(key, value, wanted)` of a `tokenizer.json` whose value is another one."""
    for key, value, wanted in expected:
        if value != wanted:
            raise InputError(f"{key}={shown(value)} in {path} must be {wanted!r}: {advice}.")


def check_rows(after, separators, path):
    """The tokens that begin and end a row by the `post_processor` of a `tokenizer.json`.

    Raises: InputError, unless rows are `[CLS] a [SEP]` and `[CLS] a [SEP] b [SEP]`, with so many separators in the
        middle of a pair. Without a post-processor HuggingFace's have none of these tokens.
    """
    rows, kind = [], after.get("type")
    if kind in ("BertProcessing", "RobertaProcessing"):
        cls, sep = (end[0] if isinstance(end, list) and end else end for end in (after.get("cls"), after.get("sep")))
        rows = [[cls, "A", sep], [cls, "A", sep, *[sep] * (kind == "RobertaProcessing"), "B", sep]]
    elif kind == "TemplateProcessing":
        with contextlib.suppress(AttributeError, KeyError, TypeError):  # of a damaged one
            rows = [[part["id"] for step in after[name] for part in step.values()] for name in ("single", "pair")]
    cls, sep = (rows[0][0], rows[0][-1]) if rows and rows[0] else (None, None)
    if not isinstance(cls, str) or rows != [[cls, "A", sep], [cls, "A", *[sep] * separators, "B", sep]]:
        raise InputError(
            f"post_processor={shown(after)} in {path} must put a token before a text, {separators} between two and "
            "one behind: give another encoder."
        )
    return cls, sep


def is_utf8(text):
    """Whether strings are UTF-8, bool of their shape; in a graph."""
    return tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace", replacement_char=0xFFFD) == text


# Which tokenizer reads the texts of an encoder

# What `Family.tokenizer` begins with -> module, class, and the argument that follows behind a colon.
_TOKENIZERS = {
    "wordpiece": ("wordpiece", "WordPiece", "style"),
    "byte-level-bpe": ("byte_bpe", "ByteLevelBpe", None),
    "sentencepiece": ("sentencepiece", "SentencePiece", "layout"),
}


def load_tokenizer(model: Model, *, max_length: Optional[int] = None) -> Tokenizer:
    """The tokenizer that a model's encoder was pretrained with.

    Args:
        model: as `load_backbone` returns it.
        max_length: int, tokens that are kept of a text; None for 128, or as many as the encoder has positions for.

    Returns: a `Tokenizer`, such as `WordPiece`, `ByteLevelBpe` or `SentencePiece`.

    Raises:
        InputError: its files are missing or damaged, or of another tokenizer; the encoder has fewer positions than
            `max_length`.
    """
    state = state_of(model)
    config = state.door.config_of(model)
    if max_length is None:
        max_length = min(128, state.family.positions(config))
    check_length(model, max_length)
    if state.directory is None and state.tokenizer is None:
        raise InputError(
            "{model} was built without files: give the tokenizer's class its vocabulary.", model=type(model).__name__
        )
    kind, given = (state.family.tokenizer, None) if state.tokenizer is None else state.tokenizer()
    kind, _, which = kind.partition(":")
    module, name, argument = _TOKENIZERS[kind]
    made = getattr(importlib.import_module(f"tf_adapters.text.{module}"), name)
    style = {argument: which} if which else {}
    if given is None:
        tokenizer = made.from_directory(state.directory, max_length=max_length, **style)
    else:
        tokenizer = made(**given, max_length=max_length, **style)
    if tokenizer.size > config.vocab_size:
        raise InputError(f"{state.source}: its tokenizer has more ids than it: give the files that belong together.")
    return tokenizer


def check_length(model, max_length):
    """Raise InputError if a model's encoder has fewer positions than `max_length`."""
    state = state_of(model)
    positions = state.family.positions(state.door.config_of(model))
    if max_length > positions:
        raise InputError(
            f"{{max_length}} is beyond the {positions} positions of {state.source}: give {positions} or less.",
            max_length=max_length,
        )


def check_text(model, text):
    """Raise InputError unless `text` is a `Tokenizer` whose rows a model's encoder can read."""
    if not isinstance(text, Tokenizer):
        raise InputError("{text} must be a tokenizer of this package, as load_tokenizer(model) gives it.", text=text)
    check_length(model, text.max_length)


def trained_tokenizer(model, text, directory):
    """The tokenizer of a model's encoder by `text`, an adapter directory's text settings; InputError where they are
    None, or the encoder's vocabulary is not the one of training."""
    if text is None:
        raise InputError(
            f"{directory} was saved without text settings, so raw text cannot be scored; pass text= to save_adapter."
        )
    tokenizer = load_tokenizer(model, max_length=text["max_length"])
    for name, value in tokenizer.settings().items():
        if text.get(name) != value:
            raise InputError(
                f"{directory} was trained with {name}={text.get(name)!r}, and the tokenizer of "
                f"{state_of(model).source} has {value!r}."
            )
    return tokenizer
