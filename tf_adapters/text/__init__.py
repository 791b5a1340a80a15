"""Text to tensors: the same operations in the input pipeline and in the served graph."""

from tf_adapters._submodules import submodules_of

__getattr__ = submodules_of(__name__)
