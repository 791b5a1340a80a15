"""Every operation on a model in any order, against a reference that is a dict of arrays; tests/test_lifecycle.py
interrupts each."""

import copy
import functools
import json
import tempfile

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests import encoder_in_numpy
from tests.cases import nightly_but
from tests.conftest import tiny_inputs, tiny_model, write_checkpoint
from tests.runs import run_machine
from tests.whole import assert_same, picture
from tf_adapters import (
    AdapterConfig,
    InputError,
    LoraConfig,
    add_adapters,
    disable_adapters,
    load_adapter,
    load_backbone,
    merge_adapter,
    remove_adapters,
    save_adapter,
    set_active,
    set_trainable,
)
from tf_adapters._keras import keras
from tf_adapters.methods import FusionConfig
from tf_adapters.models import backbone_digest, cast_frozen, change_head, freeze
from tf_adapters.models.injection import merged
from tf_adapters.models.state import state_of
from tf_adapters.saving import fuse_adapters

CONFIGS = {
    "two": AdapterConfig(3, init_stddev=0.5, train_layer_norm="encoder"),
    "one": AdapterConfig(3, init_stddev=0.5, sharing="layer", train_layer_norm="none"),
    "upper": AdapterConfig(2, init_stddev=0.5, blocks=(1,), train_layer_norm="all"),
    "lora": LoraConfig(rank=2),
}
MODES = ("adapters", "full", "top-1", "layer-norm", "bias", "head")
NAMES = st.sampled_from(["a", "b", "c"])
INPUTS = {name: value.numpy() for name, value in tiny_inputs(2, 6).items()}


@functools.cache
def checkpoint():
    folder = tempfile.mkdtemp()
    write_checkpoint(folder, hidden_size=16, intermediate_size=24, num_hidden_layers=2)
    return folder


def short(variable):
    """A variable's name without its model's."""
    return variable.name if variable.name.startswith("adapters/") else variable.name.partition("/")[2]


def is_norm(name):
    return "LayerNorm" in name


def is_head(name):
    return name.startswith("classifier")


class Reference:
    """What a model is to be: arrays by names, and who acts."""

    def __init__(self, weights):
        self.files = dict(weights)
        self.encoder = {name: value for name, value in weights.items() if not is_norm(name) and not is_head(name)}
        self.plain = {name: value for name, value in weights.items() if is_norm(name) or is_head(name)}
        self.adapters = {}  # name -> (configuration's name, weights by a directory's keys, its own LayerNorms and head)
        self.active, self.blocks, self.suspended, self.trains, self.mode = None, None, 0, None, None
        self.chosen_outputs = None  # of the head that the choice of what trains was for
        self.rounded, self.lost = set(), False  # names, and whether what was before the adapters is gone with them
        self.note_origin()

    def note_origin(self):
        """The encoder as it is counts as unchanged, and directories that are saved from now on are for it."""
        self.origin = self.encoder | self.plain
        self.digest = {name: value.tobytes() for name, value in self.origin.items() if not is_head(name)}

    @property
    def acting(self):
        return None if self.suspended else self.active

    def own(self, name):
        """LayerNorms and head of an adapter, or of the encoder."""
        return self.plain if name is None else self.adapters[name][2]

    def outputs(self, name):
        """Of the head of an adapter, or of the encoder."""
        return self.own(name)["classifier/bias:0"].shape[0]

    def place(self, name):
        """The dict that has the value of a variable, and its name there."""
        if name.startswith("adapters/"):
            _, adapter, *path = name.removesuffix(":0").split("/")
            return self.adapters[adapter][1], ".".join(path)
        if is_head(name):
            return self.own(self.active), name
        return (self.own(self.acting) if is_norm(name) else self.encoder), name

    def weights(self):
        norms, head = self.own(self.acting), self.own(self.active)
        return self.encoder | {name: (head if is_head(name) else norms)[name] for name in self.plain}

    def computes(self):
        adapter = None if self.acting is None else self.adapters[self.acting][1]
        blocks = (0, 1) if self.blocks is None else self.blocks
        return encoder_in_numpy.logits(self.weights(), adapter, INPUTS, blocks)

    def round(self, names, dtype):
        """Keep weights in half precision; one that was as it came counts as such."""
        for name in names:
            value, before = self.encoder[name], self.origin[name]
            self.encoder[name] = value.astype(dtype)
            self.origin[name] = self.encoder[name] if np.array_equal(value, before) else None
        self.rounded |= names
        self.lost = self.lost or bool(names and self.adapters)

    def changed(self):
        """Names of the encoder's weights that are not as they came, an adapter's own LayerNorms left out."""
        now = self.encoder | self.plain
        return {
            name for name, value in now.items() if not is_head(name) and not np.array_equal(value, self.origin[name])
        }

    def as_in_its_files(self):
        """Whether the encoder is, but for a pooler, which a new head takes from them."""
        now = {name: value for name, value in (self.encoder | self.plain).items() if not is_head(name)}
        return all(np.array_equal(value, self.files[name]) for name, value in now.items() if "pooler" not in name)

    def chosen(self, mode):
        """Names that a mode trains, those of the adapter left out."""
        names = [*self.encoder, *self.plain]
        head = {name for name in names if is_head(name)}
        if mode == "adapters":
            which = CONFIGS[self.adapters[self.active][0]].train_layer_norm
            norms = {
                name
                for name in names
                if is_norm(name) and (which == "all" or which == "encoder" and "embeddings" not in name)
            }
            return head | norms
        top = {name for name in names if "layer_._1" in name or "pooler" in name}
        biases = {name for name in names if name.endswith(("bias:0", "beta:0"))}
        norms = {name for name in names if is_norm(name)}
        return head | {"full": set(names), "top-1": top, "layer-norm": norms, "bias": biases, "head": set()}[mode]


class Lifecycle(RuleBasedStateMachine):
    """Operations in any order."""

    @initialize(policy=st.sampled_from(["float32", "mixed_float16", "mixed_bfloat16"]))
    def load(self, policy):
        keras.mixed_precision.set_global_policy(policy)
        self.half = tf.as_dtype(keras.mixed_precision.global_policy().compute_dtype).as_numpy_dtype
        near = {"float32": 2e-4, "mixed_float16": 1e-2, "mixed_bfloat16": 1e-1}[policy]
        self.near = {"atol": near, "rtol": max(near, 2e-3)}
        self.model = load_backbone(checkpoint())
        self.reference = Reference({short(variable): variable.numpy() for variable in self.model.weights})
        backbone_digest(self.model)  # what is trained before the first look at the encoder belongs to it
        self.folder = tempfile.mkdtemp()
        self.contexts, self.saved, self.graphs = [], [], []
        # A directory to load from the beginning on.
        self.add("a", "two", 0)
        self.choose("adapters")
        self.train(0)
        self.save()
        self.remove("a")

    # What is compared after every step.

    @invariant()
    def the_model_computes_what_the_reference_does(self):
        expected = self.reference.computes()
        np.testing.assert_allclose(self.model(INPUTS).logits, expected, **self.near)
        for graph, known, head in self.graphs:
            follows = self.reference.acting is None or self.number() in known
            if follows and state_of(self.model).acting.traced_head == head:
                np.testing.assert_allclose(graph(), expected, **self.near)
            else:
                assert np.isnan(graph()).all()
            assert np.isnan(graph()).all() or graph().shape == expected.shape

    @invariant()
    def every_weight_has_the_references_bits(self):
        for variable in self.model.weights:
            name = short(variable)
            if name.startswith("adapters/") and name.split("/")[1] not in self.reference.adapters:
                raise AssertionError(f"{name} is of an adapter that was removed")
            holder, key = self.reference.place(name)
            assert variable.dtype == holder[key].dtype and np.array_equal(variable.numpy(), holder[key]), name

    @invariant()
    def the_names_that_were_chosen_train(self):
        if self.reference.trains is not None:
            reference = self.reference
            here = reference.outputs(reference.active) == reference.chosen_outputs
            trains = {name for name in reference.trains if here or not is_head(name)}
            assert {short(variable) for variable in self.model.trainable_variables} == trains

    def number(self):
        return state_of(self.model).adapters[self.reference.active].number

    def numbers(self):
        return {adapter.number for adapter in state_of(self.model).adapters.values()}

    def adapter_weights(self, name):
        layers = state_of(self.model).adapters[name].layers
        return {
            f"{key}.{part}": variable.numpy() for key, layer in layers.items() for part, variable in layer.parts.items()
        }

    def of_the_adapter(self, mode):
        """Names of the active adapter's weights, if a mode trains them."""
        if mode not in ("adapters", "full") or self.reference.active is None:
            return set()
        return {
            short(weight)
            for layer in state_of(self.model).adapters[self.reference.active].layers.values()
            for weight in layer.weights
        }

    def forget_plain_graphs(self):
        """Before the first adapter comes, of which they know nothing."""
        self.graphs = [graph for graph in self.graphs if graph[1]]

    def refused(self, operation, message):
        before = picture(self.model)
        with pytest.raises(InputError, match=message):
            operation()
        assert_same(before, picture(self.model))

    # What is done.

    @rule(
        name=NAMES, kind=st.sampled_from(sorted(CONFIGS)), seed=st.integers(0, 9),
        outputs=st.sampled_from([None, None, 3]),
    )  # fmt: skip
    def add(self, name, kind, seed, outputs=None):
        operation = functools.partial(add_adapters, self.model, CONFIGS[kind], name=name, seed=seed, num_labels=outputs)
        if name in self.reference.adapters:
            self.refused(operation, "already has an adapter")
            return
        if not self.reference.adapters:
            self.forget_plain_graphs()
        operation()
        own = dict(self.reference.plain)
        if outputs not in (None, self.reference.outputs(None)):
            here = {short(variable): variable.numpy() for variable in self.model.weights}
            own |= {each: here[each] for each in own if is_head(each)}
        self.reference.adapters[name] = kind, self.adapter_weights(name), own
        self.reference.active, self.reference.blocks = name, None

    @rule(name=NAMES, blocks=st.sampled_from([None, (), (1,)]))
    def activate(self, name, blocks=None):
        if name not in self.reference.adapters:
            self.refused(lambda: set_active(self.model, name), "no such adapter")
            return
        set_active(self.model, name, blocks=blocks)
        self.reference.active, self.reference.blocks = name, blocks

    @rule()
    def enter(self):
        context = disable_adapters(self.model)
        context.__enter__()
        self.contexts.append(context)
        self.reference.suspended += 1

    @precondition(lambda self: self.contexts)
    @rule(which=st.integers(0, 3))
    def leave(self, which):
        self.contexts.pop(which % len(self.contexts)).__exit__(None, None, None)
        self.reference.suspended -= 1

    @rule(name=st.one_of(NAMES, st.none()))
    def remove(self, name):
        reference = self.reference
        if name not in reference.adapters if name else not reference.adapters:
            self.refused(lambda: remove_adapters(self.model, name=name), "no such adapter|no adapters")
            return
        others = [other for other in reference.adapters if name is not None and other != name]
        if reference.lost and not others:
            self.refused(lambda: remove_adapters(self.model, name=name), "float32 weights")
            return
        remove_adapters(self.model, name=name)
        if reference.active == name or name is None:
            reference.active, reference.blocks = (others[0] if others else None), None
        reference.adapters = {other: reference.adapters[other] for other in others}
        if not others:
            reference.trains = reference.mode = None
        elif reference.trains is not None:
            reference.trains = {each for each in reference.trains if not each.startswith(f"adapters/{name}/")}
            if reference.chosen_outputs not in map(reference.outputs, [None, *reference.adapters]):
                reference.chosen_outputs = None  # the next head of so many is another one

    @rule(mode=st.sampled_from(MODES))
    def choose(self, mode):
        if mode == "adapters" and self.reference.active is None:
            self.refused(lambda: set_trainable(self.model, mode), "no adapters")
            return
        chosen = self.reference.chosen(mode)
        if chosen & self.reference.rounded:
            self.refused(lambda: set_trainable(self.model, mode), "float32 weights")
            return
        set_trainable(self.model, mode)
        self.reference.trains, self.reference.mode = chosen | self.of_the_adapter(mode), mode
        self.reference.chosen_outputs = self.reference.outputs(self.reference.active)

    @rule()
    def freeze(self):
        freeze(self.model)
        self.reference.trains, self.reference.mode = set(), None

    @rule(seed=st.integers(0, 99))
    def train(self, seed):
        """What an optimiser does: what trains has other values."""
        for number, variable in enumerate(self.model.trainable_variables):
            noise = np.random.default_rng([seed, number]).normal(0, 0.05, variable.shape).astype(np.float32)
            holder, key = self.reference.place(short(variable))
            holder[key] = holder[key] + noise
            variable.assign_add(noise)

    @rule()
    def save(self):
        if self.reference.mode is None:
            self.refused(lambda: save_adapter(self.model, self.folder + "/none"), "call set_trainable")
            return
        if self.reference.active and (self.reference.suspended or self.reference.blocks is not None):
            self.refused(lambda: save_adapter(self.model, self.folder + "/none"), "save_adapter is of")
            return
        directory = save_adapter(self.model, f"{self.folder}/{len(self.saved)}")
        reference = copy.deepcopy(self.reference)
        reference.suspended = 0
        self.saved.append((directory, reference))
        del self.saved[:-4]

    @precondition(lambda self: self.saved)
    @rule(which=st.integers(0, 3), name=NAMES)
    def load_saved(self, which, name):
        directory, saved = self.saved[which % len(self.saved)]
        operation = functools.partial(load_adapter, self.model, directory, name=name)
        message = self.why_not(directory, saved, name)
        if message:
            self.refused(operation, message)
        else:
            operation()
            self.loaded(saved, name)

    def why_not(self, directory, saved, name):
        """What a directory is refused with under a name, or None."""
        reference = self.reference
        held = json.loads((directory / "tf_adapters.json").read_text())
        kind = saved.active and saved.adapters[saved.active][0]
        others = set(reference.adapters) - ({name} if kind else set())
        if saved.digest != reference.digest:
            return "was trained on another encoder"
        if reference.changed() - self.brought(saved):
            return "changed since|weights of the encoder or a head"
        if others and (kind is None or held["backbone"]["weights_saved"]):
            return "load it into a model of its own"
        if kind and name in reference.adapters and reference.adapters[name][0] != kind:
            return "another config"
        if kind is None or name in reference.adapters:
            if saved.outputs(saved.active) != reference.outputs(name if kind else None):
                return "and the model's is another"
        return "float32 weights" if self.brought(saved) & reference.rounded else None

    def loaded(self, saved, name):
        """A directory has been loaded under a name."""
        reference, weights, brings = self.reference, saved.weights(), self.brought(saved)
        reference.encoder = {
            each: weights[each] if each in brings else value for each, value in reference.encoder.items()
        }
        own = {
            each: weights[each] if is_head(each) or each in brings else value for each, value in reference.plain.items()
        }
        if saved.active is None:
            reference.plain = own
            return
        if not reference.adapters:
            self.forget_plain_graphs()
        reference.adapters[name] = saved.adapters[saved.active][0], dict(saved.adapters[saved.active][1]), own
        reference.active, reference.blocks = name, None

    def brought(self, saved):
        """Names of the encoder's weights that a directory holds."""
        return {each for each in saved.weights() if not is_head(each) and self.differs(saved, each)}

    @staticmethod
    def differs(saved, name):
        """Whether a directory holds a weight of the encoder: it differs from the pretrained one, or trains."""
        return not np.array_equal(saved.weights()[name], saved.origin[name]) or name in (saved.trains or ())

    @rule()
    def merge(self):
        reference = self.reference
        if [reference.adapters[name][0] for name in reference.adapters] != ["lora"] or reference.suspended:
            self.refused(lambda: merge_adapter(self.model), "merge|other adapters|no adapter")
            return
        if reference.rounded:  # of a block there is always one
            self.refused(lambda: merge_adapter(self.model), "float32 weights")
            return
        if reference.blocks is not None:
            set_active(self.model, reference.active)
        _, weights, own = reference.adapters[reference.active]
        merge_adapter(self.model)
        for name, value in list(reference.encoder.items()):
            block, part = name.partition("layer_._")[2][:1], name.rpartition("self/")[2].removesuffix("/kernel:0")
            if f"layer.{block}.{part}.a" in weights:
                update = weights[f"layer.{block}.{part}.a"].astype(np.float64) @ weights[
                    f"layer.{block}.{part}.b"
                ].astype(np.float64)
                reference.encoder[name] = (value + update).astype(np.float32)
        reference.plain, reference.adapters = own, {}
        reference.active, reference.blocks, reference.trains, reference.mode = None, None, None, None
        reference.note_origin()
        self.saved = []  # they fit the encoder as it was
        backbone_digest(self.model)

    @rule()
    def merge_for_a_moment(self):
        before = picture(self.model)
        with merged(self.model):
            pass
        assert_same(before, picture(self.model))

    @precondition(
        lambda self: sum(
            saved.active is not None and saved.adapters[saved.active][0] == "one" for _, saved in self.saved
        )
    )
    @rule()
    def fuse(self):
        directory = next(
            directory for directory, saved in self.saved if saved.active and saved.adapters[saved.active][0] == "one"
        )
        before = picture(self.model)
        try:
            fuse_adapters(self.model, {"x": directory, "y": directory}, name="fused", seed=0)
        except InputError:
            assert_same(before, picture(self.model))
            return
        assert isinstance(state_of(self.model).owner.config, FusionConfig)
        before_active, before_blocks = self.reference.active, self.reference.blocks
        if before_active is None:
            remove_adapters(self.model)
            self.reference.trains = self.reference.mode = None
        else:
            remove_adapters(self.model, name="fused")
            set_active(self.model, before_active, blocks=before_blocks)

    @rule()
    def cast(self):
        """Frozen matrices of the encoder are kept in half precision where it computes in it, and nothing else."""
        reference, before = self.reference, picture(self.model)
        trains = {short(variable) for variable in self.model.trainable_variables}
        frozen = {name for name, value in reference.encoder.items() if value.ndim == 2} - trains - reference.rounded
        try:
            cast_frozen(self.model)
        except InputError:
            assert not frozen
        if self.half is not np.float32 and frozen:
            reference.round(frozen, self.half)
            after = picture(self.model)
            assert_same({part: before[part] for part in ("outputs", "trains", "adapters", "acts")}, after)
            assert before["state"][-1] == after["state"][-1]  # the digest
        else:
            assert_same(before, picture(self.model))

    @rule(seed=st.integers(0, 99))
    def through_weights_of_keras(self, seed):
        file, several = self.folder + "/weights.h5", len(self.reference.adapters) > 1
        if several or self.reference.suspended:
            for operation in (self.model.save_weights, self.model.load_weights):
                self.refused(lambda: operation(file), "save_adapter" if several else "do it outside")
            return
        if self.reference.rounded and self.half is tf.bfloat16.as_numpy_dtype:
            self.refused(lambda: self.model.save_weights(file), "bfloat16")
            file = file.removesuffix(".h5")
        self.model.save_weights(file)
        before = copy.deepcopy(self.reference)
        self.train(seed)
        if before.adapters and before.trains is None:  # nothing was chosen, so that nothing of the encoder may change
            self.refused(lambda: self.model.load_weights(file), "another encoder, or one that was trained")
            return
        again = not before.adapters and before.trains is None
        self.model.load_weights(file)
        self.reference = before
        if again:  # of an encoder without adapters
            before.note_origin()

    @precondition(lambda self: self.reference.adapters)
    @rule()
    def through_a_second_model(self):
        other = tiny_model()
        other.bert = self.model.bert
        self.refused(lambda: add_adapters(other, LoraConfig(rank=2), name="x"), "added to another model")

    @precondition(lambda self: not self.contexts)
    @rule()
    def other_head(self):
        if self.reference.adapters:
            self.refused(lambda: change_head(self.model), "without adapters")
            return
        if self.reference.rounded:
            self.refused(lambda: change_head(self.model), "float32 weights")
            return
        if not self.reference.as_in_its_files():
            self.refused(lambda: change_head(self.model), "changed since it was loaded")
            return
        keras.utils.set_random_seed(0)
        self.model = change_head(self.model)
        weights = {short(variable): variable.numpy() for variable in self.model.weights}
        assert {
            name
            for name in weights
            if not is_head(name) and not np.array_equal(weights[name], self.reference.files[name])
        } == set()
        self.reference, self.graphs, self.saved = Reference(weights), [], []
        backbone_digest(self.model)

    @rule()
    def compile(self):
        self.model.compile(keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True))

    @rule()
    def trace(self):
        model = self.model
        graph = tf.function(lambda: model({name: tf.constant(value) for name, value in INPUTS.items()}).logits)
        graph()
        self.graphs = [*self.graphs, (graph, self.numbers(), state_of(model).acting.traced_head)][-2:]

    def teardown(self):
        for context in getattr(self, "contexts", ()):
            context.__exit__(None, None, None)
        keras.mixed_precision.set_global_policy("float32")


#: Operations one after the other, each by its name and values, about one thing: those that once were wrong.
TWO = "add a two 1, choose adapters, train 1, add b upper 2, train 2, "
SCRIPTS = {
    "while adapters are disabled others are chosen, loaded and added": TWO
    + "trace, enter, activate a, load_saved 0 c, load_saved 0 a, add d one 3, train 3, leave 0, activate b, activate c",
    "while adapters are disabled they are removed": TWO
    + "trace, enter, remove a, leave 0, enter, remove -, leave 0, enter, add a two 4, train 4, leave 0",
    "the encoder's own LayerNorms train": TWO + "enter, choose layer-norm, train 3, leave 0, activate a, remove -",
    "contexts are nested and left in any order": TWO + "enter, enter, leave 0, trace, save, merge, leave 0, remove b",
    "graphs know who was there": "add a upper 1, trace, add b two 2, train 2, trace, activate a, activate b above, "
    "remove b, add b lora 3, activate a none, enter, leave 0, remove -, add a upper 1",
    "what trains stays chosen": TWO + "choose adapters, compile, activate a, remove b, choose bias, train 3, freeze, "
    "add c lora 4, train 4, choose full, train 5, remove c",
    "heads of several sizes": "add a two 1 3, choose adapters, train 1, save, trace, add b lora 2, train 2, "
    "activate a, enter, leave 0, load_saved 1 c, remove a, activate b",
    "what is saved comes back": "add a two 1, choose adapters, train 1, choose head, save, train 2, load_saved 1 a, "
    "remove a, load_saved 1 c, add d one 3, choose adapters, save, fuse",
    "what was learned since goes": "add a one 1, choose adapters, save, choose layer-norm, train 2, load_saved 1 a",
    "an encoder that was trained": "choose full, train 1, load_saved 0 a, save, load_saved 1 a, add a two 2, "
    "choose adapters, train 3, save, remove a, load_saved 2 b, other_head",
    "low-rank updates are merged": "add a lora 1, choose adapters, train 1, merge_for_a_moment, activate a above, "
    "trace, merge_for_a_moment, merge, add b two 2, merge, through_a_second_model, other_head",
    "files of Keras": "through_weights_of_keras 1, add a two 2, choose adapters, train 2, "
    "through_weights_of_keras 3, enter, through_weights_of_keras 4, leave 0, add b lora 5, through_weights_of_keras 6",
    "half precision": "choose head, cast, train 1, add a two 2, choose adapters, cast, train 3, save, merge, "
    "load_saved 1 b, choose full, remove -, other_head",
}
VALUES = {"-": None, "none": (), "above": (1,)}


@pytest.mark.parametrize(
    "script", [pytest.param(one, marks=pytest.mark.slow if one == "half precision" else ()) for one in SCRIPTS]
)
def test_operations_that_once_were_wrong_agree_with_the_reference(script):
    machine = Lifecycle()
    try:
        machine.load("mixed_bfloat16" if script == "half precision" else "float32")
        for step in SCRIPTS[script].split(", "):
            operation, *words = step.split()
            values = [VALUES.get(word, int(word) if word.isdigit() else word) for word in words]
            getattr(machine, operation)(*values)
            for check in (
                machine.the_model_computes_what_the_reference_does,
                machine.every_weight_has_the_references_bits,
                machine.the_names_that_were_chosen_train,
            ):
                check()
    finally:
        machine.teardown()


@pytest.mark.slow
@pytest.mark.parametrize("seed", nightly_but([2], range(1, 6)))
def test_operations_in_any_order_agree_with_the_reference(seed):
    run_machine(Lifecycle, seed, examples=5, steps=60)
