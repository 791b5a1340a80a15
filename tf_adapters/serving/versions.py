"""What exports may be and where they may be written. Loads no TensorFlow until it writes: commands look first."""

import importlib.util
import json
import os

from tf_adapters._version import __version__
from tf_adapters.errors import InputError
from tf_adapters.paths import to_path
from tf_adapters.saving.atomic import folder_beside, reason, remove_dead

FORMATS = ("saved-model", "onnx", "litert")
STORAGES = ("float32", "bfloat16", "float16")
QUANTIZED = ("none", "int8")
# Requests that TensorFlow Serving answers for itself before it says that a version is available: records of
# `PredictionLog` (tensorflow_serving/apis/prediction_log.proto). Without them the first request of each signature waits
# until TensorFlow has optimised its graph.
WARM_UP_FILE = "tf_serving_warmup_requests"
_ROWS = (1, 8)
_TOKENS = 16
_TEXT = "A text that nobody asked about. "
# Fields of the messages.
_PREDICT_LOG, _REQUEST, _MODEL_SPEC, _INPUTS, _SIGNATURE, _KEY, _VALUE = 6, 1, 1, 2, 3, 1, 2


def check_version_directory(directory):
    """The path of a version that can be written.

    Raises: InputError, if its name is no number or it is there already.
    """
    directory = to_path(directory)
    if not _is_number(directory):
        raise InputError(
            f"{directory} must end in a version number, which is what TensorFlow Serving looks for: {directory / '1'}."
        )
    if directory.exists():
        # What one that was killed right after its end left.
        remove_dead(directory.parent)
        newest = max(int(path.name) for path in directory.parent.iterdir() if _is_number(path))
        raise InputError(
            f"{directory} is there already, and a server may be reading it: export the next version, "
            f"{directory.parent / str(newest + 1)}."
        )
    return directory


def _is_number(path):
    return path.name.isdecimal() and path.name.isascii()


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


def check_storage(storage):
    """Raise InputError if frozen weights cannot be stored so."""
    if storage not in STORAGES:
        raise InputError(f"{{storage}} is unknown: use one of {', '.join(map(repr, STORAGES))}.", storage=storage)


def write_version(directory, root, functions, about, **values):
    """Write a SavedModel as a version directory that appears when it is complete.

    Args:
        directory: path that `check_version_directory` returned.
        root: `tf.Module` with what the functions read.
        functions: dict from signature to `tf.function`.
        about: dict for JSON, written to `assets.extra/tf_adapters.json`.
        values: as of `write_requests`.

    Returns: the directory.

    Raises: InputError, if it cannot be written.
    """
    import tensorflow as tf

    try:
        # A server ignores what is not named by a number.
        with folder_beside(directory) as folder:
            complete = folder / directory.name
            tf.saved_model.save(root, str(complete), signatures=functions)
            extra = complete / "assets.extra"
            extra.mkdir()
            text = json.dumps({"tf_adapters": __version__, **about}, ensure_ascii=False)
            (extra / "tf_adapters.json").write_text(text + "\n", encoding="utf-8")
            write_requests(extra / WARM_UP_FILE, functions, **values)
            os.rename(complete, directory)
    except (OSError, tf.errors.OpError) as error:
        raise InputError(f"{directory} cannot be written: {reason(error)}.") from None
    return directory


def write_requests(path, functions, **values):
    """Write requests of one row and of eight for each signature that takes texts or ids.

    `serving_jit` has none: it compiles for each shape.

    Args:
        path: of the file.
        functions: dict from signature to `tf.function` with an input signature.
        values: for inputs that are no texts, a list of their strings.
    """
    import tensorflow as tf

    with tf.io.TFRecordWriter(str(path)) as writer:
        for signature, function in functions.items():
            arguments, named = function.get_concrete_function().structured_input_signature
            specs = {spec.name: spec for spec in (*arguments, *named.values())}
            if signature == "serving_jit" or not {"input_ids", "text", "context"} & set(specs):
                continue
            for rows in _ROWS:
                inputs = {name: _value(spec, rows, values.get(name)) for name, spec in specs.items()}
                writer.write(_record(signature, inputs))


def _record(signature, inputs):
    """A serialised `PredictionLog` of a request.

    Args:
        signature: str.
        inputs: dict from input to an array.
    """
    import tensorflow as tf

    request = _field(_MODEL_SPEC, _field(_SIGNATURE, signature.encode()))
    for name, value in inputs.items():
        tensor = tf.make_tensor_proto(value).SerializeToString()
        request += _field(_INPUTS, _field(_KEY, name.encode()) + _field(_VALUE, tensor))
    return _field(_PREDICT_LOG, _field(_REQUEST, request))


def _value(spec, rows, strings):
    import numpy as np

    is_ids = spec.dtype == np.int32
    shape = [rows, *(_TOKENS if is_ids else 2 for _ in spec.shape[1:])]
    if is_ids:
        return np.full(shape, 0 if spec.name == "token_type_ids" else 1, np.int32)
    if strings:
        return np.resize(np.array(strings, object), shape)
    # Of several rows some are as long as texts may be.
    return np.full(shape, _TEXT if rows == 1 else 64 * _TEXT, object)


def _field(number, content):
    """A field of a message whose content has a length."""
    size, length = len(content), b""
    while size >= 128:
        length += bytes([size & 127 | 128])
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + content
