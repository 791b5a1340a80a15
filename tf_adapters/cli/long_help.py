"""The help of commands with many options: first those that a newcomer needs, and all with `--help-all`."""

import functools
import inspect
from typing import Annotated

import typer
import typer.core
from rich.padding import Padding
from rich.table import Table

from tf_adapters.cli.terminal import terminal

_FILES = ("--train", "--validation", "--test", "--text-column", "--label-column", "--kind")
# What `--help` explains; a command that is not here explains all.
FIRST = {
    "train": ("--model", "--output", *_FILES),
    "tune": ("--model", "--output", "--train", "--space", "--vary", "--trials", "--seeds", "--resume"),
    "pretrain": ("--model", "--output", "--train", "--text-column", "--steps", "--batch-size", "--recipe", "--resume"),
}
ALL = "--help-all"


class LongHelp(typer.core.TyperCommand):
    """A command whose `--help` is short if `FIRST` has its name."""

    def format_help(self, ctx, formatter):
        if self.name not in FIRST:
            super().format_help(ctx, formatter)
            return
        rest = [parameter for parameter in self.params if parameter.opts[0] not in (*FIRST[self.name], ALL)]
        for parameter in rest:
            parameter.hidden = True
        try:
            super().format_help(ctx, formatter)
        finally:
            for parameter in rest:
                parameter.hidden = False
        console, table = terminal(), Table.grid(padding=(0, 2))
        for panel in dict.fromkeys(parameter.rich_help_panel for parameter in rest):
            options = [parameter.opts[0] for parameter in rest if parameter.rich_help_panel == panel]
            table.add_row(panel or "Others", ", ".join(options))
        console.print(f" {len(rest)} more options, which `tf-adapters {self.name} {ALL}` explains:")
        console.print(Padding(table, (1, 1)), soft_wrap=False)

    def format_help_of_all(self, ctx):
        """Show the help of all options."""
        super().format_help(ctx, ctx.make_formatter())


def _show_all(ctx: typer.Context, value: bool):
    if value and not ctx.resilient_parsing:
        ctx.command.format_help_of_all(ctx)
        raise typer.Exit()


def with_long_help(command):
    """The function of a command as Typer is to see it, with `--help-all` if `FIRST` has its name."""
    if command.__name__ not in FIRST:
        return command
    signature = inspect.signature(command)
    option = typer.Option(ALL, is_eager=True, callback=_show_all, help="Explain all options, and exit.")
    shown = inspect.Parameter(
        "help_all", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, option]
    )

    @functools.wraps(command)
    def run(help_all=False, **values):
        return command(**values)

    run.__signature__ = signature.replace(parameters=[*signature.parameters.values(), shown])
    run.__annotations__ = {**command.__annotations__, "help_all": shown.annotation}
    return run
