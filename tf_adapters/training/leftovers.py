"""Removes what runs leave in an output directory, so that a kill meanwhile is no harm; needs no TensorFlow."""

import re

from tf_adapters.errors import InputError
from tf_adapters.saving.atomic import remove_dead, remove_file, remove_folder
from tf_adapters.saving.settings import SETTINGS_FILE
from tf_adapters.training.layout import RESUME_FOLDER, SEEDS_FILE, STATE_FILE


def discard_seeds(output):
    """Remove the list and the folders of an interrupted run of several seeds, if there is one."""
    # The list first: folders without it are left-overs, the list without its folders would be a broken run.
    remove_file(output / SEEDS_FILE)
    for folder in output.glob(".seed-*"):
        if re.fullmatch(r"\.seed-\d+", folder.name):
            remove_folder(folder)


def remove_leftovers(output):
    """Remove what a run that ended was about to remove when it was killed."""
    remove_dead(output)
    if not (output / SEEDS_FILE).exists():
        discard_seeds(output)


def clear(output):
    """Remove all that is in a directory; killed meanwhile, `is_to_be_cleared` says so."""
    marker = output / RESUME_FOLDER
    try:
        remove_folder(marker)
        marker.mkdir(parents=True)
        # What says that there is an adapter first, and each folder in one stroke: what is left is whole.
        for path in sorted(output.iterdir(), key=lambda path: path.name != SETTINGS_FILE):
            if path != marker:
                _remove(path)
        marker.rmdir()
    except OSError as error:
        raise InputError(f"{output} cannot be cleared: {error.strerror}.") from None


def is_to_be_cleared(output):
    """Whether a run's folder is there without its state: it was killed while what was there before was removed, or
    right before its first step."""
    return (output / RESUME_FOLDER).is_dir() and not (output / RESUME_FOLDER / STATE_FILE).exists()


def _remove(path):
    remove_folder(path) if path.is_dir() and not path.is_symlink() else path.unlink()
