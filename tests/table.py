"""The table of cases: a row is a door, a family of encoders and a method. tests/test_table.py has the checks that each
row passes; here is what differs between the doors."""

import importlib.util
import os

import numpy as np
from scipy.special import log_softmax

from tests.cases import nightly_but
from tests.conftest import randomize
from tests.families import FAMILIES, family_inputs, family_model
from tf_adapters import AdapterConfig, InputError, LoraConfig, load_adapter
from tf_adapters.config import DENSE_PLACES
from tf_adapters.methods import DoraConfig, FusionConfig, IA3Config
from tf_adapters.models.state import state_of

SMALL = {"bottleneck_size": 4}
PFEIFFER = AdapterConfig(
    4, insertion="after-norm", placement="ffn", activation="relu", init_stddev=0.3, train_layer_norm="none"
)
METHODS = {
    "houlsby": AdapterConfig(**SMALL),
    "one a block": AdapterConfig(**SMALL, sharing="layer", activation="tanh", train_layer_norm="none"),
    "shared": AdapterConfig(**SMALL, sharing=2, train_layer_norm="encoder"),
    "upper": AdapterConfig(**SMALL, blocks=(1, 2), placement="ffn", train_layer_norm="adapted"),
    "after norm": AdapterConfig(**SMALL, insertion="after-norm", placement="ffn", activation="relu"),
    "attention": AdapterConfig(**SMALL, placement="attention"),
    "parallel": AdapterConfig(**SMALL, insertion="parallel", scaling=4.0),
    "scaled": AdapterConfig(**SMALL, insertion="parallel", scaling="learned"),
    "deep": AdapterConfig(**SMALL, hidden_layers=2, inner_norm="before", scaling="learned"),
    "norm after": AdapterConfig(**SMALL, inner_norm="after"),
    "multiply": AdapterConfig(**SMALL, interaction="multiply", inner_norm="after"),
    "dropped": AdapterConfig(**SMALL, random_drop=2, dropout=0.1),
    "lora": LoraConfig(rank=2, targets=DENSE_PLACES),
    "dora": DoraConfig(rank=2, targets=("value", "attention_output", "intermediate")),
    "ia3": IA3Config(),
    "fusion": FusionConfig({"owner/a": AdapterConfig(**SMALL), "b": AdapterConfig(bottleneck_size=3)}),
}
LABELS = np.array([0, 1, 1])


class FirstDoor:
    """transformers' models on tf_keras."""

    name, families, depth = "first", tuple(FAMILIES), 3

    @staticmethod
    def keras():
        from tf_adapters._keras import keras

        return keras

    @staticmethod
    def build(family, dtype="float32"):
        policy = FirstDoor.keras().mixed_precision
        policy.set_global_policy(dtype)
        try:
            return family_model(family)
        finally:
            policy.set_global_policy("float32")

    @staticmethod
    def of_second(family):
        """A model with the encoder that the second door's models have."""
        from tests.keras_hub_models import checkpoint, first

        return first(checkpoint(family))

    @staticmethod
    def given(model, family):
        return family_inputs(family)

    @staticmethod
    def called(model, inputs):
        return model(inputs, training=False)[0].numpy()

    @staticmethod
    def trains_eagerly():
        return True

    @staticmethod
    def compiled(model, inputs):
        import tensorflow as tf

        return tf.function(lambda: model(inputs).logits, jit_compile=True)().numpy()


class SecondDoor:
    """KerasHub's models on Keras 3."""

    name, depth = "second", 3
    families = ("albert", "bert", "camembert", "deberta-v2", "distilbert", "electra", "roberta", "xlm-roberta")

    @staticmethod
    def keras():
        import keras

        return keras

    @staticmethod
    def build(family, dtype="float32"):
        from tests.keras_hub_models import checkpoint
        from tf_adapters.models.keras_hub.loading import load_backbone

        return load_backbone(checkpoint(family), dtype=dtype)

    @staticmethod
    def given(model, family):
        from tests.keras_hub_models import inputs

        return {name: inputs(family)[1][name] for name in model.input}

    @staticmethod
    def called(model, inputs):
        from tests.keras_hub_models import array

        return array(model(inputs, training=False))

    @staticmethod
    def trains_eagerly():
        return SecondDoor.keras().backend.backend() == "tensorflow"

    @staticmethod
    def compiled(model, inputs):
        from tf_adapters._keras3_internals import let_compiler_recurse
        from tf_adapters.models.keras_hub.door import Called

        let_compiler_recurse()
        called = Called(model)
        called.jit_compile = True
        return SecondDoor.called(lambda given, training: called.predict_on_batch(given), inputs)


def _doors():
    """Those that are installed; on another backend than TensorFlow the first one would only say the same again."""
    if importlib.util.find_spec("tf_keras") and os.environ.get("KERAS_BACKEND", "tensorflow") == "tensorflow":
        yield FirstDoor
    if importlib.util.find_spec("keras_hub"):
        yield SecondDoor


def _stands(family, method):
    try:
        METHODS[method].sites(1 if family == "albert" else 3)
    except InputError:
        return False
    return True


DOORS = {door.name: door for door in _doors()}
_QUICK = {
    ("first", "bert", "norm after"), ("first", "albert", "after norm"), ("first", "distilbert", "lora"),
    ("second", "bert", "houlsby"),
}  # fmt: skip
_ROWS = [
    (door.name, family, method)
    for door in DOORS.values()
    for family in door.families
    for method in METHODS
    if _stands(family, method)
]
ROWS = nightly_but(_QUICK & set(_ROWS), _ROWS)


class Subject:
    """A row's model with an adapter that is no longer as it began. Checks share it: each leaves it by `reset`.

    Attributes:
        plain, start, trained: what the encoder computes alone, with the new adapter, and with the adapter that learned.
        before: bytes of every weight of the encoder alone, by the variables' ids.
    """

    def __init__(self, door, family, method, folder):
        from tf_adapters import add_adapters, save_adapter, set_trainable

        self.door, self.family, self.config = DOORS[door], family, METHODS[method]
        self.model = self.door.build(family)
        self.given = self.door.given(self.model, family)
        self.before, self.plain = bits(self.model), self.computed()
        self.blocks = list(map(type, self.state.family.blocks(self.model)))
        add_adapters(self.model, self.config, seed=0)
        set_trainable(self.model)
        self.start, self.at_start = self.computed(), values(self.model)
        randomize(self.model, scale=0.1)
        self.trained, self.learned = self.computed(), values(self.model)
        self.directory = save_adapter(self.model, folder)

    @property
    def state(self):
        return state_of(self.model)

    @property
    def layers(self):
        """The adapter's layers, each once."""
        layers = self.state.adapters["default"].layers.values()
        return list({id(layer): layer for layer in layers}.values())

    def computed(self):
        return self.door.called(self.model, self.given)

    def reset(self):
        put(self.model, self.learned)

    def train(self, model=None, steps=2):
        """The losses of some steps."""
        keras, model = self.door.keras(), model or self.model
        keras.utils.set_random_seed(0)
        loss, eager = keras.losses.SparseCategoricalCrossentropy(from_logits=True), self.door.trains_eagerly()
        model.compile(optimizer=keras.optimizers.Adam(1e-3), loss=loss, run_eagerly=eager)
        return [float(model.train_on_batch(self.given, LABELS, return_dict=True)["loss"]) for _ in range(steps)]

    def loss(self, logits):
        return -log_softmax(logits.astype("float64"), axis=1)[range(len(LABELS)), LABELS].mean()

    def loaded(self, door=None, dtype="float32", **options):
        """Another model with this one's adapter."""
        model = (door or self.door).build(self.family, dtype)
        load_adapter(model, self.directory, **options)
        return model


def weights(model):
    return state_of(model).door.weights(model)


def values(model):
    state = state_of(model)
    return [np.array(state.door.read(weight)) for weight in weights(model)]


def bits(model):
    return {id(weight): value.tobytes() for weight, value in zip(weights(model), values(model))}


def put(model, kept):
    for weight, value in zip(weights(model), kept):
        weight.assign(value)
