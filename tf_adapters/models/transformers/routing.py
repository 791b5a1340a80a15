"""An encoder in which each example of a batch has adapters and LayerNorms of its own."""

import dataclasses
from typing import Callable

import tensorflow as tf

from tf_adapters.models.transformers.site import replaced


@dataclasses.dataclass
class Routes:
    """What each example of a batch takes, as functions that a graph is traced with.

    Attributes:
        adapt: function of hidden states `(batch, length, hidden)` and a site's number that returns their like.
        norm: function of a LayerNorm's number that returns its gamma and beta, each `(batch, hidden)`.
        pool: function of the first token's states, `(batch, hidden)`, that returns them pooled.
    """

    adapt: Callable
    norm: Callable
    pool: Callable


def site_places(depth):
    """The sites of an encoder in the order of their numbers: `(block, "attention" | "ffn")`."""
    return [(block, place) for block in range(depth) for place in ("attention", "ffn")]


def norm_layers(family, model):
    """The encoder's LayerNorms in the order of their numbers: those of the blocks, then the embeddings'."""
    return family.layer_norms(model, "all")


def encode(family, model, inputs, routes):
    """Run the encoder with `routes` in place of the model's own adapters, LayerNorms and pooler.

    The model stays what it is: its layers are exchanged for the time of the trace alone.

    Args:
        family: `Family` of the model.
        model: a plain model without a head.
        inputs: dict of `input_ids`, `attention_mask` and `token_type_ids`, int32 `(batch, length)`.
        routes: `Routes`.

    Returns: `(hidden states, pooled)`, `(batch, length, hidden)` and `(batch, hidden)`.
    """
    main, changes = family.main_layer(model), []
    for number, (block, place) in enumerate(site_places(len(family.blocks(model)))):
        owner, attribute = family.output_half(family.blocks(model)[block], place)
        changes.append((owner, attribute, _Half(vars(owner)[attribute], number, routes)))
    embeddings = main.embeddings
    changes.append((embeddings, "LayerNorm", _Norm(embeddings.LayerNorm, len(norm_layers(family, model)) - 1, routes)))
    changes.append((main, "pooler", _Pooler(routes)))
    with replaced(changes):
        outputs = model(inputs, training=False)
    return outputs.last_hidden_state, outputs.pooler_output


class _Half:
    """Stands for the output half of a sub-layer: dense, adapter, LayerNorm(... + input)."""

    def __init__(self, original, number, routes):
        self.dense, self.norm = original.dense, _Norm(original.LayerNorm, number, routes)
        self.number, self.routes = number, routes

    def __call__(self, hidden_states, input_tensor, training=False):
        hidden_states = self.routes.adapt(self.dense(inputs=hidden_states), self.number)
        return self.norm(hidden_states + input_tensor)


class _Norm:
    def __init__(self, original, number, routes):
        self.epsilon, self.number, self.routes = original.epsilon, number, routes

    def __call__(self, inputs):
        gamma, beta = (values[:, tf.newaxis] for values in self.routes.norm(self.number))
        states = tf.cast(inputs, tf.float32)
        mean, variance = tf.nn.moments(states, [-1], keepdims=True)
        return tf.cast(tf.nn.batch_normalization(states, mean, variance, beta, gamma, self.epsilon), inputs.dtype)


class _Pooler:
    def __init__(self, routes):
        self.routes = routes

    def __call__(self, hidden_states):
        return self.routes.pool(hidden_states[:, 0])
