"""Keras' own files of weights: right for one adapter, refused where they would part what acts from what is there."""

import numpy as np
import pytest

from tests.conftest import is_refused, randomize
from tests.table import DOORS
from tf_adapters import AdapterConfig, add_adapters, disable_adapters, remove_adapters, set_active, set_trainable
from tf_adapters.models import active_adapter, backbone_digest, freeze
from tf_adapters.models.state import state_of

SMALL = AdapterConfig(bottleneck_size=4)
FORMATS = {"first": ("weights", "weights.h5"), "second": ("all.weights.json", "all.weights.h5")}


@pytest.fixture(params=DOORS.values(), ids=list(DOORS))
def door(request):
    return request.param


def adapted(door, names=("a",), encoder=0.0, config=SMALL):
    """A model with adapters, its encoder moved by so much."""
    model = door.build("bert")
    for weight in state_of(model).family.main_layer(model).weights:
        weight.assign(weight + encoder)
    for seed, name in enumerate(names):
        randomize(add_adapters(model, config, name=name, seed=seed), seed + 1, scale=0.1)
    return model


def save(model, file):
    """Write a file of weights; an index of several where the name says so."""
    model.save_weights(file, **({"max_shard_size": 1e-4} if file.endswith(".json") else {}))


def answers(door, model):
    return door.called(model, door.given(model, "bert"))


def test_one_adapter_comes_back_and_acts_as_before(door, tmp_path):
    model = adapted(door)
    wanted = answers(door, model)
    with disable_adapters(model):
        plain = answers(door, model)
        for name in ("save_weights", "load_weights"):
            is_refused(
                f"^{name}: inside disable_adapters", getattr(model, name), str(tmp_path / FORMATS[door.name][-1])
            )
    other = adapted(door, ("before",))
    remove_adapters(other)  # so that the next one has another number than the model's
    add_adapters(other, SMALL, name="a", seed=9)
    for file in FORMATS[door.name]:
        save(model, str(tmp_path / file))
        other.load_weights(str(tmp_path / file))
        fresh = adapted(door)
        set_active(other, "a")
        save(other, str(tmp_path / file))
        fresh.load_weights(str(tmp_path / file))
        np.testing.assert_array_equal(answers(door, fresh), wanted)
        assert active_adapter(other) == "a"
        np.testing.assert_array_equal(answers(door, other), wanted)
        with disable_adapters(other):
            # The head stays.
            np.testing.assert_array_equal(answers(door, other), plain)
        set_active(other, "a")
        np.testing.assert_array_equal(answers(door, other), wanted)


def test_files_of_one_of_several_adapters_are_refused(door, tmp_path):
    file = str(tmp_path / FORMATS[door.name][-1])
    adapted(door).save_weights(file)
    model = adapted(door, ("a", "b"))
    before = answers(door, model)
    for one in {model, getattr(model, "backbone", model)}:
        for name in ("save_weights", "load_weights"):
            is_refused(rf"^{name}: each adapter of the model \(a, b\).*save_adapter", getattr(one, name), file)
    np.testing.assert_array_equal(answers(door, model), before)


def test_a_file_of_another_encoder_changes_nothing_or_is_known_for_what_it_is(door, tmp_path):
    file = str(tmp_path / FORMATS[door.name][-1])
    source = adapted(door, encoder=0.03)
    source.save_weights(file)
    model = adapted(door)
    before, digest = answers(door, model), backbone_digest(model)
    is_refused("another encoder, or one that was trained: load that encoder first", model.load_weights, file)
    np.testing.assert_array_equal(answers(door, model), before)
    # What trains may differ.
    set_trainable(model, "full").load_weights(file)
    np.testing.assert_array_equal(answers(door, model), answers(door, source))
    assert backbone_digest(model) == digest != backbone_digest(source)
    # Without an adapter the encoder is what was loaded.
    plain, other = freeze(adapted(door, ())), freeze(adapted(door, (), encoder=0.03))
    assert backbone_digest(plain) != backbone_digest(other)
    other.save_weights(file)
    plain.load_weights(file)
    assert backbone_digest(plain) == backbone_digest(other)


def test_a_damaged_file_is_a_sentence_and_changes_nothing(door, tmp_path):
    model = adapted(door)
    before = answers(door, model)
    for number, name in enumerate(FORMATS[door.name]):
        path = tmp_path / str(number) / name
        path.parent.mkdir()
        save(model, str(path))
        for file in path.parent.iterdir():
            if file.suffix != ".index":
                file.write_bytes(file.read_bytes()[:-100])
        is_refused(rf"^load_weights: .*{name} is damaged", model.load_weights, str(path))
        np.testing.assert_array_equal(answers(door, model), before)


def test_a_file_that_does_not_fit_leaves_the_model_as_it_was(door, tmp_path):
    file = str(tmp_path / FORMATS[door.name][-1])
    adapted(door, config=AdapterConfig(bottleneck_size=3)).save_weights(file)
    model = adapted(door)
    before = answers(door, model)
    with pytest.raises(ValueError):
        model.load_weights(file)
    np.testing.assert_array_equal(answers(door, model), before)
    # Of these Keras would read a part, and say nothing.
    other, model = (adapted(door, config=AdapterConfig(4, sharing=sharing)) for sharing in ("layer", 2))
    before = answers(door, model)
    for name in FORMATS[door.name][: 1 if door.name == "first" else 2]:
        save(other, str(tmp_path / name))
        is_refused("has another adapter than", model.load_weights, str(tmp_path / name))
        np.testing.assert_array_equal(answers(door, model), before)


def test_what_set_weights_brings_changes_nothing_of_what_acts(door):
    model = adapted(door, ("a", "b"))
    with disable_adapters(model):
        weights = model.get_weights()
    model.set_weights(weights)
    assert int(state_of(model).acting.number) == state_of(model).adapters["b"].number == 2


def test_files_of_larger_models_and_checkpoints_of_tensorflow_are_refused_as_well(door, tmp_path):
    tf = pytest.importorskip("tensorflow")

    def around(model):
        outer = door.keras().Model()
        outer.inner, outer.built = model, True
        return outer

    def uses(model):
        uses = {name: lambda name=name: getattr(around(model), name)(file) for name in ("save_weights", "load_weights")}
        if door.keras().backend.backend() == "tensorflow":
            uses["tf.train.Checkpoint"] = lambda: tf.train.Checkpoint(model=model).write(checkpoint)
            uses["tf.train.Checkpoint:"] = lambda: tf.train.Checkpoint(model=model).read(checkpoint)
        return uses

    file, checkpoint = str(tmp_path / "outer.weights.h5"), str(tmp_path / "checkpoint")
    model = adapted(door)
    before = answers(door, model)
    for use in uses(model).values():
        use()
    np.testing.assert_array_equal(answers(door, model), before)
    with disable_adapters(model):
        for name, use in uses(model).items():
            with pytest.raises(ValueError, match=f"{name}.* inside disable_adapters"):  # Keras 3 gathers the reasons
                use()
    model = adapted(door, ("a", "b"))
    before = answers(door, model)
    for name, use in uses(model).items():
        with pytest.raises(ValueError, match=rf"{name}.*each adapter of the model \(a, b\)"):
            use()
    np.testing.assert_array_equal(answers(door, model), before)
