"""What is done to a model happens as a whole, or leaves every bit of it as it was."""

import contextlib
import functools
import signal
import threading
from typing import cast

from tf_adapters._types import Function
from tf_adapters.models.state import state_of

# An attribute that the object itself has not.
_CLASS = object()


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
        undo = state.door.Undo(model, state)
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


@contextlib.contextmanager
def replaced(changes):
    """While a graph is traced, attributes of layers, or what they have from their class, have other values.

    Keras' own bookkeeping is passed by: the layers' weights and sub-layers are the same before and after.

    Args:
        changes: list of `(layer, name of an attribute, value)`.
    """
    before = [vars(layer).get(name, _CLASS) for layer, name, _ in changes]
    try:
        for layer, name, value in changes:
            vars(layer)[name] = value
        yield
    finally:
        for (layer, name, _), value in zip(changes, before):
            if value is _CLASS:
                vars(layer).pop(name, None)
            else:
                vars(layer)[name] = value
