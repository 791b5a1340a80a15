"""What a HuggingFace directory says of its tokenizer beside the vocabulary."""

import os

from tf_adapters.errors import InputError, shown
from tf_adapters.json_input import read_json
from tf_adapters.ranges import is_int

# What transformers 5 calls a tokenizer that `tokenizer.json` says all of.
_OF_ANY_KIND = "TokenizersBackend"
_ROLES = ("unk_token", "cls_token", "sep_token", "pad_token", "mask_token", "bos_token", "eos_token")


def read_tokenizer_config(directory, accepted=None, kind=None):
    """The content of `tokenizer_config.json`, a dict; empty where there is none.

    Args:
        directory: str.
        accepted: tokenizer classes of the kind, or None for all.
        kind: str, in words.

    Raises:
        InputError: the file is damaged, or names another class.
    """
    path = os.path.join(directory, "tokenizer_config.json")
    if not os.path.isfile(path):
        return {}
    config = read_json(path)
    name = config.get("tokenizer_class")
    if accepted and name not in (None, "PreTrainedTokenizerFast", _OF_ANY_KIND, *accepted):
        raise InputError(
            f"{{tokenizer_class}} in {path} is not {kind}: give a model whose tokenizer is a {accepted[0]}.",
            tokenizer_class=name,
        )
    return config


def reads_json_alone(config):
    """Whether `tokenizer.json` says how texts are cut, whatever else lies beside it."""
    return config.get("tokenizer_class") == _OF_ANY_KIND


def tokens_of(config, directory, roles=_ROLES):
    """Special tokens that `tokenizer_config.json` names, by their roles."""
    tokens = {role: config.get(role) for role in roles}
    tokens = {role: token.get("content") if isinstance(token, dict) else token for role, token in tokens.items()}
    for role, token in tokens.items():
        if not isinstance(token, (str, type(None))):
            path = os.path.join(directory, "tokenizer_config.json")
            raise InputError(f"{role}={shown(token)} in {path} must be a string.")
    return {role: token for role, token in tokens.items() if token is not None}


def refuse_added_tokens(directory, config, size, own=(), listed=()):
    """Raise InputError if tokens were added behind a vocabulary, which are cut out of a text before anything else is.

    Args:
        directory: str.
        config: dict, content of `tokenizer_config.json`.
        size: int, entries of the vocabulary.
        own: strs, tokens that the kind of tokenizer has behind its vocabulary.
        listed: list of objects, the `added_tokens` of a `tokenizer.json` that was read.
    """
    path = os.path.join(directory, "added_tokens.json")
    own = {*own, *tokens_of(config, directory).values()}
    decoder = config.get("added_tokens_decoder") or {}
    try:
        added = dict(read_json(path)) if os.path.isfile(path) else {}
        added |= {token["content"]: int(number) for number, token in decoder.items()}
        added |= {token["content"]: token["id"] for token in listed or ()}
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InputError(f"{directory} has a list of added tokens that is damaged: restore its files.") from None
    for token, number in added.items():
        if not is_int(number) or number >= size and token not in own:
            raise InputError(
                f"{directory}: the token {shown(token)} was added to the vocabulary of {size} entries, and added "
                "tokens are not cut out of texts here: give an encoder without them."
            )
