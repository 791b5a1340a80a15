"""Tiny encoders and models of KerasHub, what they are asked, and the adapters that the second door's tests put in."""

import functools
import json
import pathlib
import tempfile

import numpy as np
import pytest
from safetensors.numpy import save_file

keras = pytest.importorskip("keras", minversion="3.10", reason="needs the extra `keras-hub`")
keras_hub = pytest.importorskip("keras_hub", reason="needs the extra `keras-hub`")

import tf_adapters  # noqa: E402
from tests.conftest import VOCABULARY  # noqa: E402
from tests.families import KERAS_HUB as SIZES  # noqa: E402
from tests.table import METHODS as CONFIGS  # noqa: E402, F401
from tests.table import SMALL, SecondDoor  # noqa: E402, F401
from tf_adapters.models.door import door_of  # noqa: E402
from tf_adapters.models.keras_hub import door  # noqa: E402
from tf_adapters.models.keras_hub.families import FAMILIES as DESCRIBED  # noqa: E402
from tf_adapters.models.state import state_of  # noqa: E402

FAMILIES = SecondDoor.families
CLASSIFIERS = tuple(family for family in FAMILIES if family != "electra")  # KerasHub has no head for it
MODES = ("full", "top-1", "layer-norm", "bias", "head", "adapters")
_FOLDER = tempfile.TemporaryDirectory()


def write_checkpoint(family, directory, **changes):
    """A tiny encoder with random weights, every bias included, as transformers would write it."""
    usual = {"type_vocab_size": 2, "hidden_act": "gelu", "activation": "gelu"}
    config = {**usual, **SIZES[family], **changes, "model_type": family}
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    if family not in DESCRIBED:
        return directory
    described, random = DESCRIBED[family], np.random.default_rng(0)
    backbone = described.backbone(**described.arguments(config))
    described.prepare(backbone, config)
    arrays = {}
    for variable, name, transposed in described.names(backbone):
        shape = door.shape(variable)[::-1] if transposed else door.shape(variable)
        scale = random.normal(0, 0.05, shape).astype("float32")
        arrays[name] = scale + 1 if name.endswith("LayerNorm.weight") or "layer_norm.weight" in name else scale
    save_file(arrays, str(directory / "model.safetensors"))
    return directory


@functools.cache
def checkpoint(family):
    """Directory of a family's tiny encoder, made once a process."""
    return write_checkpoint(family, pathlib.Path(_FOLDER.name, family))


def first(checkpoint, **settings):
    """A model of the first door."""
    pytest.importorskip("tf_keras", reason="needs the first door")
    return tf_adapters.load_backbone(str(checkpoint), door="transformers", **settings)


def inputs(family):
    """The same three rows of nine tokens for each door, the first padded."""
    random, pad = np.random.default_rng(0), SIZES[family].get("pad_token_id", 0)
    ids, mask = random.integers(5, len(VOCABULARY), (3, 9)).astype("int32"), np.ones((3, 9), "int32")
    ids[0, 5:], mask[0, 5:] = pad, 0
    ours = {"input_ids": ids, "attention_mask": mask}
    if family not in ("distilbert", "roberta", "xlm-roberta", "camembert"):
        ours["token_type_ids"] = np.zeros((3, 9), "int32")
    theirs = {"token_ids": ids, "padding_mask": mask, "segment_ids": np.zeros((3, 9), "int32")}
    return ours, theirs


PLACES = [1, 4, 2]  # of words to guess, in each row


def choices(given):
    """Each row of inputs as a text with three choices: itself, and the rows behind it."""
    return {name: np.stack([np.roll(value, -shift, 0) for shift in range(3)], 1) for name, value in given.items()}


def answers(model, family):
    """Logits of either door, or of the second one's backbone the hidden states."""
    ours, theirs = inputs(family)
    head = door_of(model).family_of(model).head_of(model)
    if head == "multiple-choice":
        ours, theirs = choices(ours), choices(theirs)
    if not isinstance(model, keras.Model):
        logits = model(ours, training=False).logits.numpy()
        return logits[:, PLACES] if head == "masked-lm" else logits
    theirs["mask_positions"] = np.tile(np.array(PLACES, "int32"), (3, 1))
    outputs = model.predict({name: theirs[name] for name in model.input}, verbose=0)
    return outputs["sequence_output"] if isinstance(outputs, dict) else outputs


def hidden_states(model, family):
    """What the encoder makes of the tokens that are no padding, through either door."""
    ours, theirs = inputs(family)
    encoder, real = state_of(model).family.main_layer(model), theirs["padding_mask"].astype(bool)
    found = answers(encoder, family) if isinstance(encoder, keras.Model) else encoder(ours, training=False)[0].numpy()
    return found[real]


def fill(model, seed=0):
    """Values as after training: every weight of the acting adapter, its LayerNorms and the head is another."""
    random, state = np.random.default_rng(seed), state_of(model)
    state.origin(model)
    adapter = state.adapters[state.active]
    variables = [weight for layer in adapter.layers.values() for weight in layer.weights]
    variables += state.head_variables(model)
    if adapter.config.train_layer_norm != "none":
        variables += state.layer_norm_variables(model, adapter.config.train_layer_norm, adapter.config.blocks)
    for variable in variables:
        variable.assign(
            np.asarray(state.door.read(variable)) + random.normal(0, 0.1, tuple(variable.shape)).astype("float32")
        )


def learn(model, given, targets, epochs=6, **options):
    """Train a compiled model; the loss falls. It is that without dropout, which may hide what a few steps gain."""
    before = model.evaluate(given, targets, verbose=0, **options)
    model.fit(given, targets, epochs=epochs, verbose=0, **options)
    assert model.evaluate(given, targets, verbose=0, **options) < before


def bits(model):
    return {weight.path: keras.ops.convert_to_numpy(weight).tobytes() for weight in model.weights}


def small_backbone(kind="Bert"):
    own = {"embedding_dim": 8} if kind == "Albert" else {}
    return getattr(keras_hub.models, f"{kind}Backbone")(
        vocabulary_size=50, num_layers=2, num_heads=2, hidden_dim=16, intermediate_dim=24, max_sequence_length=20, **own
    )


def words_to_guess(model):
    """Inputs of a task model of masked words, and the words at the places."""
    random = np.random.default_rng(0)
    ids = random.integers(1, 50, (4, 9)).astype("int32")
    given = {
        "token_ids": ids, "padding_mask": np.ones_like(ids), "segment_ids": np.zeros_like(ids),
        "mask_positions": np.tile(np.array(PLACES, "int32"), (4, 1)),
    }  # fmt: skip
    return {name: given[name] for name in model.input}, random.integers(1, 50, (4, 3))


def hidden(backbone):
    return backbone.predict(inputs("bert")[1], verbose=0)
