"""Training on several devices or machines by tf.distribute: each computes its rows of a batch, and gradients are
summed."""

import contextlib
import functools
import io
import json
import os
import pathlib
import signal
import tarfile
import tempfile
import threading

import numpy as np
import tensorflow as tf

from tf_adapters.errors import NAME, InputError
from tf_adapters.models.door import door_of
from tf_adapters.training.cluster import STRATEGIES, meet, read_cluster
from tf_adapters.training.layout import RESUME_FOLDER
from tf_adapters.training.settings import for_one_device


def make_strategy(name):
    """A strategy of tf.distribute for `fit`, once it is known that its hardware is there.

    The model is made in its scope. `multi-worker` waits until the other workers have started, and must be made before
    TensorFlow computes anything.

    Args:
        name: str, one of

            - `"mirrored"`: all GPUs of this machine; without a GPU its virtual CPUs, if some were configured.
            - `"multi-worker"`: a process on each of several machines, which `TF_CONFIG` names; each uses its GPUs, or
              its CPU.
            - `"tpu"`: the TPU that `TPU_NAME` names, or the one of this machine. Nobody has run it yet.

    Returns: `tf.distribute.Strategy`.

    Raises:
        InputError: unknown name, or the hardware or its description is lacking.

    Example:
    >>> strategy = make_strategy("mirrored")
    >>> with strategy.scope():
    ...     model = set_trainable(add_adapters(load_backbone("minilm")))
    >>> result = fit(model, task, tokenizer, "adapters/mirrored", strategy=strategy, epochs=3, learning_rate=1e-3)
    """
    if name not in STRATEGIES:
        raise InputError(f"{{strategy}} is unknown: use one of {', '.join(STRATEGIES)}.", strategy=name)
    return {"mirrored": _mirrored, "multi-worker": _multi_worker, "tpu": _tpu}[name]()


def _mirrored():
    kind = "GPU" if tf.config.list_physical_devices("GPU") else "CPU"
    devices = [device.name for device in tf.config.list_logical_devices(kind)]
    if len(devices) < 2:
        raise InputError(
            f"{{strategy}} needs two devices or more, and TensorFlow sees one {kind}: leave it out, or use several "
            "machines by 'multi-worker'.",
            strategy="mirrored",
        )
    return tf.distribute.MirroredStrategy(devices)


def _multi_worker():
    cluster = read_cluster(os.environ)
    meet(cluster)
    try:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        if threading.current_thread() is threading.main_thread():
            # TensorFlow takes SIGTERM for itself, and would only note it.
            signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))
        return strategy
    except RuntimeError as error:
        raise InputError(
            f"{{strategy}} must be made before TensorFlow computes anything, right after its import "
            f"({_first_line(error)}).",
            strategy="multi-worker",
        ) from None
    except (tf.errors.OpError, ValueError) as error:
        raise InputError(
            f"{{strategy}}: the workers of TF_CONFIG did not come together; start all of them, each on the machine and "
            f"with a free port of its own entry ({_first_line(error)}).",
            strategy="multi-worker",
        ) from None


def _tpu():
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (ValueError, RuntimeError, tf.errors.OpError) as error:
        raise InputError(
            f"{{strategy}} found no TPU: set TPU_NAME to the name of yours, or to `local` on a TPU VM "
            f"({_first_line(error)}).",
            strategy="tpu",
        ) from None
    return tf.distribute.TPUStrategy(resolver)


def _first_line(error):
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


@contextlib.contextmanager
def scope_of(strategy):
    """The scope of a strategy, for making a model and for `fit`; of None, nothing.

    Raises: InputError, if another worker is lost meanwhile.
    """
    if strategy is None:
        yield
        return
    try:
        with strategy.scope():
            yield
    except _LOST as error:
        if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
            raise
        raise InputError(
            "Another worker was lost, and this one cannot go on alone. See why it ended, and start all of them "
            f"again, with {{resume}} if training had begun ({_first_line(error)}).",
            resume=True,
        ) from error


def processes_of(strategy):
    """How many processes a strategy (or None) has, and whether this one is the chief, which writes."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return 1, True
    resolver = strategy.cluster_resolver
    chiefs = len(_tasks(resolver, "chief"))
    return len(_tasks(resolver, "worker")) + chiefs, resolver.task_type == "chief" or (
        resolver.task_id == 0 and not chiefs
    )


def in_scope(function):
    """Let `fit` run in the scope of its argument `strategy`, or of the one that it is called in, if there is one.

    Raises: InputError, if the model was made in another one.
    """

    @functools.wraps(function)
    def inside(model, *arguments, strategy=None, **settings):
        if strategy is None and tf.distribute.has_strategy():
            strategy = tf.distribute.get_strategy()
        made_under = None
        if door_of(model).NAME == "transformers":
            from tf_adapters._keras_internals import strategy_made_under

            made_under = strategy_made_under(model)
        if made_under is not strategy:
            raise InputError(
                f"{{strategy}}: the model was made under {made_under!r}; load it and add its adapters inside "
                "`with strategy.scope():`, and give that strategy to fit.",
                strategy=strategy,
            )
        with scope_of(strategy):
            return function(model, *arguments, strategy=strategy, **settings)

    return inside


# What collective operations end with when a process is gone.
_LOST = (
    tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError, tf.errors.DeadlineExceededError,
    tf.errors.InternalError, tf.errors.UnknownError,
)  # fmt: skip


def get_workers(strategy, settings, *, random_drop):
    """What `fit` does differently under a strategy.

    Args:
        strategy: `tf.distribute.Strategy` or None.
        settings: `TrainingSettings`, of which some may stand against it.
        random_drop: int, that of the adapter's config.

    Returns: `Alone` or `Workers`.

    Raises:
        InputError: the strategy is of another kind, or something cannot be together with it; the message says what.
    """
    return Alone() if strategy is None else Workers(strategy, settings, random_drop)


class Alone:
    """One process with one device: nothing to share and nobody to agree with.

    Attributes:
        name: str, what is said of it in a run's settings.
        chief: bool, whether this process writes.
        votes: metric whose result travels with a step's losses, or None.
    """

    name, chief, votes = "one device", True, None

    def folder(self, output, resume):
        """Where this process writes, a path."""
        return output

    def same_settings(self, settings):
        """Raise InputError if other workers have other settings."""

    def per_replica(self, variables):
        """What stands for variables that each replica has values of its own of, in a run's state."""
        return variables

    def batches(self, batches, weigh):
        """What Keras takes, from global batches of `(inputs, targets)`; `weigh` is `Kind.loss_weight`."""
        return batches

    def asked(self, stopping):
        """The event that a signal to this process sets; `stopping` is the one at which it stops."""
        return stopping

    def agree(self, logs, stopping, due):
        """After a step: set `stopping` if a worker was asked to stop; whether all save their state now."""
        return due

    def from_chief(self, compute):
        """What `compute()` gives, computed by the chief alone."""
        return compute()


class Workers(Alone):
    """The processes of a strategy. Each has all global batches, computes its own rows of them, and does what the others
    do.

    Every worker runs the same code on a folder of its own, of which the chief's is the output. What could differ
    between them, because of a clock, a signal or rounding, is decided for all: numbers of validation by the chief,
    saving and stopping by votes that travel with a step's metrics.
    """

    def __init__(self, strategy, settings, random_drop):
        known = (tf.distribute.MirroredStrategy, tf.distribute.MultiWorkerMirroredStrategy, tf.distribute.TPUStrategy)
        if not isinstance(strategy, known):
            raise InputError(f"{{strategy}} must be one of make_strategy: {', '.join(STRATEGIES)}.", strategy=strategy)
        self.strategy, self.replicas = strategy, strategy.num_replicas_in_sync
        self.processes, self.chief = processes_of(strategy)
        self.name = f"{type(strategy).__name__} of {self.replicas} devices"
        from tf_adapters.training.votes import Votes

        self._asked, self._folder, self.votes = threading.Event(), None, Votes()
        on_tpu = isinstance(strategy, tf.distribute.TPUStrategy)
        refused = for_one_device(settings.to_dict()) | ({"random_drop": random_drop} if random_drop else {})
        refused |= {"jit_compile": True} if settings.jit_compile and not on_tpu else {}
        for name, value in refused.items():
            raise InputError(
                f"{{{name}}} is for one device: leave it out, or the {{strategy}}.", strategy=NAME, **{name: value}
            )
        if on_tpu and not settings.jit_compile:
            raise InputError(
                "A TPU needs batches of few shapes: give {jit_compile} with {strategy}.",
                jit_compile=True,
                strategy="tpu",
            )
        if settings.batch_size < self.replicas or (on_tpu and settings.batch_size % self.replicas):
            multiple = "a multiple of them" if on_tpu else "at least as many"
            raise InputError(
                f"{{batch_size}} rows of a step are for {self.replicas} devices together: give {multiple}.",
                batch_size=settings.batch_size,
            )

    def folder(self, output, resume):
        kept = self._bytes_from_chief(lambda: _packed(output)) if resume else None
        if self.chief:
            return output
        self._folder = tempfile.TemporaryDirectory(prefix="tf-adapters-worker-")
        if kept:
            with tarfile.open(fileobj=io.BytesIO(kept)) as archive:
                archive.extractall(self._folder.name, filter="data")
        return pathlib.Path(self._folder.name)

    def same_settings(self, settings):
        own = json.loads(json.dumps(settings))
        chiefs = self.from_chief(lambda: own)
        differing = [name for name, value in own.items() if chiefs.get(name) != value]
        if not self._sum(np.array(len(differing)), everyone=True):
            return
        if differing:
            name = differing[0]
            raise InputError(
                f"This worker has another {name} than the chief ({own[name]!r}, not {chiefs.get(name)!r}): start all "
                "with the same arguments."
            )
        raise InputError(
            "Another worker has other settings than the chief; it says which: start all with the same arguments."
        )

    def per_replica(self, variables):
        return [_ReplicaValues(variable, self.strategy) for variable in variables]

    def batches(self, batches, weigh):
        replicas = self.replicas

        def part(inputs, targets, replica):
            rows = tf.shape(tf.nest.flatten(targets)[0], tf.int64)[0]
            start, stop = rows * replica // replicas, rows * (replica + 1) // replicas
            share = weigh(tf.nest.map_structure(lambda tensor: tensor[start:stop], targets)) / tf.maximum(
                weigh(targets), 1.0
            )
            # A replica that has no row computes one, of which its share is nothing.
            return *tf.nest.map_structure(
                lambda tensor: tensor[start : tf.maximum(stop, start + 1)], (inputs, targets)
            ), share

        def of_worker(context):
            count = replicas // context.num_input_pipelines
            first = context.input_pipeline_id * count
            numbers = tf.data.Dataset.range(first, first + count)
            parts = batches.flat_map(
                lambda inputs, targets: numbers.map(lambda replica: part(inputs, targets, replica))
            )
            return parts.prefetch(count)

        return self.strategy.distribute_datasets_from_function(of_worker)

    def asked(self, stopping):
        return self._asked if self.processes > 1 else stopping

    def agree(self, logs, stopping, due):
        if self.processes == 1:
            return due
        stops, saves = logs[self.votes.NAME]
        if stops:
            stopping.set()
        self.votes.cast(self.strategy, self._asked.is_set(), self.chief and due and not saves)
        return bool(saves)

    def from_chief(self, compute):
        if self.processes == 1:
            return compute()
        return json.loads(self._bytes_from_chief(lambda: json.dumps(compute()).encode()))

    def _bytes_from_chief(self, compute):
        if self.processes == 1:
            return compute()
        data = compute() if self.chief else b""
        size = int(self._sum(np.array(len(data))))
        words = np.zeros(-(-size // 4), np.int32)
        words.view(np.uint8)[: len(data)] = np.frombuffer(data, np.uint8)
        return self._sum(words).tobytes()[:size]

    def _sum(self, array, everyone=False):
        """Sum over the replicas of an integer array; those of other workers than the chief count as 0, unless
        everyone's do."""
        values = self.strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(
                array if everyone or context.replica_id_in_sync_group == 0 else np.zeros_like(array), tf.int32
            )
        )
        return self.strategy.reduce(tf.distribute.ReduceOp.SUM, values, axis=None).numpy()


class _ReplicaValues:
    """A variable that each replica has a value of its own of, as one array with an axis of replicas in front."""

    def __init__(self, variable, strategy):
        self._variable, self._strategy = variable, strategy
        self.shape = (strategy.num_replicas_in_sync, *variable.shape)

    def numpy(self):
        def own():
            number = tf.distribute.get_replica_context().replica_id_in_sync_group
            return tf.scatter_nd([[number]], self._variable.read_value()[tf.newaxis], self.shape)

        # A sum with zeros is exact; strategy.gather would trace a function at every call.
        return self._strategy.reduce(tf.distribute.ReduceOp.SUM, self._strategy.run(own), axis=None).numpy()

    def assign(self, values):
        def own():
            self._variable.assign(tf.constant(values)[tf.distribute.get_replica_context().replica_id_in_sync_group])

        self._strategy.run(own)


def _tasks(resolver, job):
    spec = resolver.cluster_spec()
    return spec.job_tasks(job) if job in spec.jobs else []


def _packed(folder):
    """The files of a run as the bytes of a tar archive."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for path in (folder, folder / RESUME_FOLDER):
            for file in sorted(path.glob("*")):
                if file.is_file() or file.name == RESUME_FOLDER:
                    archive.add(file, file.relative_to(folder), recursive=False)
    return data.getvalue()
