"""Adapter directories that a command is given, here or on the HuggingFace hub, and what they were trained for."""

import pathlib
import shlex

from tf_adapters.cli.quiet import terminal
from tf_adapters.errors import InputError
from tf_adapters.paths import to_path


def local(source, find=None):
    """The folder of an adapter directory that a command was given; of one on the hub its copy here, and a line on
    standard error that says so.

    Args:
        source: path, or `owner/name` or `owner/name@revision`.
        find: function that finds it, of its source; None for `find_adapter`.
    """
    from tf_adapters.saving.hub import find_adapter

    folder = (find or find_adapter)(source)
    if folder != to_path(source):
        terminal(stderr=True).print(f"{source} is commit {folder.name[:12]} on the hub.")
    return folder


def name_of(source, folder):
    """What an adapter directory is called: `folder` is what `local(source)` gave."""
    if folder != to_path(source):
        return str(source).partition("@")[0].partition("/")[2]
    return folder.resolve().name


def check_pairs(settings, text_pair_column, directory):
    """Raise InputError if single texts are given to an adapter that was trained on pairs, or pairs to another."""
    trained = (settings["task"] or {}).get("text_pairs")
    if trained and text_pair_column is None:
        raise InputError(f"{directory} was trained on pairs of texts: give the second by --text-pair-column.")
    if trained is False and text_pair_column is not None:
        raise InputError(
            f"--text-pair-column {text_pair_column}: {directory} was trained on single texts; leave it out."
        )


def reading_of(settings, path, given):
    """How a file is read: as the options say, and where they say nothing as the directories' training file.

    Args:
        settings: list of settings of directories; if they were trained on files that were read in different ways, none
            of these counts.
        path: of the file.
        given: dict of all options of reading by their parameters, `format` among them; None where one was not given.
            Others than these are not taken from training.

    Returns: those that have a value, a dict; and a sentence that says which come from training, or None.

    Raises: InputError, for an encoding, a header or a delimiter that cannot be.
    """
    from tf_adapters.tasks.lines import Dialect
    from tf_adapters.tasks.own_files import kept_reading

    reading = {name: value for name, value in given.items() if value is not None}
    Dialect(**{name: reading[name] for name in ("encoding", "header", "delimiter") if name in reading})
    about = {"format": given["format"], "header": given.get("header")}
    kept = [kept_reading((one["task"] or {}).get("reading"), path, **about) for one in settings]
    # Directories of one file may have other labels.
    kept = [{name: value for name, value in one.items() if name in given} for one in kept]
    if any(one != kept[0] for one in kept):
        return reading, None
    trained = {name: value for name, value in kept[0].items() if given[name] is None}
    words = [word for name, value in trained.items() for word in (f"--{name.replace('_', '-')}", value)]
    note = f"{path} is read as the training file: {shlex.join(words)}" if words else None
    return {**reading, **trained}, note


def named_directories(given):
    """Paths of adapter directories by task name, from arguments `DIRECTORY` or `NAME=DIRECTORY`; a dict.

    A directory may be on the hub.
    """
    named = {}
    for argument in given:
        name, _, path = (
            argument.partition("=") if "=" in argument and not pathlib.Path(argument).is_dir() else ("", "", argument)
        )
        folder = local(path)
        if not folder.is_dir():
            raise InputError(
                f"{argument}: there is no such directory" + (f", and none called {path}." if path != argument else ".")
            )
        name = name or name_of(path, folder)
        if name in named:
            raise InputError(f"{path} and {named[name]} are both called {name!r}: give NAME=DIRECTORY for one of them.")
        named[name] = str(folder)
    return named


def encoder_source(named, model):
    """Where the encoder of these directories comes from: `model`, or what the first one says. Reads the settings of
    all."""
    from tf_adapters.saving.settings import read_settings

    sources = [read_settings(path)["backbone"]["source"] for path in named.values()]
    if model is None and sources[0] is None:
        raise InputError(f"{next(iter(named.values()))} does not say where its encoder came from: give --model.")
    return model or sources[0]


def load_scorer(directory, source, console, **about):
    """The `Scorer` of an adapter directory and its settings, as of `load_pipeline`."""
    from tf_adapters.pipeline import load_pipeline

    with console.status("Loading the encoder ..."):
        return load_pipeline(directory, backbone=source, **about)


def load_bank(named, source, console, **about):
    """An `AdapterBank` of the named directories, with its progress shown; `about` as of it."""
    from tf_adapters.cli.progress import counting
    from tf_adapters.serving.bank import AdapterBank

    with console.status("Loading the encoder ..."):
        bank = AdapterBank(source, **about)
    with counting(console, "loading", total=len(named), unit="adapters") as advance:
        for name, path in named.items():
            bank.add(name, path)
            advance(1)
    return bank
