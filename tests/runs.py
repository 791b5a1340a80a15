"""What the tests of runs that are killed and go on have in common."""

import contextlib
import itertools
import pathlib
import time

from tf_adapters.training.run import Reporter


class Killed(BaseException):
    """As kill -9: nothing of the run's own code gets to act."""


class KillAt(Reporter):
    """Kills a run after its step of this number."""

    def __init__(self, number):
        self.number = number

    def step(self, done, numbers):
        if done == self.number:
            raise Killed


@contextlib.contextmanager
def seven_seconds_a_look():
    """A clock that is seven seconds further whenever it is read, so that a run's state is written now and then."""
    clock, real = itertools.count(0, 7), time.monotonic
    time.monotonic = lambda: next(clock)
    try:
        yield
    finally:
        time.monotonic = real


def content(directory):
    """Bytes of all files that stand in a directory, by their names."""
    return {path.name: path.read_bytes() for path in pathlib.Path(directory).iterdir() if path.is_file()}
