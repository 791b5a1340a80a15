"""Continues from adapters that were trained on something else: task-adaptive pretraining, or another task."""

from tf_adapters.errors import InputError
from tf_adapters.models.state import state_of
from tf_adapters.models.transaction import transaction
from tf_adapters.paths import to_path
from tf_adapters.saving.directory import load_adapter
from tf_adapters.saving.fetching import find_adapter
from tf_adapters.saving.settings import read_settings


@transaction
def load_pretrained_adapter(model, directory, *, name="default", fast=None):
    """Load what a directory holds but its head, to train on.

    Args:
        model: a model on the same pretrained encoder, with the new task's head.
        directory: path of an adapter directory that `pretrain` wrote (`DIR` for its best, `DIR/step-N` for another), or
            of another task; or `owner/name` or `owner/name@revision` on the hub.
        name, fast: as in `load_adapter`.

    Returns: the directory's settings, a dict. Directories that `save_adapter` writes of this model name it.

    Raises:
        InputError: as `load_adapter`, or the directory holds a head alone. If it holds weights of the encoder itself,
            `set_trainable` will take nothing but the mode that trained them, or `"full"`, since only these save them
            again.

    Reference: He et al. 2021, section 3.1; Han et al. 2021, section 3.
    """
    folder = find_adapter(directory)
    if read_settings(folder)["trainable"] == "head":
        raise InputError(
            f"{directory} holds a head alone, which training does not go on with: give a directory of adapters."
        )
    settings = load_adapter(model, folder, name=name, head=False, fast=fast)
    task, training = settings["task"] or {}, settings["training"] or {}
    state_of(model).owner.pretrained = {
        "directory": str(to_path(directory)),
        "sha256": settings["weights"]["sha256"],
        "trainable": settings["trainable"],
        "task": task.get("name"),
        "kind": task.get("kind"),
        "head_steps": task.get("head_steps"),
        "step": training.get("step"),
    }
    return settings
