"""What adapter directories were trained for."""

import pathlib

from tf_adapters.errors import InputError


def check_pairs(settings, text_pair_column, directory):
    """Raise InputError if single texts are given to an adapter that was trained on pairs, or pairs to another."""
    trained = (settings["task"] or {}).get("text_pairs")
    if trained and text_pair_column is None:
        raise InputError(f"{directory} was trained on pairs of texts: give the second by --text-pair-column.")
    if trained is False and text_pair_column is not None:
        raise InputError(
            f"--text-pair-column {text_pair_column}: {directory} was trained on single texts; leave it out."
        )


def named_directories(given):
    """Paths of adapter directories by task name, from arguments `DIRECTORY` or `NAME=DIRECTORY`; a dict."""
    named = {}
    for argument in given:
        name, _, path = (
            argument.partition("=") if "=" in argument and not pathlib.Path(argument).is_dir() else ("", "", argument)
        )
        if not pathlib.Path(path).is_dir():
            raise InputError(
                f"{argument}: there is no such directory" + (f", and none called {path}." if path != argument else ".")
            )
        name = name or pathlib.Path(path).resolve().name
        if name in named:
            raise InputError(f"{path} and {named[name]} are both called {name!r}: give NAME=DIRECTORY for one of them.")
        named[name] = path
    return named


def encoder_source(named, model):
    """Where the encoder of these directories comes from: `model`, or what the first one says. Reads the settings of
    all."""
    from tf_adapters.saving.settings import read_settings

    sources = [read_settings(path)["backbone"]["source"] for path in named.values()]
    if model is None and sources[0] is None:
        raise InputError(f"{next(iter(named.values()))} does not say where its encoder came from: give --model.")
    return model or sources[0]


def load_bank(named, source, console, *, storage="float32"):
    """An `AdapterBank` of the named directories, with its progress shown."""
    from tf_adapters.cli.progress import counting
    from tf_adapters.serving.bank import AdapterBank

    with console.status("Loading the encoder ..."):
        bank = AdapterBank(source, storage=storage)
    with counting(console, "loading", total=len(named), unit="adapters") as advance:
        for name, path in named.items():
            bank.add(name, path)
            advance(1)
    return bank
