"""Directories of `adapters` or PEFT, here or on the HuggingFace hub; needs no TensorFlow."""

import os
import re

from tf_adapters.adapterhub.layout import DESCRIPTIONS, FILES, HEAD_DESCRIPTION
from tf_adapters.errors import InputError
from tf_adapters.paths import to_path
from tf_adapters.saving import hub
from tf_adapters.saving.hub import parse_id

_NAMES = (*DESCRIPTIONS.values(), HEAD_DESCRIPTION, *(name for names in FILES.values() for name in names))


def find_directory(source):
    """The folder of a directory of `adapters`, of PEFT or of this package: the one here, or a repository on the hub.

    Args:
        source: path, or `owner/name` or `owner/name@revision` on the HuggingFace hub. What is here by that name wins.

    Returns: a `pathlib.Path`. A fusion's holds the folders of its adapters.

    Raises:
        InputError: as `find_adapter`; the source is an id of AdapterHub's own index.
    """
    path = to_path(source)
    # AdapterHub's index was archived in July 2024; its adapters are repositories of huggingface.co.
    if re.fullmatch(r"[\w.-]+@[\w.-]+|[\w.-]+/[\w.-]+@ukp", os.fspath(source)) and not path.exists():
        raise InputError(
            f"{source}: there is no such directory, and ids of AdapterHub's former index are not looked up: give the "
            "id of the repository on huggingface.co, such as AdapterHub/bert-base-uncased-pf-sst2."
        )
    folder = hub.find_adapter(source, files=(*hub.FILES, *_NAMES))
    if folder != path and (folder / DESCRIPTIONS["fusion"]).is_file():
        of_adapters = tuple(f"*/{name}" for name in (DESCRIPTIONS["adapter"], *FILES["adapter"]))
        return hub.find_adapter(f"{parse_id(os.fspath(source)).repository}@{folder.name}", files=of_adapters)
    return folder
