"""Tasks one after the other on one encoder; each answers the same bits at the end as right after its training.

    python examples/stream_of_tasks.py customers/acme customers/globex --output adapters

Each folder holds train.csv and validation.csv, with the columns text and label. Each task gets its adapter directory.

Reference: Houlsby et al. 2019, section 1 (a stream of tasks, perfect memory).
"""

import argparse
import pathlib

import tf_adapters

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("folders", nargs="+", type=pathlib.Path)
parser.add_argument("--model", default="minilm", help="pretrained encoder")
parser.add_argument("--output", type=pathlib.Path, default="adapters")
parser.add_argument("--epochs", type=int, default=3)
options = parser.parse_args()

model = tf_adapters.load_backbone(options.model)
tokenizer = tf_adapters.load_tokenizer(model)
encoder = tf_adapters.parameter_counts(model).total
settings = tf_adapters.TrainingSettings(epochs=options.epochs, learning_rate=1e-3)
answers, trained = {}, 0
for folder in options.folders:
    task = tf_adapters.task_from_files(train=folder / "train.csv", validation=folder / "validation.csv")
    tf_adapters.add_adapters(model, head="classification", labels=task.labels, seed=settings.seed)
    tf_adapters.set_trainable(model, "adapters")
    result = tf_adapters.fit(model, task, tokenizer, options.output / folder.name, settings)
    texts = task.validation.text.numpy().astype(str).tolist()
    answers[folder.name] = texts, tf_adapters.predict(model, texts, tokenizer=tokenizer)
    trained += tf_adapters.parameter_counts(model).trainable
    print(folder.name, {name: round(value, 4) for name, value in result.metrics.items()})
    tf_adapters.remove_adapters(model)

for name, (texts, before) in answers.items():
    tf_adapters.load_adapter(model, options.output / name)  # an encoder that changed is refused
    if tf_adapters.predict(model, texts, tokenizer=tokenizer) != before:  # every bit of every probability
        raise SystemExit(f"{name} answers otherwise than right after its training.")
    tf_adapters.remove_adapters(model)
print(f"All {len(answers)} tasks answer the same bits as right after their training.")
print(f"They add {trained / encoder:.1%} to the encoder's parameters; as many fine-tuned models: {len(answers):.0%}.")
