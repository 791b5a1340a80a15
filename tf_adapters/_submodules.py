"""Submodules that are imported at first use, so that a name such as `tf_adapters.text.wordpiece` needs no import of its own."""

import importlib
import importlib.util


def submodules_of(package):
    """A package's `__getattr__`, which imports the submodule of a name, or raises AttributeError where there is none."""

    def find(name):
        module = f"{package}.{name}"
        if name.startswith("_") or importlib.util.find_spec(module) is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return importlib.import_module(module)

    return find
