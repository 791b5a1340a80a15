"""What each kind of task does its own way. A new kind is a file here and a line below."""

import functools
import importlib

from tf_adapters._installation import submodules_of
from tf_adapters.ranges import check_choice
from tf_adapters.tasks.own_files import check_has_task

# Name -> module and class. Only what is asked for is imported.
_KINDS = {
    "classification": ("sentences", "Classification"),
    "regression": ("sentences", "Regression"),
    "multi-label": ("sentences", "MultiLabel"),
    "token-classification": ("tokens", "TokenClassification"),
    "question-answering": ("spans", "QuestionAnswering"),
    "multiple-choice": ("sentences", "MultipleChoice"),
}
__getattr__ = submodules_of(__name__)


@functools.cache
def get_kind(name):
    """The `Kind` of that name; raises InputError with the known ones otherwise."""
    check_has_task(name)
    check_choice("kind", name, _KINDS)
    module, kind = _KINDS[name]
    return getattr(importlib.import_module(f"{__name__}.{module}"), kind)()
