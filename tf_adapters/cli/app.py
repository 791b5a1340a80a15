"""The commands. A new one is a file and a line here."""

import errno
import functools
import inspect
import pathlib
import re
import sys

import typer
import typer.core

from tf_adapters.cli.convert import convert
from tf_adapters.cli.demo import demo
from tf_adapters.cli.evaluate import evaluate
from tf_adapters.cli.export import export
from tf_adapters.cli.info import info
from tf_adapters.cli.options import check_numbers
from tf_adapters.cli.predict import predict
from tf_adapters.cli.pretrain import pretrain
from tf_adapters.cli.push import push
from tf_adapters.cli.serve import serve
from tf_adapters.cli.study import page, study_command, summary_of
from tf_adapters.cli.submit import submit
from tf_adapters.cli.tasks import tasks
from tf_adapters.cli.train import train
from tf_adapters.cli.tune import tune
from tf_adapters.errors import NAME, InputError, shown
from tf_adapters.paths import to_path
from tf_adapters.studies import STUDIES
from tf_adapters.training.settings import choices, option_of

app = typer.Typer(
    name="tf-adapters",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Adapters for the TensorFlow encoders of HuggingFace transformers: train, evaluate, predict, export.",
)
# Arguments of the Python interface whose option has another name.
_OPTION_NAMES = {
    "backbone": "--model",
    "bottleneck_size": "--adapter-size",
    "count": "--max-train-rows",
    "directory": "--model",
    "dropout": "--adapter-dropout",
    "mode": "--trainable",
    "source": "--model",
}


class _Command(typer.core.TyperCommand):
    """A command that refuses empty words, which a shell makes of a variable that is not set: as a path they would be
    the folder here."""

    def parse_args(self, ctx, args):
        # Help and --version leave here.
        given, _, order = self.make_parser(ctx).parse_args(args=list(args))
        for parameter in order:
            values = given.get(parameter.name)
            if "" in (values if isinstance(values, (list, tuple)) else [values]):
                name = parameter.opts[0] if parameter.opts[0].startswith("-") else parameter.name.upper()
                print(f"error: {name} is empty: give it a value, or leave it out.", file=sys.stderr)
                raise typer.Exit(2)
        return super().parse_args(ctx, args)


def _command(function):
    """The function, with a user's mistake turned into one sentence and an exit status."""
    parameters = inspect.signature(function).parameters
    positional = {
        name
        for name, parameter in parameters.items()
        if any(isinstance(one, typer.models.ArgumentInfo) for one in getattr(parameter.annotation, "__metadata__", ()))
    }
    options = {name: f"--{name.replace('_', '-')}" for name in parameters}
    options = {
        **options,
        **{name: option_of(name) for name in choices() if option_of(name) in options.values()},
        **{name: option for name, option in _OPTION_NAMES.items() if option in options.values()},
    }

    names = "|".join(name for name in options if "_" in name) or "(?!)"

    def sentence(error):
        """The message; where it names an argument outright, the option stands in its place."""
        named = rf"(?<![\w.='\"/-])({names})\b(?![\w.('\"/])"
        return re.sub(named, lambda name: options[name[0]], error.spelled(spelled))

    def spelled(name, value):
        if name in positional:
            return name.upper() if value is NAME else str(value)
        if name not in options:
            return name if value is NAME else f"{name}={shown(value)}"
        if value is False:
            return options[name].replace("--", "--no-", 1)
        if value is True or value is NAME:
            return options[name]
        return f"{options[name]} {value if isinstance(value, str) else shown(value)}"

    @functools.wraps(function)
    def run(**arguments):
        try:
            arguments = {name: _expanded(value) for name, value in arguments.items()}
            check_numbers(arguments)
            function(**arguments)
        except InputError as error:
            print(f"error: {sentence(error)}", file=sys.stderr)
            raise typer.Exit(2) from None
        except OSError as error:
            if error.filename is None:
                raise
            print(f"error: {_of_file(error)}", file=sys.stderr)
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            raise typer.Exit(130) from None

    return run


def _expanded(value):
    """An option's value, `~` in paths as a shell has it, which leaves it as it is behind `=`."""
    if isinstance(value, (list, tuple)):
        return [_expanded(one) for one in value]
    if isinstance(value, pathlib.Path) or isinstance(value, str) and re.match("~[^/]*/", value):
        return type(value)(to_path(value))
    return value


def _of_file(error):
    """A sentence of what the operating system says of a file."""
    if error.errno == errno.ENAMETOOLONG:
        return f"{str(error.filename)[:60]}... is longer than a file's name may be: give a shorter one."
    return f"{error.filename} cannot be used: {error.strerror}."


for command in (train, tune, pretrain, evaluate, predict, demo, serve, export, convert, push, submit, tasks, info):
    app.command(command.__name__, cls=_Command)(_command(command))

studies = typer.Typer(
    name="study",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="The papers' analyses: each measures, resumes after a kill, and draws its figure.",
)
for study in STUDIES.values():
    studies.command(study.name, cls=_Command, short_help=summary_of(study))(_command(study_command(study)))
studies.command("page", cls=_Command)(_command(page))
app.add_typer(studies)


def _version(value: bool):
    if value:
        from tf_adapters._version import __version__

        print(f"tf-adapters {__version__}")
        raise typer.Exit()


@app.callback()
def options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show the version."),
):
    """Adapters for the TensorFlow encoders of HuggingFace transformers: train, evaluate, predict, export."""
