"""What Keras 3 trains: a model of KerasHub, on TensorFlow, JAX or PyTorch, its step, and what settings change in it.

`step` is Keras 2's.
"""

import contextlib
import dataclasses
import functools

import keras
import tensorflow as tf

from tf_adapters import _keras3_internals as internals
from tf_adapters.errors import InputError
from tf_adapters.layers.method import MethodLayer
from tf_adapters.layers.ops import keras3
from tf_adapters.models.keras_hub.door import Called, compiles_shapes
from tf_adapters.models.keras_hub.site import Site
from tf_adapters.models.state import state_of
from tf_adapters.models.transaction import replaced
from tf_adapters.text.batching import in_parts
from tf_adapters.training import trained
from tf_adapters.training.parts import computed_at_once, parts_of_a_step, rehearsal
from tf_adapters.training.settings import check_door, check_rows


class TrainingStep(keras.Model):
    """A model, or one around it, that is called in training within the context `computing()` of each change, whose
    variables and SeedGenerators are its list `held`.

    Args:
        inner: the model.
        changes: a sequence.
        at_once: PartsAtOnce, or None.
    """

    def __init__(self, inner, changes=(), at_once=None):
        super().__init__(name="training_step", dtype=inner.dtype_policy)
        self.inner, self.changes, self.at_once = inner, tuple(changes), at_once
        self.held, self.built = [one for change in changes for one in change.held], True

    def call(self, inputs, training=None):
        with contextlib.ExitStack() as contexts:
            for change in self.changes if training else ():
                contexts.enter_context(change.computing())
            return self.inner(inputs, training=training)

    def fit(self, *args, **kwargs):
        with internals.values_kept(self):
            return super().fit(*args, **kwargs)

    def train_step(self, *arguments):
        return super().train_step(*arguments) if self.at_once is None else self.at_once.train_step(self, *arguments)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        # The weight is the whole batch's: not every loss here has an entry for each row.
        loss = super().compute_loss(x, y, y_pred, training=training)
        return loss if sample_weight is None else loss * keras.ops.mean(sample_weight)


class PartsAtOnce:
    """As of the first door's `step.PartsAtOnce`, for a model of KerasHub on TensorFlow; `seeds` are its
    SeedGenerators."""

    def __init__(self, parts, weigh, seeds):
        self.parts, self.weigh, self.seeds = parts, weigh, seeds

    def train_step(self, step, batch):
        """As Keras' own on TensorFlow."""
        inputs, targets, _ = keras.utils.unpack_x_y_sample_weight(batch)
        trains, draws = step.trainable_variables, []
        states = [internals.uncast(generator.state) * 1 for generator in self.seeds]

        def drawn(number):
            return [_apart(state, number) for state in states]

        def compute_part(inputs, targets, share, states):
            with _from(self.seeds, states) as counts, tf.GradientTape() as tape:
                outputs = step(inputs, training=True)
                means = internals.loss_means(step, targets, outputs)
                with replaced([(mean, "update_state", lambda *_, **__: None) for mean in means]):
                    loss = step.compute_loss(inputs, targets, outputs, share)
                scaled = step.optimizer.scale_loss(loss)
            draws[:] = counts
            return [loss, *tape.gradient(scaled, trains)], outputs

        (loss, *gradients), outputs = computed_at_once(compute_part, inputs, targets, self.parts, self.weigh, drawn)
        for generator, state, count in zip(self.seeds, states, draws):
            generator.state.assign(_further(state, count))
        step.optimizer.apply_gradients(zip(gradients, trains))
        internals.count_loss(step, loss, targets, outputs)
        return step.compute_metrics(inputs, targets, outputs)

    def rehearsal(self, model):
        """As of `parts`, of a model with fast blocks."""
        from tf_adapters.models.keras_hub.fast import first_token_only

        def call(block, states, mask):
            with first_token_only(), _from(self.seeds, [tf.zeros([2], tf.uint32)] * len(self.seeds)):
                return block(states, padding_mask=mask, training=True)

        return rehearsal(model, call)


class Mixout:
    """As of the first door's `step.Mixout`, for a model of KerasHub; `seeds` are SeedGenerators, whose state is that of
    the masks."""

    def __init__(self, model, rate, *, seed):
        kinds = (keras.layers.Dense, keras.layers.EinsumDense, MethodLayer)
        layers = [layer for layer in internals.layers_of(model) if isinstance(layer, kinds)]
        self.rate, self._places, first = rate, trained.matrices_to_mix(model, layers, rate), seed * 1_000_033 + 2**30
        numbers = range(first, first + len(self._places))  # other ones than those of the model's dropout
        self.seeds = [keras.random.SeedGenerator(number % 2**31) for number in numbers]
        begun = [keras.ops.convert_to_numpy(owners[0][2]) for owners in self._places]  # a value would be shared
        self.begun = [keras.Variable(matrix, dtype="float32", trainable=False) for matrix in begun]
        self.held = [*self.begun, *self.seeds]

    def computing(self):
        """While a step is traced, layers find a mixture in place of a matrix."""
        changes = []
        for owners, initial, seeds in zip(self._places, self.begun, self.seeds):
            # float32 under mixed precision too, where rounding would hide what a weight moved.
            begun, current = internals.uncast(initial), internals.uncast(owners[0][2])
            mixed = begun + keras.random.dropout(current - begun, self.rate, seed=seeds)
            for layer, attribute, _ in owners:
                changes.append((layer, attribute, keras.ops.cast(mixed, layer.compute_dtype)))
        return replaced(changes)


class GradientCheckpointing:
    """As of the first door's `step.GradientCheckpointing`, for a model of KerasHub.

    `keras.remat` computes a block twice, and Keras' dropout would draw anew. Here the second time has the numbers of
    the first, which are those of a step without.
    """

    held = ()

    def __init__(self, model):
        self._blocks = [(block, *_draws(block)) for block in state_of(model).family.blocks(model)]

    def computing(self):
        """While a step is traced, Keras finds another `call` in each block."""
        return replaced([(block, "call", functools.partial(_compute, block, *drawn)) for block, *drawn in self._blocks])


def _draws(block):
    """The SeedGenerators of a block's dropout, the sites in it that draw how many blocks do without adapters, and what
    holds these numbers."""
    layers = internals.layers_of(block)
    dropouts = [layer for layer in layers if isinstance(layer, keras.layers.Dropout) and layer.rate]
    generators = {id(layer.seed_generator): layer.seed_generator for layer in dropouts}
    sites = [layer for layer in layers if isinstance(layer, Site)]
    drops = {id(drop): drop for site in sites for drop in site.drops.values()}
    return list(generators.values()), [site for site in sites if site.drawing], list(drops.values())


class _InTraining(keras.layers.Layer):
    """Computes a function as a layer that trains does; a gradient is computed when no layer is at work any more."""

    def __init__(self, function, dtype):
        super().__init__(name="again", dtype=dtype)
        self.function = function

    def call(self, inputs, training=None):
        return self.function(inputs)


def _compute(block, generators, sites, drops, inputs, *args, **kwargs):
    """`block.call(inputs, ...)`, of which the gradient keeps the inputs alone."""
    for site in sites:
        for name in site.drawing:
            site.drops[name].draw()
    states, uses = [internals.uncast(generator.state) * 1 for generator in generators], []
    # As they are now: a block that is used again, as ALBERT's is, draws others before the gradient comes back to it.
    drawn = [(drop, "number", internals.uncast(drop.number) * 1) for drop in drops]
    drawn += [(site, "drawing", frozenset()) for site in sites]

    def compute(inputs):
        layer = _InTraining(lambda inputs: type(block).call(block, inputs, *args, **kwargs), block.dtype_policy)
        with replaced(drawn), _from(generators, states) as counts:
            outputs = layer(inputs, training=True)
        uses[:] = counts
        return outputs

    outputs = keras.remat(compute)(inputs)
    for generator, state, used in zip(generators, states, uses):
        generator.state.assign(_further(state, used))
    return outputs


def _further(state, count):
    """The state of a SeedGenerator that has drawn `count` times more."""
    return state + keras.ops.convert_to_tensor([0, count], dtype=state.dtype)


def _apart(state, number):
    """The state of a SeedGenerator of another seed, further off than a model has generators."""
    return state + keras.ops.convert_to_tensor([number << 20, 0], dtype=state.dtype)


@contextlib.contextmanager
def _from(generators, states):
    """While it lasts, generators draw from these states on and stay as they are; a list of how often they drew."""
    counts = [0] * len(generators)

    def draw(number, ordered=True):
        counts[number] += 1
        return _further(states[number], counts[number] - 1)

    changes = [(generator, "next", functools.partial(draw, number)) for number, generator in enumerate(generators)]
    with replaced(changes):
        yield counts


class Trained(trained.Trained):
    """As of `trained.Trained`; `keras_model` is a `TrainingStep`."""

    ops = keras3

    def __init__(self, model, kind, examples, tokenizer, settings, workers):
        super().__init__(model, kind, examples, tokenizer, settings, workers)
        self.precision = keras.config.dtype_policy().name
        self.identity = {"door": "keras-hub", "backend": keras.backend.backend(), "devices": devices()}
        if keras.backend.backend() == "jax" and any(len(of.value.devices()) != devices() for of in model.variables):
            raise InputError(
                "{model} was made under another keras.distribution: call set_distribution first, and load it after.",
                model=type(model).__name__,
            )
        self.parts = settings.accumulate
        seeds = _seed_dropout(model, settings.seed, settings.dropout)
        self.draws = [each.state for each in seeds]
        inner = kind.trained(model, jit_compile=settings.jit_compile)
        if self.parts > 1:
            self._check_parts(counts_rows=inner is model)
        changes = [GradientCheckpointing(model)] if settings.checkpoint_gradients else []
        if settings.mixout:
            changes.append(mixout := Mixout(model, settings.mixout, seed=settings.seed))
            self.draws += [each.state for each in mixout.seeds]
            self.begun = mixout.begun
        # Of masked words each part has another number.
        parts = parts_of_a_step(model, settings, workers) if inner is model else 1
        self.at_once = PartsAtOnce(parts, kind.loss_weight, seeds) if parts > 1 else None
        self.keras_model = TrainingStep(Called(model) if inner is model else inner, changes, self.at_once)
        if settings.jit_compile:
            internals.let_compiler_recurse()

    @staticmethod
    def checked(settings, strategy):
        check_door(settings.to_dict(), "keras-hub")
        if strategy is not None:
            raise InputError("{strategy} is for {door}: leave it out.", strategy=strategy, door="transformers")
        if devices() > 1:
            # Keras spreads each part of a step.
            check_rows(settings.batch_size, devices() * settings.accumulate)
        # With few lengths and full batches alone, so that shapes stay few.
        return dataclasses.replace(settings, jit_compile=True) if compiles_shapes() else settings

    def losses_afterwards(self):
        """The plain loss: with another Keras' `save` cannot write the model down."""
        plain = self.kind.losses(ops=self.ops)
        del plain["metrics"]
        return plain

    def _check_parts(self, counts_rows):
        """InputError where the parts of a step would not come to the same as the whole."""
        settings, rest, why = self.settings, len(self.examples) % self.settings.batch_size, None
        if self.precision == "mixed_float16":
            why = "Keras skips a part whose gradient overflows, and counts the others wrongly; take mixed_bfloat16"
        elif settings.jit_compile and not counts_rows:
            why = "a compiled step has places for what is hidden in a batch, and not in its parts; leave it out"
        elif not settings.jit_compile and 0 < rest < self.parts:
            why = f"the last step of an epoch has fewer rows than parts, {rest}; take another batch_size"
        if why is not None:
            raise InputError(f"{{accumulate}}: {why}.", accumulate=self.parts)

    def batches(self, batches):
        """A step's parts are batches of Keras, whose optimiser adds up their gradients."""
        return in_parts(batches, self.parts, self.kind.loss_weight) if self.parts > 1 else batches

    def callback(self, run):
        """A callback of Keras that tells `run` of steps, whose parts are Keras' batches."""
        callback, parts = super().callback(run), self.parts
        began, ended = callback.on_train_batch_begin, callback.on_train_batch_end
        callback.on_train_batch_begin = lambda batch, logs=None: batch % parts or began(batch, logs)
        callback.on_train_batch_end = lambda batch, logs=None: (batch + 1) % parts or ended(batch, logs)
        return callback

    def sync(self):
        """On JAX a training keeps the values to itself."""
        internals.sync_state(self.keras_model)


def spread_over_devices():
    """Let Keras spread each batch over the devices of this machine, for models that are made from now on.

    Raises: InputError, where there is one device, or on another backend than JAX.
    """
    backend, count = keras.backend.backend(), 1
    if backend == "jax":
        count = len(keras.distribution.list_devices())
    if count < 2:
        why = "JAX sees one" if backend == "jax" else f"Keras takes them on JAX alone, and runs on {backend}"
        raise InputError(f"{{strategy}} needs two devices or more, and {why}: leave it out.", strategy="mirrored")
    keras.distribution.set_distribution(keras.distribution.DataParallel())


def devices():
    """Over how many devices Keras spreads a batch, an int."""
    spread = keras.distribution.distribution()
    return 1 if spread is None else spread.device_mesh.devices.size


def _seed_dropout(model, seed, rate):
    """Let every random number of training follow from one seed; `rate` as of the first door's `step.seed_dropout`.

    Returns: list of keras.random.SeedGenerator, in an order that depends on the model alone.
    """
    sites = [layer for layer in internals.layers_of(model) if isinstance(layer, Site)]
    of_adapters = {
        id(one) for site in sites for adapter in site.adapters.values() for one in internals.layers_of(adapter)
    }
    found = []
    for layer in internals.layers_of(model):
        if not isinstance(layer, keras.layers.Dropout):
            continue
        built_with = getattr(layer, "_tf_adapters_rate", layer.rate)
        layer._tf_adapters_rate = built_with
        internals.set_dropout(layer, built_with if rate is None or id(layer) in of_adapters else rate)
        if layer.rate:
            found.append(layer.seed_generator)
    internals.let_attentions_drop(model)
    found += [drop.seeds for site in sites for drop in site.drops.values() if drop.seeds is not None]
    distinct = list({id(one): one for one in found}.values())
    for number, one in enumerate(distinct):
        internals.seed_generator(one, (seed * 1_000_003 + number) % 2**31)
    return distinct
