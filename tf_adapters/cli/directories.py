"""Paths that a command is given: adapter directories, here or on the HuggingFace hub, and what it will write to."""

import json
import os
import pathlib
import shlex

from tf_adapters.cli.quiet import counting, terminal
from tf_adapters.errors import InputError
from tf_adapters.paths import to_path, what_it_lacks
from tf_adapters.saving.atomic import holds_files
from tf_adapters.saving.hub import find_adapter
from tf_adapters.saving.settings import read_settings
from tf_adapters.tasks.own_files import kept_reading
from tf_adapters.training.disk import remove_leftovers


def local(source, find=find_adapter):
    """The folder of an adapter directory that a command was given by its path, or by `owner/name` or
    `owner/name@revision` on the hub: then its copy here, which `find` gets, and a line on standard error that says so.
    """
    folder = find(source)
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
    """How a file is read, a dict: as `given` says, a dict of all options by their parameters, and where it has None as
    the training file of the directories with these settings, unless they differ in that; and a sentence that says what
    comes from training, or None."""
    reading = {name: value for name, value in given.items() if value is not None}
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
                f"{argument}: {what_it_lacks(folder)}" + (f", and none called {path}." if path != argument else ".")
            )
        name = name or name_of(path, folder)
        if name in named:
            raise InputError(f"{path} and {named[name]} are both called {name!r}: give NAME=DIRECTORY for one of them.")
        named[name] = str(folder)
    return named


def encoder_source(named, model):
    """Where the encoder of these directories comes from: `model`, or what the first one says. Reads the settings of
    all."""
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
    from tf_adapters.serving.bank import AdapterBank

    with console.status("Loading the encoder ..."):
        bank = AdapterBank(source, **about)
    with counting(console, "loading", total=len(named), unit="adapters") as advance:
        for name, path in named.items():
            bank.add(name, path)
            advance(1)
    return bank


def json_text(content, *, problem, **layout):
    """JSON as the standard has it, without NaN and infinity; raises InputError of `problem`, a sentence, where a number
    is one of them."""
    try:
        return json.dumps(content, ensure_ascii=False, allow_nan=False, **layout)
    except ValueError:
        raise InputError(problem) from None


# What is looked at before any long work


def check_writable(path, *, option="--output"):
    """Raise InputError unless `path` can be made where it says."""
    path = pathlib.Path(path)
    ancestor = path.absolute().parent
    while not os.path.lexists(ancestor):
        ancestor = ancestor.parent
    longest = os.pathconf(ancestor, "PC_NAME_MAX")
    for part in path.absolute().relative_to(ancestor).parts:
        if len(os.fsencode(part)) > longest:
            raise InputError(
                f"{option} {str(path)[:60]}...: {part[:20]}... is longer than the {longest} bytes of a name here; give "
                "a shorter one."
            )
    if not ancestor.is_dir():
        raise InputError(f"{option} {path}: {ancestor} is not a directory; give a path below one.")
    if not os.access(ancestor, os.W_OK | os.X_OK):
        raise InputError(f"{option} {path}: {ancestor} cannot be written to; give a path where you may write.")


def check_folder(output, resume, overwrite, *, marker, what, unfinished=None, leftovers=False, run="interrupted run"):
    """Raise InputError unless a command may write a file `marker` to a folder, which makes it `what`, or go on with
    what is there: something `unfinished` (None where the marker says so), a `run`, or `leftovers` of a killed one that
    nobody goes on with. With the marker alone an earlier command has finished."""
    finished = (output / marker).exists()
    unfinished = finished if unfinished is None else unfinished
    if output.exists() and not output.is_dir():
        raise InputError(f"--output {output} is a file: give a directory.")
    check_writable(output / marker)
    if resume and overwrite:
        raise InputError("--resume and --overwrite exclude each other: give one of them.")
    if resume and not unfinished:
        if finished:
            remove_leftovers(output)
            raise InputError(
                f"--resume: {output} holds no {run}, but what one came to: use it, or replace it by --overwrite."
            )
        raise InputError(f"--resume: {output} holds no {run}; start one without --resume.")
    if resume or not holds_files(output):
        return
    if not (unfinished or finished or leftovers):
        raise InputError(
            f"--output {output} holds other files than {what}; remove them yourself, or give another directory."
        )
    if not overwrite:
        advice = (
            "go on with it by --resume, or replace it by --overwrite" if unfinished else "replace it by --overwrite"
        )
        raise InputError(f"--output {output} is not empty: {advice}, or give another directory.")


def going_on(overwrite):
    """How a run that was ended goes on, a sentence; `overwrite` is whether its command had --overwrite."""
    return f"Go on with the same command and --resume{' in place of --overwrite' if overwrite else ''}."


def next_directory(output):
    """Where what comes after a folder's own command may go: a directory of its name below `adapters`."""
    path = pathlib.Path("adapters", output.resolve().name)
    return path if path.resolve() != output.resolve() else path.with_name(f"{path.name}-trained")


def check_new_file(path, *, overwrite, option="--output"):
    """Raise InputError unless a file may be written to `path`."""
    path = pathlib.Path(path)
    if path.is_dir() or path.name == "-":
        is_what = "a directory" if path.is_dir() else "standard output, which has the tables"
        raise InputError(f"{option} {path} is {is_what}: give the name of a file.")
    if path.exists() and not overwrite:
        raise InputError(f"{option} {path} is there already: replace it by --overwrite, or give another name.")
    check_writable(path, option=option)
