"""What is read of the outputs of a transformers model."""

import tensorflow as tf


def outputs_of(outputs):
    """What Keras' losses take: the logits, or for a span head the dict of `start_logits` and `end_logits`, each `(rows, length)`."""
    if tf.is_tensor(outputs):
        return outputs
    if "logits" in outputs:
        return outputs["logits"]
    return {name: outputs[name] for name in ("start_logits", "end_logits")}


def logits_of(outputs):
    """The logits in one tensor; of spans, start and end in the last axis."""
    outputs = outputs_of(outputs)
    return outputs if tf.is_tensor(outputs) else tf.stack([outputs["start_logits"], outputs["end_logits"]], axis=-1)
