"""Directories of `adapters` or PEFT: where they are, their files' names, and what `adapter_config.json`,
`adapter_fusion_config.json` and `head_config.json` say; needs no TensorFlow."""

import dataclasses
import os
import pathlib
import re
from typing import Optional

from tf_adapters.errors import InputError, shown
from tf_adapters.paths import read_json, to_path
from tf_adapters.saving import hub

DESCRIPTIONS = {"adapter": "adapter_config.json", "fusion": "adapter_fusion_config.json"}
HEAD_DESCRIPTION = "head_config.json"
# What a directory holds -> its weights in either of the two formats.
FILES = {
    "adapter": ("adapter.safetensors", "pytorch_adapter.bin"),
    "fusion": ("model_adapter_fusion.safetensors", "pytorch_model_adapter_fusion.bin"),
    "head": ("model_head.safetensors", "pytorch_model_head.bin"),
    "peft": ("adapter_model.safetensors", "adapter_model.bin"),
}
# Our heads -> the ends of the names of transformers' classes with that head, and the flexible heads that compute the
# same.
HEAD_TYPES = {
    "classification": ("ForSequenceClassification", ("classification", "multilabel_classification")),
    "token-classification": ("ForTokenClassification", ("tagging",)),
    "question-answering": ("ForQuestionAnswering", ("question_answering",)),
    "multiple-choice": ("ForMultipleChoice", ()),
}


def read_description(directory):
    """What a directory of `adapters` or PEFT holds.

    Returns: `"bottleneck"`, `"peft"`, `"fusion"` or another architecture of `adapters` by its name, and the content of
    the description.

    Raises:
        InputError: there is none, or it is of something else.
    """
    directory = to_path(directory)
    found = {kind: directory / name for kind, name in DESCRIPTIONS.items() if (directory / name).is_file()}
    if not found:
        raise InputError(f"{directory} has no adapter_config.json, so it is no directory of AdapterHub's or PEFT's.")
    if len(found) > 1:
        raise InputError(f"{directory} holds an adapter and a fusion: put each into a directory of its own.")
    ((kind, path),) = found.items()
    settings = read_json(path)
    if "peft_type" in settings:
        return "peft", settings
    if not isinstance(settings.get("config", {}), dict):
        raise InputError(f"{path} is no description of an adapter: it must have an object config.")
    settings.setdefault("config", {})
    return ("fusion" if kind == "fusion" else str(settings["config"].get("architecture") or "bottleneck")), settings


@dataclasses.dataclass(frozen=True)
class HeadDescription:
    """What a `head_config.json` says.

    Attributes:
        path: of the file, for messages.
        head: str, as in `load_backbone`.
        name: str or None, what a flexible head is called.
        flexible: dict, the settings of a flexible head, or None of a static one.
        label2id: dict from names of labels to their numbers, or None.
    """

    path: pathlib.Path
    head: str
    name: Optional[str]
    flexible: Optional[dict]
    label2id: Optional[dict]

    @property
    def labels(self):
        """The names of the labels in the order of their numbers, 0, 1, ...; InputError if the file has none."""
        try:
            of_number = {int(str(number)): label for label, number in self.label2id.items()}
            return [of_number[number] for number in range(len(self.label2id))]
        except (ValueError, AttributeError, KeyError) as error:
            raise InputError(
                f"{self.path} does not name the labels of the head by 0, 1, ... ({error}): pass {{head}}.", head=False
            ) from None

    @property
    def head_layers(self):
        """`load_backbone`'s argument: 2 for a classification head of two layers behind a pooler."""
        if self.head != "classification" or self.flexible is None:
            return 1
        return 2 if self.flexible.get("layers") == (2 if self.flexible.get("use_pooler") else 3) else 1


def describe_head(directory, settings):
    """As of `bridge.describe_head`."""
    return read_head_description(directory) if (directory / HEAD_DESCRIPTION).is_file() else None


def read_head_description(directory):
    """The `HeadDescription` of a directory's `head_config.json`; InputError if it is damaged, or of a head that is not
    known here."""
    path = to_path(directory) / HEAD_DESCRIPTION
    settings = read_json(path, "restore it, or pass {head}", head=False)
    if not isinstance(settings.get("config") or {}, dict):
        raise InputError(f"{path} is no description of a head: restore it, or pass {{head}}.", head=False)
    flexible = settings.get("config") or None
    theirs = str(settings.get("model_class") if flexible is None else flexible.get("head_type"))
    for head, (suffix, types) in HEAD_TYPES.items():
        if theirs in types if flexible is not None else theirs.endswith(suffix):
            name = None if settings.get("name") is None else str(settings["name"])
            return HeadDescription(path, head, name, flexible, label2id=(flexible or settings).get("label2id"))
    kind, known = ("head of", [f"...{suffix}" for suffix, _ in HEAD_TYPES.values()])
    if flexible is not None:
        kind, known = ("flexible head", [name for _, types in HEAD_TYPES.values() for name in types])
    raise InputError(f"{path} is of a {kind} {shown(theirs)}: {', '.join(known)} are read; pass {{head}}.", head=False)


_NAMES = (*DESCRIPTIONS.values(), HEAD_DESCRIPTION, *(name for names in FILES.values() for name in names))


def find_directory(source):
    """The folder of a directory of `adapters`, of PEFT or of this package, as of `find_adapter`; a fusion's holds the
    folders of its adapters. InputError too for an id of AdapterHub's own index."""
    path = to_path(source)
    # AdapterHub's index was archived in July 2024; its adapters are repositories of huggingface.co.
    if re.fullmatch(r"[\w.-]+@[\w.-]+|[\w.-]+/[\w.-]+@ukp", os.fspath(source)) and not path.exists():
        raise InputError(
            f"{source}: there is no such directory, and ids of AdapterHub's former index are not looked up: give "
            "one of huggingface.co, such as AdapterHub/bert-base-uncased-pf-sst2."
        )
    folder = hub.find_adapter(source, files=(*hub.FILES, *_NAMES))
    if folder != path and (folder / DESCRIPTIONS["fusion"]).is_file():
        of_adapters = tuple(f"*/{name}" for name in (DESCRIPTIONS["adapter"], *FILES["adapter"]))
        return hub.find_adapter(f"{hub.parse_id(os.fspath(source)).repository}@{folder.name}", files=of_adapters)
    return folder
