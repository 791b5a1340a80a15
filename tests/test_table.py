"""What every row of tests/table.py passes: a method in an encoder of a family, through a door.

On another backend: `KERAS_BACKEND=jax python -m pytest tests/test_table.py`.
"""

import dataclasses
import json
import re

import numpy as np
import pytest

from tests.conftest import is_refused, randomize
from tests.table import DOORS, ROWS, FirstDoor, Subject, bits, put
from tf_adapters import (
    AdapterConfig,
    add_adapters,
    disable_adapters,
    load_adapter,
    parameter_counts,
    remove_adapters,
    save_adapter,
    set_active,
    set_trainable,
)
from tf_adapters.methods import config_from_dict
from tf_adapters.models import backbone_digest
from tf_adapters.models.state import state_of

FAST = ("bert", "camembert", "electra", "roberta", "xlm-roberta")


def of(*doors):
    rows = [row for row in ROWS if row.values[0] in doors]
    return pytest.mark.parametrize("door, family, variant", rows, scope="module")


@pytest.fixture(scope="module")
def row(door, family, variant, tmp_path_factory):
    return Subject(door, family, variant, tmp_path_factory.mktemp("row") / "adapter")


@of(*DOORS)
def test_it_starts_near_the_identity(row, variant):
    change = np.abs(row.start - row.plain).max()
    # A LayerNorm behind the up-projection makes its output large whatever the weights are.
    assert (change == 0) == (variant in ("lora", "ia3", "dora")), change
    assert change < (0.5 if variant in ("norm after", "multiply") else 0.02)
    assert np.abs(row.trained - row.plain).max() > 1e-3
    put(row.model, row.at_start)
    for layer in row.layers:
        for part, weight in layer.parts.items():
            if ".up." in f".{part}" or part in ("norm.beta", "value.kernel"):
                weight.assign(np.zeros(weight.shape, "float32"))
    np.testing.assert_array_equal(row.computed(), row.plain)
    row.reset()


@of(*DOORS)
def test_its_weights_its_layer_norms_and_the_head_train_and_are_counted(row):
    model, state, config = row.model, row.state, row.config
    depth = len(state.family.blocks(model))
    adapter = [weight for layer in row.layers for weight in layer.learned]
    assert len(row.layers) == len(set(config.sites(depth).values()))
    encoder = state.family.main_layer(model).weights
    names = state.door.named_weights(model, [weight for weight in encoder if id(weight) in row.before])
    blocks = range(depth) if config.train_layer_norm != "adapted" else config.blocks
    norms = []
    for name, (variable, _) in names.items():
        *_, owner, _ = name.split(".")
        numbers = re.findall(r"\.(\d+)\.", name)
        if "norm" in owner.lower():
            among = int(numbers[-1]) in blocks if numbers else "embeddings" in name and config.train_layer_norm == "all"
            norms += [variable] if among and config.train_layer_norm != "none" else []
    assert len(norms) == (config.train_layer_norm != "none") * 4 * len(blocks) + 2 * (config.train_layer_norm == "all")
    inside = {id(weight) for weight in encoder}
    head = [weight for weight in state.door.weights(model) if id(weight) not in inside]
    wanted = {id(variable): variable for variable in adapter + norms + head}
    assert {id(variable) for variable in model.trainable_variables} == set(wanted)
    numbers = sum(int(np.prod(tuple(weight.shape))) for weight in adapter)
    assert parameter_counts(model).adapter == numbers == config.parameters(depth, 32, 48)


@of(*DOORS)
def test_training_changes_what_was_chosen_and_no_other_bit(row, variant):
    trains = {id(variable) for variable in row.model.trainable_variables}
    before = bits(row.model)
    row.train(steps=4)
    moved, after = {name for name, value in bits(row.model).items() if before[name] != value}, row.computed()
    row.reset()
    assert row.loss(after) < row.loss(row.trained) and moved <= trains
    if variant != "dropped":
        assert moved >= {id(weight) for layer in row.layers for weight in layer.learned}


@of(*DOORS)
def test_a_directory_brings_every_weight_back(row):
    saved = json.loads((row.directory / "tf_adapters.json").read_text())["adapter"]
    assert config_from_dict(saved) == row.config
    np.testing.assert_array_equal(row.door.called(row.loaded(), row.given), row.trained)


@of(*DOORS)
def test_another_adapter_takes_over_and_gives_back(row):
    model = row.model
    add_adapters(model, AdapterConfig(bottleneck_size=3), name="two", seed=2)
    randomize(model, 2, scale=0.1)
    two = row.computed()
    assert np.abs(two - row.trained).max() > 1e-3
    load_adapter(model, row.directory, name="alike")
    np.testing.assert_allclose(row.computed(), row.trained, atol=2e-6)
    alike = row.door.called(randomize(row.loaded(), 3, scale=0.1), row.given)
    assert np.abs(alike - row.trained).max() > 1e-3
    randomize(model, 3, scale=0.1)
    np.testing.assert_allclose(row.computed(), alike, atol=2e-6)
    for name, expected in (("default", row.trained), ("alike", alike), ("two", two)):
        set_active(model, name)
        np.testing.assert_allclose(row.computed(), expected, atol=2e-6)
    with disable_adapters(model):
        now = bits(model)
        inside = {id(weight) for weight in row.state.backbone_variables(model)} & set(row.before)
        assert inside and all(now[name] == row.before[name] for name in inside)
    np.testing.assert_allclose(row.computed(), two, atol=2e-6)
    remove_adapters(model, name="two")
    remove_adapters(model, name="alike")
    assert bits(model).keys() >= row.before.keys() and row.state.active == "default"
    np.testing.assert_allclose(row.computed(), row.trained, atol=2e-6)


@of("first")
def test_fast_blocks_compute_the_same_or_are_refused(row, family):
    if family in FAST:
        np.testing.assert_allclose(row.door.called(row.loaded(fast=True), row.given), row.trained, atol=1e-5)
        return
    is_refused("fast=True: .* no fast blocks", row.loaded, fast=True)


@pytest.mark.nightly
@of(*DOORS)
def test_it_is_compiled_to_the_same_and_computes_and_trains_in_mixed_precision(row):
    np.testing.assert_allclose(row.door.compiled(row.model, row.given), row.trained, atol=1e-5)
    half = row.loaded(dtype="mixed_bfloat16")
    found = row.door.called(half, row.given)
    # Eight significant bits, over three blocks.
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, row.trained, atol=0.1 * np.abs(row.trained).max())
    assert np.isfinite(row.train(set_trainable(half), 1)).all()


@pytest.mark.nightly
@of("second")
def test_both_doors_compute_the_same(row, family, tmp_path):
    from tests.keras_hub_models import hidden_states, inputs

    def of_first(other):
        return other(inputs(family)[0], training=False).logits.numpy()

    model, other = row.model, FirstDoor.of_second(family)
    np.testing.assert_allclose(*(hidden_states(one, family) for one in (row.door.build(family), other)), atol=1e-5)
    assert backbone_digest(model) == backbone_digest(other)
    load_adapter(other, row.directory)
    np.testing.assert_allclose(of_first(other), row.trained, atol=1e-5)
    set_trainable(other)
    randomize(other, 1, scale=0.1)
    assert np.abs(of_first(other) - row.trained).max() > 1e-3
    load_adapter(model, save_adapter(other, tmp_path / "other"), name="other")
    np.testing.assert_allclose(row.computed(), of_first(other), atol=1e-5)
    remove_adapters(model, name="other")
    named, counts = [], []
    for one in (model, other):
        state = state_of(one)
        adapters = {id(variable) for variable in state.adapter_variables()}
        rest = [variable for variable in one.trainable_variables if id(variable) not in adapters]
        named.append(sorted(state.door.named_weights(one, rest)))
        # KerasHub's ELECTRA has a pooler that no checkpoint of it has.
        counts.append(dataclasses.replace(parameter_counts(one), total=0))
    assert named[0] == named[1] and counts[0] == counts[1]


@of(*DOORS)
def test_removal_restores_every_bit(row):
    remove_adapters(row.model)
    assert bits(row.model) == row.before
    assert list(map(type, row.state.family.blocks(row.model))) == row.blocks
    np.testing.assert_array_equal(row.computed(), row.plain)
    assert all(weight.trainable for weight in row.model.weights)
