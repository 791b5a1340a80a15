"""What the benchmark commands that write one JSON file have in common."""

import json
import os
import pathlib
import time

from benchmarks.provenance import installed_versions, provenance

RESULTS = pathlib.Path(__file__).resolve().parent / "results"


def add_arguments(parser, *, smoke):
    """The options `--data-dir`, `--output` and `--smoke`; `smoke` says what the last one does."""
    parser.add_argument("--data-dir", help="folder with tfds glue/sst2; default: tensorflow_datasets' own")
    parser.add_argument("--output", type=pathlib.Path, help="new JSON file; default: dated, in benchmarks/results")
    parser.add_argument("--smoke", action="store_true", help=f"{smoke}, nothing kept: does it run?")


def parse_arguments(parser, arguments, name):
    """The parsed options; their `output` is the file to write, or None of a smoke run. A file that is there is refused."""
    options = parser.parse_args(arguments)
    if options.output is None and not options.smoke:
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
        describe: function of the result that returns its text.
    """
    result = {
        "kind": kind, **provenance(),
        "versions": installed_versions("tensorflow", "tf-keras", "tensorflow-text", "transformers", "numpy", "tf_adapters"),
        "settings": {name: getattr(options, name) for name in settings},
        **measured,
    }  # fmt: skip
    print(describe(result))
    if options.output is not None:
        write_result(options.output, result)
        print(f"Written to {os.path.relpath(options.output)}")


def write_result(path, result):
    """Write JSON to a new file; FileExistsError if it is there, for results are added and never edited."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "x", encoding="utf-8") as file:
        file.write(json.dumps(result, indent=1) + "\n")
