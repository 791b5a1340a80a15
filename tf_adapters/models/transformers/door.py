"""How adapters come into a model of transformers; what `models.door` asks of a door."""

import contextlib
import functools

import numpy as np
import tensorflow as tf

from tf_adapters import _keras_internals as internals
from tf_adapters._keras import keras
from tf_adapters._keras_internals import layers_of
from tf_adapters.config import one_name
from tf_adapters.errors import InputError
from tf_adapters.layers.fused import uncompiled
from tf_adapters.layers.ops import keras2 as ops
from tf_adapters.models import weight_files
from tf_adapters.models.keras_files import refuse
from tf_adapters.models.state import step_made_anew
from tf_adapters.models.transaction import replaced
from tf_adapters.models.transformers.family import family_of
from tf_adapters.models.transformers.graphs import hold_gradients_weakly
from tf_adapters.models.transformers.heads import (
    head_layers,
    head_on,
    head_shape,
    keep_float32,
    logits_of_rows,
    new_head,
)
from tf_adapters.models.transformers.site import Acting, DenseSite, RandomDrop, encode, make_routable

__all__ = [
    "Acting", "RandomDrop", "encode", "family_of", "head_on", "head_shape", "keep_float32", "layers_of",
    "logits_of_rows", "make_routable", "new_head", "ops",
]  # fmt: skip

NAME, FEWER_BITS = "transformers", None
# By which Keras and transformers write a whole model, beside `get_config`, which Keras asks before it does.
_WHOLE = ("get_config", "save", "save_pretrained", "push_to_hub")

# Weights


def config_of(model):
    return model.config


def computes(model):
    config = model.config
    # DistilBERT's configuration calls the one otherwise, and does not have the other.
    activation = getattr(config, "hidden_act", None) or getattr(config, "activation", None)
    return {
        "activation": one_name(activation) if isinstance(activation, str) else None,
        "layer_norm_eps": float(getattr(config, "layer_norm_eps", 1e-12)),
        "num_attention_heads": config.num_attention_heads,
    }


def named_weights(model, variables):
    return weight_files.named_weights(variables)


def weights(model):
    return model.weights


def array(variable, value=None):
    return np.asarray(variable.read_value() if value is None else value)


def shape(variable):
    return tuple(variable.shape)


def read(variable):
    return variable.read_value()


def constant(value, variable):
    return tf.constant(value, variable.dtype)


# Sites


def why_not_fast(family):
    return None if family.fast_block_class else f"{family.model_type} has no fast blocks"


def adapt(model, state):
    """Make every sub-layer a site, so that a second adapter may stand where the first does not."""
    family, main, blocks = state.family, state.family.main_layer(model), state.original_blocks
    block_class = family.fast_block_class if state.fast else family.block_class
    state.original_parts = [
        (block.attention, name, getattr(block.attention, name))
        for block in blocks
        for name in block_class.replaced_parts
    ]
    if state.fast and family.reads_first_token_only(model):
        state.original_parts.append((main, "encoder", main.encoder))
        internals.replace_layer(main, "encoder", family.fast_encoder_class.adopt(main.encoder))
    trace_steps_once(model)
    adapted = [block_class.adopt(block) for block in blocks]
    family.set_blocks(model, adapted)
    for index, block in enumerate(adapted):
        for place, site in block.sites.items():
            state.sites[index, place] = site
    # Every graph of the model reads it, and all that it computes depends on it.
    state.sites[0, "attention"].acting = state.acting
    vars(main)["get_config"] = refuse
    vars(model).update({name: refuse for name in _WHOLE})


def site(model, state, block, place):
    if (block, place) not in state.sites:
        owner, attribute = state.family.dense(state.family.blocks(model)[block], place)
        dense = getattr(owner, attribute)
        state.original_parts.append((owner, attribute, dense))
        state.sites[block, place] = DenseSite.adopt(dense)
        internals.replace_layer(owner, attribute, state.sites[block, place])
    return state.sites[block, place]


def build_layer(config, place, site, name, seed):
    """A MethodLayer with weights, whose names come from its own and not from its first user; seeded by its key,
    whatever the order."""
    layer = config.layer(place, site.shape, ops=ops, seed=seed, name=name, dtype=site.dtype_policy)
    try:
        with tf.name_scope("adapters/" + name.replace(".", "/", 1)):
            layer.build((None, None, site.shape[0]))
    except (tf.errors.ResourceExhaustedError, tf.errors.InvalidArgumentError, ValueError, OverflowError) as error:
        raise InputError(f"{config}: its weights do not fit into memory ({str(error).splitlines()[0]}).") from None
    return layer


def restore(model, state):
    """Put back the original blocks, what trains, and the dropout layers."""
    for layer in (model, state.family.main_layer(model)):
        for name in _WHOLE:
            vars(layer).pop(name, None)
    for owner, part, original in state.original_parts:
        internals.replace_layer(owner, part, original)
    state.family.set_blocks(model, state.original_blocks)
    before = {id(layer) for layer, *_ in state.freezing}
    for layer in state.head.layers.values():
        if id(layer) not in before:
            layer.trainable = True  # it came with an adapter that is merged
    for layer, trainable, trains, frozen in state.freezing:
        internals.set_trainable_alone(layer, trainable)
        internals.set_own_weights(layer, trains, frozen)
    for owner, attribute, dropout, _ in state.dropouts:
        # `merge_adapter` leaves the head of the adapter, which may have no such layer.
        if owner is not model or attribute in state.head.layers:
            setattr(owner, attribute, dropout)


# Heads


def stand(state, model, head):
    now = state.head
    now.layers = {attribute: getattr(model, attribute) for attribute in now.layers}
    for attribute in now.layers.keys() - head.layers.keys():
        delattr(model, attribute)
    for attribute, layer in head.layers.items():
        if attribute in now.layers:
            internals.replace_layer(model, attribute, layer)
        else:
            setattr(model, attribute, layer)
    if hasattr(model, "num_labels"):
        model.num_labels = head.shape.num_labels
    internals.change_class(model, head.model_class)
    if state.fast and hasattr(stack := state.family.stack(model), "first_token_only"):
        stack.first_token_only = state.family.reads_first_token_only(model)


# What trains


def freezing(model):
    """List of `(layer, trainable, its trainable and its other weights)`."""
    return [
        (layer, layer.trainable, *internals.own_weights(layer))
        for layer in [model, *model.submodules]
        if isinstance(layer, keras.layers.Layer)
    ]


def choose(model, state, chosen):
    model.trainable = True
    # The model itself too: transformers' `resize_token_embeddings` makes the new matrix a weight of it.
    for layer in (model, *model.submodules):
        if isinstance(layer, keras.layers.Layer) and not isinstance(layer, keras.metrics.Metric):
            _freeze_all_but(layer, chosen)
    _freeze_waiting_heads(state)
    trace_steps_once(model)


def trace_steps_once(model):
    """Let an optimizer have its variables before the first step: Keras makes them while it traces that, and so has to
    trace it again."""
    vars(model)["make_train_function"] = functools.partial(_make_train_function, model)


def _make_train_function(model, *arguments, **settings):
    if hasattr(model.optimizer, "build"):
        model.optimizer.build(model.trainable_variables)
    return type(model).make_train_function(model, *arguments, **settings)


def freeze(model, state):
    model.trainable = False
    _freeze_waiting_heads(state)


def _freeze_waiting_heads(state):
    for head in state.heads:
        if head is not state.head:
            for layer in head.layers.values():
                layer.trainable = False


def _freeze_all_but(layer, chosen):
    """Set what trains of the weights that `layer` itself owns."""
    own = sum(internals.own_weights(layer), [])
    if not own:
        return
    if not any(isinstance(child, keras.layers.Layer) for child in layer.submodules):
        # First back to where they were made, for an earlier choice may have moved some.
        own = internals.in_order_made(layer, own)
        trained = [variable for variable in own if variable.trainable]
        internals.set_own_weights(layer, trained, [variable for variable in own if not variable.trainable])
        trains = [id(variable) in chosen for variable in own]
        layer.trainable = any(trains)
        if all(trains) or not any(trains):
            return
    # A frozen layer hides its children from Keras, so an owner with children (the
    # embeddings, with their LayerNorm) stays trainable and its weights are moved; so are a
    # layer's of which some train and others do not.
    trains = [variable for variable in own if id(variable) in chosen]
    internals.set_own_weights(layer, trains, [variable for variable in own if id(variable) not in chosen])


def follow(model):
    model.train_function, model.train_tf_function = step_made_anew(model), None
    if getattr(model, "optimizer", None) is not None:
        internals.train_what_is_chosen(model)
        with model.distribute_strategy.scope():
            internals.go_on_with(model.optimizer, model.trainable_variables)


def forget_traces(model):
    model.train_function = step_made_anew(model)
    model.train_tf_function = model.test_function = model.predict_function = None


# Calls


def backend():
    return "tensorflow"


def compiles_shapes():
    return False


def forward(model, *, jit_compile=False):
    names = ("input_ids", "attention_mask", "token_type_ids")
    specs = {name: tf.TensorSpec((None, None), tf.int32) for name in names}

    # AutoGraph would take three quarters of the time of tracing.
    @tf.function(input_signature=[specs], jit_compile=jit_compile or None, autograph=family_of(model).autograph)
    def logits(inputs):
        logits = logits_of_rows(model, inputs)
        hold_gradients_weakly()
        return logits

    traced = internals.traced_once(logits)
    return lambda inputs: traced(inputs).numpy()


def plain(model):
    return uncompiled()


def as_matrices(model):
    return contextlib.nullcontext()


def logits_at(model, inputs, places, training=None):
    name = model.base_model_prefix
    encoder = vars(model)[name]

    def encode(*arguments, **options):
        outputs = encoder(*arguments, **options)
        states = outputs[0]
        flat = tf.reshape(states, [-1, states.shape[-1]])
        return type(outputs)(last_hidden_state=tf.gather(flat, places)[tf.newaxis])

    with replaced([(model, name, encode)]):
        return model(inputs, training=training).logits


def compiled(model, *, jit_compile=False):
    @functools.cache
    def traced(*names):
        # XLA needs shapes; without it one trace does for all.
        specs = None if jit_compile else [{name: tf.TensorSpec((None, None), tf.int32) for name in names}]
        call = functools.partial(model, training=False)
        return tf.function(call, input_signature=specs, jit_compile=jit_compile or None)

    return lambda inputs: traced(*inputs)(inputs).numpy()


# Fewer bits


def cast_frozen(model, state, frozen):
    # A head with tied embeddings reads them in float32.
    exchanged, shared = [], {id(layer) for outer in head_layers(model, state) for layer in outer.submodules}
    for layer in state.family.main_layer(model).submodules:
        is_half = isinstance(layer, keras.layers.Layer) and layer.compute_dtype in ("bfloat16", "float16")
        if is_half and id(layer) not in shared:
            for attribute, variable in list(vars(layer).items()):
                if id(variable) in frozen and variable.shape.rank == 2 and variable.dtype == tf.float32:
                    exchanged.append((variable, _cast(layer, attribute, variable)))
    return exchanged


def _cast(layer, attribute, variable):
    """Replace a variable that `layer` owns; returns the new one."""
    new = tf.Variable(
        tf.cast(variable, layer.compute_dtype), trainable=variable.trainable, name=variable.name.removesuffix(":0")
    )
    new._tf_adapters_cast = True
    internals.exchange_variable(layer, attribute, new)
    return new


# Transactions


class Undo:
    """What a model's objects held at one moment, and the values that variables had before they were assigned."""

    def __init__(self, model, state):
        self._written, objects = {}, _objects(model, state)
        self._model, self._class = model, type(model)
        self._held = [(held, dict(held)) for held in map(vars, objects)]
        # Keras changes its own containers in place.
        containers = [value for held, _ in self._held for value in held.values() if type(value) in (list, dict, set)]
        containers += [internals.reference_counts(one) for one in objects if isinstance(one, keras.layers.Layer)]
        self._contents = [(container, container.copy()) for container in containers]

    def remember(self, variable):
        """Keep the value of a variable that is about to be assigned for the first time."""
        if id(variable) not in self._written:
            # No copy: an assignment gives the variable other memory.
            self._written[id(variable)] = (variable, variable.read_value())

    def restore(self):
        for variable, value in self._written.values():
            variable.assign(value)
        internals.change_class(self._model, self._class)
        for held, before in self._held:
            held.clear()
            held.update(before)
        for container, before in self._contents:
            if type(container) is list:
                container[:] = before
            else:
                container.clear()
                container.update(before)


def _objects(model, state):
    """Everything that operations on a model change: its layers, their switches, the package's own notes, the
    optimizer."""
    waiting = [layer for head in state.heads if head is not state.head for layer in head.layers.values()]
    layers = [layer for outer in (model, *waiting) for layer in layers_of(outer)]
    switches = [switch for layer in layers if (switch := getattr(layer, "switch", None)) is not None]
    optimizer = getattr(model, "optimizer", None)
    optimizers = [optimizer, getattr(optimizer, "inner_optimizer", None)]
    optimizers = [one for one in optimizers if isinstance(one, keras.optimizers.Optimizer)]
    owners = [state.plain, *state.adapters.values(), *state.switched.values(), *state.heads]
    return [*layers, *switches, *optimizers, state, state.acting, *owners, model.config]
