"""Several adapter directories on one encoder in memory, switched without retracing.

    python examples/several_tasks_on_one_encoder.py adapters/one adapters/two --text "a quiet, moving film"

The directories come from `tf-adapters train`, on the same encoder and with the same number of labels.
"""

import argparse

import tf_adapters

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("directories", nargs="+", help="adapter directories")
parser.add_argument("--text", default="a quiet, moving film")
options = parser.parse_args()

model, settings = tf_adapters.load_trained(options.directories[0])
tokenizer = tf_adapters.load_tokenizer(model, max_length=settings["text"]["max_length"])
for directory in options.directories[1:]:
    tf_adapters.load_adapter(model, directory, name=directory.replace("/", "."))

for name in tf_adapters.models.adapter_names(model):
    tf_adapters.set_active(model, name)
    (answer,) = tf_adapters.predict(model, [options.text], tokenizer=tokenizer)
    print(name, {label: round(value, 3) for label, value in answer["probabilities"].items()})
