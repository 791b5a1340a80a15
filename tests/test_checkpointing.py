"""Gradient checkpointing: the gradients of a step without it, dropout included, in less memory."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.cases import nightly_but
from tests.conftest import is_refused, randomize, tiny_inputs, tiny_model
from tests.families import FAMILIES, family_inputs, family_model
from tf_adapters import AdapterConfig, add_adapters, set_trainable
from tf_adapters.models.state import state_of
from tf_adapters.training.step import GradientCheckpointing, TrainingStep, seed_dropout


def adapted(model, mode, config=None, fast=False):
    if mode == "adapters":
        config = config or AdapterConfig(4, init_stddev=0.3, dropout=0.0 if fast else 0.1)
        randomize(add_adapters(model, config, seed=0, fast=fast))
    return set_trainable(model, mode)


def loss_and_gradients(model, inputs, *, checkpointed, graph=True, jit_compile=False):
    """Those of the second step after dropout was seeded, as arrays."""
    seed_dropout(model, 1)
    trained = TrainingStep(model, [GradientCheckpointing(model)] if checkpointed else [])

    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.cast(trained(inputs, training=True), tf.float32) ** 2)
        return loss, [tf.convert_to_tensor(gradient) for gradient in tape.gradient(loss, model.trainable_variables)]

    step = tf.function(step, jit_compile=jit_compile) if graph else step
    step()
    loss, gradients = step()
    return loss.numpy(), [gradient.numpy() for gradient in gradients]


def assert_gradients_agree(model, inputs, *, of_largest, **how):
    """Compare them with and without; the tolerance is a share of the largest gradient."""
    loss, gradients = loss_and_gradients(model, inputs, checkpointed=False, **how)
    other_loss, others = loss_and_gradients(model, inputs, checkpointed=True, **how)
    largest = max(np.abs(gradient).max() for gradient in gradients)
    assert largest > 0.01 and len(gradients) == len(others) > 0
    np.testing.assert_allclose(loss, other_loss, rtol=of_largest)
    for gradient, other in zip(gradients, others):
        np.testing.assert_allclose(gradient, other, rtol=0, atol=of_largest * largest)


# A graph's operations are fused where nothing between them is needed, and so rounded otherwise, by some units in the
# last place.
ROUNDING = 1e-6


@pytest.mark.parametrize(
    "mode, config, of_largest",
    nightly_but(
        [("full", None, 0), ("adapters", AdapterConfig(4, init_stddev=0.3, dropout=0.3, sharing="layer"), 0)],
        [
            ("full", None, 0),
            # One adapter draws for two places of a block.
            ("adapters", AdapterConfig(4, init_stddev=0.3, dropout=0.3, sharing="layer"), 0),
            # For places of two blocks: the sum of their gradients has another order.
            ("adapters", AdapterConfig(4, init_stddev=0.3, dropout=0.3, sharing=2), ROUNDING),
            ("adapters", AdapterConfig(4, init_stddev=0.3, random_drop=2), 0),
        ],
    ),
)
def test_gradients_with_dropout_are_bit_equal_to_those_without_checkpointing(mode, config, of_largest):
    model = adapted(tiny_model(num_hidden_layers=3), mode, config)
    assert_gradients_agree(model, tiny_inputs(), graph=False, of_largest=of_largest)


@pytest.mark.slow
@pytest.mark.parametrize(
    "family, mode",
    nightly_but([("bert", "adapters")], [(family, mode) for family in FAMILIES for mode in ("adapters", "full")]),
)
def test_a_graph_of_every_family_has_the_same_gradients(family, mode):
    assert_gradients_agree(adapted(family_model(family), mode), family_inputs(family), of_largest=ROUNDING)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "policy, fast, jit_compile, of_largest",
    [
        ("float32", True, True, ROUNDING),
        # Of bfloat16 a unit in the last place is 2**-8 of a number, and of float16 2**-11.
        ("mixed_bfloat16", False, False, 2**-8),
        ("mixed_float16", False, False, 2**-11),
    ],
)
def test_fast_blocks_xla_and_half_precision_have_the_same_gradients(
    policy, fast, jit_compile, of_largest, float32_policy
):
    float32_policy(policy)
    model = adapted(tiny_model(), "adapters", fast=fast)
    assert_gradients_agree(model, tiny_inputs(), of_largest=of_largest, jit_compile=jit_compile)


def test_each_block_is_computed_twice_and_afterwards_once():
    model = adapted(tiny_model(num_hidden_layers=2), "adapters")
    seed_dropout(model, 0)
    calls, blocks = [], state_of(model).family.blocks(model)
    for block in blocks:
        # The computation of a block, whoever asks for it, asks for its site.
        site = block.bert_output
        vars(site)["call"] = lambda *args, site=site, **kwargs: (
            calls.append(site) or type(site).call(site, *args, **kwargs)
        )
    trained = TrainingStep(model, [GradientCheckpointing(model)])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(trained(tiny_inputs(), training=True))
    assert len(calls) == len(blocks)
    tape.gradient(loss, model.trainable_variables)
    assert calls[len(blocks) :] == [block.bert_output for block in reversed(blocks)]
    calls.clear()
    np.testing.assert_array_equal(trained(tiny_inputs(), training=False), model(tiny_inputs()).logits)
    assert len(calls) == 2 * len(blocks) and not any("call" in vars(block) for block in blocks)


PEAK = """
import re, sys
import tensorflow as tf
from tests.conftest import tiny_inputs, tiny_model
from tf_adapters import AdapterConfig, add_adapters, set_trainable
from tf_adapters.training.step import GradientCheckpointing, TrainingStep, seed_dropout

mode, checkpointed, jit_compile = sys.argv[1], *(argument == "True" for argument in sys.argv[2:])
model = tiny_model(num_hidden_layers=8, intermediate_size=2048)
if mode == "adapters":
    add_adapters(model, AdapterConfig(4), seed=0)
seed_dropout(set_trainable(model, mode), 0)
trained = TrainingStep(model, [GradientCheckpointing(model)] if checkpointed else [])

@tf.function(jit_compile=jit_compile)
def step(inputs):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(trained(inputs, training=True))
    return [tf.reduce_sum(gradient) for gradient in tape.gradient(loss, model.trainable_variables)]

peaks = []
for batch in (2, 48):
    step(tiny_inputs(batch, 64))
    # getrusage would count what the process was forked from.
    peaks.append(int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]))
print(peaks[1] - peaks[0])
"""


@pytest.mark.nightly
@pytest.mark.skipif(
    not os.path.exists("/proc/self/status"), reason="needs Linux, which tells a process's peak of memory"
)
@pytest.mark.parametrize("mode, jit_compile", [("adapters", False), ("full", False), ("full", True)])
def test_a_step_takes_less_memory(mode, jit_compile):
    root = str(pathlib.Path(__file__).parents[1])

    def kilobytes(checkpointed):
        command = [sys.executable, "-c", PEAK, mode, str(checkpointed), str(jit_compile)]
        done = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": root}, capture_output=True, text=True, check=True
        )
        return int(done.stdout.split()[-1])

    # Of the eight blocks one at a time.
    assert kilobytes(True) < 0.5 * kilobytes(False)


def test_what_cannot_be_checkpointed_is_named(tmp_path, cli, train_arguments):
    # Before `seed_dropout`.
    for model, message in (
        (family_model("deberta-v2"), "True: .*StableDropout.* of block 0 cannot draw the same mask twice"),
        (tiny_model(num_hidden_layers=1), r"the dropout 'dropout.*' \(Dropout\) of block 0"),
    ):
        is_refused(f"checkpoint_gradients={message}" if "True" in message else message, GradientCheckpointing, model)
    outcome = cli(*train_arguments, "--output", tmp_path / "out", "--gradient-checkpointing", "--mixout", "0.5")
    assert outcome.status == 2 and "--mixout 0.5 and --gradient-checkpointing exclude each other" in outcome.err
