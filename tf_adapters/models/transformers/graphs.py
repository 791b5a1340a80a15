"""Lets graphs that nothing uses any more be freed."""

import contextlib
import weakref

import tensorflow as tf

from tf_adapters._keras_internals import registered_gradients

COLLECTION = "tf_adapters/custom_gradients"


@tf.autograph.experimental.do_not_convert
def hold_gradients_weakly():
    """Let a traced graph with a `tf.custom_gradient` go with the function that it was traced for.

    TensorFlow registers such a gradient under a name for as long as the process lives, and what is registered holds
    tensors of the graph (tensorflow/tensorflow issues 27492 and 97697). Keras' optimizers and layer normalisation are
    among those that have one, so every training would keep its graphs. Here a graph comes to hold its gradients
    itself, and the registry forgets them when it goes; as long as it is there, all works as before.
    A gradient that reads no tensor of its graph is left alone, unless it is of the sums that Keras' optimizers ask of
    tf.distribute: it works in imported copies too, which may outlive the graph. Any other works in the graph itself
    only.
    """
    registry = registered_gradients()
    for name in list(registry):  # other threads may trace meanwhile
        entry = registry.get(name) if name.startswith("CustomGradient-") else None
        gradient = entry and entry.get("type")
        parts = _closed_over(_closed_over(gradient).get("tape_grad_fn"))
        if not _belongs_to_graph(parts.get("grad_fn"), parts.get("result")):
            continue  # held weakly already, of another form, or working in copies of its graph
        for graph in _graphs_of(gradient):
            graph.add_to_collection(COLLECTION, gradient)
        entry["type"] = _weak(gradient)
        weakref.finalize(gradient, registry.pop, name, None).atexit = False


def _belongs_to_graph(gradient, results):
    """Whether a gradient is of no use without the graph of these results."""
    graphs = _graphs_of(gradient)
    own = [graph for result in tf.nest.flatten(results, expand_composites=True) for graph in _graphs_around(result)[:1]]
    return (
        any(graph in graphs for graph in own)
        or getattr(gradient, "__module__", None) == tf.distribute.ReplicaContext.__module__
    )


def _weak(function):
    reference = weakref.ref(function)
    return lambda *arguments: reference()(*arguments)


def _graphs_of(value):
    """The graphs of the tensors that a function closes over, and those around them, which may be the last that are
    held."""
    values, found, seen = [value], {}, set()
    while values:
        value = values.pop()
        if id(value) in seen:
            continue  # functions may close over each other
        seen.add(id(value))
        if tf.is_symbolic_tensor(value):
            found |= {id(graph): graph for graph in _graphs_around(value)}
        elif isinstance(value, (list, tuple)):
            values.extend(value)
        else:
            values.extend(_closed_over(value).values())
    return list(found.values())


def _graphs_around(tensor):
    """The graph of a symbolic tensor and those around it, from the inside out."""
    graphs, graph = [], getattr(tensor, "graph", None) if tf.is_symbolic_tensor(tensor) else None
    while hasattr(graph, "outer_graph"):
        graphs.append(graph)
        graph = graph.outer_graph
    return graphs


def _closed_over(function):
    """What a function closes over by its names."""
    found = {}
    for name, cell in zip(
        getattr(getattr(function, "__code__", None), "co_freevars", ()), getattr(function, "__closure__", None) or ()
    ):
        with contextlib.suppress(ValueError):  # of a name that has no value yet
            found[name] = cell.cell_contents
    return found
