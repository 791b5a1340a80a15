"""The operations that the layers of methods are written in, under the same names for each Keras.

`layers.ops.keras2` is `tf_keras`, whose models are those of transformers; `layers.ops.keras3` is `keras`, on whatever
backend it runs. A module of operations has

    keras                        the Keras
    layer(mixin)                 the Keras layer that computes what a `MethodLayer` says
    weight_name(part)            what Keras calls the weight of a part such as `down.kernel`
    scope(name)                  a context in which weights get the name's prefix
    activation(name)             the function of one of `tf_adapters.config.ACTIVATIONS`
    dropout(rate, seed)          a layer whose random numbers follow from a state that can be saved
    value(weight)                a weight as a tensor, in the type in which the layer computes
    uncast(weight)               the same in the weight's own type
    pick(place, choices)         of lists of like tensors the one at a place, an int32 scalar, from 1 on; zeros for 0
    flat(inputs), like(rows, inputs)
                                 positions as rows of one matrix, where that is faster, and back
    float32                      a type
    cast, matmul, bias_add, stack, einsum, softmax, column_norms, stop_gradient, layer_norm, squares, constant

and, for losses of logits `(rows, labels)` and for schedules,

    log_softmax(logits), mean(values)
                                 over the last axis
    take(values, index)          rows of an array
    choose(condition, where, otherwise), maximum(values, others)
    of_label(values, labels)     each row's value of its label, `(rows,)`
    flat_labels(labels)          `(rows,)` int32
    largest(values, count)       where the largest of one axis stand, `(count,)`, those of equal ones from the front
    reshape, shape, argmax       as of each Keras
    binary_crossentropy(logits, targets)
"""

from tf_adapters._installation import submodules_of

__getattr__ = submodules_of(__name__)
