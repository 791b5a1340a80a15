"""What trains, and how."""

from tf_adapters._installation import submodules_of

__getattr__ = submodules_of(__name__, make_strategy="strategies")
