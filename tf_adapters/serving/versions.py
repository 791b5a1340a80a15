"""What exports may be and where they may be written. Loads no TensorFlow until it writes: commands look first."""

import functools
import importlib.util
import json
import os

import numpy as np

from tf_adapters._installation import __version__
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
# What they need of the messages of tensorflow_serving/apis.
_MESSAGES = {
    "PredictionLog": "optional PredictLog predict_log = 6",
    "PredictLog": "optional PredictRequest request = 1",
    "PredictRequest": "optional ModelSpec model_spec = 1; repeated Input inputs = 2",
    "ModelSpec": "optional string signature_name = 3",
    "Input": "optional string key = 1; optional .tensorflow.TensorProto value = 2",
}
# How a server computes requests that wait at the same time as one batch: under the name that it looks for in a version
# (--enable_per_model_batching_parameters), and beside the requests (--batching_parameters_file).
BATCHING_FILES = ("batching_params.pbtxt", "assets.extra/batching_parameters.txt")
_BATCHING = """\
# tensorflow_serving/servables/tensorflow/session_bundle_config.proto: BatchingParameters
max_batch_size { value: 64 }
# How long a request waits for others, at most: a tenth of what a batch takes costs little.
batch_timeout_micros { value: 2000 }
# Requests beyond these are refused (UNAVAILABLE), so that a client may try another server.
max_enqueued_batches { value: 64 }
# As many as there are cores for batches. A server reads it from --batching_parameters_file alone.
num_batch_threads { value: 4 }
# Of ids; texts of any lengths go together.
pad_variable_length_inputs: true
"""


def check_version_directory(directory):
    """The path of a version that can be written.

    Raises: InputError, if its name is no number or it is there already.
    """
    directory = to_path(directory)
    if not _is_number(directory) or str(int(directory.name)) != directory.name:
        such = directory.with_name(str(int(directory.name))) if _is_number(directory) else directory / "1"
        raise InputError(
            f"{directory} must end in a version number, which is what TensorFlow Serving looks for: {such}."
        )
    if directory.exists():
        # What one that was killed right after its end left.
        remove_dead(directory.parent)
        newest = max(int(path.name) for path in directory.parent.iterdir() if _is_number(path))
        raise InputError(
            f"{directory} is there already: export the next version, {directory.parent / str(newest + 1)}."
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


def write_version(directory, root, functions, about, **values):
    """Write a SavedModel as a version directory that appears when it is complete; returns it.

    Args:
        directory: path that `check_version_directory` returned.
        root: `tf.Module` with what the functions, a dict from signature to `tf.function`, read.
        about: dict for JSON, written to `assets.extra/tf_adapters.json`.
        values: as of `write_requests`.

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
            for name in BATCHING_FILES:
                (complete / name).write_text(_BATCHING, encoding="utf-8")
            write_requests(extra / WARM_UP_FILE, functions, **values)
            check_requests(complete)
            os.rename(complete, directory)
    except (OSError, tf.errors.OpError) as error:
        raise InputError(f"{directory} cannot be written: {reason(error)}.") from None
    return directory


def write_requests(path, functions, **values):
    """Write requests of one row and of eight for each signature that takes texts or ids.

    `serving_jit` has none: it compiles for each shape. `values` are lists of strings for inputs that are no texts.
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
                log = _prediction_log()()
                request = log.predict_log.request
                request.model_spec.signature_name = signature
                for name, value in inputs.items():
                    request.inputs.add(key=name, value=tf.make_tensor_proto(value))
                writer.write(log.SerializeToString())


def check_requests(directory):
    """Raise InputError if a version's signatures do not take its requests: a server would not load it."""
    import tensorflow as tf
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import saved_model_pb2

    saved = saved_model_pb2.SavedModel.FromString((directory / "saved_model.pb").read_bytes())
    path = directory / "assets.extra" / WARM_UP_FILE
    for number, record in enumerate(tf.data.TFRecordDataset(str(path)).as_numpy_iterator(), start=1):
        try:
            request = _prediction_log().FromString(record).predict_log.request
        except DecodeError:
            raise InputError(f"{path}: record {number} is no PredictionLog.") from None
        name, given = request.model_spec.signature_name, {entry.key: entry.value for entry in request.inputs}
        signature = saved.meta_graphs[0].signature_def[name]
        wanted = dict(signature.inputs)
        wrong = set(given) - set(wanted) | set(wanted) - set(given) - set(signature.defaults)
        for key in set(given) & set(wanted):
            shapes = (tf.TensorShape(tensor[key].tensor_shape) for tensor in (given, wanted))
            if given[key].dtype != wanted[key].dtype or not next(shapes).is_compatible_with(next(shapes)):
                wrong.add(key)
        if wrong:
            raise InputError(
                f"{path}: the signature {name!r} takes {sorted(wanted)}, and not {sorted(wrong)[0]!r} as it is in "
                f"record {number}."
            )


@functools.cache
def _prediction_log():
    """The class of a `PredictionLog`."""
    from tensorflow.core.framework.tensor_pb2 import DESCRIPTOR

    from tf_adapters._protobuf import message_class

    return message_class("tf_adapters.requests", _MESSAGES, "PredictionLog", dependency=[DESCRIPTOR.name])


def _value(spec, rows, strings):
    is_ids = spec.dtype.is_integer
    shape = [rows, *(_TOKENS if is_ids else 2 for _ in spec.shape[1:])]
    if is_ids:
        return np.full(shape, 0 if spec.name == "token_type_ids" else 1, spec.dtype.as_numpy_dtype)
    if strings:
        return np.resize(np.array(strings, object), shape)
    # Of several rows some are as long as texts may be.
    return np.full(shape, _TEXT if rows == 1 else 64 * _TEXT, object)
