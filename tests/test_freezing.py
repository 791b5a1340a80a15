"""SAFE: its arithmetic, that what is frozen stays and costs nothing, and that a run with it resumes."""

import csv
import json

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import randomize, tiny_inputs, tiny_model
from tests.families import FAMILIES, family_model
from tests.runs import KillAt, Killed, content, seven_seconds_a_look
from tf_adapters import (
    AdapterConfig,
    InputError,
    LoraConfig,
    WordPiece,
    add_adapters,
    fit,
    load_backbone,
    set_trainable,
    task_from_files,
)
from tf_adapters._keras import keras
from tf_adapters.models.state import state_of
from tf_adapters.training.freezing import AdapterFreezing, freezing_threshold, linear_cka
from tf_adapters.training.run import Reporter
from tf_adapters.training.settings import TrainingSettings
from tf_adapters.training.step import TrainingStep


@pytest.fixture(scope="module")
def task(sentences):
    return task_from_files(**{split: sentences / f"{split}.csv" for split in ("train", "validation")})


@pytest.fixture(scope="module")
def wordpiece(checkpoint):
    return WordPiece.from_directory(checkpoint, max_length=16)


def freezing_of(task, wordpiece, config=None, *, mode="adapters", fast=False, **settings):
    model = tiny_model()
    randomize(add_adapters(model, config or AdapterConfig(4, init_stddev=0.3), seed=0, fast=fast))
    set_trainable(model, mode)
    settings = {"threshold": 0.5, "epochs": (1, 3), **settings}
    return model, AdapterFreezing(model, examples=task.train, tokenizer=wordpiece, **settings)


def test_cka_is_the_ratio_of_covariances_of_centred_gram_matrices():
    random = np.random.default_rng(0)
    x, y = random.normal(2, 1, (50, 7)), random.normal(-1, 3, (50, 4))
    y[:, 0] += x[:, 1]
    centre = np.eye(50) - 1 / 50
    k, l = centre @ x @ x.T @ centre, centre @ y @ y.T @ centre
    assert linear_cka(x, y) == pytest.approx(np.trace(k @ l) / np.sqrt(np.trace(k @ k) * np.trace(l @ l)), rel=1e-12)
    assert 0.05 < linear_cka(x, y) < 0.95


def test_cka_by_hand_and_what_it_does_not_see():
    column = lambda *values: np.array(values, np.float64)[:, np.newaxis]  # noqa: E731
    # (1*1)^2 / (2 * 2), and nothing in common.
    assert linear_cka(column(1, -1, 0), column(1, 0, -1)) == pytest.approx(0.25)
    assert linear_cka(column(1, -1, 0, 0), column(0, 0, 1, -1)) == pytest.approx(0)
    x = np.random.default_rng(1).normal(size=(30, 5))
    rotation, _ = np.linalg.qr(np.random.default_rng(2).normal(size=(5, 5)))
    for same in (x, x @ rotation, -3 * x, x + 7):
        assert linear_cka(x, same) == pytest.approx(1, abs=1e-12)
    assert linear_cka(x, x * [1, 1, 1, 1, 9]) < 0.9


def test_the_threshold_rises_by_the_cube_between_two_epochs():
    # Of 4 epochs 1/4, 1/2 and 3/4 are done: 1 - (3/4)^3, 1 - (1/2)^3, 1 - (1/4)^3.
    expected = {0: 0, 1: 0, 2: 0.8 * 37 / 64, 3: 0.8 * 7 / 8, 4: 0.8 * 63 / 64, 5: 0.8, 9: 0.8}
    for epoch, value in expected.items():
        assert freezing_threshold(epoch, 0.8, 1, 5) == pytest.approx(value)


@pytest.mark.parametrize(
    "config",
    [
        AdapterConfig(4, init_stddev=0.3),
        AdapterConfig(4, init_stddev=0.3, sharing="layer", insertion="parallel"),
        pytest.param(
            AdapterConfig(4, init_stddev=0.3, sharing=2, insertion="after-norm", placement="ffn"),
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_importance_is_how_much_an_adapter_changes_the_representation_of_real_tokens(config, task, wordpiece):
    model, freezing = freezing_of(task, wordpiece, config)
    layers, seen = state_of(model).adapters["default"].layers, {}
    for key, layer in layers.items():

        def call(hidden_states, key=key, layer=layer, **settings):
            outputs = type(layer).call(layer, hidden_states, **settings)
            seen.setdefault(key, []).append((hidden_states.numpy(), outputs.numpy()))
            return outputs

        vars(layer)["call"] = call
    importances = freezing.importances()
    assert sorted(importances) == sorted(layers)
    assert not any({"call", "adapt"} & set(vars(site)) for _, site, _ in freezing._places)
    rows = np.unique(np.linspace(0, 149, 32).astype(int))
    real = [len(wordpiece.encode(task.train.text[row : row + 1])["input_ids"][0]) for row in rows]
    assert len(set(real)) > 3
    for key, places in seen.items():
        assert len(places) == {"none": 1, "layer": 2, 2: 2}[config.sharing]
        values = []
        for before, after in places:
            before, after = (
                np.concatenate([states[row, :length] for row, length in enumerate(sorted(real))])
                for states in (before, after)
            )
            centre = np.eye(len(before)) - 1 / len(before)
            k, l = (centre @ states.astype(np.float64) @ states.T @ centre for states in (before, after))
            values.append(1 - np.sum(k * l) / np.sqrt(np.sum(k * k) * np.sum(l * l)))
        assert importances[key] == pytest.approx(max(values), rel=1e-6) and importances[key] > 1e-3


def test_fast_blocks_have_the_same_importances(task, wordpiece):
    (_, plain), (_, fast) = (freezing_of(task, wordpiece, fast=fast) for fast in (False, True))
    fast, plain = fast.importances(), plain.importances()
    assert fast == pytest.approx(plain, rel=1e-4) and len(set(plain.values())) == 8


@pytest.mark.nightly
@pytest.mark.parametrize("family", FAMILIES)
def test_adapters_of_every_family_have_importances_and_without_them_the_head_alone_trains(family, task, wordpiece):
    model = add_adapters(family_model(family), AdapterConfig(4, init_stddev=0.3, train_layer_norm="all"), seed=0)
    freezing = AdapterFreezing(
        set_trainable(model), threshold=1.0, epochs=(0, 1), examples=task.train, tokenizer=wordpiece
    )
    frozen = freezing.after_epoch(1)
    assert sorted(frozen) == sorted(state_of(model).adapters["default"].layers) and min(frozen.values()) > 1e-4
    head = state_of(model).head_variables(model)
    assert {id(variable) for variable in TrainingStep(model, [freezing]).trainable_variables} == {
        id(variable) for variable in head
    }


def names(variables):
    return {variable.name.split("/", 2)[-1] for variable in variables}


def test_what_freezes_stays_frozen_and_takes_its_layer_norms_along(task, wordpiece, monkeypatch):
    model, freezing = freezing_of(task, wordpiece, AdapterConfig(4, blocks=(1, 3), train_layer_norm="all"))
    step = TrainingStep(model, [freezing])
    values = {"layer.1.attention": 0.1, "layer.1.ffn": 0.45, "layer.3.attention": 0.9, "layer.3.ffn": 0.6}
    monkeypatch.setattr(freezing, "importances", lambda: dict(values))
    all_names = names(model.trainable_variables)
    # The threshold is 0 at first.
    assert freezing.after_epoch(1) == {} and names(step.trainable_variables) == all_names
    # 0.5 * 7/8 = 0.4375.
    assert freezing.after_epoch(2) == {"layer.1.attention": 0.1}
    gone = all_names - names(step.trainable_variables)
    assert len(gone) == 4 and all("layer.1.attention" in name or "layer/1.attention" in name for name in gone)
    values["layer.1.attention"] = 0.95
    assert freezing.after_epoch(3) == {"layer.1.ffn": 0.45}
    assert freezing.frozen == ("layer.1.attention", "layer.1.ffn")
    trains, family = {id(variable) for variable in step.trainable_variables}, state_of(model).family
    norms = [family.main_layer(model).embeddings.LayerNorm]
    norms += [norm for block in family.blocks(model) for norm in family.block_layer_norms(block)]
    # The embeddings', then two for each block: 0 and 1 are behind, 2 goes with 3.
    assert [all(id(variable) in trains for variable in norm.weights) for norm in norms] == [False] * 5 + [True] * 4
    layers = state_of(model).adapters["default"].layers
    assert not any(id(variable) in trains for key in freezing.frozen for variable in layers[key].weights)
    values.update(dict.fromkeys(values, 0.0))
    freezing.after_epoch(4)
    assert names(step.trainable_variables) == {"kernel:0", "bias:0"} and len(step.trainable_variables) == 2
    assert names(model.trainable_variables) == all_names


@pytest.mark.nightly
def test_nothing_below_the_lowest_adapter_that_trains_is_differentiated(task, wordpiece):
    model, freezing = freezing_of(task, wordpiece, AdapterConfig(4, init_stddev=0.3))

    step = TrainingStep(model, [freezing])

    def products():
        @tf.function
        def sums():
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(step(tiny_inputs(), training=True))
            return [tf.reduce_sum(gradient) for gradient in tape.gradient(loss, step.trainable_variables)]

        graph = sums.get_concrete_function().graph
        kept = tf.compat.v1.graph_util.extract_sub_graph(
            graph.as_graph_def(), [output.op.name for output in graph.outputs]
        )
        return sum(node.op in ("MatMul", "BatchMatMulV2") for node in kept.node)

    counts = []
    for block in range(4):
        counts.append(products())
        freezing.frozen += (f"layer.{block}.attention", f"layer.{block}.ffn")
    differences = np.diff(counts)
    # The lowest block of all that trains is not differentiated to its own input; so each time a whole block's gradient
    # goes.
    assert len(set(differences)) == 1 and differences[0] < -10


IMPORTANCES = {f"layer.{block}.{place}": 0.1 + 0.2 * block for block in range(4) for place in ("attention", "ffn")}
# Thresholds after the epochs 1 to 4: 0, 0.7 * 7/8, 0.7, 0.7: the blocks 0 to 2 freeze after the second epoch, none
# afterwards.
SETTINGS = dict(
    epochs=4,
    learning_rate=3e-3,
    batch_size=16,
    freeze_adapters=0.7,
    freeze_epochs=(1, 3),
    weight_decay=0.01,
    clip_norm=1.0,
)


def new_model(checkpoint, **settings):
    keras.utils.set_random_seed(0)
    model = load_backbone(checkpoint, num_labels=2, labels=["negative", "positive"])
    fast = settings.pop("fast", False)
    add_adapters(model, AdapterConfig(4, **{"dropout": 0.0 if fast else 0.1, **settings}), seed=0, fast=fast)
    return set_trainable(model)


class Watch(Reporter):
    """Keeps the weights after each epoch, and what was said."""

    def __init__(self, model):
        self.model, self.values, self.notes = model, [], []

    def note(self, text):
        self.notes.append(text)

    def epoch(self, epoch, numbers, best):
        self.values.append({variable.name: variable.numpy() for variable in self.model.trainable_variables})


def moved(watch, epoch):
    """Names of the weights that an epoch (from 1) changed."""
    before, after = watch.values[epoch - 2 : epoch]
    return {name for name in before if not np.array_equal(before[name], after[name])}


@pytest.mark.parametrize(
    "settings",
    [
        *(
            pytest.param(settings, marks=pytest.mark.nightly)
            for settings in (
                {},
                {"accumulate": 2, "checkpoint_gradients": True},
                {"mixout": 0.5},
                {"jit_compile": True},
                {"fast": True},
            )
        )
    ],
)
def test_frozen_weights_are_bit_equal_from_then_on_and_the_others_move(
    checkpoint, task, wordpiece, tmp_path, monkeypatch, settings
):
    monkeypatch.setattr(AdapterFreezing, "importances", lambda self: IMPORTANCES)
    model = new_model(checkpoint, **({"fast": settings.pop("fast")} if "fast" in settings else {}))
    watch = Watch(model)
    fit(model, task, wordpiece, output=tmp_path, **{**SETTINGS, **settings}, reporter=watch)
    everything = {variable.name for variable in model.trainable_variables}
    lower = {
        variable.name for block in state_of(model).family.blocks(model)[:3] for variable in block.weights
    } & everything
    assert 0 < len(lower) < len(everything)
    assert moved(watch, 2) == everything
    assert moved(watch, 3) == moved(watch, 4) == everything - lower
    rows = list(csv.DictReader(open(tmp_path / "log.csv")))
    assert [row["frozen_adapters"] for row in rows] == ["0", "6", "6", "6"]
    (note,) = (note for note in watch.notes if "frozen" in note)
    assert note.startswith("Epoch 2: 6 adapters are frozen") and "layer.2.ffn (0.5)" in note and "layer.3" not in note
    training = json.loads((tmp_path / "tf_adapters.json").read_text())["training"]
    assert (training["freeze_adapters"], training["freeze_epochs"]) == (0.7, [1, 3])


@pytest.mark.nightly
@pytest.mark.parametrize("policy, fast", [("float32", False), ("mixed_bfloat16", True), ("mixed_float16", False)])
def test_a_killed_run_goes_on_to_the_same_end(checkpoint, task, wordpiece, tmp_path, float32_policy, policy, fast):
    float32_policy(policy)
    # Real importances, which this threshold meets in the first epoch and the second.
    settings = {**SETTINGS, "freeze_adapters": 5.5e-4, "freeze_epochs": (0, 3)}
    new = lambda: new_model(checkpoint, init_stddev=0.1, fast=fast)  # noqa: E731
    fit(new(), task, wordpiece, output=tmp_path / "whole", **settings)
    frozen = [int(row["frozen_adapters"]) for row in csv.DictReader(open(tmp_path / "whole" / "log.csv"))]
    assert 0 < frozen[0] < frozen[1] < 8, frozen

    # On the last step of an epoch after which some freeze, and after the next of them.
    for index, step in enumerate((10, 23)):
        with seven_seconds_a_look(), pytest.raises(Killed):
            fit(
                new(), task, wordpiece, output=tmp_path / "killed", **settings, resume=index > 0, checkpoint_seconds=15,
                reporter=KillAt(step),
            )  # fmt: skip
    with pytest.raises(InputError, match="another freeze_adapters"):
        fit(new(), task, wordpiece, output=tmp_path / "killed", **{**settings, "freeze_adapters": 0.3}, resume=True)
    fit(new(), task, wordpiece, output=tmp_path / "killed", **settings, resume=True)
    assert content(tmp_path / "killed") == content(tmp_path / "whole")


@pytest.mark.nightly
def test_stored_outputs_of_lower_blocks_go_with_it(checkpoint, task, wordpiece, tmp_path, monkeypatch):
    monkeypatch.setattr(
        AdapterFreezing, "importances", lambda self: {key: IMPORTANCES[key] for key in IMPORTANCES if key > "layer.2"}
    )
    model = new_model(checkpoint, blocks=(2, 3), train_layer_norm="adapted", dropout=0.0)
    watch = Watch(model)
    fit(model, task, wordpiece, output=tmp_path, **SETTINGS, dropout=0.0, cache_frozen=True, reporter=watch)
    assert not any("layer_._2" in name or "layer.2" in name for name in moved(watch, 3)) and moved(watch, 3)


def test_what_cannot_be_frozen_is_named(task, wordpiece, cli, train_arguments, tmp_path):
    for settings, message in (
        ({"freeze_adapters": 0.0}, r"freeze_adapters=0.0 must be a number above 0"),
        ({"freeze_adapters": 1.5}, "freeze_adapters=1.5 must be"),
        ({"freeze_epochs": (3, 3)}, r"freeze_epochs=\(3, 3\) must be two numbers of epochs"),
    ):
        with pytest.raises(InputError, match=message):
            TrainingSettings(**{"epochs": 4, "learning_rate": 1e-3, "freeze_adapters": 0.5, **settings})
    for settings, message in (
        ({"mode": "full"}, "freeze_adapters=0.5 is for bottleneck adapters"),
        ({"config": LoraConfig(2)}, "is for bottleneck adapters"),
    ):
        with pytest.raises(InputError, match=message):
            freezing_of(task, wordpiece, **settings)
    with pytest.raises(InputError, match=r"freeze_epochs=\(1, 3\) says when freeze_adapters freezes"):
        model = set_trainable(tiny_model(), "head")
        fit(model, task, wordpiece, output=tmp_path / "a", epochs=1, learning_rate=1e-3, freeze_epochs=(1, 3))
    for arguments, message in (
        (["--freeze-adapters=0"], "--freeze-adapters 0.0 must be a number above 0"),
        (["--freeze-epochs=1-2"], "give both, or neither"),
        (["--freeze-adapters=0.1", "--freeze-epochs=2-1"], "--freeze-epochs 2-1 must be two numbers"),
        (["--freeze-adapters=0.1", "--trainable=head"], "--freeze-adapters is for adapters"),
    ):
        others = (argument for argument in train_arguments if "adapter-size" not in argument)
        outcome = cli(*others, f"--output={tmp_path / 'a'}", *arguments)
        assert outcome.status == 2 and message in outcome.err


@pytest.mark.nightly
def test_the_command_line_says_what_froze(tmp_path, cli, train_arguments):
    outcome = cli(*train_arguments, f"--output={tmp_path / 'a'}", "--freeze-adapters=1", "--freeze-epochs=0-1")
    assert outcome.status == 0 and "Epoch 1: 4 adapters are frozen" in outcome.out + outcome.err
