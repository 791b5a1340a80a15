"""Task-adaptive pretraining: hidden words, the head that guesses them, and what training goes on from."""

import csv
import dataclasses
import functools
import json
import math

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file

from tests.cases import nightly_but
from tests.conftest import encoder_of, is_refused, squad_file, write_checkpoint
from tests.families import FAMILIES, family_inputs, family_model
from tests.runs import KillAt, Killed, content
from tf_adapters import (
    AdapterConfig,
    InputError,
    add_adapters,
    fit,
    load_backbone,
    load_trained,
    pretrain,
    save_adapter,
    set_trainable,
    task_from_files,
)
from tf_adapters._keras import keras
from tf_adapters.errors import DivergedError
from tf_adapters.kinds.masked_lm import MaskedLanguageModelling, Masking, masked_words, masking_noise
from tf_adapters.layers.ops import keras2
from tf_adapters.models.state import state_of
from tf_adapters.models.weight_files import named_weights, to_pytorch
from tf_adapters.saving import load_pretrained_adapter
from tf_adapters.studies import Pretraining
from tf_adapters.studies.lab import Lab
from tf_adapters.tasks import texts_from_files, without_labels
from tf_adapters.tasks.metrics import METRICS

MaskedWords, _ = masked_words(keras2)
CONFIG = AdapterConfig(bottleneck_size=4, train_layer_norm="none")
SETTINGS = dict(steps=8, save_every=4, learning_rate=3e-3, fit_head_steps=6, batch_size=16, seed=2)
checkpoint = encoder_of(2)


def named(variables):
    """Arrays as they are kept, by their names."""
    return {name: to_pytorch(*target) for name, target in named_weights(variables).items()}


def named_head(model):
    return named(state_of(model).head_variables(model))


def named_encoder(model):
    return named(state_of(model).backbone_variables(model))


def new_model(checkpoint):
    keras.utils.set_random_seed(0)
    return load_backbone(checkpoint, head="masked-lm")


@pytest.fixture(scope="module")
def pretrained(checkpoint, texts, wordpiece, tmp_path_factory):
    """A directory that `pretrain` wrote, and its result; not to be changed."""
    directory = tmp_path_factory.mktemp("pretrained") / "sentences"
    return directory, pretrain(new_model(checkpoint), texts, wordpiece, output=directory, adapter=CONFIG, **SETTINGS)


@pytest.mark.parametrize("family", nightly_but(["albert"], FAMILIES))
def test_logits_of_hidden_tokens_are_the_models_own(family):
    model, inputs = family_model(family, "masked-lm"), family_inputs(family)
    targets = np.full(inputs["input_ids"].shape, -1)
    # 9 of 27, where 0.15 makes 4 on average and a standard deviation is 2: XLA computes more than the average.
    targets[0, 2], targets[1:, 1::2] = 9, [7, 0, 11, 7]
    expected = model(inputs).logits.numpy()[targets >= 0]
    for rate in (None, 0.15):
        logits = MaskedWords(model, rate=rate)({**inputs, "targets": tf.constant(targets, tf.int32)}).numpy()
        assert logits.shape[1] < targets.size
        np.testing.assert_allclose(logits[0, :9], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(model(inputs).logits.numpy()[targets >= 0], expected)  # the model is as it was


@pytest.mark.parametrize("xla", nightly_but([False], [False, True]))
def test_perplexity_is_that_of_all_logits_and_does_not_depend_on_the_batches(checkpoint, wordpiece, texts, xla):
    model, kind = new_model(checkpoint), MaskedLanguageModelling()
    lengths = (16,) if xla else None
    sums = [
        kind.predict(kind.scorer(model, wordpiece, batch_size=size, lengths=lengths, jit_compile=xla), texts.validation)
        for size in (7, 40)
    ]
    np.testing.assert_allclose(*sums, rtol=1e-4, atol=1e-4)
    # By the model's own logits, text by text, with the same masks.
    inputs = wordpiece.pad(wordpiece.encode(texts.validation.text), length=16)
    hidden, targets = Masking(wordpiece)(inputs, masking_noise([40, 16], [0, 0]))
    logits, targets = model(hidden).logits.numpy().astype(np.float64), targets.numpy()
    of_targets = np.take_along_axis(logits, np.maximum(targets, 0)[..., np.newaxis], -1)[..., 0]
    expected = (np.log(np.exp(logits).sum(-1)) - of_targets)[targets >= 0].mean()
    numbers = METRICS["perplexity"](None, sums[0])
    assert numbers["perplexity"] == pytest.approx(math.exp(expected), rel=1e-4)
    assert numbers["log_likelihood"] == pytest.approx(-expected, rel=1e-4)
    assert numbers["accuracy"] == pytest.approx((logits.argmax(-1) == targets)[targets >= 0].mean())
    is_refused("no hidden token", METRICS["perplexity"], None, np.zeros((2, 3)))


@pytest.mark.slow
def test_adapters_alone_learn_and_every_checkpoint_is_an_adapter_directory(checkpoint, pretrained):
    directory, result = pretrained
    fresh = new_model(checkpoint)
    head = load_file(directory / "head" / "adapter.safetensors")
    last, middle = (load_file(directory / f"step-{step}" / "adapter.safetensors") for step in (8, 4))
    assert {key.split(".")[0] for key in last} == {"layer", "head"}  # nothing of the encoder
    for key, value in last.items():
        # The head was fitted before, and then stays.
        assert np.array_equal(value, head[key]) if key.startswith("head.") else not np.array_equal(value, middle[key])
    initial = {f"head.{name}": value for name, value in named_head(fresh).items()}
    assert any(not np.array_equal(head[key], initial[key]) for key in head)
    model, settings = load_trained(directory / "step-4")
    assert settings["training"]["step"] == 4
    assert settings["task"]["kind"] == "masked-lm" and settings["task"]["head_steps"] == 6
    assert state_of(model).digest(model) == state_of(fresh).digest(fresh)
    log = list(csv.DictReader((directory / "log.csv").read_text().splitlines()))
    assert [row["step"] for row in log] == ["4", "8"]
    best = max(log, key=lambda row: float(row["validation_log_likelihood"]))
    kept, of_step = (content(path)["adapter.safetensors"] for path in (directory, directory / f"step-{best['step']}"))
    assert kept == of_step
    assert result.run.metrics["perplexity"] == pytest.approx(float(best["validation_perplexity"]))
    assert result.head["perplexity"] > 1 and result.run.best_epoch == int(best["epoch"])

    # Training goes on from a checkpoint with its adapter and a new head.
    model = load_backbone(checkpoint)
    new_head = named_head(model)
    load_pretrained_adapter(model, directory / "step-4")
    adapter = state_of(model).adapters["default"]
    assert adapter.config == CONFIG
    for key, layer in adapter.layers.items():
        for part, variable in layer.parts.items():
            np.testing.assert_array_equal(variable.numpy(), middle[f"{key}.{part}"])
    for name, value in named_head(model).items():
        np.testing.assert_array_equal(value, new_head[name])


@pytest.mark.nightly
def test_everything_trains_without_an_adapter_and_training_goes_on_with_all_of_it(
    checkpoint, texts, wordpiece, sentences, tmp_path
):
    settings = {**SETTINGS, "fit_head_steps": 2}
    pretrain(new_model(checkpoint), texts, wordpiece, output=tmp_path / "all", adapter=None, **settings)
    saved = load_file(tmp_path / "all" / "adapter.safetensors")
    model = load_backbone(checkpoint)
    digest = state_of(model).digest(model)
    load_pretrained_adapter(model, tmp_path / "all")
    before = named_encoder(model)
    assert all(np.array_equal(before[f"bert.{key[9:]}"], saved[key]) for key in saved if key.startswith("backbone."))
    set_trainable(model, "full")
    task = task_from_files(train=sentences / "train.csv", validation=sentences / "validation.csv")
    fit(model, task, wordpiece, output=tmp_path / "task", epochs=1, learning_rate=1e-3)
    again, settings = load_trained(tmp_path / "task")
    for name, value in named_encoder(again).items():
        np.testing.assert_array_equal(value, named_encoder(model)[name])
    assert settings["backbone"]["sha256"] == digest and settings["pretrained_adapter"]["trainable"] == "full"


@pytest.mark.slow
@pytest.mark.parametrize("other", nightly_but([False], [False, True]))  # whole words, and XLA
def test_killed_in_either_part_and_resumed_ends_bit_equal(checkpoint, texts, wordpiece, tmp_path, other):
    settings = {**SETTINGS, "checkpoint_seconds": 0, "whole_words": other, "jit_compile": other}
    run = functools.partial(pretrain, texts=texts, tokenizer=wordpiece, adapter=CONFIG, **settings)
    run(new_model(checkpoint), output=tmp_path / "whole")
    for resume, reporters in ((False, {"head_reporter": KillAt(4)}), (True, {"reporter": KillAt(7)})):
        with pytest.raises(Killed):
            run(new_model(checkpoint), output=tmp_path / "killed", resume=resume, **reporters)
    run(new_model(checkpoint), output=tmp_path / "killed", resume=True)
    for folder in (".", "head", "step-4", "step-8"):
        assert content(tmp_path / "killed" / folder) == content(tmp_path / "whole" / folder), folder


@pytest.mark.slow
def test_a_head_that_came_with_the_encoder_stays_and_none_is_fitted(texts, wordpiece, sentences, tmp_path):
    write_checkpoint(tmp_path / "bare")
    source = load_backbone(tmp_path / "bare", head="masked-lm")
    assert not state_of(source).pretrained_head
    source.save_pretrained(tmp_path / "with-head")
    for name in ("vocab.txt", "tokenizer_config.json"):
        (tmp_path / "with-head" / name).write_bytes((tmp_path / "bare" / name).read_bytes())
    model = load_backbone(tmp_path / "with-head", head="masked-lm")
    assert state_of(model).pretrained_head and not state_of(load_backbone(tmp_path / "with-head")).pretrained_head
    settings = {name: value for name, value in SETTINGS.items() if name != "fit_head_steps"}
    result = pretrain(model, texts, wordpiece, output=tmp_path / "run", adapter=CONFIG, **settings)
    assert result.head is None and not (tmp_path / "run" / "head").exists()
    for name, value in named_head(source).items():
        np.testing.assert_array_equal(load_file(tmp_path / "run" / "adapter.safetensors")[f"head.{name}"], value)
    # So does a study, which pretrains again where values alone are there.
    study = Pretraining.smoke(tasks=(str(sentences),), model=str(tmp_path / "with-head"), checkpoints=(2,))
    identity = {"task": str(sentences), "arm": "full, 2", "learning_rate": 1e-4, "seed": 0}
    experiment, *_ = study.experiment(Lab(tmp_path / "study", study), study.arms()["full, 2"], identity)
    assert experiment.pretrained.is_dir() and not (experiment.pretrained.parent / "head").exists()
    with pytest.raises(InputError, match="fit_head_steps=0"):
        bare = load_backbone(tmp_path / "bare", head="masked-lm")
        pretrain(bare, texts, wordpiece, output=tmp_path / "other", **{**SETTINGS, "fit_head_steps": 0})


@pytest.mark.nightly
@pytest.mark.parametrize("rate", ["head_learning_rate", "learning_rate"])
def test_divergence_names_the_rate_that_was_too_high(checkpoint, texts, wordpiece, tmp_path, rate):
    settings = {**SETTINGS, rate: 1e19}
    with pytest.raises(DivergedError, match=f"training diverged. Try a lower {rate}[;,.]"):
        pretrain(new_model(checkpoint), texts, wordpiece, output=tmp_path / "a", adapter=CONFIG, **settings)
    heads = [path for path in tmp_path.rglob("adapter.safetensors") if path.parent.name == "head"]
    assert len(list(tmp_path.rglob("adapter.safetensors"))) == len(heads) == (rate == "learning_rate")


@pytest.mark.slow
def test_masks_are_others_in_every_epoch(checkpoint, texts, wordpiece, tmp_path):
    seen = []

    class Spying(MaskedLanguageModelling):
        def batch(self, *arguments):
            inputs, targets = super().batch(*arguments)

            def note(ids, hidden, seed):
                rows = np.where(hidden >= 0, hidden, ids).tolist()
                seen.append((tuple(sorted(map(tuple, rows))), hidden.tobytes(), tuple(seed)))
                return ids

            ids = tf.numpy_function(note, [inputs["input_ids"], targets, arguments[2]], tf.int32)
            ids.set_shape(inputs["input_ids"].shape)
            return {**inputs, "input_ids": ids}, targets

    model = set_trainable(new_model(checkpoint), "head")
    few = dataclasses.replace(texts, train=texts.train.take(range(16)))
    settings = dict(steps=3, period=3, learning_rate=1e-3, batch_size=16, dropout=0.0)
    fit(model, few, wordpiece, output=tmp_path, kind=Spying(), **settings)
    batches = seen[:3]  # one of them an epoch: the same texts
    # The rows of an epoch come in another order too, so their masks would differ even by the same noise.
    assert [len(set(values)) for values in zip(*batches)] == [1, 3, 3]


@pytest.mark.nightly
def test_a_resumed_run_refuses_another_adapter_to_go_on_from(checkpoint, pretrained, sentences, wordpiece, tmp_path):
    task = task_from_files(train=sentences / "train.csv", validation=sentences / "validation.csv")

    def run(step, **settings):
        model = load_backbone(checkpoint)
        load_pretrained_adapter(model, pretrained[0] / step)
        fit(set_trainable(model), task, wordpiece, output=tmp_path / "task", epochs=1, learning_rate=1e-3, **settings)

    with pytest.raises(Killed):
        run("step-4", reporter=KillAt(1))
    is_refused("holds a run with another pretrained_adapter", run, "step-8", resume=True)


def test_seeds_know_the_adapter_that_they_go_on_from_by_its_content(cli, checkpoint, sentences, tmp_path, monkeypatch):
    def refuse(output, *, metric, settings, resume):
        raise InputError(f"from {settings['pretrained']}")

    saved = tmp_path / "pretrained"
    save_adapter(set_trainable(add_adapters(load_backbone(checkpoint), CONFIG, seed=0), "adapters"), saved)
    monkeypatch.setattr("tf_adapters.training.experiment.SeedRuns", refuse)
    files = [f"--train={sentences / 'train.csv'}", f"--validation={sentences / 'validation.csv'}"]
    go_on = [f"--from-pretrained-adapter={saved}", f"--output={tmp_path / 'out'}"]
    outcome = cli("train", f"--model={checkpoint}", *files, *go_on, "--max-length=16", "--seeds=2")
    assert json.loads((saved / "tf_adapters.json").read_text())["weights"]["sha256"] in outcome.err


def test_training_goes_on_in_the_mode_that_saves_the_encoders_own_weights(checkpoint, tmp_path):
    save_adapter(set_trainable(load_backbone(checkpoint), "layer-norm"), tmp_path / "norms")
    model = load_backbone(checkpoint)
    load_pretrained_adapter(model, tmp_path / "norms")
    set_trainable(model, "full")
    is_refused("which only 'layer-norm' or 'full' saves again", set_trainable, model, "bias")


def test_an_adapter_of_a_pretrained_encoder_with_a_pooler_goes_on_under_other_heads():
    """Under a head of masked words an encoder has no pooler, and its digest is another."""
    from tf_adapters.saving.directory import check_backbone

    model, other = family_model("bert", "masked-lm"), family_model("bert", "classification", num_labels=2)
    shared = named_encoder(model)
    for name, (variable, transposed) in named_weights(other.weights).items():
        if name in shared:
            variable.assign(shared[name].T if transposed else shared[name])
    about = {key: getattr(model.config, key) for key in ("model_type", "hidden_size", "num_hidden_layers")}
    settings = {"backbone": {**about, "sha256": state_of(model).digest(model), "source": "here"}}
    check_backbone(other, state_of(other), settings, "directory")
    add_adapters(other, AdapterConfig(bottleneck_size=2, train_layer_norm="all"))
    set_trainable(other, "adapters")
    for variable in state_of(other).switched["norms"].variables:
        variable.assign_add(tf.ones_like(variable))  # as an adapter's LayerNorms
    check_backbone(other, state_of(other), settings, "directory")
    named_weights(other.weights)[next(name for name in shared if "query.weight" in name)][0].assign_add(
        tf.ones([32, 32])
    )
    with pytest.raises(InputError, match="1 weights of this model's were changed since.*query/kernel"):
        check_backbone(other, state_of(other), settings, "directory")


def test_texts_of_every_kind_of_task_and_of_files(sentences, tmp_path):
    words = tmp_path / "words.conllu"
    words.write_text("1\tgood\t_\tADJ\t_\t_\t_\t_\t_\t_\n2\tfilm\t_\tNOUN\t_\t_\t_\t_\t_\t_\n\n")
    texts = without_labels(task_from_files(train=words, validation=words, kind="token-classification"))
    assert texts.train.text.numpy().tolist() == [b"good film"] and texts.train.labels is None
    asked = [(question, question, [("Ada", 0)]) for question in ("Who?", "Whose?")]
    squad = squad_file(tmp_path / "squad.json", {"A": [("Ada sang.", asked)]})
    questions = task_from_files(train=squad, validation=squad, kind="question-answering")
    assert without_labels(questions).train.text.numpy().tolist() == [b"Ada sang.", b"Who?", b"Whose?"]
    lines = [f"text number {number}" for number in range(30)]
    (tmp_path / "plain.txt").write_text("\n".join(lines) + "\n")
    texts = texts_from_files(train=tmp_path / "plain.txt", seed=1)
    train, held_out = (rows.text.numpy().tolist() for rows in (texts.train, texts.validation))
    assert len(held_out) == 2 and sorted(train + held_out) == sorted(line.encode() for line in lines)


@pytest.fixture(scope="module")
def arguments(checkpoint, sentences):
    given = [f"--model={checkpoint}", f"--train={sentences / 'train.csv'}"]
    return ["pretrain", *given, *"--max-length=16 --steps=4 --save-every=2 --fit-head-steps=2 --adapter-size=4".split()]


@pytest.mark.slow
def test_the_command_pretrains_and_train_goes_on(cli, arguments, checkpoint, sentences, tmp_path):
    outcome = cli(*arguments, f"--output={tmp_path / 'pre'}")
    assert outcome.status == 0, outcome.err
    for said in ("comes without a head", "held-out perplexity", "fitted here"):
        assert said in outcome.out
    assert (tmp_path / "pre" / "perplexity.png").stat().st_size > 1000
    assert "guesses hidden words" in cli("info", tmp_path / "pre").out
    assert "train --from-pretrained-adapter" in (tmp_path / "pre" / "README.md").read_text()
    files = [f"--train={sentences / 'train.csv'}", f"--validation={sentences / 'validation.csv'}"]
    go_on = ["train", f"--model={checkpoint}", *files, "--max-length=16", "--epochs=1"]
    go_on.append(f"--from-pretrained-adapter={tmp_path / 'pre' / 'step-2'}")
    outcome = cli(*go_on, f"--output={tmp_path / 'task'}")
    assert outcome.status == 0, outcome.err
    settings = json.loads((tmp_path / "task" / "tf_adapters.json").read_text())
    assert settings["pretrained_adapter"]["step"] == 2 and settings["adapter"]["bottleneck_size"] == 4
    assert "went on from" in cli("info", tmp_path / "task").out
    other = f"--output={tmp_path / 'other'}"
    for wrong, message in (
        ([*go_on, other, "--adapter-size=8"], "--bottleneck-size is of new adapters"),
        ([*go_on, other, "--trainable=full"], "--trainable full: "),
        ([*go_on, "--overwrite", f"--output={tmp_path / 'pre' / 'step-2'}"], "give another, so that both are kept"),
        ([*go_on, other, f"--from-pretrained-adapter={tmp_path / 'pre' / 'head'}"], "holds a head alone"),
        (["predict", tmp_path / "pre", "--input=-"], "knows no task yet"),
        ([*arguments, f"--output={tmp_path / 'pre'}"], "replace it by --overwrite"),
    ):
        outcome = cli(*wrong)
        assert outcome.status == 2 and message in outcome.err, (wrong, outcome.err)


@pytest.mark.nightly
def test_a_recipe_of_pretraining_decides_what_is_not_given_and_epochs_are_whole_passes(cli, arguments, tmp_path):
    given = [word for word in arguments if not word.startswith(("--steps", "--save-every", "--adapter-size"))]
    outcome = cli(*given, "--recipe=gururangan-2020", "--epochs=2", "--batch-size=48", f"--output={tmp_path / 'pre'}")
    assert outcome.status == 0, outcome.err
    # 142 of 150 texts, in batches of 48.
    assert "142 to train on" in outcome.out
    assert sorted(path.name for path in (tmp_path / "pre").glob("step-*")) == ["step-3", "step-6"]
    settings = json.loads((tmp_path / "pre" / "tf_adapters.json").read_text())
    kept = {"learning_rate": 1e-4, "batch_size": 48, "epsilon": 1e-6, "weight_decay": 0.01}
    assert {name: settings["training"][name] for name in kept} == kept
    assert settings["trainable"] == "full" and settings["training"]["warmup_fraction"] == 0.06, settings


def test_mistakes_are_one_sentence(refused, arguments, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "tf_adapters.json").write_text("{}")
    for wrong, message in (
        (["--epochs=2"], "--epochs 2 and --steps 4 exclude each other"),
        (["--steps=5"], "--steps 5 must be a multiple of --save-every 2"),
        (["--fit-head-steps=0", "--overwrite"], "has no head of masked words"),
        (["--trainable=full"], "--bottleneck-size is for adapters"),
        (["--recipe=gururangan-2020", "--trainable=adapters"], "--recipe gururangan-2020 trains no adapters"),
    ):
        refused(*arguments, f"--output={tmp_path / 'out'}", *wrong, says=message)


def test_what_learns_from_labels_refuses_a_recipe_of_pretraining(refused, train_arguments, tmp_path):
    arguments = [one for one in train_arguments if not one.startswith("--adapter-size")]
    arguments += ["--recipe=gururangan-2020", f"--output={tmp_path / 'x'}"]
    refused(*arguments, says="--recipe gururangan-2020 learns from texts without labels")
