"""Gradient checkpointing. Chen et al. 2016, Training Deep Nets with Sublinear Memory Cost."""

import contextlib
import functools

import tensorflow as tf

from tf_adapters.errors import InputError
from tf_adapters.layers.dropout import SeededDropout
from tf_adapters.models.state import state_of
from tf_adapters.models.transformers.site import replaced
from tf_adapters.training.step import Change


class GradientCheckpointing(Change):
    """Of each block only its input is kept for the gradient, and the backward pass computes the block once more.

    A training step takes less memory and more time, by about one forward pass. The dropout masks of the second time are
    those of the first: their seeds are drawn before the block. Losses and gradients are those without, but for the
    rounding of operations that TensorFlow fuses where it needs nothing between them.

    Args:
        model: a transformers TensorFlow model, after `seed_dropout`.

    Raises:
        InputError: a block has dropout that cannot be repeated.

    Reference: Chen et al. 2016, section 4.1, with a block as a segment.
    """

    def __init__(self, model):
        self.model, state, self._blocks = model, state_of(model), []
        for index, block in enumerate(state.family.blocks(model)):
            sites = [site for (number, _), site in state.sites.items() if number == index]
            dropouts = []
            for layer in block.submodules:
                if isinstance(layer, SeededDropout):
                    # An adapter that two places of the block share draws for each.
                    uses = sum(layer in adapter.submodules for site in sites for adapter in site.adapters.values())
                    dropouts.append((layer, max(1, uses)))
                elif getattr(layer, "rate", 0) or getattr(layer, "drop_prob", 0):
                    raise InputError(
                        f"{{checkpoint_gradients}}: the dropout {layer.name!r} ({type(layer).__name__}) of "
                        f"block {index} cannot draw the same mask twice; leave the option out, or build the model "
                        "without that dropout.",
                        checkpoint_gradients=True,
                    )
            self._blocks.append((block, dropouts))

    @contextlib.contextmanager
    def computing(self, training):
        """While a step is traced, Keras finds another `call` in each block; outside, and so in the backward pass, its
        own."""
        trained = [variable.handle for variable in self.model.trainable_variables]
        for block, dropouts in self._blocks:
            vars(block)["call"] = functools.partial(_compute, block, dropouts, trained)
        try:
            yield
        finally:
            for block, _ in self._blocks:
                del vars(block)["call"]


def _compute(block, dropouts, trained, *args, **kwargs):
    """`block.call(*args, **kwargs)`, of which the gradient keeps the arguments alone."""
    leaves = tf.nest.flatten((args, kwargs))
    places = [place for place, leaf in enumerate(leaves) if tf.is_tensor(leaf)]
    seeds = [[dropout.generator.make_seeds() for _ in range(uses)] for dropout, uses in dropouts]

    def run(function, tensors):
        filled = list(leaves)
        for place, tensor in zip(places, tensors):
            filled[place] = tensor
        own_args, own_kwargs = tf.nest.pack_sequence_as((args, kwargs), filled)
        with replaced([(dropout, "generator", _Drawn(drawn)) for (dropout, _), drawn in zip(dropouts, seeds)]):
            return function(*own_args, **own_kwargs)

    @tf.custom_gradient
    def checkpointed(*tensors):
        def gradient(*upstream, variables=()):
            own = [variable for variable in variables if any(variable.handle is handle for handle in trained)]
            # What does not depend on the upstream gradient could be merged with the first computation, and then it
            # would be kept.
            zero = _zero_after(upstream)
            again = [tensor + tf.cast(zero, tensor.dtype) if tensor.dtype.is_floating else tensor for tensor in tensors]
            sources = [tensor for tensor in again if tensor.dtype.is_floating]
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch([*sources, *own])
                outputs = tf.nest.flatten(run(block, again))
            gradients = iter(tape.gradient(outputs, [*sources, *own], output_gradients=list(upstream)))
            of_tensors = [next(gradients) if tensor.dtype.is_floating else None for tensor in again]
            of_own = {variable.ref(): value for variable, value in zip(own, gradients)}
            return of_tensors, [of_own.get(variable.ref()) for variable in variables]

        outputs = run(type(block).call.__get__(block), tensors)
        structure.append(outputs)
        return tf.nest.flatten(outputs), gradient

    structure = []
    outputs = checkpointed(*[tf.convert_to_tensor(leaves[place]) for place in places])
    return tf.nest.pack_sequence_as(structure[0], tf.nest.flatten(outputs))


class _Drawn:
    """Stands for a generator whose numbers were drawn before."""

    def __init__(self, seeds):
        self._seeds = iter(seeds)

    def make_seeds(self):
        return next(self._seeds)


def _zero_after(upstream):
    """0.0, in a way that neither Grappler nor XLA sees through; NaN for NaN."""
    first = tf.reshape(upstream[0], [-1])[0]
    return tf.minimum(tf.abs(tf.cast(first, tf.float32)), 0.0)
