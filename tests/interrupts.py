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


class _Lines:
    """A trace function that raises `error` at a line of the package.

    Args:
        counts: function of a file's path, whether its lines count.
        error: exception.
        reached: function of `(path, number)`, whether to raise at this line.

    Attributes:
        place: `(path, number)` at which it raised, or None.
    """

    def __init__(self, counts, error, reached):
        self.counts, self.error, self.reached, self.place = counts, error, reached, None
        self.handler = signal.getsignal(signal.SIGINT)

    def __call__(self, frame, event, argument):
        path = frame.f_code.co_filename
        if self.place or not path.startswith(PACKAGE) or not self.counts(path):
            return None
        # While a refused operation is undone, the package holds signals back.
        held = signal.getsignal(signal.SIGINT) is not self.handler
        if event == "line" and not held and not _leaves_a_context(frame):
            place = path, frame.f_lineno
            if self.reached(place):
                self.place = place
                raise self.error
        return self


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
    """Run an operation under `_Lines`. Returns the place at which it raised, or None."""
    lines, before = _Lines(counts, error, reached), sys.gettrace()
    sys.settrace(lines)
    try:
        operation()
    except (KeyboardInterrupt, MemoryError) as raised:
        assert raised is error
        return lines.place
    finally:
        sys.settrace(before)
    assert lines.place is None, f"{error!r} at {lines.place} was swallowed"
    return None


def interrupted(operation, *, files=("",), done=None):
    """Run an operation again and again, each time raising at the next line, until it comes to its end.

    Args:
        operation: function.
        files: ends of the names of the files whose lines count.
        done: set of `(path, line)` at which nothing is raised any more, which grows; None to raise at a line each time
            that it is executed.

    Returns: iterator of `(path, line)`, after each exception.
    """
    for number in itertools.count():
        error, left = (KeyboardInterrupt, MemoryError)[number % 2]("here"), itertools.count(-number)
        reached = (lambda place: next(left) == 0) if done is None else (lambda place: place not in done)
        place = _raised_at(operation, lambda path: path.endswith(tuple(files)), error, reached)
        if place is None:
            return
        if done is not None:
            done.add(place)
        yield place


def interrupted_at(count, operation, files=("",)):
    """Run an operation; raise KeyboardInterrupt at the `count`-th new line of the package.

    Args:
        count: int, from 0.
        operation: function.
        files: ends of the names of the files whose lines count; those of transaction.py, whose own lines no signal
            interrupts, never do.

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
