"""Keras' own files of weights: right for one adapter, refused where they would part what acts from what is there."""

import numpy as np
import pytest

import tf_adapters._keras
from tests.conftest import randomize, tiny_inputs, tiny_model
from tf_adapters import (
    AdapterConfig,
    InputError,
    active_adapter,
    add_adapters,
    backbone_digest,
    disable_adapters,
    freeze,
    load_backbone,
    remove_adapters,
    set_active,
    set_trainable,
)

SMALL = AdapterConfig(bottleneck_size=4)


class FirstDoor:
    formats = ("weights", "weights.h5")

    def model(self, seed=0):
        return tiny_model(seed=seed, num_hidden_layers=2)

    def answers(self, model):
        return model(tiny_inputs()).logits.numpy()

    keras = tf_adapters._keras.keras
    fill = staticmethod(randomize)


class SecondDoor:
    formats = ("all.weights.h5",)

    def __init__(self, make):
        pytest.importorskip("keras_hub", reason="needs the extra `keras-hub`")
        from tests import keras_hub_models

        self._tools, self._make, self.keras = keras_hub_models, make, keras_hub_models.keras
        self.fill = keras_hub_models.fill

    def model(self, seed=0):
        self._tools.keras.utils.set_random_seed(seed)
        model = load_backbone(self._make("bert"), door="keras-hub")
        for weight in model.backbone.weights if seed else ():
            weight.assign(weight + 0.01 * seed)
        return model

    def answers(self, model):
        return self._tools.answers(model, "bert")


@pytest.fixture(params=["transformers", "keras-hub"])
def door(request, checkpoints):
    return FirstDoor() if request.param == "transformers" else SecondDoor(checkpoints)


def adapted(door, names=("a",), encoder=0, filled=True):
    model = door.model(encoder)
    for seed, name in enumerate(names):
        add_adapters(model, SMALL, name=name, seed=seed)
        if filled:
            door.fill(model, seed + 1)
    return model


def test_one_adapter_comes_back_and_acts_as_before(door, tmp_path):
    model = adapted(door)
    wanted = door.answers(model)
    with disable_adapters(model):
        plain = door.answers(model)
        for name in ("save_weights", "load_weights"):
            with pytest.raises(InputError, match=f"^{name}: inside disable_adapters"):
                getattr(model, name)(str(tmp_path / door.formats[0]))
    other = door.model()
    add_adapters(other, AdapterConfig(bottleneck_size=2), name="before")
    remove_adapters(other)  # so that the next one has another number than the model's
    add_adapters(other, SMALL, name="a", seed=9)
    for file in door.formats:
        model.save_weights(str(tmp_path / file))
        other.load_weights(str(tmp_path / file))
        assert active_adapter(other) == "a"
        np.testing.assert_array_equal(door.answers(other), wanted)
        with disable_adapters(other):
            # The head stays.
            np.testing.assert_array_equal(door.answers(other), plain)
        np.testing.assert_array_equal(door.answers(other), wanted)
        set_active(other, "a")
        np.testing.assert_array_equal(door.answers(other), wanted)


def test_files_of_one_of_several_adapters_are_refused(door, tmp_path):
    file = str(tmp_path / door.formats[-1])
    adapted(door).save_weights(file)
    model = adapted(door, ("a", "b"))
    before = door.answers(model)
    for one in {model, getattr(model, "backbone", model)}:
        for name in ("save_weights", "load_weights"):
            with pytest.raises(InputError, match=rf"^{name}: each adapter of the model \(a, b\).*save_adapter"):
                getattr(one, name)(file)
    np.testing.assert_array_equal(door.answers(model), before)


def test_a_file_of_another_encoder_changes_nothing_or_is_known_for_what_it_is(door, tmp_path):
    file = str(tmp_path / door.formats[-1])
    source = adapted(door, encoder=3)
    source.save_weights(file)
    model = adapted(door)
    before, digest = door.answers(model), backbone_digest(model)
    with pytest.raises(InputError, match="another encoder, or one that was trained: load that encoder first"):
        model.load_weights(file)
    np.testing.assert_array_equal(door.answers(model), before)
    # What trains may differ.
    set_trainable(model, "full").load_weights(file)
    np.testing.assert_array_equal(door.answers(model), door.answers(source))
    assert backbone_digest(model) == digest != backbone_digest(source)
    # Without an adapter the encoder is what was loaded.
    plain, other = door.model(), freeze(door.model(3))
    assert backbone_digest(freeze(plain)) != backbone_digest(other)
    other.save_weights(file)
    plain.load_weights(file)
    assert backbone_digest(plain) == backbone_digest(other)


def test_a_file_that_does_not_fit_leaves_the_model_as_it_was(door, tmp_path):
    file = str(tmp_path / door.formats[-1])
    other = door.model()
    add_adapters(other, AdapterConfig(bottleneck_size=3), name="a", seed=1)
    door.fill(other, 1)
    other.save_weights(file)
    model = adapted(door)
    before = door.answers(model)
    with pytest.raises(ValueError):
        model.load_weights(file)
    np.testing.assert_array_equal(door.answers(model), before)


def test_files_of_larger_models_and_checkpoints_of_tensorflow_are_refused_as_well(door, tmp_path):
    tf = pytest.importorskip("tensorflow")

    def around(model):
        outer = door.keras.Model()
        outer.inner, outer.built = model, True
        return outer

    def uses(model):
        uses = {name: lambda name=name: getattr(around(model), name)(file) for name in ("save_weights", "load_weights")}
        if door.keras.backend.backend() == "tensorflow":
            uses["tf.train.Checkpoint"] = lambda: tf.train.Checkpoint(model=model).write(checkpoint)
            uses["tf.train.Checkpoint:"] = lambda: tf.train.Checkpoint(model=model).read(checkpoint)
        return uses

    file, checkpoint = str(tmp_path / "outer.weights.h5"), str(tmp_path / "checkpoint")
    model = adapted(door)
    before = door.answers(model)
    for use in uses(model).values():
        use()
    np.testing.assert_array_equal(door.answers(model), before)
    with disable_adapters(model):
        for name, use in uses(model).items():
            with pytest.raises(ValueError, match=f"{name}.* inside disable_adapters"):  # Keras 3 gathers the reasons
                use()
    model = adapted(door, ("a", "b"))
    before = door.answers(model)
    for name, use in uses(model).items():
        with pytest.raises(ValueError, match=rf"{name}.*each adapter of the model \(a, b\)"):
            use()
    np.testing.assert_array_equal(door.answers(model), before)
