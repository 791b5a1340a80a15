"""Resident memory of a process that trains one model after the other, beside Keras' own `fit` on the same encoder."""

import pathlib
import tempfile

from benchmarks.provenance import log, resident_mib
from benchmarks.result_file import apart, finish, make_parser, parse_arguments
from benchmarks.table_parts import Table, in_notes, of_settings, origin

ARMS = {
    "fit": "adapters, `tf_adapters.fit`",
    "fast": "adapters, fast, `tf_adapters.fit`",
    "keras": "transformers' model, Keras' `model.fit`",
    "cleared": "the same, `clear_session()` after each",
}
ROWS, LENGTH = 64, 32


def parse(arguments=None):
    parser = make_parser(
        description=__doc__
        + f" Each arm is a process of its own, which builds MiniLM's encoder, trains it for an epoch of {ROWS} made-up "
        "rows, drops it, collects garbage and reads its resident memory, again and again. Nothing is timed, so the "
        "machine may be busy.",
        smoke="two trainings",
    )
    parser.add_argument("--trainings", type=int, default=10)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    options = parse_arguments(parser, arguments, "repeated", trainings=2)
    if options.trainings < 2:
        parser.error(f"--trainings {options.trainings}: at least 2, of which the first is not counted.")
    return options


def growth(memory):
    """What each training after the first adds, MiB, from what was resident after each."""
    return (memory[-1] - memory[0]) / (len(memory) - 1)


def table(result):
    """Markdown of one result of repeated.py."""
    count = result["settings"]["trainings"]
    lines = [
        f"**Resident memory of a process that trains {count} models one after the other, MiniLM**", "",
        "| | MiB after the first | after the last | a training adds |", "|---|---:|---:|---:|",
    ]  # fmt: skip
    for arm, memory in result["resident_mib"].items():
        lines.append(f"| {ARMS[arm]} | {memory[0]:,.0f} | {memory[-1]:,.0f} | {growth(memory):,.0f} |")
    return "\n".join([*lines, "", origin(result, f"an epoch of {ROWS} rows each")])


TABLE = Table(table, of_settings("trainings"), in_notes)


def main():
    options = parse()
    found = {}
    for arm in options.arms:
        log(f"{arm} ...")
        found[arm] = apart(trainings, arm, options.trainings)
    finish("repeated", options, ("trainings",), {"resident_mib": found}, table)


def trainings(arm, count):
    """MiB after each of the trainings, one after the other; a list."""
    import gc

    from tf_adapters._keras import keras

    train = {"fit": with_adapters, "fast": with_adapters, "keras": with_keras, "cleared": with_keras}[arm]
    resident = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            train(pathlib.Path(folder) / str(number), fast=arm == "fast")
            if arm == "cleared":
                keras.backend.clear_session()
            gc.collect()
            resident.append(resident_mib())
    return resident


def with_adapters(folder, fast):
    import tf_adapters
    from tf_adapters.tasks import Task
    from tf_adapters.tasks.rows import Rows

    texts, labels = made_up()
    rows = Rows(text=texts, labels=labels)
    task = Task("made-up", "classification", ("even", "odd"), "accuracy", rows, rows)
    model = tf_adapters.load_backbone("minilm", labels=list(task.labels))
    tf_adapters.set_trainable(tf_adapters.add_adapters(model, tf_adapters.AdapterConfig(), seed=0, fast=fast))
    tokenizer = tf_adapters.load_tokenizer(model, max_length=LENGTH)
    tf_adapters.fit(model, task, tokenizer, output=folder, epochs=1, batch_size=32, learning_rate=1e-3)


def with_keras(folder, fast):
    import tensorflow as tf
    import transformers

    import tf_adapters
    from tf_adapters._keras import keras
    from tf_adapters.models.transformers.loading import find_files

    texts, labels = made_up()
    directory = find_files("minilm")
    wordpiece = tf_adapters.WordPiece.from_directory(directory, max_length=LENGTH)
    inputs = wordpiece.pad(wordpiece.encode(texts), multiple_of=LENGTH)
    model = transformers.TFBertForSequenceClassification(transformers.BertConfig.from_pretrained(directory))
    model.compile(keras.optimizers.Adam(1e-5), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(tf.data.Dataset.from_tensor_slices((dict(inputs), labels)).batch(32), verbose=0)
    model.predict(tf.data.Dataset.from_tensor_slices(dict(inputs)).batch(32), verbose=0)


def made_up():
    """Texts of numbers, and whether they are odd."""
    import numpy as np
    import tensorflow as tf

    numbers = np.arange(ROWS)
    return tf.constant([f"the number {number}" for number in numbers]), (numbers % 2).astype(np.int32)
