"""Methods of adaptation beside bottleneck adapters, one a file: what it is like, and its layer."""

import importlib

from tf_adapters._submodules import submodules_of
from tf_adapters.config import AdapterConfig
from tf_adapters.errors import InputError, shown

# `method` of a saved config -> its class. A new one is a file and a line here.
_CONFIGS = {
    "bottleneck": ("tf_adapters.config", "AdapterConfig"),
    "lora": ("tf_adapters.methods.lora", "LoraConfig"),
    "ia3": ("tf_adapters.methods.ia3", "IA3Config"),
    "fusion": ("tf_adapters.methods.fusion", "FusionConfig"),
}

__getattr__ = submodules_of(__name__)


def config_from_dict(values):
    """The configuration that an adapter directory holds: an `AdapterConfig`, `LoraConfig`, `IA3Config` or `FusionConfig`."""
    method = values.get("method", AdapterConfig.method) if isinstance(values, dict) else AdapterConfig.method
    if not isinstance(method, str) or method not in _CONFIGS:
        raise InputError(f"method={shown(method)} is unknown: it is one of {', '.join(map(repr, _CONFIGS))}.")
    module, name = _CONFIGS[method]
    return getattr(importlib.import_module(module), name).from_dict(values)
