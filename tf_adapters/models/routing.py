"""What each example of a batch takes where an encoder runs with adapters, updates of dense layers and LayerNorms of its
own; a door's `encode` runs one so."""

import dataclasses
from typing import Callable

from tf_adapters.config import DENSE_PLACES
from tf_adapters.layers.bank import layer_norm

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


def sites_of(depth):
    """The sites of an encoder in the order of their numbers."""
    return [(block, place) for block in range(depth) for place in PLACES]


def routed_norms(family, model, routes):
    """What stands for each LayerNorm of an encoder, by the layer's id."""
    # In the order of their numbers: those of the blocks, then the embeddings'.
    return {
        id(layer): RoutedNorm(layer, number, routes) for number, layer in enumerate(family.layer_norms(model, "all"))
    }


class RoutedFinish:
    """Stands for what ends a sub-layer: the adapter, the sum with the sub-layer's input, the LayerNorm."""

    def __init__(self, norm, site, routes):
        self.norm, self.site, self.routes = norm, site, routes

    def __call__(self, hidden_states, input_tensor, *arguments, **settings):
        reads = {
            "sequential": lambda: hidden_states,
            "parallel": lambda: input_tensor,
            "after-norm": lambda: self.norm(hidden_states + input_tensor),
        }
        return self.norm(self.routes.change(self.site, hidden_states, reads) + input_tensor)


class RoutedDense:
    """Stands for a dense layer."""

    def __init__(self, original, site, routes):
        self.original, self.site, self.routes = original, site, routes

    def __call__(self, inputs):
        outputs = self.original(self.routes.before(self.site, inputs))
        return self.routes.change(self.site, outputs, {None: lambda: inputs})


class RoutedNorm:
    """Stands for a LayerNorm."""

    def __init__(self, original, number, routes):
        self.epsilon, self.units = original.epsilon, int(original.gamma.shape[0])
        self.number, self.routes = number, routes

    def __call__(self, inputs):
        return layer_norm(inputs, *self.routes.norm(self.number, self.units), self.epsilon)
