"""Starts from saved adapters: goes on with one that was trained on something else, or fuses several."""

from tf_adapters.errors import InputError
from tf_adapters.methods import config_from_dict
from tf_adapters.methods.fusion import FusionConfig
from tf_adapters.models.injection import add_adapters
from tf_adapters.models.state import state_of
from tf_adapters.models.transaction import transaction
from tf_adapters.paths import to_path
from tf_adapters.saving.directory import check_backbone, load_adapter, read_adapter
from tf_adapters.saving.hub import find_adapter
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
        raise InputError(f"{directory} holds a head alone, with which training does not go on: give adapters.")
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


@transaction
def fuse_adapters(model, directories, *, name="fusion", value_regularization=0.01, seed=None):
    """Put saved adapters into a model, with an attention over them that is to be learned, and make it active.

    After `set_trainable(model, "adapters")` the attention and the head train, and the adapters stay what they are.
    `save_adapter` writes all of it, so that the directories are not needed any more.

    Args:
        model: a model on the encoder that the adapters were trained on.
        directories: dict from an adapter's name to its directory, at least two.
        name: str, the fusion's name on this model.
        value_regularization: as of `FusionConfig`.
        seed: as of `add_adapters`.

    Returns: the model.

    Raises:
        InputError: another encoder, adapters that do not stand at the same places, or ones that came with LayerNorms of
            their own, which cannot act side by side.

    Example: `fuse_adapters(model, {"mnli": "adapters/mnli", "qqp": "adapters/qqp"})`

    Reference: Pfeiffer et al. 2021, sections 3.1 and 3.2.
    """
    if not isinstance(directories, dict) or len(directories) < 2:
        raise InputError("{directories} must be a dict of at least two adapters by name.", directories=directories)
    state, saved, configs = state_of(model), {}, {}
    for adapter, directory in directories.items():
        settings, arrays = read_adapter(directory)
        check_backbone(model, state, settings, directory)
        config = None if settings["adapter"] is None else config_from_dict(settings["adapter"])
        if config is None or not config.is_bottleneck:
            raise InputError(
                f"{directory} holds {'no adapters' if config is None else config.method}: bottleneck adapters are "
                "fused."
            )
        if any(key.startswith("backbone.") for key in arrays):
            raise InputError(
                f"{directory} came with LayerNorms or weights of the encoder of its own: train with "
                "train_layer_norm='none' (--recipe pfeiffer-2021) what is to be fused."
            )
        saved[adapter], configs[adapter] = arrays, config
    add_adapters(model, FusionConfig(configs, value_regularization), name=name, seed=seed)
    for key, fusion in state.adapters[name].layers.items():
        for adapter, layer in fusion.adapters.items():
            for part, variable in layer.parts.items():
                state.write(variable, saved[adapter][f"{key}.{part}"])
    return model
