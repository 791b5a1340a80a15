"""Every operation in any order on a model of each door: the first one, which is held against arrays in
tests/test_state_machine.py, says what the second one is to do."""

import functools
import pathlib
import tempfile

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

keras = pytest.importorskip("keras", minversion="3.10", reason="needs KerasHub")
pytest.importorskip("keras_hub", reason="needs KerasHub")
tf_keras = pytest.importorskip("tf_keras", reason="compares with the first door")

import tf_adapters  # noqa: E402
from tests.keras_hub_models import answers, write_checkpoint  # noqa: E402
from tests.runs import run_machine  # noqa: E402
from tf_adapters import AdapterConfig, InputError, LoraConfig  # noqa: E402
from tf_adapters.methods import DoraConfig  # noqa: E402
from tf_adapters.models import cast_frozen  # noqa: E402
from tf_adapters.models.injection import active_adapter, adapter_names  # noqa: E402
from tf_adapters.models.state import state_of  # noqa: E402

CONFIGS = {
    "two": AdapterConfig(3, init_stddev=0.5, train_layer_norm="encoder"),
    "one": AdapterConfig(3, init_stddev=0.5, sharing="layer", train_layer_norm="none"),
    "upper": AdapterConfig(2, init_stddev=0.5, blocks=(1, 2), train_layer_norm="all"),
    "lora": LoraConfig(rank=2),
    "dora": DoraConfig(rank=2),
}
NAMES = st.sampled_from(["a", "b", "c"])
MODES = st.sampled_from(["adapters", "full", "top-1", "layer-norm", "bias", "head"])


@functools.cache
def checkpoint():
    return write_checkpoint("bert", pathlib.Path(tempfile.mkdtemp()))


def trained(model):
    """What trains: variables by names that both doors have, with the door's way to write them."""
    state = state_of(model)
    own = {
        f"adapter {name}: {key}.{part}": variable
        for name, adapter in state.adapters.items()
        for key, layer in adapter.layers.items()
        for part, variable in layer.parts.items()
    }
    chosen = {id(variable) for variable in model.trainable_variables}
    known = {id(variable) for variable in own.values()}
    rest = [variable for variable in model.trainable_variables if id(variable) not in known]
    others = {name: variable for name, (variable, _) in state.door.named_weights(model, rest).items()}
    return {name: variable for name, variable in own.items() if id(variable) in chosen} | others


class BothDoors(RuleBasedStateMachine):
    """The same operations on both."""

    @initialize(policy=st.sampled_from(["float32", "mixed_float16"]), at_once=st.booleans())
    def load(self, policy, at_once):
        """Under the second policy `cast` rounds: to half precision through the first door, to eight bits else."""
        tf_keras.mixed_precision.set_global_policy(policy)
        self.half = policy != "float32"
        self.models = [
            tf_adapters.load_backbone(str(checkpoint()), door=door) for door in ("transformers", "keras-hub")
        ]
        # Each door begins a head of its own.
        self.folder, self.saved, self.contexts = tempfile.mkdtemp(), [], []
        for model in self.models:
            tf_adapters.set_trainable(model, "head")
        self.train(0, start=True)
        # What every run goes through, however short.
        self.add("a", "two", 0)
        self.choose("adapters")
        self.train(1)
        self.through_weights_of_keras(2)
        self.enter()
        self.they_answer_the_same()
        self.leave(0)
        self.add("b", "upper", 1)
        self.activate("a", None)
        if self.half and at_once:  # weights that training had changed before
            self.choose("top-1")
            self.train(3)
            self.choose("adapters")
            self.cast()
            self.save(0)

    def both(self, operation):
        """Do it with each model: both do it, or both refuse it in the same words."""
        found = []
        for model in self.models:
            try:
                operation(model)
                found.append(None)
            except InputError as error:
                found.append(str(error).split(":")[0])
        assert (found[0] is None) == (found[1] is None), found
        return found[0] is None

    # What is compared after every step.

    @invariant()
    def they_answer_the_same(self):
        first, second = (np.asarray(answers(model, "bert")) for model in self.models)
        assert np.isfinite(first).all()
        near = 0.05 * np.abs(first).max() if self.half else 1e-4
        np.testing.assert_allclose(second, first, atol=near, rtol=1e-3)

    @invariant()
    def they_have_the_same_adapters_and_choice(self):
        for about in (adapter_names, active_adapter, lambda model: sorted(trained(model))):
            first, second = map(about, self.models)
            assert first == second
        assert len({len(model.trainable_variables) for model in self.models}) == 1

    @invariant()
    def they_know_the_same_encoder(self):
        assert len({tf_adapters.models.backbone_digest(model) for model in self.models}) == 1

    # What is done.

    @rule(name=NAMES, kind=st.sampled_from(sorted(CONFIGS)), seed=st.integers(0, 9))
    def add(self, name, kind, seed):
        before = adapter_names(self.models[0])
        if self.both(lambda model: tf_adapters.add_adapters(model, CONFIGS[kind], name=name, seed=seed)):
            assert name not in before
            self.same_values(name)

    def same_values(self, name):
        """Equal seeds draw other numbers on JAX: the second door's adapter gets those of the first."""
        first, second = (state_of(model).adapters[name].layers for model in self.models)
        door = state_of(self.models[1]).door
        assert sorted(first) == sorted(second)
        for key, layer in first.items():
            for part, variable in layer.parts.items():
                value = np.asarray(variable)
                second[key].parts[part].assign(door.constant(value, second[key].parts[part]))

    @rule(name=NAMES, blocks=st.sampled_from([None, (), (1,)]))
    def activate(self, name, blocks):
        self.both(lambda model: tf_adapters.set_active(model, name, blocks=blocks))

    @rule()
    def enter(self):
        contexts = [tf_adapters.disable_adapters(model) for model in self.models]
        for context in contexts:
            context.__enter__()
        self.contexts.append(contexts)

    @precondition(lambda self: self.contexts)
    @rule(which=st.integers(0, 3))
    def leave(self, which):
        for context in self.contexts.pop(which % len(self.contexts)):
            context.__exit__(None, None, None)

    @rule(name=st.one_of(NAMES, st.none()))
    def remove(self, name):
        self.both(lambda model: tf_adapters.remove_adapters(model, name=name))

    @rule(mode=MODES)
    def choose(self, mode):
        self.both(lambda model: tf_adapters.set_trainable(model, mode))

    @rule()
    def freeze(self):
        self.both(tf_adapters.models.freeze)

    @rule(seed=st.integers(0, 99))
    def train(self, seed, start=False):
        """What an optimiser does: what trains has other values, the same in each."""
        for model in self.models:
            door = state_of(model).door
            for number, (_, variable) in enumerate(sorted(trained(model).items())):
                value = door.array(variable)
                noise = np.random.default_rng([seed, number]).normal(0, 0.05, value.shape).astype("float32")
                variable.assign(door.constant(noise if start else value + noise, variable))

    @rule(by=st.integers(0, 1))
    def save(self, by):
        """By one of the doors; the other one would refuse it where this one does."""
        place = f"{self.folder}/{len(self.saved)}"
        if self.both(lambda model: tf_adapters.save_adapter(model, f"{place}-{self.models.index(model)}")):
            first, second = (tf_adapters.saving.directory.read_adapter(f"{place}-{door}")[1] for door in (0, 1))
            assert sorted(first) == sorted(second)
            self.saved.append(f"{place}-{by}")

    @precondition(lambda self: self.saved)
    @rule(which=st.integers(0, 3), name=NAMES)
    def load_saved(self, which, name):
        directory = self.saved[-1 - which % len(self.saved[-4:])]
        self.both(lambda model: tf_adapters.load_adapter(model, directory, name=name))

    @precondition(lambda self: self.half)
    @rule()
    def cast(self):
        self.both(lambda model: cast_frozen(model, None if model is self.models[0] else "int8"))

    @rule(seed=st.integers(0, 99))
    def through_weights_of_keras(self, seed):
        files = {id(model): f"{self.folder}/{number}.weights.h5" for number, model in enumerate(self.models)}
        before = [answers(model, "bert") for model in self.models]
        if self.both(lambda model: model.save_weights(files[id(model)])):
            self.train(seed)
            assert self.both(lambda model: model.load_weights(files[id(model)]))
            for model, wanted in zip(self.models, before):
                np.testing.assert_array_equal(answers(model, "bert"), wanted)

    def teardown(self):
        for contexts in getattr(self, "contexts", ()):
            for context in contexts:
                context.__exit__(None, None, None)
        tf_keras.mixed_precision.set_global_policy("float32")


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed, examples, steps",
    [(0, 2, 25), *(pytest.param(seed, 4, 50, marks=pytest.mark.nightly) for seed in range(1, 4))],
)
def test_operations_in_any_order_do_the_same_through_both_doors(seed, examples, steps):
    run_machine(BothDoors, seed, examples, steps)
