"""Fast blocks compute what plain ones compute."""

import os
import pathlib
import subprocess
import sys
import threading

import numpy as np
import pytest
import tensorflow as tf

from tests.cases import nightly_but
from tests.conftest import is_refused, randomize, tiny_inputs, tiny_model
from tests.families import family_model
from tf_adapters import (
    AdapterConfig,
    LoraConfig,
    add_adapters,
    disable_adapters,
    load_adapter,
    remove_adapters,
    save_adapter,
    set_active,
    set_trainable,
)
from tf_adapters._keras import keras
from tf_adapters.kinds.kind import Scorer, _computed
from tf_adapters.layers import attention
from tf_adapters.methods import DoraConfig
from tf_adapters.models import backbone_digest
from tf_adapters.models.state import state_of
from tf_adapters.models.transformers.bert_like import BERT
from tf_adapters.training.step import seed_dropout

INPUTS = tiny_inputs(batch=4, length=12)
LABELS = tf.constant([0, 1, 1, 0])
CONFIG = AdapterConfig(bottleneck_size=8, init_stddev=0.3, train_layer_norm="all")
NO_DROPOUT = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


def adapted(fast, *, head="classification", config=CONFIG, mode="adapters", depth=2, **changes):
    model = tiny_model(head, num_hidden_layers=depth, **changes)
    add_adapters(model, config, seed=1, fast=fast)
    return set_trainable(randomize(model, scale=0.1, head=False), mode)


def several(fast, count, config=CONFIG):
    """A model with so many adapters, of which the last acts, and of each a model that has it alone."""
    model, alone = tiny_model(num_hidden_layers=2), [tiny_model(num_hidden_layers=2) for _ in range(count)]
    for number, lone in enumerate(alone):
        for one, name in ((model, f"{number}"), (lone, "default")):
            randomize(add_adapters(one, config, name=name, seed=number, fast=fast), number, scale=0.1)
            set_trainable(one)
    return model, alone


def compiled(model, **settings):
    model.compile(keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True), **settings)
    return model


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


CASES = {
    "full": (CONFIG, "full"),
    "by parts": (CONFIG, "full"),
    "shared": (AdapterConfig(4, sharing=2, activation="swish", init_stddev=0.3), "adapters"),
    "lora": (LoraConfig(3, alpha=6), "adapters"),
    "dora": (DoraConfig(3, alpha=6), "adapters"),
    "one block": (AdapterConfig(4, placement="ffn", blocks=(1,), activation="relu", init_stddev=0.3), "adapters"),
}


@pytest.mark.parametrize("case", nightly_but(["full", "by parts", "shared", "lora", "dora"], CASES))
def test_fast_logits_and_gradients_are_those_of_plain_blocks(case, monkeypatch):
    config, mode = CASES[case]
    monkeypatch.setattr(attention, "_LONG", 1 if case == "by parts" else 2**15)
    plain, fast = (adapted(fast, config=config, mode=mode) for fast in (False, True))
    assert [v.name.split("/", 1)[1] for v in plain.trainable_variables] == [
        v.name.split("/", 1)[1] for v in fast.trainable_variables
    ]
    logits, gradients = logits_and_gradients(plain)
    if case != "dora":  # which is computed around each dense layer
        slow = type(fast.bert.encoder.layer[0].attention.self_attention).__mro__[2]
        monkeypatch.setattr(slow, "call", lambda *given, **options: pytest.fail("the plain attention was computed"))
    found, of_fast = logits_and_gradients(fast)
    np.testing.assert_allclose(found, logits, atol=1e-6)
    # Plain blocks differ from themselves under XLA by as much: 4e-6 in the worst variable.
    assert max(relative_errors(of_fast, gradients)) < 1e-5
    flat, of_fast = (np.concatenate([g.ravel() for g in each]) for each in (gradients, of_fast))
    assert np.linalg.norm(of_fast - flat) < 1e-6 * np.linalg.norm(flat)


def test_blocks_are_subclasses_of_transformers_own_and_go_when_the_adapters_go():
    model = tiny_model(num_hidden_layers=2)
    before, digest = model(INPUTS).logits.numpy(), backbone_digest(model)
    original = [model.bert.encoder, *model.bert.encoder.layer]
    parts = [block.attention.self_attention for block in original[1:]]
    rates = [rate for *_, rate in BERT.dropout_layers(model)]
    # What is drawn is what plain blocks draw, and nothing else is.
    keras.utils.set_random_seed(7)
    add_adapters(model, CONFIG, fast=True)
    drawn, other = np.random.rand(), tiny_model(num_hidden_layers=2)
    keras.utils.set_random_seed(7)
    add_adapters(other, CONFIG)
    one, two = ([w.numpy() for w in each.weights if w.name.startswith("adapters/")] for each in (model, other))
    assert all(map(np.array_equal, one, two)) and drawn == np.random.rand()
    assert isinstance(model.bert.encoder, BERT.fast_encoder_class)
    assert all(isinstance(block, BERT.fast_block_class) for block in model.bert.encoder.layer)
    seed_dropout(model, 0, rate=0.0)
    remove_adapters(model)
    assert [rate for *_, rate in BERT.dropout_layers(model)] == rates
    assert [model.bert.encoder, *model.bert.encoder.layer] == original
    assert [block.attention.self_attention for block in model.bert.encoder.layer] == parts
    assert np.array_equal(model(INPUTS).logits, before) and backbone_digest(model) == digest


def test_batches_of_any_size_compute_under_one_signature():
    model, plain = adapted(True, depth=1), adapted(False, depth=1)
    specs = {name: tf.TensorSpec((None, None), tf.int32) for name in INPUTS}
    compute = tf.function(lambda inputs: model(inputs).logits, input_signature=[specs])
    inputs = {name: tensor[:3, :1] for name, tensor in INPUTS.items()}
    np.testing.assert_allclose(compute(inputs), plain(inputs).logits, atol=1e-6)


def test_batches_are_padded_less_once_that_repays_its_shapes(wordpiece):
    scorer, encoded = Scorer(adapted(True), wordpiece, batch_size=1), wordpiece.encode(["a a"] * 256)
    for width in (8, 4, 4):
        assert {inputs["input_ids"].shape[1] for _, inputs in scorer.inputs(encoded)} == {width}


def test_families_of_another_shape_have_no_fast_blocks():
    model = family_model("distilbert")
    is_refused("fast=True: distilbert has no fast blocks; leave it out", add_adapters, model, fast=True)
    add_adapters(model, fast=False)


@pytest.mark.slow
def test_what_is_compiled_can_be_kept_on_disk_for_the_next_process(tmp_path):
    code = """
import numpy as np, sys
from tests.test_fast import INPUTS, adapted
np.save(sys.argv[1], adapted(True)(INPUTS).logits)
"""
    environment = {**os.environ, "TF_XLA_FLAGS": f"--tf_xla_persistent_cache_directory={tmp_path / 'kept'}"}
    answers, kept = [], []
    for name in ("compiled.npy", "read.npy"):
        words = [sys.executable, "-c", code, tmp_path / name]
        subprocess.run(words, check=True, cwd=pathlib.Path(__file__).parents[1], env=environment, timeout=300)
        answers.append(np.load(tmp_path / name))
        kept.append({path.name: path.stat().st_mtime_ns for path in tmp_path.glob("kept/*")})
    assert kept[0] and kept[1] == kept[0], "the second process compiled anew"
    np.testing.assert_array_equal(*answers)


def test_few_rows_are_computed_at_once_as_smaller_batches(wordpiece, monkeypatch):
    monkeypatch.setattr("tf_adapters.kinds.kind.AT_ONCE", 2)
    scorer = Scorer(adapted(False), wordpiece, batch_size=4)
    for rows, expected in ((1, [1]), (4, [2, 2]), (5, [1, 4])):
        sizes = [len(positions) for positions, _ in scorer.batches(wordpiece.encode(["a a"] * rows))]
        assert sizes == expected
    alone = scorer.by(scorer.forward).inputs(wordpiece.encode(["a a"] * 4))
    assert [len(positions) for positions, _ in alone] == [4]


def test_two_batches_are_computed_at_a_time_and_come_in_their_order():
    both, drawn = threading.Barrier(2, timeout=20), []
    batches = ((number, drawn.append(number) or number) for number in range(6))
    computed = _computed(batches, lambda number: (both.wait(), number)[1], 2)
    assert next(computed) == (0, 0) and len(drawn) == 3
    assert list(computed) == [(number, number) for number in range(1, 6)]


def test_layers_that_compute_something_else_stay_what_they_are():
    class Doubling(keras.layers.Dense):
        def call(self, inputs):
            return 2 * super().call(inputs)

    def changed(fast):
        model = tiny_model(num_hidden_layers=3)
        for block in model.bert.encoder.layer[:2]:
            block.intermediate.intermediate_act_fn = tf.nn.relu
            for dense in (block.bert_output.dense, block.attention.self_attention.key):
                dense.__class__ = Doubling  # the same weights by the same names
        add_adapters(model, CONFIG, seed=1, fast=fast)
        return model(INPUTS).logits.numpy()

    np.testing.assert_allclose(changed(True), changed(False), atol=1e-6)


def test_prefixes_and_threads_get_every_token():
    model, plain = adapted(True), adapted(False)
    prefix = tuple((tf.ones([4, 2, 3, 16]), tf.ones([4, 2, 3, 16])) for _ in range(2))
    inputs = {"input_ids": INPUTS["input_ids"], "attention_mask": tf.ones([4, 15], tf.int32), "past_key_values": prefix}
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


def test_the_last_block_computes_its_first_token_alone_where_nothing_else_is_read():
    model = adapted(True)
    states = model.bert(INPUTS).last_hidden_state.numpy()
    assert np.isfinite(states[:, 0]).all() and np.isnan(states[:, 1:]).all()
    outputs = model.bert(INPUTS, output_hidden_states=True)
    assert np.isfinite(outputs.last_hidden_state).all() and len(outputs.hidden_states) == 3
    np.testing.assert_allclose(outputs.last_hidden_state[:, 0], states[:, 0], atol=1e-6)
    outputs = model(INPUTS, output_attentions=True)
    assert np.isfinite(outputs.logits).all() and len(outputs.attentions) == 2
    plain, fast = (adapted(fast, head="token-classification")(INPUTS).logits for fast in (False, True))
    np.testing.assert_allclose(fast, plain, atol=2e-6)


def test_adapters_are_switched_and_disabled_in_graphs_already_traced(tmp_path):
    model = adapted(True)
    graph = tf.function(lambda: model(INPUTS).logits)
    one = graph().numpy()
    with disable_adapters(model):
        np.testing.assert_allclose(graph(), tiny_model(num_hidden_layers=2)(INPUTS).logits, atol=1e-6)
    randomize(add_adapters(model, CONFIG, name="other", seed=2), 2, scale=0.1)
    assert np.isnan(graph()).all()  # traced before the second adapter was there
    plain = tiny_model(num_hidden_layers=2)
    randomize(add_adapters(plain, CONFIG, name="other", seed=2), 2, scale=0.1)
    np.testing.assert_allclose(model(INPUTS).logits, plain(INPUTS).logits, atol=1e-6)
    set_active(model, "default")
    np.testing.assert_allclose(model(INPUTS).logits, one, atol=1e-6)
    message = "fast=False: the model's blocks have fast=True, which its first adapter decided"
    is_refused(message, add_adapters, model, CONFIG, name="third", fast=False)
    save_adapter(model, tmp_path / "a")
    is_refused(message, load_adapter, model, tmp_path / "a", fast=False)


@pytest.mark.parametrize("config", [CONFIG, LoraConfig(3, alpha=6)])
def test_several_adapters_of_one_form_are_fused_with_the_weights_and_gradients_of_the_one_that_acts(
    config, monkeypatch
):
    model, alone = several(True, 3, config)
    expected = list(map(logits_and_gradients, alone))
    layer = type(next(iter(state_of(model).adapters["0"].layers.values())))
    monkeypatch.setattr(layer, "call", lambda *given, **options: pytest.fail("plain code computed it"))
    graph = tf.function(lambda: model(INPUTS).logits)
    of_last = {id(weight) for layer in state_of(model).adapters["2"].layers.values() for weight in layer.weights}
    places = [place for place, weight in enumerate(model.trainable_variables) if id(weight) in of_last]
    set_active(model, "0")
    _, gradients = logits_and_gradients(model)
    assert places and not any(gradients[place].any() for place in places)
    for number, (logits, gradients) in enumerate(expected):
        set_active(model, f"{number}")
        set_trainable(model)
        np.testing.assert_allclose(graph(), logits, atol=1e-6)
        found, of_several = logits_and_gradients(model)
        np.testing.assert_allclose(found, logits, atol=1e-6)
        assert max(relative_errors(of_several, gradients)) < 1e-5
    assert graph.experimental_get_tracing_count() == 1


@pytest.mark.parametrize("fast", [False, True])
def test_what_another_adapter_of_the_form_holds_does_not_come_in(fast):
    model, _ = several(fast, 2)
    expected = model(INPUTS).logits.numpy()
    for layer in state_of(model).adapters["0"].layers.values():
        layer.set_weights([np.full_like(weight, np.nan) for weight in layer.get_weights()])
    logits, gradients = logits_and_gradients(model)
    np.testing.assert_allclose(logits, expected, atol=1e-6)
    assert all(np.isfinite(gradient).all() for gradient in gradients)
    with disable_adapters(model):
        first_tokens = (one.bert(INPUTS)[0][:, 0] for one in (model, tiny_model(num_hidden_layers=2)))
        np.testing.assert_allclose(*first_tokens, atol=1e-6)


@pytest.mark.parametrize("fast", [False, True])
def test_what_an_adapter_draws_in_training_is_its_own(fast):
    several = (AdapterConfig(4, init_stddev=0.3, **more) for more in ({"random_drop": 2}, {"dropout": 0.5}, {}))
    model = tiny_model(num_hidden_layers=2, **NO_DROPOUT)
    for name, config in zip(("dropped", "dropout", "plain"), several):
        randomize(add_adapters(model, config, name=name, seed=1, fast=fast))
    expected = model(INPUTS).logits
    for _ in range(4):
        np.testing.assert_allclose(model(INPUTS, training=True).logits, expected, atol=1e-6)
    for name in ("dropped", "dropout"):
        set_active(model, name)
        drawn = np.array([model(INPUTS, training=True).logits for _ in range(8)])
        assert np.ptp(drawn, axis=0).max() > 1e-4


def operations(graph):
    functions = graph.as_graph_def().library.function
    return len(graph.as_graph_def().node) + sum(len(function.node_def) for function in functions)


@pytest.mark.parametrize("fast", [pytest.param(False, marks=pytest.mark.nightly), True])
def test_keras_traces_a_step_once_and_another_adapter_of_the_form_adds_little_to_it(fast):
    sizes = []
    for count in (2, 4):
        model, graphs = several(fast, count)[0], []

        def call(*given, model=model, graphs=graphs, **options):
            graphs.append(tf.compat.v1.get_default_graph())
            return type(model).call(model, *given, **options)

        model.call = call
        compiled(model).fit(INPUTS, LABELS, verbose=0)
        assert len(graphs) == 1
        sizes.append(operations(graphs[0]))
    # As a branch of its own each would add a sixth.
    assert sizes[1] < 1.15 * sizes[0]


@pytest.mark.parametrize("config", [AdapterConfig(8, init_stddev=0.3, dropout=0.5), LoraConfig(rank=2, dropout=0.5)])
def test_the_own_dropout_of_adapters_acts_in_training_and_there_alone(config):
    plain, fast = (adapted(fast, config=config, **NO_DROPOUT) for fast in (False, True))
    np.testing.assert_allclose(fast(INPUTS).logits, plain(INPUTS).logits, atol=1e-6)
    for model in (plain, fast):
        one, other = (model(INPUTS, training=True).logits for _ in range(2))
        assert not np.allclose(one, other, atol=1e-5) and not np.allclose(one, plain(INPUTS).logits, atol=1e-5)


@pytest.mark.slow
def test_a_step_compiles_whole_gives_the_same_loss_and_leaves_what_is_frozen_alone():
    losses = []
    for jit_compile in (True, False):
        model = compiled(adapted(True, **NO_DROPOUT), jit_compile=jit_compile)
        frozen = [weight.numpy() for weight in model.non_trainable_weights]
        losses.append([model.train_on_batch(INPUTS, LABELS) for _ in range(6)])
        assert all(map(np.array_equal, frozen, [weight.numpy() for weight in model.non_trainable_weights]))
    np.testing.assert_allclose(*losses, rtol=1e-5)
    assert losses[0][-1] < losses[0][0]
