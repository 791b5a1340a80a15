"""Progress on a terminal as a bar, elsewhere as a line now and then."""

import contextlib
import time

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tf_adapters.training.run import Reporter

SECONDS_BETWEEN_LINES = 15.0


def _bar(console, description, unit):
    return Progress(
        TextColumn(f"{description} {{task.fields[note]}}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
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
        self.steps = 0
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
            self._open(self.description, "steps", steps, done)

    def note(self, text):
        self.console.print(text)

    def step(self, done, numbers):
        note = f"loss {numbers['loss']:.4f}"
        if self.progress is not None:
            self.progress.update(self.task, completed=done, note=note)
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

    def finish(self):
        if self.progress is not None:
            self.progress.stop()
            self.progress = None

    def _open(self, description, unit, total, done=0):
        self.progress = _bar(self.console, description, unit)
        self.task = self.progress.add_task("", total=total, completed=done, note="")
        self.progress.start()
