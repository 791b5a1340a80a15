"""Mixout. Lee et al. 2020, Mixout: Effective Regularization to Finetune Large-scale Pretrained Language Models."""

import tensorflow as tf

from tf_adapters._keras import keras
from tf_adapters._keras_internals import uncast
from tf_adapters.errors import InputError
from tf_adapters.layers.dropout import SeededDropout
from tf_adapters.layers.method import MethodLayer
from tf_adapters.models.site import replaced
from tf_adapters.models.state import state_of
from tf_adapters.ranges import checked


class Mixout(keras.Model):
    """A model each of whose matrices is partly, at every training step anew, the one that it began with.

    With `W0` the matrix at the beginning (pretrained, or an adapter's initial one) and `M` a mask whose entries are 0 with the
    probability `p` and otherwise 1: `W0 + M (W - W0) / (1 - p)`, whose mean is `W`. It is for the kernels of the encoder's dense
    layers and of adapters that train; the head, which was not pretrained, embeddings and vectors stay as they are. In inference
    nothing is mixed.

    Args:
        model: what Keras would train, a transformers TensorFlow model or `UpperBlocks`.
        whole: the transformers TensorFlow model.
        rate: float in (0, 1), `p`.
        seed: int, decides the masks.

    Attributes:
        dropouts: list of SeededDropouts, whose state is that of the masks.

    Call arguments: those of `model`.

    Returns: the logits, or for a span head the dict of `start_logits` and `end_logits`.

    Raises:
        InputError: a rate out of range, or nothing to mix.

    Reference: Lee et al. 2020, section 3 and algorithm 1; He et al. 2021, table 7 (0.9 in place of every dropout).
    """

    def __init__(self, model, whole, rate, *, seed):
        super().__init__(name="mixout", dtype=whole.dtype_policy)
        if not checked("mixout", rate):
            raise InputError(f"mixout={rate!r} must be above 0, such as 0.9.")
        self.inner, self.whole = model, whole
        head = {id(variable) for variable in state_of(whole).head_variables(whole)}
        trains = {id(variable) for variable in whole.trainable_variables if variable.shape.rank == 2} - head
        places = {}
        for layer in whole.submodules:
            if isinstance(layer, (keras.layers.Dense, MethodLayer)):
                for attribute, value in vars(layer).items():
                    if id(value) in trains:
                        places.setdefault(id(value), []).append((layer, attribute, value))
        if not places:
            raise InputError(f"mixout={rate!r}: no matrix of the encoder or of adapters trains, so there is nothing to mix.")
        self.dropouts, self._mixed = [], []
        for number, owners in enumerate(places.values()):
            dropout = SeededDropout(rate, seed=(seed * 1_000_033 + number) % 2**31)
            self.dropouts.append(dropout)
            self._mixed.append((owners, tf.Variable(owners[0][2], trainable=False, dtype=tf.float32), dropout))

    def call(self, inputs, training=None):
        if isinstance(training, (bool, int, type(None))) and not training:
            return outputs_of(self.inner(inputs, training=False))
        changes = []
        for owners, initial, dropout in self._mixed:
            current = tf.cast(uncast(owners[0][2]), tf.float32)
            mixed = initial + dropout(current - initial, training=training)
            changes += [(layer, attribute, tf.cast(mixed, layer.compute_dtype)) for layer, attribute, _ in owners]
        with replaced(changes):
            return outputs_of(self.inner(inputs, training=training))


def outputs_of(outputs):
    """What Keras' losses take of a model's outputs: the logits, or a dict of `start_logits` and `end_logits`."""
    if tf.is_tensor(outputs):
        return outputs
    if "logits" in outputs:
        return outputs["logits"]
    return {name: outputs[name] for name in ("start_logits", "end_logits")}
