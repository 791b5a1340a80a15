"""The files of an adapter directory: what they are called, how they are checked and replaced; needs no TensorFlow.

    tf_adapters.json     config, labels, text settings, recipe, the backbone's digest
    adapter.safetensors  adapters, trained LayerNorms, head, and whatever else was trained
    README.md            a model card

The JSON names the SHA-256 of the weights. A new pair is written under other names first;
replacing the JSON is the commit, after which the weights follow. Killed between the two,
a reader finds the new weights still under their other name, and takes them from there;
the next save gives them their own name before it writes. Of two saves into a directory, the second waits.
"""

import contextlib
import hashlib
import json
import os

from tf_adapters.errors import InputError, shown
from tf_adapters.paths import read_json, reading, to_path, what_it_lacks
from tf_adapters.ranges import is_int
from tf_adapters.saving.atomic import write_text
from tf_adapters.saving.model_card import model_card
from tf_adapters.tasks.labels import KINDS
from tf_adapters.tasks.own_files import check_has_task, get_reader

SETTINGS_FILE = "tf_adapters.json"
WEIGHTS_FILE = "adapter.safetensors"
CARD_FILE = "README.md"
# Where new weights lie until the settings that describe them are there.
NEXT_WEIGHTS_FILE = ".adapter.safetensors.next"

FORMAT_VERSION = 1

_OPTIONAL_DICT = (dict, type(None))
# What other code reads without asking, with the types that it may have.
_CONTENT = {
    "adapter": _OPTIONAL_DICT,
    "trainable": str,
    "recipe": (str, type(None)),
    "task": _OPTIONAL_DICT,
    "metrics": _OPTIONAL_DICT,
    "text": _OPTIONAL_DICT,
    "training": _OPTIONAL_DICT,
    "head": {"type": str, "layers": int, "num_labels": int, "labels": (list, type(None)), "pooler": bool},
    "backbone": {
        "source": (str, type(None)),
        "model_type": str,
        "hidden_size": int,
        "num_hidden_layers": int,
        "sha256": str,
        "weights_saved": bool,
    },
    "parameters": {name: int for name in ("total", "trained", "adapter", "layer_norm", "head", "backbone")},
    "weights": {"sha256": str},
}
# What directories of earlier versions lack.
_OF_A_BACKBONE = {"activation": (str, type(None)), "layer_norm_eps": (int, float), "num_attention_heads": int}
# The same of a task, of which all may be left out.
_TASK = {"name": (str, type(None)), "kind": str, "metric": (str, type(None)), "text_pairs": bool, "reading": dict}
# And of a result, which may be left out itself.
_RESULT = {
    "split": str,
    "rows": int,
    "numbers": dict,
    "without_training": dict,
    "classes": _OPTIONAL_DICT,
    "date": str,
    "versions": dict,
}
_OF_A_CLASS = ("precision", "recall", "f1", "rows")


def read_settings(directory):
    """The checked content of a directory's `tf_adapters.json`; InputError for no such directory, no adapter in it, not
    JSON, a newer format."""
    directory = to_path(directory)
    path = directory / SETTINGS_FILE
    if not directory.is_dir():
        raise InputError(f"{directory}: {what_it_lacks(directory)}.")
    with reading(path):
        found = path.exists()
    if not found:
        theirs = (directory / "adapter_config.json").exists()
        other = " (adapter_config.json there is of AdapterHub or PEFT)" if theirs else ""
        raise InputError(f"{directory} is no adapter directory: it holds no {SETTINGS_FILE}{other}.")
    settings = read_json(path, "it is damaged; copy the directory again as a whole")
    version = settings.get("format_version")
    if not is_int(version) or version > FORMAT_VERSION:
        raise InputError(
            f"{path} has format_version {shown(version)}; this version of tf_adapters reads up to {FORMAT_VERSION}: "
            "upgrade it."
        )
    damaged = f"{path} is damaged: "
    _check(settings, _CONTENT, damaged)
    _check_known(settings["backbone"], _OF_A_BACKBONE, damaged, "backbone.")
    if settings["text"] is not None:
        _check(settings["text"], {"max_length": int}, damaged, "text.")
    if settings["task"] is not None:
        check_task(settings["task"], damaged)
        check_kind(settings["task"], settings["head"]["type"], settings["head"]["num_labels"], damaged)
    if settings.get("result") is not None:
        check_result(settings["result"], damaged)
    labels = settings["head"]["labels"]
    if labels is not None and not all(isinstance(label, str) for label in labels):
        raise InputError(f"{damaged}'head.labels' is {shown(labels)}.")
    return settings


def check_task(task, where):
    """Raise InputError, whose message begins with `where`, if an entry of a task's description has another type than it
    has to have."""
    _check_known(task, _TASK, where, "task.")
    said = task.get("reading", {})
    _check(said, dict.fromkeys(said, str), where, "task.reading.")


def check_kind(task, head, outputs, where):
    """The same if such a head does not answer the kind of task that is said."""
    kind = task.get("kind", head)
    if ("classification" if kind in KINDS else kind) != head or (kind == "regression" and outputs != 1):
        raise InputError(f"{where}'task.kind' is {shown(kind)}, and the head is for {head} with {outputs} outputs.")


def check_result(result, where):
    """Raise InputError, whose message begins with `where`, if what is kept of a result is nothing that can be shown."""
    _check({"result": result}, {"result": _RESULT}, where)
    numbers = [*result["numbers"].values(), *result["without_training"].values()]
    for numbers_of in (result["classes"] or {}).values():
        if not isinstance(numbers_of, dict):
            raise InputError(f"{where}'result.classes' holds {shown(numbers_of)}.")
        numbers += [numbers_of.get(name, "") for name in _OF_A_CLASS]
    for number in numbers:
        if not (number is None or (isinstance(number, (int, float)) and not isinstance(number, bool))):
            raise InputError(f"{where}'result' holds {shown(number)} where a number has to be.")


def _check(values, content, where, prefix=""):
    for name, wanted in content.items():
        if name not in values:
            raise InputError(f"{where}it lacks {prefix + name!r}.")
        types = dict if isinstance(wanted, dict) else wanted
        if not isinstance(values[name], types) or (types is int and isinstance(values[name], bool)):
            raise InputError(f"{where}{prefix + name!r} is {shown(values[name])}.")
        if isinstance(wanted, dict):
            _check(values[name], wanted, where, f"{prefix}{name}.")


def _check_known(values, content, where, prefix):
    """The same of entries that may be left out."""
    _check(values, {name: types for name, types in content.items() if name in values}, where, prefix)


def directory_size(directory):
    """Bytes of the three files that make the adapter."""
    files = (to_path(directory) / name for name in (SETTINGS_FILE, WEIGHTS_FILE, CARD_FILE))
    return sum(file.stat().st_size for file in files if file.exists())


def kind_of(task, head, outputs):
    """The kind of task that `task` says, a dict or None; where it says none, that of a head of this type and so many
    outputs."""
    usual = "regression" if head == "classification" and outputs == 1 else head
    return (task or {}).get("kind") or usual


def task_of(settings):
    """Kind of task and names of the labels, in index order, from the directory's settings."""
    head = settings["head"]
    kind = kind_of(settings["task"], head["type"], head["num_labels"])
    check_has_task(kind)
    if not get_reader(kind).named:
        return kind, ()
    # Names that transformers gives by default are not stored.
    return kind, tuple(head["labels"] or (f"LABEL_{index}" for index in range(head["num_labels"])))


def weights_path(directory, settings):
    """Path of the weights that the settings of a directory describe; InputError if it lacks them, or has others."""
    for file in (WEIGHTS_FILE, NEXT_WEIGHTS_FILE):
        path = directory / file
        if path.exists() and sha256_of(path) == settings["weights"]["sha256"]:
            return path
    raise InputError(f"{directory / WEIGHTS_FILE} is missing, truncated or not the file of {SETTINGS_FILE}: copy both.")


def sha256_of(path):
    """SHA-256 of a file, as hexadecimal digits."""
    digest = hashlib.sha256()
    with reading(path), open(path, "rb") as file:
        for piece in iter(lambda: file.read(1 << 20), b""):
            digest.update(piece)
    return digest.hexdigest()


def describe(directory, settings):
    """Write the model card, and then the settings."""
    write_text(directory / CARD_FILE, model_card(settings))
    write_text(directory / SETTINGS_FILE, json.dumps(settings, indent=2, ensure_ascii=False) + "\n")


def commit(directory, settings):
    """Make the weights that lie under their other name, and these settings, the directory's content."""
    try:
        describe(directory, settings)
    except InputError:
        with contextlib.suppress(OSError):
            (directory / NEXT_WEIGHTS_FILE).unlink(missing_ok=True)
        raise
    _name_weights(directory)


def finish_commit(directory):
    """Give weights their own name whose commit was killed before it did, for the next ones take the other."""
    if not (directory / NEXT_WEIGHTS_FILE).exists():
        return
    try:
        path = weights_path(directory, read_settings(directory))
    except InputError:
        return  # there is no adapter
    if path.name == NEXT_WEIGHTS_FILE:
        _name_weights(directory)


def _name_weights(directory):
    try:
        os.replace(directory / NEXT_WEIGHTS_FILE, directory / WEIGHTS_FILE)
    except OSError as error:
        raise InputError(f"{directory / WEIGHTS_FILE} cannot be written: {error.strerror}.") from None
