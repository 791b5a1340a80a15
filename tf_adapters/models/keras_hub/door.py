"""How adapters come into a model of KerasHub; what `models.door` asks of a door."""

import contextlib
import functools
import importlib
import math

import keras
import numpy as np

from tf_adapters import _keras3_internals as internals
from tf_adapters._keras3_internals import layers_of
from tf_adapters.errors import InputError
from tf_adapters.layers.ops import keras3 as ops
from tf_adapters.models.keras_files import refuse, refusing
from tf_adapters.models.keras_hub.families import OffsetPositions, family_of
from tf_adapters.models.keras_hub.family import EncoderConfig, backbone_of
from tf_adapters.models.keras_hub.heads import HEADS, states_of
from tf_adapters.models.keras_hub.site import (
    Acting,
    AdapterEncoder,
    DenseSite,
    RandomDrop,
    Site,
    encode,
    make_routable,
    name_of_activation,
)
from tf_adapters.models.origin import is_cast
from tf_adapters.models.state import Head, HeadShape, mark_of, state_of, step_made_anew
from tf_adapters.models.transaction import replaced
from tf_adapters.models.weight_files import by_name

__all__ = ["Acting", "RandomDrop", "encode", "family_of", "layers_of", "make_routable", "ops"]

NAME, FEWER_BITS = "keras-hub", "int8"
# By which Keras and KerasHub write a whole model, beside `get_config`, which Keras asks before it does. It has opened
# the file by then.
_WHOLE = ("get_config", "save", "save_to_preset", "export_to_transformers")

# Weights


def config_of(model):
    config = getattr(model, "_tf_adapters_config", None)
    if config is None:
        backbone = backbone_of(model)
        # Where a model has no labels, as many as transformers' configurations have then.
        bare = model is backbone or family_of(model).head_of(model) == "masked-lm"
        outputs = 2 if bare else getattr(model, "num_classes", 0) or _outputs_of(model)
        names = {index: f"LABEL_{index}" for index in range(outputs)}
        # KerasHub's own RoBERTa has no rows before a text's first one.
        offset = any(isinstance(layer, OffsetPositions) for layer in layers_of(backbone))
        config = model._tf_adapters_config = EncoderConfig(
            family_of(model).model_type,
            backbone.hidden_dim,
            backbone.num_layers,
            backbone.intermediate_dim,
            outputs,
            names,
            {name: index for index, name in names.items()},
            backbone.token_embedding.input_dim,
            backbone.max_sequence_length + (0 if offset else family_of(model).first_position),
            getattr(backbone, "_tf_adapters_checkpoint", {}).get("pooler_hidden_act"),
        )
    return config


def _outputs_of(model):
    shape = model.output_shape
    if not isinstance(shape, tuple) or not isinstance(shape[-1], int):
        raise InputError("{model} must answer one tensor of logits, (..., outputs).", model=type(model).__name__)
    return shape[-1]


def computes(model):
    block = family_of(model).blocks(backbone_of(model))[0]
    return {
        "activation": name_of_activation(block.activation),
        "layer_norm_eps": float(block.layer_norm_epsilon),
        "num_attention_heads": backbone_of(model).num_heads,
    }


def named_weights(model, variables):
    known = {id(variable): (name, transposed) for variable, name, transposed in family_of(model).names(model)}
    # What stands on the encoder has the name that Keras gave it.
    return by_name(variables, lambda one: known.get(id(one), (one.path.replace("/", "."), False)))


def weights(model):
    layers = layers_of(model)
    others = {id(weight) for layer in layers if isinstance(layer, Site) for weight in layer.switch_weights}
    # Beside eight bits stands a scale, which `array` multiplies by.
    others |= {id(getattr(layer, name, None)) for layer in layers for name in ("kernel_scale", "embeddings_scale")}
    return [weight for weight in model.weights if id(weight) not in others]


def shape(variable):
    sizes = tuple(variable.shape)
    if len(sizes) == 3:  # of attention, with an axis of heads
        joined = "attention_output" in variable.path
        return (sizes[0] * sizes[1], sizes[2]) if joined else (sizes[0], sizes[1] * sizes[2])
    if len(sizes) == 2 and variable.name == "bias":
        return (sizes[0] * sizes[1],)
    return sizes


def _check_readable(variables):
    if not internals.have_values(variables):
        raise InputError(
            "Between the batches of fit, Keras on JAX keeps the model's values to itself: change or save the model in "
            "on_epoch_end, or after fit."
        )


def array(variable, value=None):
    if value is None:
        _check_readable([variable])
        # Of one in eight bits what the codes stand for; see `cast_frozen`.
        value = getattr(variable, "_tf_adapters_cast", lambda: variable)()
    return keras.ops.convert_to_numpy(value).reshape(shape(variable))


def read(variable):
    return np.array(keras.ops.convert_to_numpy(variable))


def constant(value, variable):
    return np.asarray(value, dtype=np.dtype(variable.dtype)).reshape(tuple(variable.shape))


# Sites


def adapt(model, state):
    """Make every sub-layer a site, so that a second adapter may stand where the first does not."""
    _refuse_changed(model, state)
    block_class = _fast().FastEncoder if state.fast else state.family.block_class
    for index, block in enumerate(state.original_blocks):
        state.original_parts.append((block, "__class__", type(block), None))
        block.__class__ = block_class
        for place, site in block.make_sites(index).items():
            state.sites[index, place] = site
    if state.fast and _reads_first_token_only(model, state.family):
        backbone = backbone_of(model)
        # ALBERT may compute a block several times.
        times = backbone.num_layers * getattr(backbone, "num_inner_repetitions", 1)
        state.original_blocks[-1].is_last = len(state.original_blocks) == times
        vars(model)["call"] = functools.partial(_fast().call_for_first_token, model)
    # Every graph of the model reads it, and all that it computes depends on it.
    state.sites[0, "attention"].acting = state.acting
    for one in {id(one): one for one in (model, backbone_of(model))}.values():
        vars(one).update({name: refuse for name in _WHOLE}, quantize=_NO_QUANTIZE, enable_lora=_NO_LORA)
        vars(one)["export"] = functools.partial(export, one)


def _reads_first_token_only(model, family):
    """Whether a head is one of those that are known to; a subclass may read other tokens too."""
    head = family.head_of(model)
    return head in ("classification", "multiple-choice") and type(model) in (family.tasks.get(head), HEADS.get(head))


def why_not_fast(family):
    if keras.backend.backend() != "tensorflow":
        return f"fast blocks are TensorFlow's, and Keras is on {keras.backend.backend()}"
    return None if family.block_class is AdapterEncoder else f"{family.model_type} has no fast blocks"


def _fast():
    # Which needs TensorFlow.
    return importlib.import_module("tf_adapters.models.keras_hub.fast")


def _refuse_changed(model, state):
    """Raise InputError for an encoder that Keras changed in a way that adapters would not survive."""
    for layer in layers_of(backbone_of(model)):
        if getattr(layer, "lora_enabled", False):
            raise InputError(
                f"{{model}} has LoRA of Keras in {layer.path}: load it anew, and add LoraConfig(...).",
                model=type(model).__name__,
            )
        if getattr(layer, "quantization_mode", None) and not any(map(is_cast, layer.weights)):
            raise InputError(
                f"{{model}} is quantized in {layer.path}: load it anew, add adapters, and then call "
                'tf_adapters.models.cast_frozen(model, "int8").',
                model=type(model).__name__,
            )


_NO_QUANTIZE = refusing(
    'quantize would round the adapters\' head too: call tf_adapters.models.cast_frozen(model, "int8").'
)
_NO_LORA = refusing("enable_lora freezes this model's adapters: call add_adapters(model, tf_adapters.LoraConfig()).")


def site(model, state, block, place):
    if (block, place) not in state.sites:
        owner, attribute = state.family.dense(state.original_blocks[block], place)
        dense = getattr(owner, attribute)
        made = state.sites[block, place] = DenseSite.adopt(dense)
        made.take()
        vars(owner)["get_config"] = refuse
        state.original_parts.append((owner, attribute, dense, made))
        internals.replace_tracked(owner, **{attribute: made})
    return state.sites[block, place]


def build_layer(config, place, site, name, seed):
    """A MethodLayer with weights, seeded by its key, whatever the order."""
    name = name.replace("/", "_").replace(".", "_")  # PyTorch has no dots in a weight's name
    layer = config.layer(place, site.shape, ops=ops, seed=seed, name=name, dtype=site.dtype_policy)
    try:
        layer.build((None, None, site.shape[0]))
    except (MemoryError, ValueError, OverflowError) as error:
        raise InputError(f"{config}: its weights do not fit into memory ({str(error).splitlines()[0]}).") from None
    return layer


def restore(model, state):
    """Put back the original layers, the rates of dropout, and what trains."""
    for one in {id(one): one for one in (model, backbone_of(model))}.values():
        for name in (*_WHOLE, "quantize", "enable_lora", "export", "call"):
            vars(one).pop(name, None)
    for owner, attribute, original, made in state.original_parts:
        if made is None:
            owner.drop_sites()
            owner.__class__ = original
        else:
            made.give_back()
            vars(owner).pop("get_config", None)
            internals.replace_tracked(owner, **{attribute: original})
    for layer, rate in state.dropouts:
        internals.set_dropout(layer, rate)
    internals.let_attentions_drop(model)
    for variable, trains in state.freezing[0]:
        variable.trainable = trains
    for layer, trains in state.freezing[1]:
        internals.set_trainable_alone(layer, trains)


# Heads


def head_shape(model, family):
    return HeadShape(family.head_of(model), getattr(model, "units", config_of(model).num_labels))


def head_on(model, family, holder, number=0):
    inside = {id(variable) for variable in family.main_layer(model).weights}
    variables = [variable for variable in weights(model) if id(variable) not in inside]
    return Head(variables, holder, head_shape(model, family), type(model), {}, number)


def new_head(model, family, shape, seed, number):
    known = head_shape(model, family)
    raise InputError(
        f"{{head}}: an adapter for a model of KerasHub has the head's shape ({known.head}, {known.num_labels} labels): "
        "build another task model on the backbone.",
        head=f"{shape.head}, {shape.num_labels} labels",
    )


def stand(state, model, head):
    raise AssertionError("All adapters of a model of KerasHub have one head.")


def keep_float32(model, state):
    inside = {id(layer) for layer in layers_of(backbone_of(model))}
    for layer in layers_of(model):
        if id(layer) not in inside and layer is not model and layer.compute_dtype in ("bfloat16", "float16"):
            layer.dtype_policy = "float32"


# What trains


def freezing(model):
    """Lists of `(variable, whether it trains)` and of `(layer, whether it does)`."""
    variables = [(variable, variable.trainable) for variable in model.variables]
    return variables, [(layer, layer.trainable) for layer in layers_of(model)]


def choose(model, state, chosen):
    # Set where it is True already, Keras looks no further.
    model.trainable = False
    model.trainable = True
    for variable in model.trainable_variables:
        variable.trainable = id(variable) in chosen


def freeze(model, state):
    model.trainable = False


def follow(model):
    forget_traces(model)
    if getattr(model, "optimizer", None) is not None:
        internals.go_on_with(model.optimizer, model.trainable_variables)


def forget_traces(model):
    # Keras has traced the backbone by itself where somebody asked it alone.
    for one in (model, backbone_of(model)):
        one.train_function = step_made_anew(one)
        one.test_function = one.predict_function = None


# Calls


class Called(keras.Model):
    """A model of KerasHub, called as it is: a task model's `fit` and `predict` would first cut texts."""

    def __init__(self, model):
        super().__init__(name="called", dtype=model.dtype_policy)
        self.inner, self.names, self.built = model, tuple(model.input), True

    def call(self, inputs, training=None):
        return self.inner({name: inputs[name] for name in self.names}, training=training)


def backend():
    return keras.backend.backend()


def compiles_shapes():
    return keras.backend.backend() == "jax"


class _Rows(Called):
    """`logits_of_rows` of a model, as a model."""

    def call(self, inputs, training=None):
        return logits_of_rows(self.inner, inputs)


def forward(model, *, jit_compile=False):
    if backend() != "tensorflow":
        called = compiled(_Rows(model), jit_compile=jit_compile)
        return lambda inputs: np.asarray(called(inputs), np.float32)
    import tensorflow as tf

    from tf_adapters._keras_internals import traced_once

    specs = {name: tf.TensorSpec((None, None), tf.int32) for name in ("input_ids", "attention_mask", "token_type_ids")}

    # `predict_on_batch` is not for several threads.
    @tf.function(input_signature=[specs], jit_compile=jit_compile or None, autograph=False)
    def logits(inputs):
        return tf.cast(logits_of_rows(model, inputs), tf.float32)

    traced = traced_once(logits)
    return lambda inputs: traced(inputs).numpy()


def logits_of_rows(model, inputs):
    family = family_of(model)
    inputs = family.inputs(inputs)
    if family.head_of(model) == "multiple-choice":
        # Each row given is the only one of a text.
        inputs = {name: value[:, None] for name, value in inputs.items()}
    outputs = model({name: inputs[name] for name in model.input}, training=False)
    if isinstance(outputs, dict):  # which JAX sorts
        return ops.stack([outputs[name] for name in ("start_logits", "end_logits")], -1)
    return outputs


def logits_at(model, inputs, places, training=None):
    backbone = backbone_of(model)
    states = states_of(backbone({name: inputs[name] for name in backbone.input}, training=training))
    states = ops.take(ops.reshape(states, (-1, backbone.hidden_dim)), places)[None]
    return model.masked_lm_head(states, keras.ops.arange(ops.shape(places)[0], dtype="int32")[None])


def compiled(model, *, jit_compile=False):
    model.jit_compile = jit_compile or compiles_shapes()
    if model.jit_compile:
        internals.let_compiler_recurse()
    return lambda inputs: model.predict_on_batch({name: np.asarray(value) for name, value in inputs.items()})


# Eight bits


def cast_frozen(model, state, frozen):
    def by_name():
        return {name: variable for variable, name, _ in state.family.names(model)}

    before, cast, exchanged = by_name(), {}, []
    for layer in layers_of(state.family.main_layer(model)):
        own = [one for one in layers_of(layer) if one is not layer]
        matrices = [weight for weight in layer.weights if len(weight.shape) > 1 and weight.dtype == "float32"]
        if own or not matrices or any(id(weight) not in frozen for weight in matrices):
            continue
        try:
            layer.quantize("int8")
        except NotImplementedError:
            continue  # of another class than Keras' own, such as positions
        cast.update((id(weight), layer) for weight in layer.weights)
    for name, variable in by_name().items():
        if variable is not before[name]:
            variable._tf_adapters_cast = functools.partial(internals.matrix_of, cast[id(variable)])
            exchanged.append((before[name], variable))
    return exchanged


# Exports

# Of an input, by how many it has.
_DIMENSIONS = {2: "(batch, length)", 3: "(batch, choices, length)"}
_OF_PLACES = "(batch, places)"


def export(model, filepath, format="tf_saved_model", **settings):
    """As of Keras, which on JAX takes the inputs' lengths for different ones."""
    if keras.backend.backend() == "jax" and format == "tf_saved_model" and settings.get("input_signature") is None:
        shapes = {name: _DIMENSIONS[len(each.shape)] for name, each in model.input.items()}
        shapes = [{name: _OF_PLACES if name == "mask_positions" else shape for name, shape in shapes.items()}]
        settings["jax2tf_kwargs"] = {"polymorphic_shapes": shapes, **settings.get("jax2tf_kwargs", {})}
    with contextlib.ExitStack() as stack:
        stack.enter_context(plain(model))
        if format == "onnx":
            ones = {name: np.zeros((1,) * len(each.shape), "int32") for name, each in model.input.items()}
            model(ones)  # Keras asks for a call before
            stack.enter_context(_gelu_by_erf(model))
        # Keras' own, behind what stands before it.
        return keras.Model.export(model, filepath, format=format, **settings)


def plain(model):
    # Servers need no compiler then, and LiteRT no operations of TensorFlow.
    fast = any(mark.fast for mark in map(mark_of, model.weights) if mark is not None)
    return _fast().plain() if fast else contextlib.nullcontext()


def as_matrices(model):
    state = state_of(model)
    layers = [layer for block in state.family.blocks(model) for layer in layers_of(block)]
    layers += [site.merged for site in state.sites.values() if getattr(site, "merged", None) is not None]
    heads = [layer for layer in layers if type(layer) is keras.layers.EinsumDense and layer.quantization_mode is None]
    return replaced([(layer, "call", functools.partial(_product, layer)) for layer in heads])


def _product(layer, inputs, training=None):
    """What a dense layer with an axis of heads, on one side, computes, by one product of matrices."""
    kernel, bias = keras.ops.convert_to_tensor(layer.kernel), keras.ops.convert_to_tensor(layer.bias)
    matrix = keras.ops.reshape(kernel, (-1, math.prod(bias.shape)))
    # A bias right behind a product of integers ONNX Runtime 1.32 fuses with it, and adds something else.
    outputs = keras.ops.reshape(inputs, (-1, matrix.shape[0])) @ matrix
    return keras.ops.reshape(outputs, (-1, keras.ops.shape(inputs)[1], *bias.shape)) + bias


@contextlib.contextmanager
def _gelu_by_erf(model):
    """While it lasts, graphs of the model have no erfc, which ONNX lacks."""
    exact = [layer for layer in layers_of(model) if getattr(layer, "activation", None) is keras.activations.gelu]
    try:
        for layer in exact:
            layer.activation = ops.activation("gelu")
        with ops.gelu_by_erf():
            yield
    finally:
        for layer in exact:
            layer.activation = keras.activations.gelu


# Transactions


class Undo:
    """What a model's objects held at one moment, and the values that variables had before they were assigned."""

    def __init__(self, model, state):
        _check_readable(model.variables)
        self._written, layers = {}, [model, *layers_of(model), state.acting]
        optimizer = getattr(model, "optimizer", None)
        optimizers = [one for one in (optimizer, getattr(optimizer, "inner_optimizer", None)) if one is not None]
        owners = [state.plain, *state.adapters.values(), *state.switched.values(), *state.heads]
        objects = [*layers, *optimizers, state, *owners, config_of(model)]
        self._classes = [(layer, type(layer)) for layer in layers]
        self._held = [(vars(one), dict(vars(one))) for one in objects]
        self._trackers = [(layer, internals.tracker_state(layer)) for layer in [*layers, *optimizers]]
        # Keras changes its own containers in place.
        containers = [
            # TensorFlow puts a wrapper around a dict.
            getattr(value, "__wrapped__", value)
            for _, held in self._held
            for value in held.values()
            if isinstance(value, (list, dict, set))
        ]
        self._contents = [(container, _kind(container)(container)) for container in containers]
        self._trains = [(variable, variable.trainable) for variable in model.variables]

    def remember(self, variable):
        """Keep the value of a variable that is about to be assigned for the first time."""
        if id(variable) not in self._written:
            self._written[id(variable)] = (variable, read(variable))

    def restore(self):
        for variable, value in self._written.values():
            variable.assign(value)
        for layer, kind in self._classes:
            layer.__class__ = kind
        for held, before in self._held:
            held.clear()
            held.update(before)
        for container, before in self._contents:
            if isinstance(container, list):
                list.__setitem__(container, slice(None), before)
            else:
                _kind(container).clear(container)
                _kind(container).update(container, before)
        for layer, kept in self._trackers:
            internals.set_tracker_state(layer, kept)
        for variable, trains in self._trains:
            variable.trainable = trains


def _kind(container):
    # Keras' own kinds would note what is put into them.
    return next(kind for kind in (list, dict, set) if isinstance(container, kind))
