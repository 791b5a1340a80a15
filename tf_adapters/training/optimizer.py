"""The optimiser of a run, and the learning-rate schedule of the papers."""

import functools

from tf_adapters.errors import InputError
from tf_adapters.models.state import is_bias
from tf_adapters.ranges import checked, is_int

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

    Args:
        ops: module of `layers.ops`, whose Keras trains.
        learning_rate: float or schedule.
        variables: what trains.
        weight_decay: float, what a step takes off of each matrix, times the learning rate. Vectors (biases, LayerNorms,
            scales) and scalars do not decay.
        clip_norm: float, the norm of the gradient of all weights together that is not exceeded; a longer one is scaled
            down. None for any.
        epsilon: float, what Adam adds to the root of the second moment.
        bias_correction: bool, whether the moments are corrected for having begun at zero (Kingma & Ba 2015, section
            3).

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
