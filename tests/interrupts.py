"""Raises an exception at every line that an operation executes, one after the other."""

import dis
import functools
import linecache
import pathlib
import sys

import tf_adapters

PACKAGE = str(pathlib.Path(tf_adapters.__file__).parent)


class _Lines:
    """A trace function that counts the lines of the package and raises `error` at one of them.

    Args:
        at: int, the number of the line, or None.
        files: ends of the names of the files that count.
        error: exception.
    """

    def __init__(self, at, files, error):
        self.at, self.files, self.error, self.places = at, files, error, []

    def __call__(self, frame, event, argument):
        path = frame.f_code.co_filename
        if not path.startswith(PACKAGE) or not path.endswith(self.files):
            return None
        if event == "line" and not _leaves_a_context(frame):
            if len(self.places) == self.at:
                self.at = None
                raise self.error
            self.places.append((path, frame.f_lineno))
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


def run(operation, *, at=None, files=("",), error=None):
    """Run an operation; returns the lines that it executed, `(path, number)` each, or raises `error` at line `at` of them."""
    lines, before = _Lines(at, tuple(files), error), sys.gettrace()
    sys.settrace(lines)
    try:
        operation()
    finally:
        sys.settrace(before)
    return lines.places


def interrupted(prepare, operation, *, files=("",), every_time=False):
    """Raise at each line of an operation, and yield after each.

    Args:
        prepare: function that is called before each run.
        operation: function.
        files: ends of the names of the files whose lines count.
        every_time: bool, also at the second and later times that a line is executed.

    Returns: iterator of `(path, line)`.
    """
    prepare()
    places = run(operation, files=files)
    assert places
    for number, place in enumerate(places):
        if every_time or place not in places[:number]:
            prepare()
            error = (KeyboardInterrupt, MemoryError)[number % 2]("here")
            try:
                run(operation, at=number, files=files, error=error)
            except (KeyboardInterrupt, MemoryError) as raised:
                assert raised is error
            else:
                raise AssertionError(f"{place} swallowed {error!r}")
            yield place
