"""Names that are imported at first use: submodules, so that `tf_adapters.text.wordpiece` needs no import of its own,
and what is public in them."""

import importlib
import importlib.util


def submodules_of(package, **public):
    """A package's `__getattr__`, which imports what a name stands for, or raises AttributeError.

    Args:
        package: str, its name.
        public: the submodule of each of its public names.
    """

    def find(name):
        if name in public:
            return getattr(importlib.import_module(f"{package}.{public[name]}"), name)
        module = f"{package}.{name}"
        if name.startswith("_") or importlib.util.find_spec(module) is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return importlib.import_module(module)

    return find
