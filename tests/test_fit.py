"""A run of `fit`: what it learns, logs, keeps, and how it goes on after a kill."""

import csv
import functools
import importlib.util
import json

import numpy as np
import pytest
import tensorflow as tf

from tests.cases import nightly_but
from tests.conftest import is_refused, tiny_inputs, tiny_model
from tests.runs import KillAt, Killed, content, seven_seconds_a_look
from tests.whole import assert_same, picture
from tf_adapters import (
    AdapterConfig,
    InputError,
    add_adapters,
    disable_adapters,
    fit,
    load_backbone,
    load_trained,
    set_trainable,
)
from tf_adapters._keras import keras
from tf_adapters.kinds.kind import Scorer
from tf_adapters.layers.ops import keras2
from tf_adapters.training.run import Reporter, seconds_of_long_steps
from tf_adapters.training.step import seed_dropout
from tf_adapters.training.trained import warmup_linear_decay

SETTINGS = dict(epochs=2, learning_rate=3e-3, batch_size=16, seed=3)


def new_model(one_block, mode="adapters", fast=False):
    keras.utils.set_random_seed(0)
    model = load_backbone(one_block, labels=["negative", "positive"])
    if mode == "adapters":
        add_adapters(model, AdapterConfig(bottleneck_size=8, dropout=0.0 if fast else 0.1), seed=0, fast=fast)
    return set_trainable(model, mode)


def test_schedule_is_the_papers():
    WarmupLinearDecay = warmup_linear_decay(keras2)
    schedule = WarmupLinearDecay(1e-3, 100)
    # 10 steps of rise, 90 of fall.
    for step, expected in {0: 0, 5: 5e-4, 10: 1e-3, 55: 5e-4, 99: 1e-3 / 90, 100: 0, 150: 0}.items():
        assert float(schedule(step)) == pytest.approx(expected, abs=1e-10)
    assert float(WarmupLinearDecay(2.0, 4, warmup_fraction=0)(0)) == 2
    assert WarmupLinearDecay.from_config(schedule.get_config())(55) == schedule(55)
    for arguments, message in (((float("nan"), 10), "peak=nan"), ((1, 0), "steps=0")):
        is_refused(message, warmup_linear_decay(keras2), *arguments)


class Record(Reporter):
    def __init__(self):
        self.events, self.epochs = [], []

    def start(self, steps, done):
        self.events.append((steps, done))

    def step(self, done, numbers):
        self.events.append(done)

    def epoch(self, epoch, numbers, best):
        self.epochs.append((epoch, numbers, best))


def test_training_learns_logs_and_keeps_the_best_epoch(one_block, task, wordpiece, tmp_path):
    record = Record()
    # A random encoder learns this only as a whole; what adapters learn is measured on a pretrained one.
    model = new_model(one_block, "full")
    result = fit(model, task, wordpiece, output=tmp_path / "a", **{**SETTINGS, "epochs": 5}, reporter=record)
    assert not result.interrupted and result.steps == 50
    assert record.events == [(50, 0), *range(1, 51)]
    best = max(record.epochs, key=lambda item: (item[1]["accuracy"], -item[0]))
    assert result.best_epoch == best[0] and result.metrics == {"accuracy": best[1]["accuracy"]}
    assert result.metrics["accuracy"] > 0.8
    assert sorted(content(tmp_path / "a")) == ["README.md", "adapter.safetensors", "log.csv", "tf_adapters.json"]
    assert not (tmp_path / "a" / ".resume").exists()
    rows = list(csv.DictReader((tmp_path / "a" / "log.csv").read_text().splitlines()))
    assert [int(row["step"]) for row in rows] == [10, 20, 30, 40, 50]
    assert [float(row["validation_accuracy"]) for row in rows] == [
        numbers["accuracy"] for _, numbers, _ in record.epochs
    ]
    assert float(rows[-1]["training_loss"]) < float(rows[0]["training_loss"])
    # The model in memory is the saved one, not the last.
    saved, settings = load_trained(tmp_path / "a")
    assert np.array_equal(saved(tiny_inputs()).logits, model(tiny_inputs()).logits)
    logits = Scorer(model, wordpiece).logits(task.validation.text)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(task.validation.labels, logits)
    assert float(rows[best[0] - 1]["validation_loss"]) == pytest.approx(float(tf.reduce_mean(losses)), rel=1e-5)
    assert settings["task"]["name"] == "files" and settings["text"] == wordpiece.settings()


@pytest.mark.nightly
def test_a_learning_curve_has_a_point_every_few_steps_and_goes_on_after_a_kill(one_block, task, wordpiece, tmp_path):
    settings, record = {**SETTINGS, "period": 3}, Record()
    result = fit(new_model(one_block), task, wordpiece, output=tmp_path / "whole", **settings, reporter=record)
    # Two epochs of ten steps, and one more for a whole last period.
    assert result.steps == 21 and [epoch for epoch, *_ in record.epochs] == list(range(1, 8))
    rows = list(csv.DictReader((tmp_path / "whole" / "log.csv").read_text().splitlines()))
    assert [int(row["step"]) for row in rows] == [3, 6, 9, 12, 15, 18, 21]
    with seven_seconds_a_look(), pytest.raises(Killed):
        fit(new_model(one_block), task, wordpiece, output=tmp_path / "a", **settings, reporter=KillAt(11))
    fit(new_model(one_block), task, wordpiece, output=tmp_path / "a", **settings, resume=True)
    assert content(tmp_path / "a") == content(tmp_path / "whole")


@pytest.mark.slow
def test_training_stops_where_validation_gets_no_better(one_block, task, wordpiece, tmp_path):
    record, tensorboard = Record(), importlib.util.find_spec("tensorboard") is not None
    # Nothing moves at this rate, so the first epoch stays the best.
    settings = {**SETTINGS, "learning_rate": 1e-12, "epochs": 6, "patience": 2, "clip_norm": 1.0, "weight_decay": 0.01}
    settings["tensorboard"] = tensorboard
    result = fit(new_model(one_block, "head"), task, wordpiece, output=tmp_path / "a", **settings, reporter=record)
    assert result.stopped_early and not result.interrupted and (result.best_epoch, result.steps) == (1, 30)
    assert [epoch for epoch, _, _ in record.epochs] == [1, 2, 3] and not (tmp_path / "a" / ".resume").exists()
    training = json.loads((tmp_path / "a" / "tf_adapters.json").read_text())["training"]
    assert (training["patience"], training["clip_norm"], training["weight_decay"]) == (2, 1.0, 0.01)
    if tensorboard:
        (file,) = (tmp_path / "a" / "tensorboard").glob("events.*")
        assert b"validation_accuracy" in file.read_bytes()


POLICIES = [("float32", False), ("mixed_bfloat16", True), ("mixed_float16", False)]


@pytest.mark.slow
@pytest.mark.parametrize("policy, fast", nightly_but(POLICIES[:1], POLICIES))
def test_resume_after_kill_ends_bit_equal_to_an_uninterrupted_run(
    one_block, task, wordpiece, tmp_path, policy, fast, float32_policy
):
    float32_policy(policy)
    new = functools.partial(new_model, one_block, fast=fast)
    fit(new(), task, wordpiece, output=tmp_path / "whole", **SETTINGS)

    # Within the first epoch, on its last step, on the second's first with the state of the first's end, within the
    # second; otherwise the state is 2 or so steps old.
    for index, (step, seconds) in enumerate(((4, 15), (10, 15), (11, 1e9), (13, 15))):
        with seven_seconds_a_look(), pytest.raises(Killed):
            going = dict(resume=index > 0, checkpoint_seconds=seconds, reporter=KillAt(step))
            fit(new(), task, wordpiece, output=tmp_path / "killed", **SETTINGS, **going)
        assert (tmp_path / "killed" / ".resume").exists()
    record = Record()
    result = fit(new(), task, wordpiece, output=tmp_path / "killed", **SETTINGS, resume=True, reporter=record)
    assert 0 < record.events[0][1] <= 13 and result.steps == 20
    assert content(tmp_path / "killed") == content(tmp_path / "whole")


@pytest.mark.slow
def test_resume_refuses_another_runs_settings(one_block, task, wordpiece, tmp_path):
    def run(mode="adapters", resume=True, **settings):
        fit(new_model(one_block, mode), task, wordpiece, output=tmp_path, resume=resume, **{**SETTINGS, **settings})

    is_refused("no run to resume", run)
    with pytest.raises(Killed):
        run(resume=False, reporter=KillAt(1))
    is_refused("another learning_rate \\(0.003, now 0.1\\)", run, learning_rate=0.1)
    is_refused("another trainable", run, "head")
    (tmp_path / ".resume" / "state.safetensors").write_bytes(b"123")
    is_refused("is damaged", run)


@pytest.mark.slow
def test_divergence_is_named_and_the_previous_best_stays(one_block, task, wordpiece, tmp_path):
    class Break(Reporter):
        def epoch(self, epoch, numbers, best):
            model.classifier.bias.assign([np.nan, 0.0])

    model = new_model(one_block)
    with pytest.raises(InputError, match="training diverged. Try a lower learning_rate"):
        fit(model, task, wordpiece, output=tmp_path, **SETTINGS, reporter=Break())
    load_trained(tmp_path)
    # Another run, which came to nothing, and so has no best.
    with pytest.raises(InputError, match=f"epoch 1 is nan: training diverged.*; nothing was saved to {tmp_path}"):
        fit(model, task, wordpiece, output=tmp_path, **SETTINGS)


def test_what_each_period_left_is_of_this_run_alone(one_block, task, wordpiece, tmp_path):
    (tmp_path / "step-mine").mkdir()
    for steps, kept in ((2, ["step-1", "step-2"]), (1, ["step-1"])):
        settings = {"learning_rate": 1e-3, "batch_size": 8, "keep_periods": True}
        fit(new_model(one_block), task, wordpiece, output=tmp_path, steps=steps, period=1, **settings)
        assert sorted(path.name for path in tmp_path.glob("step-*")) == [*kept, "step-mine"]


def test_seconds_of_long_steps_by_hand():
    assert seconds_of_long_steps([]) == 0
    assert seconds_of_long_steps([2.0, 0.1, 0.1, 0.2, 1.1, 0.1]) == pytest.approx(1.9 + 1.0, abs=0.1)
    assert seconds_of_long_steps([0.1, 0.2, 0.3]) == 0


def test_rates_of_dropout_come_back_and_each_layer_has_a_generator_of_its_own():
    model = add_adapters(tiny_model(), AdapterConfig(4, dropout=0.2))
    # Embeddings, head, and per block attention, two outputs, and eight adapters in all, whose own rate stays.
    for given, found in ((None, 0.1), (0.0, 0.0), (None, 0.1)):
        layers = seed_dropout(model, 1, rate=given)
        assert sorted(layer.rate for layer in layers) == [found] * (2 + 3 * 4) + [0.2] * 8
    assert len({tuple(layer.generator.state.numpy()) for layer in layers}) == len(layers)


def test_a_fit_that_is_refused_leaves_the_model_as_it_was(one_block, task, wordpiece, tmp_path):
    model = new_model(one_block)
    before = picture(model)
    common = dict(output=tmp_path / "run", epochs=1, learning_rate=1e-3, batch_size=8, dropout=0.5)
    for settings, message in (
        ({"mixout": 0.5, "checkpoint_gradients": True}, "mixout"), ({"resume": True}, "resume"),
        ({"period": 1000}, "period=1000 is above the [0-9]+ steps that epochs=1 has on"),
    ):  # fmt: skip
        is_refused(message, fit, model, task, wordpiece, **common, **settings)
        assert_same(before, picture(model))


def test_an_adapter_that_was_not_chosen_to_train_is_named_before_it_does_not_train(
    one_block, task, wordpiece, tmp_path
):
    model = new_model(one_block)
    add_adapters(model, AdapterConfig(4), name="second", seed=1)
    with pytest.raises(InputError, match="not the adapter that acts.*'second'"):
        fit(model, task, wordpiece, output=tmp_path / "run", epochs=1, learning_rate=1e-3)
    set_trainable(model, "adapters")
    with disable_adapters(model), pytest.raises(InputError, match="fit is of the active adapter, and inside"):
        fit(model, task, wordpiece, output=tmp_path / "run", epochs=1, learning_rate=1e-3)
