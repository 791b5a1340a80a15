"""Mixout. Lee et al. 2020, Mixout: Effective Regularization to Finetune Large-scale Pretrained Language Models."""

import tensorflow as tf

from tf_adapters._keras import keras
from tf_adapters._keras_internals import uncast
from tf_adapters.errors import InputError
from tf_adapters.layers.dropout import SeededDropout
from tf_adapters.layers.method import MethodLayer
from tf_adapters.models.state import state_of
from tf_adapters.models.transformers.site import replaced
from tf_adapters.ranges import checked
from tf_adapters.training.step import Change


class Mixout(Change):
    """Each matrix is partly, at every training step anew, the one that it began with.

    With `W0` the matrix at the beginning (pretrained, or an adapter's initial one) and `M` a mask whose entries are 0
    with the probability `p` and otherwise 1: `W0 + M (W - W0) / (1 - p)`, whose mean is `W`. It is for the kernels of
    the encoder's dense layers and of adapters that train; the head, which was not pretrained, embeddings and vectors
    stay as they are. In inference nothing is mixed.

    Args:
        model: a transformers TensorFlow model.
        rate: float in (0, 1), `p`.
        seed: int, decides the masks.

    Attributes:
        dropouts: list of SeededDropouts, whose state is that of the masks.

    Raises:
        InputError: a rate out of range, or nothing to mix.

    Reference: Lee et al. 2020, section 3 and algorithm 1; He et al. 2021, table 7 (0.9 in place of every dropout).
    """

    def __init__(self, model, rate, *, seed):
        if not checked("mixout", rate):
            raise InputError("{mixout} must be above 0, such as 0.9.", mixout=rate)
        head = {id(variable) for variable in state_of(model).head_variables(model)}
        trains = {id(variable) for variable in model.trainable_variables if variable.shape.rank == 2} - head
        places = {}
        for layer in model.submodules:
            if isinstance(layer, (keras.layers.Dense, MethodLayer)):
                for attribute, value in vars(layer).items():
                    if id(value) in trains:
                        places.setdefault(id(value), []).append((layer, attribute, value))
        if not places:
            raise InputError(
                "{mixout}: no matrix of the encoder or of adapters trains, so there is nothing to mix.", mixout=rate
            )
        self.dropouts, self._mixed = [], []
        for number, owners in enumerate(places.values()):
            # float32 under mixed precision too, where rounding would hide what a weight moved.
            dropout = SeededDropout(rate, seed=(seed * 1_000_033 + number) % 2**31, dtype="float32")
            self.dropouts.append(dropout)
            self._mixed.append((owners, tf.Variable(owners[0][2], trainable=False, dtype=tf.float32), dropout))

    def computing(self, training):
        changes = []
        for owners, initial, dropout in self._mixed:
            current = tf.cast(uncast(owners[0][2]), tf.float32)
            mixed = initial + dropout(current - initial, training=training)
            changes += [(layer, attribute, tf.cast(mixed, layer.compute_dtype)) for layer, attribute, _ in owners]
        return replaced(changes)
