"""Checkpoints of `adapters` and of PEFT (PyTorch), read and, of the first, written without PyTorch."""

import importlib

_PUBLIC = {"export_adapter": "exporting", "import_adapter": "importing"}
__all__ = sorted(_PUBLIC)


def __getattr__(name):
    # At first use, so that a directory can be looked at without TensorFlow.
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PUBLIC[name]}"), name)
