"""Checkpoints of `adapters` and of PEFT (PyTorch), read and, of the first, written without PyTorch."""

import importlib

from tf_adapters._submodules import submodules_of

_PUBLIC = {"export_adapter": "exporting", "import_adapter": "importing"}
__all__ = sorted(_PUBLIC)
_submodule = submodules_of(__name__)


def __getattr__(name):
    # At first use, so that a directory can be looked at without TensorFlow.
    if name not in _PUBLIC:
        return _submodule(name)
    return getattr(importlib.import_module(f"{__name__}.{_PUBLIC[name]}"), name)
