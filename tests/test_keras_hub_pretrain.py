"""Masked words through the second door, beside the first."""

import functools
import json

import numpy as np
import pytest

from tests.cases import nightly_but
from tests.conftest import VOCABULARY
from tests.keras_hub_models import (
    BACKEND,
    OF_MASKED_WORDS,
    PLACES,
    adapted,
    answers,
    array,
    first,
    inputs,
    keras,
    needs_first,
)
from tests.runs import KillAt, Killed, content
from tf_adapters import (
    AdapterConfig,
    fit,
    load_backbone,
    load_trained,
    pretrain,
    save_adapter,
    set_trainable,
    task_from_files,
)
from tf_adapters._keras3_internals import masked_words_part
from tf_adapters.kinds.masked_lm import MaskedLanguageModelling, hidden_crossentropy, masked_words
from tf_adapters.layers.ops import keras3
from tf_adapters.models import frozen_digest
from tf_adapters.models.state import state_of
from tf_adapters.saving import load_pretrained_adapter
from tf_adapters.text.tokenizer import load_tokenizer

CONFIG = AdapterConfig(bottleneck_size=4, train_layer_norm="none")
SETTINGS = dict(steps=8, save_every=4, learning_rate=3e-3, fit_head_steps=6, batch_size=16, seed=2)
COMPILED = BACKEND == "jax"  # where a fixed number of places is computed


def new_model(encoder, head="masked-lm"):
    keras.utils.set_random_seed(0)
    return load_backbone(encoder, head=head, door="keras-hub")


@pytest.mark.parametrize(
    "family, rate", nightly_but([("bert", 0.15)], [(f, r) for f in OF_MASKED_WORDS for r in (None, 0.15)])
)
def test_logits_of_hidden_tokens_are_the_models_own(checkpoints, family, rate):
    if rate is None and COMPILED:
        pytest.skip("shapes are compiled")
    model = adapted(load_backbone(checkpoints(family), head="masked-lm", door="keras-hub"))
    given, targets = inputs(family)[1], np.full((3, 9), -1, "int32")
    targets[:, PLACES[1]], targets[1, PLACES[0]] = 7, 9
    words, _ = masked_words(keras3)
    found = array(words(model, rate=rate)({**given, "targets": keras.ops.convert_to_tensor(targets)}))
    assert found.shape[1] < targets.size
    own = answers(model, family)  # at PLACES of each row
    expected = [own[0, 1], own[1, 0], own[1, 1], own[2, 1]]
    assert np.ptp(expected) > 0.01
    np.testing.assert_allclose(found[0, :4], expected, atol=2e-6)


def test_the_loss_is_the_first_doors_and_nothing_hidden_is_no_loss():
    needs_first()
    from tf_adapters.layers.ops import keras2

    random, targets = np.random.default_rng(0), np.full((3, 5), -1, "int32")
    targets[0, 1], targets[1, 4], targets[2, 0] = 2, 0, 3
    logits, values = random.normal(size=(1, 5, 4)).astype("float32"), []
    for ops in (keras2, keras3):
        loss, mean = hidden_crossentropy(ops)
        metric = mean()
        metric.update_state(ops.value(targets), ops.value(logits))
        values.append([float(loss()(ops.value(targets), ops.value(logits))), float(metric.result())])
        assert float(loss()(ops.value(np.full_like(targets, -1)), ops.value(logits))) == 0
    np.testing.assert_allclose(*values, rtol=1e-6)
    exponentials = np.exp(logits[0, :3].astype("float64"))
    assert values[1][0] == pytest.approx(
        -np.log(exponentials[range(3), (2, 0, 3)] / exponentials.sum(1)).mean(), rel=1e-6
    )


def sums(model, texts, size=40):
    """Sums of the losses, the hidden tokens and the guessed ones of the validation texts."""
    kind, tokenizer = MaskedLanguageModelling(), load_tokenizer(model, max_length=16)
    return kind.predict(kind.scorer(model, tokenizer, batch_size=size), texts.validation)


@pytest.mark.slow
def test_a_directory_has_the_same_perplexity_through_either_door_in_any_batches(encoder, texts, tmp_path):
    model = set_trainable(adapted(new_model(encoder)))
    bias = masked_words_part(model, "bias")
    bias.assign(np.asarray(bias) + 4 * (np.arange(len(VOCABULARY)) == VOCABULARY.index("the")))  # it guesses some
    save_adapter(model, tmp_path)
    found = sums(model, texts)
    assert 0 < found[:, 2].sum() < found[:, 1].sum() < found[:, 0].sum()
    np.testing.assert_allclose(sums(model, texts, 7), found, rtol=1e-5, atol=1e-5)
    needs_first()
    other, _ = load_trained(tmp_path, door="transformers")
    np.testing.assert_allclose(sums(other, texts), found, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_adapters_alone_learn_are_resumed_bit_equal_and_training_goes_on_through_either_door(
    encoder, texts, sentences, tmp_path
):
    tokenizer = load_tokenizer(new_model(encoder), max_length=16)
    run = functools.partial(
        pretrain, texts=texts, tokenizer=tokenizer, adapter=CONFIG, checkpoint_seconds=0, dropout=0.1, **SETTINGS
    )
    model = new_model(encoder)
    before = state_of(model).digest(model)
    result = run(model, output=tmp_path / "whole")
    assert state_of(model).digest(model) == before  # of the encoder
    assert result.run.metrics["perplexity"] < result.head["perplexity"]
    with pytest.raises(Killed):
        run(new_model(encoder), output=tmp_path / "killed", reporter=KillAt(7))
    run(new_model(encoder), output=tmp_path / "killed", resume=True)
    for folder in (".", "head", "step-4", "step-8"):
        assert content(tmp_path / "killed" / folder) == content(tmp_path / "whole" / folder), folder
    # With the adapter as it is, and a new head.
    task = task_from_files(train=sentences / "train.csv", validation=sentences / "validation.csv")
    going_on = new_model(encoder, "classification")
    load_pretrained_adapter(going_on, tmp_path / "whole" / "step-4")
    frozen = frozen_digest(set_trainable(going_on))
    fit(going_on, task, tokenizer, tmp_path / "task", epochs=1, learning_rate=1e-3)
    assert frozen_digest(going_on) == frozen
    load_pretrained_adapter(first(encoder), tmp_path / "whole")
    other, settings = load_trained(tmp_path / "whole", door="transformers")
    assert settings["task"]["head_steps"] == 6
    losses, counts, right = sums(other, texts).sum(0)
    assert np.exp(losses / counts) == pytest.approx(result.run.metrics["perplexity"], rel=1e-5)
    assert right / counts == pytest.approx(result.run.metrics["accuracy"])


@pytest.mark.nightly
@pytest.mark.parametrize("settings", [{"adapter": None}, {"adapter": CONFIG, "jit_compile": True, "whole_words": True}])
def test_everything_trains_and_whole_words_do_with_xla(encoder, texts, tmp_path, settings):
    model, given = new_model(encoder), {**SETTINGS, "fit_head_steps": 2, **settings}
    result = pretrain(model, texts, load_tokenizer(model, max_length=16), output=tmp_path, **given)
    assert result.run.steps == 8 and result.run.metrics["perplexity"] < result.head["perplexity"]
    again, _ = load_trained(tmp_path, door="keras-hub")
    np.testing.assert_array_equal(answers(again, "bert"), answers(model, "bert"))


@pytest.mark.slow
def test_the_commands_pretrain_and_go_on(encoder, sentences, tmp_path, cli):
    files = [f"--{name}={sentences / name}.csv" for name in ("train", "validation")]
    common = ["--door", "keras-hub", "--model", encoder, *files, "--max-length=16"]
    given = ["pretrain", *common, *"--steps=4 --save-every=2 --fit-head-steps=2 --adapter-size=4".split()]
    done = cli(*given, "--gradient-checkpointing", "--backend", BACKEND, "--output", tmp_path / "a")
    assert done.status == 0, done.err
    assert done.out.strip().endswith(f"--door keras-hub --backend {BACKEND}") and "held-out perplexity" in done.out
    going_on = ["--epochs=1", f"--from-pretrained-adapter={tmp_path / 'a' / 'step-2'}", "--output", tmp_path / "b"]
    done = cli("train", *common, *going_on)
    assert done.status == 0, done.err
    kept = json.loads((tmp_path / "b" / "tf_adapters.json").read_text())
    assert kept["pretrained_adapter"]["step"] == 2 and kept["adapter"]["bottleneck_size"] == 4
