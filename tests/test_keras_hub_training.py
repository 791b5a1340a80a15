"""Training, scoring and the command line through the second door.

On another backend: `KERAS_BACKEND=jax python -m pytest tests/test_keras_hub_training.py`.
"""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

keras = pytest.importorskip("keras", minversion="3.10", reason="needs the extra `keras-hub`")
pytest.importorskip("keras_hub", reason="needs the extra `keras-hub`")

from tests.cases import nightly_but  # noqa: E402
from tests.conftest import VOCABULARY, squad_file  # noqa: E402
from tests.keras_hub_models import fill, write_checkpoint  # noqa: E402
from tests.runs import KillAt, Killed, content, seven_seconds_a_look  # noqa: E402
from tf_adapters import (  # noqa: E402
    AdapterConfig,
    InputError,
    TrainingSettings,
    add_adapters,
    evaluate,
    fit,
    load_backbone,
    load_trained,
    predict,
    set_active,
    set_trainable,
    task_from_files,
)
from tf_adapters._keras3_internals import layers_of  # noqa: E402
from tf_adapters.kinds import get_kind  # noqa: E402
from tf_adapters.layers.ops import keras3  # noqa: E402
from tf_adapters.models import frozen_digest  # noqa: E402
from tf_adapters.models.keras_hub.site import RandomDrop  # noqa: E402
from tf_adapters.models.state import state_of  # noqa: E402
from tf_adapters.text.loading import load_tokenizer  # noqa: E402
from tf_adapters.training.experiment import Experiment  # noqa: E402
from tf_adapters.training.on_keras3 import _seed_dropout  # noqa: E402
from tf_adapters.training.optimizer import (
    make_optimizer,  # noqa: E402
    warmup_linear_decay,  # noqa: E402
)
from tf_adapters.training.run import Reporter  # noqa: E402

BACKEND = keras.backend.backend()
TEXTS = ["a good film", "a dull and awful plot", "the cast was great fun"]
SETTINGS = {"epochs": 4, "learning_rate": 3e-3, "batch_size": 30, "checkpoint_seconds": 1.0}


def first_ops():
    pytest.importorskip("tf_keras", reason="needs the first door")
    from tf_adapters.layers.ops import keras2

    return keras2


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """Directory of a tiny BERT with its vocabulary."""
    directory = write_checkpoint("bert", tmp_path_factory.mktemp("bert"), vocab_size=len(VOCABULARY))
    (directory / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    (directory / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True}))
    return directory


@pytest.fixture(scope="module")
def task(sentences):
    return task_from_files(**{split: sentences / f"{split}.csv" for split in ("train", "validation", "test")})


def new_model(encoder, config=None, mode="adapters"):
    keras.utils.set_random_seed(0)
    model = load_backbone(encoder, labels=["negative", "positive"], door="keras-hub")
    if mode in ("adapters", "fast"):
        # Adapters with a dropout of their own are no part of a fast block.
        own = AdapterConfig(bottleneck_size=8, dropout=0.1 if mode == "adapters" else 0.0)
        add_adapters(model, config or own, seed=0, fast=mode == "fast")
    return set_trainable(model, "adapters" if mode == "fast" else mode)


def train(model, task, output, **changes):
    tokenizer = load_tokenizer(model, max_length=16)
    return fit(model, task, tokenizer, output, **{**SETTINGS, **changes})


def test_nothing_frozen_changes_and_everything_chosen_does(encoder, task, tmp_path):
    model = new_model(encoder)
    frozen, before = frozen_digest(model), [np.array(variable) for variable in model.trainable_variables]
    train(model, task, tmp_path / "a", epochs=1)
    assert frozen_digest(model) == frozen
    assert not any(map(np.array_equal, before, model.trainable_variables))


@pytest.mark.parametrize("dropped", range(3))
def test_random_drop_leaves_out_that_many_of_the_lowest_blocks(encoder, monkeypatch, dropped):
    model = new_model(encoder, AdapterConfig(bottleneck_size=4, random_drop=2))
    fill(model)
    _seed_dropout(model, 0, 0.0)
    set_active(model, "default", blocks=range(dropped, model.backbone.num_layers))
    expected = np.asarray(model(inputs(model), training=False))
    set_active(model, "default")
    monkeypatch.setattr(RandomDrop, "draw", lambda drop: drop.number.assign(dropped))
    np.testing.assert_allclose(np.asarray(model(inputs(model), training=True)), expected, atol=1e-5)
    assert dropped == 0 or np.abs(np.asarray(model(inputs(model), training=False)) - expected).max() > 1e-3


@pytest.mark.nightly
def test_training_learns_and_keeps_the_best_epoch(encoder, task, tmp_path):
    # A random encoder learns this only as a whole; what adapters learn is measured on a pretrained one.
    model = new_model(encoder, mode="full")
    result = train(model, task, tmp_path / "a", learning_rate=1e-2)
    assert result.steps == 20 and result.metrics["accuracy"] >= 0.9
    assert not (tmp_path / "a" / ".resume").exists()
    lines = (tmp_path / "a" / "log.csv").read_text().splitlines()
    assert lines[0].split(",")[:3] == ["epoch", "step", "training_loss"] and len(lines) == 5
    losses = [float(line.split(",")[2]) for line in lines[1:]]
    assert losses[-1] < losses[0]
    # The directory has what the model computes, whose weights are the best epoch's.
    accuracy = evaluate(model, task.validation)["accuracy"]
    assert accuracy == pytest.approx(result.metrics["accuracy"])
    again, settings = load_trained(tmp_path / "a", door="keras-hub")
    assert settings["training"]["batch_size"] == 30
    answers = predict(again, TEXTS, tokenizer=load_tokenizer(model, max_length=16))
    assert answers == predict(tmp_path / "a", TEXTS, door="keras-hub")
    assert [answer["label"] for answer in answers] == ["positive", "negative", "positive"]
    # Keras' own evaluation goes on with the loss of the run.
    assert model.compiled


@pytest.mark.nightly
def test_the_directory_answers_through_the_first_door(encoder, task, tmp_path):
    first_ops()
    train(new_model(encoder), task, tmp_path / "a", epochs=1)
    second, first = (predict(tmp_path / "a", TEXTS, door=door) for door in ("keras-hub", "transformers"))
    for one, other in zip(second, first):
        assert one["label"] == other["label"]
        np.testing.assert_allclose(*[list(each["probabilities"].values()) for each in (one, other)], atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("mode", nightly_but(["adapters"], ["adapters", "full", "fast"]))
def test_a_killed_run_goes_on_bit_equal(encoder, task, tmp_path, mode):
    if mode == "fast" and BACKEND != "tensorflow":
        pytest.skip("fast blocks are TensorFlow's")
    settings = {"dropout": 0.1, "weight_decay": 0.01, "clip_norm": 1.0, "epochs": 2}
    train(new_model(encoder, mode=mode), task, tmp_path / "whole", **settings)
    for index, step in enumerate((3, 8)):
        with seven_seconds_a_look(), pytest.raises(Killed):
            train(
                new_model(encoder, mode=mode), task, tmp_path / "killed", **settings, resume=index > 0,
                reporter=KillAt(step),
            )  # fmt: skip
    train(new_model(encoder, mode=mode), task, tmp_path / "killed", **settings, resume=True)
    assert content(tmp_path / "killed") == content(tmp_path / "whole")


@pytest.fixture(scope="module")
def other_tasks(tmp_path_factory):
    """Tasks of words, of questions and of choices, whose answers follow from one word, by the heads' names."""
    folder, random = tmp_path_factory.mktemp("other"), np.random.default_rng(0)
    fillers, tags = ("the", "film", "is", "plot", "cast"), {"good": "B-P", "great": "B-P", "bad": "B-N", "dull": "B-N"}
    lines, paragraphs, rows = [], [], []
    for number in range(90):
        words, word = list(random.choice(fillers, random.integers(1, 7))), random.choice(list(tags))
        words.insert(random.integers(0, len(words) + 1), word)
        lines += [f"{each} {tags.get(each, 'O')}" for each in words] + [""]
        context = " ".join(words)
        paragraphs.append((context, [(str(number), "is the film fun", [(str(word), context.index(word))])]))
        endings, label = ["a bad plot", "an awful dull film", "not fun"], int(random.integers(3))
        endings[label] = "good"
        rows.append(json.dumps({"text": context, "choices": endings, "label": label}) + "\n")
    (folder / "words.txt").write_text("\n".join(lines) + "\n")
    squad_file(folder / "questions.json", {"films": paragraphs})
    (folder / "choices.jsonl").write_text("".join(rows))
    return {
        kind: task_from_files(train=folder / name, validation=folder / name, kind=kind)
        for kind, name in (
            ("token-classification", "words.txt"),
            ("question-answering", "questions.json"),
            ("multiple-choice", "choices.jsonl"),
        )
    }


ASKED = {
    "token-classification": ([["the", "film", "is", "good"]], None),
    "question-answering": (["is the film fun"], ["the film is good"]),
    "multiple-choice": (["the film is"], [["a bad plot", "good", "not fun"]]),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["token-classification", *(pytest.param(kind, marks=pytest.mark.nightly) for kind in list(ASKED)[1:])]
)
def test_words_questions_and_choices_train_and_answer_through_either_door(encoder, other_tasks, tmp_path, kind):
    task = other_tasks[kind]
    keras.utils.set_random_seed(0)
    about = {"labels": list(task.labels)} if task.labels else {"num_labels": get_kind(kind).num_labels(())}
    model = load_backbone(encoder, head=kind, door="keras-hub", **about)
    set_trainable(model, "full")
    result = train(model, task, tmp_path / "a", epochs=3, learning_rate=1e-2)
    losses = [float(line.split(",")[2]) for line in (tmp_path / "a" / "log.csv").read_text().splitlines()[1:]]
    assert losses[-1] < 0.7 * losses[0] and result.steps == 9
    first_ops()
    second, first = (evaluate(tmp_path / "a", task.validation, door=door) for door in ("keras-hub", "transformers"))
    assert second == pytest.approx(first, abs=1e-3) and second == pytest.approx(result.metrics, abs=1e-3)
    answers = [predict(tmp_path / "a", *ASKED[kind], door=door)[0] for door in ("keras-hub", "transformers")]
    if kind == "question-answering":
        answers = [answer["n_best"] for answer in answers]
        numbers = [[each.pop("probability") for each in answer] for answer in answers]
    else:
        numbers = [answer.pop("probabilities") for answer in answers]
    assert answers[0] == answers[1] and answers[0]
    np.testing.assert_allclose(*numbers, atol=1e-5)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["question-answering", "multiple-choice"])
def test_a_killed_run_of_questions_or_choices_goes_on_bit_equal(encoder, other_tasks, tmp_path, kind):
    def new():
        keras.utils.set_random_seed(0)
        model = load_backbone(encoder, head=kind, door="keras-hub")
        return set_trainable(add_adapters(model, AdapterConfig(bottleneck_size=8, dropout=0.1), seed=0))

    task = other_tasks[kind]
    train(new(), task, tmp_path / "whole", epochs=2)
    with seven_seconds_a_look(), pytest.raises(Killed):
        train(new(), task, tmp_path / "killed", epochs=2, reporter=KillAt(4))
    train(new(), task, tmp_path / "killed", epochs=2, resume=True)
    assert content(tmp_path / "killed") == content(tmp_path / "whole")


@pytest.mark.slow
def test_a_run_is_not_resumed_by_the_other_door_or_on_another_backend(encoder, task, tmp_path):
    with pytest.raises(Killed):
        train(new_model(encoder), task, tmp_path / "a", reporter=KillAt(1))
    (file,) = (tmp_path / "a" / ".resume").glob("*.safetensors")
    info = file.read_bytes()
    other = {"tensorflow": "jaxjaxjaxx", "jax": "jex", "torch": "torsh"}[BACKEND]
    file.write_bytes(info.replace(f'\\"backend\\": \\"{BACKEND}'.encode(), f'\\"backend\\": \\"{other}'.encode()))
    with pytest.raises(InputError, match=f"a run with another backend \\('{other}', now '{BACKEND}'\\)"):
        train(new_model(encoder), task, tmp_path / "a", resume=True)
    first_ops()
    file.write_bytes(info)
    model = load_backbone(encoder, labels=["negative", "positive"], door="transformers")
    set_trainable(add_adapters(model, AdapterConfig(bottleneck_size=8, dropout=0.1), seed=0))
    with pytest.raises(InputError, match="a run with another door \\('keras-hub', now 'transformers'\\)"):
        train(model, task, tmp_path / "a", resume=True, jit_compile=BACKEND == "jax")


@pytest.mark.nightly
def test_a_model_that_was_trained_as_a_whole_goes_into_a_keras_file(encoder, task, tmp_path):
    model = new_model(encoder, mode="full")
    # Neither the smoothed loss nor the schedule is Keras' own.
    train(model, task, tmp_path / "a", epochs=1, label_smoothing=0.1, bias_correction=False)
    model.save(tmp_path / "all.keras")
    code = (
        "import sys, keras, numpy, tf_adapters.models.keras_hub\n"
        "data = dict(numpy.load(sys.argv[2]))\n"
        "numpy.save(sys.argv[3], keras.saving.load_model(sys.argv[1]).predict(data, verbose=0))"
    )
    np.savez(tmp_path / "data.npz", **inputs(model))
    files = [tmp_path / name for name in ("all.keras", "data.npz", "b.npy")]
    words = [sys.executable, "-W", "ignore", "-c", code, *files]
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[1])}
    done = subprocess.run([str(word) for word in words], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(tmp_path / "b.npy"), model.predict(inputs(model), verbose=0), atol=2e-6)


@pytest.mark.nightly
def test_divergence_is_named_and_the_best_before_stays(encoder, task, tmp_path):
    class Break(Reporter):
        def epoch(self, epoch, numbers, best):
            model.output_dense.bias.assign([np.nan, 0.0])

    model = new_model(encoder, mode="head")
    with pytest.raises(InputError, match="training diverged. Try a lower learning_rate"):
        train(model, task, tmp_path / "a", reporter=Break())
    load_trained(tmp_path / "a", door="keras-hub")


def test_what_the_second_door_does_not_train_is_refused_and_changes_nothing(encoder, task, tmp_path):
    model = new_model(encoder)
    for name, value in {
        "accumulate": 2, "mixout": 0.5, "checkpoint_gradients": True, "cache_frozen": True,
    }.items():  # fmt: skip
        with pytest.raises(InputError, match=f"{name}={value} is for door='transformers'"):
            train(model, task, tmp_path / "a", **{name: value})
    assert not (tmp_path / "a").exists()
    first_ops()  # which the kind needs
    from tf_adapters.kinds.masked_lm import MaskedLanguageModelling

    with pytest.raises(InputError, match="kind='masked-lm'.*models of KerasHub do not have here"):
        fit(
            model, task, load_tokenizer(model), tmp_path / "a", TrainingSettings(epochs=1, learning_rate=1e-3),
            kind=MaskedLanguageModelling(),
        )  # fmt: skip
    assert not (tmp_path / "a").exists()


# Random numbers


def rates(model):
    return [layer.rate for layer in layers_of(model) if isinstance(layer, keras.layers.Dropout)]


def test_dropout_follows_from_the_seed_alone_and_adapters_keep_their_own_rate(encoder):
    built = rates(load_backbone(encoder, door="keras-hub"))
    assert set(built) == {0.1}
    drawn = []
    for seed in (1, 1, 2):
        keras.utils.set_random_seed(seed + 5)  # what came before makes no difference
        model = new_model(encoder, AdapterConfig(4, dropout=0.3))
        seeds = _seed_dropout(model, seed, 0.2)
        assert sorted(set(rates(model))) == [0.2, 0.3] and len(seeds) == len(rates(model))
        drawn.append(keras.ops.convert_to_numpy(model(inputs(model), training=True)))
    assert np.array_equal(drawn[0], drawn[1]) and not np.array_equal(drawn[0], drawn[2])
    _seed_dropout(model, 1, 0.0)
    assert sorted(set(rates(model))) == [0.0, 0.3]
    # None are the rates that the encoder was built with.
    _seed_dropout(model, 1, None)
    assert sorted(set(rates(model))) == [0.1, 0.3]


def test_an_encoder_that_was_built_without_dropout_drops_everywhere_when_asked(encoder, tmp_path):
    dry = tmp_path / "dry"
    dry.mkdir()
    for path in encoder.iterdir():
        (dry / path.name).write_bytes(path.read_bytes())
    config = json.loads((dry / "config.json").read_text())
    (dry / "config.json").write_text(json.dumps({**config, "hidden_dropout_prob": 0.0}))
    model = new_model(dry, mode="head")
    assert set(rates(model)) == {0.0}
    _seed_dropout(model, 1, 0.2)
    state = state_of(model)
    attention = state.family.dense(state.family.blocks(model)[0], "query")[0]
    hidden = np.random.default_rng(0).normal(size=(1, 4, state.family.main_layer(model).hidden_dim)).astype("float32")
    wet = [np.array(attention(hidden, hidden, training=True)) for _ in range(2)]
    assert not np.array_equal(*wet)


def inputs(model):
    ids = np.array([[2, 7, 8, 9, 3], [2, 10, 3, 0, 0]], "int32")
    every = {"token_ids": ids, "padding_mask": (ids > 0).astype("int32"), "segment_ids": np.zeros_like(ids)}
    return {name: every[name] for name in model.input}


# The same numbers as the first door's

LABELLED = {
    "classification": (np.array([0, 2, 1, 2]), 3),
    "multi-label": (np.array([[1, 0], [1, 1], [0, 0], [1, 0]], np.float32), 2),
    "regression": (np.array([0.5, 1.0, -1.0, 3.0], np.float32), 1),
}


@pytest.mark.parametrize("kind", LABELLED)
@pytest.mark.parametrize("changes", [{}, {"label_smoothing": 0.1}, {"class_weights": "balanced"}], ids=str)
def test_losses_are_the_first_doors(kind, changes):
    first, (labels, outputs) = first_ops(), LABELLED[kind]
    if kind == "regression" and changes:
        pytest.skip("a regression has no labels to smooth or weigh")
    logits = np.random.default_rng(0).normal(size=(4, outputs)).astype("float32")
    settings = TrainingSettings(epochs=1, learning_rate=1e-3, **changes)
    kind, values = get_kind(kind), []
    for ops in (first, keras3):
        losses = kind.losses(settings, Counted(labels), ops)
        targets = ops.value(kind.targets(labels))
        loss, (metric,) = losses["loss"], losses["metrics"]
        by_row = getattr(loss, "call", loss)(targets, ops.value(logits))
        metric.update_state(targets, ops.value(logits))
        values.append([float(ops.mean(by_row)), float(metric.result()), kind.loss(Counted(labels), logits, ops)])
    np.testing.assert_allclose(*values, rtol=1e-6)
    assert values[0][0] == pytest.approx(values[0][1], rel=1e-6) and values[0][0] > 0


def test_losses_of_words_answers_and_choices_are_the_first_doors():
    first, random = first_ops(), np.random.default_rng(0)
    words = random.normal(size=(3, 5, 4)).astype("float32"), np.array([[-1, 0, 3, -1, -1], [2] * 5, [-1] * 5], "int32")
    positions = random.normal(size=(3, 5)).astype("float32"), np.array([[2, 4], [0, 5], [0, 1]], "int32")
    of_kinds = {
        "token-classification": words,
        "question-answering": positions,
        "multiple-choice": (positions[0], np.array([2, 0, 4], "int32")),
    }
    for kind, (logits, targets) in of_kinds.items():
        values = []
        for ops in (first, keras3):
            losses = get_kind(kind).losses(ops=ops)
            loss, metrics = losses["loss"], losses["metrics"]
            if kind == "question-answering":
                loss, metrics = loss["start_logits"], metrics["start_logits"]
            (metric,) = metrics
            assert isinstance(loss, ops.keras.losses.Loss) and isinstance(metric, ops.keras.metrics.Metric)
            arguments = ops.value(targets), ops.value(logits)
            metric.update_state(*arguments)
            # A shorter batch, of which the mean counts tokens.
            metric.update_state(ops.value(targets[:1]), ops.value(logits[:1]))
            values.append([float(ops.mean(getattr(loss, "call", loss)(*arguments))), float(metric.result())])
        np.testing.assert_allclose(*values, rtol=1e-6)
        assert values[0][0] > 0


class Counted:
    """Labelled rows without texts."""

    def __init__(self, labels):
        self.labels = labels

    def __len__(self):
        return len(self.labels)


def test_schedule_and_optimizers_are_the_first_doors():
    first = first_ops()
    one, other = (warmup_linear_decay(ops)(1e-3, 10, warmup_fraction=0.2) for ops in (first, keras3))
    np.testing.assert_allclose([float(one(step)) for step in range(11)], [float(other(step)) for step in range(11)])
    start = np.random.default_rng(0).normal(size=(3, 2)).astype("float32")
    gradients = np.random.default_rng(1).normal(size=(5, 3, 2)).astype("float32")
    for settings in ({}, {"weight_decay": 0.1, "clip_norm": 0.5}, {"bias_correction": False, "epsilon": 1e-6}):
        ends = []
        for ops in (first, keras3):
            matrix, vector = (keras_variable(ops, value) for value in (start, start[0]))
            optimizer = make_optimizer(ops, 0.01, [matrix, vector], **settings)
            optimizer.build([matrix, vector])
            for gradient in gradients:
                pairs = [(ops.value(gradient), matrix), (ops.value(gradient[0]), vector)]
                optimizer.apply_gradients(pairs)
            ends.append([keras.ops.convert_to_numpy(ops.value(variable)) for variable in (matrix, vector)])
        for one, other in zip(*ends):
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-6)
        assert np.abs(ends[0][0] - start).max() > 0.01


def keras_variable(ops, value):
    if ops is keras3:
        return keras.Variable(value)
    import tensorflow as tf

    return tf.Variable(value)


# Experiments and the command line


@pytest.mark.nightly
def test_an_experiment_over_seeds_keeps_the_best_and_goes_on(encoder, task, tmp_path):
    settings = TrainingSettings(epochs=1, learning_rate=3e-3, batch_size=30)
    experiment = Experiment(str(encoder), task, "default", settings, max_length=16, door="keras-hub")
    runs = experiment.run_seeds(tmp_path / "a", 2)
    assert [run["seed"] for run in runs.runs] == [0, 1]
    seed, scored = runs.best()["seed"], runs.best()["test"]
    assert evaluate(tmp_path / "a", task.test, door="keras-hub")["accuracy"] == scored, seed


@pytest.mark.slow
def test_the_commands_train_score_and_answer(encoder, sentences, tmp_path, capsys):
    from tf_adapters.cli.main import main

    data = ["--train", sentences / "train.csv", "--validation", sentences / "validation.csv"]
    words = ["train", "--door", "keras-hub", "--backend", BACKEND, "--model", encoder, "--output", tmp_path / "a"]
    options = ["--trainable", "full", "--epochs", "4", "--learning-rate", "1e-2", "--max-length", "16"]
    data += ["--test", sentences / "test.csv"]
    assert main([str(word) for word in [*words, *data, *options]]) == 0
    trained = json.loads((tmp_path / "a" / "tf_adapters.json").read_text())
    shown = capsys.readouterr().out
    assert f"Through keras-hub, on {BACKEND}" in shown
    following = shown.partition("Next:")[2].split("\n")[1]  # the same door, whichever else is installed
    assert "| tf-adapters predict" in following and following.endswith(f" --door keras-hub --backend {BACKEND}")
    score = ["evaluate", tmp_path / "a", "--input", sentences / "test.csv", "--door", "keras-hub", "--output"]
    assert main([str(word) for word in [*score, tmp_path / "numbers.json"]]) == 0
    numbers = json.loads((tmp_path / "numbers.json").read_text())
    assert numbers["metrics"]["accuracy"] == trained["result"]["numbers"]["accuracy"] > 0.8
    labels = ["predict", tmp_path / "a", "--input", sentences / "test.csv", "--door", "keras-hub", "--output"]
    assert main([str(word) for word in [*labels, tmp_path / "labels.jsonl"]]) == 0
    answers = [json.loads(line)["label"] for line in (tmp_path / "labels.jsonl").read_text().splitlines()]
    assert len(answers) == 40 and set(answers) <= {"negative", "positive"}


@pytest.mark.parametrize(
    "words, sentence",
    [
        (["--backend", "jax"], "--backend jax is of --door keras-hub"),
        (["--door", "kerashub"], "--door kerashub is unknown: use 'transformers' or 'keras-hub'"),
        (["--door", "keras-hub", "--backend", "mxnet"], "--backend mxnet is unknown"),
        (["--door", "keras-hub", "--backend", "jax", "--fast"], "--fast is of --backend tensorflow, and not of jax"),
        (["--door", "keras-hub", "--accumulate", "2"], "--accumulate 2 is for --door transformers"),
        (["--door", "keras-hub", "--strategy", "mirrored"], "--strategy mirrored is of --door transformers"),
    ],
)
def test_options_that_do_not_go_with_a_door_are_a_sentence(words, sentence, tmp_path, capsys):
    first_ops()
    from tf_adapters.cli.main import main

    assert main(["train", *words, "--output", str(tmp_path / "a")]) == 2
    assert sentence in capsys.readouterr().err


# Several devices

DEVICES = """
import sys

import keras
import numpy as np

if sys.argv[1] == "2":
    keras.distribution.set_distribution(keras.distribution.DataParallel())
    assert keras.distribution.distribution().device_mesh.shape == (2,)
assert len(keras.distribution.list_devices()) == 2
from tf_adapters import AdapterConfig, add_adapters, fit, load_backbone, set_trainable, task_from_files
from tf_adapters.text.loading import load_tokenizer

encoder, sentences, output = sys.argv[2:]
keras.utils.set_random_seed(0)
model = load_backbone(encoder, labels=["negative", "positive"], door="keras-hub")
set_trainable(add_adapters(model, AdapterConfig(bottleneck_size=8), seed=0))
task = task_from_files(train=f"{sentences}/train.csv", validation=f"{sentences}/validation.csv")
fit(
    model, task, load_tokenizer(model, max_length=16), output, epochs=1, learning_rate=1e-3, batch_size=30,
    dropout=0.0,
)
"""


@pytest.mark.nightly
@pytest.mark.skipif(BACKEND != "jax", reason="keras.distribution is of JAX alone")
def test_two_devices_train_what_one_does(encoder, sentences, tmp_path):
    import os
    import subprocess
    import sys

    from safetensors.numpy import load_file

    flags = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    for count in "12":
        words = [sys.executable, "-c", DEVICES, count, encoder, sentences, tmp_path / count]
        done = subprocess.run([str(word) for word in words], env=flags, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    one, two = (load_file(str(tmp_path / count / "adapter.safetensors")) for count in "12")
    assert one.keys() == two.keys()
    for name, value in one.items():
        np.testing.assert_allclose(two[name], value, atol=1e-5, err_msg=name)


# keras-tuner's own tuners

SEARCH = """
import sys

import keras
import keras_tuner
import numpy as np
import tf_adapters

def build(hp):
    model = tf_adapters.load_backbone(sys.argv[1], door="keras-hub")
    size = hp.Choice("bottleneck_size", [2, 4])
    tf_adapters.set_trainable(tf_adapters.add_adapters(model, tf_adapters.AdapterConfig(bottleneck_size=size), seed=0))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    jit = keras.backend.backend() == "jax"
    model.compile(optimizer=keras.optimizers.Adam(1e-2), loss=loss, metrics=["accuracy"], jit_compile=jit)
    return model

ids = np.tile(np.array([[2, 7, 8, 9, 3], [2, 10, 11, 12, 3]], "int32"), (8, 1))
data = {"token_ids": ids, "padding_mask": np.ones_like(ids), "segment_ids": np.zeros_like(ids)}, np.tile([0, 1], 8)
tuner = keras_tuner.RandomSearch(build, objective="val_loss", max_trials=2, directory=sys.argv[2], seed=0)
tuner.search(*data, validation_data=data, epochs=2, verbose=0, callbacks=[keras.callbacks.EarlyStopping("val_loss")])
best = tuner.get_best_models(1)[0]
size = tuner.get_best_hyperparameters(1)[0].get("bottleneck_size")
assert tf_adapters.models.injection.adapter_names(best) == ["default"]
found = best.evaluate(*data, verbose=0)[0]
assert abs(found - tuner.oracle.get_best_trials(1)[0].score) < 1e-5, found
print("best", size)
"""


@pytest.mark.nightly
@pytest.mark.skipif(BACKEND != "tensorflow", reason="keras-tuner asks the backend for nothing")
def test_tuners_of_keras_tuner_search_adapters(encoder, tmp_path):
    import os
    import subprocess
    import sys

    pytest.importorskip("keras_tuner", reason="needs the extra `tuner`")
    # With it, keras-tuner would take the first door's Keras.
    environment = {name: value for name, value in os.environ.items() if name != "TF_USE_LEGACY_KERAS"}
    words = [sys.executable, "-c", SEARCH, str(encoder), str(tmp_path)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "best 2" in done.stdout or "best 4" in done.stdout
