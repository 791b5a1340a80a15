"""Puts adapters into a built model, switches between them and takes them out again."""

import contextlib
import zlib

import numpy as np
import tensorflow as tf

from tf_adapters._keras import keras
from tf_adapters.config import AdapterConfig, MethodConfig
from tf_adapters.errors import InputError
from tf_adapters.models.dense_site import DenseSite
from tf_adapters.models.heads import keep_float32
from tf_adapters.models.site import RandomDrop, replace_layer
from tf_adapters.models.state import NamedAdapter, state_of
from tf_adapters.models.storage import check_not_cast


def add_adapters(model, config=None, *, name="default", seed=None, fast=None):
    """Inject adapters into a built transformers TensorFlow model, in place, and make them active.

    The encoder's blocks are replaced by subclasses that adopt their layers: no weight is
    copied and no pretrained weight changes its name. Call `set_trainable` and `compile`
    afterwards. The head and the LayerNorms of a second adapter start from the values
    that the model had before the first.

    Args:
        model: a built TFBertFor... model, pretrained or random.
        config: AdapterConfig, LoraConfig, IA3Config or FusionConfig; None for the defaults of the first.
        name: str, the adapter's name on this model.
        seed: int or None, decides the initial weights. None draws from NumPy's global
            generator, which `keras.utils.set_random_seed` sets.
        fast: bool, whether the blocks compute with compiled parts that have gradients of their own
            (`models.fast`); None for what the model has, False at first.

    Returns: the model.

    Raises:
        InputError: the name is taken or unusable, `config.blocks` names a block that the
            model lacks, or the model is of an unsupported family or not built.
    """
    state = state_of(model)
    config = AdapterConfig() if config is None else config
    if not isinstance(config, MethodConfig):
        raise InputError(f"config={config!r} must be an AdapterConfig or its like; a recipe's is get_recipe(NAME).adapter.")
    if not isinstance(name, str) or not name or any(not (c.isalnum() or c in "_-.") for c in name):
        raise InputError(f"name={name!r} must consist of letters, digits, '_', '-' and '.'.")
    if name in state.adapters:
        raise InputError(
            f"name={name!r}: the model already has an adapter of that name; remove_adapters(model, name={name!r}) "
            "takes it out, another name adds a second one."
        )
    if state.adapters and fast not in (None, state.fast):
        raise InputError(f"fast={fast}: the model's blocks have fast={state.fast}, which its first adapter decided.")
    blocks = state.family.blocks(model)
    keys = config.sites(len(blocks))
    keep_float32(model, state)
    state.digest(model)
    if not state.adapters:
        state.fast = bool(fast)
        state.switched = state.layer_norm_variables(model) + state.head_variables(model)
        state.pristine = [variable.numpy() for variable in state.switched]
        state.freezing = [
            (layer, layer._trainable, list(layer._trainable_weights), list(layer._non_trainable_weights))
            for layer in [model, *model.submodules]
            if isinstance(layer, keras.layers.Layer)
        ]
        state.dropouts = state.family.dropout_layers(model)
        _replace_blocks(model, state, blocks)
    if seed is None:
        seed = np.random.randint(2**31)
    layers, positions = {}, {}
    drop = RandomDrop(config.random_drop) if config.random_drop else None
    for (block, place), key in keys.items():
        site, first = _site(model, state, block, place), not layers
        position = positions.setdefault(block, len(positions))
        if key not in layers:
            layers[key] = _build_layer(config, place, site, f"{name}.{key}", zlib.crc32(f"{seed} {key}".encode()) % 2**31)
        drop_seed = zlib.crc32(f"{seed} drop".encode()) % 2**31 if first else None
        site.add(name, layers[key], config, drop=drop, position=position, seed=drop_seed)
    state.adapters[name] = NamedAdapter(config, layers, values=[value.copy() for value in state.pristine])
    _forget_traces(model)
    set_active(model, name)
    return model


def remove_adapters(model, *, name=None):
    """Take out one adapter, or all of them and restore the model as it was before the first.

    Args:
        model: a model with adapters.
        name: the adapter to remove, or None for all. Removing the last one restores too:
            the original block objects, the LayerNorms and the head with the values they had,
            the dropout layers, and which weights train. Weights that full or top-N training changed stay so.

    Returns: the model.

    Raises:
        InputError: there is no adapter of that name, or none at all, or `cast_frozen` gave up what is to be restored.
    """
    state = state_of(model)
    if name is not None:
        _check_name(state, name)
    elif not state.adapters:
        raise InputError("The model has no adapters to remove.")
    if name is not None and len(state.adapters) > 1:
        if state.active == name:
            set_active(model, next(other for other in state.adapters if other != name))
        for site in state.sites.values():
            site.discard(name)
        del state.adapters[name]
        _switch_sites(state)
        _forget_traces(model)
        return model
    if state.freezing is None:
        check_not_cast(state, state.cast, "remove_adapters(model) restores the model and")
    _assign(state.switched, state.pristine)
    for owner, part, original in state.original_parts:
        replace_layer(owner, part, original)
    state.family.set_blocks(model, state.original_blocks)
    for layer, trainable, trains, frozen in state.freezing:
        layer._trainable = trainable
        layer._trainable_weights[:], layer._non_trainable_weights[:] = trains, frozen
    for owner, attribute, dropout, _ in state.dropouts:
        setattr(owner, attribute, dropout)
    state.trainable, state.freezing, state.dropouts, state.fast = None, [], [], False
    state.adapters, state.sites, state.active, state.enabled, state.active_blocks = {}, {}, None, True, None
    state.original_blocks, state.original_parts, state.switched, state.pristine = None, [], [], []
    _forget_traces(model)
    return model


def set_active(model, name, *, blocks=None):
    """Let the adapter `name` act, with its LayerNorms and head, in graphs already traced too.

    Which weights train does not change: call `set_trainable` and `compile` to train it.

    Args:
        name: str, an adapter of the model.
        blocks: indices of the blocks whose adapters act, or None for all; the others are as without an adapter
            (AdapterDrop, Rücklé et al. 2021). Graphs that were traced follow, and compute as much as before.

    Raises:
        InputError: the model has no adapter of that name, or no such block.
    """
    state = state_of(model)
    _check_name(state, name)
    adapted = {block for block, _ in state.adapters[name].config.sites(len(state.family.blocks(model)))}
    if blocks is not None and not set(blocks) <= adapted:
        raise InputError(f"blocks={sorted(blocks)!r}: the adapter {name!r} stands in the blocks {sorted(adapted)} alone.")
    state.active_blocks = None if blocks is None else frozenset(blocks)
    if name != state.active:
        variables = state.switched
        if state.active is not None:
            state.adapters[state.active].values = [variable.numpy() for variable in variables]
        _assign(variables, state.adapters[name].values)
        state.adapters[name].values = None
        state.active = name
    _switch_sites(state)


@contextlib.contextmanager
def disable_adapters(model):
    """Context in which the pretrained encoder acts alone, in graphs already traced too.

    No adapter acts and the LayerNorms have their pretrained values; the head stays that
    of the active adapter. On leaving, everything is as before.
    """
    state = state_of(model)
    if not state.enabled or state.active is None:
        yield model
        return
    norms = state.switched[: len(state.layer_norm_variables(model))]
    trained = [variable.numpy() for variable in norms]
    _assign(norms, state.pristine)
    state.enabled = False
    _switch_sites(state)
    try:
        yield model
    finally:
        _assign(norms, trained)
        state.enabled = True
        _switch_sites(state)


def adapter_names(model):
    """Names of the model's adapters, in the order they were added."""
    return list(state_of(model).adapters)


def active_adapter(model):
    """Name of the active adapter, or None."""
    return state_of(model).active


def _replace_blocks(model, state, blocks):
    """Make every sub-layer a site, so that a second adapter may stand where the first does not."""
    family, main = state.family, state.family.main_layer(model)
    block_class = family.block_class
    if state.fast:
        block_class = family.fast_block_class
        if block_class is None:
            state.fast = False
            raise InputError(f"fast=True: {family.model_type} has no fast blocks; leave it out (on the command line --fast).")
    state.original_blocks = blocks
    state.original_parts = [
        (block.attention, name, getattr(block.attention, name)) for block in blocks for name in block_class.replaced_parts
    ]
    if state.fast and family.reads_first_token_only(model):
        state.original_parts.append((main, "encoder", main.encoder))
        replace_layer(main, "encoder", family.fast_encoder_class.adopt(main.encoder))
    adapted = [block_class.adopt(block) for block in blocks]
    family.set_blocks(model, adapted)
    for index, block in enumerate(adapted):
        for place, site in block.sites.items():
            state.sites[index, place] = site


def _site(model, state, block, place):
    """The site at a place; a dense layer becomes one when a method first asks for it."""
    if (block, place) not in state.sites:
        owner, attribute = state.family.dense(state.family.blocks(model)[block], place)
        dense = getattr(owner, attribute)
        state.original_parts.append((owner, attribute, dense))
        site = state.sites[block, place] = DenseSite.adopt(dense)
        replace_layer(owner, attribute, site)
    return state.sites[block, place]


def _build_layer(config, place, site, name, seed):
    """A MethodLayer with weights, whose names come from its own and not from its first user; seeded by its key, whatever the order."""
    layer = config.layer(place, site.shape, seed=seed, name=name, dtype=site.dtype_policy)
    with tf.name_scope("adapters/" + name.replace(".", "/", 1)):
        layer.build((None, None, site.shape[0]))
    return layer


def _switch_sites(state):
    for (block, _), site in state.sites.items():
        acts = state.enabled and (state.active_blocks is None or block in state.active_blocks)
        site.activate(state.active if acts else None)


def _assign(variables, values):
    for variable, value in zip(variables, values):
        variable.assign(value)


def _check_name(state, name):
    if name not in state.adapters:
        known = ", ".join(repr(other) for other in state.adapters) or "none"
        raise InputError(f"name={name!r}: the model has no such adapter; it has {known}.")


def _forget_traces(model):
    """Make Keras trace fit, evaluate and predict anew."""
    model.train_function = model.test_function = model.predict_function = None
    model.train_tf_function = None
