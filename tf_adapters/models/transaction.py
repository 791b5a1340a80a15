"""What is done to a model happens as a whole, or leaves every bit of it as it was."""

import contextlib
import functools
import signal
import threading
from typing import cast

from tf_adapters._keras import keras
from tf_adapters._keras_internals import change_class, layers_of, reference_counts
from tf_adapters._types import Function
from tf_adapters.models.state import state_of


def transaction(operation: Function) -> Function:
    """Let a function whose first argument is a model happen as a whole, or not at all.

    Whatever it raises, `KeyboardInterrupt` and `MemoryError` too, the model is then as before: its layers and what they
    hold, the package's `ModelState`, and the values of the variables that were assigned by `ModelState.write`. One
    transaction inside another is a part of that one.
    """

    @functools.wraps(operation)
    def whole(model, *arguments, **settings):
        state = state_of(model)
        if state.undo is not None:
            return operation(model, *arguments, **settings)
        undo = _Undo(model, state)
        try:
            state.undo = undo
            result = operation(model, *arguments, **settings)
            state.undo = None
            return result
        except BaseException:
            with uninterrupted():
                undo.restore()
            raise

    return cast(Function, whole)


@contextlib.contextmanager
def uninterrupted():
    """Let Ctrl-C wait until the block has ended, where Python lets the main thread decide that."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    waiting = []
    signal.signal(signal.SIGINT, lambda *arguments: waiting.append(arguments))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if waiting:
            handler(*waiting[0])


class _Undo:
    """What a model's objects held at one moment, and the values that variables had before they were assigned."""

    def __init__(self, model, state):
        self._written, objects = {}, _objects(model, state)
        self._model, self._class = model, type(model)
        self._held = [(held, dict(held)) for held in map(vars, objects)]
        # Keras changes its own containers in place.
        containers = [value for held, _ in self._held for value in held.values() if type(value) in (list, dict, set)]
        containers += [reference_counts(one) for one in objects if isinstance(one, keras.layers.Layer)]
        self._contents = [(container, container.copy()) for container in containers]

    def remember(self, variable):
        """Keep the value of a variable that is about to be assigned for the first time."""
        if id(variable) not in self._written:
            # No copy: an assignment gives the variable other memory.
            self._written[id(variable)] = (variable, variable.read_value())

    def restore(self):
        for variable, value in self._written.values():
            variable.assign(value)
        change_class(self._model, self._class)
        for held, before in self._held:
            held.clear()
            held.update(before)
        for container, before in self._contents:
            if type(container) is list:
                container[:] = before
            else:
                container.clear()
                container.update(before)


def _objects(model, state):
    """Everything that operations on a model change: its layers, their switches, the package's own notes, the
    optimizer."""
    waiting = [layer for head in state.heads if head is not state.head for layer in head.layers.values()]
    layers = [layer for outer in (model, *waiting) for layer in layers_of(outer)]
    switches = [switch for layer in layers if (switch := getattr(layer, "switch", None)) is not None]
    optimizer = getattr(model, "optimizer", None)
    optimizers = [optimizer, getattr(optimizer, "inner_optimizer", None)]
    optimizers = [one for one in optimizers if isinstance(one, keras.optimizers.Optimizer)]
    owners = [state.plain, *state.adapters.values(), *state.switched.values(), *state.heads]
    return [*layers, *switches, *optimizers, state, state.acting, *owners, model.config]
