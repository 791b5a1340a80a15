"""An encoder's `config.json`, which a stranger wrote: the keys that are read, each of its type, and nothing else of
it."""

import inspect

from tf_adapters.errors import InputError, shown
from tf_adapters.models.transformers.family import get_family
from tf_adapters.paths import read_json, to_path
from tf_adapters.ranges import is_int, is_real

# They change what an encoder computes, to what is not implemented here.
_REFUSED = ("is_decoder", "add_cross_attention", "pruned_heads", "rope_parameters", "rope_scaling")
_MOST = 2**31 - 1


def read_config(directory):
    """Family and configuration object of the model in a directory; data only, nothing is run.

    Only what the family's configuration class and model read of the shape of an encoder, and names of labels, comes
    into the object. transformers would keep every other key as an attribute, among them ones that choose code to fetch
    and run.
    """
    path = to_path(directory) / "config.json"
    if not path.exists():
        raise InputError(f"{directory} holds no config.json, so it is no transformers model.")
    values = read_json(path)
    if "registered_name" in values:
        raise InputError(f"{directory} is a preset of KerasHub, which goes through {{door}} alone.", door="keras-hub")
    if "model_type" not in values:
        raise InputError(f"{path} has no model_type, so it is no transformers model configuration.")
    family = get_family(values["model_type"])
    if values.get("position_embedding_type", "absolute") != "absolute":
        raise InputError(
            f"{path}: position_embedding_type={shown(values['position_embedding_type'])} is not implemented by "
            "transformers' TensorFlow classes, which know 'absolute' only."
        )
    for name in _REFUSED:
        if values.get(name):
            raise InputError(
                f"{path}: {name}={shown(values[name])} is not supported: give a plain encoder, without it."
            )
    defaults = _defaults(family)
    kept = {name: values[name] for name in defaults if name in values}
    for name, value in kept.items():
        _check(name, value, defaults[name], path)
    return family, family.config_class(**kept, **_labels(values.get("id2label")))


def _defaults(family):
    """The keys of a family's `config.json` that are read, with their defaults."""
    parameters = list(inspect.signature(family.config_class.__init__).parameters.values())[1:]
    found = {
        parameter.name: parameter.default
        for parameter in parameters
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    }
    other_names = {name: found[own] for name, own in family.config_class.attribute_map.items() if own in found}
    return {**found, **other_names, **family.config_keys}


def _check(name, value, default, path):
    """Raise InputError for a value of another type than the default's, or one that no encoder has."""
    if isinstance(default, bool):
        right, must = isinstance(value, bool), "true or false"
    elif name.endswith("token_id"):
        right, must = value is None or is_int(value), "an integer or null"
    elif isinstance(default, int):
        # Negative ones say "as the others are".
        right, must = is_int(value) and (-1 if default < 0 else 0) <= value <= _MOST, f"an integer from 0 to {_MOST}"
    elif isinstance(default, float):
        most = 1.0 if "drop" in name else float("inf")
        right, must = (
            is_real(value) and 0 <= value <= most,
            "a number of at least 0" + (" and at most 1" if most == 1 else ""),
        )
    elif isinstance(default, str):
        right, must = isinstance(value, str), "a text"
    else:
        listed = isinstance(value, list) and all(isinstance(part, str) for part in value)
        right, must = (
            value is None or listed or isinstance(value, str) or is_real(value),
            "a number, a text, a list of texts or null",
        )
    if not right:
        raise InputError(f"{path}: {name}={shown(value)} must be {must}: restore the file.")


def _labels(names):
    """The names of labels as arguments of a configuration class, if they are complete."""
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        return {}
    if set(names) != {str(number) for number in range(len(names))} or not names:
        return {}
    ordered = [names[str(number)] for number in range(len(names))]
    return {"id2label": dict(enumerate(ordered)), "label2id": {name: number for number, name in enumerate(ordered)}}
