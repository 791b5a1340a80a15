"""Whole-model files and copies of a model with adapters, which both doors refuse.

Keras builds a model anew from its configuration, which knows of no adapter; transformers and KerasHub drop weights that
their classes have no place for. What acts, what trains and what the encoder has without adapters would be lost too.
"""

REFUSAL = (
    "A file or copy of a whole model keeps no adapters: keep the adapter with tf_adapters.save_adapter(model, "
    "directory), or make the model a plain one first, by tf_adapters.remove_adapters(model) or, of LoRA, DoRA or "
    "(IA)^3 through door='transformers', by tf_adapters.merge_adapter(model)."
)


def refuse(*arguments, **settings):
    """In place of a method that writes a whole model, and of `get_config`, which Keras asks before it does.

    Where Keras writes computation alone, as in `export`, it passes over a `get_config` that is not implemented.
    """
    raise NotImplementedError(REFUSAL)


class KeptInDirectories:
    """Mixin for a layer that is there only while adapters are."""

    # Models around it may have a configuration without it. Keras saves assets in whole files, and none with weights.
    get_config = save_assets = refuse
