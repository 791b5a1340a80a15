"""Folds LoRA and (IA)^3 into the encoder's own weights."""

import contextlib

import numpy as np

from tf_adapters._types import Model
from tf_adapters.errors import InputError
from tf_adapters.models.door import only_first_door
from tf_adapters.models.injection import remove_adapters
from tf_adapters.models.state import state_of
from tf_adapters.models.storage import check_not_cast
from tf_adapters.models.transaction import replaced, transaction


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
            f"The model has other adapters ({others}), which fit the unchanged encoder alone: remove them first."
        )
    sites = _sites(model, state)
    if not sites:
        raise InputError(
            f"An adapter of the method {config.method!r} is no update of the encoder's weights and cannot be merged."
        )
    check_not_cast(model.weights, "merge_adapter(model)")
    for site, (kernel, bias) in zip(sites, _merged(state, sites)):
        state.write(site.dense.kernel, kernel)
        state.write(site.dense.bias, bias)
    norms = [(variable, variable.read_value()) for variable in state.switched["norms"].variables]
    state.keep_head(model)
    remove_adapters(model)
    for variable, value in norms:
        state.write(variable, value)
    state.forget_origin()
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
