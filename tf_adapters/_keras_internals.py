"""What TensorFlow, tf_keras, transformers and their companions keep to themselves and is needed here.

No other file touches it. Each function says why the public interface does not do. The tests run at both ends of the
versions.
"""

import contextlib
import functools

import tensorflow as tf
from tensorflow.python.framework import ops

# An object whose variables checkpoints and SavedModels see. The public `tf.Module` would do that too, but Keras counts
# its variables among the weights of a layer that holds it.
AutoTrackable = tf.__internal__.tracking.AutoTrackable


# A layer and its layers


def layers_of(layer):
    """A layer and all layers in it, as an iterator; metrics are none.

    `submodules` finds the same, and takes eighty times as long for an encoder of twelve blocks.
    """
    return layer._flatten_layers()


def replace_layer(owner, name, layer):
    """Set `owner.name` to another layer, or list of layers, at the same place among its layers.

    Setting the attribute alone puts the new one behind all others, and with it its weights.
    """
    replaced = getattr(owner, name)
    if replaced is layer:
        return
    place = next(place for place, other in enumerate(owner._self_tracked_trackables) if other is replaced)
    setattr(owner, name, layer)
    # The list is another one now.
    owner._self_tracked_trackables.insert(place, owner._self_tracked_trackables.pop())


def change_class(model, model_class):
    """Make a model one of another class, which is called with other arguments.

    Keras notes the arguments of `call` when a model is made, and publicly never again.
    """
    if type(model) is not model_class:
        model.__class__ = model_class
        model._init_call_fn_args()


def reference_counts(layer):
    """The dict in which Keras counts how many attributes of a layer hold an object; it is changed in place.

    Attributes that are put back without Keras' knowledge need their counts put back too: a layer in it that has none
    stays among its layers when the attribute is deleted. Keras offers no public way to them.
    """
    return layer._obj_reference_counts._storage


def writes_saved_model():
    """Whether Keras' own `save` is writing a SavedModel; TensorFlow's, and `export`, write computation alone.

    Nothing public is called by the one and not by the other before the first file is there.
    """
    # The second door alone has TensorFlow and no tf_keras, and takes what SentencePiece needs from here.
    from tf_keras.src.saving.legacy.saved_model.utils import in_tf_saved_model_scope

    return in_tf_saved_model_scope()


# A layer's own weights and whether they train


def own_weights(layer):
    """The variables that a layer itself owns, without those of its layers: a list of what trains and one of the others.

    The public `trainable_weights` has those of all layers inside too, and none of a frozen layer.
    """
    return list(layer._trainable_weights), list(layer._non_trainable_weights)


def set_own_weights(layer, trains, others):
    """Let some of a layer's own variables train, and others not.

    Keras' `trainable` is for a layer as a whole, with all layers inside.
    """
    layer._trainable_weights[:], layer._non_trainable_weights[:] = trains, others


def set_trainable_alone(layer, trainable):
    """Set a layer's `trainable`, and that of no layer inside, which the public setter changes too."""
    layer._trainable = trainable


def in_order_made(layer, variables):
    """A layer's own variables in the order in which they were made, whatever trained since.

    The public lists tell the order of those that train and that of the others, but not how they stood together.
    """
    places = {id(child.ref): place for place, child in enumerate(layer._self_unconditional_checkpoint_dependencies)}
    return sorted(variables, key=lambda variable: places.get(id(variable), len(places)))


def exchange_variable(layer, attribute, new):
    """Set `layer.attribute`, a variable of its own, to another, at the same place in its weights and checkpoints.

    Setting the attribute alone lets it train where `set_own_weights` said that the old one does not, and checkpoints go
    on with the old one where `add_weight` was given another name.
    """
    old, (trains, others) = getattr(layer, attribute), own_weights(layer)
    setattr(layer, attribute, new)
    set_own_weights(layer, *([new if other is old else other for other in before] for before in (trains, others)))
    for name, dependency in list(layer._self_unconditional_dependency_names.items()):
        if dependency is old:
            layer._track_trackable(new, name=name, overwrite=True)


# Precision


def compute_in(layer, policy):
    """Give a layer that was made already another precision policy.

    The public `dtype_policy` can only be read. By Keras' design a layer's policy never changes (tensorflow/community
    pull request 293).
    """
    layer._set_dtype_policy(policy)


def uncast(variable):
    """A variable's value as a tensor in the variable's own dtype.

    Within a layer's `call`, whatever reads a variable publicly gets it in the dtype that the layer computes in.
    """
    return tf.convert_to_tensor(getattr(variable, "_variable", variable))


def loss_scale_variables(optimizer):
    """The variables of an optimizer's loss scale, if it has one; `optimizer.variables` leaves them out.

    Of the scale there is publicly the value alone, and a run that goes on has to set it.
    """
    scale = getattr(optimizer, "_loss_scale", None)
    return [getattr(scale, name) for name in ("current_loss_scale", "counter") if hasattr(scale, name)]


# Training


def go_on_with(optimizer, variables):
    """Let an optimizer that has trained some variables train others; of those that it had before it keeps the moments.

    Without it Keras' optimizers fail with a `KeyError` at the first step, for they know only what they were built
    with.

    Args:
        optimizer: of Keras, a `LossScaleOptimizer` too; the object stays the same.
        variables: list of what trains from now on.
    """
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if not getattr(inner, "_built", False) or not hasattr(inner, "_index_dict"):
        return  # it is built at its first step
    before = list(inner._index_dict)
    slots = {
        name: list(values)
        for name, values in vars(inner).items()
        if isinstance(values, list) and name != "_variables" and len(values) == len(before)
        and all(isinstance(value, tf.Variable) for value in values)
    }  # fmt: skip
    moments = {id(variable) for values in slots.values() for variable in values}
    # Nadam's product of its momenta, and how many there are, go on as `iterations` does.
    of_all = {name: value for name, value in vars(inner).items() if name.startswith("_u_product")}
    inner._variables = [variable for variable in inner._variables if id(variable) not in moments]
    inner._built = False
    inner.build(variables)
    for name, value in of_all.items():
        setattr(inner, name, value)
    for name, values in slots.items():
        for key, value in zip(before, values):
            if key in inner._index_dict:
                getattr(inner, name)[inner._index_dict[key]].assign(value)


@functools.cache
def one_pass(adam):
    """Adam or AdamW of Keras whose moments and weights are updated in one pass over memory.

    Keras writes each update as some ten operations, each with a pass of its own: of full fine-tuning's step they are
    nearly half. TensorFlow has a kernel for the whole of it, and Keras no public way to the moments of a variable.
    """

    def update_step(self, gradient, variable):
        """Update one variable."""
        place, dtype = self._index_dict[self._var_key(variable)], variable.dtype
        step = tf.cast(self.iterations + 1, dtype)
        beta_1, beta_2 = tf.cast(self.beta_1, dtype), tf.cast(self.beta_2, dtype)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle, m=self._momentums[place].handle, v=self._velocities[place].handle,
            beta1_power=beta_1**step, beta2_power=beta_2**step, lr=tf.cast(self.learning_rate, dtype), beta1=beta_1,
            beta2=beta_2, epsilon=tf.cast(self.epsilon, dtype), grad=tf.convert_to_tensor(gradient),
        )  # fmt: skip

    def clip_gradients(self, gradients):
        # Keras sums the occurrences of an embedding's row after it has clipped, and so takes another norm.
        return adam._clip_gradients(self, self._deduplicate_sparse_grad(gradients))

    # A model that is saved with it names Keras' own, which takes its place when it is loaded.
    about = {"update_step": update_step, "_clip_gradients": clip_gradients, "__module__": adam.__module__}
    return type(adam.__name__, (adam,), about)


def train_what_is_chosen(model):
    """Let a compiled model's `fit` train the layers that are trainable now.

    While `fit` trains, every layer's `trainable` is what it was in `compile`. Publicly another `compile` helps, which
    needs all its arguments again.
    """
    vars(model)["_compiled_trainable_state"] = model._get_trainable_state()


def strategy_made_under(model):
    """The `tf.distribute.Strategy` in whose scope a Keras model was made, or None.

    The public `distribute_strategy` is the current one for a model that was made under none.
    """
    return getattr(model, "_distribution_strategy", None)


def registered_gradients():
    """The dict from name to gradient in which TensorFlow keeps those of `tf.custom_gradient`; empty if that is gone.

    Publicly a gradient can be added (`tf.RegisterGradient`), and neither be seen nor be removed.
    """
    return getattr(getattr(ops, "gradient_registry", None), "_registry", {})


def traced_once(function):
    """The same `tf.function`, of whose traces TensorFlow does not warn.

    It takes functions that one line of code makes for several models for one that is traced again and again. Publicly
    the warning goes away with all others of TensorFlow alone.
    """
    function._omit_frequent_tracing_warning = True
    return function


# Files, operations and the processor


def file_on_hub(source, name, revision):
    """Path of a file of a HuggingFace repository, downloaded if need be; None if there is no such file or no network.

    Publicly `cached_file` raises the same OSError for a file that is not there as for anything else that goes wrong.
    """
    from transformers.utils import cached_file

    return cached_file(source, name, revision=revision, _raise_exceptions_for_missing_entries=False)


def sentencepiece_operations():
    """tensorflow-text's SentencePiece operations.

    The public `SentencepieceTokenizer` gives its resource no name, and is gone after `tf.random.set_seed`
    (tensorflow/text issue 570).
    """
    # Costs seconds, hence not at the top.
    from tensorflow_text.python.ops.sentencepiece_tokenizer import gen_sentencepiece_tokenizer

    return gen_sentencepiece_tokenizer


def uses_onednn():
    """Whether oneDNN makes TensorFlow's products: it decides by the processor and TF_ENABLE_ONEDNN_OPTS, and only logs
    it."""
    from tensorflow.python.util._pywrap_util_port import IsMklEnabled

    return IsMklEnabled()


# keras-tuner


@contextlib.contextmanager
def without_tracebacks():
    """While the block runs, keras-tuner prints no traceback of a trial that fails; the trial keeps its message.

    What decides that is a constant of the library.
    """
    from keras_tuner.src import config

    before, config.DEBUG = config.DEBUG, False
    try:
        yield
    finally:
        config.DEBUG = before
