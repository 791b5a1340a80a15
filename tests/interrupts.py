"""Raises an exception at every line that an operation executes, one after the other."""

import dis
import functools
import linecache
import pathlib
import sys

import tf_adapters

PACKAGE = str(pathlib.Path(tf_adapters.__file__).parent)


class _Lines:
    """A trace function that raises `error` at a line of the package.

    Args:
        files: ends of the names of the files that count.
        error: exception.
        skipped: int, how many lines are executed before, or the set of `(path, number)` at which nothing is raised.

    Attributes:
        place: `(path, number)` at which it raised, or None.
    """

    def __init__(self, files, error, skipped):
        self.files, self.error, self.skipped, self.count, self.place = files, error, skipped, 0, None

    def __call__(self, frame, event, argument):
        path = frame.f_code.co_filename
        if self.place or not path.startswith(PACKAGE) or not path.endswith(self.files):
            return None
        if event == "line" and not _leaves_a_context(frame):
            place = path, frame.f_lineno
            if self.count == self.skipped if isinstance(self.skipped, int) else place not in self.skipped:
                self.place = place
                raise self.error
            self.count += 1
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


def interrupted(operation, *, files=("",), done=None):
    """Run an operation again and again, each time raising at the next line, until it comes to its end.

    Args:
        operation: function.
        files: ends of the names of the files whose lines count.
        done: set of `(path, line)` at which nothing is raised any more, which grows; None to raise at a line each time that it is executed.

    Returns: iterator of `(path, line)`, after each exception.
    """
    number = 0
    while True:
        error = (KeyboardInterrupt, MemoryError)[number % 2]("here")
        lines, before = _Lines(tuple(files), error, number if done is None else done), sys.gettrace()
        sys.settrace(lines)
        try:
            operation()
        except (KeyboardInterrupt, MemoryError) as raised:
            assert raised is error
        else:
            assert lines.place is None, f"{error!r} at {lines.place} was swallowed"
            return
        finally:
            sys.settrace(before)
        number += 1
        if done is not None:
            done.add(lines.place)
        yield lines.place
