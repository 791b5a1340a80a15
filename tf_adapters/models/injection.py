"""Puts adapters into a built model, switches between them, and takes them out again or folds them into the
encoder's own weights."""

import contextlib
import re
import zlib
from typing import Iterable, Iterator, Optional, Sequence

import numpy as np

from tf_adapters._types import Model
from tf_adapters.config import MethodConfig
from tf_adapters.errors import InputError
from tf_adapters.methods.bottleneck import AdapterConfig
from tf_adapters.models.door import only_first_door
from tf_adapters.models.origin import check_not_cast
from tf_adapters.models.state import HeadShape, Held, check_head, state_of, take_encoder
from tf_adapters.models.transaction import replaced, transaction, uninterrupted


@transaction
def add_adapters(
    model: Model,
    config: Optional[MethodConfig] = None,
    *,
    name: str = "default",
    seed: Optional[int] = None,
    fast: Optional[bool] = None,
    head: Optional[str] = None,
    num_labels: Optional[int] = None,
    labels: Optional[Sequence[str]] = None,
    head_layers: Optional[int] = None,
) -> Model:
    """Inject adapters into a built model of transformers or KerasHub, in place, and make them active.

    The encoder's blocks are replaced by subclasses that adopt their layers: no weight is
    copied and no pretrained weight changes its name. Call `set_trainable` and `compile`
    afterwards: where `set_trainable` chose before, the new adapter does not train yet. The head
    and the LayerNorms of a second adapter start from the values that the model had before the
    first; where `labels` are the same in another order, each label keeps its output. A `tf.function` that was traced
    before the first adapter knows none: make it anew.

    With one of the last four arguments the adapter has a head of its own, which comes and goes with it. Where that has
    another shape than the one before, Keras traces anew, and a `tf.function` that was traced under the other answers
    NaN.

    Args:
        model: a built TFBertFor... model, pretrained or random; or a backbone or task model of KerasHub.
        config: AdapterConfig, LoraConfig, IA3Config or FusionConfig; None for the defaults of the first.
        name: str, the adapter's name on this model.
        seed: int or None, decides the initial weights. None draws from NumPy's global
            generator, which `keras.utils.set_random_seed` sets.
        fast: bool, whether the blocks compute with compiled parts that have gradients of their own
            (`models.transformers.fast`); None for what the model has, False at first.
        head: "classification", "token-classification", "question-answering" or "multiple-choice"; None for the kind of
            head that the model had before the first adapter.
        num_labels, labels, head_layers: as in `load_backbone`; None for what the model's head had, or, with another
            kind of head, for `load_backbone`'s defaults.

    Returns: the model.

    Raises:
        InputError: the name is taken or unusable, `config.blocks` names a block that the
            model lacks, the model is of an unsupported family or not built, or the head is none that can stand there.
    """
    state = state_of(model)
    config = AdapterConfig() if config is None else config
    if not isinstance(config, MethodConfig):
        raise InputError("{config} must be an AdapterConfig or its like, as get_recipe(NAME).adapter.", config=config)
    if not isinstance(name, str) or not re.fullmatch("[A-Za-z0-9_.-]+", name):
        raise InputError("{name} must consist of letters from a to z, digits, '_', '-' and '.'.", name=name)
    # PyTorch has no dots in names, so that two would be one.
    for other in (other for other in state.adapters if other.replace(".", "_") == name.replace(".", "_")):
        raise InputError(
            f"{{name}}: the model already has an adapter of that name: give another, or remove {other!r}.", name=name
        )
    check_fast(state, fast)
    blocks = state.family.blocks(model)
    keys = config.sites(len(blocks))
    state.door.keep_float32(model, state)
    state.origin(model)
    if not state.adapters:
        state.fast = bool(fast)
        pooler = [variable for layer in state.newly_initialized for variable in layer.weights]
        groups = {"norms": state.layer_norm_variables(model), "pooler": pooler}
        state.switched = {group: Held(variables, state.plain) for group, variables in groups.items()}
        state.head = state.plain.stands = state.door.head_on(model, state.family, state.plain, state.acting.traced_head)
        state.freezing = state.door.freezing(model)
        state.dropouts = state.family.dropout_layers(model)
        state.original_blocks = blocks
        state.door.adapt(model, state)
        take_encoder(model, state)
    if seed is None:
        seed = np.random.randint(2**31)
    state.acting.last += 1
    layers, positions, number = {}, {}, state.acting.last
    drop = state.door.RandomDrop(config.random_drop) if config.random_drop else None
    for (block, place), key in keys.items():
        site, first = state.door.site(model, state, block, place), not layers
        position = positions.setdefault(block, len(positions))
        if key not in layers:
            layers[key] = state.door.build_layer(
                config, place, site, f"{name}.{key}", zlib.crc32(f"{seed} {key}".encode()) % 2**31
            )
            if state.trainable is not None:
                layers[key].trainable = False
        drop_seed = zlib.crc32(f"{seed} drop".encode()) % 2**31 if first else None
        site.add(name, layers[key], config, number, drop=drop, position=position, seed=drop_seed)
    own = _own_head(model, state, head, num_labels, labels, head_layers, seed)
    adapter = state.copy_of_plain(model, config=config, layers=layers, number=number, **own)
    state.adapters = {**state.adapters, name: adapter}
    state.door.forget_traces(model)
    state.let(model, active=name, active_blocks=None)
    return model


@transaction
def remove_adapters(model: Model, *, name: Optional[str] = None) -> Model:
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
        check_name(state, name)
    elif not state.adapters:
        raise InputError("The model has no adapters to remove.")
    others = [] if name is None else [other for other in state.adapters if other != name]
    if not others and state.freezing is None:
        check_not_cast(state.door.weights(model), "remove_adapters(model) restores the model and")
    if name is None or state.active == name:
        state.let(model, active=others[0] if others else None, active_blocks=None)
    state.door.forget_traces(model)
    if others:
        for site in state.sites.values():
            site.discard(name)
        state.drop(name)
        return model
    state.door.restore(model, state)
    state.trainable, state.freezing, state.dropouts, state.fast = None, [], [], False
    state.adapters, state.sites, state.original_blocks, state.original_parts, state.switched = {}, {}, None, [], {}
    state.head = state.plain.stands = None
    if state.pooler_came:
        state.newly_initialized, state.pooler_came = [], False
    return model


@transaction
def set_active(model: Model, name: str, *, blocks: Optional[Iterable[int]] = None) -> None:
    """Let the adapter `name` act, with its LayerNorms, its head and the head's label names, in graphs already traced
    too. Where its head has another shape than the one before, Keras traces anew, and your own graphs answer NaN.

    Which weights train does not change: call `set_trainable` to train it. Inside `disable_adapters` it acts after that.

    Args:
        name: str, an adapter of the model.
        blocks: indices of the blocks whose adapters act, or None for all; the others have no adapter, but its
            LayerNorms (AdapterDrop, Rücklé et al. 2021). Graphs that were traced follow, and compute as much as before.
            Exports and `merge_adapter` have what acts. Directories have all blocks: `fit` and `save_adapter` are
            refused.

    Raises:
        InputError: the model has no adapter of that name, or no such block.
    """
    state = state_of(model)
    check_name(state, name)
    adapted = sorted({block for block, _ in state.adapters[name].config.sites(len(state.family.blocks(model)))})
    try:
        chosen = None if blocks is None else frozenset(blocks)
        stand = chosen is None or chosen <= set(adapted)
    except TypeError:
        stand = False
    if not stand:
        raise InputError(
            f"{{blocks}} must be a list of some of {adapted}, which have the adapter {name!r}, or None.", blocks=blocks
        )
    state.let(model, active=name, active_blocks=chosen)


@contextlib.contextmanager
def disable_adapters(model: Model) -> Iterator[Model]:
    """Context in which the pretrained encoder acts alone, in graphs already traced too.

    No adapter acts and the LayerNorms are those of the encoder without one; the head stays that of the active adapter.
    On leaving, the adapter acts that is active then. In between adapters may be added, loaded, made active and removed
    as outside; `fit`, `save_adapter` and `merge_adapter` are refused, for what acts is not what they would write.
    LayerNorms that are trained in between are the encoder's own, and no adapter's.
    """
    suspension = object()
    try:
        _suspend(model, suspension)
        yield model
    finally:
        with uninterrupted():
            _resume(model, suspension)


@transaction
def _suspend(model, suspension):
    state = state_of(model)
    state.let(model, suspensions=state.suspensions | {suspension})


@transaction
def _resume(model, suspension):
    state = state_of(model)
    state.let(model, suspensions=state.suspensions - {suspension})


def adapter_names(model):
    """Names of the model's adapters, in the order they were added."""
    return list(state_of(model).adapters)


def active_adapter(model):
    """Name of the active adapter, or None."""
    return state_of(model).active


def check_name(state, name):
    """Raise InputError if the model has no adapter of a name."""
    if not isinstance(name, str) or name not in state.adapters:
        known = ", ".join(repr(other) for other in state.adapters) or "none"
        raise InputError(f"{{name}}: the model has no such adapter; it has {known}.", name=name)


def check_acts(state, what):
    """Raise InputError where `what`, a function's name, would write another model than the one that acts."""
    if state.active is None:
        return
    if not state.enabled:
        raise InputError(f"{what} is of the active adapter, and inside disable_adapters(model) none acts: leave it.")
    if state.active_blocks is not None:
        raise InputError(
            f"{what} is of all blocks, and of the adapter {state.active!r} only those of the blocks "
            f"{sorted(state.active_blocks)} act: set_active(model, {state.active!r}) lets all act."
        )


def check_fast(state, fast):
    """Raise InputError if an adapter that is to be added asks for other blocks than the model's are, or can be."""
    why = fast and state.door.why_not_fast(state.family)
    if why:
        raise InputError(f"{{fast}}: {why}; leave it out.", fast=True)
    if state.adapters and fast not in (None, state.fast):
        raise InputError(
            f"{{fast}}: the model's blocks have fast={state.fast}, which its first adapter decided.", fast=fast
        )


def _own_head(model, state, head, num_labels, labels, head_layers, seed):
    """What an adapter has of its own of the arguments for a head: a dict of `NamedAdapter`'s attributes."""
    if head is num_labels is labels is head_layers is None:
        return {}
    plain = state.plain.stands.shape
    check_head(
        2 if num_labels is None else num_labels, labels, head or plain.head or "classification", head_layers or 1
    )
    usual = plain if head in (None, plain.head) else HeadShape(head, 2)
    numbers = [number for number in (num_labels, None if labels is None else len(labels)) if number is not None]
    shape = HeadShape(usual.head, *(numbers[-1:] or [usual.num_labels]), head_layers or usual.layers)
    if shape == plain and labels is None:
        return {}
    names = range(shape.num_labels) if labels is None else labels
    names = {index: f"LABEL_{index}" if labels is None else label for index, label in enumerate(names)}
    own = {"labels": (names, {label: index for index, label in names.items()})}
    if shape == plain:
        return {**own, **_in_order(model, state, list(names.values()))}
    fresh = state.door.new_head(model, state.family, shape, seed % 2**31, state.acting.last_head + 1)
    values = [state.door.read(variable) for variable in fresh.variables]
    same = next((other for other in state.heads if other.shape == shape), None)
    if same is None:
        state.acting.last_head = fresh.number
        for layer in fresh.layers.values():
            layer.trainable = state.trainable is None
    return {**own, "stands": same or fresh, "head": values}


def _in_order(model, state, names):
    """What an adapter has of its own where the plain head has the same label names in another order: that head's values
    with the outputs in the order of `names`."""
    known, head = state.label_names(model, state.plain) or [], state.plain.stands
    if known == names or sorted(known) != sorted(names):
        return {}
    # The last two are its kernel and bias.
    outputs = {id(variable) for variable in [v for v in head.variables if v.shape[-1] == len(known)][-2:]}
    order, values = [known.index(name) for name in names], []
    for variable, value in zip(head.variables, head.values_of(state.plain, state.door.read)):
        ordered = np.asarray(value)[..., order] if id(variable) in outputs else None
        values.append(value if ordered is None else state.door.constant(ordered, variable))
    return {"head": values}


@transaction
def merge_adapter(model: Model) -> Model:
    """Fold the active adapter into the encoder's weights and take it out: a plain transformers model that computes the
    same.

    Its kernels become `W + (alpha / rank) A B`, computed in float64 and rounded once, or `W` scaled; LayerNorms and the
    head keep what was trained. The encoder is another one from then on, which an adapter that is trained on it names by
    its digest. What `save_adapter` wrote before goes on fitting the encoder that it was trained on.

    Args:
        model: a model with one adapter, of `LoraConfig` or `IA3Config`.

    Returns: the model.

    Raises:
        InputError: there is no adapter, it is none that can be merged, the model has others, or `cast_frozen` rounded
            the weights.

    Reference: Hu et al. 2022, section 4.1 (no additional inference latency).
    """
    only_first_door(model, "merge_adapter")
    state = state_of(model)
    if state.active is None:
        raise InputError("The model has no adapter to merge: add or load one first.")
    if not state.enabled:
        raise InputError("Inside disable_adapters(model) no adapter acts that could be merged: merge it outside.")
    config = state.owner.config
    if len(state.adapters) > 1:
        others = ", ".join(repr(name) for name in state.adapters if name != state.active)
        raise InputError(
            f"The model has other adapters ({others}), which need the encoder as it is: remove them first."
        )
    sites = _sites(model, state)
    if not sites:
        raise InputError(f"An adapter of the method {config.method!r} is no update of weights and cannot be merged.")
    check_not_cast(model.weights, "merge_adapter(model)")
    for site, (kernel, bias) in zip(sites, _merged(state, sites)):
        state.write(site.dense.kernel, kernel)
        state.write(site.dense.bias, bias)
    norms = [(variable, variable.read_value()) for variable in state.switched["norms"].variables]
    state.keep_head(model)
    state.pooler_came = False  # which is of the head that stays
    remove_adapters(model)
    for variable, value in norms:
        state.write(variable, value)
    state.forget_origin()
    state.source = None  # whose files have the encoder as it was
    return model


@contextlib.contextmanager
def merged(model):
    """Context in which what is traced computes with the active adapter's updates inside the weights, if it is such a
    one.

    The weights are copies: nothing of the model changes, and other threads may compute with it meanwhile.
    """
    state = state_of(model)
    sites = [site for site in _sites(model, state) if site.dense.kernel.dtype in ("float32", np.float32)]
    changes = [(site, "merged", site.dense_of(*values)) for site, values in zip(sites, _merged(state, sites))]
    with replaced(changes):
        yield


def _sites(model, state):
    """The dense layers that the acting adapter changes."""
    if state.active is None or not state.enabled:
        return []
    places = state.adapters[state.active].config.sites(len(state.family.blocks(model)))
    acting = [state.sites[place] for place in places if state.active_blocks is None or place[0] in state.active_blocks]
    return [site for site in acting if hasattr(site, "dense_of")]


def _merged(state, sites):
    """Kernel and bias with the update, of each site."""
    array = state.door.array
    return [site.adapters[state.active].merged(array(site.dense.kernel), array(site.dense.bias)) for site in sites]
