"""Several adapter directories on one encoder in memory, switched without retracing.

    python examples/several_tasks_on_one_encoder.py adapters/one adapters/two --text "a quiet, moving film"

The directories come from `tf-adapters train`, on the same encoder and with the same number of labels.
"""

import argparse

import tensorflow as tf

import tf_adapters
from tf_adapters.kinds.scoring import Scorer
from tf_adapters.tasks.metrics import probabilities

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("directories", nargs="+", help="adapter directories")
parser.add_argument("--text", default="a quiet, moving film")
options = parser.parse_args()

model, first = tf_adapters.load_trained(options.directories[0])
settings = {"default": first}
for directory in options.directories[1:]:
    settings[directory.replace("/", ".")] = tf_adapters.load_adapter(model, directory, name=directory.replace("/", "."))

wordpiece = tf_adapters.WordPiece.from_directory(
    tf_adapters.backbone_directory(model), max_length=first["text"]["max_length"]
)
scorer = Scorer(model, wordpiece)
for name in tf_adapters.adapter_names(model):
    tf_adapters.set_active(model, name)
    row = probabilities(scorer.logits(tf.constant([options.text])), kind="classification")[0]
    labels = settings[name]["head"]["labels"]
    print(name, {label: round(float(value), 3) for label, value in zip(labels, row)})
