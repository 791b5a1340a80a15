"""Where an export may be written. Needs no TensorFlow, so that commands can look first."""

import importlib.util

from tf_adapters.errors import InputError
from tf_adapters.paths import to_path
from tf_adapters.saving.atomic import remove_dead


def check_version_directory(directory):
    """The path of a version that can be written.

    Raises: InputError, if its name is no number or it is there already.
    """
    directory = to_path(directory)
    if not (directory.name.isdecimal() and directory.name.isascii()):
        raise InputError(
            f"{directory} must end in a version number, which is what TensorFlow Serving looks for: {directory / '1'}."
        )
    if directory.exists():
        # What one that was killed right after its end left.
        remove_dead(directory.parent)
        raise InputError(
            f"{directory} is there already, and a server may be reading it: export the next version, "
            f"{directory.parent / str(_newest(directory.parent) + 1)}."
        )
    return directory


def _newest(folder):
    return max(int(path.name) for path in folder.iterdir() if path.name.isdecimal() and path.name.isascii())


def check_export_file(path, format):
    """The path of an ONNX or LiteRT file that can be written.

    Raises: InputError, if something is there, or the package that writes the format is not installed.
    """
    for package in ("tf2onnx", "onnxscript") if format == "onnx" else ():
        if importlib.util.find_spec(package) is None:
            raise InputError(f'ONNX files need {package}: run `pip install "tf_adapters[onnx]"`.')
    path = to_path(path)
    if path.exists():
        raise InputError(f"{path} is there already: give another name.")
    return path
