"""The places inside an encoder block where adapters stand, for every family of BERT's shape."""

import contextlib

import tensorflow as tf

from tf_adapters.layers.layer_norm import layer_norm


class Switch(tf.__internal__.tracking.AutoTrackable):
    """The variables that say which adapter acts at a site.

    Checkpoints and SavedModels see them; Keras does not count them among the weights.

    Attributes:
        active_slot: int32 scalar, 0 for none, i for the i-th adapter of the site.
        gates: dict from adapter name to float32 scalar.
    """

    def __init__(self):
        super().__init__()
        self.active_slot = tf.Variable(0, trainable=False, dtype=tf.int32, name="active_slot")
        self.gates = {}


@contextlib.contextmanager
def replaced(changes):
    """While a graph is traced, attributes of layers have other values.

    Keras' own bookkeeping is passed by: the layers' weights and sub-layers are the same before and after.

    Args:
        changes: list of `(layer, name of an attribute, value)`.
    """
    before = [vars(layer)[name] for layer, name, _ in changes]
    for layer, name, value in changes:
        vars(layer)[name] = value
    try:
        yield
    finally:
        for (layer, name, _), value in zip(changes, before):
            vars(layer)[name] = value


def replace_layer(owner, name, layer):
    """Set `owner.name` to another layer at the same place among its layers, so that weights keep their order."""
    replaced = getattr(owner, name)
    if replaced is layer:
        return
    place = next(place for place, other in enumerate(owner._self_tracked_trackables) if other is replaced)
    setattr(owner, name, layer)
    # The list is another one now.
    owner._self_tracked_trackables.insert(place, owner._self_tracked_trackables.pop())


class AdapterSite:
    """Mixin for the output half of a sub-layer: dense, dropout, adapter, LayerNorm(... + input).

    Stands before a HuggingFace class whose `call(hidden_states, input_tensor, training)`
    is `LayerNorm(dropout(dense(hidden_states)) + input_tensor)`, and adopts the layers
    of a built instance, so that weights and their names stay what they were.

    Several adapters may stand at one site. Which one acts is decided by variables, so a
    graph that was traced before a switch follows it:

    - `gates[name]` is 1 where `name` acts and 0 where no adapter does. It is NaN where
      another one acts: a graph traced before that one was added cannot compute it, and
      must not answer with something else in silence.
    - `active_slot` chooses among several: 0 for none, i for the i-th name. With a single
      adapter the gate alone is used, which needs no branch in the graph.
    """

    @classmethod
    def adopt(cls, original):
        """A site that owns the very layers of the built HuggingFace layer `original`."""
        site = cls(original.config, name=original.name, dtype=original.dtype_policy)
        site.dense = original.dense
        site.dropout = original.dropout
        site.LayerNorm = original.LayerNorm
        site.adapters = {}
        site.switch = Switch()
        site.built = True
        return site

    def add(self, name, adapter):
        """Put `adapter`, an AdapterLayer that other sites may use too, at this site."""
        # A fresh dict: Keras refuses to save a tracked one that was changed in place.
        self.adapters = {**self.adapters, name: adapter}
        gate = tf.Variable(0.0, trainable=False, name=f"gate_{name}")
        self.switch.gates = {**self.switch.gates, name: gate}

    def discard(self, name):
        """Take the adapter `name` away, if it stands here."""
        self.adapters = {key: value for key, value in self.adapters.items() if key != name}
        self.switch.gates = {key: value for key, value in self.switch.gates.items() if key != name}

    def activate(self, name):
        """Let the adapter `name` act; None, or a name that has no adapter here, lets none."""
        names = list(self.adapters)
        acting = name if name in names else None
        self.switch.active_slot.assign(0 if acting is None else 1 + names.index(acting))
        for key, gate in self.switch.gates.items():
            gate.assign(0.0 if acting is None else 1.0 if key == acting else float("nan"))

    def call(self, hidden_states, input_tensor, training=False):
        hidden_states = self.dense(inputs=hidden_states)
        hidden_states = self.dropout(inputs=hidden_states, training=training)
        hidden_states = self._adapt(hidden_states, training)
        summed = hidden_states + input_tensor
        norm = self.LayerNorm
        if summed.dtype != tf.float32:
            return norm(inputs=summed)
        return layer_norm(summed, tf.convert_to_tensor(norm.gamma), tf.convert_to_tensor(norm.beta), norm.epsilon)

    def _adapt(self, hidden_states, training):
        if not self.adapters:
            return hidden_states
        if len(self.adapters) == 1:
            ((name, adapter),) = self.adapters.items()
            gate = tf.cast(self.switch.gates[name], hidden_states.dtype)
            return adapter(hidden_states, gate=gate, training=training)
        branches = [lambda: tf.identity(hidden_states)]
        branches += [lambda adapter=adapter: adapter(hidden_states, training=training) for adapter in self.adapters.values()]
        # Out of range: an adapter that was added after this graph was traced.
        branches.append(lambda: hidden_states * tf.constant(float("nan"), hidden_states.dtype))
        return tf.switch_case(self.switch.active_slot.read_value(), branches)


class AdapterBlock:
    """Mixin for a whole encoder block that holds one site or two.

    Stands before a HuggingFace block with `attention.dense_output`, `intermediate` and
    `bert_output`; the computation is the original's own.
    """

    # Set by the family. A class without which the original layer stays is None.
    site_classes = {}  # place -> class
    self_attention_class = None
    intermediate_class = None

    @classmethod
    def adopt(cls, original):
        """A block that owns the layers of the built block `original`."""
        block = cls(original.attention.self_attention.config, name=original.name, dtype=original.dtype_policy)
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
