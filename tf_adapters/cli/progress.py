"""What a run says while it is at work: progress on a terminal as a bar, elsewhere as a line now and then."""

import contextlib
import math
import time

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from tf_adapters.training.run import Reporter

SECONDS_BETWEEN_LINES = 15.0
# A step of new shapes is compiled first. One that takes longer than both does so, as far as can be seen.
SECONDS_OF_A_LONG_STEP, TIMES_OF_A_LONG_STEP = 1.0, 5.0
COMPILING, VALIDATION = "compiling", "validation"


class _Note(ProgressColumn):
    """What is at work, and its latest number; that a step compiles, while it takes much longer than usual ones."""

    def __init__(self, description):
        super().__init__()
        self.description = description

    def render(self, task):
        return Text(f"{self.description} {COMPILING if self._compiles(task) else task.fields['note']}")

    @staticmethod
    def _compiles(task):
        since = task.fields.get("since")
        if since is None or task.finished:
            return False
        at_work = time.monotonic() - since
        return at_work > max(SECONDS_OF_A_LONG_STEP, TIMES_OF_A_LONG_STEP * task.fields["usual"])


def _bar(console, description, unit):
    return Progress(
        _Note(description),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
        TextColumn("elapsed,"),
        TimeRemainingColumn(),
        TextColumn("left"),
        console=console,
        transient=True,
    )


@contextlib.contextmanager
def counting(console, description, total=None, shown=True, unit="rows"):
    """Yield a function to call with the number of rows, or what `unit` says, that are done since the last call."""
    if shown and console.is_terminal:
        with _bar(console, description, unit) as progress:
            item = progress.add_task("", total=total, note="")
            yield lambda count: progress.advance(item, count)
        return
    done, printed = 0, time.monotonic()

    def advance(count):
        nonlocal done, printed
        done += count
        if shown and time.monotonic() - printed >= SECONDS_BETWEEN_LINES:
            printed = time.monotonic()
            console.print(f"{description} {done:,}" + (f" of {total:,} {unit}" if total is not None else f" {unit}"))

    yield advance


class TrainingProgress(Reporter):
    """Shows a run of `fit` on a Rich console."""

    def __init__(self, console, epochs, description="training", *, period=None):
        self.console = console
        self.epochs, self.period = epochs, period
        self.description = description
        self.progress = None
        self.task = None
        self.steps, self.usual = 0, 0.0
        self.printed = time.monotonic()

    def caching(self, done, total):
        if self.console.is_terminal:
            if self.progress is None:
                self._open("caching", "examples", total)
            self.progress.update(self.task, completed=done)
            if done == total:
                self.finish()
        elif time.monotonic() - self.printed >= SECONDS_BETWEEN_LINES:
            self.printed = time.monotonic()
            self.console.print(f"caching {done:,} of {total:,} examples")

    def start(self, steps, done):
        self.steps = steps
        self.printed = time.monotonic()
        if done:
            self.console.print(f"Resuming after step {done} of {steps}.")
        if self.console.is_terminal:
            self._open(self.description, "steps", steps, done, since=time.monotonic(), usual=self.usual)

    def note(self, text):
        self.console.print(text)

    def step(self, done, numbers):
        note = f"loss {numbers['loss']:.4f}"
        if self.progress is not None:
            now, fields = time.monotonic(), self.progress.tasks[0].fields
            if fields["since"] is not None:
                # The shortest of late, which is no step that compiled.
                self.usual = min(now - fields["since"], 2 * self.usual or math.inf)
            validates = done % (self.period or self.steps // (self.epochs or 1)) == 0
            self.progress.update(
                self.task, completed=done, note=VALIDATION if validates else note, since=None if validates else now,
                usual=self.usual,
            )  # fmt: skip
        elif time.monotonic() - self.printed >= SECONDS_BETWEEN_LINES:
            self.printed = time.monotonic()
            self.console.print(f"step {done}/{self.steps}  {note}")

    def epoch(self, epoch, numbers, best):
        values = "  ".join(
            f"{'training' if name == 'loss' else 'validation'} {name.replace('_', ' ')} {value:.4f}"
            for name, value in numbers.items()
        )
        if self.period is None:
            place = f"epoch {epoch}/{self.epochs}"
        else:
            place = f"step {epoch * self.period}/{self.steps}"
        self.console.print(f"{place}  {values}" + ("  best so far" if best else ""))
        self.trains_on()

    def trains_on(self):
        """The validation is over."""
        if self.progress is not None:
            self.progress.update(self.task, note="", since=time.monotonic())

    def finish(self):
        if self.progress is not None:
            self.progress.stop()
            self.progress = None

    def _open(self, description, unit, total, done=0, **fields):
        self.progress = _bar(self.console, description, unit)
        self.task = self.progress.add_task("", total=total, completed=done, note="", **fields)
        self.progress.start()


class PeriodProgress(TrainingProgress):
    """Shows a run that is measured every so many steps; `period` may be None where that is once."""

    def __init__(self, console, period, description):
        super().__init__(console, None, description)
        self.period = period

    def epoch(self, epoch, numbers, best):
        step = self.steps if self.period is None else epoch * self.period
        self.console.print(
            f"{self.description}: step {step}/{self.steps}  training loss {numbers['loss']:.4f}  held-out perplexity "
            f"{numbers['perplexity']:.2f}  accuracy {numbers['accuracy']:.4f}" + ("  best so far" if best else "")
        )
        self.trains_on()
