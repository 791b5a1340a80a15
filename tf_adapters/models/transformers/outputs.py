"""What is read of the outputs of a transformers model."""

import tensorflow as tf

from tf_adapters.models.state import state_of


def outputs_of(outputs):
    """What Keras' losses take: the logits, or for a span head the dict of `start_logits` and `end_logits`, each `(rows,
    length)`."""
    if tf.is_tensor(outputs):
        return outputs
    if "logits" in outputs:
        return outputs["logits"]
    return {name: outputs[name] for name in ("start_logits", "end_logits")}


def logits_of(outputs):
    """The logits in one tensor; of spans, start and end in the last axis."""
    outputs = outputs_of(outputs)
    return outputs if tf.is_tensor(outputs) else tf.stack([outputs["start_logits"], outputs["end_logits"]], axis=-1)


def logits_of_rows(model, inputs):
    """The logits of a batch in inference; a head of multiple choice takes each row for the only choice of a text.

    Args:
        model: a transformers TensorFlow model with a head.
        inputs: dict of int32 `(rows, length)` tensors: `input_ids`, `attention_mask` and `token_type_ids`.

    Returns: as of `logits_of`; `(rows, 1)` of multiple choice.
    """
    family = state_of(model).family
    inputs = family.inputs(inputs)
    if family.head_of(model) == "multiple-choice":
        inputs = {name: tensor[:, tf.newaxis] for name, tensor in inputs.items()}
    return logits_of(model(inputs, training=False))
