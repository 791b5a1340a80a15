"""Files that are either whole or not there."""

import contextlib
import os
import pathlib
import tempfile

from tf_adapters.errors import InputError


@contextlib.contextmanager
def replacing(path):
    """Yield a temporary path beside `path`, which takes its place when the block succeeds.

    Raises:
        InputError: the folder cannot be written to, or the disk is full.
    """
    path = pathlib.Path(path)
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        os.close(handle)
        yield pathlib.Path(temporary)
        os.chmod(temporary, 0o644)
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}.") from None
    finally:
        if temporary is not None and os.path.exists(temporary):
            os.unlink(temporary)


def write_text(path, text):
    """Write a text file in one stroke."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_safetensors(path, arrays, metadata=None):
    """Write NumPy arrays as one safetensors file in one stroke.

    Args:
        path: the file.
        arrays: dict from name to array.
        metadata: dict of strings for the header, or None.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    with replacing(path) as temporary:
        try:
            save_file(arrays, str(temporary), metadata=metadata)
        except SafetensorError as error:
            # The Rust writer wraps what the operating system said.
            raise OSError(str(error)) from None
