"""What is written to disk."""

from tf_adapters._installation import submodules_of

__getattr__ = submodules_of(
    __name__, fuse_adapters="pretrained", load_pretrained_adapter="pretrained", push_adapter="hub"
)
