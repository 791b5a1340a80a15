"""`tf-adapters study NAME`: a command for each study, made of its class."""

import dataclasses
import functools
import inspect
import os
import pathlib
from typing import Optional

import typer
from rich.measure import Measurement
from rich.table import Column, Table

from tf_adapters.cli.command import argument, option
from tf_adapters.cli.directories import check_folder, check_new_file, going_on
from tf_adapters.cli.options import Overwrite
from tf_adapters.cli.quiet import counting, start, terminal
from tf_adapters.errors import InputError
from tf_adapters.ranges import choices_of
from tf_adapters.studies.lab import STUDY_FILE, SUMMARY_FILE, TABLE_FILE, Observer, Stopped, run

_EXAMPLES = (
    "Does it run? `tf-adapters study NAME --smoke`. The folder gets `values.csv` with every value, `summary.json`, and "
    "the figure as `NAME.png` and `NAME.svg`; `tf-adapters study page FOLDER` shows the figures of all studies below a "
    "folder on one page. A study that was interrupted goes on with the same command and `--resume`."
)
_run = functools.partial(option, panel="Run")


def study_command(study):
    """The function of a study's command, of which one parameter stands for the study's options."""
    fields = []
    for name, about in choices_of(study).items():
        field, help, read = study.__dataclass_fields__[name], about.help, None
        if about.of is not None:
            usual = ",".join(f"{value:g}" if isinstance(value, float) else str(value) for value in field.default)
            help += " Several: with commas between them." + (f" Default: `{usual}`." if usual else "")
            about, read = dataclasses.replace(about, values=None), functools.partial(_several, name, about.of)
        elif field.default not in (None, False):
            help += f" Default: `{field.default}`."
        about = dataclasses.replace(about, help=help, read=read)
        default = False if field.default is False else None
        fields.append((name, field.type, dataclasses.field(default=default, metadata={"choice": about})))

    def command(
        *,
        chosen: dataclasses.make_dataclass("Options", fields),
        output: _run(Optional[pathlib.Path], "Folder to write. Default: `studies/` and the study's name.") = None,
        smoke: _run(bool, "So small that it only shows that the study runs, in a minute or two.", "--smoke") = False,
        resume: _run(
            bool, "Go on with an interrupted study, or add seeds, tasks or rates to one: what is measured stays.",
            "--resume",
        ) = False,
        overwrite: _run(bool, "Replace the study in the output folder.", "--overwrite") = False,
    ):  # fmt: skip
        given = {name: value for name, value in vars(chosen).items() if value is not None and value is not False}
        made = study.smoke(**given) if smoke else study(**given)
        output = output or pathlib.Path("studies", f"{study.name}-smoke" if smoke else study.name)
        check_folder(output, resume, overwrite, marker=STUDY_FILE, what="a study", run="study")
        console = terminal()
        start(console)
        try:
            summary = run(made, output, resume=resume, overwrite=overwrite, observer=Shown(console))
        except (Stopped, KeyboardInterrupt):
            console.print(f"Stopped; what is measured is kept. {going_on(overwrite)}")
            raise typer.Exit(130) from None
        show_summary(console, made, summary, output)

    command.__doc__ = f"{inspect.cleandoc(study.__doc__)}\n\nReproduces: {study.figures}.\n\n{_EXAMPLES}".replace(
        "NAME", study.name
    )
    return command


def _several(name, of, text):
    """The values of an option's text."""
    try:
        return tuple(of(word.strip()) for word in text.split(",") if word.strip())
    except ValueError:
        kind = {int: "whole numbers", float: "numbers"}[of]
        raise InputError(f"--{name.replace('_', '-')} {text} must be {kind} with commas between them.") from None


class Shown(Observer):
    """Shows a study's progress on a Rich console."""

    def __init__(self, console):
        self.console = console

    def value(self, number, total, text, left):
        of = "" if total is None else f"/{total}"
        rest = "" if left is None else f"; about {duration(left)} left"
        self.console.print(f"{number}{of}: {text}{rest}")

    def training(self, epochs, period=None):
        from tf_adapters.cli.progress import TrainingProgress

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
    sides = ["left"] * 2 + ["right"] * len(columns)
    columns = (Column(name, justify=side, overflow="fold") for name, side in zip(columns, sides))
    table = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*row)
    # At its own width: cut to a terminal's, names would be torn.
    natural = Measurement.get(console, console.options.update(width=1000), table).maximum
    console.width = max(console.width, natural)
    console.print(table, soft_wrap=False)
    names = (TABLE_FILE, SUMMARY_FILE, f"{study.name}.png", f"{study.name}.svg")
    console.print(f"Written to {os.path.relpath(output)}: {', '.join(names)}")


def page(
    folder: argument(pathlib.Path, "Folder below which the studies are."),
    output: option(Optional[pathlib.Path], "HTML file to write. Default: `index.html` in the folder.") = None,
    overwrite: Overwrite = False,
):
    """One HTML page with the figures and tables of all studies below a folder: `tf-adapters study page studies`."""
    from tf_adapters.studies.figure import write_page

    output = output or folder / "index.html"
    check_new_file(output, overwrite=overwrite)
    count = write_page(folder, output)
    terminal().print(f"{count} {'study' if count == 1 else 'studies'} on {output}")
