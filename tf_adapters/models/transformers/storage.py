"""How the frozen weights of an encoder are kept in memory."""

import tensorflow as tf

from tf_adapters._keras import keras
from tf_adapters._keras_internals import exchange_variable
from tf_adapters.models.state import state_of
from tf_adapters.models.storage import check_frozen
from tf_adapters.models.transaction import transaction
from tf_adapters.models.transformers.heads import head_layers


@transaction
def cast_frozen(model):
    """See `models.storage.cast_frozen`."""
    state = state_of(model)
    origin = state.origin(model)
    trains = {id(variable) for variable in model.trainable_variables}
    frozen = {
        id(variable): variable
        for variable in state.backbone_variables(model)
        if variable.shape.rank == 2 and id(variable) not in trains
    }
    # A head with tied embeddings reads them in float32.
    cast, shared = [], {id(layer) for outer in head_layers(model, state) for layer in outer.submodules}
    for layer in state.family.main_layer(model).submodules:
        is_half = isinstance(layer, keras.layers.Layer) and layer.compute_dtype in ("bfloat16", "float16")
        if is_half and id(layer) not in shared:
            for attribute, variable in list(vars(layer).items()):
                if id(variable) in frozen and variable.dtype == tf.float32:
                    cast.append(_cast(layer, attribute, variable))
                    origin.exchange(variable, cast[-1])
    if not cast:
        check_frozen(model, state, trains)
        return model
    # These lists keep the old variables alive, and the model before the adapters cannot be restored any more.
    state.freezing = None
    state.door.forget_traces(model)
    return model


def _cast(layer, attribute, variable):
    """Replace a variable that `layer` owns; returns the new one."""
    new = tf.Variable(
        tf.cast(variable, layer.compute_dtype), trainable=variable.trainable, name=variable.name.removesuffix(":0")
    )
    new._tf_adapters_cast = True
    exchange_variable(layer, attribute, new)
    return new
