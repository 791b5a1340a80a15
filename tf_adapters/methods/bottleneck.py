"""Bottleneck adapter. Houlsby et al. 2019, Parameter-Efficient Transfer Learning for NLP."""

import dataclasses
from typing import Optional, Tuple, Union

from tf_adapters.config import FUSED, MethodConfig, check_activation, check_scaling, check_sharing, read_blocks
from tf_adapters.errors import InputError
from tf_adapters.layers.method import INNER_NORM_EPSILON, MethodLayer, in_keras2
from tf_adapters.ranges import check_choice, check_fields, choice, in_range, is_int, number_or_word

PLACEMENTS = ("both", "attention", "ffn")
INSERTIONS = ("sequential", "after-norm", "parallel")
INNER_NORMS = ("none", "before", "after")
INTERACTIONS = ("add", "multiply")
INIT_DISTRIBUTIONS = ("truncated", "normal")
_DETAIL = "Adapter in detail"
# What a config and its layers have in common, beside the size.
_OF_LAYER = (
    "activation", "init_stddev", "init_distribution", "dropout", "hidden_layers", "inner_norm", "scaling", "interaction"
)  # fmt: skip


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
        init_stddev: standard deviation of both kernels' normal initialisation. Biases start at zero.
        dropout: rate in [0, 1), applied to the up-projection before the skip connection.
        insertion: what the adapter reads. `"sequential"`, the sub-layer's output `y`: `LN(y + A(y) + r)`, where `r` is
            the sub-layer's input; `"after-norm"`: `LN(y + A(LN(y + r)) + r)`, Pfeiffer's, which uses the pretrained
            LayerNorm twice; `"parallel"`, the sub-layer's input: `LN(y + A(r) + r)`.
        scaling: factor on the adapter's output, or `"learned"` for one that trains and starts at 1. The
            `inner_norm` `"after"` undoes it, as in AdapterHub.
        hidden_layers: layers of `bottleneck_size` units between the projections.
        inner_norm: `"none"`, or a new LayerNorm `"before"` the down- or `"after"` the up-projection.
        interaction: `"add"`, or `"multiply"`: `y * (1 + A(...))` in place of `y + A(...)`.
        random_drop: AdapterDrop while training: in each step the lowest `n` adapted blocks do without their adapters,
            `n` drawn evenly from 0 to this number; a block of ALBERT's draws wherever it stands.
        train_layer_norm: pretrained LayerNorms trained with the adapters: `"none"`, those of
            the `"adapted"` blocks, of all `"encoder"` blocks, or `"all"`, the embeddings' included.
        init_distribution: of the initial weights: `"truncated"` at two standard deviations, or `"normal"`, which is
            AdapterHub's.

    Raises:
        InputError: a value is out of range; the message names it.

    Example:
    >>> AdapterConfig(bottleneck_size=16, sharing=3).parameters_per_adapter(768)
    25360

    Reference: Houlsby et al. 2019, sections 2.1 and 3.6; sharing: Mohebbi & Rajaei, section 6.2; `"after-norm"`:
        Pfeiffer et al. 2021, section 3; `"parallel"` and scaling: He et al. 2022, section 4; AdapterDrop: Rücklé et al.
        2021, section 3.2.
    """

    bottleneck_size: int = choice(
        64, "Units of the bottleneck; 8 to 256 are usual. Without a recipe 64.", alias="adapter-size", searched="int",
        panel="Adapter",
    )  # fmt: skip
    sharing: Union[str, int] = choice(
        "none", "`none`: two adapters per block; `layer`: one; a number n: one for n consecutive blocks.",
        read=number_or_word, searched="int or word", panel="Adapter",
    )  # fmt: skip
    placement: str = choice(
        "both", "After `attention`, after the `ffn`, or `both`.", searched="word", values=PLACEMENTS, panel="Adapter"
    )  # fmt: skip
    blocks: Optional[Tuple[int, ...]] = choice(
        None, "Blocks with adapters, from 0 at the bottom: `5-11` or `0,2,4`. Default: all.", read=read_blocks,
        panel="Adapter",
    )  # fmt: skip
    activation: str = choice("gelu", "gelu, gelu_tanh, swish, relu, tanh, ...", searched="word", panel="Adapter")
    init_stddev: float = choice(
        3e-2, "Standard deviation of the adapters' initial weights. Without a recipe 0.03.", searched="float",
        panel=_DETAIL,
    )  # fmt: skip
    dropout: float = choice(
        0.0, "Dropout inside the adapters.", option="adapter-dropout", searched="float", panel=_DETAIL
    )
    insertion: str = choice(
        "sequential", "`sequential`: behind the sub-layer; `after-norm`: Pfeiffer's, which uses the LayerNorm twice; "
        "`parallel` to it.", searched="word", values=INSERTIONS, panel=_DETAIL,
    )  # fmt: skip
    scaling: Union[float, str] = choice(
        1.0, "Factor on the adapter's output, or `learned`. He et al. (2022) have 4 with `parallel`.",
        read=number_or_word, searched="float or word", panel=_DETAIL,
    )  # fmt: skip
    hidden_layers: int = choice(
        1, "Layers between the adapter's two projections.", searched="int", panel=_DETAIL
    )  # fmt: skip
    inner_norm: str = choice(
        "none", "A LayerNorm inside the adapter: `none`, `before` or `after` its projections.", searched="word",
        values=INNER_NORMS, panel=_DETAIL,
    )  # fmt: skip
    interaction: str = choice(
        "add", "`add` the adapter's output to the sub-layer's, or `multiply` by it.", searched="word",
        values=INTERACTIONS, panel=_DETAIL,
    )  # fmt: skip
    random_drop: int = choice(
        0, "AdapterDrop: in each step leave out the adapters of the lowest 0 to this many blocks.", searched="int",
        panel=_DETAIL,
    )  # fmt: skip
    train_layer_norm: str = choice(
        "all", "LayerNorms that train with the adapters: `none`, of the `adapted` blocks, `encoder` or `all`.",
        searched="word", panel="Adapter",
    )  # fmt: skip
    init_distribution: str = choice(
        "truncated", "Of the initial weights: `truncated` at two standard deviations, or `normal`.",
        values=INIT_DISTRIBUTIONS, panel=_DETAIL,
    )  # fmt: skip

    method = "bottleneck"
    is_bottleneck = True

    def __post_init__(self):
        check_fields(self)
        check_sharing(self.sharing)
        self._check_blocks_and_norms()
        check_scaling(self.scaling)
        if self.scaling != "learned":
            object.__setattr__(self, "scaling", float(self.scaling))
        check_activation(self.activation)

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
            raise InputError(
                f"{{sharing}}: {len(blocks)} blocks have adapters; give {len(blocks)} for one adapter of them all, or "
                "less.",
                sharing=self.sharing,
            )
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

    def layer(self, place, shape, *, ops, **settings):
        make = ops.layer(Bottleneck)
        return make(self.bottleneck_size, **{name: getattr(self, name) for name in _OF_LAYER}, **settings)


class Bottleneck(MethodLayer):
    """Bottleneck adapter with a skip connection (Houlsby et al., 2019), and its variants.

    Computes `h + A(h)` at every position, where `A(x) = W_up f(W_down x + b_down) + b_up`. With
    `init_stddev` near zero it starts as almost the identity.

    Args:
        bottleneck_size: int, size `m` of the bottleneck.
        activation: str, name of the activation `f`; `"gelu"` is exact, `"gelu_tanh"`
            approximate, every other Keras name works.
        init_stddev: float, standard deviation of the kernels' normal initialisation. Biases start at zero.
        init_distribution: `"truncated"` at two standard deviations, or `"normal"`, which is not.
        dropout: float in [0, 1), rate on the up-projection before the skip connection.
        hidden_layers: int, layers of `m` units between the projections; 1 is the paper's adapter.
        inner_norm: `"none"`, or a LayerNorm `"before"` the down- or `"after"` the up-projection.
        scaling: float, a factor on `A(x)`, or `"learned"`: a scalar that trains and starts at 1.
        interaction: `"add"`, or `"multiply"` for `h * (1 + A(x))`.
        seed: int or None. Each kernel draws from a seed of its own derived from it.

    Call arguments:
        hidden_states: float tensor, `(..., hidden_size)`.
        inputs: what the adapter reads, a tensor like `hidden_states`, which it reads if this is None.
        gate: float scalar or None; multiplies `A(x)`. 1 is the adapter, 0 the identity, bit for bit.
        training: bool, whether dropout applies.

    Returns: the same shape and dtype as `hidden_states`.

    Raises:
        InputError: a size below 1, an unknown choice.

    Example:
    >>> import numpy, tf_adapters
    >>> tf_adapters.methods.AdapterLayer(bottleneck_size=16)(numpy.zeros((2, 5, 64))).shape
    TensorShape([2, 5, 64])

    Reference: Houlsby et al. 2019, sections 2.1 (with figure 2) and 3.6 (several layers, normalisation,
        multiplication); scaling: He et al. 2022, section 4.
    """

    layer_name = "AdapterLayer"

    @in_range
    def __init__(
        self, bottleneck_size, *, activation="gelu", init_stddev=3e-2, dropout=0.0, hidden_layers=1, inner_norm="none",
        scaling=1.0, interaction="add", init_distribution="truncated", seed=None, **kwargs,
    ):  # fmt: skip
        super().__init__(**kwargs)
        check_scaling(scaling)
        check_choice("inner_norm", inner_norm, INNER_NORMS)
        check_choice("interaction", interaction, INTERACTIONS)
        check_choice("init_distribution", init_distribution, INIT_DISTRIBUTIONS)
        self.bottleneck_size, self.activation, self.dropout, self.seed = bottleneck_size, activation, dropout, seed
        self.init_stddev, self.init_distribution = init_stddev, init_distribution
        self.hidden_layers, self.inner_norm = hidden_layers, inner_norm
        self.scaling, self.interaction = scaling, interaction
        check_activation(activation)
        self._activation_function = self.ops.activation(activation)
        self._dropout_layer = self.ops.dropout(dropout, None if seed is None else seed + 2) if dropout else None

    @property
    def is_plain(self):
        """Whether it is the paper's adapter, whose two projections are all that it has."""
        return (self.hidden_layers, self.inner_norm, self.scaling, self.interaction) == (1, "none", 1.0, "add")

    def form(self, training):
        # A dropout draws from a state of its own.
        drops = self.dropout and training
        names = ("bottleneck_size", "activation", "hidden_layers", "inner_norm", "scaling", "interaction")
        return None if drops else tuple(getattr(self, name) for name in names)

    def is_fused(self, training):
        return self.is_plain and not (self.dropout and training) and self.activation in FUSED

    def build(self, input_shape):
        hidden_size, m = input_shape[-1], self.bottleneck_size
        if hidden_size is None:
            raise InputError(f"AdapterLayer needs a known hidden size, and the input shape is {input_shape}.")
        kernels = {"down": (hidden_size, m), "up": (m, hidden_size)}
        kernels |= {f"hidden_{number}": (m, m) for number in range(1, self.hidden_layers)}
        for name, shape in kernels.items():
            # One initializer object for all would draw the same numbers again.
            initializer = self._initializer(stddev=self._stddev(name), seed=self._seed(name))
            self._add(f"{name}.kernel", shape, initializer)
            self._add(f"{name}.bias", shape[1:], "zeros")
        if self.inner_norm != "none":
            self._add("norm.gamma", (hidden_size,), "ones")
            self._add("norm.beta", (hidden_size,), "zeros")
        if self.scaling == "learned":
            self._add("learned.scaling", (), "ones")
        super().build(input_shape)

    @property
    def _initializer(self):
        initializers = self.ops.keras.initializers
        return initializers.TruncatedNormal if self.init_distribution == "truncated" else initializers.RandomNormal

    def _stddev(self, name):
        # Near zero at both ends is near the identity; between them it would stop the signal.
        return self.init_stddev if name in ("down", "up") else self.bottleneck_size**-0.5

    def _seed(self, name):
        offset = {"down": 0, "up": 1}[name] if name in ("down", "up") else 2 + int(name.removeprefix("hidden_"))
        return None if self.seed is None else self.seed + offset

    def call(self, hidden_states, inputs=None, gate=None, training=False):
        update = self.update(hidden_states if inputs is None else inputs, gate=gate, training=training)
        update = self.ops.like(update, hidden_states)
        return hidden_states + (hidden_states * update if self.interaction == "multiply" else update)

    def update(self, inputs, *, gate=None, training=False):
        """`A(inputs)`, as `ops.flat` has the positions."""
        ops = self.ops
        flat = ops.flat(inputs)
        kernel, bias = ops.value(self.up_kernel), ops.value(self.up_bias)
        if gate is not None and self.is_plain:
            # On the kernel the gate costs m*d products; on the activations it would cost tokens*d.
            kernel, bias, gate = kernel * gate, bias * gate, None
        if self.inner_norm == "before":
            flat = self._normalise(flat)
        inner = self._activation_function(ops.bias_add(ops.matmul(flat, self.down_kernel), self.down_bias))
        for number in range(1, self.hidden_layers):
            middle, shift = (ops.value(getattr(self, f"hidden_{number}_{part}")) for part in ("kernel", "bias"))
            inner = self._activation_function(ops.bias_add(ops.matmul(inner, middle), shift))
        update = ops.bias_add(ops.matmul(inner, kernel), bias)
        if self.scaling != 1.0:
            update *= ops.cast(self.scaling_factor, update.dtype)
        if self._dropout_layer is not None:
            update = self._dropout_layer(update, training=training)
        if self.inner_norm == "after":
            update = self._normalise(update)
        return update if gate is None else update * gate

    @property
    def scaling_factor(self):
        """The factor on the adapter's output: a float, or the variable that learns it."""
        return self.learned_scaling if self.scaling == "learned" else self.scaling

    def _normalise(self, rows):
        return self.ops.layer_norm(rows, self.norm_gamma, self.norm_beta, INNER_NORM_EPSILON)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        names = ("bottleneck_size", *_OF_LAYER, "seed")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


__getattr__ = in_keras2(AdapterLayer=Bottleneck)
