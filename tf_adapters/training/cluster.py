"""Which strategies there are, and TF_CONFIG, which says who works together. Nothing here loads TensorFlow."""

import dataclasses

from tf_adapters.errors import InputError
from tf_adapters.paths import parse_json

STRATEGIES = ("mirrored", "multi-worker")
_EXAMPLE = (
    'TF_CONFIG=\'{"cluster": {"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]}, "task": {"type": "worker", "index": 0}}\''
)
_JOBS = ("chief", "worker")


@dataclasses.dataclass(frozen=True)
class Cluster:
    """What this process is among the others.

    Attributes:
        workers: int, how many processes there are.
        number: int, this one's, from 0; that one writes.
    """

    workers: int = 1
    number: int = 0

    @property
    def chief(self):
        return self.number == 0


def read_cluster(environment):
    """The `Cluster` of the variable TF_CONFIG.

    Args:
        environment: mapping, `os.environ`.

    Raises:
        InputError: it is not set or not what a multi-worker training needs; the message shows one that is.
    """
    text = environment.get("TF_CONFIG", "")
    if not text.strip():
        raise _error("it is not set")
    try:
        config = parse_json(text)
    except ValueError as error:
        raise _error(f"it is not JSON ({error})") from None
    cluster, task = (config.get(name) if isinstance(config, dict) else None for name in ("cluster", "task"))
    if not isinstance(cluster, dict) or not all(job in _JOBS and _are_addresses(cluster[job]) for job in cluster):
        raise _error('its "cluster" must be an object with a list of addresses HOST:PORT for "worker"')
    order = [(job, index) for job in _JOBS for index in range(len(cluster.get(job, ())))]
    if len(order) < 2 or len(cluster.get("chief", ())) > 1:
        raise _error('its "cluster" must have two workers or more, of which one may be the "chief"')
    own = (task.get("type"), task.get("index")) if isinstance(task, dict) else None
    if own not in order:
        known = ", ".join(f"{job} {index}" for job, index in order)
        raise _error(
            f'its "task" must say which worker this process is, by "type" and "index" ({known}), and is {task!r}'
        )
    return Cluster(workers=len(order), number=order.index(own))


def _are_addresses(value):
    return isinstance(value, list) and all(
        isinstance(address, str) and address.rpartition(":")[2].isdecimal() for address in value
    )


def _error(reason):
    return InputError(
        f"{{strategy}} needs the environment variable TF_CONFIG, and {reason}. On the first of two machines: "
        f"{_EXAMPLE}; on the second the index is 1.",
        strategy="multi-worker",
    )
