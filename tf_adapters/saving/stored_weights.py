"""The weights' file of an adapter directory, found without TensorFlow."""

import hashlib

from tf_adapters.errors import InputError
from tf_adapters.paths import reading
from tf_adapters.saving.layout import NEXT_WEIGHTS_FILE, SETTINGS_FILE, WEIGHTS_FILE


def weights_path(directory, settings):
    """Path of the weights that the settings describe.

    Args:
        directory: `pathlib.Path`.
        settings: content of its `tf_adapters.json`.

    Raises:
        InputError: the directory lacks them, or has others.
    """
    for file in (WEIGHTS_FILE, NEXT_WEIGHTS_FILE):
        path = directory / file
        if path.exists() and sha256_of(path) == settings["weights"]["sha256"]:
            return path
    raise InputError(
        f"{directory / WEIGHTS_FILE} is missing, truncated or not the file that {SETTINGS_FILE} describes: copy the "
        "directory again as a whole."
    )


def sha256_of(path):
    """SHA-256 of a file, as hexadecimal digits."""
    digest = hashlib.sha256()
    with reading(path), open(path, "rb") as file:
        for piece in iter(lambda: file.read(1 << 20), b""):
            digest.update(piece)
    return digest.hexdigest()
