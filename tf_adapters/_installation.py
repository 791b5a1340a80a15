"""The version, whether the installed packages can serve, the cores, and names that are imported at first use: what is
told before anything heavy is imported."""

import contextlib
import importlib
import importlib.metadata
import importlib.util
import os

__version__ = "0.1.0"


class MissingPackageError(ImportError):
    """A package that is needed is not there; the message says how to get it."""


def check_installation():
    """Raise MissingPackageError, in one sentence, if neither transformers' models nor KerasHub's can be used.

    Looks at metadata only and imports neither, so that it costs milliseconds.
    """
    if importlib.util.find_spec("keras_hub") is None:
        check_first_door()


def check_first_door():
    """Raise MissingPackageError, in one sentence, if tf-keras or transformers cannot serve."""
    if importlib.util.find_spec("tf_keras") is None:
        raise MissingPackageError(
            "tf_adapters needs Keras 2 as the package tf-keras, which is not installed: run `pip install tf-keras` in "
            "the version of your TensorFlow."
        )
    try:
        version = importlib.metadata.version("transformers")
    except importlib.metadata.PackageNotFoundError:
        raise MissingPackageError(
            "tf_adapters needs transformers, which is not installed: run `pip install 'transformers>=4.48,<5'`."
        ) from None
    if int(version.split(".")[0]) >= 5:
        raise MissingPackageError(
            f"tf_adapters needs the TensorFlow classes of transformers 4, and transformers {version} has none: "
            "run `pip install 'transformers>=4.48,<5'`."
        )


def usable_cores():
    """Return how many cores this process may use, an int: as TensorFlow counts, not all that the machine has."""
    affinity = getattr(os, "sched_getaffinity", None)  # of Linux alone
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def versions():
    """Of the packages that decide what comes out, a dict."""
    found = {"tf_adapters": __version__}
    for name in ("tensorflow", "tf-keras", "transformers", "numpy"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def submodules_of(package, **public):
    """A package's `__getattr__`, which imports what a name stands for, so that `tf_adapters.text.wordpiece` needs no
    import of its own, or raises AttributeError.

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
