"""Heads that KerasHub has not: a label for each token, the span of an answer, the right one of several choices, and
ELECTRA's labels of a text."""

import keras
from keras import ops

from tf_adapters._keras3_internals import unlocked
from tf_adapters.layers.ops import keras3


class HeadModel(keras.Model):
    """A backbone with a head.

    Args:
        backbone: of KerasHub.
        inputs, outputs: as of `keras.Model`.
        layers: dict from the attributes of the head's layers to these.
        arguments: dict of what else the subclass is made with, which numbers and names alone can say.

    Attributes:
        head: str, as in `load_backbone`.
        head_names: dict from the attributes of the head's dense layers to PyTorch's names; a `Family` may have others.
        reads_pooler: bool, whether it stands on the pooler of an encoder that has one.
        units: int, outputs of the last dense layer.
    """

    head, head_names, reads_pooler = None, {"output_dense": "classifier"}, False

    def __init__(self, backbone, inputs, outputs, layers, arguments, **settings):
        super().__init__(inputs=inputs, outputs=outputs, **settings)
        self.backbone, self.made_with = backbone, tuple(arguments)
        for name, value in {**layers, **arguments}.items():
            setattr(self, name, value)

    @classmethod
    def arguments(cls, family, config, backbone):
        """Arguments of a subclass beside the backbone and `num_classes`, from the dict of a `config.json`."""
        return {"dropout": rate_of(config, ("classifier_dropout", "classifier_dropout_prob"), backbone.dropout)}

    @property
    def units(self):
        return self.num_classes

    def get_config(self):
        backbone = keras.saving.serialize_keras_object(self.backbone)
        return {"backbone": backbone, **{name: getattr(self, name) for name in self.made_with}, "name": self.name}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        backbone = keras.saving.deserialize_keras_object(config["backbone"], custom_objects=custom_objects)
        return cls(**{**config, "backbone": backbone})


def rate_of(config, keys, usual):
    """The first of these rates of dropout that the dict of a `config.json` has."""
    return next((config[key] for key in keys if config.get(key) is not None), usual)


def states_of(outputs):
    """The hidden states among a backbone's outputs, `(batch, length, hidden)`."""
    return outputs["sequence_output"] if isinstance(outputs, dict) else outputs


class OnTokens(HeadModel):
    """A backbone, dropout and one dense layer on every token.

    Args:
        backbone: of KerasHub.
        num_classes: int, outputs of the dense layer.
        dropout: float.

    Call arguments:
        inputs: dict, as of the backbone.
    """

    def __init__(self, backbone, num_classes, dropout=0.0, **settings):
        hidden = keras.layers.Dropout(dropout, name="dropout")(states_of(backbone(backbone.input)))
        dense = keras.layers.Dense(num_classes, name="output_dense", dtype="float32")
        super().__init__(
            backbone, backbone.input, self.outputs_of(dense(hidden)), {"output_dense": dense},
            {"num_classes": num_classes, "dropout": dropout}, **settings,
        )  # fmt: skip

    @staticmethod
    def outputs_of(logits):
        """What the model answers, of `(batch, length, classes)`."""
        return logits


@keras.saving.register_keras_serializable("tf_adapters")
class TokenClassifier(OnTokens):
    """A label for each token. Answers logits, float32 `(batch, length, classes)`."""

    head = "token-classification"


@keras.saving.register_keras_serializable("tf_adapters")
class SpanClassifier(OnTokens):
    """Where an answer starts and ends. Answers a dict of `start_logits` and `end_logits`, float32 `(batch, length)`."""

    head, head_names = "question-answering", {"output_dense": "qa_outputs"}

    @classmethod
    def arguments(cls, family, config, backbone):
        return {"dropout": rate_of(config, ("qa_dropout",), 0.0)}

    @staticmethod
    def outputs_of(logits):
        return {"start_logits": logits[..., 0], "end_logits": logits[..., 1]}


@keras.saving.register_keras_serializable("tf_adapters")
class FirstTokenClassifier(HeadModel):
    """Labels of a text: dropout, a dense layer with GELU on the first token, dropout and a dense layer. Answers logits,
    float32 `(batch, classes)`.

    Args: as of `OnTokens`.

    Reference: Clark et al. 2020, whose checkpoints have it.
    """

    head = "classification"

    def __init__(self, backbone, num_classes, dropout=0.0, **settings):
        begin = {"kernel_initializer": keras.initializers.TruncatedNormal(stddev=0.02)}
        pooled = keras.layers.Dense(
            backbone.hidden_dim, activation=keras3.activation("gelu"), dtype=backbone.dtype_policy, name="pooled_dense",
            **begin,
        )  # fmt: skip
        dense = keras.layers.Dense(num_classes, name="output_dense", dtype="float32", **begin)
        first = keras.layers.Dropout(dropout, name="pooled_dropout")(states_of(backbone(backbone.input))[:, 0])
        super().__init__(
            backbone, backbone.input, dense(keras.layers.Dropout(dropout, name="dropout")(pooled(first))),
            {"pooled_dense": pooled, "output_dense": dense}, {"num_classes": num_classes, "dropout": dropout},
            **settings,
        )  # fmt: skip


@keras.saving.register_keras_serializable("tf_adapters")
class ChoiceClassifier(HeadModel):
    """One of several choices, each read with its text. Answers logits, float32 `(batch, choices)`.

    A dense layer on the first token, dropout, and a dense layer with one output.

    Args:
        backbone: of KerasHub.
        num_classes: int, how many names the labels have; a choice has one logit, whatever it is.
        dropout: float.
        activation: str, a name in `config.ACTIVATIONS`, of the first dense layer; None where it is the backbone's
            pooler, which KerasHub computes.
        pooled_dropout: float, before the first dense layer.
        in_encoder: bool, whether the first dense layer is the pretrained encoder's pooler. Then the backbone gets it,
            as `pooled_dense`.

    Call arguments:
        inputs: dict, as of the backbone, of int tensors `(batch, choices, length)`.

    Reference: Devlin et al. 2019, section 4.4.
    """

    head, reads_pooler = "multiple-choice", True

    def __init__(
        self, backbone, num_classes, dropout=0.0, activation=None, pooled_dropout=0.0, in_encoder=False, **settings
    ):
        inputs = {name: keras.Input((None, None), dtype=each.dtype, name=name) for name, each in backbone.input.items()}
        outputs = backbone({name: _EachChoice(name=f"each_{name}")(each) for name, each in inputs.items()})
        layers = {"output_dense": keras.layers.Dense(1, name="output_dense", dtype="float32")}
        if activation is None:
            pooled = outputs["pooled_output"]
        else:
            dense = vars(backbone).get("pooled_dense") if in_encoder else None
            if dense is None:
                dense = keras.layers.Dense(
                    backbone.hidden_dim, activation=keras3.activation(activation), dtype=backbone.dtype_policy,
                    name="pooled_dense",
                )  # fmt: skip
                if in_encoder:
                    with unlocked(backbone):
                        backbone.pooled_dense = dense
            if not in_encoder:
                layers["pooled_dense"] = dense
            pooled = dense(keras.layers.Dropout(pooled_dropout, name="pooled_dropout")(states_of(outputs)[:, 0]))
        logits = layers["output_dense"](keras.layers.Dropout(dropout, name="dropout")(pooled))
        logits = _OfTexts(name="of_texts", dtype="float32")(logits, inputs["token_ids"])
        arguments = {
            "num_classes": num_classes, "dropout": dropout, "activation": activation, "pooled_dropout": pooled_dropout,
            "in_encoder": in_encoder,
        }  # fmt: skip
        super().__init__(backbone, inputs, logits, layers, arguments, **settings)

    @classmethod
    def arguments(cls, family, config, backbone):
        return family.choice_arguments(config, backbone)

    @property
    def units(self):
        return 1


@keras.saving.register_keras_serializable("tf_adapters")
class _EachChoice(keras.layers.Layer):
    """`(batch * choices, length)`, of `(batch, choices, length)`."""

    def call(self, inputs):
        return ops.reshape(inputs, (-1, ops.shape(inputs)[-1]))

    def compute_output_spec(self, inputs):
        return keras.KerasTensor((None, inputs.shape[-1]), inputs.dtype)


@keras.saving.register_keras_serializable("tf_adapters")
class _OfTexts(keras.layers.Layer):
    """`(batch, choices)`, of one number for each choice, `(batch * choices, 1)`, and what the model was given."""

    def call(self, inputs, given):
        return ops.reshape(inputs, ops.shape(given)[:2])

    def compute_output_spec(self, inputs, given):
        return keras.KerasTensor(given.shape[:2], inputs.dtype)


HEADS = {model.head: model for model in (TokenClassifier, SpanClassifier, ChoiceClassifier)}
