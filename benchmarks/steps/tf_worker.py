"""The arms that run on TensorFlow, by the package's public functions; started by step.py.

A training step is the function that `model.fit` calls for each batch
(`make_train_function`, from an iterator over a dataset), without fit's callbacks.
`train_on_batch` would wrap each batch in a new dataset of its own, which costs
milliseconds that no training pays.
"""

import functools
import tempfile

import numpy as np

from benchmarks.peers.worker_protocol import serve
from benchmarks.provenance import installed_versions
from benchmarks.steps.bank_arm import RoutedArm


class TrainingArm:
    """`adapters`, `full`, these or `fast` as `checkpointed-...`, `fast`, `fast-upper`, `fast-upper-cached`, `lora` or
    `fast-lora`: one optimiser step on one batch."""

    def __init__(self, settings):
        import tensorflow as tf

        from tf_adapters import save_adapter
        from tf_adapters._keras import keras
        from tf_adapters.layers.ops import keras2
        from tf_adapters.training.step import GradientCheckpointing, TrainingStep

        self.whole, self.details = _build(settings, adapters=not settings["arm"].endswith("full"))
        batches = _read_batches(settings["batches"])
        self.batch_count = len(batches)
        trained = self.whole
        if settings["arm"].endswith("cached"):
            trained, batches = _cached(trained, batches, settings)
        self.model = TrainingStep(
            trained, [GradientCheckpointing(self.whole)] if settings["arm"].startswith("checkpointed") else []
        )
        self.model.compile(
            optimizer=keras2.Adam(settings["learning_rate"]),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            jit_compile=settings["xla"],
        )
        datasets = [
            batch if isinstance(batch, tf.data.Dataset) else tf.data.Dataset.from_tensors(batch) for batch in batches
        ]
        self.iterator = iter(functools.reduce(lambda a, b: a.concatenate(b), datasets).repeat())
        self.train = self.model.make_train_function()
        self.trained_parameters = _count(self.model.trainable_variables)
        self._save_adapter = save_adapter

    def step(self, index):
        float(self.train(self.iterator)["loss"])  # reading the loss waits for the step

    def save(self, directory):
        self._save_adapter(self.whole, directory)


class ForwardArm:
    """`forward-plain`, `forward-adapters` or `forward-fast`: the logits of one batch."""

    trained_parameters = 0

    def __init__(self, settings):
        import tensorflow as tf

        self.model, self.details = _build(settings, adapters=settings["arm"] != "forward-plain")
        self.batches = [inputs for inputs, _ in _read_batches(settings["batches"])]
        self.batch_count = len(self.batches)
        specs = {name: tf.TensorSpec((None, None), tf.int32) for name in self.batches[0]}

        # XLA compiles for each shape; a signature of unknown sizes would hide them.
        @tf.function(input_signature=None if settings["xla"] else [specs], jit_compile=settings["xla"] or None)
        def forward(inputs):
            return self.model(inputs, training=False).logits

        self.forward = forward

    def step(self, index):
        self.forward(self.batches[index]).numpy()

    def save(self, directory):
        pass


class ProductsArm:
    """`products`: the matrix products of a `fast` step and nothing else, which is what the step could at best cost.

    As there, the last block goes on with its first token, nothing below the lowest adapter is differentiated, and
    frozen kernels have no gradient.
    """

    trained_parameters = 0

    def __init__(self, settings):
        import tensorflow as tf

        model, self.details = _build({**settings, "arm": "forward-plain"}, adapters=False)
        config = model.config
        dtype = tf.bfloat16 if settings["precision"] == "mixed_bfloat16" else tf.float32
        shapes = [tuple(inputs["input_ids"].shape) for inputs, _ in _read_batches(settings["batches"])]
        self.batch_count = len(shapes)
        sizes = dict(
            depth=config.num_hidden_layers, size=config.hidden_size, inner=config.intermediate_size,
            heads=config.num_attention_heads, bottleneck=settings["bottleneck"],
        )  # fmt: skip
        self.functions = [self._function(step_products(*shape, **sizes), dtype) for shape in shapes]

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

    def save(self, directory):
        pass


def step_products(batch, length, *, depth, size, inner, heads, bottleneck):
    """The shapes of the factors of all matrix products in a step of adapter tuning with fast blocks.

    Returns: list of pairs of shapes.
    """
    width, products = size // heads, []

    def product(rows, inputs, outputs):
        products.append(((rows, inputs), (inputs, outputs)))

    for block in range(depth):
        first, last = block == 0, block == depth - 1
        asked = 1 if last else length
        all_rows, rows = batch * length, batch * asked
        projections = 2 * size if last else 3 * size
        product(all_rows, size, projections)
        if last:
            product(rows, size, size)
        scores = ((batch, heads, asked, width), (batch, heads, width, length))
        context = ((batch, heads, asked, length), (batch, heads, length, width))
        products += [scores, context]
        for outputs in (size, inner):
            product(rows, outputs, size)
            product(rows, size, bottleneck)
            product(rows, bottleneck, size)
        product(rows, size, inner)
        # Backward: the adapters' inputs and kernels, then the inputs of what is frozen.
        for _ in range(2):
            product(rows, size, bottleneck)
            product(rows, bottleneck, size)
            product(size, rows, bottleneck)
            product(bottleneck, rows, size)
        product(rows, size, inner)
        product(rows, inner, size)
        if not first:
            product(rows, size, size)
            products += [scores, ((batch, heads, asked, length), (batch, heads, length, width))]
            products += [((batch, heads, length, asked), (batch, heads, asked, width))] * 2
            product(all_rows, projections, size)
            if last:
                product(rows, size, size)
    return products


def make_arm(settings):
    """The arm that `settings["arm"]` names."""
    import tensorflow as tf

    from tf_adapters._keras import keras

    tf.config.threading.set_intra_op_parallelism_threads(settings["threads"])
    tf.config.threading.set_inter_op_parallelism_threads(settings["threads"])
    keras.utils.set_random_seed(settings["seed"])
    keras.mixed_precision.set_global_policy(settings["precision"])
    kinds = {"products": ProductsArm, "forward": ForwardArm, "routed": RoutedArm}
    return kinds.get(settings["arm"].partition("-")[0], TrainingArm)(settings)


def _build(settings, *, adapters):
    import tf_adapters
    from tf_adapters.training.step import seed_dropout

    model = tf_adapters.load_backbone(settings["directory"], num_labels=2)
    if adapters:
        upper, depth = "upper" in settings["arm"], model.config.num_hidden_layers
        config = tf_adapters.AdapterConfig(
            bottleneck_size=settings["bottleneck"],
            blocks=range(depth // 2, depth) if upper else None,
            train_layer_norm="adapted" if upper else "encoder",
        )
        if settings["arm"].endswith("lora"):
            config = tf_adapters.LoraConfig(rank=8, alpha=16, targets=("query", "value"))
        tf_adapters.add_adapters(model, config, seed=settings["seed"], fast="fast" in settings["arm"])
        if upper:
            seed_dropout(model, settings["seed"], rate=0.0)
    if settings["arm"].startswith("checkpointed"):
        seed_dropout(model, settings["seed"])
    if settings["arm"].startswith("forward"):
        model.trainable = False
    else:
        tf_adapters.set_trainable(model, "adapters" if adapters else "full")
    if "fast" in settings["arm"]:
        tf_adapters.cast_frozen(model)
    versions = installed_versions("tensorflow", "tf-keras", "transformers", "numpy", "tf_adapters")
    return model, {"versions": versions}


def _cached(model, batches, settings):
    """The blocks that are not frozen as a model, and the batches with the outputs of the others read from a file."""
    import tensorflow as tf

    from tf_adapters import WordPiece
    from tf_adapters.models.transformers.upper_blocks import UpperBlocks
    from tf_adapters.text.batching import PackedExamples
    from tf_adapters.training.frozen_blocks import StoredStates, frozen_depth

    ragged = [
        tf.RaggedTensor.from_tensor(inputs["input_ids"], tf.reduce_sum(inputs["attention_mask"], 1))
        for inputs, _ in batches
    ]
    ids = tf.concat(ragged, 0)
    examples = PackedExamples(ids, tf.zeros_like(ids))
    wordpiece = WordPiece.from_directory(settings["directory"], max_length=model.config.max_position_embeddings)
    depth = frozen_depth(model)
    with tempfile.TemporaryDirectory() as folder:
        states = StoredStates(model, depth, examples, wordpiece, folder, batch_size=32)
    rows, datasets = 0, []
    for inputs, labels in batches:
        numbers = tf.range(rows, rows + len(labels), dtype=tf.int64)
        dataset = tf.data.Dataset.from_tensors((inputs, numbers, labels))
        datasets.append(dataset.map(lambda inputs, numbers, labels: (states.inputs(inputs, numbers), labels)))
        rows += len(labels)
    return UpperBlocks(model, depth), datasets


def _read_batches(path):
    import tensorflow as tf

    batches = []
    with np.load(path) as arrays:
        for index in range(len(arrays.files) // 3):
            ids = tf.constant(arrays[f"input_ids_{index}"])
            inputs = {
                "input_ids": ids,
                "attention_mask": tf.constant(arrays[f"attention_mask_{index}"]),
                "token_type_ids": tf.zeros_like(ids),
            }
            batches.append((inputs, tf.constant(arrays[f"labels_{index}"])))
    return batches


def _count(variables):
    return int(sum(variable.shape.num_elements() for variable in variables))


def main():
    serve(make_arm)
