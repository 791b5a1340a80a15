"""What trains, and how."""

from tf_adapters._submodules import submodules_of

__getattr__ = submodules_of(__name__, make_strategy="strategies")
