"""The second door: KerasHub's backbones, on Keras 3 and any of its backends. The only room that touches their code."""

from tf_adapters._installation import submodules_of

# Keras and KerasHub find the classes of their files once this package is imported.
from tf_adapters.models.keras_hub import loading  # noqa: F401

__getattr__ = submodules_of(__name__)
