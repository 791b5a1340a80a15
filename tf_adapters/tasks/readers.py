"""The readers of all kinds of tasks. A new kind has a file here that reads it, and a line below."""

from tf_adapters.errors import InputError
from tf_adapters.tasks.choices import CHOICES
from tf_adapters.tasks.metrics import check_metric
from tf_adapters.tasks.sentences import SENTENCES
from tf_adapters.tasks.squad import QUESTIONS
from tf_adapters.tasks.words import WORDS

READERS = {reader.kind: reader for reader in (*SENTENCES, WORDS, QUESTIONS, CHOICES)}


def get_reader(kind):
    """The `Reader` of a kind of task; raises InputError with the known ones otherwise."""
    if kind not in READERS:
        raise InputError(f"kind is {kind!r} and must be one of {', '.join(READERS)}.")
    return READERS[kind]


def metric_of(kind, metric=None, labels=None):
    """The metric that is asked for, or what is usual of a kind of task with these label names.

    Raises:
        InputError: it is for other kinds or labels.
    """
    reader = get_reader(kind)
    metric = metric or (reader.metric(labels) if callable(reader.metric) else reader.metric)
    check_metric(metric, kind=reader.scored_as or kind, labels=labels if reader.named else None)
    return metric
