"""A training step in parts, for batches that do not fit into memory."""

import tensorflow as tf

from tf_adapters._keras import keras
from tf_adapters.training.mixout import outputs_of
from tf_adapters.training.step import loss_of_part


class GradientAccumulation(keras.Model):
    """A model whose training step computes a batch in parts, one after the other, and then takes one step of the optimiser.

    The gradient is that of the whole batch, for each part counts by its share of what the loss is a mean over; steps, schedule and
    what a run saves are as without. Dropout draws a mask for each part.

    Args:
        model: what Keras would train.
        parts: int >= 2, in how many parts a batch is computed; of one with fewer rows each row is a part.
        weigh: function of targets `(rows, ...)` that returns what the loss is a mean over, a float32 scalar: rows, or words.

    Call arguments, returns: those of `Mixout`.
    """

    def __init__(self, model, parts, weigh):
        super().__init__(name="gradient_accumulation", dtype=model.dtype_policy)
        self.inner, self.parts, self.weigh = model, parts, weigh

    def call(self, inputs, training=None):
        return outputs_of(self.inner(inputs, training=training))

    def train_step(self, data):
        inputs, targets = data
        rows = tf.shape(tf.nest.flatten(inputs)[0])[0]
        size = -(-rows // self.parts)
        total, variables = self.weigh(targets), self.trainable_variables
        read = []  # which of them the loss depends on
        scales = isinstance(self.optimizer, keras.mixed_precision.LossScaleOptimizer)

        def part(first, *sums):
            own_inputs, own_targets = tf.nest.map_structure(lambda tensor: tensor[first : first + size], (inputs, targets))
            with tf.GradientTape() as tape:
                outputs = self(own_inputs, training=True)
                share = self.weigh(own_targets) / tf.maximum(total, 1.0)
                loss = loss_of_part(self, own_targets, outputs, share)
                if scales:
                    loss = self.optimizer.get_scaled_loss(loss)
            gradients = tape.gradient(loss, variables)
            read[:] = [gradient is not None for gradient in gradients]
            self.compiled_metrics.update_state(own_targets, outputs)
            return first + size, *(
                total if gradient is None else total + tf.convert_to_tensor(gradient) for total, gradient in zip(sums, gradients)
            )

        zeros = [tf.zeros(variable.shape, variable.dtype) for variable in variables]
        _, *gradients = tf.while_loop(
            lambda first, *_: first < rows, part, (0, *zeros), parallel_iterations=1,
            shape_invariants=(tf.TensorShape([]), *(variable.shape for variable in variables)),
        )  # fmt: skip
        if scales:
            gradients = self.optimizer.get_unscaled_gradients(gradients)
        # None, as in Keras' own step, for the optimiser to leave the others alone.
        self.optimizer.apply_gradients((gradient if is_read else None, variable) for gradient, is_read, variable in zip(gradients, read, variables))
        return {metric.name: metric.result() for metric in self.metrics}
