"""Checkpoints of `adapters` and of PEFT (PyTorch), read and, of the first, written without PyTorch."""

from tf_adapters._installation import submodules_of

__all__ = ["export_adapter", "import_adapter"]

# At first use, so that a directory can be looked at without TensorFlow.
__getattr__ = submodules_of(__name__, export_adapter="bridge", import_adapter="bridge")
