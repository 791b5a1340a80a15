"""Search of hyperparameters with keras-tuner, which is the extra `tuner`."""

from tf_adapters._submodules import submodules_of

__getattr__ = submodules_of(__name__, AdapterHyperModel="hypermodel", AdapterTuner="tuner")
