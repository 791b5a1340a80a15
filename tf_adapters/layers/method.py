"""What the layers of all methods have in common."""

from tf_adapters._keras import keras


class MethodLayer(keras.layers.Layer):
    """A layer whose weights directories know by names that do not depend on Keras.

    Attributes:
        low_rank: bool, whether all that it does to a dense layer is to add `scaling * inputs A B`, with `a` and `b`,
            which fast blocks then do for several layers at once. Others are computed as they are.

    A layer around a dense layer has `merged(kernel, bias)`, the kernel and the bias that compute the same alone.
    """

    low_rank = False

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self._part_names = ()

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
