"""What Keras 3 and KerasHub keep to themselves and is needed here; as `_keras_internals` for the first door.

tests/test_keras_hub.py tries what is done with it. A layer's tracker notes which layers and variables its attributes
hold, and refuses new ones once the layer is built.
"""

import contextlib
import sys

import keras
from keras.src.backend import AutocastScope, get_keras_mask
from keras_hub.src.models.deberta_v3.disentangled_attention_encoder import DisentangledAttentionEncoder
from keras_hub.src.utils import preset_utils


@contextlib.contextmanager
def unlocked(layer):
    """While it lasts, a built layer takes new layers and variables; publicly none does."""
    tracker = layer._tracker
    before = tracker.locked
    tracker.unlock()
    try:
        yield
    finally:
        if before:
            tracker.lock()


def replace_tracked(layer, **values):
    """Set attributes of a built layer to other layers, each at the place of the one before.

    Publicly a built layer takes no new one, and with an unlocked one the new layer, and its weights, come last.
    """
    with unlocked(layer):
        for name, value in values.items():
            old = getattr(layer, name, None)
            if old is value:
                continue
            if old is not None and layer._tracker.is_in_store("layers", old):
                layer._tracker.replace_tracked_value("layers", old, value)
            setattr(layer, name, value)


def untracked(layer, value):
    """Let a layer forget a layer or variable of its own; nothing for None. Keras does it for deleted attributes, and
    not for what a dict held."""
    if value is None:
        return
    if isinstance(value, keras.Variable):
        layer._untrack_variable(value)
    else:
        with unlocked(layer):
            layer._tracker.untrack(value)


def layers_of(layer):
    """A layer and all layers in it; a model's public `layers` are the first level alone."""
    return layer._flatten_layers()


def tracker_state(layer):
    """What a layer's tracker has: `(whether it is locked, dict of sets)`; `set_tracker_state` puts it back."""
    return layer._tracker.locked, {name: set(ids) for name, ids in layer._tracker.stored_ids.items()}


def set_tracker_state(layer, state):
    layer._tracker.locked, ids = state[0], state[1]
    for name, before in ids.items():
        stored = layer._tracker.stored_ids[name]
        stored.clear()
        stored.update(before)


def set_trainable_alone(layer, trainable):
    """Set a layer's `trainable`, and that of nothing inside, which the public setter changes too."""
    layer._trainable = trainable


def go_on_with(optimizer, variables):
    """Let an optimizer that has trained some variables train others; of those that it had before it keeps the moments.

    Publicly an optimizer refuses variables that it was not built with.
    """
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if not inner.built:
        return  # it is built at its first step
    before = list(inner._trainable_variables)
    slots = {
        name: list(values)
        for name, values in vars(inner).items()
        if isinstance(values, list) and name not in ("_variables", "_trainable_variables")
        and len(values) == len(before) and any(isinstance(value, keras.Variable) for value in values)
        and all(value is None or isinstance(value, keras.Variable) for value in values)
    }  # fmt: skip
    of_all = {name: value for name, value in vars(inner).items() if isinstance(value, keras.Variable)}
    with unlocked(inner):
        inner._trainable_variables_indices.clear()
        # Of which Keras on JAX knows variables by `id`, which a new one may have from one that is gone.
        getattr(inner, "_exclude_from_weight_decay_cache", {}).clear()
        inner.built = False
        inner.build(variables)
        # Nadam's product of its momenta goes on as `iterations` does.
        made_anew = {name: value for name, value in of_all.items() if getattr(inner, name) is not value}
        gone = {id(variable) for values in (*slots.values(), made_anew.values()) for variable in values}
        for variable in [one for one in inner._variables if id(one) in gone]:
            inner._tracker.untrack(variable)
    for name, value in made_anew.items():
        getattr(inner, name).assign(value)
    places = {id(variable): place for place, variable in enumerate(inner._trainable_variables)}
    for name, values in slots.items():
        for variable, value in zip(before, values):
            if value is not None and id(variable) in places:
                getattr(inner, name)[places[id(variable)]].assign(value)


def set_dropout(layer, rate):
    """Let a built Dropout have another rate, whether it was built to draw or not."""
    layer.rate = rate
    if rate and getattr(layer, "seed_generator", None) is None:
        with unlocked(layer):
            layer.seed_generator = keras.random.SeedGenerator(0)


def seed_generator(generator, seed):
    """Let what a SeedGenerator draws follow from a seed, `[seed, calls so far]`.

    PyTorch's dropout asks a generator that was made without a seed for nothing, and there is no public way to give it
    one later.
    """
    generator._initial_seed = seed
    generator.state.assign(keras.ops.convert_to_tensor([seed, 0], generator.state.dtype))


def attention_dropout(attention):
    """The rate at which a MultiHeadAttention drops its weights, and the SeedGenerator that decides which, or None."""
    layer = attention._dropout_layer
    return (layer.rate if attention._dropout else 0.0), getattr(layer, "seed_generator", None)


def uncast(variable):
    """A variable's value in its own dtype; within a layer's `call`, what is public is cast. A tensor as it is."""
    with AutocastScope(None):
        return variable.value if isinstance(variable, keras.Variable) else variable


def matrix_of(layer):
    """The matrix of a dense layer or an embedding as a tensor, also where Keras keeps it in eight bits: codes, and a
    scale for each output or row, whose layout is that of the codes by a method that is not public."""
    is_embedding = hasattr(layer, "embeddings")
    matrix = layer.embeddings if is_embedding else layer.kernel
    if layer.quantization_mode != "int8":
        return keras.ops.convert_to_tensor(matrix)
    scale = keras.ops.convert_to_tensor(layer.embeddings_scale if is_embedding else layer.kernel_scale)
    if is_embedding:
        scale = scale[:, None]
    elif hasattr(layer, "_adjust_scale_for_dequant"):
        scale = layer._adjust_scale_for_dequant(scale)
    return keras.ops.cast(matrix, "float32") / keras.ops.cast(scale, "float32")


def with_weights(dense, kernel, bias):
    """A dense layer like one that is built, which computes with other weights; publicly a kernel is not to be set."""
    made = object.__new__(type(dense))
    vars(made).update({**vars(dense), "_kernel": kernel, "bias": bias})
    return made


def policy_without_bits(policy):
    """The dtype policy behind one like `int8_from_mixed_bfloat16`; publicly Keras leads nowhere from it."""
    return keras.dtype_policies.get(policy.name.partition("_from_")[2]) if policy.quantization_mode else policy


def has_mask(tensor):
    """Whether Keras carries a mask beside a tensor, which its layers look for."""
    return get_keras_mask(tensor) is not None


def let_attentions_drop(model):
    """Let every MultiHeadAttention ask its Dropout: one that was built without never does."""
    for layer in layers_of(model):
        if isinstance(layer, keras.layers.MultiHeadAttention):
            layer._dropout = layer._dropout_layer.rate


def let_compiler_recurse():
    """Let PyTorch's compiler follow the calls of layers within layers, for which Python's usual limit is too low."""
    if keras.backend.backend() == "torch":
        sys.setrecursionlimit(max(sys.getrecursionlimit(), 4000))


def sync_state(model):
    """Let variables have the values of the latest step while a model's `fit` is at work; on JAX it keeps them to
    itself."""
    if keras.backend.backend() == "jax":
        model.jax_state_sync()


def loss_means(model, targets, outputs):
    """The running means that a compiled model's loss changes where it is computed: those of several outputs, a list.
    Keras makes them when it first knows outputs."""
    if not model._compile_loss.built:
        model._compile_loss.build(targets, outputs)
    return model._compile_loss.metrics


def count_loss(model, loss, targets, outputs):
    """Let all running means of a compiled model's loss have a batch."""
    model._loss_tracker.update_state(loss, sample_weight=keras.ops.shape(keras.tree.flatten(targets)[0])[0])
    if loss_means(model, targets, outputs):
        model._compile_loss(targets, outputs)


def have_values(variables):
    """Whether variables have their values; on JAX Keras takes them away until an epoch of `fit` ends."""
    return all(variable._value is not None for variable in variables)


@contextlib.contextmanager
def values_kept(model):
    """While it lasts, a first step of `fit` that fails leaves variables the values from before; on JAX Keras takes
    these away for a step, and gives back those of the latest one alone."""
    values = [(one, one._value) for one in (*model.variables, *model.optimizer.variables, *model.metrics_variables)]
    try:
        yield
    except BaseException:
        for one, value in values:
            one._value = value if one._value is None else one._value
        raise


def preset_file(source, name):
    """The path of a file of a preset, which is fetched if it is not here; None where the preset has none. Publicly
    KerasHub gives no file of one."""
    try:
        return preset_utils.get_file(source, name)
    except FileNotFoundError:
        return None


# KerasHub's blocks


# What a block calls its parts, and its attention those of its own; nothing public leads to them. TransformerEncoder and
# DisentangledAttentionEncoder have the same names.
_PARTS = {
    "attention": "_self_attention_layer", "attention_dropout": "_self_attention_dropout",
    "attention_norm": "_self_attention_layer_norm", "intermediate": "_feedforward_intermediate_dense",
    "output": "_feedforward_output_dense", "ffn_dropout": "_feedforward_dropout", "ffn_norm": "_feedforward_layer_norm",
}  # fmt: skip
_DENSES = {
    **{place: ("attention", f"_{place}_dense") for place in ("query", "key", "value")},
    "attention_output": ("attention", "_output_dense"),
    "intermediate": (None, _PARTS["intermediate"]), "output": (None, _PARTS["output"]),
}  # fmt: skip


def part(block, name):
    """A part of a block: `"attention"`, `"attention_dropout"`, `"attention_norm"`, `"intermediate"`, `"output"`,
    `"ffn_dropout"` or `"ffn_norm"`."""
    return getattr(block, _PARTS[name])


def dense_place(block, place):
    """Where a block keeps a dense layer: `(owner, attribute)`; `place` is one of `config.DENSE_PLACES`."""
    owner, attribute = _DENSES[place]
    return (block if owner is None else part(block, owner)), attribute


# What KerasHub's head of masked words calls its parts.
_OF_MASKED_WORDS = {"dense": "_intermediate_dense", "norm": "_intermediate_layer_norm", "bias": "_bias"}


def masked_words_part(model, name):
    """A part of the head of a task model of masked words: `"dense"`, `"norm"`, or the variable `"bias"`."""
    return getattr(model.masked_lm_head, _OF_MASKED_WORDS[name])


def disentangled_encoder():
    """The class of DeBERTa's blocks; KerasHub exports the backbone that is made of them, and not the class."""
    return DisentangledAttentionEncoder
