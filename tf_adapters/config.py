"""What a method of adaptation looks like, where it stands and what trains beside it."""

import dataclasses
import json

from tf_adapters.errors import InputError, shown
from tf_adapters.paths import parse_json
from tf_adapters.ranges import check_choice, is_int, is_real

# The dense layers of a block.
DENSE_PLACES = ("query", "key", "value", "attention_output", "intermediate", "output")
LAYER_NORM_CHOICES = ("none", "adapted", "encoder", "all")
# Activations by name, so that a configuration can be written down; what they compute is in `layers.ops`.
ACTIVATIONS = (
    "elu", "exponential", "gelu", "gelu_tanh", "hard_sigmoid", "linear", "mish", "relu", "selu", "sigmoid", "silu",
    "softmax", "softplus", "softsign", "swish", "tanh",
)  # fmt: skip
# Those that fast blocks compute with their biases; `gelu_new` is what transformers calls `gelu_tanh`.
FUSED = ("gelu", "gelu_tanh", "gelu_new", "relu", "swish", "silu", "tanh")
# transformers' other names for them.
_OTHERS = {
    "gelu_python": "gelu", "gelu_new": "gelu_tanh", "gelu_fast": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh",
    "swish": "silu",
}  # fmt: skip


class MethodConfig:
    """What the configurations of all methods have in common; a subclass is a frozen dataclass.

    A subclass has `blocks`, `train_layer_norm`, `sites`, `layer` and `parameters`, and sets

    Attributes:
        method: str, its name in a saved directory.
        random_drop: int, as of `AdapterConfig`.
        is_bottleneck: bool, whether its layers are bottlenecks that stand behind sub-layers: those are fused
            (`FusionConfig`).
    """

    method = None
    random_drop = 0
    is_bottleneck = False

    def why_not_banked(self):
        """Why `layers.bank` has no pool of a method, as the end of a sentence."""
        return f"was trained by the method {self.method!r}, which a bank does not compute"

    def sites(self, depth):
        """The places that the method changes: dict from `(block, place)` to the key of what changes it; `depth` blocks
        there are."""
        raise NotImplementedError

    def layer(self, place, shape, *, ops, **settings):
        """The layer for a place.

        Args:
            place: str, as in `sites`.
            shape: `(inputs, outputs)` of what stands there.
            ops: module of `layers.ops`, that of the model's Keras; `ops.layer` makes a `MethodLayer` a layer of it.
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
        return {"method": self.method} | {
            name: list(value) if isinstance(value, tuple) else value for name, value in values.items()
        }

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
            raise InputError("{blocks} must be a sequence of block indices, or None for all.", blocks=self.blocks)
        blocks = tuple(self.blocks)
        if not blocks or any(not is_int(block) or block < 0 for block in blocks):
            raise InputError("{blocks} must hold at least one index, counted from 0, or be None.", blocks=blocks)
        if len(set(blocks)) != len(blocks):
            raise InputError("{blocks} names a block twice.", blocks=blocks)
        object.__setattr__(self, "blocks", tuple(sorted(int(block) for block in blocks)))

    def _adapted_blocks(self, depth):
        blocks = tuple(range(depth)) if self.blocks is None else self.blocks
        if blocks[-1] >= depth:
            raise InputError(f"{{blocks}}: the encoder has {depth} blocks, the last is {depth - 1}.", blocks=blocks)
        return blocks


def check_sharing(sharing):
    """Raise InputError for what `AdapterConfig.sharing` cannot be."""
    known = sharing in ("none", "layer") if isinstance(sharing, str) else is_int(sharing) and 2 <= sharing < 2**31
    if not known:
        raise InputError("{sharing} must be 'none', 'layer' or an integer of at least 2.", sharing=sharing)


def check_scaling(scaling):
    """Raise InputError for what `AdapterConfig.scaling` cannot be."""
    if scaling != "learned" and (not is_real(scaling) or scaling == 0):
        raise InputError("{scaling} must be a float32 other than 0, or 'learned'.", scaling=scaling)


def one_name(name):
    """The one name, of `ACTIVATIONS` where it is there, of an activation that transformers may call by several."""
    return _OTHERS.get(name, name)


def check_activation(name):
    """Raise InputError unless `name` is one of `ACTIVATIONS`: `"gelu"` is the exact one, `"gelu_tanh"` its tanh
    approximation, and `"swish"` and `"silu"` are the same."""
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise InputError(f"{{activation}} is unknown: Keras has {', '.join(ACTIVATIONS)}.", activation=name)


def read_blocks(text):
    """The blocks that an option's text names, such as `5-11` or `0,2,4`; a tuple."""
    blocks = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        last = last if dash else first
        # Four digits: a typing error must not fill the memory.
        if not all(number.isdecimal() and len(number) <= 4 for number in (first, last)) or int(first) > int(last):
            raise InputError("{blocks} must look like 5-11 or 0,2,4.", blocks=text)
        blocks += range(int(first), int(last) + 1)
    return tuple(blocks)
