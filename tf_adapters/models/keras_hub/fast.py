"""TransformerEncoder out of the fused operations, on KerasHub's own variables; on TensorFlow.

What the operations cannot do (attention scores that are asked for, adapters of several forms at a site, an activation
without a derivative in `layers.fused`, weights in eight bits, layers of a class of somebody's own) is computed by the
layers themselves.
"""

import contextlib
import threading

import keras
import keras_hub
import tensorflow as tf
from keras import ops

from tf_adapters import _keras3_internals as internals
from tf_adapters._keras3_internals import attention_dropout, dense_place, has_mask, part
from tf_adapters.config import FUSED
from tf_adapters.layers import attention, fused
from tf_adapters.models.keras_hub.site import AdapterEncoder, DenseSite, joined_mask, name_of_activation

_MASKED = -1e9  # what Keras' Softmax adds; float16 has -3e4
_DTYPES = (tf.float32, tf.bfloat16, tf.float16)  # in which the operations compute
_ATTENTIONS = (keras.layers.MultiHeadAttention, keras_hub.layers.CachedMultiHeadAttention)
_HERE = threading.local()


@contextlib.contextmanager
def _here(name):
    before = getattr(_HERE, name, False)
    setattr(_HERE, name, True)
    try:
        yield
    finally:
        setattr(_HERE, name, before)


def first_token_only():
    """A context. What this thread computes there reads the first token alone: the last block computes no other."""
    return _here("alone")


def call_for_first_token(model, *inputs, **settings):
    """`call` of a task model that reads the first token alone."""
    with first_token_only():
        return type(model).call(model, *inputs, **settings)


def plain():
    """A context in which this thread computes fast blocks as plain ones."""
    return _here("plain")


def uncast(variable):
    """A variable as a tensor in its own dtype."""
    return tf.convert_to_tensor(internals.uncast(variable))


class FastEncoder(AdapterEncoder):
    """An AdapterEncoder of fast parts.

    Attributes:
        is_last: bool, whether no other block reads what this one makes.
    """

    original = AdapterEncoder.original
    is_last = False

    def make_sites(self, index):
        self.activation_name = name_of_activation(self.activation)
        return super().make_sites(index)

    def drop_sites(self):
        del self.activation_name
        vars(self).pop("is_last", None)
        super().drop_sites()

    def call(self, inputs, padding_mask=None, attention_mask=None, training=None, return_attention_scores=False):
        if (
            return_attention_scores or getattr(_HERE, "plain", False) or not fused.is_known(training)
            or inputs.dtype not in _DTYPES or has_mask(inputs)
        ):  # fmt: skip
            return super().call(inputs, padding_mask, attention_mask, training, return_attention_scores)
        mask = joined_mask(padding_mask, attention_mask)
        denses = [_dense(getattr(*dense_place(self, place)), training) for place in ("query", "key", "value")]
        if any(dense is None for dense in denses) or type(part(self, "attention")) not in _ATTENTIONS:
            attended = part(self, "attention")(query=inputs, value=inputs, attention_mask=mask, training=training)
            hidden = self._behind("attention", attended, inputs, training)
            return self._close("ffn", self._expand(hidden), hidden, training)
        alone = self.is_last and getattr(_HERE, "alone", False)
        attended = self._attend(inputs, denses, mask, training, queries=1 if alone else None)
        hidden = self._close("attention", attended, inputs[:, :1] if alone else inputs, training)
        outputs = self._close("ffn", self._expand(hidden), hidden, training)
        if not alone:
            return outputs
        # So that what reads the other tokens cannot go on in silence.
        unread = [[0, 0], [0, tf.shape(inputs)[1] - 1], [0, 0]]
        return tf.pad(outputs, unread, constant_values=tf.constant(float("nan"), outputs.dtype))

    def _attend(self, inputs, denses, mask, training, queries):
        rate, generator = attention_dropout(part(self, "attention"))
        kept = None
        if mask is not None:
            mask = mask[:, :queries]
            # Keras gives no weight to any key where all are masked, but for an attention that never drops.
            kept = tf.cast(tf.reduce_any(mask, -1, keepdims=True), inputs.dtype) if rate else None
            masked = -3e4 if inputs.dtype == tf.float16 else _MASKED
            mask = (1 - tf.cast(mask[:, None], inputs.dtype)) * tf.cast(masked, inputs.dtype)
        drops = {"rate": rate, "seed": _seed(generator)} if training and rate else {}
        context = attention.attend(inputs, *denses, heads=self.num_heads, mask=mask, queries=queries, **drops)
        return context if kept is None else context * kept

    def _expand(self, hidden):
        layer = part(self, "intermediate")
        dense = _plain(layer)
        if dense is None or self.activation_name not in FUSED or layer.activation is not self.activation:
            return layer(hidden)
        return fused.expand(hidden, dense, self.activation_name)

    def _close(self, place, states, inputs, training):
        """What ends a sub-layer, from its last dense layer on."""
        layer, site = _last(self, place), getattr(self, f"{place}_site")
        norm, dropout = part(self, f"{place}_norm"), part(self, f"{place}_dropout")
        own = type(norm) is keras.layers.LayerNormalization and type(dropout) is keras.layers.Dropout
        dense, adapter = _plain(layer), site.fused_adapter(training)
        if dense is None or adapter is None or not own:
            if place == "attention":
                states = ops.reshape(states, (*ops.shape(states)[:2], self.num_heads, -1))
            return self._behind(place, layer(states), inputs, training)
        gamma, rate = uncast(norm.gamma), dropout.rate if training else 0.0
        if site.acting is not None:
            gamma = gamma * tf.cast(site.acting.guard(), gamma.dtype)
        return fused.close(
            states,
            inputs,
            dense,
            fused.Norm(gamma, uncast(norm.beta), norm.epsilon),
            adapter=fused.Adapter(*adapter) if adapter else None,
            rate=rate,
            seed=_seed(dropout.seed_generator) if rate else None,
        )

    def _behind(self, place, made, inputs, training):
        made = part(self, f"{place}_dropout")(made, training=training)
        return getattr(self, f"{place}_site")(made, inputs, norm=part(self, f"{place}_norm"), training=training)


def _last(block, place):
    return getattr(*dense_place(block, "attention_output")) if place == "attention" else part(block, "output")


def _seed(generator):
    """Two words for the next mask, from a SeedGenerator, whose state is saved."""
    return tf.bitcast(tf.cast(generator.next(), tf.uint32), tf.int32)


def _plain(layer):
    """A dense layer as `fused.Dense`, whose matrix has no axis of heads; None for one that computes otherwise."""
    # A subclass may compute something else than its kernel and bias say.
    if type(layer) not in (keras.layers.Dense, keras.layers.EinsumDense):
        return None
    if layer.quantization_mode is not None or layer.lora_enabled:
        return None
    kernel, bias = uncast(layer.kernel), uncast(layer.bias)
    if len(kernel.shape) == 3:  # (hidden, heads, size), and of the attention's output (heads, size, hidden)
        units = int(bias.shape.num_elements())
        kernel, bias = tf.reshape(kernel, [-1, units]), tf.reshape(bias, [units])
    return fused.Dense(kernel, bias)


def _dense(layer, training):
    """As `_plain`, with LoRA's update where one is around the layer."""
    if not isinstance(layer, DenseSite):
        return _plain(layer)
    dense = _plain(layer.dense)
    if dense is None or not layer.adapters:
        return dense
    update = layer.fused_update(training)
    return update and dense._replace(update=update)
