"""DoRA. Liu et al. 2024, DoRA: Weight-Decomposed Low-Rank Adaptation."""

import dataclasses

import numpy as np

from tf_adapters.layers.method import in_keras2
from tf_adapters.methods.lora import Lora, LoraConfig

_TINY = 1e-30  # so that a column of zeros, of a pruned unit say, stays one


@dataclasses.dataclass(frozen=True)
class DoraConfig(LoraConfig):
    """Frozen, validated description of low-rank updates of the direction of a matrix, beside its magnitude.

    Args: as of `LoraConfig`; a dense layer from `k` to `d` units gets `r (k + d) + d` parameters.

    Example:
    >>> DoraConfig(rank=8).parameters(12, 768, 3072)
    313344

    Reference: Liu et al. 2024, section 4.1, equation 5.
    """

    method = "dora"

    def layer(self, place, shape, *, ops, **settings):
        return ops.layer(Dora)(shape[1], rank=self.rank, alpha=self.alpha, dropout=self.dropout, **settings)

    def parameters(self, depth, hidden_size, intermediate_size):
        """As of `MethodConfig`."""
        units = sum(intermediate_size if place == "intermediate" else hidden_size for place in self.targets)
        return super().parameters(depth, hidden_size, intermediate_size) + units * len(self._adapted_blocks(depth))


class Dora(Lora):
    """A dense layer whose columns get another direction by a low-rank update, and a length of their own.

    With `V = W + (alpha / rank) A B` the kernel is `m |W| V / |V|`, where `|.|` is the norm of each column, of one
    output unit. The magnitude is learned relative to the pretrained one: `m` starts at 1, and with `B = 0` the model as
    it was. The gradient takes `|V|` as a constant.

    Args, call arguments: as of `Lora`. Dropout is on what `A` reads.

    Reference: Liu et al. 2024, sections 4.1 and 4.3 (the norm as a constant).
    """

    layer_name = "DoraLayer"
    low_rank = False

    def build(self, input_shape):
        super().build(input_shape)
        self._add("magnitude", (self.units,), "ones")

    def call(self, inputs, dense, gate=None, training=False):
        ops = self.ops
        kernel, bias = (ops.cast(ops.value(weight), ops.float32) for weight in (dense.kernel, dense.bias))
        a, b = (ops.cast(weight, ops.float32) for weight in (self.a, self.b))
        direction = kernel + self.scaling * ops.matmul(a, b)
        ratio = ops.column_norms(kernel) / ops.stop_gradient(ops.column_norms(direction) + _TINY)
        factor = ops.cast(self.magnitude, ops.float32) * ratio
        excess = factor - 1.0 if gate is None else ops.cast(gate, ops.float32) * (factor - 1.0)
        outputs, update = dense(inputs), self.update(inputs, gate=gate, training=training)
        # Exactly the layer's outputs where nothing was learned, and at a gate of 0.
        kind = outputs.dtype
        return outputs + (outputs - ops.cast(bias, kind)) * ops.cast(excess, kind) + update * ops.cast(factor, kind)

    def merged(self, kernel, bias):
        update = self.a.numpy().astype(np.float64) @ self.b.numpy().astype(np.float64)
        direction = kernel.astype(np.float64) + self.scaling * update
        before, after = (np.linalg.norm(values, axis=0) for values in (kernel.astype(np.float64), direction))
        return (direction * (self.magnitude.numpy() * before / (after + _TINY))).astype(np.float32), bias


__getattr__ = in_keras2(DoraLayer=Dora)
