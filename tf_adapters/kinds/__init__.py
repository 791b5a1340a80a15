"""What each kind of task does its own way. A new kind is a file here and a line below."""

from tf_adapters._submodules import submodules_of
from tf_adapters.errors import InputError
from tf_adapters.kinds.choices import MultipleChoice
from tf_adapters.kinds.sentences import Classification, MultiLabel, Regression
from tf_adapters.kinds.spans import QuestionAnswering
from tf_adapters.kinds.tokens import TokenClassification
from tf_adapters.tasks.unlabelled import check_has_task

_KINDS = {
    kind.name: kind
    for kind in (
        Classification(),
        Regression(),
        MultiLabel(),
        TokenClassification(),
        QuestionAnswering(),
        MultipleChoice(),
    )
}
__getattr__ = submodules_of(__name__)


def get_kind(name):
    """The `Kind` of that name; raises InputError with the known ones otherwise."""
    check_has_task(name)
    if name not in _KINDS:
        raise InputError(f"{{kind}} is unknown: use one of {', '.join(_KINDS)}.", kind=name)
    return _KINDS[name]
