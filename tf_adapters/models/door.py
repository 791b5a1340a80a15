"""The two doors by which a model comes in: transformers' on Keras 2, KerasHub's on Keras 3.

What adapters do to a model is written once, in this folder. A door is a folder with a module `door`, which says how
that is done with models of its Keras. It has

    NAME, FEWER_BITS                        `"transformers"` or `"keras-hub"`; what `cast_frozen` is given
    ops                                     its module of `layers.ops`
    family_of(model)                        the model's family: where blocks, LayerNorms, pooler and head are
    config_of(model)                        an object with `model_type`, `hidden_size`, `num_hidden_layers`,
                                            `num_labels`, `id2label` and `label2id`, which may be assigned
    computes(model)                         dict of what the encoder computes with, beside its weights: `activation`, a
                                            name or None for one without, and `layer_norm_eps`
    named_weights(model, variables)         dict from PyTorch's name to `(variable, whether PyTorch transposes it)`
    array(variable, value=None)             a variable's value, or another of its shape, as a NumPy array in the layout
                                            of directories
    shape(variable)                         the shape of that array
    read(variable), constant(value, variable)
                                            values that `variable.assign` takes later
    weights(model)                          its weights, without what says which adapter acts
    Acting, RandomDrop                      as in `models.transformers.site`
    head_on(model, family, holder, number=0)
                                            the `Head` that is on the model
    head_shape(model, family)               its `HeadShape`
    new_head(model, family, shape, seed, number), stand(state, model, head)
                                            makes a `Head` of another shape; lets one be the model's
    freezing(model)                         what trains before the first adapter
    adapt(model, state), restore(model, state)
                                            makes every sub-layer a site, or refuses a model that cannot have adapters;
                                            puts the original layers back, and what trained
    site(model, state, block, place)        a site; a dense layer becomes one when it is first asked for
    build_layer(config, place, site, name, seed)
                                            a layer of a method with its weights
    keep_float32(model, state)              lets the head compute in float32
    choose(model, state, chosen), freeze(model, state)
                                            lets the variables of these ids train and no other; none
    follow(model), forget_traces(model)     what Keras compiled goes on with what trains now; is traced anew
    cast_frozen(model)                      as of `models.storage`
    backend()                               what its Keras computes on, `"tensorflow"`, `"jax"` or `"torch"`
    compiles_shapes()                       whether each shape of a batch is compiled, whatever is chosen
    plain(model)                            a context in which graphs of the model are traced for other programs, which
                                            may have no XLA
    as_matrices(model)                      the same, in which every product with a kernel is one of two matrices
    layers_of(layer)                        a layer and all layers in it
    logits_of_rows(model, inputs)           as of `models.transformers.heads`, in a graph of the door's Keras
    forward(model, *, jit_compile=False)    a function from a tokenizer's padded tensors to float32 logits in NumPy
    logits_at(model, inputs, places, training=None)
                                            `(1, places, vocabulary)` of a model with a head of masked words, at places
                                            of a batch's flat order
    compiled(model, *, jit_compile=False)   a function from a dict of int32 tensors `(rows, length)` to what a Keras
                                            model answers, in NumPy
    Undo                                    what `models.transaction` needs
"""

import importlib
import sys

from tf_adapters.errors import InputError

# The Keras whose models it takes -> folder.
_DOORS = {"tf_keras": "transformers", "keras": "keras_hub"}


def only_first_door(model, what):
    """Raise InputError for what is made for transformers' models alone, with the way that leads there.

    Args:
        what: str, the function's name.
    """
    if door_of(model).NAME != "transformers":
        raise InputError(
            f"{what} takes models of transformers, and {{model}} is of KerasHub: load the encoder by "
            "load_backbone(..., door='transformers'); save_adapter and load_adapter bring what was trained here.",
            model=type(model).__name__,
        )


def only_on_tensorflow(model, what):
    """Raise InputError for a model whose Keras makes no graphs of TensorFlow.

    Args:
        what: str, the function's name.
    """
    backend = door_of(model).backend()
    if backend != "tensorflow":
        raise InputError(
            f"{what} writes graphs of TensorFlow, and Keras is on {backend}: save_adapter(model, directory), and in a "
            "process with KERAS_BACKEND=tensorflow load_trained(directory, door='keras-hub'); the command `tf-adapters "
            "export directory --backend tensorflow` does so too."
        )


def door_called(name):
    """The door of that name, such as `"keras-hub"`, a module; its Keras is imported."""
    return importlib.import_module(f"tf_adapters.models.{name.replace('-', '_')}.door")


def door_of(model):
    """The door of a model, a module; which Keras is asked for is decided by what the model is.

    Raises:
        InputError: it is no model of Keras.
    """
    for name, folder in _DOORS.items():
        # A Keras that nobody has imported has no models.
        keras = sys.modules.get(name)
        if keras is not None and isinstance(model, getattr(keras, "Model", ())):
            return door_called(folder)
    raise InputError(
        "{model} is not a transformers TensorFlow model: build one with tf_adapters.load_backbone or a TFBertFor... "
        "class.",
        model=type(model).__name__,
    )
