"""A fresh model for a task, which the seed decides."""

import functools

from tf_adapters.kinds import get_kind
from tf_adapters.models.door import door_called
from tf_adapters.models.loading import choose_door, load_backbone
from tf_adapters.text.loading import load_tokenizer


def load_for_task(source, task, *, max_length, head_layers=1, seed=0, backbone=None, door=None):
    """Load a pretrained encoder with the head that a task needs.

    Args:
        source: as in `load_backbone`.
        task: `Task`.
        max_length: int, tokens that are kept of a text.
        head_layers: as in `load_backbone`.
        seed: int, decides the head's initial weights; Keras' global generators start from it.
        backbone: a model without adapters whose encoder is used in place of reading it again, as in `change_head`, or
            None.
        door: as in `load_backbone`.

    Returns: `(model, tokenizer)`.

    Raises:
        InputError: as `load_backbone` and `load_tokenizer`.
    """
    kind = get_kind(task.kind)
    door = choose_door(door)
    door_called(door).ops.keras.utils.set_random_seed(seed)
    if backbone is None:
        load = functools.partial(load_backbone, source, door=door)
    else:
        from tf_adapters.models.transformers.loading import change_head

        load = functools.partial(change_head, backbone)
    model = load(
        head=kind.head,
        num_labels=kind.num_labels(task.labels),
        labels=list(task.labels) or None,
        head_layers=head_layers,
    )
    return model, load_tokenizer(model, max_length=max_length)
