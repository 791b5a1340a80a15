"""A step's rows in parts that are computed side by side, on a CPU.

Threads that compute one operation together wait for each other after each, and small operations have work for one
alone. Those that compute parts wait once a step.

While a step is traced, which takes one thread some seconds, another compiles what fast blocks need for the shapes to
come.
"""

import concurrent.futures
import contextlib
import functools
import itertools
import math
import threading

import tensorflow as tf

from tf_adapters.kinds.kind import AT_ONCE
from tf_adapters.models.state import state_of
from tf_adapters.text.batching import part_of
from tf_adapters.training.settings import computes_parts
from tf_adapters.training.strategies import Alone

_LOOKED_AT = 1000  # batches whose shapes are compiled ahead


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


def rehearsal(model, call):
    """The last block of a model, and one of each sort of others, with their gradients, of zeros; for `compiling_ahead`.

    Args:
        model: one with fast blocks.
        call: function of a block, hidden states `(rows, length, hidden)` and a bool mask `(rows, length)` that computes
            the block as a training step does, and changes no variable.

    Returns: function of two int32 scalars, rows and length.
    """
    state = state_of(model)
    size, sorts = state.door.config_of(model).hidden_size, {}
    *others, last = state.family.blocks(model)
    for index, block in enumerate(others):
        adapted = frozenset(place for (number, place), site in state.sites.items() if number == index and site.adapters)
        sorts[adapted] = block
    blocks = [*sorts.values(), last]

    def rehearse(rows, length):
        gradients = []
        for block in blocks:
            states = tf.zeros([rows, length, size], block.compute_dtype)
            with tf.GradientTape() as tape:
                tape.watch(states)
                made = call(block, states, tf.ones([rows, length], tf.bool))
            gradients += tape.gradient(made, [states, *block.trainable_variables])
        return [gradient for gradient in gradients if gradient is not None]

    # Traced here and now, while nobody else calls the blocks.
    return tf.function(rehearse, autograph=False).get_concrete_function(*[tf.TensorSpec([], tf.int32)] * 2)


@contextlib.contextmanager
def compiling_ahead(rehearse, batches, parts):
    """A context. Meanwhile a thread lets `rehearse` compute on the shapes that the parts of batches have, each once.

    Programs are compiled for a shape when they are first computed on it, whoever computes them.

    Args:
        rehearse: as of `rehearsal`.
        batches: iterable of inputs and targets.
        parts: int, into how many each is cut.
    """
    stopped = threading.Event()

    def compile_shapes():
        seen = set()
        for inputs, _ in itertools.islice(batches, _LOOKED_AT):
            rows, *choices, length = tf.nest.flatten(inputs)[0].shape
            for number in range(parts):
                own = max(1, (number + 1) * rows // parts - number * rows // parts) * math.prod(choices)
                if stopped.is_set():
                    return
                if (own, length) not in seen:
                    seen.add((own, length))
                    rehearse(tf.constant(own), tf.constant(length))

    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        threads.submit(compile_shapes)  # what fails here would only have saved time
        try:
            yield
        finally:
            stopped.set()


def _first(count, tensor):
    return tensor[:count]
