"""What the commands that write one JSON file share: options and the file."""

import argparse
import json
import os
import pathlib
import time

from benchmarks.provenance import ROOT, installed_versions, provenance

RESULTS = ROOT / "benchmarks" / "results"


def make_parser(description, *, smoke):
    """A parser with the options `--data-dir`, `--output` and `--smoke`; `smoke` says what the last one does."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--data-dir", help="folder with tfds glue/sst2; default: tensorflow_datasets' own")
    parser.add_argument("--output", type=pathlib.Path, help="new JSON file; default: dated, in benchmarks/results")
    parser.add_argument("--smoke", action="store_true", help=f"{smoke}, nothing kept: does it run?")
    return parser


def at_least_1(text):
    """An option's type: an integer of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} must be an integer of at least 1.")
    return int(text)


def parse_arguments(parser, arguments, name, **smoke):
    """The parsed options; a smoke run has the values of `smoke` in place of those given.

    Their `output` is the file to write, or None of a smoke run. A file that is there is refused.
    """
    options = parser.parse_args(arguments)
    if options.smoke:
        vars(options).update(smoke)
    elif options.output is None:
        options.output = RESULTS / f"{name}-{time.strftime('%Y-%m-%d')}.json"
    if options.output is not None and options.output.exists():
        parser.error(f"{options.output} exists, and results are added, never edited: give another --output.")
    return options


def finish(kind, options, settings, measured, describe):
    """Print a result and write it with versions, commit, machine and command.

    Args:
        kind: str, by which `table.py` knows it.
        options: what `parse_arguments` returned.
        settings: names of the options to keep.
        measured: dict for JSON.
        describe: function of the result that returns its text, perhaps its table.
    """
    result = {
        "kind": kind,
        **provenance(),
        "versions": installed_versions(
            "tensorflow", "tf-keras", "tensorflow-text", "transformers", "numpy", "tf_adapters"
        ),
        "settings": {name: getattr(options, name) for name in settings},
        **measured,
    }
    print(describe(with_link(result, options.output or "not kept")))
    if options.output is not None:
        write_result(options.output, result)
        print(f"Written to {os.path.relpath(options.output)}")


def with_link(result, path):
    """A result as a table takes it, told of its file."""
    return {**result, "file": pathlib.Path(path).name, "link": os.path.relpath(path)}


def write_result(path, result):
    """Write JSON to a new file; FileExistsError if it is there, for results are added and never edited."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "x", encoding="utf-8") as file:
        file.write(json.dumps(result, indent=1) + "\n")
