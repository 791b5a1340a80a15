"""Task heads of transformers: what stands on the pretrained encoder, and what is read of its outputs."""

import copy
import functools

import tensorflow as tf

from tf_adapters._keras import keras
from tf_adapters._keras_internals import compute_in, layers_of
from tf_adapters.errors import InputError
from tf_adapters.models.state import SWITCHED, Head, HeadShape, state_of


def head_shape(model, family):
    """`HeadShape` of the head on a model."""
    layers = 2 if isinstance(getattr(model, "classifier", None), TwoLayerHead) else 1
    return HeadShape(family.head_of(model), model.config.num_labels, layers)


def head_on(model, family, holder, number=0):
    """The `Head` that a model has."""
    main = family.main_layer(model)
    layers = {name: value for name, value in vars(model).items() if isinstance(value, keras.layers.Layer)}
    layers = {name: layer for name, layer in layers.items() if layer is not main}
    # A head with tied embeddings has the encoder's too.
    inside = {id(variable) for variable in main.weights}
    variables = [variable for variable in model.weights if id(variable) not in inside]
    return Head(variables, holder, head_shape(model, family), type(model), layers, number)


def new_head(model, family, shape, seed, number):
    """A `Head` of another shape for a model's encoder, which holds nobody's values yet; `seed` decides the initial
    weights, which are those of transformers. InputError where the family has no such head, or this encoder no pooler
    for it."""
    if shape.head not in SWITCHED or shape.head not in family.heads or family.head_of(model) is None:
        known = ", ".join(head for head in SWITCHED if head in family.heads)
        raise InputError(
            f"{{head}}: beside that of a {type(model).__name__} an adapter may bring one of {known}.", head=shape.head
        )
    check_head_of(family, shape.head, shape.layers)
    # Whatever the head does not depend on is small.
    config = copy.deepcopy(model.config)
    config.num_hidden_layers, config.vocab_size, config.num_labels = 1, 8, shape.num_labels
    small = family.heads[shape.head](config)
    small.build_in_name_scope()
    if shape.layers == 2:
        use_two_layer_head(small)
    if family.reads_pooler(small) and family.pooler(model) is None:
        raise InputError(
            f"{{head}} needs a pooler, and the model was loaded without it: load the encoder with head={shape.head!r}.",
            head=shape.head,
        )
    head = head_on(small, family, None, number)
    _keep_float32(head.layers.values(), set())
    for index, variable in enumerate(head.variables):
        if variable.shape.rank == 2:
            initializer = keras.initializers.TruncatedNormal(stddev=config.initializer_range, seed=seed + index)
            variable.assign(initializer(variable.shape, variable.dtype))
    return head


def check_head_of(family, head, head_layers):
    """Raise InputError for a head that the encoders of a family cannot have."""
    if head not in family.heads:
        raise InputError(f"{{head}} is unknown for {family.model_type}: use {', '.join(family.heads)}.", head=head)
    if head_layers == 2 and not family.pooled_classifier:
        raise InputError(f"{{head_layers}}: {family.model_type}'s classifier has two: leave it out.", head_layers=2)


class TwoLayerHead(keras.layers.Layer):
    """Dense, tanh, dense: the two classifiers of the report's unshared model, from the pooled output, `(batch,
    hidden_size)`, to logits, `(batch, num_labels)`; `initializer_range` is the standard deviation of both kernels.

    Reference: Mohebbi & Rajaei, section 6.2 and table 1.
    """

    def __init__(self, hidden_size, num_labels, *, initializer_range=0.02, **kwargs):
        super().__init__(**kwargs)
        self.hidden_size, self.num_labels, self.initializer_range = hidden_size, num_labels, initializer_range
        initializer = functools.partial(keras.initializers.TruncatedNormal, stddev=initializer_range)
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
        names = ("hidden_size", "num_labels", "initializer_range")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


def use_two_layer_head(model):
    """Put a TwoLayerHead in place of a sequence classification model's classifier."""
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
    # A head with tied embeddings owns the encoder's embedding layer too.
    _keep_float32(head_layers(model, state), {id(layer) for layer in layers_of(state.family.main_layer(model))})


def _keep_float32(layers, inside):
    float32 = keras.mixed_precision.Policy("float32")
    for outer in layers:
        for layer in layers_of(outer):
            if layer.compute_dtype != "float32" and id(layer) not in inside:
                compute_in(layer, float32)


def outputs_of(outputs):
    """What Keras' losses take: the logits, or for a span head the dict of `start_logits` and `end_logits`, each `(rows,
    length)`."""
    if tf.is_tensor(outputs):
        return outputs
    if "logits" in outputs:
        return outputs["logits"]
    return {name: outputs[name] for name in ("start_logits", "end_logits")}


def logits_of_rows(model, inputs):
    """The logits of a batch in inference in one tensor; of spans, start and end are in the last axis.

    A head of multiple choice takes each row for the only choice of a text, and answers `(rows, 1)`. `inputs` is a dict
    of int32 `(rows, length)` tensors: `input_ids`, `attention_mask` and `token_type_ids`.
    """
    family = state_of(model).family
    inputs = family.inputs(inputs)
    if family.head_of(model) == "multiple-choice":
        inputs = {name: tensor[:, tf.newaxis] for name, tensor in inputs.items()}
    outputs = outputs_of(model(inputs, training=False))
    return outputs if tf.is_tensor(outputs) else tf.stack([outputs["start_logits"], outputs["end_logits"]], axis=-1)
