"""Dropout whose whole state is one small variable, so that training can resume bit-equal."""

import numpy as np
import tensorflow as tf

from tf_adapters._keras import keras
from tf_adapters.layers.fused import biased_dropout, rows


class SeededDropout(keras.layers.Dropout):
    """`keras.layers.Dropout` that draws from a `tf.random.Generator` of its own.

    Keras 2's default dropout keeps its state inside a TensorFlow kernel, where no
    checkpoint can reach it. Here the masks follow from `generator.state` alone.

    Args:
        rate: float in [0, 1).
        seed: int or None for a seed drawn from NumPy's global generator, which
            `keras.utils.set_random_seed` sets.
        fused: bool, whether what is dropped of tokens is found by a program of XLA, which is faster.
        name: str or None, passed on to Keras.
    """

    def __init__(self, rate, *, noise_shape=None, seed=None, fused=False, **kwargs):
        super().__init__(rate, noise_shape=noise_shape, seed=seed, **kwargs)
        self.fused = fused
        if seed is None:
            seed = np.random.randint(2**31)
        # Eager even if the layer is made while a graph is traced: the state must outlive the graph.
        with tf.init_scope():
            self.generator = tf.random.Generator.from_seed(int(seed), alg="philox")

    def draw_seed(self):
        """Two words for the next mask, int32 `(2,)`."""
        return tf.bitcast(self.generator.make_seeds()[0, 0], tf.int32)

    def call(self, inputs, training=None):
        if training is None:
            training = keras.backend.learning_phase()
        if self.rate == 0 or (isinstance(training, (bool, int)) and not training):
            return tf.identity(inputs)

        def drop():
            shape = self.noise_shape
            if self.fused and shape is None and inputs.shape.rank == 3:
                bias = tf.zeros(inputs.shape[-1:], inputs.dtype)
                dropped = biased_dropout(self.rate)(rows(inputs), bias, self.draw_seed())
                return tf.reshape(dropped, tf.shape(inputs))
            if shape is not None:
                shape = tf.stack([tf.shape(inputs)[axis] if size is None else size for axis, size in enumerate(shape)])
            seed = self.generator.make_seeds()[:, 0]
            return tf.nn.experimental.stateless_dropout(
                inputs, self.rate, seed=seed, noise_shape=shape, rng_alg="philox"
            )

        if isinstance(training, (bool, int)):
            return drop()
        return tf.cond(tf.cast(training, tf.bool), drop, lambda: tf.identity(inputs))
