"""An encoder of transformers in which each example of a batch has adapters, updates of dense layers and LayerNorms of
its own."""

import tensorflow as tf

from tf_adapters.config import DENSE_PLACES
from tf_adapters.models.routing import RoutedDense, RoutedFinish, routed_norms
from tf_adapters.models.transaction import replaced


def make_routable(family, model):
    """As of `models.routing.routing_of`."""
    family.set_blocks(model, [family.block_class.adopt(block) for block in family.blocks(model)])


def encode(family, model, inputs, routes):
    """As of `models.routing.routing_of`."""
    main, changes, norms = family.main_layer(model), [], routed_norms(family, model, routes)
    taken = {name: inputs[name] for name in family.takes(model)}
    for number, block in enumerate(family.blocks(model)):
        for place, site in block.sites.items():
            changes.append((site, "finish", RoutedFinish(norms[id(site.LayerNorm)], (number, place), routes)))
        for place in routes.places.intersection(DENSE_PLACES):
            owner, attribute = family.dense(block, place)
            changes.append((owner, attribute, RoutedDense(vars(owner)[attribute], (number, place), routes)))
    changes.append((main.embeddings, "LayerNorm", norms[id(main.embeddings.LayerNorm)]))
    if family.pooler(model) is not None:
        changes.append((main, "pooler", lambda *_, **__: None))  # each row's own follows

    def run():
        return model(taken, training=False).last_hidden_state

    with replaced(changes):
        return tf.function(run, autograph=True)() if family.autograph else run()
