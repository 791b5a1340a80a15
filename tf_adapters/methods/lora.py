"""LoRA. Hu et al. 2022, LoRA: Low-Rank Adaptation of Large Language Models."""

import dataclasses
from typing import Optional, Tuple

import numpy as np

from tf_adapters.config import DENSE_PLACES, MethodConfig
from tf_adapters.errors import InputError
from tf_adapters.layers.method import MethodLayer, in_keras2
from tf_adapters.ranges import check_fields, choice


@dataclasses.dataclass(frozen=True)
class LoraConfig(MethodConfig):
    """Frozen, validated description of low-rank updates: `W x + (alpha / rank) B A x`.

    Args:
        rank: int >= 1, `r`. A dense layer from `k` to `d` units gets `r (k + d)` parameters.
        alpha: float, the update's scale times the rank; None for `rank`, a scale of 1.
        targets: the dense layers of a block that are updated: of `"query"`, `"key"`, `"value"`, `"attention_output"`,
            `"intermediate"` and `"output"` (the two of the feed-forward layer).
        blocks: as of `AdapterConfig`.
        dropout: rate in [0, 1) on what the update reads.
        train_layer_norm: as of `AdapterConfig`.

    Raises:
        InputError: a value is out of range; the message names it.

    Example:
    >>> LoraConfig(rank=8).parameters(12, 768, 3072)
    294912

    Reference: Hu et al. 2022, sections 4.1 (equation 3) and 4.2, table 2 (0.3M for RoBERTa-base: queries and values,
    r=8).
    """

    rank: int = choice(8, "Rank of LoRA's updates, with `--recipe hu-2022`.", searched="int", panel="LoRA")
    alpha: Optional[float] = choice(None, "LoRA's scale times its rank.", searched="float", panel="LoRA")
    targets: Tuple[str, ...] = choice(
        ("query", "value"),
        f"What LoRA updates, with commas between: {', '.join(f'`{place}`' for place in DENSE_PLACES)}.",
        read=lambda text: tuple(part.strip() for part in text.split(",")),
        panel="LoRA",
    )
    blocks: Optional[Tuple[int, ...]] = None
    dropout: float = 0.0
    train_layer_norm: str = "none"

    method = "lora"

    def __post_init__(self):
        check_fields(self)
        targets = (self.targets,) if isinstance(self.targets, str) else self.targets
        listed = isinstance(targets, (list, tuple, set, frozenset)) and all(isinstance(place, str) for place in targets)
        if not listed or not targets or not set(targets) <= set(DENSE_PLACES) or len(set(targets)) != len(targets):
            raise InputError(f"{{targets}} must be some of {', '.join(map(repr, DENSE_PLACES))}.", targets=self.targets)
        object.__setattr__(self, "targets", tuple(place for place in DENSE_PLACES if place in targets))
        object.__setattr__(self, "alpha", float(self.rank if self.alpha is None else self.alpha))
        self._check_blocks_and_norms()

    def sites(self, depth):
        """As of `MethodConfig`; keys such as `layer.3.query`."""
        return {
            (block, place): f"layer.{block}.{place}" for block in self._adapted_blocks(depth) for place in self.targets
        }

    def layer(self, place, shape, *, ops, **settings):
        return ops.layer(Lora)(shape[1], rank=self.rank, alpha=self.alpha, dropout=self.dropout, **settings)

    def parameters(self, depth, hidden_size, intermediate_size):
        """As of `MethodConfig`."""
        other = {"intermediate": intermediate_size, "output": intermediate_size}
        widths = sum(hidden_size + other.get(place, hidden_size) for place in self.targets)
        return self.rank * widths * len(self._adapted_blocks(depth))


class Lora(MethodLayer):
    """A low-rank update of a dense layer.

    `A` starts uniform within `1 / sqrt(inputs)` of zero, as in the published code (the paper says Gaussian), and `B` at
    zero, so that the model starts as it was.

    Args:
        units: int, the dense layer's outputs.
        rank: int.
        alpha: float.
        dropout: float in [0, 1), on what `A` reads.
        seed: int or None.

    Call arguments:
        inputs: float tensor, `(..., inputs)`.
        dense: the layer that is updated, a callable.
        gate: float scalar or None; multiplies the update.
        training: bool, whether dropout applies.

    Returns: `dense(inputs)` and the update, `(..., units)`.

    Reference: Hu et al. 2022, section 4.1, equation 3.
    """

    layer_name = "LoraLayer"
    low_rank = True

    def __init__(self, units, *, rank, alpha, dropout=0.0, seed=None, **kwargs):
        super().__init__(**kwargs)
        self.units, self.rank, self.alpha, self.dropout, self.seed = units, rank, alpha, dropout, seed
        self._dropout_layer = self.ops.dropout(dropout, None if seed is None else seed + 1) if dropout else None

    def build(self, input_shape):
        bound = input_shape[-1] ** -0.5
        uniform = self.ops.keras.initializers.RandomUniform(-bound, bound, seed=self.seed)
        self._add("a", (input_shape[-1], self.rank), uniform)
        self._add("b", (self.rank, self.units), "zeros")
        super().build(input_shape)

    def form(self, training):
        return None if self.dropout and training else (self.rank, self.alpha)

    @property
    def scaling(self):
        """The update's scale, `alpha / rank`."""
        return self.alpha / self.rank

    def call(self, inputs, dense, gate=None, training=False):
        return dense(inputs) + self.update(inputs, gate=gate, training=training)

    def update(self, inputs, *, gate=None, training=False):
        """What is added, `(..., units)`."""
        if self._dropout_layer is not None:
            inputs = self._dropout_layer(inputs, training=training)
        ops = self.ops
        narrow = ops.matmul(ops.flat(inputs), ops.cast(self.a, inputs.dtype))
        # On B the scale costs rank * units products; on the activations it would cost tokens * units.
        scale = self.scaling if gate is None else self.scaling * ops.cast(gate, ops.float32)
        wide = ops.cast(scale * ops.cast(self.b, ops.float32), inputs.dtype)
        return ops.like(ops.matmul(narrow, wide), inputs)

    def merged(self, kernel, bias):
        update = self.a.numpy().astype(np.float64) @ self.b.numpy().astype(np.float64)
        return (kernel + self.scaling * update).astype(np.float32), bias

    def get_config(self):
        names = ("units", "rank", "alpha", "dropout", "seed")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


__getattr__ = in_keras2(LoraLayer=Lora)
