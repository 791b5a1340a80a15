"""An encoder in which each example of a batch has adapters, updates of dense layers and LayerNorms of its own."""

import dataclasses
from typing import Callable

import tensorflow as tf

from tf_adapters.config import DENSE_PLACES
from tf_adapters.layers.bank import layer_norm
from tf_adapters.models.transaction import replaced

# Behind the two sub-layers of a block, and around its dense layers.
PLACES = ("attention", "ffn", *DENSE_PLACES)


@dataclasses.dataclass
class Routes:
    """What each example of a batch takes, as functions that a graph is traced with.

    A site is `(block, one of PLACES)`. `inputs` of the first two is what an adapter reads, by its insertion: a dict of
    functions that return it.

    Attributes:
        change: function of a site, of what comes out of it, `(batch, length, units)`, and of its inputs, that returns
            the former's like.
        before: function of a dense layer's site and its inputs, `(batch, length, units)`, that returns their like.
        norm: function of a LayerNorm's number and units that returns its gamma and beta, each `(batch, 1, units)`.
        places: those of `PLACES` where `change` or `before` does something.
    """

    change: Callable
    before: Callable
    norm: Callable
    places: frozenset


def make_routable(family, model):
    """Let the blocks of a plain model compute through sites, as a model with adapters does; they compute the same."""
    family.set_blocks(model, [family.block_class.adopt(block) for block in family.blocks(model)])


def sites_of(depth):
    """The sites of an encoder in the order of their numbers."""
    return [(block, place) for block in range(depth) for place in PLACES]


def norm_layers(family, model):
    """The encoder's LayerNorms in the order of their numbers: those of the blocks, then the embeddings'."""
    return family.layer_norms(model, "all")


def encode(family, model, inputs, routes):
    """Run the encoder with `routes` in place of the model's own adapters and LayerNorms.

    The model stays what it is: its layers are exchanged for the time of the trace alone.

    Args:
        family: `Family` of the model.
        model: a plain model without a head, after `make_routable`.
        inputs: dict of `input_ids`, `attention_mask` and `token_type_ids`, int32 `(batch, length)`.
        routes: `Routes`.

    Returns: hidden states, `(batch, length, hidden)`.
    """
    main, changes = family.main_layer(model), []
    taken = {name: inputs[name] for name in family.takes(model)}
    norms = {id(layer): _Norm(layer, number, routes) for number, layer in enumerate(norm_layers(family, model))}
    for number, block in enumerate(family.blocks(model)):
        for place, site in block.sites.items():
            changes.append((site, "finish", _Finish(norms[id(site.LayerNorm)], (number, place), routes)))
        for place in routes.places.intersection(DENSE_PLACES):
            owner, attribute = family.dense(block, place)
            changes.append((owner, attribute, _Dense(vars(owner)[attribute], (number, place), routes)))
    changes.append((main.embeddings, "LayerNorm", norms[id(main.embeddings.LayerNorm)]))
    if family.pooler(model) is not None:
        changes.append((main, "pooler", lambda *_, **__: None))  # each row's own follows

    def run():
        return model(taken, training=False).last_hidden_state

    with replaced(changes):
        return tf.function(run, autograph=True)() if family.autograph else run()


class _Finish:
    """Stands for `AdapterSite.finish`."""

    def __init__(self, norm, site, routes):
        self.norm, self.site, self.routes = norm, site, routes

    def __call__(self, hidden_states, input_tensor, training=False):
        reads = {
            "sequential": lambda: hidden_states,
            "parallel": lambda: input_tensor,
            "after-norm": lambda: self.norm(hidden_states + input_tensor),
        }
        return self.norm(self.routes.change(self.site, hidden_states, reads) + input_tensor)


class _Dense:
    """Stands for a dense layer."""

    def __init__(self, original, site, routes):
        self.original, self.site, self.routes = original, site, routes

    def __call__(self, inputs):
        outputs = self.original(self.routes.before(self.site, inputs))
        return self.routes.change(self.site, outputs, {None: lambda: inputs})


class _Norm:
    """Stands for a LayerNorm."""

    def __init__(self, original, number, routes):
        self.epsilon, self.units, self.number, self.routes = (
            original.epsilon, original.gamma.shape[0], number, routes,
        )  # fmt: skip

    def __call__(self, inputs):
        return layer_norm(inputs, *self.routes.norm(self.number, self.units), self.epsilon)
