"""Runs a command of this package: from its script, by `python -m benchmarks NAME`, or as another process."""

import importlib
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent


def run(name):
    """Call `main` of the module of this name, in whichever folder it is."""
    # Python searches the script's own folder, from which this package cannot be imported.
    sys.path[0] = str(HERE.parent)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    rooms = [room for room in ("steps", "studies", "peers", "campaigns") if (HERE / room / f"{name}.py").exists()]
    sys.argv[0] = name
    importlib.import_module(".".join(["benchmarks", *rooms, name])).main()


def command(module, *arguments, python=sys.executable, checkout=HERE.parent):
    """The words that run a module's `main` in another process, of another checkout if one is given."""
    return [str(python), str(pathlib.Path(checkout) / HERE.name / "start.py"), module, *map(str, arguments)]


if __name__ == "__main__":
    run(sys.argv.pop(1))
