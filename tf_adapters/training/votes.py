"""What the workers of a strategy tell each other at every step."""

import tensorflow as tf

from tf_adapters._keras import keras


class Votes(keras.metrics.Metric):
    """How many workers want to stop, and how many to save: a sum over the workers that each of them sees at the same
    step."""

    NAME = "votes"

    def __init__(self):
        super().__init__(name=self.NAME, dtype="float32")
        self.own = self.add_weight(name="own", shape=(2,), initializer="zeros")

    def cast(self, strategy, stop, save):
        """What this worker wants; it counts from the next step on."""
        strategy.experimental_local_results(self.own)[0].assign([float(stop), float(save)])

    def update_state(self):
        pass

    def result(self):
        return tf.identity(self.own)

    def reset_state(self):
        pass  # An epoch begins, and what was asked for still is.
