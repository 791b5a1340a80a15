"""The arms that run on TensorFlow, by the package's public functions; started by step.py.

A training step is the function that `model.fit` calls for each batch (`make_train_function`, from an iterator over a
dataset), without fit's callbacks. `train_on_batch` would wrap each batch in a new dataset of its own, which costs
milliseconds that no training pays.
"""

import collections
import functools
import json
import pathlib
import re
import tempfile

import numpy as np

from benchmarks.peers import worker_protocol
from benchmarks.peers.worker_protocol import ALPHA, RANK, TARGETS, TASKS, Arm, names_of
from benchmarks.result import installed_versions

# TensorFlow imports JAX where it is installed.
_PACKAGES = ("tensorflow", "tf-keras", "transformers", "numpy", "tf_adapters", "jax")
# What operations do, by what their types have in their names; of several the first.
PROFILED = {
    "products": "MatMul", "softmax": "Softmax", "transposes": "Transpose", "sums of gradients": "AddN",
    "optimiser": "Apply", "batches": "Iterator",
}  # fmt: skip


class ProfiledArm(Arm):
    """An arm whose operations TensorFlow times."""

    def profile(self):
        """ms of a step's operations, added up over threads: by what they do (see `PROFILED`), in `programs` of XLA, and
        others. An operation that several threads compute together counts once."""
        import tensorflow as tf
        from tensorflow.tsl.profiler.protobuf import xplane_pb2

        with tempfile.TemporaryDirectory() as folder:
            with tf.profiler.experimental.Profile(folder):
                for index in range(self.batch_count):
                    self.step(index)
            (path,) = pathlib.Path(folder).rglob("*.xplane.pb")
            space = xplane_pb2.XSpace.FromString(path.read_bytes())
        taken = collections.Counter()
        for plane in space.planes:
            names = {number: event.name for number, event in plane.event_metadata.items()}
            for event in (event for line in plane.lines for event in line.events):
                if kind := _profiled(names[event.metadata_id]):
                    taken[kind] += event.duration_ps / 1e9 / self.batch_count
        return {kind: round(taken[kind], 3) for kind in ("products", "programs", *PROFILED, "others")}


def _profiled(name):
    """What an event of TensorFlow's profile is counted as, or None: operations are `name:Type`, others hold them."""
    if name == "CpuExecutable::ExecuteAsyncOnStream":
        return "programs"
    found = re.search(r"[^:]:(\w+)$", name)
    if found is None or "Xla" in found[1]:
        return None
    return next((kind for kind, part in PROFILED.items() if part in found[1]), "others")


class TrainingArm(ProfiledArm):
    """`adapters`, `full`, `fast`, these as `checkpointed-...`, `lora` or `fast-lora`: one optimiser step."""

    at_once = None

    def __init__(self, settings):
        import tensorflow as tf

        from tf_adapters._keras import keras
        from tf_adapters.kinds import get_kind
        from tf_adapters.layers.ops import keras2
        from tf_adapters.training.step import GradientCheckpointing, PartsAtOnce, TrainingStep, seed_dropout

        self.whole, self.details = _build(settings, adapters=not settings["arm"].endswith("full"))
        batches = self.batches = _read_batches(settings["batches"])
        self.batch_count = len(batches)
        changes = [GradientCheckpointing(self.whole)] if settings["arm"].startswith("checkpointed") else []
        if (parts := _parts(settings)) > 1:
            weigh = get_kind("classification").loss_weight
            changes = [PartsAtOnce(parts, weigh, seed_dropout(self.whole, settings["seed"]))]
            self.at_once = changes[0] if "fast" in settings["arm"] else None
        self.model = TrainingStep(self.whole, changes)
        self.model.compile(
            optimizer=keras2.Adam(settings["learning_rate"]),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            jit_compile=settings["xla"],
        )
        self.model.optimizer.build(self.model.trainable_variables)  # as `fit` does; without, Keras traces a step twice
        datasets = [tf.data.Dataset.from_tensors(batch) for batch in batches]
        self.iterator = iter(functools.reduce(lambda a, b: a.concatenate(b), datasets).repeat())
        self.train = self.model.make_train_function()
        self.trained_parameters = sum(variable.shape.num_elements() for variable in self.model.trainable_variables)

    def ahead(self):
        """As in `fit`."""
        from tf_adapters.training.parts import compiling_ahead

        if self.at_once is None:
            return super().ahead()
        return compiling_ahead(self.at_once.rehearsal(self.whole), self.batches, self.at_once.parts)

    def step(self, index):
        float(self.train(self.iterator)["loss"])  # reading the loss waits for the step

    def save(self, directory):
        import tf_adapters

        tf_adapters.save_adapter(self.whole, directory)


class ForwardArm(ProfiledArm):
    """`forward-plain`, `forward-adapters` or `forward-fast`: the logits of one batch, as a `Scorer` computes few rows:
    in parts at once."""

    def __init__(self, settings):
        import tensorflow as tf

        from tf_adapters.kinds.kind import _computed

        self.model, self.details = _build(settings, adapters=settings["arm"] != "forward-plain")
        self.parts, self._computed = _parts(settings), _computed
        self.batches = [self._cut(inputs) for inputs, _ in _read_batches(settings["batches"])]
        self.batch_count = len(self.batches)
        specs = {name: tf.TensorSpec((None, None), tf.int32) for name in self.batches[0][0][1]}

        # XLA compiles for each shape; a signature of unknown sizes would hide them.
        @tf.function(input_signature=None if settings["xla"] else [specs], jit_compile=settings["xla"] or None)
        def forward(inputs):
            return self.model(inputs, training=False).logits

        self.forward = lambda inputs: forward(inputs).numpy()
        self.forward(self.batches[0][0][1])  # traced in this thread

    def _cut(self, inputs):
        size = -(-len(inputs["input_ids"]) // self.parts)
        return [
            (start, {name: value[start : start + size] for name, value in inputs.items()})
            for start in range(0, len(inputs["input_ids"]), size)
        ]

    def step(self, index):
        for _ in self._computed(self.batches[index], self.forward, self.parts):
            pass


class TextsArm(Arm):
    """`texts`: a batch of texts tokenised, cut and padded as training reads it, and nothing else."""

    def __init__(self, settings):
        import tensorflow as tf

        from tf_adapters.tasks.rows import Rows
        from tf_adapters.text import WordPiece
        from tf_adapters.text.batching import training_batches

        texts, labels = json.loads(pathlib.Path(settings["batches"]).with_name("texts.json").read_text())
        rows = Rows(tf.constant(texts), None, np.asarray(labels, np.int32))
        wordpiece = WordPiece.from_directory(settings["directory"], max_length=128)
        size = len(_read_batches(settings["batches"])[0][1])
        batches = training_batches(rows, wordpiece, batch_size=size, epochs=1000, seed=settings["seed"])
        self.iterator, self.batch_count = iter(batches), len(rows) // size
        self.details = {"versions": installed_versions(*_PACKAGES)}

    def step(self, index):
        next(self.iterator)


class RoutedArm(Arm):
    """`routed` or `routed-lora`: the logits of one batch from an `AdapterBank` of `tasks`, each row of another one."""

    def __init__(self, settings):
        import tensorflow as tf

        import tf_adapters

        lora, tasks = settings["arm"] == "routed-lora", settings.get("tasks", TASKS)
        model, self.details = _build({**settings, "arm": "lora" if lora else "adapters"}, adapters=True)
        wordpiece = tf_adapters.text.WordPiece.from_directory(settings["directory"], max_length=128)
        self.bank = tf_adapters.AdapterBank(settings["directory"])
        with tempfile.TemporaryDirectory() as folder:
            task = {"kind": "classification", "text_pairs": False}
            for number, name in enumerate(names_of(tasks, tasks)):
                if lora:
                    _assign(
                        model,
                        *worker_protocol.task_weights(number, model.config.num_hidden_layers, model.config.hidden_size),
                    )
                if lora or number == 0:
                    tf_adapters.save_adapter(model, f"{folder}/task", text=wordpiece, task=task)
                self.bank.add(name, f"{folder}/task")
        self.batches = [
            {**inputs, "task": tf.constant(names_of(len(inputs["input_ids"]), tasks))}
            for inputs, _ in _read_batches(settings["batches"])
        ]
        if lora:
            self.details["logits"] = self.bank(self.batches[0])["logits"].numpy().tolist()
        self.batch_count = len(self.batches)
        self.details["resident"] = tasks

    def step(self, index):
        self.bank(self.batches[index])["logits"].numpy()


class ProductsArm(ProfiledArm):
    """`products`: the matrix products of a step with fast blocks and nothing else, which it could at best cost."""

    def __init__(self, settings):
        import tensorflow as tf

        model, self.details = _build({**settings, "arm": "forward-plain"}, adapters=False)
        dtype = tf.bfloat16 if settings["precision"] == "mixed_bfloat16" else tf.float32
        shapes = [tuple(inputs["input_ids"].shape) for inputs, _ in _read_batches(settings["batches"])]
        self.batch_count = len(shapes)
        self.functions = [
            self._function(step_products(*shape, model.config, settings["bottleneck"]), dtype) for shape in shapes
        ]

    @staticmethod
    def _function(products, dtype):
        import tensorflow as tf

        # Each factor is a tensor of its own: of two products of the same ones TensorFlow computes one.
        factors = [[tf.Variable(tf.cast(tf.random.normal(shape), dtype)) for shape in product] for product in products]

        @tf.function
        def compute():
            return [tf.reshape(tf.matmul(one, other), [-1])[0] for one, other in factors]

        return compute

    def step(self, index):
        self.functions[index]()[-1].numpy()


def step_products(batch, length, config, bottleneck):
    """The shapes of the factors of all matrix products in a step of adapter tuning with fast blocks: a list of pairs.

    As there, the last block goes on with its first token, nothing below the lowest adapter is differentiated, and
    frozen kernels have no gradient.
    """
    size, inner, heads = config.hidden_size, config.intermediate_size, config.num_attention_heads
    depth, width, products = config.num_hidden_layers, size // heads, []

    def product(rows, inputs, outputs):
        products.append(((rows, inputs), (inputs, outputs)))

    for block in range(depth):
        last = block == depth - 1
        asked = 1 if last else length
        every, rows = batch * length, batch * asked
        projections = 2 * size if last else 3 * size
        scores = ((batch, heads, asked, width), (batch, heads, width, length))
        context = ((batch, heads, asked, length), (batch, heads, length, width))
        product(every, size, projections)
        product(rows, size, size if last else 0)  # the last block's queries
        products += [scores, context]
        product(rows, size, size)
        product(rows, size, inner)
        product(rows, inner, size)
        for _ in range(2):
            product(rows, size, bottleneck)
            product(rows, bottleneck, size)
            # Backwards: the adapter's inputs and kernels.
            product(rows, size, bottleneck)
            product(rows, bottleneck, size)
            product(size, rows, bottleneck)
            product(bottleneck, rows, size)
        # Backwards: the inputs of what is frozen.
        product(rows, size, inner)
        product(rows, inner, size)
        if block:
            product(rows, size, size)
            products += [scores, context, *[((batch, heads, length, asked), (batch, heads, asked, width))] * 2]
            product(every, projections, size)
            product(rows, size, size if last else 0)
    return [pair for pair in products if 0 not in pair[1]]


def make_arm(settings):
    """The arm that `settings["arm"]` names."""
    from tf_adapters._keras import keras

    set_threads(settings["threads"], _parts(settings))
    keras.utils.set_random_seed(settings["seed"])
    keras.mixed_precision.set_global_policy(settings["precision"])
    kinds = {"forward": ForwardArm, "products": ProductsArm, "routed": RoutedArm, "texts": TextsArm}
    return kinds.get(settings["arm"].partition("-")[0], TrainingArm)(settings)


def _parts(settings):
    """In how many parts at once an arm computes a step: as `tf-adapters train` does, for each core one."""
    kind = settings["arm"].partition("-")[0]
    whole = kind != "forward" and settings["arm"] not in ("adapters", "fast", "lora", "fast-lora") or settings["xla"]
    return 1 if whole else settings["threads"]


def set_threads(count, parts=1):
    """Let TensorFlow compute by so many threads, an operation by those of one of the parts."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(max(1, count // parts))
    tf.config.threading.set_inter_op_parallelism_threads(count)


def _assign(model, sites, classifier):
    """Give a model with LoRA, and its classifier, the weights of a task."""
    named = {variable.name.partition(":")[0]: variable for variable in model.trainable_variables}
    for (block, target), factors in sites.items():
        for part, values in zip("ab", factors):
            (variable,) = (named[name] for name in named if name.endswith(f"layer.{block}.{target}/{part}"))
            variable.assign(values)
    model.classifier.set_weights(classifier)


def _build(settings, *, adapters):
    from transformers import TFBertModel  # noqa: F401 - which loading imports

    import tf_adapters
    from tf_adapters.training.step import seed_dropout

    details = {"versions": installed_versions(*_PACKAGES), "libraries_rss_mib": worker_protocol.peak_rss_mib()}
    model = tf_adapters.load_backbone(settings["directory"], num_labels=2)
    if adapters:
        config = tf_adapters.AdapterConfig(bottleneck_size=settings["bottleneck"], train_layer_norm="encoder")
        if settings["arm"].endswith("lora"):
            config = tf_adapters.LoraConfig(rank=RANK, alpha=ALPHA, targets=TARGETS)
        for name in ("default", *(f"adapter-{number}" for number in range(1, settings.get("adapters", 1)))):
            tf_adapters.add_adapters(model, config, name=name, seed=settings["seed"], fast="fast" in settings["arm"])
    if settings["arm"].startswith("checkpointed"):
        seed_dropout(model, settings["seed"])
    if settings["arm"].startswith("forward"):
        model.trainable = False
    else:
        tf_adapters.set_trainable(model, "adapters" if adapters else "full")
    if "fast" in settings["arm"]:
        tf_adapters.models.cast_frozen(model)
    return model, details


def _read_batches(path):
    import tensorflow as tf

    batches = []
    for arrays in worker_protocol.read_batches(path):
        ids, mask, labels = map(tf.constant, arrays)
        batches.append(({"input_ids": ids, "attention_mask": mask, "token_type_ids": tf.zeros_like(ids)}, labels))
    return batches


def main():
    worker_protocol.serve(make_arm)
