"""The places inside an encoder block where adapters stand, for every family of BERT's shape."""

import tensorflow as tf

from tf_adapters._keras import keras
from tf_adapters._keras_internals import AutoTrackable, replace_layer, writes_saved_model
from tf_adapters.config import DENSE_PLACES
from tf_adapters.layers.dropout import SeededDropout
from tf_adapters.layers.fused import layer_norm
from tf_adapters.layers.ops import keras2 as ops
from tf_adapters.models.keras_files import KeptInDirectories, refuse
from tf_adapters.models.site import RoutedDense, RoutedFinish, SharedSite, routed_norms
from tf_adapters.models.transaction import replaced


class RandomDrop(AutoTrackable):
    """How many of the lowest adapted blocks do without their adapters in a training step.

    Args:
        most: int.

    Reference: Rücklé et al. 2021, AdapterDrop, section 3.2.
    """

    def __init__(self, most):
        super().__init__()
        self.most = most
        self.number = tf.Variable(0, trainable=False, dtype=tf.int32, name="dropped_blocks")

    def draw(self, seed):
        """Choose the number of this step; `seed` is int32 `(2,)`."""
        self.number.assign(tf.random.stateless_uniform([], seed, 0, self.most + 1, tf.int32))


class Acting(AutoTrackable):
    """Which adapter of a model acts, and which head stands on it, as variables that every graph of the model reads at
    its lowest site.

    Attributes:
        number: int32 scalar, the acting adapter's number, 0 for none.
        last: int, the highest number that an adapter of the model has or had. They go on: a graph must not take a later
            adapter for one of its own.
        head: int32 scalar, the number of the `Head` on the model.
        traced_head: int, the same for what is traced now.
        last_head: int, the highest number that a head of the model has or had.
    """

    def __init__(self):
        super().__init__()
        self.number = tf.Variable(0, trainable=False, dtype=tf.int32, name="acting")
        self.last = 0
        self.head = tf.Variable(0, trainable=False, dtype=tf.int32, name="head")
        self.traced_head = self.last_head = 0

    def guard(self):
        """1.0, or NaN where this graph cannot compute what acts: an adapter that was not on the model when it was
        traced, or one whose head has another shape.

        Returns: float32 scalar.
        """
        known = self.number.read_value() <= self.last
        return tf.where(known & (self.head.read_value() == self.traced_head), 1.0, float("nan"))


class Switch(AutoTrackable):
    """The variables that say which adapter acts at a site.

    Checkpoints and SavedModels see them; Keras does not count them among the weights.

    Attributes: as of `SharedSite`.
    """

    def __init__(self):
        super().__init__()
        self.active_slot = tf.Variable(0, trainable=False, dtype=tf.int32, name="active_slot")
        self.slots, self.gates, self.drops = {}, {}, {}

    def _trackable_children(self, *arguments, **settings):
        # What comes back of it has all adapters, of which none can be switched, and other weights train.
        return refuse() if writes_saved_model() else super()._trackable_children(*arguments, **settings)


class Site(SharedSite):
    """Mixin for a place in a block where adapters, or layers of other methods, stand; `shape` is `(inputs, outputs)` of
    what they change here."""

    ops = ops

    def begin_switches(self):
        self.switch = Switch()

    def switches(self):
        return self.switch

    def new_gate(self, name):
        return tf.Variable(0.0, trainable=False, name=f"gate_{name}")

    def draw_by(self, name, drop, seed):
        # A dropout's random numbers are seeded and saved with a run's; its rate is not looked at.
        setattr(self, f"drop_seeds_{name}", SeededDropout(0.0, seed=seed))

    def discard(self, name):
        super().discard(name)
        if hasattr(self, f"drop_seeds_{name}"):
            delattr(self, f"drop_seeds_{name}")

    def kept(self, name, hidden_states, training):
        drop = self.switch.drops[name]
        # Blocks are computed one after the other, and the first one draws.
        with tf.control_dependencies([hidden_states]):
            if hasattr(self, f"drop_seeds_{name}"):
                drop.draw(getattr(self, f"drop_seeds_{name}").draw_seed())
            kept = drop.number.read_value() <= self.positions[name]
        if not isinstance(training, (bool, int)):
            kept = kept | ~tf.cast(training, tf.bool)
        return tf.cast(kept, tf.float32)

    def branch(self, index, branches, training):
        return tf.switch_case(index, [lambda: tf.identity(branches[0]()), *branches[1:]])

    def guarded(self, values):
        """A LayerNorm's gamma or outputs, of which the lowest site makes NaN where a graph cannot compute what acts."""
        return values if self.acting is None else values * tf.cast(self.acting.guard(), values.dtype)


def adopted(layer_class, original, *parts):
    """A layer of a class that owns these layers of the built HuggingFace layer `original`."""
    layer = layer_class(original.config, name=original.name, dtype=original.dtype_policy)
    for part in parts:
        setattr(layer, part, getattr(original, part))
    layer.built = True
    return layer


class AdapterSite(Site):
    """Mixin for the output half of a sub-layer: dense, dropout, adapter, LayerNorm(... + input).

    Stands before a HuggingFace class whose `call(hidden_states, input_tensor, training)`
    is `LayerNorm(dropout(dense(hidden_states)) + input_tensor)`, and adopts the layers
    of a built instance, so that weights and their names stay what they were. Where a family computes
    that elsewhere, its layer adopts the original otherwise, calls `make_site` and ends with `finish`.
    """

    @classmethod
    def adopt(cls, original):
        """A site that owns the very layers of the built HuggingFace layer `original`."""
        site = adopted(cls, original, "dense", "dropout", "LayerNorm")
        site.make_site()
        return site

    @property
    def shape(self):
        return (self.LayerNorm.gamma.shape[0],) * 2

    def call(self, hidden_states, input_tensor, training=False):
        hidden_states = self.dense(inputs=hidden_states)
        # Of DeBERTa it is a layer of another signature.
        hidden_states = self.dropout(hidden_states, training=training)
        return self.finish(hidden_states, input_tensor, training)

    def finish(self, hidden_states, input_tensor, training):
        """What follows the sub-layer: the adapter, the sum with the sub-layer's input, the LayerNorm."""
        return self._normalise(self.adapt(hidden_states, input_tensor, self._normalise, training) + input_tensor)

    def _normalise(self, summed):
        norm = self.LayerNorm
        if summed.dtype != tf.float32:
            return self.guarded(norm(inputs=summed))
        return layer_norm(
            summed, self.guarded(tf.convert_to_tensor(norm.gamma)), tf.convert_to_tensor(norm.beta), norm.epsilon
        )


class NormSite(AdapterSite, keras.layers.Layer):
    """A site around a LayerNorm alone, where a block has no layer for an output half.

    Call arguments: as of `AdapterSite.finish`.
    """

    @classmethod
    def adopt(cls, norm, name):
        """A site with the very LayerNorm `norm`."""
        site = cls(name=name, dtype=norm.dtype_policy)
        site.LayerNorm = norm
        site.make_site()
        return site

    def call(self, hidden_states, input_tensor, training=False):
        return self.finish(hidden_states, input_tensor, training)


class DenseSite(Site, keras.layers.Layer):
    """A dense layer with what a method puts around it (`LoraLayer`, `IA3Layer`).

    Call arguments:
        inputs: float tensor, `(..., inputs)`.

    Returns: `(..., outputs)`.
    """

    @classmethod
    def adopt(cls, dense):
        """A site with the very layer `dense`."""
        site = cls(name=dense.name, dtype=dense.dtype_policy)
        site.dense, site.merged = dense, None
        site.make_site()
        return site

    @property
    def shape(self):
        return tuple(self.dense.kernel.shape)

    def dense_of(self, kernel, bias):
        """A layer like the dense one, with other weights; `models.injection` lets it be `merged`."""
        dense = keras.layers.Dense.from_config(self.dense.get_config())
        dense.build((None, self.shape[0]))
        dense.set_weights((kernel, bias))
        return dense

    def call(self, inputs, training=False):
        # It computes the same in one product.
        if self.merged is not None:
            return self.merged(inputs)

        def act(name, adapter, gate):
            return adapter(inputs, dense=self.dense, gate=gate, training=training)

        return self.choose(act, lambda: self.dense(inputs), training)


class AdaptedBlock(KeptInDirectories):
    """What injection asks of an encoder block that holds one site or two.

    A family's block stands behind this mixin. Its class method `adopt` makes one that owns the layers of a built block,
    and its property `sites` is a dict from `"attention"` and `"ffn"` to its `AdapterSite`s.
    """

    # Attributes of the original's attention that `adopt` replaces, and `remove_adapters` puts back.
    replaced_parts = ()


class AdapterBlock(AdaptedBlock):
    """An AdaptedBlock of BERT's shape.

    Stands before a HuggingFace block with `attention.dense_output`, `intermediate` and
    `bert_output`; the computation is the original's own.
    """

    # Set by the family. A class without which the original layer stays is None.
    site_classes = {}  # place -> class
    self_attention_class = None
    intermediate_class = None
    replaced_parts = ("self_attention", "dense_output")

    @classmethod
    def adopt(cls, original):
        block = cls(original.attention.dense_output.config, name=original.name, dtype=original.dtype_policy)
        attention = block.attention = original.attention
        block.intermediate = original.intermediate
        if hasattr(original, "crossattention"):
            block.crossattention = original.crossattention
        if cls.self_attention_class is not None:
            replace_layer(attention, "self_attention", cls.self_attention_class.adopt(attention.self_attention))
        replace_layer(attention, "dense_output", cls.site_classes["attention"].adopt(attention.dense_output))
        if cls.intermediate_class is not None:
            block.intermediate = cls.intermediate_class.adopt(original.intermediate)
        block.bert_output = cls.site_classes["ffn"].adopt(original.bert_output)
        block.built = True
        return block

    @property
    def sites(self):
        return {"attention": self.attention.dense_output, "ffn": self.bert_output}


# Encoders in which each example of a batch has adapters, updates of dense layers and LayerNorms of its own


def make_routable(family, model):
    family.set_blocks(model, [family.block_class.adopt(block) for block in family.blocks(model)])


def encode(family, model, inputs, routes):
    main, changes, norms = family.main_layer(model), [], routed_norms(family, model, routes)
    taken = {name: inputs[name] for name in family.takes(model)}
    for number, block in enumerate(family.blocks(model)):
        for place, site in block.sites.items():
            changes.append((site, "finish", RoutedFinish(norms[id(site.LayerNorm)], (number, place), routes)))
        for place in routes.places.intersection(DENSE_PLACES):
            owner, attribute = family.dense(block, place)
            changes.append((owner, attribute, RoutedDense(vars(owner)[attribute], (number, place), routes)))
    changes.append((main.embeddings, "LayerNorm", norms[id(main.embeddings.LayerNorm)]))
    if family.pooler(model) is not None:
        changes.append((main, "pooler", lambda *_, **__: None))  # each row's own follows

    def run():
        return model(taken, training=False).last_hidden_state

    with replaced(changes):
        return tf.function(run, autograph=True)() if family.autograph else run()
