"""A function as a command of `tf-adapters`: its options, what they can be, and a user's mistakes in one sentence each.

A parameter whose type is a dataclass stands for the options that are its fields. Loads no TensorFlow.
"""

import contextlib
import copy
import dataclasses
import errno
import functools
import inspect
import pathlib
import re
import signal
import sys
import threading
from typing import Annotated, Optional, get_args

import typer
import typer.core

from tf_adapters.config import MethodConfig
from tf_adapters.errors import NAME, InputError, shown
from tf_adapters.paths import to_path
from tf_adapters.ranges import RANGES, Choice, check_choice, check_seeds, choices_of
from tf_adapters.training.settings import choices, option_of

# Arguments of the Python interface whose option has another name.
_OF_PYTHON = {
    "backbone": "--model", "count": "--max-train-rows", "directory": "--model", "mode": "--trainable",
    "source": "--model",
}  # fmt: skip


def option(kind, help, *names, panel=None, **about):
    """The annotation of a parameter that is an option: its type, its help in Markdown, its names if they are not the
    parameter's (another is for those who are used to it), the help's panel, and other fields of its `Choice`."""
    word, alias = (*(name.removeprefix("--") for name in names), None, None)[:2]
    return _annotation(kind, names, Choice(help, option=word, alias=alias, panel=panel, **about))


def argument(kind, help, metavar=None):
    """The annotation of a parameter that is an argument, without a name of its own on the command line."""
    return Annotated[kind, typer.Argument(metavar=metavar, help=help)]


def _annotation(kind, names, about):
    # In the help's column of names there is no place for two.
    help = f"{about.help} Also `--{about.alias}`." if about.alias else about.help
    shown = {"help": help, "rich_help_panel": about.panel, "metavar": about.metavar}
    return Annotated[kind, typer.Option(*names, **shown), about]


def with_options_of(*settings, without=(), helps=None):
    """A class decorator: a dataclass that has an option for each choice of others, None where a recipe decides.

    Args:
        settings: dataclasses whose fields have a `Choice`, such as `TrainingSettings`. Their fields come first, each
            called as the option is.
        without: names of fields that are left out.
        helps: dict of other help texts by the names of fields, or None.
    """

    def decorate(cls):
        kinds = {}
        for one in settings:
            for name, about in choices_of(one).items():
                if name not in without:
                    field, decided = one.__dataclass_fields__[name], about.of_recipe or issubclass(one, MethodConfig)
                    about = dataclasses.replace(
                        about, help=(helps or {}).get(name, about.help), range=about.range or RANGES.get(name),
                        option=about.option or name.replace("_", "-"),
                    )  # fmt: skip
                    default, place = None if decided else field.default, about.name_of(name)
                    setattr(cls, place, dataclasses.field(default=default, metadata={"choice": about, "field": name}))
                    kinds[place] = field.type
        cls.__annotations__ = kinds | cls.__dict__.get("__annotations__", {})
        return dataclasses.dataclass(cls)

    return decorate


def _parameters_of(group):
    """The options of a dataclass, as parameters of a function."""
    for field in dataclasses.fields(group):
        about = field.metadata["choice"]
        # `T` of `Optional[T]` too.
        kind = next(iter(get_args(field.type)), field.type) if about.read is None else str
        kind = Optional[kind] if field.default is None else kind
        names = about.options_of(field.name)
        if kind == Optional[bool]:
            names[0] += names[0].replace("--", "/--no-", 1)
        annotation = _annotation(kind, names, about)
        yield inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=annotation
        )


class Command(typer.core.TyperCommand):
    """A command that refuses empty words, which a shell makes of a variable that is not set: as a path they would be
    the folder here. Its help has one name an option."""

    def format_help(self, ctx, formatter):
        shown = copy.copy(self)
        shown.params = [copy.copy(parameter) for parameter in self.params]
        for parameter in shown.params:
            parameter.opts = parameter.opts[:1]
        super(Command, shown).format_help(ctx, formatter)

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


def command(function):
    """The function as Typer is to see it, with a user's mistake turned into one sentence and an exit status."""
    signature, groups, parameters = inspect.signature(function), {}, {}
    for name, parameter in signature.parameters.items():
        if dataclasses.is_dataclass(parameter.annotation):
            groups[name] = parameter.annotation
            parameters |= {one.name: one for one in _parameters_of(parameter.annotation)}
        else:
            parameters[name] = parameter
    abouts = {name: limits_of(parameter) for name, parameter in parameters.items()}
    # An argument, of which nothing is known, stands in capitals.
    options = {name: about.options_of(name)[0] if about.help else name.upper() for name, about in abouts.items()}

    @functools.wraps(function)
    def run(**arguments):
        try:
            arguments = {name: _read(name, value, abouts[name]) for name, value in arguments.items()}
            if {"seed", "seeds"} <= arguments.keys():
                check_seeds(arguments["seed"], arguments["seeds"])
            for name, group in groups.items():
                fields = [field.name for field in dataclasses.fields(group)]
                arguments[name] = group(**{field: arguments.pop(field) for field in fields})
            with _ended_alike():
                function(**arguments)
        except InputError as error:
            print(f"error: {_sentence(error, options)}", file=sys.stderr)
            raise typer.Exit(2) from None
        except OSError as error:
            if error.filename is None:
                raise
            said = f"{error.filename} cannot be used: {error.strerror}."
            if error.errno == errno.ENAMETOOLONG:
                said = f"{str(error.filename)[:60]}... is longer than a file's name may be: give a shorter one."
            print(f"error: {said}", file=sys.stderr)
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            raise typer.Exit(130) from None

    run.__signature__ = signature.replace(parameters=list(parameters.values()))
    run.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
    return run


@contextlib.contextmanager
def _ended_alike():
    """SIGTERM, by which schedulers and containers end a process, ends the block as Ctrl-C does."""

    def end(number, frame):
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def limits_of(parameter):
    """What a parameter can be, a `Choice`; of an argument one without help, of any value."""
    metadata = getattr(parameter.annotation, "__metadata__", ())
    choice = next((one for one in metadata if isinstance(one, Choice)), Choice(""))
    return dataclasses.replace(choice, range=choice.range or RANGES.get(parameter.name))


def _read(name, value, about):
    """A parameter's value, of what it can be; `~` in paths is as a shell has it, which leaves it as it is behind
    `=`."""
    if isinstance(value, (list, tuple)):
        return [_read(name, one, about) for one in value]
    if isinstance(value, pathlib.Path) or isinstance(value, str) and re.match("~[^/]*/", value):
        value = type(value)(to_path(value))
    if value is None:
        return None
    if about.values is not None:
        check_choice(name, value, about.values)
    if about.range is not None and not isinstance(value, str) and about.range.problem(value) is not None:
        raise InputError(f"{{{name}}} {about.range.problem(value)}.", **{name: value})
    return about.read(value) if about.read is not None else value


def _sentence(error, options):
    """An `InputError`'s message; where it names an argument outright, its option, by the names of parameters, stands in
    its place."""
    flags = set(options.values())
    of_words = {option[2:].replace("-", "_"): option for option in flags if option.startswith("--")}
    of_fields = {name: option_of(name) for name in choices() if option_of(name) in flags}
    of_python = {name: one for name, one in _OF_PYTHON.items() if one in flags}
    options = of_words | of_fields | of_python | options

    def spelled(name, value):
        if name not in options:
            return name if value is NAME else f"{name}={shown(value)}"
        if not options[name].startswith("--"):
            return options[name] if value is NAME else str(value)
        if value is False:
            return options[name].replace("--", "--no-", 1)
        if value is True or value is NAME:
            return options[name]
        return f"{options[name]} {value if isinstance(value, (str, pathlib.Path)) else shown(value)}"

    names = "|".join(name for name in options if "_" in name) or "(?!)"
    named = rf"(?<![\w.='\"/-])({names})\b(?![\w.('\"/])"
    return re.sub(named, lambda name: options[name[0]], error.spelled(spelled))
