"""Metrics by name. A new one is an entry in the file of its kind.

Each is better when greater. A metric returns all its numbers by name; the one
that `primary` names chooses the best epoch. scikit-learn, SciPy and seqeval
compute them where they can, and are imported at the first use.
"""

from tf_adapters._submodules import submodules_of
from tf_adapters.errors import InputError
from tf_adapters.tasks.metrics.masked import Perplexity
from tf_adapters.tasks.metrics.sentences import SENTENCE_METRICS, Metric, probabilities
from tf_adapters.tasks.metrics.spans import SPAN_METRICS
from tf_adapters.tasks.metrics.words import WORD_METRICS, are_entity_tags

__all__ = ["METRICS", "Metric", "check_metric", "probabilities"]
__getattr__ = submodules_of(__name__)

METRICS = {metric.name: metric for metric in (*SENTENCE_METRICS, *WORD_METRICS, *SPAN_METRICS, Perplexity())}


def check_metric(name, *, kind, labels=None):
    """Raise InputError unless `name` is a metric for this kind and, if they are given, these labels."""
    fitting = [metric.name for metric in METRICS.values() if kind in metric.kinds]
    if name not in METRICS:
        raise InputError(f"metric is {name!r} and must be one of {', '.join(fitting or METRICS)}.")
    if name not in fitting:
        raise InputError(f"metric {name!r} is not for {kind} tasks: use one of {', '.join(fitting)}.")
    if name == "f1" and labels is not None and len(labels) != 2:
        raise InputError(f"metric 'f1' needs two labels, and there are {len(labels)}: use 'macro-f1' or 'micro-f1'.")
    if name == "entity-f1" and labels is not None and not are_entity_tags(labels):
        raise InputError(
            f"metric 'entity-f1' needs tags such as B-PER, I-PER and O, and the labels are {', '.join(labels[:20])}: "
            "use 'token-accuracy'."
        )
