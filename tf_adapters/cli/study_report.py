"""What `tf-adapters study` shows while it measures, and at the end."""

import os

from rich.measure import Measurement
from rich.table import Table

from tf_adapters.cli.progress import TrainingProgress, counting
from tf_adapters.studies.lab import SUMMARY_FILE, TABLE_FILE, Observer


class Shown(Observer):
    """Shows a study's progress on a Rich console."""

    def __init__(self, console):
        self.console = console

    def value(self, number, total, text, left):
        of = "" if total is None else f"/{total}"
        rest = "" if left is None else f"; about {duration(left)} left"
        self.console.print(f"{number}{of}: {text}{rest}")

    def note(self, text):
        self.console.print(text)

    def training(self, epochs, period=None):
        return TrainingProgress(self.console, epochs, "  training", period=period)

    def counting(self, description, total, unit):
        return counting(self.console, f"  {description}", total=total, unit=unit)


def duration(seconds):
    """Seconds in words: `3 h 20 min`."""
    minutes = round(seconds / 60)
    if minutes < 1:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


def show_summary(console, study, summary, output):
    """Print a study's table, and where its files are."""
    columns, rows = study.table(summary)
    table = Table(box=None, pad_edge=False)
    for place, column in enumerate(columns):
        table.add_column(column, justify="left" if place < 2 else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    # At its own width: cut to a terminal's, names would be torn.
    natural = Measurement.get(console, console.options.update(width=1000), table).maximum
    console.width = max(console.width, natural)
    console.print(table, soft_wrap=False)
    names = (TABLE_FILE, SUMMARY_FILE, f"{study.name}.png", f"{study.name}.svg")
    console.print(f"Written to {os.path.relpath(output)}: {', '.join(names)}")
