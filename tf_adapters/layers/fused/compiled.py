"""One XLA program for what stands between two matrix products."""

import contextlib
import functools
import threading

import tensorflow as tf

_HERE = threading.local()


def compiled(function):
    """`function` of tensors as an XLA program, traced once for each rank and dtype, compiled once for each shape."""
    program = tf.function(function, jit_compile=True, autograph=False, reduce_retracing=True)

    @functools.wraps(function)
    def call(*tensors):
        return (function if getattr(_HERE, "plain", False) else program)(*tensors)

    return call


@contextlib.contextmanager
def uncompiled():
    """What this thread traces in the context has the operations themselves in place of their programs, for servers
    without XLA."""
    before = getattr(_HERE, "plain", False)
    with contextlib.ExitStack() as end:
        end.callback(setattr, _HERE, "plain", before)
        _HERE.plain = True
        yield


def wide(tensor):
    """A tensor in float32."""
    return tf.cast(tensor, tf.float32)
