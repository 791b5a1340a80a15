"""Encoder blocks of BERT's shape made of the fused operations, on HuggingFace's own variables.

Each mixin stands before a HuggingFace class and adopts the layers of a built instance. What the operations
cannot do (a decoder, attention weights that are asked for, adapters of several forms at a site, an activation without a
derivative in `layers.fused`, a `training` that is a tensor) is computed by the original's own `call`.
"""

import tensorflow as tf
from transformers.activations_tf import get_tf_activation
from transformers.modeling_tf_outputs import TFBaseModelOutputWithPastAndCrossAttentions

from tf_adapters._keras import keras
from tf_adapters._keras_internals import uncast
from tf_adapters.layers import attention, fused
from tf_adapters.layers.dropout import SeededDropout
from tf_adapters.models.transformers.site import AdapterBlock, AdapterSite, DenseSite, adopted


def _are_dense(*layers):
    # A subclass may compute something else than its kernel and bias say.
    return all(type(layer) is keras.layers.Dense for layer in layers)


def _dense(layer, training):
    """A Dense layer, with LoRA's update where one is around it, as `fused.Dense`; None for anything else."""
    if _are_dense(layer):
        return fused.Dense(uncast(layer.kernel), uncast(layer.bias))
    if not isinstance(layer, DenseSite) or not _are_dense(layer.dense):
        return None
    if layer.merged is not None or not layer.adapters:
        return _dense(layer.merged or layer.dense, training)
    update = layer.fused_update(training)
    return update and _dense(layer.dense, training)._replace(update=update)


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
        return adopted(cls, original, "query", "key", "value", "dropout")

    def call(
        self, hidden_states, attention_mask, head_mask, encoder_hidden_states, encoder_attention_mask, past_key_value,
        output_attentions, training=False, queries=None,
    ):  # fmt: skip
        """As the original; with `queries`, an int, only that many first tokens ask, and the others are asked."""
        others = (head_mask, encoder_hidden_states, past_key_value)
        denses = [_dense(layer, training) for layer in (self.query, self.key, self.value)]
        if (
            any(dense is None for dense in denses)
            or any(other is not None for other in others)
            or self.is_decoder
            or output_attentions
            or not fused.is_known(training)
        ):
            outputs = super().call(
                hidden_states, attention_mask, head_mask, encoder_hidden_states, encoder_attention_mask,
                past_key_value, output_attentions, training=training,
            )  # fmt: skip
            return outputs if queries is None else (outputs[0][:, :queries], *outputs[1:])
        rate = self.dropout.rate if training else 0.0
        seed = _draw_seed(self.dropout) if rate else None
        drops = {"rate": rate, "seed": seed}
        heads = self.num_attention_heads
        return (attention.attend(hidden_states, *denses, heads=heads, mask=attention_mask, queries=queries, **drops),)


class FastIntermediate:
    """Mixin for the first feed-forward layer, with `dense`: its activation is one pass, and so is the gradient's."""

    @classmethod
    def adopt(cls, original):
        """The same layer in this class; a layer that computes otherwise is returned as it is."""
        name = original.config.hidden_act
        if name not in fused.ACTIVATIONS or original.intermediate_act_fn is not get_tf_activation(name):
            return original
        if not _are_dense(original.dense):
            return original
        return adopted(cls, original, "dense")

    def call(self, hidden_states, training=None):
        dense = _dense(self.dense, training) if _are_dense(self.dense) else None
        if dense is None:
            return super().call(hidden_states)
        return fused.expand(hidden_states, dense, self.config.hidden_act)


class FastSite(AdapterSite):
    """An AdapterSite whose dropout, activation and LayerNorm are fused with the sums around them."""

    def call(self, hidden_states, input_tensor, training=False):
        adapter = self.fused_adapter(training) if fused.is_known(training) and _are_dense(self.dense) else None
        if adapter is None:
            return super().call(hidden_states, input_tensor, training=training)
        norm, rate = self.LayerNorm, self.dropout.rate if training else 0.0
        return fused.close(
            hidden_states,
            input_tensor,
            _dense(self.dense, training),
            fused.Norm(self.guarded(uncast(norm.gamma)), uncast(norm.beta), norm.epsilon),
            adapter=fused.Adapter(*adapter) if adapter else None,
            rate=rate,
            seed=_draw_seed(self.dropout) if rate else None,
        )


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
        return adopted(cls, original, "layer")

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
                past_key_values, use_cache, output_attentions, output_hidden_states, return_dict, training=training,
            )  # fmt: skip
        for block in self.layer:
            alone = self.first_token_only and block is last
            (hidden_states,) = block(
                hidden_states, attention_mask, *[None] * 4, False, training=training, first_token_only=alone
            )
        if not return_dict:
            return (hidden_states,)
        return TFBaseModelOutputWithPastAndCrossAttentions(last_hidden_state=hidden_states)
