"""What the tests of runs that are killed and go on have in common."""

import contextlib
import itertools
import os
import pathlib
import shlex
import subprocess
import sys
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


def run_machine(machine, seed, examples, steps):
    """Operations in any order. A failure is the calls that led to it; to make it shorter, add Phase.shrink."""
    from hypothesis import HealthCheck, Phase, settings
    from hypothesis import seed as seeded
    from hypothesis.stateful import run_state_machine_as_test

    about = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck), "phases": [Phase.generate]}
    run_state_machine_as_test(
        seeded(seed)(type(machine.__name__, (machine,), {})),
        settings=settings(max_examples=examples, stateful_step_count=steps, **about),
    )


@contextlib.contextmanager
def seven_seconds_a_look():
    """A clock that is seven seconds further whenever it is read, so that a run's state is written now and then."""
    clock, real = itertools.count(0, 7), time.monotonic
    time.monotonic = lambda: next(clock)
    try:
        yield
    finally:
        time.monotonic = real


def said_by(code, *words, **environment):
    """What a Python process of its own writes when it runs the code to its end."""
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[1]), **environment}
    words = [sys.executable, "-W", "ignore", "-c", code, *map(str, words)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def said_without_us(out):
    """What the hint of `export` says, which imports neither this package nor what reads its files."""
    python, option, code = shlex.split(out.split("Try it:\n")[1])
    assert (python, option) == ("python", "-c")
    code += "; import sys; names = {name.split('.')[0] for name in sys.modules}"
    code += "; assert not names & {'tf_adapters', 'transformers', 'tf_keras', 'safetensors', 'tokenizers'}"
    return said_by(code, TF_USE_LEGACY_KERAS="0")  # Keras 3, as where nobody asks for the other


def content(directory):
    """Bytes of all files that stand in a directory, by their names."""
    return {path.name: path.read_bytes() for path in pathlib.Path(directory).iterdir() if path.is_file()}
