"""Checkpoints of AdapterHub's `adapters` (PyTorch), read and written without PyTorch."""

from tf_adapters.adapterhub.exporting import export_adapter
from tf_adapters.adapterhub.importing import import_adapter

__all__ = ["export_adapter", "import_adapter"]
