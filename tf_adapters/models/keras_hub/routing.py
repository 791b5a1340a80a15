"""A backbone of KerasHub in which each example of a batch has adapters, updates of dense layers and LayerNorms of its
own; on TensorFlow."""

from tf_adapters._keras3_internals import part, replace_tracked
from tf_adapters.config import DENSE_PLACES
from tf_adapters.models.keras_hub.heads import states_of
from tf_adapters.models.keras_hub.site import DenseSite
from tf_adapters.models.routing import RoutedDense, RoutedFinish, routed_norms
from tf_adapters.models.transaction import replaced


def make_routable(family, model):
    """As of `models.routing.routing_of`; such a backbone takes no adapters of its own any more."""
    for index, block in enumerate(family.blocks(model)):
        block.__class__ = family.block_class
        block.make_sites(index)
        for place in DENSE_PLACES:
            owner, attribute = family.dense(block, place)
            site = DenseSite.adopt(getattr(owner, attribute))
            site.take()
            replace_tracked(owner, **{attribute: site})


def encode(family, model, inputs, routes):
    """As of `models.routing.routing_of`."""
    changes, norms = [], routed_norms(family, model, routes)
    for number, block in enumerate(family.blocks(model)):
        for place in ("attention", "ffn"):
            norm = norms[id(part(block, f"{place}_norm"))]
            changes.append((getattr(block, f"{place}_site"), "call", RoutedFinish(norm, (number, place), routes)))
        for place in routes.places.intersection(DENSE_PLACES):
            site = getattr(*family.dense(block, place))
            changes.append((site, "compute", RoutedDense(site.compute, (number, place), routes)))
    # A backbone's graph holds the layer itself.
    embeddings = family.main_layer(model).embeddings_layer_norm
    changes.append((embeddings, "call", norms[id(embeddings)]))
    if family.pooler(model) is not None:
        changes.append((family.pooler(model), "call", lambda first, training=None: first))  # each row's own follows
    taken = family.inputs(inputs)
    with replaced(changes):
        return states_of(model({name: taken[name] for name in model.input}, training=False))
