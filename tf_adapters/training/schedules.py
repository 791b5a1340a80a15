"""Learning-rate schedules of the papers."""

import tensorflow as tf

from tf_adapters._keras import keras
from tf_adapters.errors import InputError
from tf_adapters.ranges import checked, is_int


class WarmupLinearDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Linear rise from zero over the first steps, then linear fall to zero.

    At step `s` of `N` with `w` warm-up steps: `peak * s / w` below `w`, then
    `peak * (N - s) / (N - w)`.

    Args:
        peak: float, the highest learning rate.
        steps: int, number of training steps.
        warmup_fraction: float in [0, 1), share of the steps that rise.

    Reference: Houlsby et al. 2019, section 3.1.
    """

    def __init__(self, peak, steps, *, warmup_fraction=0.1):
        if not is_int(steps) or steps < 1:
            raise InputError("{steps} must be an integer of at least 1.", steps=steps)
        self.peak, self.steps = checked("learning_rate", peak, shown=f"peak={peak!r}"), int(steps)
        self.warmup_fraction = checked("warmup_fraction", warmup_fraction)

    def __call__(self, step):
        step = tf.cast(step, tf.float32)
        warmup = float(int(self.steps * self.warmup_fraction))
        falling = (self.steps - step) / max(1.0, self.steps - warmup)
        factor = tf.where(step < warmup, step / max(1.0, warmup), tf.maximum(falling, 0.0))
        return self.peak * factor

    def get_config(self):
        return {"peak": self.peak, "steps": self.steps, "warmup_fraction": self.warmup_fraction}
