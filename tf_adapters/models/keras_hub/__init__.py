"""The second door: KerasHub's backbones, on Keras 3 and any of its backends. The only room that touches their code."""

from tf_adapters._submodules import submodules_of

__getattr__ = submodules_of(__name__)
