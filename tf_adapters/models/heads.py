"""Task heads: what stands on the pretrained encoder."""

from tf_adapters._keras import keras
from tf_adapters._keras_internals import compute_in, layers_of


class TwoLayerHead(keras.layers.Layer):
    """Dense, tanh, dense: the two classifiers of the report's unshared model.

    Args:
        hidden_size: int, units of the first layer.
        num_labels: int, units of the last.
        initializer_range: float, standard deviation of both kernels.

    Call arguments:
        inputs: float tensor, `(batch, hidden_size)`, the pooled output.

    Returns: logits, `(batch, num_labels)`.

    Reference: Mohebbi & Rajaei, section 6.2 and table 1.
    """

    def __init__(self, hidden_size, num_labels, *, initializer_range=0.02, **kwargs):
        super().__init__(**kwargs)
        self.hidden_size = hidden_size
        self.num_labels = num_labels
        self.initializer_range = initializer_range

        def initializer():
            return keras.initializers.TruncatedNormal(stddev=initializer_range)

        self.hidden = keras.layers.Dense(
            hidden_size, activation="tanh", kernel_initializer=initializer(), name="hidden", dtype=self.dtype_policy
        )
        self.output_layer = keras.layers.Dense(
            num_labels, kernel_initializer=initializer(), name="output", dtype=self.dtype_policy
        )

    def build(self, input_shape):
        with keras.backend.name_scope("hidden"):
            self.hidden.build(input_shape)
        with keras.backend.name_scope("output"):
            self.output_layer.build((None, self.hidden_size))
        super().build(input_shape)

    def call(self, inputs):
        return self.output_layer(self.hidden(inputs))

    def get_config(self):
        config = super().get_config()
        config.update(
            hidden_size=self.hidden_size, num_labels=self.num_labels, initializer_range=self.initializer_range
        )
        return config


def use_two_layer_head(model):
    """Put a TwoLayerHead in place of a sequence classification model's classifier."""
    import tensorflow as tf

    config = model.config
    head = TwoLayerHead(
        config.hidden_size, config.num_labels, initializer_range=config.initializer_range, name="classifier"
    )
    with tf.name_scope(model.name), tf.name_scope("classifier"):
        head.build((None, config.hidden_size))
    model.classifier = head


def head_layers(model, state):
    """Layers of the head: everything in the model beside the pretrained encoder."""
    main = state.family.main_layer(model)
    return [layer for layer in model.layers if layer is not main]


def keep_float32(model, state):
    """Let the head compute in float32 whatever the precision policy of the encoder.

    Under `mixed_bfloat16` transformers returns logits, and hence a loss, with eight
    significant bits.
    """
    float32 = keras.mixed_precision.Policy("float32")
    # A head with tied embeddings owns the encoder's embedding layer too.
    inside = {id(layer) for layer in layers_of(state.family.main_layer(model))}
    for outer in head_layers(model, state):
        for layer in layers_of(outer):
            if layer.compute_dtype != "float32" and id(layer) not in inside:
                compute_in(layer, float32)
