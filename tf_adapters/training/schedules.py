"""Learning-rate schedules of the papers."""

import functools

from tf_adapters.errors import InputError
from tf_adapters.ranges import checked, is_int


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

        Reference: Houlsby et al. 2019, section 3.1; `from_start`: its published code.
        """

        def __init__(self, peak, steps, *, warmup_fraction=0.1, from_start=False):
            if not is_int(steps) or steps < 1:
                raise InputError("{steps} must be an integer of at least 1.", steps=steps)
            self.peak, self.steps = checked("learning_rate", peak, shown=f"peak={peak!r}"), int(steps)
            self.warmup_fraction = checked("warmup_fraction", warmup_fraction)
            self.from_start = bool(from_start)

        def __call__(self, step):
            step = ops.cast(step, ops.float32)
            warmup = float(int(self.steps * self.warmup_fraction))
            falling = (self.steps - step) / max(1.0, self.steps - (0.0 if self.from_start else warmup))
            factor = ops.choose(step < warmup, step / max(1.0, warmup), ops.maximum(falling, 0.0))
            return self.peak * factor

        def get_config(self):
            names = ("peak", "steps", "warmup_fraction", "from_start")
            return {name: getattr(self, name) for name in names}

    return WarmupLinearDecay
