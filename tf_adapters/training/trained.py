"""What a run trains, whichever Keras: the model with its optimiser and schedule, and what else a step reads or
changes."""

import contextlib
import functools

import tensorflow as tf

from tf_adapters.errors import InputError
from tf_adapters.models.state import is_bias, state_of
from tf_adapters.ranges import checked, is_int
from tf_adapters.text.batching import default_lengths
from tf_adapters.training.parts import compiling_ahead


class Trained:
    """What Keras trains, as the settings say.

    Attributes:
        ops: module of `layers.ops`, whose Keras it is.
        model, kind, examples, tokenizer, settings, workers: as given.
        keras_model: what Keras' `fit` is called on.
        draws: list of variables, the states of random numbers.
        begun: list of variables, what Mixout mixes with: what the matrices were when the run began.
        depth: int, how many of the lowest blocks are computed beforehand.
        parts: int, how many batches of Keras a step has.
        at_once: PartsAtOnce of the door, if a step is computed in parts at once, or None.
        identity: dict for JSON, what else a run is only resumed with.
        precision: str, Keras' policy.
    """

    ops, depth, parts, at_once = None, 0, 1, None

    def __init__(self, model, kind, examples, tokenizer, settings, workers):
        self.model, self.kind, self.examples, self.tokenizer = model, kind, examples, tokenizer
        self.settings, self.workers, self.begun = settings, workers, []

    @staticmethod
    def checked(settings, strategy):
        """The settings as they act; InputError for what this Keras does not train."""

    def lengths(self, tokenizer):
        """Of padded batches, where each shape is compiled; otherwise None."""
        return default_lengths(tokenizer.max_length) if self.settings.jit_compile else None

    def compile(self, steps):
        """Give it its optimiser, for so many steps in all.

        Returns: every variable that a step reads or changes, lists by the names of groups; those of `metric` are the
        epoch's running means.
        """
        settings, losses = self.settings, self.kind.losses(self.settings, self.examples, self.ops)
        rate = warmup_linear_decay(self.ops)(
            settings.learning_rate,
            steps,
            warmup_fraction=settings.warmup_fraction,
            from_start=settings.decay_from_start,
            parts=self.parts,
        )
        trains, names = self.model.trainable_variables, ("weight_decay", "clip_norm", "epsilon", "bias_correction")
        optimizer = make_optimizer(self.ops, rate, trains, **{name: getattr(settings, name) for name in names})
        if self.parts > 1:
            optimizer.gradient_accumulation_steps = self.parts
        self.keras_model.compile(optimizer=optimizer, jit_compile=settings.jit_compile, **losses)
        optimizer = self.keras_model.optimizer
        optimizer.build(trains)
        # `evaluate` works afterwards.
        self.model.compile(optimizer=optimizer, jit_compile=settings.jit_compile, **self.losses_afterwards())
        return {
            "trainable": list(trains),
            "optimizer": self.optimizer_variables(optimizer),
            "dropout": self.draws,
            **({"begun": self.begun} if self.begun else {}),
            "metric": [variable for metric in tf.nest.flatten(losses["metrics"]) for variable in metric.variables],
        }

    def losses_afterwards(self):
        """Arguments for `compile` of the model itself."""
        return self.kind.losses(self.settings, self.examples, self.ops)

    def optimizer_variables(self, optimizer):
        """Those that its steps read or change, a list."""
        return list(optimizer.variables)

    def batches(self, batches):
        """What Keras' `fit` takes, from what `workers` make of the batches of steps."""
        return batches

    def compiling_ahead(self, batches):
        """A context in which a thread compiles what a step on such batches needs; see `parts`."""
        if self.at_once is None or self.depth or not state_of(self.model).fast:
            return contextlib.nullcontext()
        return compiling_ahead(self.at_once.rehearsal(self.model), batches, self.at_once.parts)

    def callback(self, run):
        """A callback of Keras that tells `run`."""
        callback = self.ops.keras.callbacks.Callback()
        for name in ("on_epoch_begin", "on_epoch_end", "on_train_batch_begin", "on_train_batch_end"):
            setattr(callback, name, getattr(run, name))
        return callback

    def sync(self):
        """Let variables have the values of the latest step."""

    def end(self):
        """Training is over."""


def matrices_to_mix(model, layers, rate):
    """What Mixout mixes of a model: for each matrix of the encoder and of adapters that trains the places among
    `layers` that hold it, a list of `(layer, attribute, variable)`; InputError for a rate out of range, or without a
    matrix."""
    if not checked("mixout", rate):
        raise InputError("{mixout} must be above 0, such as 0.9.", mixout=rate)
    head = {id(variable) for variable in state_of(model).head_variables(model)}
    trains = {id(variable) for variable in model.trainable_variables if len(variable.shape) >= 2} - head
    places = {}
    for layer in layers:
        for attribute, value in vars(layer).items():
            # A bias of Keras 3's attention has an axis for heads.
            if id(value) in trains and attribute != "bias":
                places.setdefault(id(value), []).append((layer, attribute, value))
    if not places:
        raise InputError(
            "{mixout}: no matrix of the encoder or of adapters trains, so there is nothing to mix.", mixout=rate
        )
    return list(places.values())


# So late a step that a correction for it would be none: 0.999 to this power is 0 in float32.
_LATE = 2**24


@functools.cache
def uncorrected_adamw(ops):
    """The class `UncorrectedAdamW` of the Keras of `ops`, a module of `layers.ops`."""

    @ops.registered
    class UncorrectedAdamW(ops.AdamW):
        """AdamW that takes its moments as they are, though they began at zero: early steps are longer than AdamW's.

        Reference: Devlin et al. 2019 and Houlsby et al. 2019, published code (`AdamWeightDecayOptimizer`).
        """

        _late = False

        @property
        def iterations(self):
            """The steps so far; while weights are updated, so many that nothing is left to correct."""
            return _LATE if self._late else super().iterations

        def update_step(self, *arguments):
            """Update one variable."""
            self._late = True
            try:
                super().update_step(*arguments)
            finally:
                self._late = False

    return UncorrectedAdamW


def make_optimizer(
    ops, learning_rate, variables, *, weight_decay=0.0, clip_norm=None, epsilon=1e-7, bias_correction=True
):
    """Adam, or AdamW where there is a weight decay; `TrainingSettings` has checked the numbers.

    The last four arguments are as of `TrainingSettings`; vectors (biases, LayerNorms, scales) and scalars do not decay.

    Reference: Loshchilov & Hutter 2019 (decoupled decay); which weights decay: Devlin et al. 2019, published code.
    """
    common = {"learning_rate": learning_rate, "epsilon": epsilon, "global_clipnorm": clip_norm}
    if bias_correction and not weight_decay:
        return ops.Adam(**common)
    adam = ops.AdamW if bias_correction else uncorrected_adamw(ops)
    optimizer = adam(weight_decay=weight_decay, **common)
    # A bias of Keras 3's attention has an axis for heads.
    vectors = [variable for variable in variables if len(variable.shape) < 2 or is_bias(variable.name)]
    optimizer.exclude_from_weight_decay(var_list=vectors)
    return optimizer


@functools.cache
def warmup_linear_decay(ops):
    """The class `WarmupLinearDecay` of the Keras of `ops`, a module of `layers.ops`."""

    @ops.registered
    class WarmupLinearDecay(ops.keras.optimizers.schedules.LearningRateSchedule):
        """Linear rise from zero over the first steps, then linear fall to zero.

        At step `s` of `N` with `w` warm-up steps: `peak * s / w` below `w`, then
        `peak * (N - s) / (N - w)`, or with `from_start` `peak * (N - s) / N`.

        Args:
            peak: float, the highest learning rate.
            steps: int, number of training steps.
            warmup_fraction: float in [0, 1), share of the steps that rise.
            from_start: bool, whether the fall is counted from the first step, so that the rate after the rise is
                already below the peak.
            parts: int, how many batches a step has, for Keras 3 counts these where it accumulates gradients.

        Reference: Houlsby et al. 2019, section 3.1; `from_start`: its published code.
        """

        def __init__(self, peak, steps, *, warmup_fraction=0.1, from_start=False, parts=1):
            if not is_int(steps) or steps < 1:
                raise InputError("{steps} must be an integer of at least 1.", steps=steps)
            self.peak, self.steps = checked("learning_rate", peak, shown=f"peak={peak!r}"), int(steps)
            self.warmup_fraction = checked("warmup_fraction", warmup_fraction)
            self.from_start, self.parts = bool(from_start), int(parts)

        def __call__(self, step):
            step = ops.cast(step // self.parts, ops.float32)
            warmup = float(int(self.steps * self.warmup_fraction))
            falling = (self.steps - step) / max(1.0, self.steps - (0.0 if self.from_start else warmup))
            factor = ops.choose(step < warmup, step / max(1.0, warmup), ops.maximum(falling, 0.0))
            return self.peak * factor

        def get_config(self):
            names = ("peak", "steps", "warmup_fraction", "from_start", "parts")
            return {name: getattr(self, name) for name in names}

    return WarmupLinearDecay
