"""The loss of a training step, wherever a part of a batch is computed by itself."""

import tensorflow as tf


def loss_of_part(model, targets, outputs, share):
    """What a part of a batch adds to the loss of the whole batch, the regularisation of weights included.

    Args:
        model: compiled Keras model, called before on the part's inputs.
        targets, outputs: of the part.
        share: float32 scalar, the part of what the batch's loss is a mean over. Those of a batch add up to 1.

    Returns: float32 scalar; the sum over the parts, and over the replicas of a strategy, is the batch's loss.
    """
    loss = model.compiled_loss(targets, outputs, regularization_losses=model.losses)
    # Keras divides by the number of replicas, as if their shares were equal.
    return loss * share * tf.distribute.get_strategy().num_replicas_in_sync
