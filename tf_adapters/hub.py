"""Repositories on the HuggingFace hub: their ids, what is fetched from them, and what the hub's refusals mean.

Needs no TensorFlow. The hub is where huggingface_hub looks for it (`HF_ENDPOINT`), with its token (`HF_TOKEN`, or the
one that `hf auth login` keeps) and its cache.
"""

import contextlib
import pathlib
import re
from typing import NamedTuple, Optional

from tf_adapters.errors import InputError, shown

_ID = re.compile(r"(?P<repository>\w[\w.-]*/\w[\w.-]*)(?:@(?P<revision>[^@\s]+))?", re.ASCII)
_NO_PACKAGE = "huggingface_hub is not installed, which speaks to the hub: run `pip install huggingface_hub`."


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

    Without a network it is what was fetched before, which may lack files.

    Args:
        wanted: `HubId`.
        files: list of str, names or patterns (`"*/adapter_config.json"`) of what is to be fetched, if it is there.

    Returns: a `pathlib.Path`. The last part is the commit.

    Raises:
        InputError: no such repository or revision, one that the token may not read, a connection that fails or breaks.
    """
    with explained(wanted):
        from huggingface_hub import snapshot_download

        return pathlib.Path(snapshot_download(wanted.repository, revision=wanted.revision, allow_patterns=list(files)))


@contextlib.contextmanager
def explained(wanted, *, uploading=False):
    """Turn what huggingface_hub raises in the block into an `InputError` of one sentence.

    Args:
        wanted: `HubId`, what the block asks of the hub.
        uploading: bool, whether the block writes to the repository.
    """
    try:
        import huggingface_hub  # noqa: F401
    except ImportError:
        raise InputError(_NO_PACKAGE) from None
    try:
        yield
    except InputError:
        raise
    # Errors of the protocol and the network are OSErrors, wrong ids ValueErrors, and the Rust client's RuntimeErrors.
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(_sentence(error, wanted, uploading)) from None


def check_online():
    """Raise InputError if the environment forbids to speak to the hub."""
    try:
        from huggingface_hub import constants
    except ImportError:
        raise InputError(_NO_PACKAGE) from None
    if constants.HF_HUB_OFFLINE:
        raise InputError("HF_HUB_OFFLINE is set, and an upload needs the hub: unset it.")


_LOG_IN = "set HF_TOKEN, or run `hf auth login`"


def _sentence(error, wanted, uploading):
    from huggingface_hub import constants, errors

    chain, name, hub = _chain(error), wanted.repository, constants.ENDPOINT

    def is_one(kind):
        return any(isinstance(one, kind) for one in chain)

    if constants.HF_HUB_OFFLINE or is_one(errors.OfflineModeIsEnabled):
        return (
            f"{name} is not in the cache of the hub, and HF_HUB_OFFLINE is set: unset it, or fetch the repository once "
            "with a network."
        )
    if is_one(errors.RevisionNotFoundError):
        return f"{name} has no revision {shown(wanted.revision)} on the hub {hub}."
    if is_one(errors.GatedRepoError):
        return f"{name} is given on request: ask its owner at {hub}/{name}, and {_LOG_IN}."
    if is_one(errors.RepositoryNotFoundError):
        return f"{name} is not on the hub {hub}, or is private and nothing that your token may read: {_LOG_IN}."
    # Errors of the cache are of the same class, and have no answer.
    answer = next((one for one in chain if getattr(one, "response", None) is not None), None)
    if answer is not None:
        return _refusal(answer, name, hub, "write to" if uploading else "read")
    if isinstance(error, errors.HFValidationError):
        return f"{name} is no id of a repository ({_first_line(error)})."
    if not any(map(_of_network, chain)):
        return f"The hub {hub} and {name}: {_first_line(chain[-1])}."
    broke = f"The connection to {hub} failed or broke off ({_first_line(chain[-1])}):"
    if uploading:
        return (
            f"{broke} {name} has either the whole adapter or what it had before. Run it again; what has arrived is not "
            "sent twice."
        )
    return f"{broke} run it again, which goes on with what is there."


def _refusal(answer, name, hub, right):
    """What an answer says that is no success."""
    status = answer.response.status_code
    if status == 401:
        return f"The hub {hub} refused the token (401): make a new one at {hub}/settings/tokens, and {_LOG_IN}."
    if status == 403:
        return f"The hub {hub} does not let this token {right} {name} (403): {_LOG_IN} with one that may."
    said = getattr(answer, "server_message", None) or _first_line(answer)
    return f"The hub {hub} answered {status} for {name} ({said[:200]})."


def _chain(error):
    """An exception and those that it came from."""
    found = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


def _of_network(error):
    # A folder that cannot be written to is an OSError too; that of huggingface_hub for a short download has no number.
    from requests import RequestException

    return isinstance(error, (RequestException, ConnectionError, TimeoutError)) or "Consistency check" in str(error)


def _first_line(error):
    return next((line.strip().rstrip(".") for line in str(error).splitlines() if line.strip()), type(error).__name__)[
        :200
    ]
