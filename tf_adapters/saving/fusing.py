"""AdapterFusion of saved adapters. Pfeiffer et al. 2021."""

from tf_adapters.errors import InputError
from tf_adapters.methods import config_from_dict
from tf_adapters.methods.fusion import FusionConfig
from tf_adapters.models.injection import add_adapters
from tf_adapters.models.state import state_of
from tf_adapters.models.transaction import transaction
from tf_adapters.saving.directory import check_backbone, read_adapter


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
        raise InputError(
            "{directories} must be a dict of at least two adapters' names and directories.", directories=directories
        )
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
                f"{directory} came with LayerNorms or weights of the encoder of its own, which cannot act beside "
                "another adapter's: train with train_layer_norm='none' (--recipe pfeiffer-2021) what is to be fused."
            )
        saved[adapter], configs[adapter] = arrays, config
    add_adapters(model, FusionConfig(configs, value_regularization), name=name, seed=seed)
    for key, fusion in state.adapters[name].layers.items():
        for adapter, layer in fusion.adapters.items():
            for part, variable in layer.parts.items():
                state.write(variable, saved[adapter][f"{key}.{part}"])
    return model
