"""`adapter_config.json`, read without TensorFlow."""

import json
import pathlib

from tf_adapters.errors import InputError


def read_description(directory):
    """The content of AdapterHub's `adapter_config.json`, a dict; InputError if there is none, or it is of something else."""
    directory = pathlib.Path(directory)
    path = directory / "adapter_config.json"
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{directory} has no adapter_config.json, so it is no directory of AdapterHub's.") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"{path} is not JSON: {error}.") from None
    if isinstance(settings, dict) and "peft_type" in settings:
        raise InputError(f"{directory} is PEFT's ({settings['peft_type']}), whose file has the same name: only AdapterHub's can be imported.")
    if not isinstance(settings, dict) or not isinstance(settings.get("config", {}), dict):
        raise InputError(f"{path} is no description of an adapter: it must have an object config.")
    architecture = (settings.get("config") or {}).get("architecture")
    if architecture is not None:
        raise InputError(f"{directory} has the architecture {architecture!r}: only bottleneck adapters can be imported.")
    return settings
