"""Encoder blocks of BERT's shape made of the fused operations, on HuggingFace's own variables.

Each mixin stands before a HuggingFace class and adopts the layers of a built instance. What the operations
cannot do (a decoder, attention weights that are asked for, several adapters at a site, an activation without a
derivative in `layers.fused`, a `training` that is a tensor) is computed by the original's own `call`.
"""

import tensorflow as tf
from transformers.activations_tf import get_tf_activation
from transformers.modeling_tf_outputs import TFBaseModelOutputWithPastAndCrossAttentions

from tf_adapters._keras import keras
from tf_adapters._keras_internals import uncast
from tf_adapters.layers.dropout import SeededDropout
from tf_adapters.layers.fused.activation import ACTIVATIONS, biased_activation
from tf_adapters.layers.fused.attention import dot_product_attention
from tf_adapters.layers.fused.dropout import biased_dropout
from tf_adapters.layers.fused.layer_norm import sum_norm
from tf_adapters.models.transformers.dense_site import DenseSite
from tf_adapters.models.transformers.site import AdapterBlock, AdapterSite


def _value(variable, dtype):
    """A variable as a tensor, cast once from float32 whatever Keras would cast it to."""
    return tf.cast(uncast(variable), dtype)


def _rows(tensor):
    return tf.reshape(tensor, [-1, tensor.shape[-1]])


def _is_known(training):
    return training is None or isinstance(training, (bool, int))


def _keeps(training):
    # What cannot be known is kept.
    return bool(training) if _is_known(training) else True


def _are_dense(*layers):
    # A subclass may compute something else than its kernel and bias say.
    return all(type(layer) is keras.layers.Dense for layer in layers)


def _dense_and_update(layer, training):
    """A Dense and what is known to be added to it: `(dense, ())`, or `(dense, (LoraLayer, gate))`; None for anything
    else."""
    if _are_dense(layer):
        return layer, ()
    if (
        not isinstance(layer, DenseSite)
        or not _are_dense(layer.dense)
        or (len(layer.adapters) > 1 and layer.merged is None)
    ):
        return None
    if layer.merged is not None or not layer.adapters:
        return layer.merged or layer.dense, ()
    ((name, adapter),) = layer.adapters.items()
    if not adapter.low_rank or (adapter.dropout and training):
        return None
    return layer.dense, (adapter, tf.convert_to_tensor(layer.switch.gates[name]))


def _draw_seed(dropout):
    """Two words for the next mask, from a SeededDropout's own generator or from TensorFlow's global one."""
    if isinstance(dropout, SeededDropout):
        return dropout.draw_seed()
    return tf.random.uniform([2], tf.int32.min, tf.int32.max, tf.int32)


class FastSelfAttention:
    """Mixin for a self-attention with `query`, `key`, `value` and `dropout`: fewer products, a shorter gradient."""

    @classmethod
    def adopt(cls, original):
        """The same layers in this class; a layer that computes otherwise is returned as it is."""
        if not _are_dense(original.query, original.key, original.value):
            return original
        layer = cls(original.config, name=original.name, dtype=original.dtype_policy)
        layer.query, layer.key, layer.value = original.query, original.key, original.value
        layer.dropout = original.dropout
        layer.built = True
        return layer

    def call(
        self, hidden_states, attention_mask, head_mask, encoder_hidden_states, encoder_attention_mask, past_key_value,
        output_attentions, training=False, queries=None,
    ):  # fmt: skip
        """As the original; with `queries`, an int, only that many first tokens ask, and the others are asked."""
        others = (head_mask, encoder_hidden_states, past_key_value)
        fits = all(_dense_and_update(layer, training) is not None for layer in (self.query, self.key, self.value))
        if (
            not fits
            or any(other is not None for other in others)
            or self.is_decoder
            or output_attentions
            or not _is_known(training)
        ):
            outputs = super().call(
                hidden_states, attention_mask, head_mask, encoder_hidden_states, encoder_attention_mask,
                past_key_value, output_attentions, training=training,
            )  # fmt: skip
            return outputs if queries is None else (outputs[0][:, :queries], *outputs[1:])
        if queries is None:
            query, key, value = self._project(hidden_states, (self.query, self.key, self.value))
        else:
            (query,) = self._project(hidden_states[:, :queries], (self.query,))
            key, value = self._project(hidden_states, (self.key, self.value))
        rate = self.dropout.rate if training else 0.0
        seed = _draw_seed(self.dropout) if rate else None
        context = dot_product_attention(rate)(query, key, value, attention_mask, seed)
        context = tf.transpose(context, [0, 2, 1, 3])
        return (tf.reshape(context, tf.concat([tf.shape(context)[:2], [self.all_head_size]], 0)),)

    def _project(self, states, layers):
        """Query, key or value as `(batch, heads, length, width)`, by one product; the scores' scale is in the query.

        LoRA's updates take two narrow products for all of them.
        """
        denses, updates = zip(*(_dense_and_update(layer, False) for layer in layers))
        scale = self.attention_head_size**-0.5 if layers[0] is self.query else 1.0
        scales = [scale] + [1.0] * (len(layers) - 1)
        weights = [
            tf.cast(
                tf.concat(
                    [_value(getattr(dense, name), tf.float32) * scale for dense, scale in zip(denses, scales)], -1
                ),
                states.dtype,
            )
            for name in ("kernel", "bias")
        ]
        rows = _rows(states)
        joint = tf.nn.bias_add(tf.matmul(rows, weights[0]), weights[1])
        down, up = [], []
        for number, (update, scale) in enumerate(zip(updates, scales)):
            if update:
                (lora, gate), size = update, self.all_head_size
                down.append(_value(lora.a, states.dtype))
                wide = _value(lora.b, tf.float32) * (gate * lora.scaling * scale)
                up.append(
                    tf.pad(tf.cast(wide, states.dtype), [[0, 0], [number * size, (len(layers) - 1 - number) * size]])
                )
        if down:
            joint += tf.matmul(tf.matmul(rows, tf.concat(down, 1)), tf.concat(up, 0))
        batch, length = tf.unstack(tf.shape(states)[:2])
        shape = [batch, length, len(layers), self.num_attention_heads, self.attention_head_size]
        return tf.unstack(tf.transpose(tf.reshape(joint, shape), [2, 0, 3, 1, 4]))


class FastIntermediate:
    """Mixin for the first feed-forward layer, with `dense`: in training its activation keeps the derivative."""

    @classmethod
    def adopt(cls, original):
        """The same layer in this class; a layer that computes otherwise is returned as it is."""
        name = original.config.hidden_act
        if name not in ACTIVATIONS or original.intermediate_act_fn is not get_tf_activation(name):
            return original
        if not _are_dense(original.dense):
            return original
        layer = cls(original.config, name=original.name, dtype=original.dtype_policy)
        layer.dense = original.dense
        layer.built = True
        return layer

    def call(self, hidden_states, training=None):
        if not _are_dense(self.dense):
            return super().call(hidden_states)
        dtype = hidden_states.dtype
        product = tf.matmul(_rows(hidden_states), _value(self.dense.kernel, dtype))
        outputs = biased_activation(self.config.hidden_act, _keeps(training))(product, _value(self.dense.bias, dtype))
        return tf.reshape(outputs, tf.concat([tf.shape(hidden_states)[:-1], [self.dense.units]], 0))


class FastSite(AdapterSite):
    """An AdapterSite whose dropout, activation and LayerNorm are fused with the sums around them."""

    def call(self, hidden_states, input_tensor, training=False):
        name, adapter = next(iter(self.adapters.items()), (None, None))
        is_plain = len(self.adapters) < 2 and _is_known(training) and _are_dense(self.dense)
        if is_plain and training and self.switch.drops:
            is_plain = False
        if is_plain and adapter is not None:
            is_plain = self.configs[name].insertion == "sequential" and adapter.is_fused(training)
        if not is_plain:
            return super().call(hidden_states, input_tensor, training=training)
        dtype, rate = hidden_states.dtype, self.dropout.rate if training else 0.0
        product = tf.matmul(_rows(hidden_states), _value(self.dense.kernel, dtype))
        bias = _value(self.dense.bias, dtype)
        if rate:
            dense = biased_dropout(rate)(product, bias, _draw_seed(self.dropout))
        else:
            dense = tf.nn.bias_add(product, bias)
        terms, bias = [dense, _rows(input_tensor)], tf.zeros([self.dense.units])
        if adapter is not None:
            (gate,) = map(tf.convert_to_tensor, self.switch.gates.values())
            squeezed = tf.matmul(dense, _value(adapter.down_kernel, dtype))
            inner = biased_activation(adapter.activation, _keeps(training))(squeezed, _value(adapter.down_bias, dtype))
            # On the kernel the gate costs m*d products; on the activations it would cost tokens*d.
            kernel, bias = (_value(weight, tf.float32) * gate for weight in (adapter.up_kernel, adapter.up_bias))
            terms.append(tf.matmul(inner, tf.cast(kernel, dtype)))
        gamma, beta = self.guarded(_value(self.LayerNorm.gamma, tf.float32)), _value(self.LayerNorm.beta, tf.float32)
        outputs = sum_norm(self.LayerNorm.epsilon, len(terms), self.dense.units)(gamma, beta, bias, *terms)
        return tf.reshape(outputs, tf.shape(input_tensor))


class FastBlock(AdapterBlock):
    """An AdapterBlock that can compute its first token alone."""

    def call(self, hidden_states, attention_mask, *others, training=False, first_token_only=False, **named):
        """As the original; with `first_token_only` the other tokens are NaN, so that what reads them cannot go on in
        silence."""
        if not first_token_only:
            return super().call(hidden_states, attention_mask, *others, training=training, **named)
        first = hidden_states[:, :1]
        (context,) = self.attention.self_attention(
            hidden_states, attention_mask, *[None] * 4, False, training=training, queries=1
        )
        first = self.attention.dense_output(hidden_states=context, input_tensor=first, training=training)
        outputs = self.bert_output(
            hidden_states=self.intermediate(hidden_states=first), input_tensor=first, training=training
        )
        unread = [[0, 0], [0, tf.shape(hidden_states)[1] - 1], [0, 0]]
        nan = tf.constant(float("nan"), outputs.dtype)
        return (tf.ensure_shape(tf.pad(outputs, unread, constant_values=nan), hidden_states.shape),)


class FastEncoder:
    """Mixin for the stack of blocks under a head that reads the first token alone: the last block computes no other.

    Attributes:
        first_token_only: bool, False while a head that reads all tokens stands on the model.
    """

    first_token_only = True

    @classmethod
    def adopt(cls, original):
        """The same configuration in this class; the blocks are set afterwards."""
        encoder = cls(original.config, name=original.name, dtype=original.dtype_policy)
        encoder.layer = original.layer
        encoder.built = True
        return encoder

    def call(
        self, hidden_states, attention_mask, head_mask, encoder_hidden_states, encoder_attention_mask, past_key_values,
        use_cache, output_attentions, output_hidden_states, return_dict, training=False,
    ):  # fmt: skip
        """As the original, which computes all tokens where hidden states or attention weights are asked for."""
        last = self.layer[-1]
        others = (encoder_hidden_states, *(head_mask or ()), *(past_key_values or ()))
        if (
            output_attentions or output_hidden_states or self.config.is_decoder or not isinstance(last, FastBlock)
            or not isinstance(last.attention.self_attention, FastSelfAttention)
            or any(other is not None for other in others)
        ):  # fmt: skip
            return super().call(
                hidden_states, attention_mask, head_mask, encoder_hidden_states, encoder_attention_mask,
                past_key_values,
                use_cache, output_attentions, output_hidden_states, return_dict, training=training,
            )  # fmt: skip
        for block in self.layer:
            alone = self.first_token_only and block is last
            (hidden_states,) = block(
                hidden_states, attention_mask, *[None] * 4, False, training=training, first_token_only=alone
            )
        if not return_dict:
            return (hidden_states,)
        return TFBaseModelOutputWithPastAndCrossAttentions(last_hidden_state=hidden_states)
