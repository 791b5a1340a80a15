"""What a method of adaptation looks like, where it stands and what trains beside it."""

import dataclasses
import json
from typing import Optional, Tuple, Union

from tf_adapters.errors import InputError, shown
from tf_adapters.json_input import parse_json
from tf_adapters.ranges import check_fields, is_int, is_real

# The dense layers of a block.
DENSE_PLACES = ("query", "key", "value", "attention_output", "intermediate", "output")
PLACEMENTS = ("both", "attention", "ffn")
INSERTIONS = ("sequential", "after-norm", "parallel")
INNER_NORMS = ("none", "before", "after")
INTERACTIONS = ("add", "multiply")
LAYER_NORM_CHOICES = ("none", "adapted", "encoder", "all")


class MethodConfig:
    """What the configurations of all methods have in common; a subclass is a frozen dataclass.

    A subclass has `blocks`, `train_layer_norm`, `sites`, `layer` and `parameters`, and sets

    Attributes:
        method: str, its name in a saved directory.
        random_drop: int, as of `AdapterConfig`.
    """

    method = None
    random_drop = 0

    def sites(self, depth):
        """The places that the method changes: dict from `(block, place)` to the key of what changes it; `depth` blocks there are."""
        raise NotImplementedError

    def layer(self, place, shape, **settings):
        """The `MethodLayer` for a place.

        Args:
            place: str, as in `sites`.
            shape: `(inputs, outputs)` of what stands there.
            settings: `seed`, `name` and `dtype`.
        """
        raise NotImplementedError

    def parameters(self, depth, hidden_size, intermediate_size):
        """How many parameters the method has on an encoder, an int."""
        raise NotImplementedError

    def stored(self, depth, hidden_size, intermediate_size):
        """How many numbers a directory has for the method, an int: its parameters, and those of what it stands on."""
        return self.parameters(depth, hidden_size, intermediate_size)

    def to_dict(self):
        """Plain dict that JSON can hold; `from_dict` reads it back."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {"method": self.method} | {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    @classmethod
    def from_dict(cls, values):
        """Build from a dict; a key that is not a field raises InputError."""
        if not isinstance(values, dict):
            raise InputError(f"An adapter config must be a JSON object, not {shown(values)}.")
        values = {name: value for name, value in values.items() if (name, value) != ("method", cls.method)}
        known = [field.name for field in dataclasses.fields(cls)]
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise InputError(f"Unknown adapter config key {shown(unknown[0])}: the keys are {', '.join(known)}.")
        for field in dataclasses.fields(cls):
            if field.default is dataclasses.MISSING and field.name not in values:
                raise InputError(f"The adapter config lacks {field.name!r}.")
        return cls(**values)

    def to_json(self):
        """JSON text of `to_dict`."""
        return json.dumps(self.to_dict(), indent=2)

    @classmethod
    def from_json(cls, text):
        """Read what `to_json` wrote; raises InputError on text that is not such JSON."""
        try:
            values = parse_json(text)
        except ValueError as error:
            raise InputError(f"The adapter config is not JSON: {error}.") from None
        return cls.from_dict(values)

    def _check_blocks_and_norms(self):
        check_choice("train_layer_norm", self.train_layer_norm, LAYER_NORM_CHOICES)
        if self.blocks is None:
            return
        if isinstance(self.blocks, (str, bytes)) or not hasattr(self.blocks, "__iter__"):
            raise InputError(f"blocks={shown(self.blocks)} must be a sequence of block indices, or None for all blocks.")
        blocks = tuple(self.blocks)
        if not blocks or any(not is_int(block) or block < 0 for block in blocks):
            raise InputError(f"blocks={shown(blocks)} must hold at least one index, counted from 0; None means all blocks.")
        if len(set(blocks)) != len(blocks):
            raise InputError(f"blocks={shown(blocks)} names a block twice.")
        object.__setattr__(self, "blocks", tuple(sorted(int(block) for block in blocks)))

    def _adapted_blocks(self, depth):
        blocks = tuple(range(depth)) if self.blocks is None else self.blocks
        if blocks[-1] >= depth:
            raise InputError(f"blocks={shown(blocks)}: the encoder has {depth} blocks, the last is {depth - 1}.")
        return blocks


@dataclasses.dataclass(frozen=True)
class AdapterConfig(MethodConfig):
    """Frozen, validated description of bottleneck adapters (Houlsby et al., 2019).

    Args:
        bottleneck_size: int >= 1, units `m` between the two projections. One adapter
            has `2 m d + d + m` parameters on a hidden size of `d`.
        sharing: which places use one adapter. `"none"`: two per block; `"layer"`: one per
            block; an int `n >= 2`: one for `n` consecutive blocks, counted over the adapted
            blocks from the bottom. Where `n` does not divide their number, the blocks
            left over at the top share one adapter of their own.
        placement: `"both"` sub-layers, after `"attention"` only, or after the `"ffn"` only.
        blocks: indices of the blocks that get adapters, from 0 at the bottom, or None for
            all of them. AdapterDrop leaves out the lowest ones: `range(5, 12)`.
        activation: name of a Keras activation. `"gelu"` is the exact one, `"gelu_tanh"` its
            tanh approximation, `"swish"` and `"silu"` are the same.
        init_stddev: standard deviation of both kernels' normal initialisation, truncated
            at two standard deviations. Biases start at zero.
        dropout: rate in [0, 1), applied to the up-projection before the skip connection.
        insertion: what the adapter reads. `"sequential"`, the sub-layer's output `y`: `LN(y + A(y) + r)`, where `r` is
            the sub-layer's input; `"after-norm"`: `LN(y + A(LN(y + r)) + r)`, Pfeiffer's, which uses the pretrained
            LayerNorm twice; `"parallel"`, the sub-layer's input: `LN(y + A(r) + r)`.
        scaling: factor on the adapter's output, or `"learned"` for one that trains and starts at 1.
        hidden_layers: layers of `bottleneck_size` units between the projections.
        inner_norm: `"none"`, or a new LayerNorm `"before"` the down- or `"after"` the up-projection.
        interaction: `"add"`, or `"multiply"`: `y * (1 + A(...))` in place of `y + A(...)`.
        random_drop: AdapterDrop while training: in each step the lowest `n` adapted blocks do without their adapters,
            `n` drawn evenly from 0 to this number.
        train_layer_norm: pretrained LayerNorms trained with the adapters: `"none"`, those of
            the `"adapted"` blocks, of all `"encoder"` blocks, or `"all"`, the embeddings' included.

    Raises:
        InputError: a value is out of range; the message names it.

    Example:
    >>> AdapterConfig(bottleneck_size=16, sharing=3).parameters_per_adapter(768)
    25360

    Reference: Houlsby et al. 2019, sections 2.1 and 3.6; sharing: Mohebbi & Rajaei, section 6.2; `"after-norm"`: Pfeiffer
        et al. 2021, section 3; `"parallel"` and scaling: He et al. 2022, section 4; AdapterDrop: Rücklé et al. 2021,
        section 3.2.
    """

    bottleneck_size: int = 64
    sharing: Union[str, int] = "none"
    placement: str = "both"
    blocks: Optional[Tuple[int, ...]] = None
    activation: str = "gelu"
    init_stddev: float = 1e-2
    dropout: float = 0.0
    insertion: str = "sequential"
    scaling: Union[float, str] = 1.0
    hidden_layers: int = 1
    inner_norm: str = "none"
    interaction: str = "add"
    random_drop: int = 0
    train_layer_norm: str = "encoder"

    method = "bottleneck"

    def __post_init__(self):
        check_fields(self)
        check_sharing(self.sharing)
        check_choice("placement", self.placement, PLACEMENTS)
        self._check_blocks_and_norms()
        check_choice("insertion", self.insertion, INSERTIONS)
        check_choice("inner_norm", self.inner_norm, INNER_NORMS)
        check_choice("interaction", self.interaction, INTERACTIONS)
        check_scaling(self.scaling)
        if self.scaling != "learned":
            object.__setattr__(self, "scaling", float(self.scaling))
        if not isinstance(self.activation, str):
            raise InputError(f"activation={shown(self.activation)} must be the name of a Keras activation.")
        from tf_adapters.layers.activation import get_activation  # imports Keras: only once one is made

        get_activation(self.activation)

    def parameters_per_adapter(self, hidden_size):
        """Parameters of one adapter, `2 m d + d + m` and what its variant adds."""
        m, more = self.bottleneck_size, (self.inner_norm != "none") * 2 * hidden_size + (self.scaling == "learned")
        return 2 * m * hidden_size + hidden_size + m + (self.hidden_layers - 1) * (m + 1) * m + more

    def sites(self, depth):
        """The places that get an adapter, and which of them share one.

        Args:
            depth: int, number of blocks of the encoder.

        Returns: dict from `(block, "attention" | "ffn")` to the key of the adapter used
            there, from the bottom up. Keys name the adapter in a saved directory:
            `layer.3.ffn`, `layer.3` when a block shares one, `layers.3-5` when blocks do.

        Raises:
            InputError: `blocks` names a block that the encoder lacks, or more are to share one than there are.
        """
        blocks = self._adapted_blocks(depth)
        if is_int(self.sharing) and self.sharing > len(blocks):
            raise InputError(f"sharing={self.sharing}: {len(blocks)} blocks have adapters; give {len(blocks)} for one adapter of them all, or less.")
        places = ("attention", "ffn") if self.placement == "both" else (self.placement,)
        keys = {}
        for position, block in enumerate(blocks):
            for place in places:
                if self.sharing == "none":
                    key = f"layer.{block}.{place}"
                elif self.sharing == "layer":
                    key = f"layer.{block}"
                else:
                    start = position - position % self.sharing
                    group = blocks[start : start + self.sharing]
                    key = f"layers.{group[0]}-{group[-1]}"
                keys[block, place] = key
        return keys

    def parameters(self, depth, hidden_size, intermediate_size=None):
        """Parameters of all adapters of an encoder; the feed-forward layer's size makes no difference."""
        return len(set(self.sites(depth).values())) * self.parameters_per_adapter(hidden_size)

    def layer(self, place, shape, **settings):
        """As of `MethodConfig`."""
        from tf_adapters.layers.adapter import AdapterLayer

        names = ("activation", "init_stddev", "dropout", "hidden_layers", "inner_norm", "scaling", "interaction")
        return AdapterLayer(self.bottleneck_size, **{name: getattr(self, name) for name in names}, **settings)

    def to_dict(self):
        """As of `MethodConfig`; directories that were written before there were other methods do not name theirs."""
        values = super().to_dict()
        del values["method"]
        return values


def check_sharing(sharing):
    """Raise InputError for what `AdapterConfig.sharing` cannot be."""
    if isinstance(sharing, str):
        if sharing not in ("none", "layer"):
            raise InputError(f"sharing={sharing!r:.60} is unknown: use 'none', 'layer' or an integer of at least 2.")
    elif not is_int(sharing) or not 2 <= sharing < 2**31:
        raise InputError(
            f"sharing={sharing!r:.60} must be 'none', 'layer' or an integer of at least 2 ('layer' is the sharing within one block)."
        )


def check_scaling(scaling):
    """Raise InputError for what `AdapterConfig.scaling` cannot be."""
    if scaling != "learned" and (not is_real(scaling) or scaling == 0):
        raise InputError(f"scaling={scaling!r:.60} must be a number other than 0, of those that float32 holds, or 'learned'.")


def check_choice(name, value, choices):
    if value not in choices:
        raise InputError(f"{name}={shown(value)} is unknown: use one of {', '.join(repr(c) for c in choices)}.")
