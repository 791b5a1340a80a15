"""A step's rows in parts that are computed side by side, on a CPU.

Threads that compute one operation together wait for each other after each, and small operations have work for one
alone. Those that compute parts wait once a step.
"""

import functools

import tensorflow as tf

from tf_adapters.kinds.kind import AT_ONCE
from tf_adapters.models.state import state_of
from tf_adapters.text.batching import part_of
from tf_adapters.training.settings import computes_parts
from tf_adapters.training.strategies import Alone


def parts_of_a_step(model, settings, workers):
    """In how many parts at once a run computes a step's rows, an int; `TrainingSettings`, and as of `strategies`."""
    state = state_of(model)
    drops = bool(state.active) and state.adapters[state.active].config.random_drop
    at_once = (
        state.door.backend() == "tensorflow"
        and not tf.config.list_physical_devices("GPU")
        and type(workers) is Alone  # of which those of several devices are a subclass
        and computes_parts(settings, state.trainable, drops)
    )
    return AT_ONCE if at_once else 1


def computed_at_once(compute, inputs, targets, parts, weigh, drawn=lambda number: ()):
    """What a batch comes to that is computed in parts at once. A part is traced once.

    Args:
        compute: function of a part's inputs, targets, share and what is drawn for it. It changes no variable, or
            TensorFlow would compute the parts one after the other. It returns a list of tensors, or None in place of
            one, and the outputs for its rows, in any structure.
        inputs, targets, parts, weigh: as of `part_of`.
        drawn: function of a part's number that returns tensors in any structure.

    Returns: the list, added up over the parts, and the outputs for the batch's rows.
    """
    compute = tf.function(compute, autograph=False, reduce_retracing=True)
    sums, outputs, rows = [], [], tf.shape(tf.nest.flatten(inputs)[0])[0]
    for number in range(parts):
        own, its_outputs = compute(*part_of(inputs, targets, number, parts, weigh), drawn(number))
        sums.append(own)
        # One for which no row was left was given one.
        its_rows = (number + 1) * rows // parts - number * rows // parts
        outputs.append(tf.nest.map_structure(functools.partial(_first, its_rows), its_outputs))
    added = [None if each[0] is None else tf.add_n(each) for each in zip(*sums)]
    return added, tf.nest.map_structure(lambda *each: tf.concat(each, 0), *outputs)


def _first(count, tensor):
    return tensor[:count]
