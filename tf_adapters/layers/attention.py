"""Self-attention of an encoder block, with dropout of its weights. Vaswani et al. 2017, section 3.2

The scores of all pairs of tokens are the largest tensors of a training step. Those of long rows are made part by part,
each of a size that stays in a core's cache, and made anew for the gradient, so that they never stand in memory (Dao et
al. 2022, FlashAttention). That is for float32 on CPUs, where it was measured; elsewhere, and of short rows, which would
wait longer for the compilation than they gain, the scores are made at once and kept. Where oneDNN makes the products,
XLA's are slower than they are, and rows are long from 512 tokens on.
"""

import functools

import tensorflow as tf

from tf_adapters._keras_internals import uses_onednn
from tf_adapters.layers.fused import compiled, drop, is_uncompiled, keep_mask, narrowed, rows, wide, widened

_LONG = 2**18 if uses_onednn() else 2**15  # scores of a head from which on they are made by parts
_PART = 2**18  # scores of a part at most: 1 MiB of float32


@functools.cache
def dot_product_attention(rate, scale):
    """The operation `dropout(softmax(scale query key' + mask)) value`.

    Args:
        rate: of the dropout, in [0, 1).
        scale: float.

    Returns: function of query `(batch, heads, queries, width)`, key and value `(batch, heads, keys, width)`, mask that
        can be added to the scores, or None, and seed (see `keep_mask`), or None at rate 0; its result has the shape of
        query. The mask has no gradient.
    """
    ways = _at_once(rate, scale), _by_parts(rate, scale)
    either = [_either(*both) for both in zip(*ways)]

    def apply(query, key, value, mask, seed):
        @tf.custom_gradient
        def operation(*tensors):
            is_long = _is_long(*tensors[:2])
            forward, backward = either if is_long is None else ways[is_long]
            context, *kept = forward(mask, seed, *tensors)

            def gradient(upstream):
                return backward(mask, seed, *tensors, context, *kept, upstream)

            return context, gradient

        return operation(query, key, value)

    return apply


def _either(at_once, by_parts):
    """What does one or the other, by the lengths of query and key; it is traced once for all layers."""

    @functools.partial(tf.function, autograph=False, reduce_retracing=True, experimental_attributes={"_noinline": True})
    def choose(mask, seed, *tensors):
        rows, _, queries, _ = tf.unstack(tf.shape(tensors[0]))
        # A loop over no rows would not know what it makes.
        is_long = tf.minimum(rows, 1) * queries * tf.shape(tensors[1])[2] >= _LONG
        branches = [lambda way=way: way(mask, seed, *tensors) for way in (at_once, by_parts)]
        # As a case, for then XLA compiles the branch that is taken alone: what they keep is of different shapes.
        return tf.switch_case(tf.cast(is_long, tf.int32), branches)

    return choose


def _is_long(query, key):
    """Whether scores are made by parts: a bool, or None if that is known when the graph runs."""
    # Other formats' runtimes are slow at loops, and a GPU is at small parts.
    if is_uncompiled() or query.dtype != tf.float32 or tf.config.list_physical_devices("GPU"):
        return False
    rows, lengths = query.shape[0], query.shape[2:3] + key.shape[2:3]
    if not lengths.is_fully_defined():
        return None
    is_long = lengths.num_elements() >= _LONG
    return None if is_long and rows is None else is_long and rows > 0


# Each way is two functions of mask, seed, query, key and value. The first has three results: the context, and two
# tensors that are kept. The second is given these and the context's gradient, and has those of query, key and value.


def _at_once(rate, scale):
    # One tensor is kept of the weights and what dropout makes of them. Weights are not negative, so one that is dropped
    # can be, and is too small for a product to see.
    kept, tiny = 1 / (1 - rate), 2.0**-64

    @compiled
    def drop_weights(weights, seed):
        keep = keep_mask(tf.shape(weights), seed, rate)
        return narrowed(widened(weights) * tf.where(keep, kept, -tiny), _of_range(weights.dtype))

    @compiled
    def of_softmax(upstream, weights, along):
        dtype, upstream, weights = upstream.dtype, widened(upstream), widened(weights)
        if rate:
            keep = weights > 0
            upstream, weights = tf.where(keep, upstream * kept, 0.0), weights * tf.where(keep, 1 / kept, -1 / tiny)
        return narrowed(weights * (upstream - along) * scale, dtype)

    def forward(mask, seed, query, key, value):
        scores = tf.matmul(query, key, transpose_b=True) * scale
        if mask is not None:
            # TensorFlow lets oneDNN scale and mask in the product itself, unless the mask too is a product.
            scores += tf.maximum(mask, mask.dtype.min)
        weights = tf.nn.softmax(scores)
        weights = drop_weights(weights, seed) if rate else weights
        return tf.matmul(tf.cast(weights, value.dtype), value), weights, tf.zeros([])

    def backward(mask, seed, query, key, value, context, weights, _, upstream):
        # The softmax's gradient needs the sum over keys of weights times their gradient, which equals the sum over
        # the width of the context times its own.
        along = tf.reduce_sum(wide(upstream) * wide(context), -1, keepdims=True)
        of_scores = of_softmax(tf.matmul(upstream, value, transpose_b=True), weights, along)
        return (
            tf.matmul(of_scores, key),
            tf.matmul(of_scores, query, transpose_a=True),
            tf.matmul(tf.cast(weights, value.dtype), upstream, transpose_a=True),
        )

    return forward, backward


def _of_range(dtype):
    """A type of floats that has numbers below 2**-64, if `dtype` has none."""
    return tf.float32 if dtype == tf.float16 else dtype


def _by_parts(rate, scale):
    # Scores are `(heads, keys, queries)`: what is added up over keys is added up in vectors of queries, and all
    # products but the scores' own read them in the order in which they stand.

    def scores(query, key, mask):
        return tf.matmul(key, query, transpose_b=True) * scale + _turn(mask)

    def dropped(tensor, seed, start):
        return drop(tensor, seed, rate, start) if rate else tensor

    @compiled
    def forward(mask, seed, start, query, key, value):
        made = scores(query, key, mask)
        greatest = tf.reduce_max(made, 1, keepdims=True)
        exponentials = tf.exp(made - greatest)
        total = tf.reduce_sum(exponentials, 1, keepdims=True)
        context = tf.matmul(_turn(value), dropped(exponentials, seed, start)) / total
        return _turn(context), greatest, total

    @compiled
    def backward(mask, seed, start, query, key, value, context, greatest, total, upstream):
        weights = tf.exp(scores(query, key, mask) - greatest) / total
        kept = dropped(weights, seed, start)
        along = tf.reduce_sum(_turn(upstream) * _turn(context), 1, keepdims=True)
        of_scores = (kept * tf.matmul(value, upstream, transpose_b=True) - weights * along) * scale
        return _turn(tf.matmul(_turn(key), of_scores)), tf.matmul(of_scores, query), tf.matmul(kept, upstream)

    return functools.partial(_loop, forward), functools.partial(_loop, backward)


def _turn(tensor):
    return tf.linalg.matrix_transpose(tensor)


def _loop(program, mask, seed, *tensors):
    """Three results of `program`, each `(batch, heads, ., .)`, from as many rows' heads at a time as make a part.

    Args:
        program: of the part's mask, seed, the position of its first score, and its part of the tensors.
        mask: `(1 or batch, 1 or heads, 1 or queries, 1 or keys)`, or None.
        tensors: query, key and others, each `(batch, heads, ., .)`.
    """
    mask = tf.zeros([1, 1, 1, 1]) if mask is None else tf.maximum(mask, mask.dtype.min)
    seed = tf.zeros([2], tf.int32) if seed is None else seed
    batch, heads, queries, _ = tf.unstack(tf.shape(tensors[0]))
    scores, count = queries * tf.shape(tensors[1])[2], batch * heads
    # Of one size, for a program is compiled for each, and known when a graph is compiled as a whole.
    sizes = tf.range(1, tf.clip_by_value(_PART // scores, 1, count) + 1)
    size = tf.reduce_max(tf.where(count % sizes == 0, sizes, 1))
    tensors = [tf.reshape(x, tf.concat([[count // size, size], tf.shape(x)[2:]], 0)) for x in tensors]
    of_rows, of_heads = tf.unstack(tf.shape(mask)[:2])
    masks = tf.reshape(mask, tf.concat([[of_rows * of_heads], tf.shape(mask)[2:]], 0))
    each = tf.range(count)
    own = tf.minimum(each // heads, of_rows - 1) * of_heads + tf.minimum(each % heads, of_heads - 1)
    own = tf.reshape(own, [-1, size])

    def part(number):
        mask = tf.gather(masks, own[number])
        return program(mask, seed, number * size * scores, *[x[number] for x in tensors])

    results = tf.map_fn(part, tf.range(count // size), fn_output_signature=(tf.float32,) * 3)
    return tuple(tf.reshape(x, tf.concat([[batch, heads], tf.shape(x)[2:]], 0)) for x in results)


def attend(states, query, key, value, *, heads, mask, rate=0.0, seed=None, queries=None):
    """What self-attention makes of hidden states, before its output layer.

    Args:
        states: `(batch, length, hidden)`.
        query, key, value: `Dense`.
        heads: int.
        mask: can be added to the scores `(batch, heads, queries, length)`, or None.
        rate, seed: of the dropout of the weights (see `keep_mask`); at rate 0 there is no seed.
        queries: int, only so many first tokens ask, and the others are asked; None for all.

    Returns: `(batch, queries, hidden)`.
    """
    scale = (query.kernel.shape[1] // heads) ** -0.5
    if queries is None:
        parts = _project(states, (query, key, value), heads)
    else:
        parts = _project(states[:, :queries], (query,), heads) + _project(states, (key, value), heads)
    context = tf.transpose(dot_product_attention(rate, scale)(*parts, mask, seed), [0, 2, 1, 3])
    return tf.reshape(context, tf.concat([tf.shape(context)[:2], [query.kernel.shape[1]]], 0))


def _project(states, denses, heads):
    """`(batch, heads, length, width)` for each of several dense layers, by one product.

    LoRA's updates take two narrow products for all of them.
    """
    size = denses[0].kernel.shape[1]
    kernel, bias = (
        tf.concat([tf.cast(getattr(dense, name), states.dtype) for dense in denses], -1) for name in ("kernel", "bias")
    )
    flat = rows(states)
    joint = tf.nn.bias_add(tf.matmul(flat, kernel), bias)
    down, up = [], []
    for number, dense in enumerate(denses):
        if dense.update:
            a, b, factor = dense.update
            down.append(tf.cast(a, states.dtype))
            thin = tf.cast(wide(b) * factor, states.dtype)
            up.append(tf.pad(thin, [[0, 0], [number * size, (len(denses) - 1 - number) * size]]))
    if down:
        joint += tf.matmul(tf.matmul(flat, tf.concat(down, 1)), tf.concat(up, 0))
    batch, length = tf.unstack(tf.shape(states)[:2])
    joint = tf.reshape(joint, [batch, length, len(denses), heads, size // heads])
    return tf.unstack(tf.transpose(joint, [2, 0, 3, 1, 4]))
