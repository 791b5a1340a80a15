"""From an adapter directory to something that scores texts."""

import warnings

from tf_adapters.errors import InputError
from tf_adapters.kinds.scoring import Scorer
from tf_adapters.models.state import state_of
from tf_adapters.models.storage import cast_frozen
from tf_adapters.models.trainable import freeze
from tf_adapters.ranges import in_range
from tf_adapters.saving.directory import load_trained
from tf_adapters.text.loading import load_tokenizer


@in_range
def load_pipeline(directory, *, backbone=None, batch_size=32, fast=None):
    """Rebuild model and text settings of an adapter directory.

    Args:
        directory: path.
        backbone: source of the encoder, or None for the one that the directory names.
        batch_size: int.
        fast: as in `add_adapters`.

    Returns: `(Scorer, settings)`.

    Raises:
        InputError: the directory or its encoder cannot be used, or the encoder's vocabulary
            is not the one of training.
    """
    with warnings.catch_warnings():
        # That the pooler of this checkpoint is new was said in training, and it was saved.
        warnings.filterwarnings("ignore", message=".*no pooler weights")
        model, settings = load_trained(directory, backbone=backbone, fast=fast)
    cast_frozen(freeze(model))
    text = settings["text"]
    if text is None:
        raise InputError(f"{directory} was saved without text settings, so raw text cannot be scored; pass text= to save_adapter.")
    tokenizer = load_tokenizer(model, max_length=text["max_length"])
    for name, value in tokenizer.settings().items():
        if text.get(name) != value:
            raise InputError(
                f"{directory} was trained with {name}={text.get(name)!r}, and the tokenizer in "
                f"{state_of(model).directory} has {value!r}."
            )
    return Scorer(model, tokenizer, batch_size=batch_size), settings
