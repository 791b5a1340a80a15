"""What a person at a terminal sees while a run is at work."""

import io
import re

import pytest
from rich.console import Console

from tf_adapters.cli import progress
from tf_adapters.cli.progress import TrainingProgress
from tf_adapters.cli.quiet import terminal


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass when a test says so."""

    class Clock:
        now = 100.0

        def __call__(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(progress.time, "monotonic", clock)
    return clock


class Shown:
    """A `TrainingProgress` of two epochs of ten steps on a terminal, and the line that it shows."""

    def __init__(self, width=120):
        self.file = io.StringIO()
        self.console = Console(file=self.file, force_terminal=True, width=width, no_color=True)
        self.reporter = TrainingProgress(self.console, epochs=2)

    def line(self):
        with self.console.capture() as capture:
            self.console.print(self.reporter.progress.get_renderable())
        return " ".join(capture.get().split())


@pytest.fixture
def shown():
    shown = Shown()
    yield shown
    shown.reporter.finish()


def test_a_step_that_compiles_is_said_to(clock, shown):
    shown.reporter.start(20, 0)
    assert "compiling" not in shown.line()
    clock.now += 3  # the first step is still at work
    assert "training compiling" in shown.line()
    clock.now += 9
    shown.reporter.step(1, {"loss": 0.7})
    assert "training loss 0.7000" in shown.line() and "1/20 steps" in shown.line()
    for done in range(2, 5):
        clock.now += 0.5
        shown.reporter.step(done, {"loss": 0.6})
    clock.now += 2.4  # less than five usual steps
    assert "training loss 0.6000" in shown.line()
    # Rich's own clock, of which not a second has passed.
    assert re.search(r"4/20 steps 0:00:0\d elapsed, 0:00:0\d left", shown.line())
    clock.now += 0.2
    assert "training compiling" in shown.line()


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal_breaks_lines_between_words_and_a_pipe_does_not(monkeypatch, capsys, is_terminal):
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("TTY_COMPATIBLE", str(int(is_terminal)))
    console, sentence = terminal(), "one two three four five six seven eight nine ten"
    console.print(sentence)
    console.print(f"tf-adapters {sentence}", soft_wrap=True)
    broken = ["one two three four", "five six seven eight", "nine ten"]
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines == [*(broken if is_terminal else [sentence]), f"tf-adapters {sentence}"]
