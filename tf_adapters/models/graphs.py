"""Lets graphs that nothing uses any more be freed."""

import weakref

import tensorflow as tf
from tensorflow.python.framework import ops  # there is no public way to the gradients that it registers

COLLECTION = "tf_adapters/custom_gradients"


@tf.autograph.experimental.do_not_convert
def hold_gradients_weakly():
    """Let a traced graph with a `tf.custom_gradient` go with the function that it was traced for.

    TensorFlow registers such a gradient under a name for as long as the process lives, and what is registered holds tensors
    of the graph (tensorflow/tensorflow issues 27492 and 97697). Keras' optimizers and layer normalisation are among those
    that have one, so every training would keep its graphs: some 190 MiB with MiniLM. Here the graph comes to hold its
    gradients, and the registry forgets them when it goes; as long as it is there, all works as before.
    """
    registry = getattr(getattr(ops, "gradient_registry", None), "_registry", {})
    for name in [name for name in registry if name.startswith("CustomGradient-")]:
        entry = registry.get(name)
        gradient = entry and entry.get("type")
        graphs = _graphs_of(gradient)
        if not graphs:
            continue  # held weakly already, or of another form
        for graph in graphs:
            graph.add_to_collection(COLLECTION, gradient)
        entry["type"] = _weak(gradient)
        weakref.finalize(gradient, registry.pop, name, None)


def _weak(function):
    reference = weakref.ref(function)
    return lambda *arguments: reference()(*arguments)


def _graphs_of(value):
    """The graphs of the tensors that a function closes over, and those around them, which may be the last that are held."""
    values, found = [value], {}
    while values:
        value = values.pop()
        if tf.is_symbolic_tensor(value):
            graph = value.graph
            while isinstance(graph, ops.Graph) and id(graph) not in found and hasattr(graph, "outer_graph"):
                found[id(graph)] = graph
                graph = graph.outer_graph
        elif isinstance(value, (list, tuple)):
            values.extend(value)
        elif getattr(value, "__closure__", None):
            values.extend(cell.cell_contents for cell in value.__closure__ if _is_set(cell))
    return list(found.values())


def _is_set(cell):
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
