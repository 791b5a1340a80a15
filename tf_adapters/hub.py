"""Repositories on the HuggingFace hub: their ids, and what is fetched from them; needs no TensorFlow.

The hub is where huggingface_hub looks for it (`HF_ENDPOINT`), with its token (`HF_TOKEN`, or the one that `hf auth
login` keeps) and its cache.
"""

import contextlib
import pathlib
import re
from typing import NamedTuple, Optional

from tf_adapters.errors import InputError

_ID = re.compile(r"(?P<repository>\w[\w.-]*/\w[\w.-]*)(?:@(?P<revision>[^@\s]+))?", re.ASCII)


class HubId(NamedTuple):
    """A repository on the hub, `owner/name`, and a branch, tag or commit of it, or None for the main branch."""

    repository: str
    revision: Optional[str]


def parse_id(text):
    """The `HubId` that `owner/name` or `owner/name@revision` stands for, or None if the text is no such id.

    Example:
    >>> parse_id("someone/film@v2")
    HubId(repository='someone/film', revision='v2')
    """
    found = _ID.fullmatch(text)
    return found and HubId(found["repository"], found["revision"])


def fetch(wanted, files):
    """The folder of the hub's cache that holds a repository's files of these names, downloaded if need be.

    Args:
        wanted: `HubId`.
        files: list of str, names or patterns (`"*/adapter_config.json"`) of what is to be fetched, if it is there.

    Returns: a `pathlib.Path`. The last part is the commit.

    Raises:
        InputError: what huggingface_hub says.
    """
    with explained(wanted.repository):
        from huggingface_hub import snapshot_download

        return pathlib.Path(snapshot_download(wanted.repository, revision=wanted.revision, allow_patterns=list(files)))


@contextlib.contextmanager
def explained(repository):
    """Turn what huggingface_hub raises in the block into an `InputError` with its own message, on one line."""
    try:
        import huggingface_hub  # noqa: F401
    except ImportError:
        raise InputError(
            "huggingface_hub is not installed, which speaks to the hub: run `pip install huggingface_hub`."
        ) from None
    try:
        yield
    except InputError:
        raise
    # Errors of the protocol and the network are OSErrors, wrong ids ValueErrors, and the Rust client's RuntimeErrors.
    except (OSError, ValueError, RuntimeError) as error:
        said = " ".join(str(error).split())[:500]
        token = " The token is in HF_TOKEN, or that of `hf auth login`." if re.search("40[13]", said) else ""
        raise InputError(f"The HuggingFace hub and {repository}: {said}{token}") from None
