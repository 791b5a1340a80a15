"""`model.export` of models of KerasHub with what Keras leaves out, on each backend and in each format."""

import contextlib
import importlib

import keras
import numpy as np

from tf_adapters._keras3_internals import layers_of
from tf_adapters.layers.ops import keras3
from tf_adapters.models.state import mark_of

# Of an input, by how many it has.
_DIMENSIONS = {2: "(batch, length)", 3: "(batch, choices, length)"}
_OF_PLACES = "(batch, places)"


def export(model, filepath, format="tf_saved_model", **settings):
    """As of Keras, which on JAX takes the inputs' lengths for different ones."""
    if keras.backend.backend() == "jax" and format == "tf_saved_model" and settings.get("input_signature") is None:
        shapes = {name: _DIMENSIONS[len(each.shape)] for name, each in model.input.items()}
        shapes = [{name: _OF_PLACES if name == "mask_positions" else shape for name, shape in shapes.items()}]
        settings["jax2tf_kwargs"] = {"polymorphic_shapes": shapes, **settings.get("jax2tf_kwargs", {})}
    with contextlib.ExitStack() as stack:
        if any(mark.fast for mark in map(mark_of, model.weights) if mark is not None):
            # Servers need no compiler then, and LiteRT no operations of TensorFlow.
            stack.enter_context(importlib.import_module("tf_adapters.models.keras_hub.fast").plain())
        if format == "onnx":
            ones = {name: np.zeros((1,) * len(each.shape), "int32") for name, each in model.input.items()}
            model(ones)  # Keras asks for a call before
            stack.enter_context(_gelu_by_erf(model))
        # Keras' own, behind what stands before it.
        return keras.Model.export(model, filepath, format=format, **settings)


@contextlib.contextmanager
def _gelu_by_erf(model):
    """While it lasts, graphs of the model have no erfc, which ONNX lacks."""
    exact = [layer for layer in layers_of(model) if getattr(layer, "activation", None) is keras.activations.gelu]
    try:
        for layer in exact:
            layer.activation = keras3.activation("gelu")
        with keras3.gelu_by_erf():
            yield
    finally:
        for layer in exact:
            layer.activation = keras.activations.gelu
