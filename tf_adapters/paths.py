"""Paths that users give, and files that are there and cannot be read."""

import contextlib
import os
import pathlib

from tf_adapters.errors import InputError


def to_path(given):
    """The `pathlib.Path` that an argument names, with `~` for the user's folder as a shell has it."""
    return pathlib.Path(os.path.expanduser(given))


@contextlib.contextmanager
def reading(path):
    """Turn what the operating system says against reading a file into a sentence.

    Raises:
        InputError: the block came to an OSError.
    """
    try:
        yield
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from None


def check_readable(path):
    """Raise InputError for a file that is there and cannot be opened, of which some libraries say that it is not
    there."""
    with reading(path), open(path, "rb"):
        pass
