"""Which tokenizer reads the texts of an encoder."""

import importlib
from typing import TYPE_CHECKING, Optional

from tf_adapters._types import Model
from tf_adapters.errors import InputError
from tf_adapters.models.state import state_of

if TYPE_CHECKING:
    from tf_adapters.text.tokenizer import Tokenizer

# `Family.tokenizer` -> module, class, and what its `from_directory` is told. A new one is a line here, and a file where
# it cuts anew.
_TOKENIZERS = {
    "wordpiece": ("tf_adapters.text.wordpiece", "WordPiece", {}),
    "mpnet-wordpiece": ("tf_adapters.text.wordpiece", "WordPiece", {"style": "mpnet"}),
    "byte-level-bpe": ("tf_adapters.text.byte_bpe", "ByteLevelBpe", {}),
    "xlm-roberta-sentencepiece": ("tf_adapters.text.sentencepiece", "SentencePiece", {"layout": "xlm-roberta"}),
    "camembert-sentencepiece": ("tf_adapters.text.sentencepiece", "SentencePiece", {"layout": "camembert"}),
    "albert-sentencepiece": ("tf_adapters.text.sentencepiece", "SentencePiece", {"layout": "albert"}),
    "plain-albert-sentencepiece": ("tf_adapters.text.sentencepiece", "SentencePiece", {"layout": "albert-plain"}),
    "deberta-v2-sentencepiece": ("tf_adapters.text.sentencepiece", "SentencePiece", {"layout": "deberta-v2"}),
}


def load_tokenizer(model: Model, *, max_length: Optional[int] = None) -> "Tokenizer":
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
    module, name, style = _TOKENIZERS[kind]
    made = getattr(importlib.import_module(module), name)
    if given is None:
        tokenizer = made.from_directory(state.directory, max_length=max_length, **style)
    else:
        tokenizer = made(**given, max_length=max_length, **style)
    if tokenizer.size > config.vocab_size:
        raise InputError(
            f"{state.source}: its tokenizer makes ids up to {tokenizer.size - 1}, and its encoder knows "
            f"{config.vocab_size}: give the files that belong together."
        )
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


def trained_tokenizer(model, text, directory):
    """The tokenizer of a model's encoder, as an adapter directory was trained with it.

    Args:
        model: as `load_backbone` returns it.
        text: dict, the directory's text settings, or None where it has none.
        directory: path, for messages.

    Raises:
        InputError: there are no text settings, or the encoder's vocabulary is not the one of training.
    """
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
