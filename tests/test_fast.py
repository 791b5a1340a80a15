"""Fast blocks compute what plain ones compute."""

import numpy as np
import pytest
import tensorflow as tf

from tests.cases import nightly_but
from tests.conftest import randomize, tiny_inputs, tiny_model
from tf_adapters import (
    AdapterConfig,
    InputError,
    LoraConfig,
    add_adapters,
    backbone_digest,
    disable_adapters,
    load_adapter,
    remove_adapters,
    save_adapter,
    set_active,
    set_trainable,
)
from tf_adapters._keras import keras
from tf_adapters.models.transformers.bert import FAMILY, TFBertFastEncoder, TFBertFastLayer

INPUTS = tiny_inputs(batch=4, length=12)
LABELS = tf.constant([0, 1, 1, 0])
CONFIG = AdapterConfig(bottleneck_size=8, init_stddev=0.3, train_layer_norm="all")
SHARED = AdapterConfig(bottleneck_size=4, sharing=3, activation="swish", init_stddev=0.3)


def adapted(fast, *, head="classification", config=CONFIG, mode="adapters", **changes):
    model = tiny_model(head, **changes)
    add_adapters(model, config, seed=1, fast=fast)
    return set_trainable(randomize(model, scale=0.1, head=False), mode)


def logits_and_gradients(model, training=False):
    @tf.function
    def compute():
        with tf.GradientTape() as tape:
            logits = tf.cast(model(INPUTS, training=training).logits, tf.float32)
            loss = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(LABELS, logits, from_logits=True))
        return logits, tape.gradient(loss, model.trainable_variables)

    logits, gradients = compute()
    return logits.numpy(), [tf.convert_to_tensor(gradient).numpy() for gradient in gradients]


def relative_errors(found, expected):
    """Error of each gradient, relative to the norm of the variable's or, where that vanishes, of all gradients."""
    whole = np.sqrt(sum(np.square(gradient).sum() for gradient in expected))
    return [np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-3 * whole) for a, b in zip(found, expected)]


@pytest.mark.parametrize(
    "config, mode",
    nightly_but(
        [(CONFIG, "full"), (SHARED, "adapters")],
        [
            (CONFIG, "adapters"),
            (CONFIG, "full"),
            (CONFIG, "top-2"),
            (SHARED, "adapters"),
            (
                AdapterConfig(bottleneck_size=4, placement="ffn", blocks=(1, 3), activation="relu", init_stddev=0.3),
                "adapters",
            ),
            (AdapterConfig(bottleneck_size=4, activation="softplus", init_stddev=0.3), "adapters"),
        ],
    ),
    ids=["adapters", "full", "top-2", "shared", "some-blocks", "softplus"],
)
def test_fast_logits_and_gradients_are_those_of_plain_blocks(config, mode):
    plain, fast = (adapted(fast, config=config, mode=mode) for fast in (False, True))
    assert [v.name.split("/", 1)[1] for v in plain.trainable_variables] == [
        v.name.split("/", 1)[1] for v in fast.trainable_variables
    ]
    (logits, gradients), (found, of_fast) = logits_and_gradients(plain), logits_and_gradients(fast)
    np.testing.assert_allclose(found, logits, atol=1e-6)
    # Plain blocks differ from themselves under XLA by as much: 4e-6 in the worst variable.
    assert max(relative_errors(of_fast, gradients)) < 1e-5
    flat, of_fast = (np.concatenate([g.ravel() for g in each]) for each in (gradients, of_fast))
    assert np.linalg.norm(of_fast - flat) < 1e-6 * np.linalg.norm(flat)


@pytest.mark.parametrize("head", sorted(set(FAMILY.heads) - {"multiple-choice", "none", "question-answering"}))
def test_every_head_computes_the_same(head):
    plain, fast = (adapted(fast, head=head)(INPUTS).logits for fast in (False, True))
    np.testing.assert_allclose(fast, plain, atol=2e-6)


def test_blocks_are_subclasses_of_transformers_own_and_go_when_the_adapters_go():
    model = tiny_model()
    before, digest = model(INPUTS).logits.numpy(), backbone_digest(model)
    original = [model.bert.encoder, *model.bert.encoder.layer]
    parts = [block.attention.self_attention for block in original[1:]]
    names = [weight.name for weight in model.weights]
    add_adapters(model, CONFIG, fast=True)
    assert isinstance(model.bert.encoder, TFBertFastEncoder)
    assert all(isinstance(block, TFBertFastLayer) for block in model.bert.encoder.layer)
    assert sorted(w.name for w in model.weights if not w.name.startswith("adapters/")) == sorted(names)
    from tf_adapters.training.step import seed_dropout

    rates = [rate for *_, rate in FAMILY.dropout_layers(tiny_model())]
    seed_dropout(model, 0, rate=0.0)
    remove_adapters(model)
    assert [rate for *_, rate in FAMILY.dropout_layers(model)] == rates
    assert [model.bert.encoder, *model.bert.encoder.layer] == original
    assert [block.attention.self_attention for block in model.bert.encoder.layer] == parts
    assert np.array_equal(model(INPUTS).logits, before) and backbone_digest(model) == digest


@pytest.mark.parametrize("rows, length", nightly_but([(3, 1)], [(0, 12), (1, 12), (3, 1)]))
def test_batches_of_any_size_compute_under_one_signature(rows, length):
    model, plain = adapted(True), adapted(False)
    specs = {name: tf.TensorSpec((None, None), tf.int32) for name in INPUTS}
    compute = tf.function(lambda inputs: model(inputs).logits, input_signature=[specs])
    inputs = {name: tensor[:rows, :length] for name, tensor in INPUTS.items()}
    np.testing.assert_allclose(compute(inputs), plain(inputs).logits, atol=1e-6)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(inputs, training=True).logits)
    gradients = tape.gradient(loss, model.trainable_variables)
    assert all(np.isfinite(tf.convert_to_tensor(gradient)).all() for gradient in gradients)


def test_layers_that_compute_something_else_stay_what_they_are():
    class Doubling(keras.layers.Dense):
        def call(self, inputs):
            return 2 * super().call(inputs)

    def changed(fast):
        model = tiny_model()
        for block in model.bert.encoder.layer[:2]:
            block.intermediate.intermediate_act_fn = tf.nn.relu
            for dense in (block.bert_output.dense, block.attention.self_attention.key):
                dense.__class__ = Doubling  # the same weights by the same names
        add_adapters(model, CONFIG, seed=1, fast=fast)
        return model(INPUTS).logits.numpy()

    np.testing.assert_allclose(changed(True), changed(False), atol=1e-6)


def test_prefixes_and_threads_get_every_token():
    import threading

    model, plain = adapted(True), adapted(False)
    prefix = tuple((tf.ones([4, 2, 3, 16]), tf.ones([4, 2, 3, 16])) for _ in range(4))
    mask = tf.ones([4, 15], tf.int32)
    inputs = {"input_ids": INPUTS["input_ids"], "attention_mask": mask, "past_key_values": prefix}
    np.testing.assert_allclose(model.bert(inputs)[0], plain.bert(inputs)[0], atol=1e-5)
    stop = threading.Event()

    def classify():
        while not stop.is_set():
            model(INPUTS)

    thread = threading.Thread(target=classify)
    thread.start()
    try:
        for _ in range(20):
            assert np.isfinite(model.bert(INPUTS, output_hidden_states=True).last_hidden_state).all()
    finally:
        stop.set()
        thread.join()


def test_fast_blocks_leave_the_adapters_initial_weights_and_random_numbers_alone():
    def first_weight(fast):
        model = tiny_model()
        keras.utils.set_random_seed(7)
        add_adapters(model, CONFIG, fast=fast)
        return next(w for w in model.weights if w.name.startswith("adapters/")).numpy(), np.random.rand()

    one, other = first_weight(False), first_weight(True)
    assert np.array_equal(one[0], other[0]) and one[1] == other[1]


def test_the_last_block_computes_its_first_token_alone_where_nothing_else_is_read():
    model = adapted(True)
    states = model.bert(INPUTS).last_hidden_state.numpy()
    assert np.isfinite(states[:, 0]).all() and np.isnan(states[:, 1:]).all()
    outputs = model.bert(INPUTS, output_hidden_states=True)
    assert np.isfinite(outputs.last_hidden_state).all() and len(outputs.hidden_states) == 5
    np.testing.assert_allclose(outputs.last_hidden_state[:, 0], states[:, 0], atol=1e-6)
    outputs = model(INPUTS, output_attentions=True)
    assert np.isfinite(outputs.logits).all() and len(outputs.attentions) == 4
    whole = adapted(True, head="token-classification").bert(INPUTS).last_hidden_state
    assert np.isfinite(whole).all()


def test_adapters_are_switched_and_disabled_in_graphs_already_traced(tmp_path):
    model = adapted(True)
    graph = tf.function(lambda: model(INPUTS).logits)
    one = graph().numpy()
    with disable_adapters(model):
        np.testing.assert_allclose(graph(), tiny_model()(INPUTS).logits, atol=1e-6)
    randomize(add_adapters(model, CONFIG, name="other", seed=2), 2, scale=0.1)
    assert np.isnan(graph()).all()  # traced before the second adapter was there
    plain = tiny_model()
    randomize(add_adapters(plain, CONFIG, name="other", seed=2), 2, scale=0.1)
    np.testing.assert_allclose(model(INPUTS).logits, plain(INPUTS).logits, atol=1e-6)
    set_active(model, "default")
    np.testing.assert_allclose(model(INPUTS).logits, one, atol=1e-6)
    message = "fast=False: the model's blocks have fast=True, which its first adapter decided"
    with pytest.raises(InputError, match=message):
        add_adapters(model, CONFIG, name="third", fast=False)
    save_adapter(model, tmp_path / "a")
    with pytest.raises(InputError, match=message):
        load_adapter(model, tmp_path / "a", fast=False)


@pytest.mark.nightly
def test_dropout_of_sites_and_steps_differs_and_follows_its_seed():
    def losses(seed):
        from tf_adapters.training.step import seed_dropout

        model = adapted(True)
        dropouts = seed_dropout(model, seed)
        assert len(dropouts) == 4 * 3 + 2  # attention and two sites a block, embeddings and head
        assert len({tuple(layer.draw_seed().numpy()) for layer in dropouts}) == len(dropouts)
        return [logits_and_gradients(model, training=True)[0] for _ in range(2)]

    first, second = losses(1)
    assert not np.allclose(first, second) and all(map(np.array_equal, (first, second), losses(1)))
    assert not np.allclose(losses(2)[0], first)


@pytest.mark.parametrize(
    "config",
    [AdapterConfig(8, init_stddev=0.3, dropout=0.5), LoraConfig(rank=2, dropout=0.5)],
    ids=["bottleneck", "lora"],
)
def test_the_own_dropout_of_adapters_acts_in_training_and_there_alone(config):
    changes = dict(config=config, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    plain, fast = (adapted(fast, **changes) for fast in (False, True))
    np.testing.assert_allclose(fast(INPUTS).logits, plain(INPUTS).logits, atol=1e-6)
    one, other = (fast(INPUTS, training=True).logits for _ in range(2))
    assert not np.allclose(one, other, atol=1e-5) and not np.allclose(one, plain(INPUTS).logits, atol=1e-5)


@pytest.mark.nightly
def test_dropout_gives_the_logits_of_plain_blocks_on_average():
    def mean(fast):
        model = adapted(fast)
        compute = tf.function(lambda: model(INPUTS, training=True).logits)
        samples = np.stack([compute().numpy() for _ in range(400)])
        return samples.mean(0), samples.std(0), samples.std(0) / 20

    (plain, spread, error), (fast, of_fast, other) = mean(False), mean(True)
    assert (np.abs(plain - fast) < 4.5 * np.hypot(error, other)).all()
    # The standard deviation of a sample's standard deviation is about 1 / sqrt(2 n) of it.
    assert (np.abs(spread / of_fast - 1) < 4.5 * (1 / 400) ** 0.5).all()


@pytest.mark.nightly
def test_half_precision_is_at_least_as_exact_as_plain_blocks(float32_policy):
    _, exact = logits_and_gradients(adapted(False))

    def error(fast):
        float32_policy("mixed_bfloat16")
        model = adapted(fast)
        assert model(INPUTS).logits.dtype == tf.float32
        _, gradients = logits_and_gradients(model)
        flat, true = (np.concatenate([g.ravel() for g in each]) for each in (gradients, exact))
        return np.linalg.norm(flat - true) / np.linalg.norm(true)

    assert error(True) <= error(False)


@pytest.mark.slow
def test_a_fast_model_trains_under_keras_and_its_directory_loads_into_a_plain_one(tmp_path):
    model = adapted(True)
    frozen = [w.numpy() for w in model.non_trainable_weights]
    model.compile(keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    history = model.fit(tf.data.Dataset.from_tensors((INPUTS, LABELS)).repeat(30), verbose=0, epochs=1)
    assert model.evaluate(tf.data.Dataset.from_tensors((INPUTS, LABELS)), verbose=0) < history.history["loss"][0]
    assert all(map(np.array_equal, frozen, [w.numpy() for w in model.non_trainable_weights]))
    save_adapter(model, tmp_path / "a")
    plain = tiny_model()
    load_adapter(plain, tmp_path / "a")
    np.testing.assert_allclose(plain(INPUTS).logits, model(INPUTS).logits, atol=2e-6)


@pytest.mark.nightly
def test_whole_steps_compile_with_dropout_too(float32_policy):
    float32_policy("mixed_float16")
    model = adapted(True, num_hidden_layers=2)
    model.compile(
        keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=True
    )
    losses = [model.train_on_batch(INPUTS, LABELS) for _ in range(3)]
    assert np.isfinite(losses).all() and len(set(losses)) == 3


@pytest.mark.slow
def test_a_step_compiles_whole_and_gives_the_same_loss():
    def losses(jit_compile):
        model = adapted(True, num_hidden_layers=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        model.compile(
            keras.optimizers.Adam(0.01),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            jit_compile=jit_compile,
        )
        return model.fit(tf.data.Dataset.from_tensors((INPUTS, LABELS)).repeat(3), verbose=0, epochs=2).history["loss"]

    np.testing.assert_allclose(losses(True), losses(False), rtol=1e-5)
