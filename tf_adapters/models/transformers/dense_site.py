"""The dense layers inside an encoder block that a method may surround, for every family."""

from tf_adapters._keras import keras
from tf_adapters.models.transformers.site import Site


class DenseSite(Site, keras.layers.Layer):
    """A dense layer with what a method puts around it (`LoraLayer`, `IA3Layer`).

    Call arguments:
        inputs: float tensor, `(..., inputs)`.

    Returns: `(..., outputs)`.
    """

    @classmethod
    def adopt(cls, dense):
        """A site with the very layer `dense`."""
        site = cls(name=dense.name, dtype=dense.dtype_policy)
        site.dense, site.merged = dense, None
        site.make_site()
        return site

    @property
    def shape(self):
        return tuple(self.dense.kernel.shape)

    def call(self, inputs, training=False):
        # What `merging.merged` puts there computes the same in one product.
        if self.merged is not None:
            return self.merged(inputs)

        def act(name, gate=None):
            return self.adapters[name](inputs, dense=self.dense, gate=gate, training=training)

        return self.choose(act, lambda: self.dense(inputs))
