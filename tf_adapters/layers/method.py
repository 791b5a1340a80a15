"""What the layers of all methods have in common."""

from tf_adapters.errors import InputError

# Of a LayerNorm inside an adapter: PyTorch's default, which AdapterHub's adapters have.
INNER_NORM_EPSILON = 1e-5


def in_keras2(**mixins):
    """A module's `__getattr__`, by which a name is the layer of `tf_keras` that computes what a mixin says."""

    def find(name):
        if name not in mixins:
            raise AttributeError(f"there is no {name!r}")
        from tf_adapters.layers.ops import keras2

        return keras2.layer(mixins[name])

    return find


class MethodLayer:
    """What a Keras layer of a method computes, written in the operations of `layers.ops`, and so for each Keras.

    `ops.layer(...)` of a subclass is the Keras layer. Directories know its weights by names that do not depend on
    Keras. What others ask of a method is declared here, and is no until a method says otherwise.

    Attributes:
        layer_name: str, what the Keras layer is called.
        ops: module of `layers.ops`, that of the Keras which the layer is of.
        low_rank: bool, whether all that it does to a dense layer is to add `scaling * inputs A B`, with `a` and `b`,
            which fast blocks then do for several layers at once. Others are computed as they are.
    """

    layer_name = ops = None
    low_rank = False

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self._part_names = ()

    def form(self, training):
        """What it computes beside its weights, hashable: layers of a class and a form compute the same with the same
        weights, those of `parts`. None where no other layer's weights can stand for its own."""
        return None

    def is_fused(self, training):
        """Whether fast blocks may compute it with what is around: two projections with an activation of
        `layers.fused.ACTIVATIONS` between them, `down_kernel` to `up_bias`, and nothing else."""
        return False

    def merged(self, kernel, bias):
        """Kernel `(inputs, outputs)` and bias `(outputs,)` of a dense layer that computes alone what `kernel` and
        `bias` compute with the method; NumPy arrays."""
        raise InputError(f"A {type(self).__name__} is no update of a dense layer's weights and cannot be merged.")

    def _add(self, part, shape, initializer, **settings):
        """A weight, which directories know as `part`, and this object as `down_kernel` for `down.kernel`."""
        name = self.ops.weight_name(part)
        weight = self.add_weight(name=name, shape=shape, initializer=initializer, **settings)
        setattr(self, part.replace(".", "_"), weight)
        self._part_names += (part,)

    @property
    def parts(self):
        """The weights by their names in a directory, such as `down.kernel` and `up.bias`."""
        return {part: getattr(self, part.replace(".", "_")) for part in self._part_names}

    @property
    def learned(self):
        """The weights that train with the method, a list."""
        return self.weights
