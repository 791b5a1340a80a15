"""Lets graphs that nothing uses any more be freed."""

import contextlib
import weakref

import tensorflow as tf
from tensorflow.python.framework import ops  # there is no public way to the gradients that it registers

COLLECTION = "tf_adapters/custom_gradients"


@tf.autograph.experimental.do_not_convert
def hold_gradients_weakly():
    """Let a traced graph with a `tf.custom_gradient` go with the function that it was traced for.

    TensorFlow registers such a gradient under a name for as long as the process lives, and what is registered holds tensors
    of the graph (tensorflow/tensorflow issues 27492 and 97697). Keras' optimizers and layer normalisation are among those
    that have one, so every training would keep its graphs (benchmarks/repeated.py). Here a graph comes to hold its gradients itself,
    and the registry forgets them when it goes; as long as it is there, all works as before.
    """
    registry = getattr(getattr(ops, "gradient_registry", None), "_registry", {})
    for name in list(registry):  # other threads may trace meanwhile
        entry = registry.get(name) if name.startswith("CustomGradient-") else None
        gradient = entry and entry.get("type")
        graphs = _graphs_of(gradient)
        if not graphs:
            continue  # held weakly already, or of another form
        for graph in graphs:
            graph.add_to_collection(COLLECTION, gradient)
        entry["type"] = _weak(gradient)
        weakref.finalize(gradient, registry.pop, name, None).atexit = False


def _weak(function):
    reference = weakref.ref(function)
    return lambda *arguments: reference()(*arguments)


def _graphs_of(value):
    """The graphs of the tensors that a function closes over, and those around them, which may be the last that are held."""
    values, found, seen = [value], {}, set()
    while values:
        value = values.pop()
        if id(value) in seen:
            continue  # functions may close over each other
        seen.add(id(value))
        if tf.is_symbolic_tensor(value):
            graph = getattr(value, "graph", None)
            while hasattr(graph, "outer_graph") and id(graph) not in found:
                found[id(graph)] = graph
                graph = graph.outer_graph
        elif isinstance(value, (list, tuple)):
            values.extend(value)
        else:
            values.extend(_closed_over(value))
    return list(found.values())


def _closed_over(function):
    for cell in getattr(function, "__closure__", None) or ():
        with contextlib.suppress(ValueError):  # of a name that has no value yet
            yield cell.cell_contents
