"""Methods of adaptation, one a file: what it is like, and its layer."""

import importlib

from tf_adapters._submodules import submodules_of
from tf_adapters.errors import InputError, shown

# `method` of a saved config -> its class. A new one is a file and a line here.
_CONFIGS = {
    "bottleneck": ("tf_adapters.methods.bottleneck", "AdapterConfig"),
    "lora": ("tf_adapters.methods.lora", "LoraConfig"),
    "dora": ("tf_adapters.methods.dora", "DoraConfig"),
    "ia3": ("tf_adapters.methods.ia3", "IA3Config"),
    "fusion": ("tf_adapters.methods.fusion", "FusionConfig"),
}
# Of directories that are older than the other methods.
_UNNAMED = "bottleneck"

__getattr__ = submodules_of(__name__)


def config_from_dict(values):
    """The configuration that an adapter directory holds: an `AdapterConfig`, `LoraConfig`, `IA3Config` or `FusionConfig`."""
    method = values.get("method", _UNNAMED) if isinstance(values, dict) else _UNNAMED
    if not isinstance(method, str) or method not in _CONFIGS:
        raise InputError(f"method={shown(method)} is unknown: it is one of {', '.join(map(repr, _CONFIGS))}.")
    module, name = _CONFIGS[method]
    return getattr(importlib.import_module(module), name).from_dict(values)
