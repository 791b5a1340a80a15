"""What Keras 2 trains: a model of transformers, its training step, and what settings change in it."""

import contextlib
import functools
import types

import tensorflow as tf

from tf_adapters._keras import keras
from tf_adapters._keras_internals import loss_scale_variables, uncast
from tf_adapters.errors import InputError
from tf_adapters.layers.dropout import SeededDropout
from tf_adapters.layers.method import MethodLayer
from tf_adapters.layers.ops import keras2
from tf_adapters.models.state import state_of
from tf_adapters.models.transaction import replaced
from tf_adapters.models.transformers.graphs import hold_gradients_weakly
from tf_adapters.models.transformers.heads import outputs_of
from tf_adapters.training import trained
from tf_adapters.training.frozen_blocks import UpperBlocks, frozen_depth
from tf_adapters.training.parts import computed_at_once, parts_of_a_step, rehearsal
from tf_adapters.training.settings import check_door


class Change:
    """What a setting changes in a training step. A method that a subclass leaves as it is changes nothing.

    Attributes:
        dropouts: list of SeededDropouts of its own, whose state a run keeps.
    """

    dropouts = ()

    def computing(self, training):
        """A context in which the model is called in training, and traced."""
        return contextlib.nullcontext()

    def gradients(self, step, compute, inputs, targets, share):
        """The gradients of a batch, a list in the order of `step.trainable_variables`.

        Args:
            step: `TrainingStep`.
            compute: function of `(inputs, targets, share)` that returns them without this change.
            inputs, targets: of the batch.
            share: float32 scalar, the part of what a greater batch's loss is a mean over; None for all of it.
        """
        return compute(inputs, targets, share)


class TrainingStep(keras.Model):
    """What Keras trains: a model, or one around it, whose step is the usual one with some changes.

    The gradients of a later `Change` are made of those of the ones before it. It is called as the model, in inference
    without changes, and answers what `outputs_of` reads.
    """

    def __init__(self, model, changes=()):
        super().__init__(name="training_step", dtype=model.dtype_policy)
        self.inner, self.changes = model, tuple(changes)
        # Results are sums over a strategy's replicas already.
        self.distribute_reduction_method = "first"

    @property
    def trainable_weights(self):
        return self.inner.trainable_weights

    def call(self, inputs, training=None):
        with contextlib.ExitStack() as contexts:
            if training or not isinstance(training, (bool, int, type(None))):
                for change in self.changes:
                    contexts.enter_context(change.computing(training))
            return outputs_of(self.inner(inputs, training=training))

    def train_step(self, data):
        inputs, targets, *share = data
        compute = self._gradients
        for change in self.changes:
            compute = functools.partial(change.gradients, self, compute)
        gradients = compute(inputs, targets, share[0] if share else None)
        if self._scales:
            gradients = self.optimizer.get_unscaled_gradients(gradients)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        # Keras' own mean of the loss does not know the replicas' shares.
        reported = self.compiled_metrics.metrics if share else self.metrics
        return {metric.name: metric.result() for metric in reported}

    @property
    def _scales(self):
        return isinstance(self.optimizer, keras.mixed_precision.LossScaleOptimizer)

    def _gradients(self, inputs, targets, share):
        """As of `Change.gradients`; scaled, if the optimiser scales the loss. None of a variable that the loss does not
        depend on."""
        gradients, outputs = self.differentiate(inputs, targets, share)
        if share is None:
            self._count(targets, outputs)
        else:
            tf.cond(share > 0, lambda: self._count(targets, outputs), lambda: True)
        return gradients

    def differentiate(self, inputs, targets, share, counts=True):
        """The gradients as of `_gradients`, and the outputs, a batch of which `count` may count then.

        Without `counts` no variable changes.
        """
        with tf.GradientTape() as tape:
            outputs = self(inputs, training=True)
            with contextlib.nullcontext() if counts else self._uncounted(outputs):
                loss = self.compiled_loss(targets, outputs, regularization_losses=self.losses)
            if share is not None:
                # Keras divides by the number of replicas, as if their shares were equal.
                loss = loss * share * tf.distribute.get_strategy().num_replicas_in_sync
            if self._scales:
                loss = self.optimizer.get_scaled_loss(loss)
        return tape.gradient(loss, self.trainable_variables), outputs

    def count(self, targets, outputs):
        """Let the running means of loss and metrics have a batch."""
        self.compiled_loss(targets, outputs)
        self._count(targets, outputs)

    def _uncounted(self, outputs):
        """A context in which the loss is computed, and its running means stay as they are."""
        if not self.compiled_loss.built:
            self.compiled_loss.build(outputs)
        return replaced([(mean, "update_state", lambda *_, **__: None) for mean in self.compiled_loss.metrics])

    def _count(self, targets, outputs):
        self.compiled_metrics.update_state(targets, outputs)
        return True


class GradientAccumulation(Change):
    """A batch is computed in parts, one after the other, before the one step of the optimiser.

    The gradient is that of the whole batch, for each part counts by its share of what the loss is a mean over; steps,
    schedule and what a run saves are as without. Dropout draws a mask for each part.

    Args:
        parts: int >= 2, in how many parts a batch is computed; of one with fewer rows each row is a part.
        weigh: function of targets `(rows, ...)` that returns what the loss is a mean over, a float32 scalar: rows, or
            words.
    """

    def __init__(self, parts, weigh):
        self.parts, self.weigh = parts, weigh

    def gradients(self, step, compute, inputs, targets, share):
        rows = tf.shape(tf.nest.flatten(inputs)[0])[0]
        size = -(-rows // self.parts)
        total, variables = self.weigh(targets), step.trainable_variables
        read = []  # which of them the loss depends on

        def part(first, *sums):
            own_inputs, own_targets = tf.nest.map_structure(
                lambda tensor: tensor[first : first + size], (inputs, targets)
            )
            own_share = self.weigh(own_targets) / tf.maximum(total, 1.0)
            gradients = compute(own_inputs, own_targets, own_share if share is None else own_share * share)
            read[:] = [gradient is not None for gradient in gradients]
            return first + size, *(
                total if gradient is None else total + tf.convert_to_tensor(gradient)
                for total, gradient in zip(sums, gradients)
            )

        zeros = [tf.zeros(variable.shape, variable.dtype) for variable in variables]
        _, *gradients = tf.while_loop(
            lambda first, *_: first < rows, part, (0, *zeros), parallel_iterations=1,
            shape_invariants=(tf.TensorShape([]), *(variable.shape for variable in variables)),
        )  # fmt: skip
        # None, as in Keras' own step, for the optimiser to leave the others alone.
        return [gradient if is_read else None for gradient, is_read in zip(gradients, read)]


class PartsAtOnce(Change):
    """A batch is computed in parts side by side, before the one step of the optimiser; see `parts`.

    The gradient is that of the whole batch, as of `GradientAccumulation`; dropout draws a mask for each part. It is for
    a step that no strategy shares out, and no other change computes.

    Args:
        parts: int >= 2.
        weigh: as of `GradientAccumulation`.
        dropouts: list of the model's SeededDropouts.
    """

    def __init__(self, parts, weigh, dropouts):
        self.parts, self.weigh = parts, weigh
        self._drawing = [dropout for dropout in dropouts if dropout.rate]

    def gradients(self, step, compute, inputs, targets, share):
        # A generator is a variable.
        seeds = [dropout.generator.make_seeds(self.parts) for dropout in self._drawing]

        def compute_part(inputs, targets, share, seeds):
            drawn = [(dropout, "generator", _Drawn(seed)) for dropout, seed in zip(self._drawing, seeds)]
            with replaced(drawn):
                return step.differentiate(inputs, targets, share, counts=False)

        gradients, outputs = computed_at_once(
            compute_part, inputs, targets, self.parts, self.weigh, lambda number: [seed[:, number] for seed in seeds]
        )
        step.count(targets, outputs)
        return gradients

    def rehearsal(self, model):
        """As of `parts`, of a model with fast blocks."""
        family = state_of(model).family
        last, is_short = family.blocks(model)[-1], getattr(family.stack(model), "first_token_only", False)

        def call(block, states, mask):
            mask, alone = tf.zeros_like(mask[:, None, None], states.dtype), is_short and block is last
            drawn = [(dropout, "generator", _Drawn(tf.zeros([2], tf.int64))) for dropout in self._drawing]
            with replaced(drawn):
                return block(states, mask, *[None] * 4, False, training=True, first_token_only=alone)[0]

        return rehearsal(model, call)


class _Drawn:
    """Stands for a dropout's generator in one part of a step.

    Args:
        seed: int64 `(2,)`, drawn by the generator itself.
    """

    def __init__(self, seed):
        self._seed, self._calls = seed, 0

    def make_seeds(self):
        self._calls += 1  # some layers are called several times
        return (self._seed + self._calls)[:, tf.newaxis]


class Mixout(Change):
    """Each matrix is partly, at every training step anew, the one that it began with.

    With `W0` the matrix at the beginning (pretrained, or an adapter's initial one) and `M` a mask whose entries are 0
    with the probability `p` and otherwise 1: `W0 + M (W - W0) / (1 - p)`, whose mean is `W`. It is for the kernels of
    the encoder's dense layers and of adapters that train; the head, which was not pretrained, embeddings and vectors
    stay as they are. In inference nothing is mixed.

    Attributes:
        dropouts: list of SeededDropouts, whose state is that of the masks.
        begun: list of float32 variables, the matrices at the beginning.

    Reference: Lee et al. 2020, section 3 and algorithm 1; He et al. 2021, table 7 (0.9 in place of every dropout).
    """

    def __init__(self, model, rate, *, seed):
        self.dropouts, self.begun, self._places = [], [], []
        layers = [layer for layer in model.submodules if isinstance(layer, (keras.layers.Dense, MethodLayer))]
        for number, owners in enumerate(trained.matrices_to_mix(model, layers, rate)):
            # float32 under mixed precision too, where rounding would hide what a weight moved.
            # Other seeds than those of the model's dropout.
            dropout = SeededDropout(rate, seed=(seed * 1_000_033 + 2**30 + number) % 2**31, dtype="float32")
            self.dropouts.append(dropout)
            self.begun.append(tf.Variable(owners[0][2], trainable=False, dtype=tf.float32))
            self._places.append(owners)

    def computing(self, training):
        changes = []
        for owners, initial, dropout in zip(self._places, self.begun, self.dropouts):
            current = tf.cast(uncast(owners[0][2]), tf.float32)
            mixed = initial + dropout(current - initial, training=training)
            changes += [(layer, attribute, tf.cast(mixed, layer.compute_dtype)) for layer, attribute, _ in owners]
        return replaced(changes)


class GradientCheckpointing(Change):
    """Of each block only its input is kept for the gradient, and the backward pass computes the block once more.

    A training step takes less memory and more time, by about one forward pass. The dropout masks of the second time are
    those of the first: their seeds are drawn before the block. Losses and gradients are those without, but for the
    rounding of operations that TensorFlow fuses where it needs nothing between them.

    InputError where a block has dropout that cannot be repeated.

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
                        f"{{checkpoint_gradients}}: the dropout {layer.name!r} ({type(layer).__name__}) of block "
                        f"{index} cannot draw the same mask twice; leave the option out, or that dropout.",
                        checkpoint_gradients=True,
                    )
            self._blocks.append((block, dropouts))

    def computing(self, training):
        """While a step is traced, Keras finds another `call` in each block; outside, and so in the backward pass, its
        own."""
        trained = [variable.handle for variable in self.model.trainable_variables]
        return replaced(
            [(block, "call", functools.partial(_compute, block, dropouts, trained)) for block, dropouts in self._blocks]
        )


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
        # Stands for a generator whose numbers were drawn before.
        drawn = [types.SimpleNamespace(make_seeds=iter(of_dropout).__next__) for of_dropout in seeds]
        with replaced([(dropout, "generator", again) for (dropout, _), again in zip(dropouts, drawn)]):
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


def _zero_after(upstream):
    """0.0, in a way that neither Grappler nor XLA sees through; NaN for NaN."""
    first = tf.reshape(upstream[0], [-1])[0]
    return tf.minimum(tf.abs(tf.cast(first, tf.float32)), 0.0)


def seed_dropout(model, seed, *, rate=None):
    """Replace each dropout layer of a model by a SeededDropout, or seed those there anew: a list of them, in an order
    that depends on the model alone.

    The rate, in [0, 1), is for the encoder and the head (adapters have their config's); None is for those that they
    were built with, whatever an earlier call said.
    """
    layers = []
    for owner, attribute, value, its_rate in state_of(model).family.dropout_layers(model):
        built_with = getattr(value, "rate_built_with", its_rate)
        dropout = SeededDropout(
            built_with if rate is None or isinstance(owner, MethodLayer) else rate,
            # Of transformers' own classes none has it.
            noise_shape=getattr(value, "noise_shape", None),
            seed=(seed * 1_000_003 + len(layers)) % 2**31,
            fused=state_of(model).fast,
            name=value.name,
            dtype=value.dtype_policy,
        )
        dropout.rate_built_with = built_with
        setattr(owner, attribute, dropout)
        layers.append(dropout)
    return layers


class Trained(trained.Trained):
    """As of `trained.Trained`; `keras_model` is a `TrainingStep`."""

    ops = keras2
    identity = {"door": "transformers", "backend": "tensorflow"}

    @staticmethod
    def checked(settings, strategy):
        check_door(settings.to_dict(), "transformers")
        return settings

    def __init__(self, model, kind, examples, tokenizer, settings, workers):
        super().__init__(model, kind, examples, tokenizer, settings, workers)
        self.precision = keras.mixed_precision.global_policy().name
        dropouts = seed_dropout(model, settings.seed, rate=settings.dropout)
        self.depth = frozen_depth(model) if settings.cache_frozen else 0
        inner = kind.trained(model, jit_compile=settings.jit_compile)
        if settings.cache_frozen and inner is not model:
            raise InputError(
                f"{{cache_frozen}}: what {kind.name} reads of a text is another in each step; leave it out.",
                cache_frozen=True,
            )
        changes = []
        if settings.mixout:
            changes.append(mixout := Mixout(model, settings.mixout, seed=settings.seed))
            self.begun = mixout.begun
        if settings.checkpoint_gradients:
            changes.append(GradientCheckpointing(model))
        if settings.accumulate > 1:
            changes.append(GradientAccumulation(settings.accumulate, kind.loss_weight))
        # Of masked words each part has another number.
        parts = parts_of_a_step(model, settings, workers) if inner is model else 1
        if parts > 1:
            self.at_once = PartsAtOnce(parts, kind.loss_weight, dropouts)
            changes.append(self.at_once)
        dropouts = [*dropouts, *(dropout for change in changes for dropout in change.dropouts)]
        self.draws = [layer.generator.state for layer in dropouts]
        self.keras_model = TrainingStep(UpperBlocks(model, self.depth) if self.depth else inner, changes)

    def optimizer_variables(self, optimizer):
        return [*optimizer.variables, *loss_scale_variables(optimizer)]

    def end(self):
        hold_gradients_weakly()
