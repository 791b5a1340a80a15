"""What leaves Python: models for servers."""

from tf_adapters._installation import submodules_of

__getattr__ = submodules_of(__name__)
