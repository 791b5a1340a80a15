"""A training step in parts, for batches that do not fit into memory."""

import tensorflow as tf

from tf_adapters.training.step import Change


class GradientAccumulation(Change):
    """A batch is computed in parts, one after the other, before the one step of the optimiser.

    The gradient is that of the whole batch, for each part counts by its share of what the loss is a mean over; steps,
    schedule and what a run saves are as without. Dropout draws a mask for each part.

    Args:
        parts: int >= 2, in how many parts a batch is computed; of one with fewer rows each row is a part.
        weigh: function of targets `(rows, ...)` that returns what the loss is a mean over, a float32 scalar: rows, or
            words.
    """

    def __init__(self, parts, weigh):
        self.parts, self.weigh = parts, weigh

    def gradients(self, step, compute, inputs, targets, share):
        rows = tf.shape(tf.nest.flatten(inputs)[0])[0]
        size = -(-rows // self.parts)
        total, variables = self.weigh(targets), step.trainable_variables
        read = []  # which of them the loss depends on

        def part(first, *sums):
            own_inputs, own_targets = tf.nest.map_structure(
                lambda tensor: tensor[first : first + size], (inputs, targets)
            )
            own_share = self.weigh(own_targets) / tf.maximum(total, 1.0)
            gradients = compute(own_inputs, own_targets, own_share if share is None else own_share * share)
            read[:] = [gradient is not None for gradient in gradients]
            return first + size, *(
                total if gradient is None else total + tf.convert_to_tensor(gradient)
                for total, gradient in zip(sums, gradients)
            )

        zeros = [tf.zeros(variable.shape, variable.dtype) for variable in variables]
        _, *gradients = tf.while_loop(
            lambda first, *_: first < rows, part, (0, *zeros), parallel_iterations=1,
            shape_invariants=(tf.TensorShape([]), *(variable.shape for variable in variables)),
        )  # fmt: skip
        # None, as in Keras' own step, for the optimiser to leave the others alone.
        return [gradient if is_read else None for gradient, is_read in zip(gradients, read)]
