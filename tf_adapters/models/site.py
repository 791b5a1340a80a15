"""A place in a block where adapters stand, through either door: which stand there, and which acts; and what stands for
it where each example of a batch takes adapters, updates of dense layers and LayerNorms of its own."""

import dataclasses
from typing import Callable

from tf_adapters.config import DENSE_PLACES
from tf_adapters.models.keras_files import SiteInFiles


class SharedSite(SiteInFiles):
    """What a door's `Site` is made of.

    Several adapters may stand at one site. Which one acts is decided by variables, so a graph that was traced before a
    switch follows it, and one that was traced before an adapter was removed never computes with it. Adapters of one
    form (`MethodLayer.form`) are traced once, with the weights of the one that acts; where none does, a gate of 0 makes
    the identity. Those of other forms are branches of the graph.

    Attributes:
        ops: the door's module of `layers.ops`.
        adapters, configs, positions: dicts from an adapter's name to its layer, its `MethodConfig` and where the block
            stands among the adapted ones, from 0 at the bottom.
        acting: `Acting` at the lowest site, otherwise None.

    A door's `Site` has beside it

        switches()                      the object that has `active_slot`, int32 scalar, 0 for none, otherwise the
                                        acting adapter's slot; and dicts from adapter names: `slots` to its number,
                                        which no other adapter has or had; `gates` to a float32 scalar, 1 where the
                                        adapter acts and otherwise 0; `drops`, for those that have one, to its
                                        `RandomDrop`
        begin_switches()                makes it
        new_gate(name)                  a float32 scalar variable, 0
        draw_by(name, drop, seed)       lets this site, the first that is computed, draw a `RandomDrop` for all
        kept(name, hidden_states, training)
                                        1.0 where this step's `RandomDrop` leaves the adapter, otherwise 0.0
        branch(index, branches, training)
                                        what the function at the place `index`, an int32 scalar, gives
    """

    ops = None

    def make_site(self):
        """Begin without an adapter."""
        self.adapters, self.configs, self.positions = {}, {}, {}
        self.acting = None
        self.begin_switches()
        self.built = True

    def add(self, name, adapter, config, number, *, drop=None, position=0, seed=None):
        """Put `adapter`, a MethodLayer that other sites may use too, at this site.

        `number` is the adapter's on its model, and `drop` its `RandomDrop` or None, with a `seed` at the site that
        draws for all, the first that is computed.
        """
        gate = self.new_gate(name)
        for owner, part, value in (
            (self, "adapters", adapter), (self, "configs", config), (self, "positions", position),
            (self.switches(), "slots", number), (self.switches(), "gates", gate), (self.switches(), "drops", drop),
        ):  # fmt: skip
            if value is not None:
                # Fresh dicts: Keras refuses to save a tracked one that was changed in place.
                setattr(owner, part, {**getattr(owner, part), name: value})
        if drop is not None and seed is not None:
            self.draw_by(name, drop, seed)

    def discard(self, name):
        """Take the adapter `name`, which does not act, away if it stands here."""
        for owner, parts in (
            (self, ("adapters", "configs", "positions")),
            (self.switches(), ("slots", "gates", "drops")),
        ):
            for part in parts:
                setattr(owner, part, {key: value for key, value in getattr(owner, part).items() if key != name})

    def activate(self, name, write):
        """Let the adapter `name` act; None, or a name that has no adapter here, lets none. `write` assigns a
        variable."""
        write(self.switches().active_slot, self.switches().slots.get(name, 0))
        for key, gate in self.switches().gates.items():
            write(gate, float(key == name))

    def choose(self, act, otherwise, training):
        """What the acting adapter makes of this place, in a graph that follows later switches: what `act` says of its
        name, a layer that computes it and a gate (a float32 scalar, or None for 1), or without an adapter
        `otherwise()`."""
        if not self.adapters:
            return otherwise()
        alike = self._alike(training)
        if len(alike) == 1:
            return self._act_with(alike[0], act, self._gate(alike[0]))
        branches = [lambda names=names: self._act_with(names, act, None) for names in alike]
        return self.branch(self._place(alike), [otherwise, *branches], training)

    def _alike(self, training):
        """Lists of the adapters' names, each of those that are traced as one."""
        # A `training` that is a tensor may be true.
        training = bool(training) if isinstance(training, (bool, int, type(None))) else True
        lists = {}
        for name, adapter in self.adapters.items():
            form = None if training and name in self.switches().drops else adapter.form(training)
            insertion = getattr(self.configs[name], "insertion", None)
            key = name if form is None else (type(adapter), form, adapter.compute_dtype, insertion)
            lists.setdefault(key, []).append(name)
        return list(lists.values())

    def _place(self, lists):
        """Which of lists of names has the adapter that acts, from 1 on, and 0 for none: int32 scalar."""
        ops = self.ops
        places = {self.switches().slots[name]: place for place, names in enumerate(lists, 1) for name in names}
        here = ops.value(self.switches().active_slot) == ops.constant(list(places), "int32")
        return ops.sums(ops.cast(here, "int32") * ops.constant(list(places.values()), "int32"))

    def _gate(self, names):
        """1.0 where one of these adapters acts, otherwise 0.0: float32 scalar."""
        if len(names) == 1:
            return self.ops.value(self.switches().gates[names[0]])
        return self.ops.cast(self._place([names]), self.ops.float32)

    def _weights(self, names):
        """The weights of the one of these adapters that acts, a dict as of `MethodLayer.parts`, as tensors, in their
        own dtypes where these are the same; zeros where none acts."""
        first = self.adapters[names[0]]
        choices = [list(map(self.ops.uncast, self.adapters[name].parts.values())) for name in names]
        if len(names) == 1:
            return dict(zip(first.parts, choices[0]))
        # `cast_frozen` has kept those of some in fewer bits.
        if len({value.dtype for choice in choices for value in choice}) > 1:
            choices = [[self.ops.cast(value, first.compute_dtype) for value in choice] for choice in choices]
        return dict(zip(first.parts, self.ops.pick(self._place([[name] for name in names]), choices)))

    def _act_with(self, names, act, gate):
        """What `act` says of the one of these adapters that acts."""
        first = self.adapters[names[0]]
        if len(names) == 1:
            return act(names[0], first, gate)
        # A layer of its own, for what another thread traces.
        layer = object.__new__(type(first))
        vars(layer).update(vars(first))
        for part, weight in self._weights(names).items():
            vars(layer)[part.replace(".", "_")] = self.ops.cast(weight, first.compute_dtype)
        return act(names[0], layer, gate)

    def adapt(self, hidden_states, input_tensor, normalise, training):
        """A sub-layer's output, `(batch, length, hidden)`, after the adapter that acts, if one does; `input_tensor` is
        what it was made of, and `normalise` the LayerNorm behind the sum of both."""

        def act(name, adapter, gate):
            insertion, inputs = self.configs[name].insertion, None
            if insertion == "parallel":
                inputs = input_tensor
            elif insertion == "after-norm":
                inputs = normalise(hidden_states + input_tensor)
            if name in self.switches().drops and not (isinstance(training, (bool, int, type(None))) and not training):
                kept = self.kept(name, hidden_states, training)
                gate = kept if gate is None else gate * kept
            gate = None if gate is None else self.ops.cast(gate, hidden_states.dtype)
            return adapter(hidden_states, inputs=inputs, gate=gate, training=training)

        return self.choose(act, lambda: hidden_states, training)

    def fused_adapter(self, training):
        """What `layers.fused.Adapter` is made of, a tuple: `()` where no adapter stands here, and None where fused
        operations cannot compute those that do."""
        if not self.adapters:
            return ()
        names, *others = self._alike(training)
        adapter, config = self.adapters[names[0]], self.configs[names[0]]
        if others or (training and self.switches().drops):
            return None
        if config.insertion != "sequential" or not adapter.is_fused(training):
            return None
        weights = self._weights(names)
        parts = [weights[part] for part in ("down.kernel", "down.bias", "up.kernel", "up.bias")]
        return (*parts, adapter.activation, self._gate(names))

    def fused_update(self, training):
        """LoRA's update around a dense layer, as `layers.fused.Dense` has it; None where fused operations cannot
        compute the adapters that stand here."""
        names, *others = self._alike(training)
        adapter = self.adapters[names[0]]
        if others or not adapter.low_rank or (adapter.dropout and training):
            return None
        weights = self._weights(names)
        return weights["a"], weights["b"], self._gate(names) * adapter.scaling


# Of each example its own

# Behind the two sub-layers of a block, and around its dense layers.
PLACES = ("attention", "ffn", *DENSE_PLACES)


@dataclasses.dataclass
class Routes:
    """What each example of a batch takes, as functions that a graph is traced with.

    A site is `(block, one of PLACES)`. `inputs` of the first two is what an adapter reads, by its insertion: a dict of
    functions that return it.

    Attributes:
        change: function of a site, of what comes out of it, `(batch, length, units)`, and of its inputs, that returns
            the former's like.
        before: function of a dense layer's site and its inputs, `(batch, length, units)`, that returns their like.
        norm: function of a LayerNorm's number and units that returns its gamma and beta, each `(batch, 1, units)`.
        places: those of `PLACES` where `change` or `before` does something.
    """

    change: Callable
    before: Callable
    norm: Callable
    places: frozenset


def sites_of(depth):
    """The sites of an encoder in the order of their numbers."""
    return [(block, place) for block in range(depth) for place in PLACES]


def routed_norms(family, model, routes):
    """What stands for each LayerNorm of an encoder, by the layer's id."""
    # In the order of their numbers: those of the blocks, then the embeddings'.
    return {
        id(layer): RoutedNorm(layer, number, routes) for number, layer in enumerate(family.layer_norms(model, "all"))
    }


class RoutedFinish:
    """Stands for what ends a sub-layer: the adapter, the sum with the sub-layer's input, the LayerNorm."""

    def __init__(self, norm, site, routes):
        self.norm, self.site, self.routes = norm, site, routes

    def __call__(self, hidden_states, input_tensor, *arguments, **settings):
        reads = {
            "sequential": lambda: hidden_states,
            "parallel": lambda: input_tensor,
            "after-norm": lambda: self.norm(hidden_states + input_tensor),
        }
        return self.norm(self.routes.change(self.site, hidden_states, reads) + input_tensor)


class RoutedDense:
    """Stands for a dense layer."""

    def __init__(self, original, site, routes):
        self.original, self.site, self.routes = original, site, routes

    def __call__(self, inputs):
        outputs = self.original(self.routes.before(self.site, inputs))
        return self.routes.change(self.site, outputs, {None: lambda: inputs})


class RoutedNorm:
    """Stands for a LayerNorm."""

    def __init__(self, original, number, routes):
        self.epsilon, self.units = original.epsilon, int(original.gamma.shape[0])
        self.number, self.routes = number, routes

    def __call__(self, inputs):
        from tf_adapters.layers.bank import layer_norm  # of TensorFlow

        return layer_norm(inputs, *self.routes.norm(self.number, self.units), self.epsilon)
