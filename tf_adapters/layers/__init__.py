"""Pure Keras layers that know nothing of HuggingFace."""

from tf_adapters._installation import submodules_of

__getattr__ = submodules_of(__name__)
