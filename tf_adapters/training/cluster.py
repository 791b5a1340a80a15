"""TF_CONFIG, which says who works together in a multi-worker training. Nothing here loads TensorFlow."""

import dataclasses
import json

from tf_adapters.errors import InputError

EXAMPLE = """TF_CONFIG='{"cluster": {"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]}, "task": {"type": "worker", "index": 0}}'"""
_JOBS = ("chief", "worker")


@dataclasses.dataclass(frozen=True)
class Cluster:
    """What this process is among the others.

    Attributes:
        workers: int, how many processes there are.
        number: int, this one's, from 0.
        chief: bool, whether it is the one that writes.
    """

    workers: int
    number: int

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
        config = json.loads(text)
    except json.JSONDecodeError as error:
        raise _error(f"it is not JSON ({error})") from None
    cluster = config.get("cluster") if isinstance(config, dict) else None
    if not isinstance(cluster, dict) or not cluster:
        raise _error('its "cluster" must be an object with the addresses of each "worker"')
    unknown = [job for job in cluster if job not in _JOBS]
    if unknown:
        raise _error(f'its "cluster" has {unknown[0]!r}, and a training has "worker" and perhaps one "chief"')
    for job, addresses in cluster.items():
        if not isinstance(addresses, list) or not all(_is_address(address) for address in addresses):
            raise _error(f'{job!r} of its "cluster" must be a list of addresses HOST:PORT, and is {addresses!r}')
    order = [(job, index) for job in _JOBS for index in range(len(cluster.get(job, ())))]
    addresses = [cluster[job][index] for job, index in order]
    if len(addresses) < 2:
        raise _error('its "cluster" has fewer than two workers')
    if len(cluster.get("chief", ())) > 1 or not cluster.get("worker"):
        raise _error('its "cluster" must have one "chief" or none, and at least one "worker"')
    if len(set(addresses)) < len(addresses):
        raise _error('two workers of its "cluster" have one address')
    task = config.get("task")
    own = (task.get("type"), task.get("index")) if isinstance(task, dict) else None
    if own not in order or isinstance(own[1], bool):
        known = ", ".join(f"{job} {index}" for job, index in order)
        raise _error(f'its "task" must say which worker this process is, by "type" and "index" ({known}), and is {task!r}')
    return Cluster(workers=len(order), number=order.index(own))


def _is_address(address):
    host, colon, port = address.rpartition(":") if isinstance(address, str) else ("", "", "")
    return bool(host and colon) and port.isdecimal() and 0 < int(port) < 2**16


def _error(reason):
    return InputError(
        f"strategy='multi-worker' needs the environment variable TF_CONFIG, and {reason}. On the first of two machines: {EXAMPLE}; on the "
        "second the index is 1."
    )
