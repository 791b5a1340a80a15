"""Trainings in a process of their own, for devices are configured before TensorFlow starts; see test_strategies.py.

`python -m tests.strategy_runs DEVICES RUNS` with the number of virtual CPUs and a JSON list of arguments of `train`. A
run writes `FOLDER.npz` with the running losses after each step, and the trained weights by their numbers.
"""

import json
import os
import signal
import sys

import numpy as np
import tensorflow as tf

ROWS, BATCH_SIZE, EPOCHS, STEPS = 67, 6, 9, 108  # eleven batches of 6 rows and one of 1: 108 steps in all


def make_task(kind):
    from tests.conftest import WORDS
    from tf_adapters.tasks import Task
    from tf_adapters.tasks.rows import Rows
    from tf_adapters.tasks.spans import span_rows
    from tf_adapters.tasks.words import WordRows

    random, few = np.random.default_rng(0), np.arange(6)
    sentences = [list(random.choice(WORDS, random.integers(2, 12))) for _ in range(ROWS)]
    texts = tf.constant([" ".join(words) for words in sentences])
    if kind == "masked-lm":
        rows = Rows(text=texts)
        return Task("texts", kind, (), "perplexity", rows, rows.take(few))
    if kind == "token-classification":
        words = tf.ragged.constant(sentences, dtype=tf.string, ragged_rank=1)
        labels = words.with_values(tf.constant(random.integers(0, 3, words.flat_values.shape[0]), tf.int32))
        rows = WordRows(words, labels, ("A", "B", "C"))
        return Task("words", kind, ("A", "B", "C"), "token-accuracy", rows, rows.take(few))
    if kind == "question-answering":
        answers = [[(words[-1], len(" ".join(words)) - len(words[-1]))] for words in sentences]
        questions = ((str(row), "the film", " ".join(sentences[row]), answers[row]) for row in range(ROWS))
        rows = span_rows(questions, labelled=True)
        return Task("spans", kind, (), "squad", rows, rows.take(few))
    rows = Rows(text=texts, labels=random.integers(0, 2, ROWS).astype(np.int32))
    return Task("texts", kind, ("a", "b"), "accuracy", rows, rows.take(few))


def train(
    strategy,
    *,
    folder,
    checkpoint,
    kind="classification",
    dropout=0.0,
    stop_at=None,
    resume=False,
    fast=False,
    fusion=False,
    record=None,
):
    """One training.

    Args:
        strategy: `tf.distribute.Strategy` or None.
        dropout: as of `fit`.
        stop_at: int, the step at which this process gets SIGTERM, or None.
        record: str, where to write what is compared, in place of `folder`, which workers share; or None.
        fusion: bool, whether an AdapterFusion with a strong regularisation of its values trains in place of an adapter.
    """
    import tf_adapters
    from tf_adapters._keras import keras
    from tf_adapters.training import strategies
    from tf_adapters.training.experiment import load_for_task
    from tf_adapters.training.run import Reporter
    from tf_adapters.training.strategies import scope_of

    strategies.STEPS_TO_AGREE = 10

    losses = []

    class Record(Reporter):
        def step(self, done, numbers):
            losses.append(numbers["loss"])
            if done == stop_at:
                os.kill(os.getpid(), signal.SIGTERM)

    task = make_task(kind)
    settings = dict(
        output=folder,
        batch_size=BATCH_SIZE,
        learning_rate=1e-3,
        clip_norm=1.0,
        seed=1,
        dropout=dropout,
        strategy=strategy,
        resume=resume,
        reporter=Record(),
        checkpoint_seconds=0.5 if stop_at else 30.0,
    )
    if kind == "masked-lm":
        with scope_of(strategy):
            keras.utils.set_random_seed(0)
            model = tf_adapters.load_backbone(checkpoint, head=kind)
            wordpiece = tf_adapters.load_tokenizer(model, max_length=32)
            steps = dict(fit_head_steps=12, steps=STEPS, save_every=STEPS)
            result = tf_adapters.pretrain(
                model, task, wordpiece, adapter=tf_adapters.AdapterConfig(8), **steps, **settings
            ).run
        return save(model, losses, record or folder, result)
    with scope_of(strategy):
        model, wordpiece = load_for_task(checkpoint, task, max_length=32)
        config = tf_adapters.AdapterConfig(8)
        if fusion:
            two = {name: tf_adapters.AdapterConfig(8, init_stddev=0.3) for name in ("one", "other")}
            config = tf_adapters.methods.FusionConfig(two, value_regularization=5.0)
        tf_adapters.add_adapters(model, config, seed=0, fast=fast)
        tf_adapters.set_trainable(model, "adapters")
    save(model, losses, record or folder, tf_adapters.fit(model, task, wordpiece, epochs=EPOCHS, **settings))


def save(model, losses, folder, result):
    weights = {str(number): variable.numpy() for number, variable in enumerate(model.trainable_variables)}
    np.savez(f"{folder}.npz", losses=losses, **weights)
    print(f"steps {result.steps} interrupted {result.interrupted}", flush=True)


def main():
    devices, runs = int(sys.argv[1]), json.loads(sys.argv[2])
    if devices > 1:
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * devices)
    from tf_adapters.errors import InputError
    from tf_adapters.training.strategies import make_strategy

    made = {None: None}
    try:
        for run in runs:
            name = run.pop("strategy")
            if name not in made:
                made[name] = make_strategy(name)
            train(made[name], **run)
    except InputError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
