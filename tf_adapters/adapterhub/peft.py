"""LoRA in the directories of PEFT."""

import dataclasses
import functools
import re

import tensorflow as tf

from tf_adapters.adapterhub.description import HEAD_TYPES, HeadDescription
from tf_adapters.adapterhub.lora import dense_layers, values
from tf_adapters.adapterhub.weights import by_site, check_kind, matched, read_weights, refuse_setting
from tf_adapters.errors import InputError, shown
from tf_adapters.methods.lora import LoraConfig
from tf_adapters.models.state import state_of
from tf_adapters.models.weight_files import WEIGHT_FILES, named_weights, open_weights
from tf_adapters.ranges import is_int

# What LoraConfig or the head take up, and what changes nothing of what is computed.
_READ = (
    "peft_type", "r", "lora_alpha", "use_rslora", "lora_dropout", "target_modules", "exclude_modules",
    "layers_to_transform",
    "layers_pattern", "modules_to_save", "task_type", "auto_mapping", "base_model_name_or_path", "init_lora_weights",
)  # fmt: skip
_WITHOUT_EFFECT = (
    "peft_version", "revision", "inference_mode", "ensure_weight_tying", "megatron_core", "qalora_group_size",
    "eva_config", "runtime_config",
)  # fmt: skip
# The others change the encoder's own weights, which the file does not hold.
_INITIALISATIONS = (True, False, "gaussian", "eva", "orthogonal")
_PARTS = {"lora_A.weight": "a", "lora_B.weight": "b"}
_LONGEST_PATTERN = 1000
_PREFIX = "base_model.model."
_TASKS = {"SEQ_CLS": "classification", "TOKEN_CLS": "token-classification", "QUESTION_ANS": "question-answering"}


def read(model, directory, settings):
    """The name, the `LoraConfig` and the values, by the keys of layers, of the LoRA in a directory."""
    config = _scales(settings, directory)
    weights, path = _weights(directory)
    _refuse_trained_encoder(model, [key for key in weights if not _is_lora(key)], path)
    weights = {key: value for key, value in weights.items() if _is_lora(key)}
    denses, depth, base = dense_layers(model), len(state_of(model).family.blocks(model)), model.base_model_prefix + "."
    found = by_site(model, weights, {f"{dense}.": site for site, (dense, _) in denses.items()}, path)
    bare = not any(key.startswith(base) for key in weights)
    names = {site: dense.removeprefix(base) if bare else dense for site, (dense, _) in denses.items()}
    sites = {site for site, name in names.items() if _is_target(name, settings, directory)}
    asked = f"{directory}: target_modules={shown(settings.get('target_modules'))}"
    if not sites:
        raise InputError(f"{asked} names no dense layer such as {next(iter(names.values()))!r}.")
    blocks, targets = (sorted({site[part] for site in sites}) for part in (0, 1))
    if len(sites) != len(blocks) * len(targets):
        raise InputError(f"{asked} cannot be imported: LoraConfig has the same layers in every block.")
    for block, place in set(found) - sites:
        raise InputError(f"{path} has LoRA in block {block} ({place}), which adapter_config.json leaves out.")
    config = dataclasses.replace(config, targets=targets, blocks=None if len(blocks) == depth else blocks)
    return "default", config, values(config, found, _PARTS, denses, depth, path)


def read_head(model, state, directory, settings):
    """As `weights.read_head`, of what `modules_to_save` left in a directory; PEFT's files do not name the labels."""
    weights, path = _weights(directory)
    weights = {key: value for key, value in weights.items() if not _is_lora(key)}
    if not weights:
        return {}, False, None
    head = _head_of(settings)
    if head is not None:
        check_kind(model, state, head, directory)
    pooler = named_weights(state.family.pooler(model).weights) if state.family.reads_pooler(model) else {}
    has_pooler, targets = any(name in pooler for name in weights), named_weights(state.head_variables(model))
    if has_pooler:
        targets |= pooler
    elif any(name in targets for name in pooler):
        # Pretrained or not, PEFT leaves the encoder's as it is in its files.
        if not _has_file_of_pooler(state):
            raise InputError(
                f"{path} has no pooler, and neither has {state.source}: its head's is lost; pass {{head}}.", head=False
            )
        targets = {name: target for name, target in targets.items() if name not in pooler}
    return matched(weights, targets, path), has_pooler, None


def describe_head(directory, settings):
    """As `bridge.describe_head`; PEFT's files do not name the labels."""
    weights, path = _weights(directory)
    names = ("classifier.out_proj.weight", "classifier.weight", "qa_outputs.weight")
    last = next((weights[name] for name in names if name in weights), None)
    if last is None:
        other = next((name for name in weights if not _is_lora(name)), None)
        if other is not None:
            raise InputError(
                f"{path} holds {shown(other)}, neither LoRA nor of a known head: pass {{head}}.", head=False
            )
        return None
    head = _head_of(settings)
    if head is None:
        raise InputError(f"{path} has a head, and adapter_config.json no task for it: pass {{head}}.", head=False)
    return HeadDescription(
        path, head, name=None, flexible=None, label2id={f"LABEL_{number}": number for number in range(len(last))}
    )


def _head_of(settings):
    mapping = settings.get("auto_mapping")
    theirs = str(mapping.get("base_model_class")) if isinstance(mapping, dict) else ""
    by_class = (head for head, (suffix, _) in HEAD_TYPES.items() if theirs.endswith(suffix))
    return _TASKS.get(str(settings.get("task_type"))) or next(by_class, None)


def _weights(directory):
    weights, path = read_weights(directory, "peft")
    return {key.removeprefix(_PREFIX): value for key, value in weights.items()}, path


def _refuse_trained_encoder(model, names, path):
    """Raise InputError if one of these weights is in the encoder, but for its pooler, which is read with the head."""
    state, base = state_of(model), model.base_model_prefix
    encoder = {name.split(".")[1] for name in named_weights(state.family.main_layer(model).weights)} - {"pooler"}
    for name in names:
        part = name.removeprefix(f"{base}.").partition(".")[0]
        if part in encoder or name.startswith(f"{base}.") and part != "pooler":
            raise InputError(
                f"{path} holds {shown(name)}, which is of the encoder itself and not LoRA: merge all of it in PEFT "
                "(merge_and_unload), and load what that saves as an encoder."
            )


def _has_file_of_pooler(state):
    """Whether the encoder's files have a pooler; of a model that was built without files the user knows."""
    if state.directory is None:
        return True
    with open_weights(state.directory, WEIGHT_FILES) as weights:
        return any("pooler." in name for name in weights)


def _is_lora(key):
    return ".lora_" in key


def _scales(settings, directory):
    """A `LoraConfig` without its places; InputError for what has no like here."""
    if settings["peft_type"] != "LORA":
        raise InputError(
            f"{directory} has peft_type={shown(settings['peft_type'])}: of PEFT's directories those of 'LORA' are read."
        )
    refuse = functools.partial(refuse_setting, directory, settings)
    if settings.get("bias", "none") != "none":
        refuse("bias", "the encoder's biases were trained, which stay as they are here ('none')")
    start = settings.get("init_lora_weights", True)
    if not isinstance(start, (bool, str)) or start not in _INITIALISATIONS:
        refuse("init_lora_weights", "it changes the encoder's own weights, which the file does not hold")
    for name in ("target_modules", "exclude_modules", "layers_pattern"):
        value = settings.get(name)
        if not isinstance(value, (str, list, type(None))) or not all(isinstance(part, str) for part in value or ()):
            refuse(name, "it must be a string or a list of them")
    numbers = settings.get("layers_to_transform")
    if numbers is not None and not all(map(is_int, numbers if isinstance(numbers, list) else [numbers])):
        refuse("layers_to_transform", "it must be a number of a block or a list of them")
    # A setting that is not known here may change what is computed.
    for name in sorted(set(settings) - {*_READ, *_WITHOUT_EFFECT, "bias"}):
        if settings[name]:
            refuse(name, "LoraConfig has no like of it")
    config = LoraConfig(
        rank=settings.get("r", 8), alpha=settings.get("lora_alpha", 8), dropout=settings.get("lora_dropout", 0.0)
    )
    return dataclasses.replace(config, alpha=config.alpha * config.rank**0.5) if settings.get("use_rslora") else config


def _is_target(name, settings, directory):
    """Whether a dense layer of that name has LoRA, as PEFT decides it."""
    targets, excluded, numbers = (
        settings.get(key) for key in ("target_modules", "exclude_modules", "layers_to_transform")
    )
    if excluded and _matches(name, excluded, directory):
        return False
    if isinstance(targets, str):
        return targets.lower() == "all-linear" or _matches(name, targets, directory)
    if not _matches(name, targets or (), directory):
        return False
    if numbers is None or numbers == [] or name in targets:
        return True
    patterns = settings.get("layers_pattern") or r"[^.]*"
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        whole = rf"(?:(?:^|.*?\.){pattern}\.(\d+)\.).*"
        if _fullmatch(whole, name, directory):
            number = _regex(tf.strings.regex_replace, name, whole, r"\1", directory=directory).decode()
            return re.fullmatch(r"\d{1,9}", number) is not None and int(number) in (
                numbers if isinstance(numbers, list) else [numbers]
            )
    return False


def _matches(name, targets, directory):
    if isinstance(targets, str):
        return _fullmatch(targets, name, directory)
    return any(name == target or name.endswith(f".{target}") for target in targets)


def _fullmatch(pattern, name, directory):
    return bool(_regex(tf.strings.regex_full_match, name, pattern, directory=directory))


def _regex(function, name, pattern, *more, directory):
    """What one of TensorFlow's functions of regular expressions says, whose engine (RE2) takes linear time, as Python's
    does not."""
    try:
        if len(pattern) > _LONGEST_PATTERN:
            raise ValueError(f"it has more than {_LONGEST_PATTERN} characters")
        re.compile(pattern)  # RE2 also writes to the standard error what it finds wrong
        with tf.device("CPU:0"):
            return function(name, pattern, *more).numpy()
    except (re.error, RecursionError, OverflowError, tf.errors.InvalidArgumentError, ValueError) as error:
        reason = str(getattr(error, "message", error)).rpartition("error: ")[2].partition(" [Op")[0][:100]
        raise InputError(
            f"{directory}: {shown(pattern)} is no regular expression that is read here ({reason}): give a list."
        ) from None
