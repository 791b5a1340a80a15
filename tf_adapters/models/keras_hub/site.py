"""The places inside a block where adapters stand, on Keras 3."""

import math

import keras
import keras_hub
import numpy as np
from keras import ops

from tf_adapters._keras3_internals import (
    layers_of,
    matrix_of,
    part,
    policy_without_bits,
    replace_tracked,
    untracked,
    with_weights,
)
from tf_adapters.config import ACTIVATIONS, DENSE_PLACES, one_name
from tf_adapters.layers.ops import keras3
from tf_adapters.models.keras_files import KeptInDirectories
from tf_adapters.models.keras_hub.heads import states_of
from tf_adapters.models.site import RoutedDense, RoutedFinish, SharedSite, routed_norms
from tf_adapters.models.transaction import replaced


def scalar(layer, name, dtype):
    """A weight of a layer that does not train, 0."""
    return layer.add_weight(name=name, shape=(), dtype=dtype, initializer="zeros", trainable=False, autocast=False)


class Unsaved:
    """Before a Keras layer whose own weights say what acts, which files of weights have no say in."""

    def save_own_variables(self, store):
        pass

    def load_own_variables(self, store):
        pass


class Acting(Unsaved, keras.layers.Layer):
    """Which adapter of a model acts, as weights that every graph of the model reads at its lowest site.

    Attributes: as of the first door's `Acting`.
    """

    def __init__(self):
        super().__init__(name="acting", dtype="float32")
        self.number, self.head = scalar(self, "number", "int32"), scalar(self, "head", "int32")
        self.last = self.traced_head = self.last_head = 0
        self.built = True

    def guard(self):
        """As of the first door's `Acting`; heads are not exchanged here."""
        return ops.where(ops.less_equal(ops.convert_to_tensor(self.number), self.last), 1.0, float("nan"))


class RandomDrop(Unsaved, keras.layers.Layer):
    """As of the first door's `RandomDrop`."""

    def __init__(self, most):
        super().__init__(name="random_drop")
        self.most, self.seeds = most, None
        self.number = scalar(self, "dropped_blocks", "int32")
        self.built = True

    def draw(self):
        """Choose the number of this step."""
        self.number.assign(keras.random.randint((), 0, self.most + 1, seed=self.seeds))


class Site(SharedSite, Unsaved, keras.layers.Layer):
    """A place in a block where adapters, or layers of other methods, stand; its weights are its switch."""

    ops = keras3

    def switches(self):
        return self  # no property, of which Keras' files would find no end

    def begin_switches(self):
        self.slots, self.gates, self.drops, self.drawing = {}, {}, {}, frozenset()
        self.active_slot = scalar(self, "active_slot", "int32")

    @property
    def switch_weights(self):
        """The weights that say what acts here; they are not counted among the model's."""
        weights = [self.active_slot, *self.gates.values(), *(drop.number for drop in self.drops.values())]
        return weights + (self.acting.weights if self.acting is not None else [])

    def new_gate(self, name):
        return scalar(self, f"gate_{name}", "float32")

    def draw_by(self, name, drop, seed):
        drop.seeds = keras.random.SeedGenerator(seed)
        self.drawing |= {name}

    def discard(self, name):
        if name in self.adapters:
            for gone in (self.adapters[name], self.gates[name], self.drops.get(name)):
                untracked(self, gone)
            super().discard(name)
            self.drawing -= {name}

    def kept(self, name, hidden_states, training):
        drop = self.drops[name]
        if name in self.drawing:
            drop.draw()  # blocks are computed one after the other, and the first one draws
        return ops.cast(ops.less_equal(ops.convert_to_tensor(drop.number), self.positions[name]), "float32")

    def branch(self, index, branches, training):
        if training and keras.backend.backend() == "jax" and self.draws():
            # JAX: a seed that a branch assigns would be a value of the branch alone.
            return ops.take(ops.stack([branch() for branch in branches]), index, axis=0)
        return ops.switch(index, branches)

    def draws(self):
        """Whether an adapter here has dropout, or drops blocks."""
        layers = (layer for adapter in self.adapters.values() for layer in layers_of(adapter))
        return bool(self.drops) or any(isinstance(layer, keras.layers.Dropout) and layer.rate for layer in layers)


class AdapterSite(Site):
    """What follows a sub-layer: the adapter, the sum with the sub-layer's input, the LayerNorm.

    Call arguments: as of the first door's `AdapterSite.finish`, and the LayerNorm.
    """

    @classmethod
    def beside(cls, norm, name):
        """A site for the sub-layer that ends with the LayerNorm `norm`."""
        site = cls(name=name, dtype=norm.dtype_policy)
        site.shape = (int(norm.gamma.shape[0]),) * 2
        site.make_site()
        return site

    def call(self, hidden_states, input_tensor, norm, training=None):
        outputs = norm(self.adapt(hidden_states, input_tensor, norm, training) + input_tensor)
        return outputs if self.acting is None else outputs * ops.cast(self.acting.guard(), outputs.dtype)


class DenseSite(Site):
    """A dense layer with what a method puts around it (`LoraLayer`, `IA3Layer`).

    Keras' attention has the heads in an axis of its own, and a Dense layer its activation; methods see matrices alone.

    Call arguments:
        inputs: float tensor, `(..., inputs)`; that of the attention's output `(..., heads, size)`.

    Returns: as of the dense layer.
    """

    @classmethod
    def adopt(cls, dense):
        """A site with the very layer `dense`."""
        site = cls(name=dense.name, dtype=policy_without_bits(dense.dtype_policy))
        site.dense, site.activation, site.merged = dense, getattr(dense, "activation", None), None
        kernel = tuple(dense.kernel.shape)
        joined = 2 if len(kernel) == 3 and len(dense.bias.shape) == 1 else 1
        site.heads_in = kernel[:2] if joined == 2 else None
        site.heads_out = kernel[1:] if len(kernel) == 3 and joined == 1 else None
        rows = kernel[0] * (kernel[1] if joined == 2 else 1)
        site.shape = (rows, math.prod(kernel) // rows)
        site.make_site()
        return site

    def take(self):
        """Compute the dense layer's activation from now on, behind the method."""
        if self.activation is not None:
            self.dense.activation = keras.activations.linear

    def give_back(self):
        """Let the dense layer compute its activation again."""
        if self.activation is not None:
            self.dense.activation = self.activation

    @property
    def kernel(self):
        """`(inputs, outputs)`."""
        return ops.reshape(matrix_of(self.dense), self.shape)

    @property
    def bias(self):
        """`(outputs,)`."""
        return ops.reshape(ops.convert_to_tensor(self.dense.bias), (self.shape[1],))

    def dense_of(self, kernel, bias):
        """As of the first door's `DenseSite`; its weights are of TensorFlow, whose graphs alone are served."""
        import tensorflow as tf

        kernel, bias = (
            tf.Variable(value.reshape(like.shape), name=like.name)
            for value, like in ((kernel, self.dense.kernel), (bias, self.dense.bias))
        )
        return with_weights(self.dense, kernel, bias)

    def compute(self, inputs):
        """The dense layer on `(batch, length, inputs)`, without its activation: `(batch, length, outputs)`."""
        if self.heads_in is not None:
            inputs = ops.reshape(inputs, (*ops.shape(inputs)[:-1], *self.heads_in))
        outputs = (self.merged or self.dense)(inputs)
        if self.heads_out is not None:
            outputs = ops.reshape(outputs, (*ops.shape(outputs)[:-2], self.shape[1]))
        return outputs

    def call(self, inputs, training=None):
        if self.heads_in is not None:
            inputs = ops.reshape(inputs, (*ops.shape(inputs)[:-2], self.shape[0]))

        def act(name, adapter, gate):
            return adapter(inputs, dense=_Flat(self), gate=gate, training=training)

        if self.merged is None:
            outputs = self.choose(act, lambda: self.compute(inputs), training)
        else:
            outputs = self.compute(inputs)
        if self.heads_out is not None:
            outputs = ops.reshape(outputs, (*ops.shape(outputs)[:-1], *self.heads_out))
        return outputs if self.activation is None else self.activation(outputs)

    def compute_output_shape(self, input_shape):
        return self.dense.compute_output_shape(input_shape)


class _Flat:
    """A site's dense layer as methods see it: a callable with `kernel` and `bias`; Keras takes it for no layer."""

    def __init__(self, site):
        self.kernel, self.bias, self._compute = site.kernel, site.bias, site.compute

    def __call__(self, inputs):
        return self._compute(inputs)


class AdapterBlock(KeptInDirectories):
    """Before KerasHub's class of a block: its sub-layers may be followed by adapters.

    A built block becomes one by its class, so that the graph of its backbone keeps it. The signature of `call` must be
    that of KerasHub's class, because Keras noted it when the block was made.

    Attributes:
        original: KerasHub's class.
    """

    original: type

    def make_sites(self, index):
        """Begin without an adapter; `index` is the block's, from the bottom.

        Returns: dict from `"attention"` and `"ffn"` to `AdapterSite`.
        """
        sites = {
            place: AdapterSite.beside(part(self, f"{place}_norm"), f"{place}_site_{index}")
            for place in ("attention", "ffn")
        }
        replace_tracked(self, attention_site=sites["attention"], ffn_site=sites["ffn"])
        return sites

    def drop_sites(self):
        """Be as before `make_sites`."""
        for name in ("attention_site", "ffn_site"):
            untracked(self, getattr(self, name))
            delattr(self, name)

    def finish(self, attended, inputs, **training):
        """The block's outputs, from what the attention made of its inputs, both `(batch, length, hidden)`.

        `training` is given where `call` has it; left out, layers take it from the call that is at work, and with None
        they do not.
        """
        attended = part(self, "attention_dropout")(attended, **training)
        hidden = self.attention_site(attended, inputs, norm=part(self, "attention_norm"), **training)
        outputs = part(self, "output")(part(self, "intermediate")(hidden))
        outputs = part(self, "ffn_dropout")(outputs, **training)
        return self.ffn_site(outputs, hidden, norm=part(self, "ffn_norm"), **training)


class AdapterEncoder(AdapterBlock, keras_hub.layers.TransformerEncoder):
    """KerasHub's TransformerEncoder with sites."""

    original = keras_hub.layers.TransformerEncoder

    def call(self, inputs, padding_mask=None, attention_mask=None, training=None, return_attention_scores=False):
        mask = joined_mask(padding_mask, attention_mask)
        scores = {"return_attention_scores": True} if return_attention_scores else {}
        attended = part(self, "attention")(query=inputs, value=inputs, attention_mask=mask, training=training, **scores)
        attended, *scores = attended if return_attention_scores else (attended,)
        outputs = self.finish(attended, inputs, training=training)
        return (outputs, *scores) if scores else outputs


def name_of_activation(function):
    """The name, as of `one_name`, of an activation; None for one that is unknown."""
    # KerasHub's own backbones have a function without a name. Some are another one's equal near zero alone.
    points = np.array([[*np.linspace(-4, 4, 9), -100, -20, -8, 8, 20, 100]], "float32")
    values = np.asarray(function(points))
    same = (name for name in ACTIVATIONS if np.allclose(keras3.activation(name)(points), values, rtol=0, atol=1e-5))
    found = next(same, None)
    return found and one_name(found)


def joined_mask(padding_mask, attention_mask):
    """What a block's attention takes of masks `(batch, length)` and `(batch, length, length)`, each of which may be
    None: `(batch, 1 or length, length)` booleans, or None where nothing is masked."""
    mask = None if padding_mask is None else ops.expand_dims(ops.cast(padding_mask, "bool"), 1)
    if attention_mask is None:
        return mask
    attention_mask = ops.cast(attention_mask, "bool")
    return attention_mask if mask is None else ops.logical_and(mask, attention_mask)


# Encoders in which each example of a batch has adapters, updates of dense layers and LayerNorms of its own


def make_routable(family, model):
    # Such a backbone takes no adapters of its own any more.
    for index, block in enumerate(family.blocks(model)):
        block.__class__ = family.block_class
        block.make_sites(index)
        for place in DENSE_PLACES:
            owner, attribute = family.dense(block, place)
            site = DenseSite.adopt(getattr(owner, attribute))
            site.take()
            replace_tracked(owner, **{attribute: site})


def encode(family, model, inputs, routes):
    changes, norms = [], routed_norms(family, model, routes)
    for number, block in enumerate(family.blocks(model)):
        for place in ("attention", "ffn"):
            norm = norms[id(part(block, f"{place}_norm"))]
            changes.append((getattr(block, f"{place}_site"), "call", RoutedFinish(norm, (number, place), routes)))
        for place in routes.places.intersection(DENSE_PLACES):
            site = getattr(*family.dense(block, place))
            changes.append((site, "compute", RoutedDense(site.compute, (number, place), routes)))
    # A backbone's graph holds the layer itself.
    embeddings = family.main_layer(model).embeddings_layer_norm
    changes.append((embeddings, "call", norms[id(embeddings)]))
    if family.pooler(model) is not None:
        changes.append((family.pooler(model), "call", lambda first, training=None: first))  # each row's own follows
    taken = family.inputs(inputs)
    with replaced(changes):
        return states_of(model({name: taken[name] for name in model.input}, training=False))
