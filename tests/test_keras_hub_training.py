"""Training, scoring and the command line through the second door."""

import importlib.util
import json

import numpy as np
import pytest

from tests.cases import nightly_but
from tests.conftest import is_refused, randomize, squad_file
from tests.keras_hub_models import BACKEND, array, checkpoint, keras, needs_first, write_checkpoint
from tests.runs import KillAt, Killed, content, said_by, seven_seconds_a_look
from tf_adapters import (
    AdapterConfig,
    InputError,
    TrainingSettings,
    add_adapters,
    evaluate,
    fit,
    load_backbone,
    predict,
    set_active,
    set_trainable,
    task_from_files,
)
from tf_adapters._keras3_internals import layers_of
from tf_adapters.kinds import get_kind
from tf_adapters.kinds.masked_lm import MaskedLanguageModelling
from tf_adapters.layers.ops import keras3
from tf_adapters.models import frozen_digest
from tf_adapters.models.keras_hub.door import Called
from tf_adapters.models.keras_hub.site import RandomDrop
from tf_adapters.models.state import state_of
from tf_adapters.text.tokenizer import load_tokenizer
from tf_adapters.training import step_keras3
from tf_adapters.training.step_keras3 import GradientCheckpointing, Mixout, TrainingStep, _seed_dropout
from tf_adapters.training.trained import make_optimizer, warmup_linear_decay

# Of Keras, about data that are shuffled already.
pytestmark = pytest.mark.filterwarnings("error:`shuffle=True` was passed:UserWarning")

TEXTS = ["a good film", "a dull and awful plot", "the cast was great fun"]
SETTINGS = {"epochs": 4, "learning_rate": 3e-3, "batch_size": 30, "checkpoint_seconds": 1.0}
FAST = ["fast"] * (BACKEND == "tensorflow")  # whose blocks they are


def new_model(encoder, config=None, mode="adapters"):
    keras.utils.set_random_seed(0)
    if mode in ASKED:
        about = {"num_labels": get_kind(mode).num_labels(())}
        if mode == "token-classification":
            about = {"labels": ["B-N", "B-P", "O"]}
        return set_trainable(load_backbone(encoder, head=mode, door="keras-hub", **about), "full")
    model = load_backbone(encoder, labels=["negative", "positive"], door="keras-hub")
    if mode in ("adapters", "fast"):
        # Adapters with a dropout of their own are no part of a fast block.
        own = AdapterConfig(bottleneck_size=8, dropout=0.1 if mode == "adapters" else 0.0)
        add_adapters(model, config or own, seed=0, fast=mode == "fast")
    return set_trainable(model, "adapters" if mode == "fast" else mode)


def train(model, task, output, **changes):
    return fit(model, task, load_tokenizer(model, max_length=16), output, **{**SETTINGS, **changes})


@pytest.mark.parametrize("dropped", range(3))
def test_random_drop_leaves_out_that_many_of_the_lowest_blocks(encoder, monkeypatch, dropped):
    model = new_model(encoder, AdapterConfig(bottleneck_size=4, random_drop=2))
    randomize(model, scale=0.1)
    _seed_dropout(model, 0, 0.0)
    set_active(model, "default", blocks=range(dropped, model.backbone.num_layers))
    expected = array(model(inputs(model), training=False))
    set_active(model, "default")
    monkeypatch.setattr(RandomDrop, "draw", lambda drop: drop.number.assign(dropped))
    np.testing.assert_allclose(array(model(inputs(model), training=True)), expected, atol=1e-5)
    assert dropped == 0 or np.abs(array(model(inputs(model), training=False)) - expected).max() > 1e-3


def ends_of_a_step(model, *changes):
    """What trains, and the states of random numbers, after a step of training with SGD."""
    seeds, step = _seed_dropout(model, 0, 0.2), TrainingStep(Called(model), [change(model) for change in changes])
    step.compile(optimizer=keras.optimizers.SGD(1.0), loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    step.train_on_batch(inputs(model), np.array([0, 1]))
    return [array(variable) for variable in (*model.trainable_variables, *(one.state for one in seeds))]


@pytest.mark.slow
@pytest.mark.parametrize("family", nightly_but(["albert", "deberta-v2"], ["albert", "bert", "deberta-v2"]))
def test_a_block_that_is_computed_again_draws_the_same_numbers(family):
    ends, directory = [], checkpoint(family)
    for changes in ((), (GradientCheckpointing,)):
        keras.utils.set_random_seed(0)
        model = load_backbone(directory, door="keras-hub")
        set_trainable(add_adapters(model, AdapterConfig(4, dropout=0.3, sharing="layer", random_drop=1), seed=0))
        randomize(model, scale=0.1)
        start = array(model.trainable_variables[-1])
        ends.append(ends_of_a_step(model, *changes))
    for one, other in zip(*ends):
        np.testing.assert_allclose(one, other, atol=1e-6)
    assert not np.array_equal(start, ends[1][len(model.trainable_variables) - 1])


@pytest.mark.parametrize("mode", ["full", "adapters", *FAST])
def test_mixout_lets_an_entry_be_that_of_the_beginning_or_four_times_as_far_from_it(encoder, monkeypatch, mode):
    model = new_model(encoder, AdapterConfig(4, init_stddev=0.3), mode)
    _seed_dropout(model, 0, 0.0)
    mixout, begun = Mixout(model, 0.75, seed=1), {id(each): array(each) for each in model.trainable_variables}
    for variable in model.trainable_variables:
        variable.assign(array(variable) + 0.1)
    differences, step, replaced = [], TrainingStep(Called(model), [mixout]), step_keras3.replaced

    def record(changes):
        differences.extend(np.ravel(array(value) - begun[id(vars(layer)[name])]) for layer, name, value in changes)
        return replaced(changes)

    monkeypatch.setattr(step_keras3, "replaced", record)
    mixed, plain = array(step(inputs(model), training=True)), array(model(inputs(model), training=False))
    assert len(differences) == {"full": 3 * 6 + 1}.get(mode, 3 * 2 * 2)
    differences = np.concatenate(differences)
    # 0.1 / (1 - 0.75) with the probability 1/4.
    assert np.all(np.isclose(differences, 0, atol=1e-5) | np.isclose(differences, 0.4, atol=1e-5))
    assert 0.2 < np.mean(differences > 0.2) < 0.3 and np.abs(mixed - plain).max() > 1e-3
    np.testing.assert_array_equal(array(step(inputs(model), training=False)), plain)


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


#: Runs that are killed and go on: what trains, sentences but for those of another kind, and settings.
RUNS = {
    **{mode: (mode, {}) for mode in ("adapters", "full", *FAST, *ASKED)},
    "in parts": ("adapters", {"accumulate": 4, "checkpoint_gradients": True}),
    "mixout": ("adapters", {"mixout": 0.5}),
}


@pytest.mark.slow
@pytest.mark.parametrize("run", nightly_but(["adapters", "token-classification", "in parts"], RUNS))
def test_what_was_chosen_alone_trains_and_a_killed_run_goes_on_bit_equal(encoder, task, other_tasks, tmp_path, run):
    mode, changes = RUNS[run]
    settings = {"dropout": 0.1, "weight_decay": 0.01, "clip_norm": 1.0, "epochs": 2, **changes}
    task = other_tasks.get(mode, task)
    model = new_model(encoder, mode=mode)
    frozen, before = frozen_digest(model), [np.array(variable) for variable in model.trainable_variables]
    train(model, task, tmp_path / "whole", **settings)
    assert frozen_digest(model) == frozen
    # The bias of an attention's keys changes no output.
    assert mode not in ("adapters", "fast") or not any(map(np.array_equal, before, model.trainable_variables))
    with seven_seconds_a_look(), pytest.raises(Killed):
        train(new_model(encoder, mode=mode), task, tmp_path / "killed", **settings, reporter=KillAt(5))
    # Mixout mixes with what was at the beginning.
    again = new_model(encoder, mode=mode)
    for variable in again.trainable_variables:
        variable.assign(array(variable) + 0.1)
    train(again, task, tmp_path / "killed", **settings, resume=True)
    assert content(tmp_path / "killed") == content(tmp_path / "whole")


#: What takes less memory: what trains, and settings.
SAVING = {
    "sentences in parts": ("adapters", {"accumulate": 4}),
    "words in parts": ("token-classification", {"accumulate": 4}),
    # With the same masks.
    "sentences again": ("adapters", {"checkpoint_gradients": True, "dropout": 0.1}),
    **{f"{mode} again": (mode, {"checkpoint_gradients": True, "dropout": 0.1}) for mode in FAST},
}


@pytest.mark.slow
@pytest.mark.parametrize("what", nightly_but(list(SAVING)[:2], SAVING))
def test_what_saves_memory_changes_no_result(encoder, task, other_tasks, tmp_path, monkeypatch, what):
    monkeypatch.setattr("tf_adapters.training.parts.AT_ONCE", 1)  # each part would have masks of its own
    mode, changes = SAVING[what]
    # A great epsilon, for Adam divides a gradient that is next to nothing by its own size.
    usual = {"epochs": 2, "batch_size": 32, "weight_decay": 0.01, "clip_norm": 1.0, "epsilon": 1e-3}
    usual["dropout"] = changes.get("dropout", 0.0)
    ends, losses = [], []
    for name, settings in (("plain", {}), ("saving", changes)):
        model = new_model(encoder, AdapterConfig(8, init_stddev=0.1, dropout=usual["dropout"] * (mode != "fast")), mode)
        start = [np.array(variable) for variable in model.trainable_variables]
        result = train(model, other_tasks.get(mode, task), tmp_path / name, **{**usual, **settings})
        ends.append([np.array(variable) for variable in model.trainable_variables])
        losses.append((tmp_path / name / "log.csv").read_text().split("\n")[1].split(",")[:3])
    # A fast operation is fused with others where it is computed again, and rounded otherwise, in each of ten steps.
    for one, other in zip(*ends):
        np.testing.assert_allclose(one, other, atol=5e-5 if mode == "fast" else 1e-6)
    assert max(np.abs(one - begun).max() for one, begun in zip(ends[0], start)) > 1e-3
    assert losses[0][:2] == losses[1][:2] and float(losses[0][2]) == pytest.approx(float(losses[1][2]), abs=1e-6)
    assert result.steps == int(losses[0][1]) * 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", nightly_but(["token-classification"], ASKED))
def test_words_questions_and_choices_train_and_answer_through_either_door(encoder, other_tasks, tmp_path, kind):
    task, model = other_tasks[kind], new_model(encoder, mode=kind)
    result = train(model, task, tmp_path / "a", epochs=3, learning_rate=1e-2)
    losses = [float(line.split(",")[2]) for line in (tmp_path / "a" / "log.csv").read_text().splitlines()[1:]]
    assert losses[-1] < 0.7 * losses[0] and result.steps == 9
    needs_first()
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
    needs_first()
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
    np.savez(tmp_path / "data.npz", **inputs(model))
    code = (
        "import sys, keras, numpy, tf_adapters.models.keras_hub\n"
        "data = dict(numpy.load(sys.argv[2]))\n"
        "numpy.save(sys.argv[3], keras.saving.load_model(sys.argv[1]).predict(data, verbose=0))"
    )
    said_by(code, *(tmp_path / name for name in ("all.keras", "data.npz", "b.npy")))
    np.testing.assert_allclose(np.load(tmp_path / "b.npy"), model.predict(inputs(model), verbose=0), atol=2e-6)


def test_a_first_step_that_fails_leaves_the_model_its_values(encoder, task, tmp_path, monkeypatch):
    model = new_model(encoder)
    before = [array(variable) for variable in model.weights]
    with monkeypatch.context() as within, pytest.raises(TypeError, match="divmod"):
        within.setattr(TrainingStep, "make_train_function", lambda step: setattr(step, "train_function", divmod))
        train(model, task, tmp_path / "a")
    assert all(map(np.array_equal, map(array, model.weights), before))
    train(model, task, tmp_path / "b", epochs=1)


def test_what_the_second_door_does_not_train_is_refused_and_changes_nothing(encoder, task, tmp_path):
    model = new_model(encoder)
    is_refused("cache_frozen=True is for door", train, model, task, tmp_path / "a", cache_frozen=True)
    if BACKEND != "jax":  # where full batches alone train
        parts = {"accumulate": 3, "batch_size": 37}
        words = "accumulate=3: the last step of an epoch has fewer rows than parts, 2"
        is_refused(words, train, model, task, tmp_path / "a", **parts)
    words = "The task needs a model with the head 'masked-lm'"
    is_refused(words, train, model, task, tmp_path / "a", kind=MaskedLanguageModelling())
    assert not (tmp_path / "a").exists()


# Random numbers


def rates(model):
    return [layer.rate for layer in layers_of(model) if isinstance(layer, keras.layers.Dropout)]


def test_dropout_follows_from_the_seed_alone_and_adapters_keep_their_own_rate(encoder):
    assert set(rates(load_backbone(encoder, door="keras-hub"))) == {0.1}
    drawn = []
    for seed in (1, 1, 2):
        keras.utils.set_random_seed(seed + 5)  # what came before makes no difference
        model = new_model(encoder, AdapterConfig(4, dropout=0.3))
        set_active(add_adapters(model, AdapterConfig(2), name="beside", seed=1), "default")
        seeds = _seed_dropout(model, seed, 0.2)
        assert sorted(set(rates(model))) == [0.2, 0.3] and len(seeds) == len(rates(model))
        drawn.append([array(model(inputs(model), training=True)) for _ in range(2)])
    assert np.array_equal(drawn[0], drawn[1]) and not np.array_equal(drawn[0], drawn[2])
    _seed_dropout(model, 1, 0.0)
    assert sorted(set(rates(model))) == [0.0, 0.3]
    # None are the rates that the encoder was built with.
    _seed_dropout(model, 1, None)
    assert sorted(set(rates(model))) == [0.1, 0.3]


def test_an_encoder_that_was_built_without_dropout_drops_everywhere_when_asked(tmp_path):
    model = load_backbone(write_checkpoint("bert", tmp_path, hidden_dropout_prob=0.0), door="keras-hub")
    assert set(rates(model)) == {0.0}
    _seed_dropout(model, 1, 0.2)
    attention = state_of(model).family.dense(model.backbone.transformer_layers[0], "query")[0]
    hidden = np.random.default_rng(0).normal(size=(1, 4, model.backbone.hidden_dim)).astype("float32")
    assert not np.array_equal(*(array(attention(hidden, hidden, training=True)) for _ in range(2)))


def inputs(model):
    ids = np.array([[2, 7, 8, 9, 3], [2, 10, 3, 0, 0]], "int32")
    every = {"token_ids": ids, "padding_mask": (ids > 0).astype("int32"), "segment_ids": np.zeros_like(ids)}
    return {name: every[name] for name in model.input}


# The same numbers as the first door's

CHANGES = {"smoothed": {"label_smoothing": 0.1}, "balanced": {"class_weights": "balanced"}}
_RANDOM = np.random.default_rng(0)
_POSITIONS, _CLASSES = _RANDOM.normal(size=(3, 5)), np.array([0, 2, 1, 2])
_SEVERAL = np.array([[1, 0], [1, 1], [0, 0], [1, 0]], np.float32)
#: Kind, and perhaps a change of its loss -> logits and labels.
LOGITS_AND_LABELS = {
    ("regression", None): (_RANDOM.normal(size=(4, 1)), np.array([0.5, 1.0, -1.0, 3.0], np.float32)),
    **{("classification", change): (_RANDOM.normal(size=(4, 3)), _CLASSES) for change in (None, *CHANGES)},
    **{("multi-label", change): (_RANDOM.normal(size=(4, 2)), _SEVERAL) for change in (None, *CHANGES)},
    ("token-classification", None): (
        _RANDOM.normal(size=(3, 5, 4)), np.array([[-1, 0, 3, -1, -1], [2] * 5, [-1] * 5], "int32")
    ),
    ("question-answering", None): (_POSITIONS, np.array([[2, 4], [0, 5], [0, 1]], "int32")),
    ("multiple-choice", None): (_POSITIONS, np.array([2, 0, 4], "int32")),
}  # fmt: skip


class Labelled:
    """Labelled rows without texts."""

    def __init__(self, labels):
        self.labels = labels

    def __len__(self):
        return len(self.labels)


@pytest.mark.parametrize("case", LOGITS_AND_LABELS, ids=str)
def test_losses_are_the_first_doors(case):
    (name, change), (logits, labels) = case, LOGITS_AND_LABELS[case]
    settings = TrainingSettings(epochs=1, learning_rate=1e-3, **CHANGES.get(change, {}))
    kind, logits, rows, values = get_kind(name), logits.astype("float32"), Labelled(labels), []
    for ops in (needs_first(), keras3):
        losses = kind.losses(settings, rows, ops)
        loss, metric = losses["loss"], losses["metrics"]
        if name == "question-answering":
            loss, metric = loss["start_logits"], metric["start_logits"]
        targets = labels if name == "question-answering" else kind.targets(labels)
        # In two batches, of which the mean counts rows, or tokens.
        for part in (slice(0, 1), slice(1, None)):
            metric[0].update_state(ops.value(targets[part]), ops.value(logits[part]))
        by_row = getattr(loss, "call", loss)(ops.value(targets), ops.value(logits))
        values.append([float(ops.mean(by_row)), float(metric[0].result())])
        if name in ("classification", "multi-label", "regression"):
            values[-1].append(kind.loss(rows, logits, ops))
    np.testing.assert_allclose(*values, rtol=1e-6)
    assert values[0][0] == pytest.approx(values[0][1], rel=1e-6) and values[0][0] > 0


def test_schedule_and_optimizers_are_the_first_doors():
    import tensorflow as tf

    first = needs_first()
    one, other = (warmup_linear_decay(ops)(1e-3, 10, warmup_fraction=0.2) for ops in (first, keras3))
    np.testing.assert_allclose([float(one(step)) for step in range(11)], [float(other(step)) for step in range(11)])
    start = np.random.default_rng(0).normal(size=(3, 2)).astype("float32")
    gradients = np.random.default_rng(1).normal(size=(5, 3, 2)).astype("float32")
    for settings in ({}, {"weight_decay": 0.1, "clip_norm": 0.5}, {"bias_correction": False, "epsilon": 1e-6}):
        ends = []
        for ops in (first, keras3):
            variable = keras.Variable if ops is keras3 else tf.Variable
            matrix, vector = variable(start), variable(start[0])
            wide = variable(start, name="bias")  # of an attention of Keras 3
            assert not make_optimizer(ops, 0.01, [wide], weight_decay=0.1)._use_weight_decay(wide)
            optimizer = make_optimizer(ops, 0.01, [matrix, vector], **settings)
            optimizer.build([matrix, vector])
            for gradient in gradients:
                whole = ops.value(gradient)
                if ops is keras3 and BACKEND == "tensorflow":  # as of an embedding that reads each row twice
                    halves = np.concatenate([0.25 * gradient, 0.75 * gradient])
                    whole = tf.IndexedSlices(halves, tf.constant([0, 1, 2] * 2), tf.constant(gradient.shape))
                optimizer.apply_gradients([(whole, matrix), (ops.value(gradient[0]), vector)])
            ends.append([keras.ops.convert_to_numpy(ops.value(variable)) for variable in (matrix, vector)])
        for one, other in zip(*ends):
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-6)
        assert np.abs(ends[0][0] - start).max() > 0.01


# Experiments and the command line


@pytest.mark.slow
def test_the_commands_train_score_and_answer(encoder, sentences, tmp_path, cli):
    data = [f"--{name}={sentences / name}.csv" for name in ("train", "validation", "test")]
    options = ["--trainable=full", "--epochs=4", "--learning-rate=1e-2", "--max-length=16"]
    door, words = ["--door", "keras-hub"], ["--backend", BACKEND, "--model", encoder, "--output", tmp_path / "a"]
    done = cli("train", *door, *words, *data, *options)
    assert done.status == 0 and f"Through keras-hub, on {BACKEND}" in done.out
    trained = json.loads((tmp_path / "a" / "tf_adapters.json").read_text())
    following = done.out.partition("Next:")[2].split("\n")[1]  # the same door, whichever else is installed
    assert "| tf-adapters predict" in following and following.endswith(f" --door keras-hub --backend {BACKEND}")
    held = [tmp_path / "a", "--input", sentences / "test.csv", *door, "--output"]
    assert cli("evaluate", *held, tmp_path / "numbers.json").status == 0
    numbers = json.loads((tmp_path / "numbers.json").read_text())
    assert numbers["metrics"]["accuracy"] == trained["result"]["numbers"]["accuracy"] > 0.8
    assert cli("predict", *held, tmp_path / "labels.jsonl").status == 0
    answers = [json.loads(line)["label"] for line in (tmp_path / "labels.jsonl").read_text().splitlines()]
    assert len(answers) == 40 and set(answers) <= {"negative", "positive"}
    done = cli("export", tmp_path / "a", *door, "--output", tmp_path / "served" / "1")
    if BACKEND != "tensorflow":
        assert done.status == 2 and f"graphs of TensorFlow, and Keras is on {BACKEND}: give --backend" in done.err
        return
    import tensorflow as tf

    assert done.status == 0 and "Try it:" in done.out, done.err
    serve = tf.saved_model.load(str(tmp_path / "served" / "1")).signatures["serving_default"]
    texts = [line.split(",")[0] for line in (sentences / "test.csv").read_text().splitlines()[1:]]
    assert [label.decode() for label in serve(text=tf.constant(texts))["label"].numpy()] == answers


def test_options_that_do_not_go_with_a_door_are_a_sentence(tmp_path, refused, monkeypatch):
    needs_first()
    for words, sentence in {
        "train --backend jax": "--backend jax is of --door keras-hub",
        "train --door kerashub": "--door kerashub is unknown: use 'transformers' or 'keras-hub'",
        "train --door keras-hub --backend mxnet": "--backend mxnet is unknown",
        "train --door keras-hub --backend jax --fast": "--fast is of --backend tensorflow, and not of jax",
        "train --door keras-hub --cache-frozen": "--cache-frozen is for --door transformers",
        "train --door keras-hub --strategy multi-worker": "multi-worker is of --door transformers",
        "train --door keras-hub --strategy mirrored": "--strategy mirrored needs two devices or more",
        "export a --door keras-hub --backend jax": "Keras is on jax: give --backend tensorflow",
    }.items():
        refused(*words.split(), "--output", tmp_path / "1", says=sentence)
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *own: None if name == "torch" else find(name, *own))
    for backend, sentence in {
        "torch": "KERAS_BACKEND=torch is not installed: run `pip install torch`",
        "mxnet": "KERAS_BACKEND=mxnet is unknown: use tensorflow, jax, torch",
    }.items():
        monkeypatch.setenv("KERAS_BACKEND", backend)
        refused("train", "--door", "keras-hub", "--output", tmp_path / "1", says=sentence)
        is_refused(sentence, load_backbone, "minilm", door="keras-hub")


# Several devices


@pytest.mark.nightly
@pytest.mark.skipif(BACKEND != "jax", reason="keras.distribution is of JAX alone")
def test_two_devices_train_what_one_does(encoder, sentences, tmp_path):
    from safetensors.numpy import load_file

    data = [f"--{name}={sentences / name}.csv" for name in ("train", "validation")]
    usual = "--epochs=1 --batch-size=30 --dropout=0 --max-length=16 --door=keras-hub --backend=jax --seeds=2".split()
    for count, words in {"1": [], "2": ["--strategy=mirrored"]}.items():
        said = said_by(
            "from tf_adapters.cli.main import entry_point; entry_point()",
            *("train", "--model", encoder, *data, *usual, *words, "--output", tmp_path / count),
            XLA_FLAGS="--xla_force_host_platform_device_count=2",
        )
        assert ("On 2 devices" in said) == (count == "2")
    one, two = (load_file(str(tmp_path / count / "adapter.safetensors")) for count in "12")
    assert one.keys() == two.keys()
    for name, value in one.items():
        np.testing.assert_allclose(two[name], value, atol=1e-5, err_msg=name)
