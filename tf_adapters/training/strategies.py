"""Training on several devices or machines by tf.distribute: each computes its rows of a batch, and gradients are
summed."""

import contextlib
import json
import os
import signal
import tempfile
import threading

import numpy as np
import tensorflow as tf

from tf_adapters.errors import NAME, InputError
from tf_adapters.models.door import door_of
from tf_adapters.ranges import check_choice
from tf_adapters.text.batching import part_of
from tf_adapters.training.settings import STRATEGIES, check_rows, for_one_device, read_cluster

# Several workers agree at these steps whether one was asked to stop, and save their state.
STEPS_TO_AGREE = 100


def make_strategy(name):
    """A strategy of tf.distribute for `fit`, once it is known that its hardware is there.

    The model is made in its scope. `multi-worker` waits until the other workers have started, and must be made before
    TensorFlow computes anything.

    Args:
        name: str, one of

            - `"mirrored"`: all GPUs of this machine; without a GPU its virtual CPUs, if some were configured.
            - `"multi-worker"`: a process on each of several machines, which `TF_CONFIG` names; each uses its GPUs, or
              its CPU.

    Returns: `tf.distribute.Strategy`.

    Raises:
        InputError: unknown name, or the hardware or its description is lacking.

    Example:
    >>> strategy = make_strategy("mirrored")
    >>> with strategy.scope():
    ...     model = set_trainable(add_adapters(load_backbone("minilm")))
    >>> result = fit(model, task, tokenizer, "adapters/mirrored", strategy=strategy, epochs=3, learning_rate=1e-3)
    """
    check_choice("strategy", name, STRATEGIES)
    return {"mirrored": _mirrored, "multi-worker": _multi_worker}[name]()


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
    read_cluster(os.environ)
    handlers = {}
    if threading.current_thread() is threading.main_thread():
        # While TensorFlow waits for the other workers a signal ends the process; afterwards it is Python's again.
        handlers = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        return tf.distribute.MultiWorkerMirroredStrategy()
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
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


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
    jobs = resolver.cluster_spec().as_dict()
    chief = resolver.task_type == "chief" or ("chief" not in jobs and resolver.task_id == 0)
    return sum(len(addresses) for addresses in jobs.values()), chief


def refuse_workers(strategy, what):
    """Raise InputError for a strategy of several processes."""
    if processes_of(strategy)[0] > 1:
        raise InputError(f"{{strategy}} is not for {what}: use one machine.", strategy="multi-worker")


def strategy_for(model, strategy):
    """The strategy that a model trains under: the one given, or that of the scope that `fit` is called in, or None;
    InputError if the model was made under another one."""
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
    return strategy


# What collective operations end with when a process is gone.
_LOST = (
    tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError, tf.errors.DeadlineExceededError,
    tf.errors.InternalError, tf.errors.UnknownError,
)  # fmt: skip


class Alone:
    """One process with one device: nothing to share and nobody to agree with.

    Attributes:
        name: str, what is said of it in a run's settings.
        chief: bool, whether this process writes.
        processes: int, how many there are.
    """

    name, chief, processes = "one device", True, 1

    def check(self, output, settings):
        """Raise InputError, in all workers, if one has other settings or does not see the chief's output."""

    def per_replica(self, variables):
        """What stands for variables that each replica has values of its own of, in a run's state."""
        return variables

    def batches(self, batches, weigh):
        """What Keras takes, from global batches of `(inputs, targets)`; `weigh` is `Kind.loss_weight`."""
        return batches

    def any(self, value):
        """Whether a bool is true in one of the workers; each must call it."""
        return value

    def from_chief(self, compute):
        """What `compute()` gives, computed by the chief alone; each must call it."""
        return compute()


class Workers(Alone):
    """The processes of a strategy. Each has all global batches, computes its own rows of them, and does what the others
    do.

    Every worker runs the same code and reads the same output, which the chief alone writes. What could differ between
    them, because of a signal or rounding, is decided for all. InputError for a strategy of another kind, or one that a
    setting or the adapter's `random_drop` stands against.
    """

    def __init__(self, strategy, settings, random_drop):
        if not isinstance(strategy, (tf.distribute.MirroredStrategy, tf.distribute.MultiWorkerMirroredStrategy)):
            raise InputError(f"{{strategy}} must be one of make_strategy: {', '.join(STRATEGIES)}.", strategy=strategy)
        self.strategy, self.replicas = strategy, strategy.num_replicas_in_sync
        self.processes, self.chief = processes_of(strategy)
        self.name = f"{type(strategy).__name__} of {self.replicas} devices"
        refused = for_one_device(settings.to_dict()) | ({"random_drop": random_drop} if random_drop else {})
        for name, value in refused.items():
            raise InputError(
                f"{{{name}}} is for one device: leave it out, or the {{strategy}}.", strategy=NAME, **{name: value}
            )
        check_rows(settings.batch_size, self.replicas)

    def check(self, output, settings):
        if self.processes == 1:
            return
        own = json.loads(json.dumps(settings))
        chiefs = self.from_chief(lambda: own)
        differing = [name for name, value in own.items() if chiefs.get(name) != value]
        if self.any(bool(differing)):
            raise InputError(
                f"This worker has another {differing[0]} than the chief ({own[differing[0]]!r}, not "
                f"{chiefs.get(differing[0])!r}): start all with the same arguments."
                if differing
                else "Another worker has other settings than the chief, and says which."
            )
        with contextlib.ExitStack() as until_seen:

            def show():
                output.mkdir(parents=True, exist_ok=True)
                file = until_seen.enter_context(tempfile.NamedTemporaryFile(prefix=".seen-by-all-", dir=output))
                return os.path.basename(file.name)

            unseen = not (output / self.from_chief(show)).exists()
            if self.any(unseen):
                raise InputError(
                    f"{{output}}: {'this' if unseen else 'another'} worker does not see what the first one writes "
                    "there: give a directory that all machines share.",
                    output=str(output),
                )

    def per_replica(self, variables):
        return [_ReplicaValues(variable, self.strategy) for variable in variables]

    def batches(self, batches, weigh):
        replicas = self.replicas

        def of_worker(context):
            count = replicas // context.num_input_pipelines
            first = context.input_pipeline_id * count
            numbers = tf.data.Dataset.range(first, first + count)
            parts = batches.flat_map(
                lambda inputs, targets: numbers.map(lambda replica: part_of(inputs, targets, replica, replicas, weigh))
            )
            return parts.prefetch(count)

        return self.strategy.distribute_datasets_from_function(of_worker)

    def any(self, value):
        return bool(self._sum(np.array(int(value)), everyone=True)) if self.processes > 1 else value

    def from_chief(self, compute):
        if self.processes == 1:
            return compute()
        data = json.dumps(compute()).encode() if self.chief else b""
        size = int(self._sum(np.array(len(data))))
        sent = np.resize(np.frombuffer(data or b"\0", np.uint8), size)
        return json.loads(self._sum(sent).astype(np.uint8).tobytes())

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
