"""What the layers of all methods have in common."""

from tf_adapters._keras import keras
from tf_adapters.errors import InputError


class MethodLayer(keras.layers.Layer):
    """A layer whose weights directories know by names that do not depend on Keras.

    What others ask of a method is declared here, and is no until a method says otherwise.

    Attributes:
        low_rank: bool, whether all that it does to a dense layer is to add `scaling * inputs A B`, with `a` and `b`,
            which fast blocks then do for several layers at once. Others are computed as they are.
    """

    low_rank = False

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self._part_names = ()

    def is_fused(self, training):
        """Whether fast blocks may compute it with what is around: two projections with an activation of
        `layers.fused.activation.ACTIVATIONS` between them, `down_kernel` to `up_bias`, and nothing else."""
        return False

    def merged(self, kernel, bias):
        """Kernel `(inputs, outputs)` and bias `(outputs,)` of a dense layer that computes alone what `kernel` and
        `bias` compute with the method; NumPy arrays."""
        raise InputError(f"A {type(self).__name__} is no update of a dense layer's weights and cannot be merged.")

    def _add(self, part, shape, initializer, **settings):
        """A weight, which directories know as `part`, and this object as `down_kernel` for `down.kernel`."""
        weight = self.add_weight(name=part.replace(".", "/"), shape=shape, initializer=initializer, **settings)
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
