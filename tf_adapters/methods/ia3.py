"""(IA)^3. Liu et al. 2022, Few-Shot Parameter-Efficient Fine-Tuning is Better and Cheaper than In-Context Learning."""

import dataclasses
from typing import Optional, Tuple

from tf_adapters.config import MethodConfig
from tf_adapters.layers.method import MethodLayer, in_keras2

# Keys and values are scaled behind their dense layers, and the inner activations before the second feed-forward layer.
_SIDES = {"key": "outputs", "value": "outputs", "output": "inputs"}


@dataclasses.dataclass(frozen=True)
class IA3Config(MethodConfig):
    """Frozen, validated description of learned vectors that scale keys, values and the feed-forward layer's inner
    activations.

    Args:
        blocks: as of `AdapterConfig`.
        train_layer_norm: as of `AdapterConfig`.

    Example:
    >>> IA3Config().parameters(12, 768, 3072)
    55296

    Reference: Liu et al. 2022, section 3.3.
    """

    blocks: Optional[Tuple[int, ...]] = None
    train_layer_norm: str = "none"

    method = "ia3"

    def __post_init__(self):
        self._check_blocks_and_norms()

    def sites(self, depth):
        """As of `MethodConfig`; keys such as `layer.3.key`."""
        return {(block, place): f"layer.{block}.{place}" for block in self._adapted_blocks(depth) for place in _SIDES}

    def side(self, place):
        """Whether the `"inputs"` or the `"outputs"` of a dense layer are scaled."""
        return _SIDES[place]

    def layer(self, place, shape, *, ops, seed, **settings):
        """As of `MethodConfig`; nothing is random."""
        side = self.side(place)
        return ops.layer(IA3)(shape[side == "outputs"], side=side, **settings)

    def parameters(self, depth, hidden_size, intermediate_size):
        """As of `MethodConfig`."""
        return (2 * hidden_size + intermediate_size) * len(self._adapted_blocks(depth))


class IA3(MethodLayer):
    """A learned vector that scales what goes into a dense layer, or what comes out of it. It starts at one.

    Args:
        units: int, size of the vector.
        side: `"inputs"` or `"outputs"`.

    Call arguments:
        inputs: float tensor, `(..., inputs)`.
        dense: the layer, a callable.
        gate: float scalar or None; 1 is the vector, 0 the layer alone, bit for bit.
        training: bool, of no account.

    Returns: `(..., outputs)`.

    Reference: Liu et al. 2022, section 3.3.
    """

    layer_name = "IA3Layer"

    def __init__(self, units, *, side, **kwargs):
        super().__init__(**kwargs)
        self.units, self.side = units, side

    def build(self, input_shape):
        self._add("scale", (self.units,), "ones")
        super().build(input_shape)

    def form(self, training):
        return (self.side,)

    def call(self, inputs, dense, gate=None, training=False):
        ops = self.ops
        scale = ops.cast(self.scale, ops.float32)
        if gate is not None:
            scale = 1.0 + ops.cast(gate, ops.float32) * (scale - 1.0)
        scale = ops.cast(scale, inputs.dtype)
        return dense(inputs * scale) if self.side == "inputs" else dense(inputs) * scale

    def merged(self, kernel, bias):
        scale = self.scale.numpy()
        return (kernel * scale[:, None], bias) if self.side == "inputs" else (kernel * scale, bias * scale)

    def get_config(self):
        return {**super().get_config(), "units": self.units, "side": self.side}


__getattr__ = in_keras2(IA3Layer=IA3)
