"""Runs a module of this package: by a command's script, or of a worker `python benchmarks/start.py MODULE`."""

import importlib
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent


def run(module):
    """Call the `main` of `benchmarks.MODULE`."""
    # Python searches the script's own folder, from which this package cannot be imported.
    sys.path[0] = str(HERE.parent)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    importlib.import_module(f"benchmarks.{module}").main()


def command(module, *arguments, python=sys.executable, checkout=HERE.parent):
    """The words that run a module's `main` in another process, of another checkout if one is given."""
    return [str(python), str(pathlib.Path(checkout) / HERE.name / "start.py"), module, *map(str, arguments)]


if __name__ == "__main__":
    run(sys.argv.pop(1))
