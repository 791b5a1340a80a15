"""Which tokenizer reads the texts of an encoder."""

import importlib

from tf_adapters.errors import InputError
from tf_adapters.models.state import state_of

# `Family.tokenizer` -> module, class, and what its `from_directory` is told. A new one is a line here, and a file where it cuts anew.
_TOKENIZERS = {
    "wordpiece": ("tf_adapters.text.wordpiece", "WordPiece", {}),
    "mpnet-wordpiece": ("tf_adapters.text.wordpiece", "WordPiece", {"style": "mpnet"}),
    "byte-level-bpe": ("tf_adapters.text.byte_bpe", "ByteLevelBpe", {}),
}


def load_tokenizer(model, *, max_length=128):
    """The tokenizer that a model's encoder was pretrained with.

    Args:
        model: as `load_backbone` returns it.
        max_length: int, tokens that are kept of a text.

    Returns: a `Tokenizer`, such as `WordPiece` or `ByteLevelBpe`.

    Raises:
        InputError: its files are missing or damaged, or of another tokenizer.
    """
    state = state_of(model)
    if state.directory is None:
        raise InputError(f"model={type(model).__name__} was built without files: give the tokenizer's class its vocabulary.")
    if state.family.tokenizer not in _TOKENIZERS:
        raise InputError(
            f"Texts of {state.family.model_type} are cut by {state.family.tokenizer}, which does not run in TensorFlow's graph here: "
            "give ids from HuggingFace's tokenizer to Keras' own fit (add_adapters, set_trainable and save_adapter work as for others)."
        )
    module, name, style = _TOKENIZERS[state.family.tokenizer]
    return getattr(importlib.import_module(module), name).from_directory(state.directory, max_length=max_length, **style)
