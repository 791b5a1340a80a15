"""Methods of adaptation, one a file: what it is like, and its layer."""

from tf_adapters._installation import submodules_of
from tf_adapters.errors import InputError

# `method` of a saved config, which is the name of its file -> its class. A new one is a file and a line here.
_CONFIGS = {
    "bottleneck": "AdapterConfig",
    "lora": "LoraConfig",
    "dora": "DoraConfig",
    "ia3": "IA3Config",
    "fusion": "FusionConfig",
}
# Of directories that are older than the other methods.
_UNNAMED = "bottleneck"

__getattr__ = submodules_of(
    __name__, AdapterLayer="bottleneck", **{config: method for method, config in _CONFIGS.items()}
)


def config_from_dict(values):
    """The configuration that an adapter directory holds: an `AdapterConfig`, `LoraConfig`, `IA3Config` or
    `FusionConfig`."""
    method = values.get("method", _UNNAMED) if isinstance(values, dict) else _UNNAMED
    if not isinstance(method, str) or method not in _CONFIGS:
        raise InputError(f"{{method}} is unknown: it is one of {', '.join(map(repr, _CONFIGS))}.", method=method)
    return __getattr__(_CONFIGS[method]).from_dict(values)
