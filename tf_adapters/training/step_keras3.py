"""One training step of Keras 3, and what settings change in it; `step` is Keras 2's."""

import contextlib
import functools

import keras

from tf_adapters._keras3_internals import layers_of, uncast
from tf_adapters.layers.method import MethodLayer
from tf_adapters.models.keras_hub.site import Site
from tf_adapters.models.state import state_of
from tf_adapters.models.transaction import replaced
from tf_adapters.training.trained import matrices_to_mix


class TrainingStep(keras.Model):
    """A model, or one around it, that is called in training within the context `computing()` of each change, whose
    variables and SeedGenerators are its list `held`."""

    def __init__(self, inner, changes=()):
        super().__init__(name="training_step", dtype=inner.dtype_policy)
        self.inner, self.changes = inner, tuple(changes)
        self.held, self.built = [one for change in changes for one in change.held], True

    def call(self, inputs, training=None):
        with contextlib.ExitStack() as contexts:
            for change in self.changes if training else ():
                contexts.enter_context(change.computing())
            return self.inner(inputs, training=training)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        # The weight is the whole batch's: not every loss here has an entry for each row.
        loss = super().compute_loss(x, y, y_pred, training=training)
        return loss if sample_weight is None else loss * keras.ops.mean(sample_weight)


class Mixout:
    """Each matrix is partly, at every training step anew, the one that it began with; as of the first door's
    `step.Mixout`.

    Args:
        model: a model of KerasHub.
        rate: float in (0, 1), the probability with which an entry is that of the beginning.
        seed: int, decides the masks.

    Attributes:
        seeds: list of SeedGenerators, whose state is that of the masks.
        begun: list of float32 variables, the matrices at the beginning.

    Raises:
        InputError: a rate out of range, or nothing to mix.
    """

    def __init__(self, model, rate, *, seed):
        kinds = (keras.layers.Dense, keras.layers.EinsumDense, MethodLayer)
        layers = [layer for layer in layers_of(model) if isinstance(layer, kinds)]
        self.rate, self._places, first = rate, matrices_to_mix(model, layers, rate), seed * 1_000_033 + 2**30
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
            begun, current = uncast(initial), uncast(owners[0][2])
            mixed = begun + keras.random.dropout(current - begun, self.rate, seed=seeds)
            for layer, attribute, _ in owners:
                changes.append((layer, attribute, keras.ops.cast(mixed, layer.compute_dtype)))
        return replaced(changes)


class GradientCheckpointing:
    """Of each block only its input is kept for the gradient; as of the first door's `step.GradientCheckpointing`.

    `keras.remat` computes a block twice, and Keras' dropout would draw anew. Here the second time has the numbers of
    the first, which are those of a step without.

    Args:
        model: a model of KerasHub, after its dropout was seeded.
    """

    held = ()

    def __init__(self, model):
        self._blocks = [(block, *_draws(block)) for block in state_of(model).family.blocks(model)]

    @contextlib.contextmanager
    def computing(self):
        """While a step is traced, Keras finds another `call` in each block."""
        for block, generators, sites in self._blocks:
            vars(block)["call"] = functools.partial(_compute, block, generators, sites)
        try:
            yield
        finally:
            for block, *_ in self._blocks:
                del vars(block)["call"]


def _draws(block):
    """The SeedGenerators of a block's dropout, and the sites in it that draw how many blocks do without adapters."""
    layers = layers_of(block)
    dropouts = [layer for layer in layers if isinstance(layer, keras.layers.Dropout) and layer.rate]
    generators = {id(layer.seed_generator): layer.seed_generator for layer in dropouts}
    return list(generators.values()), [layer for layer in layers if isinstance(layer, Site) and layer.drawing]


class _InTraining(keras.layers.Layer):
    """Computes a function as a layer that trains does; a gradient is computed when no layer is at work any more."""

    def __init__(self, function, dtype):
        super().__init__(name="again", dtype=dtype)
        self.function = function

    def call(self, inputs, training=None):
        return self.function(inputs)


def _compute(block, generators, sites, inputs, *args, **kwargs):
    """`block.call(inputs, ...)`, of which the gradient keeps the inputs alone."""
    for site in sites:
        for name in site.drawing:
            site.drops[name].draw()
    states, uses = [uncast(generator.state) * 1 for generator in generators], []

    def compute(inputs):
        layer = _InTraining(lambda inputs: type(block).call(block, inputs, *args, **kwargs), block.dtype_policy)
        with _drawn(generators, states, sites) as counts:
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


@contextlib.contextmanager
def _drawn(generators, states, sites):
    """While it lasts, generators draw from these states on and stay as they are; a list of how often they drew."""
    counts, drawing = [0] * len(generators), [site.drawing for site in sites]

    def draw(number, ordered=True):
        counts[number] += 1
        return _further(states[number], counts[number] - 1)

    for number, generator in enumerate(generators):
        vars(generator)["next"] = functools.partial(draw, number)
    for site in sites:
        site.drawing = frozenset()
    try:
        yield counts
    finally:
        for generator in generators:
            del vars(generator)["next"]
        for site, names in zip(sites, drawing):
            site.drawing = names
