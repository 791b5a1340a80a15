"""One training step, and what settings change in it."""

import contextlib
import functools

import tensorflow as tf

from tf_adapters._keras import keras
from tf_adapters.models.transformers.outputs import outputs_of


class Change:
    """What a setting changes in a training step. A method that a subclass leaves as it is changes nothing.

    Attributes:
        dropouts: list of SeededDropouts of its own, whose state a run keeps.
    """

    dropouts = ()

    def computing(self, training):
        """A context in which the model is called in training, and traced."""
        return contextlib.nullcontext()

    def gradients(self, step, compute, inputs, targets, share):
        """The gradients of a batch, a list in the order of `step.trainable_variables`.

        Args:
            step: `TrainingStep`.
            compute: function of `(inputs, targets, share)` that returns them without this change.
            inputs, targets: of the batch.
            share: float32 scalar, the part of what a greater batch's loss is a mean over; None for all of it.
        """
        return compute(inputs, targets, share)


class TrainingStep(keras.Model):
    """What Keras trains: a model whose step is the usual one with some changes.

    Args:
        model: a transformers TensorFlow model, or one around it, whose outputs `outputs_of` reads.
        changes: `Change`s; the gradients of a later one are made of those of the ones before it.
        votes: metric whose result a strategy's replicas report beside the losses, or None.

    Call arguments: those of `model`.

    Returns: the logits, or for a span head the dict of `start_logits` and `end_logits`. In inference nothing is
    changed.
    """

    def __init__(self, model, changes=(), *, votes=None):
        super().__init__(name="training_step", dtype=model.dtype_policy)
        self.inner, self.changes, self.votes = model, tuple(changes), votes
        if votes is not None:
            # Results are sums over the replicas already.
            self.distribute_reduction_method = "first"

    @property
    def trainable_weights(self):
        return self.inner.trainable_weights

    def call(self, inputs, training=None):
        with contextlib.ExitStack() as contexts:
            if training or not isinstance(training, (bool, int, type(None))):
                for change in self.changes:
                    contexts.enter_context(change.computing(training))
            return outputs_of(self.inner(inputs, training=training))

    def train_step(self, data):
        inputs, targets, *share = data
        compute = self._gradients
        for change in self.changes:
            compute = functools.partial(change.gradients, self, compute)
        gradients = compute(inputs, targets, share[0] if share else None)
        if self._scales:
            gradients = self.optimizer.get_unscaled_gradients(gradients)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        # Keras' own mean of the loss does not know the replicas' shares.
        reported = self.metrics if self.votes is None else [*self.compiled_metrics.metrics, self.votes]
        return {metric.name: metric.result() for metric in reported}

    @property
    def _scales(self):
        return isinstance(self.optimizer, keras.mixed_precision.LossScaleOptimizer)

    def _gradients(self, inputs, targets, share):
        """As of `Change.gradients`; scaled, if the optimiser scales the loss. None of a variable that the loss does not
        depend on."""
        with tf.GradientTape() as tape:
            outputs = self(inputs, training=True)
            loss = self.compiled_loss(targets, outputs, regularization_losses=self.losses)
            if share is not None:
                # Keras divides by the number of replicas, as if their shares were equal.
                loss = loss * share * tf.distribute.get_strategy().num_replicas_in_sync
            if self._scales:
                loss = self.optimizer.get_scaled_loss(loss)
        if share is None:
            self._count(targets, outputs)
        else:
            tf.cond(share > 0, lambda: self._count(targets, outputs), lambda: True)
        return tape.gradient(loss, self.trainable_variables)

    def _count(self, targets, outputs):
        self.compiled_metrics.update_state(targets, outputs)
        return True
