"""What adapters are compared with and no fine-tuning is: classifiers of words, and of a frozen encoder's states.

Each trains on the training rows, chooses by the validation rows, and gives what `Lab.train` does.
"""

import math
import time

import numpy as np

from tf_adapters.errors import InputError
from tf_adapters.kinds import get_kind
from tf_adapters.tasks import analysis
from tf_adapters.tasks.analysis import texts_of
from tf_adapters.tasks.metrics import METRICS

EPOCHS, PATIENCE = 60, 8
KINDS = ("classification", "regression")


def tf_idf(task, reported, *, seed, **_):
    """Words and pairs of words, weighted by TF-IDF, and a linear model; its strength is chosen by validation."""
    outputs, numbers, parameters = analysis.tf_idf(task, reported, seed=seed)
    found = METRICS[task.metric](reported.labels, outputs)
    return {"scores": {"reported": found}, "validation": [numbers], "trained_parameters": parameters}


def network(task, reported, *, seed, learning_rate, batch_size, **_):
    """Embeddings of words that are trained from scratch, their mean, and one hidden layer."""
    import tensorflow as tf

    from tf_adapters._keras import keras

    keras.backend.clear_session()
    keras.utils.set_random_seed(seed)
    words = keras.layers.TextVectorization(max_tokens=20_000, output_sequence_length=256)
    words.adapt(tf.constant(texts_of(task.train)))
    model = keras.Sequential(
        [
            keras.layers.Embedding(words.vocabulary_size(), 128, mask_zero=True),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(max(1, len(task.labels))),
        ]
    )
    features = [words(tf.constant(texts_of(rows))) for rows in (task.train, task.validation, reported)]
    return _train(model, task, reported, features, learning_rate, batch_size)


def layer_mix(task, reported, *, seed, learning_rate, batch_size, source, max_length, **_):
    """Feature extraction: of the frozen encoder's blocks a learned, weighted mean, and a linear classifier on it.

    The features are the means over each text's tokens, computed once.

    Reference: Peters et al. 2018, section 3.2 (the weights of layers); Devlin et al. 2019, section 5.3.
    """
    import tensorflow as tf

    from tf_adapters._keras import keras
    from tf_adapters.models.transformers.loading import load_backbone
    from tf_adapters.text.tokenizer import load_tokenizer

    keras.backend.clear_session()
    keras.utils.set_random_seed(seed)
    encoder = load_backbone(source)
    tokenizer = load_tokenizer(encoder, max_length=max_length)
    features = [block_means(encoder, tokenizer, rows, batch_size) for rows in (task.train, task.validation, reported)]
    del encoder

    class Mix(keras.layers.Layer):
        def build(self, shape):
            # It begins as the plain mean.
            self.weight = self.add_weight(name="blocks", shape=(shape[1],), initializer="zeros")

        def call(self, states):
            return tf.einsum("rbh,b->rh", states, tf.nn.softmax(self.weight))

    model = keras.Sequential([Mix(), keras.layers.Dropout(0.1), keras.layers.Dense(max(1, len(task.labels)))])
    return _train(model, task, reported, features, learning_rate, batch_size)


BASELINES = {"tf-idf": tf_idf, "network": network, "layer-mix": layer_mix}


def train_baseline(name, task, reported, **settings):
    """One of `BASELINES`; a dict as `Lab.train` gives it. InputError for a task of another kind than they are for."""
    if task.kind not in KINDS:
        raise InputError(
            f"{{baselines}} are for {' and '.join(KINDS)}, and {task.name} is of the kind {task.kind}: leave them out.",
            baselines=name,
        )
    from tf_adapters._keras import keras

    started = time.monotonic()
    keras.mixed_precision.set_global_policy("float32")  # not the one of the run before
    found = BASELINES[name](task, reported, **settings)
    usual = {"best_epoch": 1, "training_loss": [], "last_scores": found["scores"]}
    return {**usual, **found, "seconds": round(time.monotonic() - started, 1)}


def block_means(encoder, tokenizer, rows, batch_size):
    """The mean over each text's tokens of what the embeddings and each block compute, float32 `(rows, blocks,
    hidden)`."""
    import tensorflow as tf

    from tf_adapters.text.batching import sorted_batches

    states, found = block_states(encoder), None
    for numbers, inputs in sorted_batches(encoded(tokenizer, rows), batch_size=batch_size, tokenizer=tokenizer):
        real = tf.cast(inputs["attention_mask"], tf.float32)[:, tf.newaxis, :, tf.newaxis]
        part = tf.reduce_sum(tf.stack(states(inputs), axis=1) * real, axis=2)
        part = (part / tf.maximum(tf.reduce_sum(real, axis=2), 1.0)).numpy()[: len(numbers)]
        if found is None:
            found = np.empty((len(rows), *part.shape[1:]), np.float32)
        found[numbers] = part
    return found


def encoded(tokenizer, rows):
    """What `Tokenizer.encode` gives of all rows."""
    import tensorflow as tf

    parts = [rows.encode(tokenizer, index) for index in rows.slices()]
    return {name: tf.concat([part[name] for part in parts], 0) for name in parts[0]}


def block_states(model):
    """A function of a batch's inputs that gives what the embeddings and each block compute: float32 tensors, `(batch,
    length, hidden)`."""
    import tensorflow as tf

    from tf_adapters.models.state import state_of

    family = state_of(model).family
    main = family.main_layer(model)
    specs = {name: tf.TensorSpec((None, None), tf.int32) for name in ("input_ids", "attention_mask", "token_type_ids")}

    @tf.function(input_signature=[specs])
    def states(inputs):
        hidden = main(family.inputs(inputs), output_hidden_states=True, training=False).hidden_states
        return [tf.cast(block, tf.float32) for block in hidden]

    return states


def _train(model, task, reported, features, learning_rate, batch_size):
    from tf_adapters._keras import keras

    score = METRICS[task.metric]
    model.compile(keras.optimizers.Adam(learning_rate), **get_kind(task.kind).losses())
    best, validation, waited = (-math.inf,), [], 0
    for epoch in range(1, EPOCHS + 1):
        model.fit(features[0], task.train.labels, batch_size=batch_size, epochs=1, verbose=0)
        validation.append(score(task.validation.labels, model.predict(features[1], batch_size=256, verbose=0)))
        number, waited = validation[-1][score.primary], waited + 1
        if number > best[0]:  # and so a number
            best, waited = (number, epoch, model.get_weights()), 0
        if waited >= PATIENCE:
            break

    def scores():
        return {"reported": score(reported.labels, model.predict(features[2], batch_size=256, verbose=0))}

    trained = {"trained_parameters": sum(int(np.prod(variable.shape)) for variable in model.trainable_variables)}
    if best[0] == -math.inf:
        return {"scores": None, "failure": "The validation metric was not a number in any epoch.", **trained}
    last = scores()
    model.set_weights(best[2])
    return {"scores": scores(), "last_scores": last, "validation": validation, "best_epoch": best[1], **trained}
