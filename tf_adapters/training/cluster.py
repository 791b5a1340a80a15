"""Which strategies there are, and TF_CONFIG, which says who works together. Nothing here loads TensorFlow."""

import contextlib
import dataclasses
import socket
import time

from tf_adapters.errors import InputError
from tf_adapters.json_input import parse_json

EXAMPLE = (
    'TF_CONFIG=\'{"cluster": {"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]}, "task": {"type": "worker", "index": 0}}\''
)
STRATEGIES = ("mirrored", "multi-worker", "tpu")
SECONDS_TO_MEET = 600.0
_JOBS = ("chief", "worker")


@dataclasses.dataclass(frozen=True)
class Cluster:
    """What this process is among the others.

    Attributes:
        workers: int, how many processes there are.
        number: int, this one's, from 0.
        addresses: tuple of their `HOST:PORT`, in the order of their numbers.
        chief: bool, whether it is the one that writes.
    """

    workers: int
    number: int
    addresses: tuple = ()

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
        raise _error(
            f'its "task" must say which worker this process is, by "type" and "index" ({known}), and is {task!r}'
        )
    return Cluster(workers=len(order), number=order.index(own), addresses=tuple(addresses))


def meet(cluster, *, seconds=SECONDS_TO_MEET):
    """Wait until all workers have started, so that a signal or one that never comes does not leave TensorFlow waiting
    without end.

    The chief listens on its own port; the others tell it their numbers, and go on when it has heard of all.

    Raises:
        InputError: after `seconds` some are missing, or the chief's port is taken; the message names them.
    """
    deadline = time.monotonic() + seconds
    if not cluster.chief:
        _tell_chief(cluster, deadline, seconds)
        return
    missing, connections = set(range(1, cluster.workers)), []
    try:
        with (
            socket.create_server(("", int(cluster.addresses[0].rpartition(":")[2]))) as server,
            contextlib.ExitStack() as stack,
        ):
            while missing:
                server.settimeout(max(0.0, deadline - time.monotonic()) or 1e-3)
                connection = stack.enter_context(server.accept()[0])
                connection.settimeout(5.0)
                with contextlib.suppress(OSError, ValueError):
                    missing.discard(int(connection.recv(8)))
                    connections.append(connection)
            for connection in connections:
                with contextlib.suppress(OSError):
                    connection.sendall(b"go")
    except TimeoutError:
        names = ", ".join(cluster.addresses[number] for number in sorted(missing))
        raise InputError(
            f"{{strategy}}: {names} of TF_CONFIG did not start within {seconds:.0f} s: start every worker.",
            strategy="multi-worker",
        ) from None
    except OSError as error:
        raise InputError(
            f"{{strategy}}: this worker cannot listen on its port of {cluster.addresses[0]} ({error.strerror}).",
            strategy="multi-worker",
        ) from None


def _tell_chief(cluster, deadline, seconds):
    host, _, port = cluster.addresses[0].rpartition(":")
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            with socket.create_connection((host.strip("[]"), int(port)), timeout=5.0) as connection:
                connection.sendall(str(cluster.number).encode())
                connection.settimeout(max(1.0, deadline - time.monotonic()))
                if connection.recv(2) == b"go":
                    return
        time.sleep(0.2)
    raise InputError(
        f"{{strategy}}: the first worker of TF_CONFIG, {cluster.addresses[0]}, was not there within {seconds:.0f} s: "
        "start every worker.",
        strategy="multi-worker",
    )


def _is_address(address):
    host, colon, port = address.rpartition(":") if isinstance(address, str) else ("", "", "")
    return bool(host and colon) and port.isdecimal() and 0 < int(port) < 2**16


def _error(reason):
    return InputError(
        f"{{strategy}} needs the environment variable TF_CONFIG, and {reason}. On the first of two machines: "
        f"{EXAMPLE}; on the second the index is 1.",
        strategy="multi-worker",
    )
