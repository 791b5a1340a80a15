"""Adapter directories, here or on the HuggingFace hub."""

import os

from tf_adapters.errors import InputError
from tf_adapters.hub import fetch, parse_id
from tf_adapters.paths import to_path
from tf_adapters.saving.layout import CARD_FILE, SETTINGS_FILE, WEIGHTS_FILE

# With the name of other libraries' description, so that a reader can say what a repository holds instead.
FILES = (SETTINGS_FILE, WEIGHTS_FILE, CARD_FILE, "adapter_config.json")


def find_adapter(source, *, files=FILES, required=True):
    """The folder of an adapter directory: the one here, or the files of a repository on the hub.

    Args:
        source: path, or `owner/name` or `owner/name@revision` of a repository on the HuggingFace hub. What is on this
            machine by that name wins.
        files: names of the files that are fetched, or patterns.
        required: bool, whether a repository without any of them is refused.

    Returns: a `pathlib.Path`; of what is neither here nor such an id the path itself, which readers refuse.

    Raises:
        InputError: there is no such directory, and the hub has no such repository or does not give it.
    """
    path, wanted = to_path(source), parse_id(os.fspath(source))
    if wanted is None or os.path.lexists(path):
        return path
    try:
        folder = fetch(wanted, files)
    except InputError as error:
        raise InputError(f"{source}: there is no such directory. {error}") from None
    if (folder / SETTINGS_FILE).exists() and not (folder / WEIGHTS_FILE).exists():
        raise InputError(
            f"{source}: the hub's cache has {SETTINGS_FILE} of it and no {WEIGHTS_FILE}: run it again with a network; "
            "if that does not help, the repository lacks the file."
        )
    # A repository without any of the files has no folder in the cache.
    if required and not folder.is_dir():
        raise InputError(f"{source} is on the hub, and holds none of {', '.join(files)}: it is no adapter directory.")
    return folder
