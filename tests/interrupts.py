"""Raises an exception at every line that an operation executes, one after the other."""

import dis
import functools
import itertools
import linecache
import pathlib
import signal
import sys

import tf_adapters
from tests.whole import assert_same, picture

PACKAGE = str(pathlib.Path(tf_adapters.__file__).parent)


def _leaves_a_context(frame):
    """Whether the line is a `with` whose block is over: between the block and the exit CPython lets no signal in."""
    if not linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("with "):
        return False
    return frame.f_lasti > _first_offsets(frame.f_code)[frame.f_lineno]


@functools.cache
def _first_offsets(code):
    first = {}
    for offset, line in dis.findlinestarts(code):
        first[line] = min(offset, first.get(line, offset))
    return first


def _raised_at(operation, counts, error, reached):
    """Run an operation, and raise `error` at a line of the package.

    Args:
        counts: function of a file's path, whether its lines count.
        reached: function of `(path, number)`, whether to raise at this line.

    Returns: the place at which it was raised, or None.
    """
    places, handler, before = [], signal.getsignal(signal.SIGINT), sys.gettrace()

    def trace(frame, event, argument):
        path = frame.f_code.co_filename
        if places or not path.startswith(PACKAGE) or not counts(path):
            return None
        # While a refused operation is undone, the package holds signals back.
        held = signal.getsignal(signal.SIGINT) is not handler
        if event == "line" and not held and not _leaves_a_context(frame) and reached((path, frame.f_lineno)):
            places.append((path, frame.f_lineno))
            raise error
        return trace

    sys.settrace(trace)
    try:
        operation()
    except (KeyboardInterrupt, MemoryError) as raised:
        assert raised is error
        return places[0]
    finally:
        sys.settrace(before)
    assert not places, f"{error!r} at {places} was swallowed"
    return None


def interrupted(operation, *, files, done):
    """Run an operation again and again, each time raising at the next line, until it comes to its end.

    Args:
        operation: function.
        files: ends of the names of the files whose lines count.
        done: set of `(path, line)` at which nothing is raised any more, which grows.

    Returns: iterator of `(path, line)`, after each exception.
    """
    for number in itertools.count():
        error = (KeyboardInterrupt, MemoryError)[number % 2]("here")
        place = _raised_at(operation, lambda path: path.endswith(files), error, lambda place: place not in done)
        if place is None:
            return
        done.add(place)
        yield place


def interrupted_at(count, operation, files=("",)):
    """Run an operation; raise KeyboardInterrupt at the `count`-th new line of the package, from 0.

    Of the files whose names end in `files` lines count, but for those of transaction.py, whose own lines no signal
    interrupts.

    Returns: whether it was raised.
    """
    seen = set()

    def reached(place):
        new = place not in seen
        seen.add(place)
        return new and len(seen) > count

    def counts(path):
        return path.endswith(tuple(files)) and not path.endswith("transaction.py")

    return _raised_at(operation, counts, KeyboardInterrupt("here"), reached) is not None


def check_interruptions(model, operation, step):
    """Interrupt an operation at each `step`-th line of the package that is new to it: nothing changed."""
    before, count = picture(model), 0
    while interrupted_at(count, operation):
        assert_same(before, picture(model))
        count += step
    assert count
