"""AdapterFusion. Pfeiffer et al. 2021, AdapterFusion: Non-Destructive Task Composition for Transfer Learning."""

import dataclasses
from typing import Dict

import numpy as np

from tf_adapters.config import MethodConfig
from tf_adapters.errors import InputError
from tf_adapters.layers.method import MethodLayer, in_keras2
from tf_adapters.methods.bottleneck import AdapterConfig
from tf_adapters.ranges import check_fields


@dataclasses.dataclass(frozen=True)
class FusionConfig(MethodConfig):
    """Frozen, validated description of adapters that stay as they are and of an attention over them that is learned.

    `fuse_adapters` makes one of saved adapters.

    Args:
        adapters: dict from name to `AdapterConfig`, at least two, which stand at the same places, read the same and
            add.
        value_regularization: float, the factor on the squared distance of each value matrix from the identity, which is
            added to the loss.

    Raises:
        InputError: the adapters differ in where they stand; the message says how.

    Reference: Pfeiffer et al. 2021, section 3.2.
    """

    adapters: Dict[str, AdapterConfig]
    value_regularization: float = 0.01

    method = "fusion"
    train_layer_norm = "none"

    def __post_init__(self):
        check_fields(self)
        if not isinstance(self.adapters, dict) or len(self.adapters) < 2:
            raise InputError("{adapters} must be a dict of at least two adapters' configs.", adapters=self.adapters)
        configs = {
            name: config if isinstance(config, AdapterConfig) else AdapterConfig.from_dict(config)
            for name, config in self.adapters.items()
        }
        object.__setattr__(self, "adapters", configs)
        (first, described), *others = configs.items()
        for name, config in others:
            for field in ("sharing", "placement", "blocks", "insertion"):
                if getattr(config, field) != getattr(described, field):
                    raise InputError(
                        f"Adapters that are fused stand at the same places: {first!r} has "
                        f"{field}={getattr(described, field)!r}, and {name!r} {getattr(config, field)!r}."
                    )
        for name, config in configs.items():
            if "." in name or not name:
                raise InputError(f"{{adapters}}: the name {name!r} must have no '.'.", adapters=list(configs))
            if config.interaction != "add":
                raise InputError(
                    f"The adapter {name!r} has interaction={config.interaction!r}: what is fused is added."
                )

    @property
    def insertion(self):
        """As of `AdapterConfig`, the same for all."""
        return next(iter(self.adapters.values())).insertion

    @property
    def blocks(self):
        """As of `AdapterConfig`, the same for all."""
        return next(iter(self.adapters.values())).blocks

    def why_not_banked(self):
        return (
            "fuses adapters by three matrices of the hidden size at each place, too much for each row to bring its own"
        )

    def sites(self, depth):
        """As of `MethodConfig`."""
        return next(iter(self.adapters.values())).sites(depth)

    def layer(self, place, shape, *, ops, **settings):
        adapters = {}
        for number, (name, config) in enumerate(self.adapters.items()):
            # Keras 3 takes no slash in a layer's name, and ids of the hub have one.
            own = f"{number}_{name.replace('/', '_')}" if "/" in name else name
            own = settings["name"] + ops.weight_name(".") + own
            adapters[name] = config.layer(place, shape, ops=ops, **{**settings, "name": own})
        return ops.layer(Fusion)(adapters, value_regularization=self.value_regularization, **settings)

    def parameters(self, depth, hidden_size, intermediate_size=None):
        """Of the attention alone, which is what trains."""
        return len(set(self.sites(depth).values())) * (3 * hidden_size + 1) * hidden_size

    def stored(self, depth, hidden_size, intermediate_size=None):
        """As of `MethodConfig`, those of the adapters included."""
        adapters = sum(config.parameters(depth, hidden_size) for config in self.adapters.values())
        return self.parameters(depth, hidden_size) + adapters

    def to_dict(self):
        return {**super().to_dict(), "adapters": {name: config.to_dict() for name, config in self.adapters.items()}}


class Fusion(MethodLayer):
    """Attention over the outputs of adapters at one place, for each position by itself.

    With `u_i = A_i(x)` of the adapters, `x` being what they read: `h + sum_i p_i V u_i`, where
    `p = softmax_i((Q x + b) . K u_i)`. As in the published code (`adapters`), keys and values are what the adapters add
    to `h`, the scores have no scale, and `V` starts near the identity. A bias of the keys, which that code has, adds
    the same to all scores of a position and so changes nothing. The adapters do not train.

    Args:
        adapters: dict from name to `AdapterLayer`.
        value_regularization: as of `FusionConfig`.
        init_stddev: float, standard deviation of the kernels of `Q` and `K` at the start.
        seed: int or None.

    Call arguments: as of `AdapterLayer`.

    Returns: the same shape and dtype as `hidden_states`.

    Reference: Pfeiffer et al. 2021, section 3.2 and figure 3.
    """

    layer_name = "FusionLayer"

    def __init__(self, adapters, *, value_regularization=0.01, init_stddev=0.02, seed=None, **kwargs):
        super().__init__(**kwargs)
        self.adapters = adapters
        self.value_regularization, self.init_stddev, self.seed = value_regularization, init_stddev, seed

    def build(self, input_shape):
        ops, size = self.ops, input_shape[-1]
        for number, name in enumerate(("query", "key")):
            seed = None if self.seed is None else self.seed + number
            normal = ops.keras.initializers.RandomNormal(stddev=self.init_stddev, seed=seed)
            self._add(f"{name}.kernel", (size, size), normal)
        self._add("query.bias", (size,), "zeros")
        factor = self.value_regularization

        def distance(value):
            # tf_keras adds losses of weights that do not train too, such as those of a fusion that does not act.
            trains = any(weight is self.value_kernel for weight in self.trainable_weights)
            return trains * factor * ops.squares(value - ops.constant(np.eye(size), value.dtype))

        def near_identity(shape, dtype=None, **_):
            values = np.full(shape, 1e-6)
            np.fill_diagonal(values, 1.0)
            return ops.constant(values, dtype or ops.float32)

        self._add("value.kernel", (size, size), near_identity, regularizer=distance if factor else None)
        for name, adapter in self.adapters.items():
            with ops.scope(name):
                adapter.build(input_shape)
        super().build(input_shape)

    @property
    def parts(self):
        """The attention's weights, and the adapters' as `adapters.NAME.down.kernel`."""
        own = super().parts
        return own | {
            f"adapters.{name}.{part}": weight
            for name, layer in self.adapters.items()
            for part, weight in layer.parts.items()
        }

    @property
    def learned(self):
        """The attention's weights."""
        return list(super().parts.values())

    def call(self, hidden_states, inputs=None, gate=None, training=False):
        ops, inputs = self.ops, hidden_states if inputs is None else inputs
        updates = ops.stack([adapter.update(inputs) for adapter in self.adapters.values()], -2)
        dtype = hidden_states.dtype
        weights = {name: ops.cast(ops.value(weight), dtype) for name, weight in super().parts.items()}
        query = ops.bias_add(ops.matmul(ops.flat(inputs), weights["query.kernel"]), weights["query.bias"])
        # q . K u = (K^T q) . u: one product in place of one for each adapter.
        scores = ops.einsum("...ad,...d->...a", updates, ops.matmul(query, weights["key.kernel"], transpose_b=True))
        shares = ops.softmax(ops.cast(scores, ops.float32))
        mixed = ops.einsum("...a,...ad->...d", shares, ops.cast(updates, ops.float32))
        value = weights["value.kernel"] if gate is None else weights["value.kernel"] * gate
        return hidden_states + ops.like(ops.matmul(ops.cast(mixed, dtype), value), hidden_states)


__getattr__ = in_keras2(FusionLayer=Fusion)
