"""Operations of Keras 3, on TensorFlow, JAX or PyTorch."""

import contextlib
import functools
import sys

import keras
import numpy as np
from keras import ops

from tf_adapters import _keras3_internals as internals

float32 = "float32"
cast, einsum, stop_gradient, stack = ops.cast, ops.einsum, ops.stop_gradient, ops.stack
value, choose, maximum = ops.convert_to_tensor, ops.where, ops.maximum
reshape, shape, argmax = ops.reshape, ops.shape, ops.argmax


@functools.cache
def layer(mixin):
    about = {"ops": sys.modules[__name__], "__module__": mixin.__module__, "__doc__": mixin.__doc__}
    return registered(type(mixin.layer_name or mixin.__name__, (mixin, keras.layers.Layer), about))


# A class that Keras' files name.
registered = keras.saving.register_keras_serializable("tf_adapters")


def _whole(gradient):
    # An embedding's on TensorFlow may have a row in several places, each of which Keras 3 would square by itself.
    if not hasattr(gradient, "dense_shape"):
        return gradient
    return ops.segment_sum(gradient.values, gradient.indices, num_segments=gradient.dense_shape[0])


class _OfWholeGradients:
    def apply(self, grads, trainable_variables=None):
        super().apply([_whole(gradient) for gradient in grads], trainable_variables)


Adam, AdamW = (
    registered(type(optimizer.__name__, (_OfWholeGradients, optimizer), {"__doc__": optimizer.__doc__}))
    for optimizer in (keras.optimizers.Adam, keras.optimizers.AdamW)
)


def weight_name(part):
    return part.replace(".", "_")


def scope(name):
    return contextlib.nullcontext()


def clear_session():
    """Free what Keras keeps of earlier models; the distribution over devices stays, which Keras would forget."""
    spread = keras.distribution.distribution()
    keras.backend.clear_session()
    keras.distribution.set_distribution(spread)


_by_erf = []


@contextlib.contextmanager
def gelu_by_erf():
    """While it lasts, graphs that are traced have GELU's erf in place of erfc, which ONNX lacks."""
    _by_erf.append(True)
    try:
        yield
    finally:
        _by_erf.pop()


@registered  # ELECTRA's head has it in Keras' files
def _gelu(inputs):
    if _by_erf:
        return 0.5 * inputs * (1.0 + ops.erf(inputs * 0.5**0.5))
    return keras.activations.gelu(inputs, approximate=False)


def activation(name):
    return {
        "gelu": _gelu,
        "gelu_tanh": functools.partial(keras.activations.gelu, approximate=True),
        # Keras 2's, with which directories were trained.
        "hard_sigmoid": lambda inputs: ops.clip(0.2 * inputs + 0.5, 0.0, 1.0),
    }.get(name) or getattr(keras.activations, name)


def dropout(rate, seed):
    layer = keras.layers.Dropout(rate, seed=seed)
    layer.autocast = False  # what it is given has the type in which the adapter computes
    return layer


def uncast(weight):
    value = internals.uncast(weight)
    # TensorFlow's is its variable, which `convert_to_tensor` leaves as it is.
    return value.read_value() if hasattr(value, "read_value") else ops.convert_to_tensor(value)


def pick(place, choices):
    if keras.backend.backend() == "tensorflow":
        from tf_adapters.layers.bank import pick as of_tensorflow

        return of_tensorflow(place, choices)
    zeros = [ops.zeros_like(value) for value in choices[0]]
    return ops.switch(place, [lambda chosen=chosen: chosen for chosen in (zeros, *choices)])


def matmul(a, b, transpose_b=False):
    return ops.matmul(a, ops.transpose(b) if transpose_b else b)


def bias_add(inputs, bias):
    return inputs + bias


def softmax(scores):
    return ops.softmax(scores, axis=-1)


def flat(inputs):
    # The compiler of each backend makes one product of it.
    return inputs


def like(rows, inputs):
    return rows


def column_norms(matrix):
    return ops.sqrt(ops.sum(ops.square(matrix), axis=0))


def layer_norm(inputs, gamma, beta, epsilon):
    wide = ops.cast(inputs, "float32")
    mean, variance = ops.moments(wide, axes=-1, keepdims=True)
    normalised = (wide - mean) * ops.rsqrt(variance + epsilon)
    outputs = normalised * ops.cast(gamma, "float32") + ops.cast(beta, "float32")
    return ops.cast(outputs, inputs.dtype)


def log_softmax(logits):
    return ops.log_softmax(logits, axis=-1)


def mean(values):
    return ops.mean(values, -1)


def take(values, index):
    return ops.take(values, index, axis=0)


def of_label(values, labels):
    return ops.take_along_axis(values, labels[:, None], axis=-1)[:, 0]


def flat_labels(labels):
    return ops.reshape(ops.cast(labels, "int32"), (-1,))


def crossentropy(labels, logits):
    return -ops.take_along_axis(log_softmax(logits), labels[..., None], axis=-1)[..., 0]


def sums(values):
    return ops.sum(values, -1)


def before(ends, rows):
    return ops.arange(ops.shape(rows)[1], dtype="int32") < ends[:, None]


def largest(values, count):
    # TensorFlow alone has results whose shape a tensor decides.
    return ops.top_k(values, count if keras.backend.backend() == "tensorflow" else int(count))[1]


def binary_crossentropy(logits, targets):
    return ops.binary_crossentropy(targets, logits, from_logits=True)


def squares(difference):
    return ops.sum(ops.square(difference))


def constant(array, dtype):
    return ops.convert_to_tensor(np.asarray(array), dtype)
