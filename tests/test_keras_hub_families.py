"""Every family of KerasHub with every variant, as tests/test_families.py has them for the first door.

    python benchmarks/conformance.py --backends tensorflow jax

runs all on each backend.
"""

import dataclasses
import re

import numpy as np
import pytest

keras = pytest.importorskip("keras", minversion="3.10", reason="needs the extra `keras-hub`")
pytest.importorskip("keras_hub", reason="needs the extra `keras-hub`")
pytest.importorskip("tf_keras", reason="compares with the first door")

import tf_adapters  # noqa: E402
from tests.cases import nightly_but  # noqa: E402
from tests.keras_hub_models import CONFIGS, FAMILIES, fill, hidden_states, inputs  # noqa: E402
from tf_adapters import InputError  # noqa: E402
from tf_adapters._keras3_internals import let_compiler_recurse  # noqa: E402
from tf_adapters.models import backbone_digest, frozen_digest  # noqa: E402
from tf_adapters.models.keras_hub.door import Called  # noqa: E402
from tf_adapters.models.keras_hub.loading import load_backbone  # noqa: E402
from tf_adapters.models.state import state_of  # noqa: E402

CASES = nightly_but([], [(family, variant) for family in FAMILIES for variant in CONFIGS])
LABELS = np.array([0, 1, 1])


def load(checkpoint, family, **settings):
    """A classifier, or where KerasHub has none the encoder."""
    return load_backbone(checkpoint, head="none" if family == "electra" else "classification", **settings)


def given(model, family):
    theirs = inputs(family)[1]
    return {name: theirs[name] for name in model.input}


def outputs(model, family):
    """Logits, or of an encoder its hidden states where there is no padding."""
    found = Called(model).predict_on_batch(inputs(family)[1])
    found = found["sequence_output"][1:] if isinstance(found, dict) else found
    return np.asarray(found, np.float32)


def outputs_of_first_door(model, family):
    found = model(inputs(family)[0], training=False)
    return found.logits.numpy() if hasattr(found, "logits") else found[0].numpy()[1:]


def largest(one, other):
    """The largest difference of two arrays."""
    return float(np.abs(one - other).max())


def train(model, family):
    keras.utils.set_random_seed(0)  # of dropout, which may hide what four steps gain
    if family == "electra":
        hidden = model(model.input)
        model = keras.Model(model.input, keras.layers.Dense(2)(hidden["sequence_output"][:, 0]))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.Adam(1e-2), loss=loss)
    losses = [float(model.train_on_batch(given(model, family), LABELS, return_dict=True)["loss"]) for _ in range(4)]
    assert losses[-1] < losses[0]


def values(model):
    return {weight.path: np.array(weight) for weight in model.weights}


@pytest.mark.parametrize("family, variant", CASES)
def test_every_variant_trains_alone_and_is_the_first_doors(checkpoints, family, variant, tmp_path, record_property):
    config = CONFIGS[variant]
    model = load(checkpoints(family), family)
    other = tf_adapters.load_backbone(
        str(checkpoints(family)), head="none" if family == "electra" else "classification", door="transformers"
    )
    record_property("checks", "encoder within 1e-5 of the first door's")
    plain, before = values(model), outputs(model, family)
    encoders = [hidden_states(one, family) for one in (model, other)]
    record_property("differences", {"encoder": largest(*encoders)})
    np.testing.assert_allclose(*encoders, atol=1e-5)
    assert backbone_digest(model) == backbone_digest(other)
    try:
        config.sites(len(state_of(model).family.blocks(model)))
    except InputError as error:  # ALBERT's tiny encoder has a single block
        for one in (model, other):
            with pytest.raises(InputError, match=re.escape(str(error))):
                tf_adapters.add_adapters(one, config)
        record_property("refused", str(error))
        return
    record_property("checks", "exact trainable names and counts")
    for one in (model, other):
        tf_adapters.set_trainable(tf_adapters.add_adapters(one, config, seed=0))
    named = []
    for one in (model, other):
        state = state_of(one)
        adapters = {id(variable) for variable in state.adapter_variables()}
        rest = [variable for variable in one.trainable_variables if id(variable) not in adapters]
        named.append((len(one.trainable_variables), sorted(state.door.named_weights(one, rest))))
    counts = [tf_adapters.parameter_counts(one) for one in (model, other)]
    if family == "electra":
        # KerasHub's has a pooler that no checkpoint of it has.
        counts = [dataclasses.replace(one, total=0) for one in counts]
    assert named[0] == named[1] and counts[0] == counts[1]
    record_property("checks", "frozen bit-equal after training")
    frozen = frozen_digest(model)
    train(model, family)
    assert frozen_digest(model) == frozen
    record_property("checks", "through a directory within 1e-5 of the first door, both ways")
    fill(model)
    tf_adapters.save_adapter(model, tmp_path / "saved")
    trained = outputs(model, family)
    assert np.abs(trained - before).max() > 1e-3
    tf_adapters.load_adapter(other, tmp_path / "saved", name="again")
    of_first = outputs_of_first_door(other, family)
    record_property("differences", {"to the first door": largest(trained, of_first)})
    np.testing.assert_allclose(trained, of_first, atol=1e-5)
    fill(other, seed=1)
    tf_adapters.save_adapter(other, tmp_path / "of first")
    of_first = outputs_of_first_door(other, family)
    assert np.abs(of_first - trained).max() > 1e-3
    tf_adapters.load_adapter(model, tmp_path / "of first", name="of_first")
    from_first = outputs(model, family)
    tf_adapters.set_active(model, "default")
    tf_adapters.remove_adapters(model, name="of_first")
    record_property("differences", {"from the first door": largest(from_first, of_first)})
    np.testing.assert_allclose(from_first, of_first, atol=1e-5)
    record_property("checks", "saved and loaded bit-equal")
    again = load(checkpoints(family), family)
    tf_adapters.load_adapter(again, tmp_path / "saved")
    np.testing.assert_array_equal(outputs(again, family), trained)
    # PyTorch's compiler takes a minute for each.
    if keras.backend.backend() != "torch" or (family, variant) in (("bert", "houlsby"), ("roberta", "lora")):
        record_property("checks", "compiled within 1e-5")
        let_compiler_recurse()
        called = Called(model)
        called.jit_compile = True
        found = called.predict_on_batch(inputs(family)[1])
        found = found["sequence_output"][1:] if isinstance(found, dict) else found
        np.testing.assert_allclose(keras.ops.convert_to_numpy(found), trained, atol=1e-5)
    record_property("checks", "bfloat16 within its rounding")
    half = load(checkpoints(family), family, dtype="mixed_bfloat16")
    tf_adapters.load_adapter(half, tmp_path / "saved")
    np.testing.assert_allclose(outputs(half, family), trained, atol=0.1 * np.abs(trained).max())
    record_property("checks", "removal restores every bit")
    tf_adapters.remove_adapters(model)
    encoder = {id(weight) for weight in state_of(model).family.main_layer(model).weights}
    after = {weight.path: np.array(weight) for weight in model.weights if id(weight) in encoder}
    assert all(np.array_equal(plain[name], value) for name, value in after.items())
