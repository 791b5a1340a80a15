"""Operations on TensorFlow, for `tf_keras`."""

import functools
import sys

import numpy as np
import tensorflow as tf

from tf_adapters._keras import keras
from tf_adapters._keras_internals import one_pass
from tf_adapters._keras_internals import uncast as uncast
from tf_adapters.layers.bank import pick as pick
from tf_adapters.layers.dropout import SeededDropout
from tf_adapters.layers.fused import layer_norm as _layer_norm

float32 = tf.float32
matmul, cast, einsum, stop_gradient = tf.matmul, tf.cast, tf.einsum, tf.stop_gradient
bias_add, softmax = tf.nn.bias_add, tf.nn.softmax
value, stack, scope = tf.convert_to_tensor, tf.stack, tf.name_scope
clear_session = keras.backend.clear_session
take, choose, maximum = tf.gather, tf.where, tf.maximum
reshape, shape, argmax = tf.reshape, tf.shape, tf.argmax
Adam, AdamW = one_pass(keras.optimizers.Adam), one_pass(keras.optimizers.AdamW)

# Keras spells these otherwise, or leaves the choice to a default argument.
_NAMED = {
    "gelu": functools.partial(keras.activations.gelu, approximate=False),
    "gelu_tanh": functools.partial(keras.activations.gelu, approximate=True),
    "silu": keras.activations.swish,
}


@functools.cache
def layer(mixin):
    about = {"ops": sys.modules[__name__], "__module__": mixin.__module__, "__doc__": mixin.__doc__}
    return type(mixin.layer_name or mixin.__name__, (mixin, keras.layers.Layer), about)


def registered(made):
    return made


def weight_name(part):
    return part.replace(".", "/")


def activation(name):
    return _NAMED.get(name) or getattr(keras.activations, name)


def dropout(rate, seed):
    # What it is given has the type in which the adapter computes, whatever the policy is now.
    return SeededDropout(rate, seed=seed, autocast=False)


def flat(inputs):
    # Matrices, not a batch of them: one MatMul + BiasAdd each, which TensorFlow fuses.
    return tf.reshape(inputs, (-1, inputs.shape[-1]))


def like(rows, inputs):
    if rows.shape[-1] == inputs.shape[-1]:
        return tf.reshape(rows, tf.shape(inputs))
    return tf.reshape(rows, tf.concat([tf.shape(inputs)[:-1], [rows.shape[-1]]], 0))


def column_norms(matrix):
    return tf.norm(matrix, axis=0)


def layer_norm(inputs, gamma, beta, epsilon):
    gamma, beta = (tf.cast(tf.convert_to_tensor(weight), tf.float32) for weight in (gamma, beta))
    return tf.cast(_layer_norm(tf.cast(inputs, tf.float32), gamma, beta, epsilon), inputs.dtype)


def log_softmax(logits):
    return tf.nn.log_softmax(logits)


def mean(values):
    return tf.reduce_mean(values, -1)


def of_label(values, labels):
    return tf.gather(values, labels, batch_dims=1)


def flat_labels(labels):
    return tf.reshape(tf.cast(labels, tf.int32), [-1])


def crossentropy(labels, logits):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)


def sums(values):
    return tf.reduce_sum(values, -1)


def before(ends, rows):
    return tf.sequence_mask(ends, tf.shape(rows)[1])


def largest(values, count):
    return tf.math.top_k(values, count).indices


def binary_crossentropy(logits, targets):
    return tf.nn.sigmoid_cross_entropy_with_logits(targets, logits)


def squares(difference):
    return tf.reduce_sum(difference**2)


def constant(array, dtype):
    return tf.constant(np.asarray(array), dtype)
