"""Requests that TensorFlow Serving answers for itself before it says that a version is available.

They are records of `PredictionLog` (tensorflow_serving/apis/prediction_log.proto) in
`assets.extra/tf_serving_warmup_requests`. Without them the first request of each signature waits until TensorFlow has
optimised its graph.
"""

import numpy as np
import tensorflow as tf

FILE = "tf_serving_warmup_requests"
_ROWS = (1, 8)
_TOKENS = 16
_TEXT = "A text that nobody asked about. "
# Fields of the messages.
_PREDICT_LOG, _REQUEST, _MODEL_SPEC, _INPUTS, _SIGNATURE, _KEY, _VALUE = 6, 1, 1, 2, 3, 1, 2


def write_requests(path, functions, **values):
    """Write requests of one row and of eight for each signature that takes texts or ids.

    `serving_jit` has none: it compiles for each shape.

    Args:
        path: of the file.
        functions: dict from signature to `tf.function` with an input signature.
        values: for inputs that are no texts, a list of their strings.
    """
    with tf.io.TFRecordWriter(str(path)) as writer:
        for signature, function in functions.items():
            specs = _specs(function)
            if signature == "serving_jit" or not {"input_ids", "text", "context"} & set(specs):
                continue
            for rows in _ROWS:
                inputs = {name: _value(spec, rows, values.get(name)) for name, spec in specs.items()}
                writer.write(record(signature, inputs))


def record(signature, inputs):
    """A serialised `PredictionLog` of a request.

    Args:
        signature: str.
        inputs: dict from input to an array.
    """
    request = _field(_MODEL_SPEC, _field(_SIGNATURE, signature.encode()))
    for name, value in inputs.items():
        tensor = tf.make_tensor_proto(value).SerializeToString()
        request += _field(_INPUTS, _field(_KEY, name.encode()) + _field(_VALUE, tensor))
    return _field(_PREDICT_LOG, _field(_REQUEST, request))


def _specs(function):
    arguments, named = function.get_concrete_function().structured_input_signature
    return {spec.name: spec for spec in (*arguments, *named.values())}


def _value(spec, rows, strings):
    shape = [rows, *(_TOKENS if spec.dtype == tf.int32 else 2 for _ in spec.shape[1:])]
    if spec.dtype == tf.int32:
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
