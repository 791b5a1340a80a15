"""What adapters do to a model: they come, act, train and go, whatever Keras it is of."""

from tf_adapters._installation import submodules_of

__getattr__ = submodules_of(
    __name__, active_adapter="injection", adapter_names="injection", backbone_digest="state",
    backbone_directory="state", cast_frozen="trainable", change_head="transformers.loading", freeze="trainable",
    frozen_digest="trainable",
)  # fmt: skip
