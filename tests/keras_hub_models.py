"""Tiny encoders and models of KerasHub, what they are asked, and the adapters that the second door's tests put in.

Who imports it is skipped where KerasHub is not installed. On another backend: `KERAS_BACKEND=jax python -m pytest ...`.
"""

import functools
import importlib
import json
import pathlib
import tempfile

import numpy as np
import pytest
from safetensors.numpy import save_file

keras = pytest.importorskip("keras", minversion="3.10", reason="needs KerasHub")
keras_hub = pytest.importorskip("keras_hub", reason="needs KerasHub")

import tf_adapters
from tests.conftest import VOCABULARY, randomize
from tests.families import KERAS_HUB as SIZES
from tests.table import METHODS as CONFIGS
from tests.table import SecondDoor
from tf_adapters.models.door import door_of
from tf_adapters.models.keras_hub import door
from tf_adapters.models.keras_hub.families import FAMILIES as DESCRIBED
from tf_adapters.models.state import state_of

BACKEND = keras.backend.backend()
FAMILIES = SecondDoor.families
OF_MASKED_WORDS = tuple(family for family in FAMILIES if family != "electra")  # KerasHub has no head for it
LABELS = np.array([0, 1, 1])
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


def needs_first():
    """Skip the test where the first door is not installed; its operations."""
    pytest.importorskip("tf_keras", reason="needs the first door")
    return importlib.import_module("tf_adapters.layers.ops.keras2")


def first(checkpoint, **settings):
    """A model of the first door."""
    needs_first()
    return tf_adapters.load_backbone(str(checkpoint), door="transformers", **settings)


def adapted(model, config="houlsby", seed=1, **settings):
    """The model with an adapter that is no longer as it began."""
    tf_adapters.add_adapters(model, CONFIGS.get(config, config), seed=seed, **settings)
    return randomize(model, seed, scale=0.1)


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


def _choices(given):
    """Each row of inputs as a text with three choices: itself, and the rows behind it."""
    return {name: np.stack([np.roll(value, -shift, 0) for shift in range(3)], 1) for name, value in given.items()}


def given(model, family):
    """What a model of the second door is asked."""
    theirs = inputs(family)[1]
    if door_of(model).family_of(model).head_of(model) == "multiple-choice":
        theirs = _choices(theirs)
    theirs["mask_positions"] = np.tile(np.array(PLACES, "int32"), (3, 1))
    return {name: theirs[name] for name in model.input}


def answers(model, family, ask=None):
    """Logits of either door, or of the second one's backbone the hidden states; `ask` is a way to call a model of the
    second door, such as its `predict`."""
    if isinstance(model, keras.Model):
        return array((ask or model)(given(model, family)))
    head, ours = door_of(model).family_of(model).head_of(model), inputs(family)[0]
    outputs = model(_choices(ours) if head == "multiple-choice" else ours, training=False)
    if head == "question-answering":
        return np.concatenate([outputs.start_logits, outputs.end_logits], -1)
    return outputs.logits.numpy()[:, PLACES] if head == "masked-lm" else outputs.logits.numpy()


def predicted(model, family):
    """As `answers`, through the graph that Keras keeps for `predict`."""
    return answers(model, family, lambda given: model.predict(given, verbose=0))


def array(outputs):
    """What a model of the second door computed: of a backbone its hidden states, of an answer start and end."""
    if isinstance(outputs, dict):
        names = ["sequence_output"] if "sequence_output" in outputs else ["start_logits", "end_logits"]
        return np.concatenate([array(outputs[name]) for name in names], -1)
    return np.asarray(keras.ops.convert_to_numpy(keras.ops.cast(outputs, "float32")))


def hidden_states(model, family):
    """What the encoder makes of the tokens that are no padding, through either door."""
    ours, theirs = inputs(family)
    encoder, real = state_of(model).family.main_layer(model), theirs["padding_mask"].astype(bool)
    found = answers(encoder, family) if isinstance(encoder, keras.Model) else encoder(ours, training=False)[0].numpy()
    return found[real]


def crossentropy():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def learn(model, given, targets, epochs=6, **options):
    """Train a model; the loss falls. It is that without dropout, which may hide what a few steps gain."""
    model.compile(optimizer=keras.optimizers.Adam(1e-2), loss=crossentropy(), weighted_metrics=[])
    before = model.evaluate(given, targets, verbose=0, **options)
    model.fit(given, targets, epochs=epochs, verbose=0, **options)
    assert model.evaluate(given, targets, verbose=0, **options) < before


def bits(model):
    return {weight.path: keras.ops.convert_to_numpy(weight).tobytes() for weight in model.weights}


def small_backbone(kind="Bert", vocabulary_size=50):
    own = {"embedding_dim": 8} if kind == "Albert" else {}
    return getattr(keras_hub.models, f"{kind}Backbone")(
        vocabulary_size=vocabulary_size, num_layers=2, num_heads=2, hidden_dim=16, intermediate_dim=24,
        max_sequence_length=20, **own,
    )  # fmt: skip
