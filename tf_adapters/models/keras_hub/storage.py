"""The frozen kernels and embeddings of an encoder of KerasHub in eight bits."""

import functools

from tf_adapters._keras3_internals import layers_of, matrix_of
from tf_adapters.errors import InputError
from tf_adapters.models.keras_hub.door import forget_traces
from tf_adapters.models.state import state_of
from tf_adapters.models.storage import is_cast
from tf_adapters.models.transaction import transaction


@transaction
def quantize_frozen(model):
    """See `models.storage.cast_frozen`."""
    state = state_of(model)
    trains = {id(variable) for variable in model.trainable_variables}
    if state.trainable is None and len(trains) == len(model.weights) and not any(map(is_cast, model.weights)):
        raise InputError(
            "cast_frozen(model): nothing is frozen; call set_trainable(model, ...) or freeze(model) first."
        )
    origin, backbone = state.origin(model), state.family.main_layer(model)
    frozen = {id(variable) for variable in state.backbone_variables(model)} - trains
    before, cast = _by_name(state, model), {}
    for layer in layers_of(backbone):
        own = [one for one in layers_of(layer) if one is not layer]
        matrices = [weight for weight in layer.weights if len(weight.shape) > 1 and weight.dtype == "float32"]
        if own or not matrices or any(id(weight) not in frozen for weight in matrices):
            continue
        try:
            layer.quantize("int8")
        except NotImplementedError:
            continue  # of another class than Keras' own, such as positions
        cast.update((id(weight), layer) for weight in layer.weights)
    for name, variable in _by_name(state, model).items():
        if variable is not before[name]:
            variable._tf_adapters_cast = functools.partial(matrix_of, cast[id(variable)])
            origin.exchange(before[name], variable)
    # What adapters found here cannot come back any more.
    state.freezing = None
    forget_traces(model)
    return model


def _by_name(state, model):
    return {name: variable for variable, name, _ in state.family.names(model)}
