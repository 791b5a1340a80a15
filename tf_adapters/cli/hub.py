"""Adapter directories that a command is given, here or on the HuggingFace hub."""

import contextlib

from tf_adapters.cli.terminal import terminal
from tf_adapters.paths import to_path


def local(source, find=None):
    """The folder of an adapter directory that a command was given; of one on the hub its copy here, and a line on
    standard error that says so.

    Args:
        source: path, or `owner/name` or `owner/name@revision`.
        find: function that finds it, of its source; None for `find_adapter`.
    """
    from tf_adapters.saving.fetching import find_adapter

    if to_path(source).exists():
        return to_path(source)
    console = terminal(stderr=True)
    with console.status(f"Looking for {source} ..."), quietly():
        folder = (find or find_adapter)(source)
    if folder != to_path(source):
        console.print(f"{source} is commit {folder.name[:12]} on the hub.")
    return folder


def name_of(source, folder):
    """What an adapter directory is called: `folder` is what `local(source)` gave."""
    if folder != to_path(source):
        return str(source).partition("@")[0].partition("/")[2]
    return folder.resolve().name


@contextlib.contextmanager
def quietly():
    """While the block runs, huggingface_hub shows no bars and prints no retries: the command has a line of its own."""
    try:
        from huggingface_hub import utils
    except ImportError:
        yield  # whoever asks the hub says that it is missing
        return
    shown, level = not utils.are_progress_bars_disabled(), utils.logging.get_verbosity()
    if shown:
        utils.disable_progress_bars()
    utils.logging.set_verbosity_error()
    try:
        yield
    finally:
        utils.logging.set_verbosity(level)
        if shown:
            utils.enable_progress_bars()
